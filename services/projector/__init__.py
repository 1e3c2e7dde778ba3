"""The process that makes rows out of events."""
