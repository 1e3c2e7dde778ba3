"""Carries a plan of faults out on a rig, and notes what was done and when everything was back.

What comes back by itself is waited for beside the next fault; what has to be undone (sleeps, losses) is undone first.

Before: campaign.  After: rig, witness (who owns what), wiping.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from loomlog.services.cli.stack.postgres import NAME as POSTGRES
from tests.chaos.evidence import EVENTS, Probe, Strike
from tests.chaos.faults import Fault
from tests.chaos.load import Load
from tests.chaos.pauses import KILLED_OWNERS
from tests.chaos.rig import Rig
from tests.chaos.stack import PARTITIONS, RUNTIMES, WORKER, profile_of
from tests.chaos.wiping import wipe_snapshots
from tests.chaos.witness import Witness

OWNER_TIMEOUT_S = 60.0
"""Until somebody owns a live run, and until a stopped owner's partitions are taken: a session or two, and on a busy
machine the start of a broker before that."""
LONG_LOSS_S = 12.0
"""Twice as long as anything in the product waits before it tries again."""
TWO_LOST_S = 12.0
"""Long enough for two writes to be refused, one after the other."""
PROBE_TIMEOUT_S = 30.0
"""A client that is not answered within this gives up: far beyond what is promised."""
HOUR_S, DAY_S = 3_600, 86_400
JUMPS_S = {"clock-back": -HOUR_S, "clock-forward": DAY_S}


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A process that was killed."""

    name: str
    life: str
    pid: int
    at_s: float


class Striker:
    """`strikes` is what was done, `probes` how writes were refused while there was no quorum."""

    def __init__(
        self, rig: Rig, load: Load, witness: Witness, client: httpx.AsyncClient, *, say: Callable[[str], None]
    ) -> None:
        self.strikes: list[Strike] = []
        self.probes: list[Probe] = []
        self._rig = rig
        self._load = load
        self._witness = witness
        self._client = client
        self._say = say
        self._began_s = time.monotonic()
        self._kills = {"api": "api", "projector": "projector", "postgres": POSTGRES}

    async def run(self, faults: Sequence[Fault]) -> None:
        """Until the last one was done and everything is up again. Raises TimeoutError when something stays down.

        Faults overlap, except those by which take-overs are measured: they begin when all is well, and the next one
        begins when all is well again.
        """
        async with asyncio.TaskGroup() as tasks:
            returning: set[asyncio.Task[None]] = set()
            for fault in faults:
                await self._load.reached(fault.at_run)
                if fault.target in KILLED_OWNERS:
                    await self._all_is_well(returning)
                await asyncio.sleep(fault.after_s)
                struck = await self._do(fault)
                if struck:
                    returning.add(tasks.create_task(self._back(fault.target, struck)))
                if fault.target in KILLED_OWNERS:
                    await self._all_is_well(returning)

    async def _do(self, fault: Fault) -> Sequence[Struck]:
        """One fault; the processes that have to come back by themselves."""
        match fault.target:
            case "zombie":
                await self._sleep(fault.target, await self._busiest(), until_taken=True)
            case "asleep-api" | "asleep-projector" | "asleep-postgres":
                await self._sleep(fault.target, fault.target.removeprefix("asleep-"))
            case "asleep-broker":
                await self._sleep(fault.target, await self._leader())
            case "everything":
                return [await self._kill(name) for name in (*self._rig.brokers, *self._kills.values(), *RUNTIMES)]
            case "successor":
                return await self._kill_with_successor()
            case "planned":
                return [await self._strike(await self._busiest(), signal.SIGTERM)]
            case "runtime":
                return [await self._kill(await self._busiest())]
            case "snapshots":
                await wipe_snapshots(self._rig.kafka, partitions=PARTITIONS, profile=profile_of(self._rig))
                self._tell("snapshots wiped", time.monotonic())
                return [await self._kill(await self._busiest())]
            case "clock-back" | "clock-forward":
                await self._jump(fault.target, JUMPS_S[fault.target])
            case "broker":
                return [await self._kill(self._rig.brokers[int(fault.draw * len(self._rig.brokers))])]
            case "leader":
                return [await self._kill(await self._leader())]
            case "controller":
                assert self._rig.cluster is not None
                return [await self._kill(await self._rig.cluster.controller())]
            case "long-loss":
                await self._lose(fault.target, [await self._leader()], LONG_LOSS_S)
            case "two-lost":
                kept = int(fault.draw * len(self._rig.brokers))
                lost = [name for place, name in enumerate(self._rig.brokers) if place != kept]
                await self._lose(fault.target, lost, TWO_LOST_S)
            case _:
                return [await self._kill(self._kills[fault.target])]
        return ()

    async def _all_is_well(self, returning: set[asyncio.Task[None]]) -> None:
        """Everything is up again, and the group has shared the partitions out among all that live."""
        if returning:
            await asyncio.wait(returning)

        def owned() -> bool:
            lives = {self._rig.life(name) for name in RUNTIMES}
            return set(self._witness.owners.values()) == lives and len(self._witness.owners) == PARTITIONS

        async with asyncio.timeout(OWNER_TIMEOUT_S):
            await self._witness.until(owned)

    # --- what comes back by itself -----------------------------------------------------------------------------------

    async def _kill(self, name: str) -> Struck:
        return await self._strike(name, signal.SIGKILL)

    async def _strike(self, name: str, number: signal.Signals) -> Struck:
        pid, at_s = await self._rig.strike(name, number)
        self._tell(f"{number.name} {name}", at_s)
        return Struck(name=name, life=self._rig.life(name), pid=pid, at_s=at_s)

    async def _back(self, target: str, struck: Sequence[Struck]) -> None:
        for one in struck:
            await self._rig.up(one.name, other_than=one.pid)
        first = struck[0]
        self._note(target, first.life, first.at_s, time.monotonic())

    async def _kill_with_successor(self) -> list[Struck]:
        """The busiest owner, and whoever claims one of its partitions next; that may be its own second life."""
        first = await self._busiest()
        before = {
            n: term for n, term in self._witness.terms.items() if self._witness.owners[n] == self._rig.life(first)
        }
        struck = await self._kill(first)
        claimed: list[int] = []

        def some_claimed() -> bool:
            claimed[:] = [number for number, term in before.items() if self._witness.terms[number] > term]
            return bool(claimed)

        async with asyncio.timeout(OWNER_TIMEOUT_S):
            await self._witness.until(some_claimed)
        second = self._witness.owners[claimed[0]].rpartition(".")[0]
        return [struck, await self._kill(second)]

    # --- what has to be undone ---------------------------------------------------------------------------------------

    async def _sleep(self, target: str, process: str, *, until_taken: bool = False) -> None:
        life = self._rig.life(process)
        if until_taken:
            # The other has to be there to take over.
            await self._rig.up(next(name for name in RUNTIMES if name != process))
        pid, at_s = await self._rig.sleep(process)
        self._tell(f"SIGSTOP {process}", at_s)
        try:
            await asyncio.sleep(2 * self._rig.session_s)  # long enough for the others to go on without it
            if until_taken:
                async with asyncio.timeout(OWNER_TIMEOUT_S):
                    await self._witness.until(lambda: life not in self._witness.owners.values())
        finally:
            back_s = self._rig.wake(pid)
        self._tell(f"SIGCONT {process}", back_s)
        self._note(target, life, at_s, back_s)

    async def _jump(self, target: str, seconds: float) -> None:
        owner = await self._busiest()
        life = self._rig.life(owner)
        for name in (owner, "api"):
            _, at_s = await self._rig.jump(name, seconds)
            self._tell(f"{name}'s clock jumps by {seconds:+d} s", at_s)
        self._note(target, life, at_s, at_s)

    async def _lose(self, target: str, brokers: Sequence[str], for_s: float) -> None:
        """Brokers down for a while. With two of three lost, writes are tried meanwhile."""
        for name in self._rig.brokers:
            await self._rig.up(name)  # otherwise another one is missing already
        await self._rig.up("api")
        for name in brokers:
            self._rig.hold(name)
        try:
            struck = [await self._kill(name) for name in brokers]
            end_s = struck[0].at_s + for_s
            while len(brokers) > 1 and time.monotonic() < end_s:
                await self._probe()
            await asyncio.sleep(max(0.0, end_s - time.monotonic()))
        finally:
            for name in brokers:
                self._rig.let_go(name)
        for one in struck:
            await self._rig.up(one.name, other_than=one.pid)
        back_s = time.monotonic()
        self._tell(f"{', '.join(brokers)} back", back_s)
        self._note(target, "", struck[0].at_s, back_s)

    async def _probe(self) -> None:
        began_s = time.monotonic()
        body = {"agent": WORKER, "prompt": "is anybody there?"}
        try:
            answer = await self._client.post("/v1/runs", json=body, timeout=PROBE_TIMEOUT_S)
        except httpx.TransportError as error:
            status, code = 0, type(error).__name__
        else:
            status = answer.status_code
            code = answer.json().get("code", "") if status != 200 else "accepted"
        self.probes.append(Probe(status=status, code=code, took_s=time.monotonic() - began_s))

    # --- shared ------------------------------------------------------------------------------------------------------

    async def _busiest(self) -> str:
        """The process with the most live runs under its claims."""

        def at_work() -> dict[str, int]:
            runs = self._witness.at_work()
            return {name: runs.get(self._rig.life(name), 0) for name in RUNTIMES if self._rig.is_up(name)}

        async with asyncio.timeout(OWNER_TIMEOUT_S):
            await self._witness.until(lambda: any(at_work().values()))
        result = at_work()
        return max(result, key=lambda name: result[name])

    async def _leader(self) -> str:
        """The broker that leads most partitions of the events; without a cluster the only one."""
        if self._rig.cluster is None:
            return self._rig.brokers[0]
        return await self._rig.cluster.leader_of(EVENTS)

    def _note(self, target: str, process: str, at_s: float, back_s: float) -> None:
        self.strikes.append(Strike(target=target, process=process, at_s=at_s, back_s=back_s))

    def _tell(self, what: str, at_s: float) -> None:
        self._say(f"  {at_s - self._began_s:5.1f} s  run {self._load.started:<4} {what}")
