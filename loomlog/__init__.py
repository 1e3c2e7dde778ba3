"""loomlog: an agent runtime whose only truth is a Kafka-compatible log (docs/decisions/0029-one-import-namespace.md)."""
