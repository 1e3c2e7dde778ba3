"""SQLite through apsw: the database of a scope of memory as a file, and its changes as pages."""
