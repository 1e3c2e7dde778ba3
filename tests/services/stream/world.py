"""A whole runtime in memory: one MemoryLog, any number of hosts, effects that return at once.

    world = World(partitions=2, seed=7)
    host = world.host("a")          # starts it
    world.start_run("r_x")          # a command in the log
    await world.finished()          # every run that was accepted has ended, bounded

Effects follow a script that depends on the run and the turn alone, so a repeated call gives the same answer. Each one
checks when it begins that its intent is in the log and accepted (intent before effect).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import MemberAssignment, ProducerRecord
from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.generated.run_commands import CancelRun, PostInput, QuarantineRun, ReleaseRun, StartRun
from loomlog.schemas.generated.run_events import (
    ModelCallRequested,
    RunStarted,
    ToolCallRequested,
    ToolReconcileRequested,
)
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import partition_key
from loomlog.schemas.reader import TermReader
from loomlog.services.families.pause.state import PauseTable
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run_host import StandbyEdges, StandbyReaders, build_run_host
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.ownership.drain import DRAIN_S
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from tests.run_options import grouped
from tests.services.stream.hosted import Hosted, Lifelines
from tests.services.stream.judge import Story, judged
from tests.services.stream.membership import FixedMembership
from tests.services.stream.outside import TOPICS, Definitions, Index, Wire
from tests.services.stream.script import answer

TALLIES = "tallies"
NOW = 1_700_000_000_000
CODEC = local_codec()
PATIENCE_S = 30.0
"""How long a test waits for what must happen soon; it never takes that long unless something is broken."""


@dataclass(slots=True)
class World:
    """See the module."""

    partitions: int = 1
    seed: int = 0
    turns: int = 3
    now: int = NOW
    log: MemoryLog = field(init=False)
    index: Index = field(init=False)
    definitions: Definitions = field(default_factory=Definitions)
    random: Random = field(init=False)
    lifelines: "Lifelines" = field(default_factory=lambda: Lifelines())
    begun: Counter[tuple[str, Any]] = field(default_factory=Counter)
    """How often each call was begun, by run and key."""
    hosts: list[Hosted] = field(default_factory=list)
    effect_delay: int = 0
    on_effect: Callable[[Any], Awaitable[None]] | None = None
    """Awaited before an effect returns, when set."""
    pauses: PauseTable = field(default_factory=PauseTable)
    """Pauses wider than a run."""
    script: Callable[[Any, Any, int], Any] | None = None
    """Answers (effect, state, at_ms) instead of script.answer, when set and when what it gives is not None."""
    _readers: dict[int, TermReader] = field(default_factory=dict)
    _intents: set[tuple[str, Any]] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    _started: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        topics = (TOPICS.commands, TOPICS.events, TOPICS.snapshots, TOPICS.dead_letters, TALLIES)
        self.log = MemoryLog(dict.fromkeys(topics, self.partitions))
        self.index = Index(self.log, self.partitions)
        self.random = Random(self.seed)

    # --- commands ----------------------------------------------------------------------------------------------------

    def put(self, command: Any, key: bytes | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> int:
        """A command in the log under its right key; its offset."""
        raw = partition_key(command.run_id).encode() if key is None else key
        outgoing = ProducerRecord(key=raw, value=CODEC.encode(command), headers=headers)
        return self.log.put(TOPICS.commands, partition_of(raw, self.partitions), [outgoing])

    def start_run(self, run_id: str, **fields: Any) -> StartRun:
        """Put a StartRun; the command."""
        command = self.start_command(run_id, **fields)
        self.put(command)
        return command

    def start_command(self, run_id: str, *, tenant: str = "t", issued_at_ms: int = 0, **fields: Any) -> StartRun:
        envelope = CommandEnvelope(command_id=f"start-{run_id}", tenant=tenant, issued_at_ms=issued_at_ms or self.now)
        return StartRun(
            **{"envelope": envelope, "agent": "helper", "prompt": "go", "run_id": run_id, **grouped(fields)}
        )

    def cancel_run(self, run_id: str, tenant: str = "t") -> int:
        envelope = CommandEnvelope(command_id=f"cancel-{run_id}", tenant=tenant, issued_at_ms=self.now)
        return self.put(CancelRun(envelope=envelope, run_id=run_id, reason="enough"))

    def say(self, run_id: str, text: str, tenant: str = "t") -> int:
        envelope = CommandEnvelope(command_id=f"say-{text}", tenant=tenant, issued_at_ms=self.now)
        return self.put(PostInput(envelope=envelope, run_id=run_id, text=text))

    def quarantine_run(self, run_id: str, reason: str = "it looks wrong") -> int:
        envelope = CommandEnvelope(command_id=f"quarantine-{run_id}", tenant="t", subject="op", issued_at_ms=self.now)
        return self.put(QuarantineRun(envelope=envelope, run_id=run_id, reason=reason))

    def release_run(self, run_id: str, command_id: str = "release") -> int:
        envelope = CommandEnvelope(command_id=command_id, tenant="t", subject="op", issued_at_ms=self.now)
        return self.put(ReleaseRun(envelope=envelope, run_id=run_id, reason="mended"))

    # --- hosts -------------------------------------------------------------------------------------------------------

    def share_out(self, **partitions: Sequence[int]) -> None:
        """A rebalance: what each host of that name is to own, all of them standing by for the others."""
        members = {
            name: MemberAssignment(partitions=frozenset(numbers), is_standby=True, address=f"memory:1/{name}")
            for name, numbers in partitions.items()
        }
        for hosted in self.hosts:
            if hosted.name in partitions and not hosted.task.done():
                hosted.reassign(*partitions[hosted.name], members=members)

    def host(
        self,
        name: str = "a",
        *,
        owns: Sequence[int] | None = None,
        family: RunFamily | None = None,
        stands_by: bool = False,
        is_spare: bool = False,
        drain_s: float = DRAIN_S,
    ) -> Hosted:
        """Start a host that owns all partitions, or those given. One that stands by has its name for a life.

        `is_spare`: it stands by without folding.
        `drain_s`: how long calls under way may take when a partition moves.
        """
        family = family or RunFamily()
        wire = Wire(self.log, Random(self.random.random()))
        context = RunContext(
            family=family,
            partitions=self.partitions,
            definitions=self.definitions,
            index=self.index,
            ended_runs=EndedAggregates(family, CODEC, self.log, TOPICS.events),
            run_summaries=RunSummaries(CODEC, wire, topic=TALLIES, clock_ms=self.clock),
            clock_ms=self.clock,
            pauses=lambda: self.pauses,
        )
        membership = FixedMembership(frozenset(range(self.partitions) if owns is None else owns))
        host = build_run_host(
            context,
            codec=CODEC,
            topics=TOPICS,
            appender=wire,
            ranges=self.log,
            membership=membership,
            commands=self._paused_tail(TOPICS.commands),
            dead_letters=DeadLetters(CODEC, wire, topic=TOPICS.dead_letters, service="test", clock_ms=self.clock),
            run_effect=self.effect,
            name=name,
            standby=StandbyEdges(
                incarnation=name,
                readers=None if is_spare else StandbyReaders(tail=self._paused_tail(TOPICS.events), ranges=self.log),
                wait_for_disconnect=self.lifelines.until_gone,
                request_handover=self.lifelines.ask_for,
                liveness_address=f"memory:1/{name}",
            )
            if stands_by
            else None,
            drain_s=drain_s,
        )
        task = asyncio.get_running_loop().create_task(host.run(), name=f"host {name}")
        hosted = Hosted(name, host, wire, host.context, membership, task, context.ended_runs)
        self.hosts.append(hosted)
        if stands_by:
            self.lifelines.lives[name] = hosted
        return hosted

    def _paused_tail(self, topic: str) -> Any:
        tail = self.log.tail(topic, dict.fromkeys(range(self.partitions), 0))
        tail.pause(list(range(self.partitions)))
        return tail

    async def close(self) -> None:
        """Kill every host that is left."""
        for hosted in self.hosts:
            if not hosted.task.done():
                await hosted.kill()

    def clock(self) -> int:
        self.log.clock_ms = self.now
        return self.now

    # --- effects -----------------------------------------------------------------------------------------------------

    async def effect(self, effect: Any, state: Any, tenant: str) -> Any:
        """One call, answered by the script."""
        del tenant
        self._look()
        assert (effect.run_id, effect.key) in self._intents, f"{effect} began before its intent was in the log"
        self.begun[effect.run_id, effect.key] += 1
        for _ in range(self.random.randint(0, self.effect_delay)):
            await asyncio.sleep(0)
        if self.on_effect is not None:
            await self.on_effect(effect)
        result = self.script(effect, state, self.now) if self.script is not None else None
        return result or answer(effect, self.turns, self.now)

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], Any], what: str = "") -> None:
        """Let the loop turn until it holds; an error of a host comes out at once."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                for hosted in self.hosts:
                    if hosted.task.done() and not hosted.task.cancelled():
                        hosted.task.result()
                await asyncio.sleep(0)

    async def ticks(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def finished(self, *runs: str) -> Story:
        """These runs, or all that were accepted, have ended; the judged story."""
        expected = set(runs)
        await self.until(
            lambda: self._look() and (expected <= self._ended if expected else self._started <= self._ended)
        )
        return self.story()

    def story(self) -> Story:
        return judged(self.log, TOPICS.events, self.partitions)

    def has(self, run_id: str) -> bool:
        """The run is in the log."""
        return self._look() and run_id in self._started

    def _look(self) -> bool:
        """Follow the log as any reader would."""
        for partition in range(self.partitions):
            reader = self._readers.setdefault(partition, TermReader())
            records = self.log.records[TOPICS.events, partition]
            for record in records[reader.next_offset :]:
                try:
                    raw = reader.read(record.offset, record.value)
                    event = raw.decode().record if raw is not None else None
                except Undecodable:
                    continue
                if raw is None:
                    continue
                match event:
                    case RunStarted():
                        self._started.add(raw.aggregate)
                    case ModelCallRequested(turn=turn, attempt=attempt):
                        self._intents.add((raw.aggregate, ("model", turn, 0, attempt)))
                    case ToolCallRequested(turn=turn, index=index, attempt=attempt):
                        self._intents.add((raw.aggregate, ("tool", turn, index, attempt)))
                    case ToolReconcileRequested(turn=turn, index=index, ask=ask):
                        self._intents.add((raw.aggregate, ("reconcile", turn, index, ask)))
                if getattr(event, "SCHEMA", "") in RunFamily.endings:
                    self._started.add(raw.aggregate)
                    self._ended.add(raw.aggregate)
        return True
