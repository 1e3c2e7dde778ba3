"""Schemas of loomlog: every record that crosses a process boundary. Imports no other package of loomlog."""
