"""The simulated world: processes, their group, planned faults, and then the calm in which all must end.

Two partitions, two or three owners, two projectors of which one stands by, a client. A dead process comes back after a
moment under a new name; the group notices after a session. When the faults have stopped, every run must end and every
row must be there within PATIENCE_S of virtual time.

Before: seeds.py makes one for each seed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
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
from loomlog.schemas.generated.values import Envelope
from tests.simulation.broker import JUNK, Wire
from tests.simulation.checker import INTRUDER, Checker
from tests.simulation.clients import TENANT, Client
from tests.simulation.faults import CALM_S, MOST_PAUSE_S, Act, Faults
from tests.simulation.log import TOPICS, Record, SimulatedLog
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.narrator import told
from tests.simulation.owners import OwnerProcess, owner_process
from tests.simulation.projector import projector_process, rebuild_process
from tests.simulation.store import Store

PARTITIONS = 2
UNORDERED_SHARE = 0.5
"""Of the seeds: those in which the callbacks of a process run in any order."""
NOW_MS = 1_700_000_000_000
SESSION_S = 1.0
"""Until the group notices that a member is gone."""
RESTART_S = 1.5
"""A supervisor starts a dead process again after at most so long."""
MOST_SKEW_MS = 2_000
"""How far the clocks of two processes differ at most."""
MOST_NOTICE_S = 0.1
"""Until a member hears of a rebalance."""
MOST_BREAK_S = 0.02
"""Until a holder knows that a lifeline is broken for good."""
DRAIN_S = 1.0
STORM_REBALANCES = 5
STORM_EVERY_S = 0.08
LOOK_S = 0.5
PATIENCE_S = 300.0
"""Virtual seconds after the calm until everything must have ended: far above the sum of all back-offs, and of the half
minutes that the calls of three generations, one after the other, may wait for room under a limit."""

Tell = Callable[[str], None]


class Member:
    """A place for a process: whoever lives there now, and how to start the next one."""

    def __init__(self, name: str, start: Callable[["Member", Wire], Any]) -> None:
        self.name = name
        self.start = start
        self.lives = 0
        self.process: Process | None = None
        self.body: Any = None
        self.absent = False
        """The group believes that it is gone."""


class World:
    """See the module."""

    def __init__(self, faults: Faults, load: list[Any], limit: SetLimit | None, tell: Tell | None) -> None:
        self.faults = faults
        self.load = load
        self.limit = limit
        self.random = Random(f"{faults.seed}/world")
        order = Random(f"{faults.seed}/loop")
        self.loop = VirtualLoop(order, unordered=order.random() < UNORDERED_SHARE)  # type: ignore[abstract]  # it has no I/O
        self.log = SimulatedLog(self.clock_ms)
        self.store = Store(self.loop)
        self.checker = Checker(self.log, self.store, PARTITIONS, self.loop.time, self.loop.stop)
        self._tell = tell
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
        if checker.violation is None and loop.complaints:
            checker.complain("complaint", str(loop.complaints[0]))

    def _calm(self) -> None:
        self.say("outside", "no more faults; everybody is up")
        self.faults.calm = True
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
        return f"{self.client.busy} wishes are not sent" if self.client.busy else self.checker.open_ends()

    def _landed(self, records: Sequence[Record]) -> None:
        if self._tell is not None:
            term = self.checker.term_of(records[0].topic, records[0].partition)
            for record in records:
                self.say(record.writer, told(record, term))
        self.checker.landed(records)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _start(self, member: Member) -> None:
        member.lives += 1
        name = f"{member.name}.{member.lives}"
        process = member.process = self.loop.process(name)
        fates = self.faults.fates(name)
        self._skews[name] = int((fates.random.random() - 0.5) * MOST_SKEW_MS)

        def strike(fate: str, amount: float) -> None:
            if member.process is process:
                if fate == "crash":
                    self._crash(member)
                else:
                    self._pause(member, amount)

        wire = Wire(self.loop, self.log, process, fates, strike)
        before, self.loop.current = self.loop.current, process
        self.say(name, "starts")
        member.body = member.start(member, wire)
        self.loop.current = before
        member.absent = False

    def _start_owner(self, member: Member, wire: Wire) -> OwnerProcess:
        skew = self._skews[wire.process.name]
        body = owner_process(
            wire,
            self.store,
            self,
            partitions=PARTITIONS,
            clock_ms=lambda: self.clock_ms() + skew,
            limited=self.limit is not None,
        )
        body.task.add_done_callback(lambda task: self._ended(member, wire.process, task))
        return body

    def _start_projector(self, member: Member, wire: Wire) -> Any:
        task = projector_process(wire, self.store, PARTITIONS)
        task.add_done_callback(lambda task: self._ended(member, wire.process, task))
        return task

    def _start_client(self) -> None:
        process = self.loop.process("client")
        wire = Wire(self.loop, self.log, process, self.faults.fates("client"), lambda fate, amount: None)
        self.client = Client(wire, self.checker, partitions=PARTITIONS, clock_ms=self.clock_ms)
        self.loop.spawn(process, self.client.run(self.load, self.limit))

    def _ended(self, member: Member, process: Process, task: "asyncio.Task[Any]") -> None:
        if member.process is not process or self._over:
            return
        if task.cancelled():
            self.say(process.name, "has stopped")
            self._break_lifeline(process.name, died=False)
            self._gone(member, process, notice_s=MOST_NOTICE_S)
            return
        error = task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error and error.__cause__, UndefinedTable):
            # It slept until its build was dropped, two rebuilds later: it ends loudly and is started again.
            self.say(process.name, f"ends: {error}")
            self._gone(member, process, notice_s=MOST_NOTICE_S)
        elif self.checker.violation is None:
            self.checker.complain("process ended", f"{process.name}: {type(error).__name__}: {error}")

    def _crash(self, member: Member) -> None:
        process = member.process
        if process is None:
            return
        self.say(process.name, "crashes")
        self._break_lifeline(process.name, died=True)
        self._gone(member, process, notice_s=SESSION_S)

    def _gone(self, member: Member, process: Process, *, notice_s: float) -> None:
        """The process is no more; another one will come."""
        member.process = None
        self.loop.freeze(process)
        self.store.disconnect(process)
        outside = self.loop.outside
        self.loop.call_for(outside, notice_s, self._missed, member)
        self.loop.call_for(outside, RESTART_S * self.random.random(), self._restart, member)

    def _missed(self, member: Member) -> None:
        if member.process is None or member.process.frozen:
            member.absent = True
            self._rebalance()

    def _restart(self, member: Member) -> None:
        if member.process is None:
            self._start(member)
            self._rebalance()

    def _pause(self, member: Member, amount: float) -> None:
        process = member.process
        if process is None or process.frozen:
            return
        pause_s = MOST_PAUSE_S * amount * amount
        self.say(process.name, f"is paused for {pause_s:.2f} s")
        self.loop.freeze(process)
        self.loop.call_for(self.loop.outside, pause_s, self._wake, member, process)
        self.loop.call_for(self.loop.outside, SESSION_S, self._missed, member)

    def _wake(self, member: Member, process: Process) -> None:
        if member.process is process and process.frozen:
            self.say(process.name, "wakes up")
            self.loop.thaw(process)
            if member.absent:
                member.absent = False
                self._rebalance()

    # --- the group ---------------------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        """Partitions go round among those that are there; everybody hears of it after a while of his own."""
        present = [member for member in self.owners if member.process is not None and not member.absent]
        self._shift += 1
        members: dict[str, MemberAssignment] = {}
        books: dict[str, MemberAssignment] = {}
        for place, member in enumerate(present):
            numbers = range(PARTITIONS)
            mine = frozenset(p for p in numbers if (p + self._shift) % len(present) == place)
            assert member.process is not None
            members[member.process.name] = MemberAssignment(partitions=mine, is_standby=True)
            # The books lie with whoever has the first partition of runs or with another one, in turns.
            ours = (self._shift + self._shift // 2) % len(present) == place
            books[member.process.name] = MemberAssignment(partitions=frozenset({0} if ours else ()), is_standby=False)
        for member in present:
            self._tell_assignment(member, members, books)

    def _tell_assignment(
        self, member: Member, members: Mapping[str, MemberAssignment], books: Mapping[str, MemberAssignment]
    ) -> None:
        assert member.process is not None
        body: OwnerProcess = member.body
        name = member.process.name
        self.say(name, f"is to own {sorted(members[name].partitions)}")
        self._generation += 1
        delay_s = MOST_NOTICE_S * self.random.random()
        self.loop.call_for(member.process, delay_s, body.membership.hear, self._generation, name, members)
        if body.books is not None:
            if books[name].partitions:
                self.say(name, "is to own the books")
            delay_s = MOST_NOTICE_S * self.random.random()
            self.loop.call_for(member.process, delay_s, body.books.membership.hear, self._generation, name, books)

    # --- lifelines ---------------------------------------------------------------------------------------------------

    async def until_gone(self, holder: Process, lifeline: str) -> bool:
        """As connectors.process.liveness_sockets: who is dead already was never met, and nothing is known of it."""
        end: asyncio.Future[bool] = self.loop.create_future()
        life = lifeline.rpartition("/")[2]
        if any(member.process is not None and member.process.name == life for member in self.owners):
            self._holders.setdefault(life, []).append((holder, end))
        return await end

    def _break_lifeline(self, life: str, *, died: bool) -> None:
        for holder, end in self._holders.pop(life, ()):
            self.loop.call_for(holder, MOST_BREAK_S * self.random.random(), _end, end, died)

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
                    books = dict.fromkeys(shares, MemberAssignment(partitions=frozenset({0}), is_standby=False))
                    self._tell_assignment(member, shares, books)
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
        for host in (body.host, *([] if body.books is None else [body.books.host])):
            for owner in host.owners.values():
                self.loop.spawn(process, host.checkpoints.make(owner))

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

    def call_began(self, process: str, run_id: str, key: Any, paid: str = "") -> None:
        self.say(process, f"calls {key} of {run_id}")
        if paid:
            self.checker.ledger.began(process, paid)
        self.checker.call_began(process, run_id, key)

    def call_ended(self, process: str, run_id: str, key: Any) -> None:
        self.checker.call_ended(process, run_id, key)


def _end(end: "asyncio.Future[bool]", died: bool) -> None:
    if not end.done():
        end.set_result(died)
