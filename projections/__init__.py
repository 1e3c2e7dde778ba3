"""Read models in Postgres: one file per family of tables, derived from the events of the log alone."""
