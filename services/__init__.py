"""The processes of loomlog, one folder each, and beside them core (the rules) and stream (the loop)."""
