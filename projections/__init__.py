"""What can be asked: read models in Postgres, one file a family of tables, made from the events of the log alone."""
