"""Stops a stack from anywhere, also a partly dead one.

A living supervisor is asked (SIGTERM) and stops its children itself. When it does not, or is dead already, its children
are stopped here: those in stack.json, and the broker and Postgres of this folder that are found among the running
processes even when stack.json is lost. A signal is sent only if pid, start time and command match.

Not chosen: adopting healthy orphans. An unsupervised broker is restarted in two seconds; supervising a process that is
not a child would be a second, weaker kind of supervision for a case the kernel prevents on Linux (launch.py).

Before: `loomlog down`; local, before it starts.  After: processes.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loomlog.services.cli.stack.broker import NAME as BROKER
from loomlog.services.cli.stack.broker import STOP_TIMEOUT_S as BROKER_STOP_TIMEOUT_S
from loomlog.services.cli.stack.broker import is_broker_of
from loomlog.services.cli.stack.errors import StackAlreadyRunning, StackError
from loomlog.services.cli.stack.home import Home
from loomlog.services.cli.stack.postgres import NAME as POSTGRES
from loomlog.services.cli.stack.postgres import STOP_TIMEOUT_S as POSTGRES_STOP_TIMEOUT_S
from loomlog.services.cli.stack.postgres import is_postgres_of
from loomlog.services.cli.stack.processes import (
    ProcessIdentity,
    find_process,
    find_processes_by_arguments,
    kill_group,
    stop_process,
)
from loomlog.services.cli.stack.record import (
    InvalidStackRecord,
    LockState,
    load_record,
    read_lock_state,
    supervisor_lock,
)

# Its services drain (4 s), then broker and Postgres stop (8 s): longer than that it hangs.
SUPERVISOR_TIMEOUT_S = 20.0
LOCK_POLL_S = 0.05
# Orphans got their signal from the kernel when the supervisor died, so this is short.
LOCK_TIMEOUT_S = 5.0
# Another terminal's `loomlog down` stops the rest in two groups, each within its own timeout.
CONCURRENT_STOP_TIMEOUT_S = 30.0
HOLDER_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process of an earlier stack."""

    name: str
    identity: ProcessIdentity
    group: int
    stop_signal: signal.Signals
    timeout_s: float


async def stop_stack(home: Home, report: Callable[[str], None]) -> bool:
    """Stop whatever runs in this state folder. True when something did. Raises StackError when it cannot be stopped.

    When another terminal is stopping it already, this waits until that is done.
    """
    stopped = False
    for _ in range(round(CONCURRENT_STOP_TIMEOUT_S / LOCK_POLL_S)):
        lock = await _read_settled_lock(home)
        if lock.is_held and not lock.is_stopping:
            stopped = True
            await _stop_supervisor(home, lock.holder, report)
        try:
            with supervisor_lock(home.lock, is_stopping=True):
                return await stop_leftovers(home, report) > 0 or stopped
        except StackAlreadyRunning as error:
            lock = await _read_settled_lock(home)
            if lock.is_held and not lock.is_stopping:
                raise StackError(
                    f"Another stack was started in {home.root} while this one was being stopped."
                ) from error
        stopped = True
        await asyncio.sleep(LOCK_POLL_S)
    raise StackError(
        f"Another process has been stopping the stack in {home.root} for {CONCURRENT_STOP_TIMEOUT_S:g} s; "
        f"`fuser {home.lock}` names it."
    )


async def stop_leftovers(home: Home, report: Callable[[str], None]) -> int:
    """Stop the processes of an earlier supervisor and delete its record; return how many. Call it
    with the lock held.
    """
    leftovers = await asyncio.to_thread(find_leftovers, home, report)
    for group in sorted({leftover.group for leftover in leftovers}, reverse=True):
        ended = [leftover for leftover in leftovers if leftover.group == group]
        results = await asyncio.gather(
            *(stop_process(one.identity, stop_signal=one.stop_signal, timeout_s=one.timeout_s) for one in ended)
        )
        for one, result in zip(ended, results, strict=True):
            if result is not None:
                report(f"Stopped {one.name} (process {one.identity.pid}), left over from an earlier stack: {result}")
            if find_process(one.identity) is not None:
                raise StackError(
                    f"{one.name} (process {one.identity.pid}) of an earlier stack does not end, not even by SIGKILL. "
                    "It probably waits for a disk that does not answer."
                )
    home.record.unlink(missing_ok=True)
    return len(leftovers)


def find_leftovers(home: Home, report: Callable[[str], None]) -> list[Leftover]:
    """Return running processes of an earlier stack in this folder. Reads every process: blocking."""
    leftovers: dict[int, Leftover] = {}
    try:
        record = load_record(home.record)
    except InvalidStackRecord as damage:
        report(f"The list of running processes is damaged ({damage}); looking at the processes themselves instead")
        record = None
    for child in record.children if record is not None else ():
        identity = child.identity
        if identity is not None and find_process(identity) is not None:
            leftovers[identity.pid] = Leftover(
                name=child.name,
                identity=identity,
                group=child.group,
                stop_signal=signal.Signals[child.stop_signal],
                timeout_s=child.stop_timeout_s,
            )
    for name, matches, first, timeout_s in (
        (BROKER, is_broker_of, signal.SIGTERM, BROKER_STOP_TIMEOUT_S),
        (POSTGRES, is_postgres_of, signal.SIGINT, POSTGRES_STOP_TIMEOUT_S),
    ):

        def ours(arguments: Sequence[str], matches: Callable[[Home, list[str]], bool] = matches) -> bool:
            return matches(home, list(arguments))

        for identity in find_processes_by_arguments(ours):
            leftover = Leftover(name=name, identity=identity, group=0, stop_signal=first, timeout_s=timeout_s)
            leftovers.setdefault(identity.pid, leftover)
    return list(leftovers.values())


async def _stop_supervisor(home: Home, holder: ProcessIdentity | None, report: Callable[[str], None]) -> None:
    if holder is None:
        holder = await asyncio.to_thread(_load_recorded_supervisor, home)
    if holder is None or find_process(holder) is None:
        raise StackError(
            f"Some process holds {home.lock}, but neither that file nor stack.json says which. `fuser {home.lock}` "
            "names it; end it, then run this again."
        )
    result = await stop_process(holder, stop_signal=signal.SIGTERM, timeout_s=SUPERVISOR_TIMEOUT_S)
    if result is not None and result != signal.SIGTERM.name:
        report(f"The supervisor (process {holder.pid}) did not stop: {result}")
        kill_group(holder)
    for _ in range(round(LOCK_TIMEOUT_S / LOCK_POLL_S)):
        lock = await asyncio.to_thread(read_lock_state, home.lock)
        if lock.is_stopping or not lock.is_held:
            return
        await asyncio.sleep(LOCK_POLL_S)
    raise StackError(
        f"The supervisor (process {holder.pid}) has ended, but {home.lock} is still held by another process."
    )


async def _read_settled_lock(home: Home) -> LockState:
    """Return the lock, after a moment for its new holder to write its name."""
    for _ in range(HOLDER_ATTEMPTS):
        lock = await asyncio.to_thread(read_lock_state, home.lock)
        if lock.holder is not None or not lock.is_held:
            break
        await asyncio.sleep(LOCK_POLL_S)
    return lock


def _load_recorded_supervisor(home: Home) -> ProcessIdentity | None:
    try:
        record = load_record(home.record)
    except InvalidStackRecord:
        return None
    return None if record is None else record.supervisor
