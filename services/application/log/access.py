"""What the use cases of the log are given: readers of any topic, the topics of the broker, and the keys to trust.

Before: services/application/bootstrap.py opens it. After: connectors/kafka, redpanda/cluster.py.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, open_ranges
from loomlog.connectors.protocols import LogRanges
from loomlog.redpanda.cluster import ClusterProblem, connect
from loomlog.redpanda.topics import ExistingTopic, Topic

CLUSTER_WAIT_S = 5.0
"""Time limit of each request about topics and their settings."""

TopicPartition = tuple[str, int]


class TopicRanges(LogRanges, Protocol):
    """Reader of ranges that also knows times, and the offsets of many partitions. Everything raises Transient."""

    async def offset_at(self, topic: str, partition: int, at_ms: int) -> int:
        """Return the offset of the first record at or after a time; the end when all are older."""
        ...

    async def boundary_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return beginning and end offset of each partition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAccess:
    """Access to all topics of the installation."""

    ranges: TopicRanges
    """Reader for short ranges, shared with others."""
    open_ranges: Callable[[], AbstractAsyncContextManager[TopicRanges]]
    """Opens a reader of its own, for long ranges. Raises Transient."""
    existing_topics: Callable[[Sequence[str]], Awaitable[Mapping[str, ExistingTopic]]]
    """Returns those of the named topics that the broker has. Raises Transient."""
    count_partitions: Callable[[str], Awaitable[int]]
    """Returns the number of partitions of a topic, 0 when the broker does not have it. Raises Transient."""
    required_topics: Sequence[Topic]
    """The topics of the installation, as topics.yaml has them."""
    place: str
    """Address of the broker, for messages."""
    trusted_keys: Mapping[str, PublicKey]
    """Public keys of checkpoints, by id."""
    audit_period_s: float
    """How often the auditor signs."""


def kafka_access(
    options: KafkaOptions,
    ranges: KafkaRanges,
    appender: KafkaAppender,
    *,
    required_topics: Sequence[Topic],
    trusted_keys: Mapping[str, PublicKey],
    audit_period_s: float,
) -> LogAccess:
    """Return the access to the topics of a broker."""
    return LogAccess(
        ranges=ranges,
        open_ranges=partial(open_ranges, options),
        existing_topics=partial(read_topics, options),
        count_partitions=appender.partitions,
        required_topics=required_topics,
        place=options.bootstrap,
        trusted_keys=trusted_keys,
        audit_period_s=audit_period_s,
    )


async def read_topics(options: KafkaOptions, names: Sequence[str]) -> Mapping[str, ExistingTopic]:
    """Return those of the named topics that the broker has, with their settings. Raises Transient."""
    try:
        async with connect(options, timeout_s=CLUSTER_WAIT_S) as cluster:
            return await cluster.existing(names)
    except ClusterProblem as problem:
        raise Transient(str(problem), kind="unavailable") from problem
