"""Pieces of a runtime for its tests: a desk over a partition in memory, a model and tools that do as they are told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import (
    Capabilities,
    ConsumerRecord,
    EffectClass,
    ModelItem,
    ModelRequest,
    Reply,
    ToolContext,
    ToolResult,
)
from loomlog.schemas.generated.run_commands import CancelRun, Command, PauseRun, PostInput, ResumeRun, StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.services.core.run.state import Ended
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.partition import Aggregate, Partition
from tests.run_options import grouped
from tests.services.core.run.given import NOW
from tests.services.stream.given import CODEC, EVENTS, FAMILY, claim_record
from tests.services.stream.outside import TOPICS, Definitions, Index

PARTITIONS = 1
TALLIES = "tallies"


class ToldTallies(RunSummaries):
    """Remembers who ended."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(CODEC, log, topic=TALLIES, clock_ms=lambda: NOW)
        self.told: list[tuple[str, str]] = []

    def add_ended_run(self, aggregate: Aggregate, state: Ended, partition: int) -> None:
        super().add_ended_run(aggregate, state, partition)
        self.told.append((aggregate.id, state.status))


@dataclass(slots=True)
class DeskAtWork:
    """A desk, its partition and the log they write to."""

    known_since_ms: int = 0
    forgotten_until: int = 0
    now: int = NOW
    partitions: int = PARTITIONS
    log: MemoryLog = field(default_factory=lambda: MemoryLog({EVENTS: PARTITIONS}))
    definitions: Definitions = field(default_factory=Definitions)
    index: Index = field(init=False)
    past: EndedAggregates = field(init=False)
    tallies: ToldTallies = field(init=False)
    desk: RunCommandHandler = field(init=False)
    partition: Partition = field(init=False)
    offsets: int = 0
    parts: dict[str, Any] = field(default_factory=dict)
    """Further parts of the context."""

    def __post_init__(self) -> None:
        self.index = Index(self.log, PARTITIONS)
        self.past = EndedAggregates(FAMILY, CODEC, self.log, EVENTS)
        self.tallies = ToldTallies(self.log)
        self.take_over()

    def take_over(self) -> None:
        """A new desk and an empty partition, as after a claim that folded nothing."""
        term = self.log.put(EVENTS, 0, [claim_record()])
        context = RunContext(
            family=FAMILY,
            partitions=self.partitions,
            definitions=self.definitions,
            index=self.index,
            ended_runs=self.past,
            run_summaries=self.tallies,
            clock_ms=lambda: self.now,
            **self.parts,
        )
        self.desk = RunCommandHandler(
            context, number=0, known_since_ms=self.known_since_ms, forgotten_until=self.forgotten_until
        )
        self.partition = Partition(
            number=0,
            term=term,
            next_offset=term + 1,
            family=FAMILY,
            codec=CODEC,
            observer=self.desk,
            progress=CommandProgress(),
            events_topic=EVENTS,
        )

    def record(self, command: Command, key: bytes | None = None, headers: Any = ()) -> ConsumerRecord:
        """The command as it lies in its topic."""
        run_id = command.run_id or "r_unnamed"
        raw = partition_key(run_id).encode() if key is None else key
        self.offsets += 1
        number = partition_of(raw, PARTITIONS)
        return ConsumerRecord(TOPICS.commands, number, self.offsets, self.now, raw, CODEC.encode(command), headers)

    def prepare(self, command: Command, key: bytes | None = None, headers: Any = ()) -> Any:
        """The coroutine in which the command handler prepares it."""
        return self.desk.prepare(self.record(command, key, headers), command, self.partition)

    def at_once(self, command: Command, key: bytes | None = None, headers: Any = ()) -> PendingDecision:
        with pytest.raises(StopIteration) as ended:
            self.prepare(command, key, headers).send(None)
        prepared: PendingDecision = ended.value.value
        return prepared

    def lookup(self, command: Command) -> "asyncio.Task[PendingDecision]":
        """The task in which the command is prepared, begun when the handler left the caller's turn for it."""
        preparing = self.prepare(command)
        assert preparing.send(None) is None, "continue_in_task"
        return asyncio.create_task(preparing)

    async def looked_up(self, command: Command) -> PendingDecision:
        return await self.lookup(command)

    def decide(self, prepared: PendingDecision) -> list[str]:
        """Decide what was prepared; names of its events, which are not in the log yet."""
        assert prepared.aggregate is not None
        assert prepared.command is not None
        before = prepared.aggregate.seq
        if not self.partition.submit(
            prepared.aggregate, prepared.command(), at_ms=self.now, cause_id=prepared.cause_id
        ):
            return []
        events = self.partition._pending[-1].events
        assert prepared.aggregate.seq == before + len(events)
        return [type(event).__name__ for event in events]

    def flush(self) -> None:
        """Everything decided is in the log and acknowledged."""
        while self.partition.has_pending:
            records = self.partition.next_batch(900_000)
            if records:
                self.partition.acknowledged(self.log.put(EVENTS, 0, records))

    def start(self, run_id: str, **fields: Any) -> Aggregate:
        """A run that started; it is in the log."""
        prepared = self.at_once(started(run_id, **fields))
        assert self.decide(prepared)
        self.flush()
        assert prepared.aggregate is not None
        return prepared.aggregate

    def end(self, run: Aggregate) -> None:
        """Cancel a run; its end is decided and not in the log yet."""
        assert self.decide(self.at_once(cancelling(run.id, tenant=run.tenant))) == ["RunCancelled"]


def envelope(command_id: str, tenant: str = "t", issued_at_ms: int = NOW) -> CommandEnvelope:
    return CommandEnvelope(command_id=command_id, tenant=tenant, issued_at_ms=issued_at_ms)


def started(run_id: str, *, tenant: str = "t", issued_at_ms: int = NOW, **fields: Any) -> StartRun:
    given: dict[str, Any] = {"agent": "helper", "prompt": "go", **fields}
    return StartRun(envelope=envelope(f"start-{run_id}", tenant, issued_at_ms), run_id=run_id, **grouped(given))


def cancelling(run_id: str, *, tenant: str = "t") -> CancelRun:
    return CancelRun(envelope=envelope(f"cancel-{run_id}", tenant), run_id=run_id)


def saying(run_id: str, text: str, *, tenant: str = "t") -> PostInput:
    return PostInput(envelope=envelope(f"say-{text}", tenant), run_id=run_id, text=text)


def pausing(run_id: str, *, tenant: str = "t") -> PauseRun:
    return PauseRun(envelope=envelope(f"pause-{run_id}", tenant), run_id=run_id, reason="look")


def resuming(run_id: str, *, tenant: str = "t") -> ResumeRun:
    return ResumeRun(envelope=envelope(f"resume-{run_id}", tenant), run_id=run_id)


# --- the outside of calls --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ToldModel:
    """A model that streams what it was given; an exception among the items is raised at its place."""

    items: tuple[ModelItem | Exception, ...] = ()
    provider: str = "acme"
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(max_context_tokens=1_000))
    requests: list[ModelRequest] = field(default_factory=list)
    before: Callable[[], Any] | None = None
    before_reply: Callable[[], Any] | None = None
    closed: int = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelItem]:
        self.requests.append(request)
        try:
            if self.before is not None:
                await self.before()
            for item in self.items:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, Reply) and self.before_reply is not None:
                    await self.before_reply()
                yield item
        finally:
            self.closed += 1

    async def list_models(self) -> list[str]:
        return []

    async def probe(self) -> None:
        """It is always there."""

    async def close(self) -> None:
        """Nothing to close."""


@dataclass(slots=True)
class ToldTool:
    """A tool that answers what it was told to; an exception is raised."""

    name: str = "Read"
    answer: ToolResult | Exception = field(default_factory=lambda: ToolResult(text="found"))
    timeout_s: float = 5.0
    description: str = "Reads."
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    calls: list[tuple[Mapping[str, Any], ToolContext]] = field(default_factory=list)
    before: Callable[[], Any] | None = None

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.UNSAFE if arguments.get("write") else EffectClass.READ

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.calls.append((arguments, context))
        if self.before is not None:
            await self.before()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def values(log: MemoryLog, topic: str) -> list[Any]:
    """The decoded records of a topic, over all its partitions."""
    result = [(name, at) for name, at in sorted(log.records) if name == topic]
    return [CODEC.decode(record.value or b"").record for place in result for record in log.records[place]]
