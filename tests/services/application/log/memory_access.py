"""Access to the topics of a log in memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from loomlog.connectors.crypto.signatures import PublicKey
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.redpanda.topics import ExistingTopic, load_topics
from loomlog.services.application.log.access import LogAccess

REQUIRED = load_topics()
SETTINGS: Mapping[str, Mapping[str, str]] = {topic.name: topic.settings for topic in REQUIRED}


def memory_access(log: MemoryLog, trusted_keys: Mapping[str, PublicKey] | None = None) -> LogAccess:
    """Access to a log in memory; its topics have the settings of topics.yaml."""

    @asynccontextmanager
    async def open_ranges() -> AsyncIterator[MemoryLog]:
        yield log

    async def existing_topics(names: Sequence[str]) -> Mapping[str, ExistingTopic]:
        counts = {name: await log.partitions(name) for name in names}
        return {
            name: ExistingTopic(name=name, partitions=count, replicas=1, settings=SETTINGS[name], own={})
            for name, count in counts.items()
            if count
        }

    return LogAccess(
        ranges=log,
        open_ranges=open_ranges,
        existing_topics=existing_topics,
        count_partitions=log.partitions,
        required_topics=REQUIRED,
        place="memory",
        trusted_keys=trusted_keys or {},
        audit_period_s=1.0,
    )
