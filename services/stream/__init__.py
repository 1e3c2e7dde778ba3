"""The one loop for every family: read, fold, decide, append, react. Nothing here knows what a run is."""
