"""Which partition a key belongs in: murmur2 like Kafka's own producers, so that everybody agrees."""

from aiokafka.partitioner import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions`."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)
