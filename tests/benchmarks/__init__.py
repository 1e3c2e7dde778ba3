"""Measuring: figures come from here, never from a timed test."""
