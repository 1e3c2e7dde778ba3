"""Ports: what a shell and families need of each other, one module for each need. It is no family."""
