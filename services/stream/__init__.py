"""The one loop for every family: read, fold, decide, append, react. Nothing in here knows what a run is."""
