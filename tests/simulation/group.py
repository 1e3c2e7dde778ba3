"""Processes of the simulated world: their starts, deaths and restarts, and the group that assigns partitions."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from psycopg.errors import UndefinedTable

from loomlog.connectors.protocols import MemberAssignment
from tests.simulation.broker import Wire
from tests.simulation.clients import Client
from tests.simulation.faults import MOST_PAUSE_S
from tests.simulation.loop import Process
from tests.simulation.owners import OwnerProcess, owner_process
from tests.simulation.projector import projector_process

PARTITIONS = 2
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


def _end(end: "asyncio.Future[bool]", died: bool) -> None:
    if not end.done():
        end.set_result(died)


class ProcessGroup:
    """Lifecycle of the processes. The world has the state."""

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
        name = wire.process.name
        body = owner_process(
            wire,
            self.store,
            self,
            partitions=PARTITIONS,
            clock_ms=lambda: self.clock_ms() + self._skews[name],
            limited=self.limit is not None,
            entities=self.entities,
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
        if self.entities is not None:
            self.loop.spawn(process, self.entities.client(wire, self.clock_ms))

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

    def _rebalance(self) -> None:
        """Partitions go round among those that are there; everybody hears of it after a while of his own."""
        present = [member for member in self.owners if member.process is not None and not member.absent]
        self._shift += 1
        members: dict[str, MemberAssignment] = {}
        for place, member in enumerate(present):
            numbers = range(PARTITIONS)
            mine = frozenset(p for p in numbers if (p + self._shift) % len(present) == place)
            assert member.process is not None
            members[member.process.name] = MemberAssignment(partitions=mine, is_standby=True)
        for member in present:
            self._tell_assignment(member, members)

    def _joined(self, name: str, is_member: bool) -> None:
        """A process has joined or left the group, whose clock is believed again or not."""
        member = next((one for one in self.owners if one.process is not None and one.process.name == name), None)
        if member is not None:
            self.say(name, f"is {'a' if is_member else 'no'} member")
            member.absent = not is_member
            self._rebalance()

    def _tell_assignment(self, member: Member, members: Mapping[str, MemberAssignment]) -> None:
        assert member.process is not None
        body: OwnerProcess = member.body
        name = member.process.name
        self.say(name, f"is to own {sorted(members[name].partitions)}")
        self._generation += 1
        delay_s = MOST_NOTICE_S * self.random.random()
        self.loop.call_for(member.process, delay_s, body.membership.hear, self._generation, name, members)

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
