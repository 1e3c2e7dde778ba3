"""The process that signs what the events partitions hold."""
