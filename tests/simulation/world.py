"""The simulated world: processes, their group, planned faults, and then the calm in which all must end.

Two partitions, two or three owners, two projectors of which one stands by, a client. A dead process comes back after a
moment under a new name; the group notices after a session. When the faults have stopped, every run must end and every
row must be there within PATIENCE_S of virtual time.

Before: seeds.py makes one for each seed.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from psycopg.errors import UndefinedTable

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import MemberAssignment, ProducerRecord
from loomlog.projections.engine.cursors import Fenced
from loomlog.projections.engine.rebuild import RebuildReport
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.run_events import InputReceived
from loomlog.schemas.generated.values import AgentDefinition, Envelope
from tests.simulation.broker import JUNK, Wire
from tests.simulation.channels import Channels, channels_of
from tests.simulation.checker import INTRUDER, Checker
from tests.simulation.clients import TENANT, Client
from tests.simulation.counters import counters_of
from tests.simulation.definitions import Definitions, definitions_of
from tests.simulation.entities import MOST_AWAY_S, MOST_STEP_MS, EntityHost, EntityLoad
from tests.simulation.faults import CALM_S, Act, Faults
from tests.simulation.group import PARTITIONS, Member, ProcessGroup
from tests.simulation.log import ENTITIES, TOPICS, Record, SimulatedLog
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.memory import Memory, memory_of
from tests.simulation.narrator import told
from tests.simulation.owners import OwnerProcess
from tests.simulation.projector import rebuild_process
from tests.simulation.store import Store
from tests.simulation.triggers import Triggers, triggers_of

UNORDERED_SHARE = 0.5
"""Of the seeds: those in which the callbacks of a process run in any order."""
NOW_MS = 1_700_000_000_000
DRAIN_S = 1.0
STORM_REBALANCES = 5
STORM_EVERY_S = 0.08
LOOK_S = 0.5
PATIENCE_S = 300.0
"""Virtual seconds after the calm until everything must have ended: far above the sum of all back-offs, and of the half
minutes that the calls of three generations, one after the other, may wait for room under a limit."""

Tell = Callable[[str], None]


class World(ProcessGroup):
    """See the module."""

    def __init__(self, faults: Faults, load: list[Any], limit: SetLimit | None, tell: Tell | None) -> None:
        self.faults = faults
        self.load = load
        self.limit = limit
        self.random = Random(f"{faults.seed}/world")
        order = Random(f"{faults.seed}/loop")
        unordered = order.random() < UNORDERED_SHARE
        self.loop = VirtualLoop(order, unordered=unordered)  # type: ignore[abstract]  # it has no I/O
        self.log = SimulatedLog(self.clock_ms)
        self.store = Store(self.loop)
        self.checker = Checker(self.log, self.store, PARTITIONS, self.loop.time, self.loop.stop)
        self._tell = tell
        # One host has the entities of a process: those of budgets in the seeds with a limit.
        self.entities: EntityLoad | None = None
        if limit is None:
            self.entities = (
                counters_of(faults)
                or definitions_of(faults)
                or memory_of(faults)
                or channels_of(faults)
                or triggers_of(faults)
            )
        if self.entities is not None:
            self.entities.open(self.log, PARTITIONS, faults.seed, self.checker.complain)
        if isinstance(self.entities, Definitions):
            self.checker.begun = self.entities.ledger.begun
        if isinstance(self.entities, Memory):
            self.checker.followed = self.entities.ledger.of_run
            self.entities.ledger.is_ordered = not unordered
        if isinstance(self.entities, Channels | Triggers):
            self.checker.followed = self.entities.ledger.of_run
            self.entities.ledger.is_damaged = self.checker.is_damaged
        if isinstance(self.entities, Triggers):
            self.entities.joined = self._joined
            self.checker.cancelled = self.entities.ledger.cancelled
        self.log.landed = self._landed
        self.store.committed = self.checker.committed
        names = "abc"[: self.random.randint(2, 3)]
        self.owners = [Member(f"owner-{name}", self._start_owner) for name in names]
        self.projectors = [Member(f"projector-{name}", self._start_projector) for name in "pq"]
        self._over = False
        self._shift = 0
        self._generation = 0
        self._skews: dict[str, int] = {}
        self._holders: dict[str, list[tuple[Process, asyncio.Future[bool]]]] = {}
        """Who holds the lifeline of each life."""
        self.client: Client | None = None

    def clock_ms(self) -> int:
        return NOW_MS + int(self.loop.now * 1000)

    def say(self, who: str, what: str) -> None:
        if self._tell is not None:
            self._tell(f"{self.loop.now:9.4f} s  {who:<14} {what}")

    # --- the course of events ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until everything has ended, something is wrong, or patience has."""
        loop = self.loop
        for member in (*self.owners, *self.projectors):
            self._start(member)
        self._start_client()
        self._rebalance()
        for act in self.faults.acts:
            loop.call_for(loop.outside, act.at_s, self._act, act)
        loop.call_for(loop.outside, CALM_S, self._calm)
        loop.run(CALM_S + PATIENCE_S)
        self._over = True
        checker = self.checker
        if checker.violation is None:
            left = self._open_ends()
            if left:
                checker.complain("stuck", f"{left}, {PATIENCE_S:.0f} s after the last fault")
            else:
                checker.finish()
                if self.entities is not None:
                    self.entities.finish(self._entity_hosts())
        if checker.violation is None and loop.complaints:
            checker.complain("complaint", str(loop.complaints[0]))

    def _calm(self) -> None:
        self.say("outside", "no more faults; everybody is up")
        self.faults.calm = True
        if self.entities is not None:
            self.entities.calm()
        for member in (*self.owners, *self.projectors):
            if member.process is not None:
                member.process.fuse = 0
                self.loop.thaw(member.process)
            else:
                self._start(member)
            member.absent = False
        self._rebalance()
        self._look()

    def _look(self) -> None:
        if self._open_ends():
            self.loop.call_for(self.loop.outside, LOOK_S, self._look)
        else:
            self.loop.stop()

    def _open_ends(self) -> str:
        assert self.client is not None
        if self.client.busy:
            return f"{self.client.busy} wishes are not sent"
        left = self.checker.open_ends()
        return left if left or self.entities is None else self.entities.open_ends(self._entity_hosts())

    def _entity_hosts(self) -> list[EntityHost]:
        return [member.body.entities for member in self.owners if member.process is not None]

    def _landed(self, records: Sequence[Record]) -> None:
        if self._tell is not None:
            topic, partition = records[0].topic, records[0].partition
            if self.entities is not None and topic == ENTITIES.events:
                term = self.entities.ledger.terms.get(partition)
            else:
                term = self.checker.term_of(topic, partition)
            for record in records:
                self.say(record.writer, told(record, term))
        entities = self.entities
        if entities is None:
            self.checker.landed(records)
            return
        sent = entities.ledger.delivery_count
        if records[0].topic in (ENTITIES.commands, ENTITIES.events):
            entities.ledger.landed(records)
        else:
            self.checker.landed(records)
        act, writer = entities.crash_sender, records[0].writer
        if act is not None and entities.ledger.delivery_count > sent:
            entities.crash_sender = None
            for member in self.owners:
                if member.process is not None and member.process.name == writer:
                    self._light(member, act)

    # --- processes ---------------------------------------------------------------------------------------------------

    # --- the group ---------------------------------------------------------------------------------------------------

    # --- lifelines ---------------------------------------------------------------------------------------------------

    # --- acts --------------------------------------------------------------------------------------------------------

    def _act(self, act: Act) -> None:
        self.faults.fired.append(act.name)
        self.say("outside", act.name)
        owner = self.owners[int(act.place * len(self.owners))]
        projector = self.projectors[int(act.place * len(self.projectors))]
        partition = int(act.place * PARTITIONS)
        match act.kind:
            case "crash" | "pause":
                self._light(owner, act)
            case "crash projector" | "pause projector":
                self._light(projector, act)
            case "rebalance":
                self._rebalance()
            case "storm":
                for number in range(STORM_REBALANCES):
                    self.loop.call_for(self.loop.outside, number * STORM_EVERY_S, self._rebalance)
            case "two owners":
                everything = MemberAssignment(partitions=frozenset(range(PARTITIONS)), is_standby=True)
                alive = [member for member in self.owners if member.process is not None]
                for member in alive:
                    shares = {one.process.name: everything for one in alive if one.process}
                    self._tell_assignment(member, shares)
                self.loop.call_for(self.loop.outside, 2 * act.amount, self._rebalance)
            case "false alarm":
                if owner.process is not None:
                    self._break_lifeline(owner.process.name, died=True)
            case "planned stop":
                self._stop(owner)
            case "checkpoint":
                for member in self.owners:
                    self._checkpoint(member)
            case "junk":
                self.log.append(TOPICS.events, partition, [JUNK], INTRUDER)
            case "poison":
                self.log.append(TOPICS.commands, partition, [JUNK], INTRUDER)
            case "damage":
                self._damage(act)
            case "second projector":
                # As after a failover: both may believe that it is their turn.
                self.store.advisory.pop(f"projector {TOPICS.events}", None)
            case "rebuild":
                self._rebuild(act)
            case "entities: clock" if owner.process is not None:
                self._skews[owner.process.name] += int((act.amount * 2 - 1) * MOST_STEP_MS)
            case "entities: rows away" | "entities: rows behind" if self.entities is not None:
                change = self.entities.away if act.kind.endswith("away") else self.entities.behind
                change(True)
                self.loop.call_for(self.loop.outside, MOST_AWAY_S * act.amount, change, False)
            case "entities: crash sender" if self.entities is not None:
                self.entities.crash_sender = replace(act, kind="crash")
            case "entities: jump" if owner.process is not None and isinstance(self.entities, Triggers):
                self.entities.jump(owner.process.name, act.amount)
            case "entities: entity checkpoint":
                self._checkpoint(owner)
            case "entities: clock" | "entities: jump":
                pass  # there is no such process now
            case _:
                raise AssertionError(f"no such act: {act.kind}")

    def _light(self, member: Member, act: Act) -> None:
        """The fuse: it strikes between two callbacks of the process, soon."""
        process = member.process
        if process is None or process.frozen:
            return

        def strike() -> None:
            if member.process is process:
                if act.kind.startswith("crash"):
                    self._crash(member)
                else:
                    self._pause(member, act.amount)

        process.on_fuse = strike
        process.fuse = act.fuse

    def _stop(self, member: Member) -> None:
        """A planned stop, as services/runtime/main.py does it: drain, then end."""
        process = member.process
        if process is None or process.frozen:
            return
        body: OwnerProcess = member.body

        async def stop() -> None:
            await body.host.drain(DRAIN_S)
            body.task.cancel()

        self.loop.spawn(process, stop())

    def _checkpoint(self, member: Member) -> None:
        process = member.process
        if process is None or process.frozen:
            return
        body: OwnerProcess = member.body
        for topic_set in body.host.topic_sets:
            for owner in topic_set.owners.values():
                self.loop.spawn(process, topic_set.checkpoints.make(owner))

    def _damage(self, act: Act) -> None:
        """Somebody who must not appends an event under the right term, with the right digest, and leaves a seq out."""
        result = [(name, run) for name, run in self.checker.live() if "chat" not in name and "seed" not in name]
        if not result:
            return
        name, run = result[int(act.amount * len(result))]
        first = run.story.first
        assert first is not None
        envelope = Envelope(
            term=self.checker.terms[first.partition],
            seq=run.story.events + 2,
            aggregate=name,
            tenant=TENANT,
            at_ms=self.clock_ms(),
            prev=run.story.digest,
        )
        value = local_codec().encode_event(envelope, InputReceived(text="intruding", source="user"))
        self.log.append(TOPICS.events, first.partition, [ProducerRecord(key=first.key, value=value)], INTRUDER)

    def _rebuild(self, act: Act) -> None:
        process = self.loop.process(f"rebuild of {act.name}")
        wire = Wire(self.loop, self.log, process, self.faults.fates(process.name), lambda fate, amount: None)
        before, self.loop.current = self.loop.current, process
        task = rebuild_process(wire, self.store, PARTITIONS)
        task.add_done_callback(lambda task: self._rebuilt(process, task))
        self.loop.current = before

    def _rebuilt(self, process: Process, task: "asyncio.Task[Any]") -> None:
        if task.cancelled() or self.checker.violation is not None:
            return
        error = task.exception()
        if isinstance(error, Transient | Fenced) or isinstance(error and error.__cause__, UndefinedTable):
            self.say(process.name, f"gives up: {error}")
        elif error is not None:
            self.checker.complain("process ended", f"{process.name}: {type(error).__name__}: {error}")
        else:
            report: RebuildReport = task.result()
            self.say(process.name, f"is done; equal: {report.equal}")
            if not report.equal:
                differing = [name for name, (live, new) in report.tables.items() if live != new]
                self.checker.complain(
                    "rows", f"{process.name}: the rebuilt tables {differing} differ from the live ones"
                )

    # --- calls -------------------------------------------------------------------------------------------------------

    def ordered(self, command: Any) -> None:
        self.checker.ledger.ordered(command.envelope.command_id, type(command).__name__, getattr(command, "id", ""))

    def call_began(self, process: str, run_id: str, key: Any, paid: str = "") -> None:
        self.say(process, f"calls {key} of {run_id}")
        if paid:
            self.checker.ledger.began(process, paid)
        self.checker.call_began(process, run_id, key)

    def defined(self, process: str, run_id: str, definition: AgentDefinition) -> None:
        if isinstance(self.entities, Definitions):
            pin = "" if definition.pin is None else definition.pin.def_id
            self.entities.ledger.called(process, run_id, pin, definition.system_prompt)

    def call_ended(self, process: str, run_id: str, key: Any) -> None:
        self.checker.call_ended(process, run_id, key)
