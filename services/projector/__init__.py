"""Projector process: makes rows from events."""
