"""What a host meets outside itself: a way to the log that can fail, an index that can lag, a few definitions."""

import asyncio
from collections.abc import Sequence
from random import Random

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import Undecodable
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.reader import TermReader
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.runtime.models.definition_resolver import DefinitionResolver
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.run_index import EndedRun
from loomlog.services.stream.family import Topics

TOPICS = Topics.of("run")


class Wire:
    """A host's way to the log (LogAppender). Faults are asked for or drawn."""

    def __init__(self, log: MemoryLog, random: Random) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay = 0
        """Turns of the event loop before a batch lands, at most."""
        self.lose_acks = 0.0
        """Chance that a batch lands and its acknowledgement does not come."""
        self.lose_batches = 0.0
        """Chance that a batch does not land at all."""
        self.fails: Exception | None = None
        self._log = log
        self._random = random

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        if self.fails is not None:
            raise self.fails
        for _ in range(self._random.randint(0, self.delay)):
            await asyncio.sleep(0)
        await self.open.wait()
        if self._random.random() < self.lose_batches:
            raise UnknownOutcome("the batch was lost on request")
        base = await self._log.append(topic, partition, records)
        if self._random.random() < self.lose_acks:
            raise UnknownOutcome("the acknowledgement was lost on request")
        return base

    async def partitions(self, topic: str) -> int:
        return await self._log.partitions(topic)

    async def close(self) -> None:
        """Nothing to close."""


class Index:
    """The audit index over the log as far as `limits` lets it see; without a limit it never lags."""

    def __init__(self, log: MemoryLog, partitions: int) -> None:
        self.limits: dict[int, int] = {}
        self.asked = 0
        self._log = log
        self._partitions = partitions

    async def next_offset(self, partition: int) -> int:
        self.asked += 1
        return self.limits.get(partition, len(self._log.records[TOPICS.events, partition]))

    async def find_run(self, run_id: str) -> EndedRun | None:
        return next((run for run in self._ended() if run.run_id == run_id), None)

    async def last_run_of_session(self, session_id: str) -> EndedRun | None:
        # A run of one event was refused: it was asked for in the session and is no part of it.
        runs = [run for run in self._ended() if run.session_id == session_id and run.last_offset > run.first_offset]
        return runs[-1] if runs else None

    def _ended(self) -> list[EndedRun]:
        runs: list[EndedRun] = []
        for partition in range(self._partitions):
            records = self._log.records[TOPICS.events, partition]
            seen: dict[str, tuple[int, str, str]] = {}
            reader = TermReader()
            for record in records[: self.limits.get(partition, len(records))]:
                try:
                    raw = reader.read(record.offset, record.value)
                except Undecodable:
                    continue
                if raw is None:
                    continue
                decoded = raw.decode()
                assert decoded.envelope is not None
                session = getattr(decoded.record, "session_id", "")
                first, session, tenant = seen.setdefault(
                    raw.aggregate, (record.offset, session, decoded.envelope.tenant)
                )
                if decoded.record.SCHEMA in RunFamily.endings:
                    runs.append(
                        EndedRun(
                            run_id=raw.aggregate,
                            tenant=tenant,
                            session_id=session,
                            partition=partition,
                            first_offset=first,
                            last_offset=record.offset,
                            ended_at_ms=decoded.envelope.at_ms,
                        )
                    )
        return runs


class Definitions(DefinitionResolver):
    """One agent, and whatever else a test adds."""

    def __init__(self) -> None:
        self.known = {"helper": AgentDefinition(name="helper", provider="acme", model="large", tools=("T",))}

    def resolve(self, agent: str, **_: object) -> AgentDefinition | CommandRefusal:
        definition = self.known.get(agent)
        return definition or CommandRefusal(code="unknown_agent", message=f"agent {agent} does not exist")

    def is_loaded(self, agent: str, **_: object) -> bool:
        return True

    async def load(self, agent: str, **_: object) -> None:
        """Everything is loaded."""

    def providers(self) -> frozenset[str]:
        return frozenset(known.provider for known in self.known.values())
