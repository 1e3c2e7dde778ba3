"""Which process is struck at which run, and how: drawn from a seed, so that a bad round can be done again.

    runtime               SIGKILL to the owner that has the most live runs
    api, projector        SIGKILL
    broker, postgres      SIGKILL to the server process
    zombie                SIGSTOP to an owner for two sessions, and until the other has taken all it had, then SIGCONT:
                          it wakes up in the middle of its runs and believes that it still owns them
    successor             SIGKILL to an owner, and to the next one the moment it takes over
    planned               SIGTERM to an owner: it drains, and comes back
    everything            SIGKILL to all of them at once, as when the power fails

A strike happens when so many runs were begun, not at a time of day: the load then is in full swing whatever the machine
does. The runs are divided among the strikes, and each has a random place in its share. A moment later, also random,
because workers that begin runs together do everything together: otherwise every strike would hit a first turn.

Before: campaign.  After: rig.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.evidence import Strike
from tests.chaos.load import Load
from tests.chaos.rig import RUNTIMES, SESSION_TIMEOUT_MS, Rig
from tests.chaos.witness import Witness

TARGETS = ("runtime", "api", "projector", "broker", "postgres", "zombie", "successor", "planned", "everything")
PROCESSES = {"api": "api", "projector": "projector", "broker": "kafka", "postgres": "postgres"}
FIRST_SHARE, LAST_SHARE = 0.1, 0.9
"""Of the runs: the first ones warm everything up, the last ones see what the last strike left behind."""
LONGEST_AFTER_S = 1.5
"""About as long as a run takes."""
ASLEEP_S = 2 * SESSION_TIMEOUT_MS / 1000
OWNER_TIMEOUT_S = 30.0
"""Until somebody owns a live run, and until a stopped owner's partitions are taken: sessions are a second here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A strike to come: that long after that many runs were begun."""

    target: str
    at_run: int
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A process that was killed."""

    name: str
    life: str
    pid: int
    at_s: float


def plan(seed: int, runs: int, targets: Sequence[str]) -> list[Fault]:
    """The faults of one round, every target once, in random order."""
    unknown = sorted(set(targets) - set(TARGETS))
    assert not unknown, f"no such targets: {unknown}; there are {TARGETS}"
    draw = random.Random(seed)
    order = draw.sample(list(targets), len(targets))
    share = (LAST_SHARE - FIRST_SHARE) * runs / max(1, len(order))
    return [
        Fault(
            target=target,
            at_run=round(FIRST_SHARE * runs + share * (place + draw.random())),
            after_s=draw.uniform(0, LONGEST_AFTER_S),
        )
        for place, target in enumerate(order)
    ]


class Striker:
    """Carries a plan out. `strikes` is what was done."""

    def __init__(self, rig: Rig, load: Load, witness: Witness, *, say: Callable[[str], None]) -> None:
        self.strikes: list[Strike] = []
        self._rig = rig
        self._load = load
        self._witness = witness
        self._say = say
        self._began_s = time.monotonic()

    async def run(self, faults: Sequence[Fault]) -> None:
        """Until the last one was done and everything is up again. Raises TimeoutError when something stays down."""
        async with asyncio.TaskGroup() as returning:
            for fault in faults:
                await self._load.reached(fault.at_run)
                await asyncio.sleep(fault.after_s)
                match fault.target:
                    case "zombie":
                        await self._stop_and_wake()
                        continue
                    case "everything":
                        struck = [await self._kill(name) for name in (*PROCESSES.values(), *RUNTIMES)]
                    case "successor":
                        struck = await self._kill_with_successor()
                    case "planned":
                        struck = [await self._strike(await self._busiest(), signal.SIGTERM)]
                    case "runtime":
                        struck = [await self._kill(await self._busiest())]
                    case _:
                        struck = [await self._kill(PROCESSES[fault.target])]
                returning.create_task(self._back(fault.target, struck))

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
        self.strikes.append(Strike(target=target, process=first.life, at_s=first.at_s, back_s=time.monotonic()))

    async def _busiest(self) -> str:
        """The process with the most live runs under its claims."""

        def at_work() -> dict[str, int]:
            runs = self._witness.at_work()
            return {name: runs.get(self._rig.life(name), 0) for name in RUNTIMES if self._rig.is_up(name)}

        async with asyncio.timeout(OWNER_TIMEOUT_S):
            await self._witness.until(lambda: any(at_work().values()))
        found = at_work()
        return max(found, key=lambda name: found[name])

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

    async def _stop_and_wake(self) -> None:
        process = await self._busiest()
        life = self._rig.life(process)
        # The other has to be there to take over.
        await self._rig.up(next(name for name in RUNTIMES if name != process))
        _, at_s = await self._rig.strike(process, signal.SIGSTOP)
        self._tell(f"SIGSTOP {process}", at_s)
        try:
            await asyncio.sleep(ASLEEP_S)  # long enough for the other to get on with its runs
            async with asyncio.timeout(OWNER_TIMEOUT_S):
                await self._witness.until(lambda: life not in self._witness.owners.values())
        finally:
            _, back_s = await self._rig.strike(process, signal.SIGCONT)
        self._tell(f"SIGCONT {process}", back_s)
        self.strikes.append(Strike(target="zombie", process=life, at_s=at_s, back_s=back_s))

    def _tell(self, what: str, at_s: float) -> None:
        self._say(f"  {at_s - self._began_s:5.1f} s  run {self._load.started:<4} {what}")
