"""The parts of a process with entities over a log in memory, with one partition and rows that are folded from it."""

from collections.abc import Callable
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.codec import local_codec
from loomlog.services.core.families import Family
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, HostedEntities, build_entity_parts
from loomlog.services.stream.family import Topics
from tests.services.stream.entities.world import FoldedRows

TOPICS, RUNS = Topics.of("entity"), Topics.of("run")


class Entities:
    """Makes the parts of processes over one log; `partitions` says which topics it needs."""

    partitions = dict.fromkeys((TOPICS.commands, TOPICS.events, TOPICS.snapshots), 1)

    def __init__(
        self, log: MemoryLog, families: tuple[Family[Any, Any, Any], ...], clock_ms: Callable[[], int]
    ) -> None:
        self._log, self._families, self._clock_ms = log, families, clock_ms
        self.rows = FoldedRows(log, EntityFamilies(FamilySet(families)))

    def parts(self) -> EntityParts:
        """Of a process that has read nothing yet."""
        return build_entity_parts(
            self._families,
            local_codec(),
            appender=self._log,
            ranges=self._log,
            partitions=1,
            topics=TOPICS,
            rows=self.rows,
        )

    def hosted(self, parts: EntityParts, name: str) -> HostedEntities:
        """Of a process that may own the partition."""
        commands = self._log.tail(TOPICS.commands, {0: 0})
        commands.pause([0])
        return HostedEntities(
            parts,
            local_codec(),
            appender=self._log,
            ranges=self._log,
            commands=commands,
            dead_letters=DeadLetters(local_codec(), self._log, topic="letters", service=name, clock_ms=self._clock_ms),
            rows=self.rows,
            run_topics=RUNS,
            clock_ms=self._clock_ms,
            name=name,
        )
