"""Partition of a key: murmur2 as in Kafka's own producers, so that all writers agree."""

from aiokafka.partitioner import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)
