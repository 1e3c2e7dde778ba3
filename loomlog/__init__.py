"""An agent runtime whose only truth is a Kafka-compatible log. The folder: decision 0029-one-import-namespace.md."""
