"""Stopping a stack from anywhere, also one that is half dead.

A living supervisor is asked (SIGTERM) and stops its children itself. When it does not, or is dead already, its
children are stopped here: those in stack.json, and the broker and Postgres of this folder that are found among the
running processes even when stack.json is lost. Only a process whose pid, start time and command fit is touched.

Not chosen: adopting healthy orphans. A broker nobody supervises is stopped and started again in two seconds;
supervising what is not one's child would be a second, weaker kind of supervision for a case the kernel prevents on
Linux (launch.py).

Before: `loomlog down`; local, before it starts.  After: processes.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loomlog.services.cli.stack.broker import NAME as BROKER
from loomlog.services.cli.stack.broker import STOP_TIMEOUT_S as BROKER_STOP_TIMEOUT_S
from loomlog.services.cli.stack.broker import is_broker_of
from loomlog.services.cli.stack.home import Home
from loomlog.services.cli.stack.postgres import NAME as POSTGRES
from loomlog.services.cli.stack.postgres import STOP_TIMEOUT_S as POSTGRES_STOP_TIMEOUT_S
from loomlog.services.cli.stack.postgres import is_postgres_of
from loomlog.services.cli.stack.problems import StackProblem, StackRunning
from loomlog.services.cli.stack.processes import ProcessIdentity, find, find_by_arguments, kill_group, stop_process
from loomlog.services.cli.stack.record import LockState, RecordDamaged, load_record, lock_state, supervisor_lock

# Its services drain (4 s), then broker and Postgres stop (8 s): longer than that it hangs.
SUPERVISOR_TIMEOUT_S = 20.0
LOCK_POLL_S = 0.05
# Orphans got their signal from the kernel when the supervisor died, so this is short.
LOCK_TIMEOUT_S = 5.0
# Another terminal's `loomlog down` stops what is left in two groups, each within its own timeout.
OTHERS_TIMEOUT_S = 30.0
NAME_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process of an earlier stack."""

    name: str
    identity: ProcessIdentity
    group: int
    first: signal.Signals
    timeout_s: float


async def stop_stack(home: Home, say: Callable[[str], None]) -> bool:
    """Stop whatever runs in this state folder. True when something did. Raises StackProblem when it cannot be.

    When another terminal is stopping it already, this waits until that is done.
    """
    stopped = False
    for _ in range(round(OTHERS_TIMEOUT_S / LOCK_POLL_S)):
        lock = await _settled_lock(home)
        if lock.held and not lock.stopping:
            stopped = True
            await _stop_supervisor(home, lock.holder, say)
        try:
            with supervisor_lock(home.lock, stopping=True):
                return await clean_leftovers(home, say) > 0 or stopped
        except StackRunning as error:
            lock = await _settled_lock(home)
            if lock.held and not lock.stopping:
                raise StackProblem(
                    f"Another stack was started in {home.root} while this one was being stopped."
                ) from error
        stopped = True
        await asyncio.sleep(LOCK_POLL_S)
    raise StackProblem(
        f"Another process has been stopping the stack in {home.root} for {OTHERS_TIMEOUT_S:g} s; "
        f"`fuser {home.lock}` names it."
    )


async def clean_leftovers(home: Home, say: Callable[[str], None]) -> int:
    """Stop what an earlier supervisor left running, and forget it. Call it with the lock held. How many there were."""
    leftovers = await asyncio.to_thread(find_leftovers, home, say)
    for group in sorted({leftover.group for leftover in leftovers}, reverse=True):
        ended = [leftover for leftover in leftovers if leftover.group == group]
        results = await asyncio.gather(
            *(stop_process(one.identity, first=one.first, timeout_s=one.timeout_s) for one in ended)
        )
        for one, result in zip(ended, results, strict=True):
            if result is not None:
                say(f"Stopped {one.name} (process {one.identity.pid}), left over from an earlier stack: {result}")
            if find(one.identity) is not None:
                raise StackProblem(
                    f"{one.name} (process {one.identity.pid}) of an earlier stack does not end, not even by SIGKILL. "
                    "It probably waits for a disk that does not answer."
                )
    home.record.unlink(missing_ok=True)
    return len(leftovers)


def find_leftovers(home: Home, say: Callable[[str], None]) -> list[Leftover]:
    """Running processes of an earlier stack in this folder. Reads every process: blocking."""
    found: dict[int, Leftover] = {}
    try:
        record = load_record(home.record)
    except RecordDamaged as damage:
        say(f"The list of running processes is damaged ({damage}); looking at the processes themselves instead")
        record = None
    for child in record.children if record is not None else ():
        identity = child.identity
        if identity is not None and find(identity) is not None:
            found[identity.pid] = Leftover(
                name=child.name,
                identity=identity,
                group=child.group,
                first=signal.Signals[child.stop_signal],
                timeout_s=child.stop_timeout_s,
            )
    for name, matches, first, timeout_s in (
        (BROKER, is_broker_of, signal.SIGTERM, BROKER_STOP_TIMEOUT_S),
        (POSTGRES, is_postgres_of, signal.SIGINT, POSTGRES_STOP_TIMEOUT_S),
    ):

        def ours(arguments: Sequence[str], matches: Callable[[Home, list[str]], bool] = matches) -> bool:
            return matches(home, list(arguments))

        for identity in find_by_arguments(ours):
            leftover = Leftover(name=name, identity=identity, group=0, first=first, timeout_s=timeout_s)
            found.setdefault(identity.pid, leftover)
    return list(found.values())


async def _stop_supervisor(home: Home, holder: ProcessIdentity | None, say: Callable[[str], None]) -> None:
    if holder is None:
        holder = await asyncio.to_thread(_recorded_supervisor, home)
    if holder is None or find(holder) is None:
        raise StackProblem(
            f"Some process holds {home.lock}, but neither that file nor stack.json says which. `fuser {home.lock}` "
            "names it; end it, then run this again."
        )
    result = await stop_process(holder, first=signal.SIGTERM, timeout_s=SUPERVISOR_TIMEOUT_S)
    if result is not None and result != signal.SIGTERM.name:
        say(f"The supervisor (process {holder.pid}) did not stop: {result}")
        kill_group(holder)
    for _ in range(round(LOCK_TIMEOUT_S / LOCK_POLL_S)):
        lock = await asyncio.to_thread(lock_state, home.lock)
        if lock.stopping or not lock.held:
            return
        await asyncio.sleep(LOCK_POLL_S)
    raise StackProblem(
        f"The supervisor (process {holder.pid}) has ended, but {home.lock} is still held by another process."
    )


async def _settled_lock(home: Home) -> LockState:
    """The lock, after a moment for its new holder to write its name."""
    for _ in range(NAME_TRIES):
        lock = await asyncio.to_thread(lock_state, home.lock)
        if lock.holder is not None or not lock.held:
            break
        await asyncio.sleep(LOCK_POLL_S)
    return lock


def _recorded_supervisor(home: Home) -> ProcessIdentity | None:
    try:
        record = load_record(home.record)
    except RecordDamaged:
        return None
    return None if record is None else record.supervisor
