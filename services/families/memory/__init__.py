"""Memory: values that agents, applications and operators keep by key, in the log."""
