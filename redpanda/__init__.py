"""The log's side of the house: which topics exist and with which settings, and the local broker's settings."""
