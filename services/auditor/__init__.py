"""Auditor process: signs the contents of the events partitions."""
