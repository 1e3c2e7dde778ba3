"""The processes of a campaign: each can be struck, put to sleep, held down and given another time by its name.

One supervisor (the product's own) starts everything and starts again whatever ends, at once and as often as it takes:
a campaign kills the same process many times, which would make a patient supervisor give up. What ends by itself is
started again too, and counted.

Before: striker.  After: stack.py fills it with processes, loomlog.services.cli.stack.supervisor keeps them.
"""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from loomlog.services.cli.stack.child import ChildExit, ChildSpec
from loomlog.services.cli.stack.logfile import read_tail
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.stack.supervisor import Supervisor
from tests.chaos.clock import JUMP
from tests.chaos.cluster import Cluster

RESTART_PAUSE_S = 0.2
"""Before what ended by itself is started again, so that a lost broker is not met by a storm of starts."""
READY_TIMEOUT_S = 60.0
ENDING = frozenset({signal.SIGKILL, signal.SIGTERM})
"""Signals after which a process is gone."""
NEVER_GIVES_UP = 1_000_000


class Rig:
    """The running stack. Names of processes: `brokers`, postgres, runtime-1, runtime-2, projector, api."""

    def __init__(self, folder: Path, *, effect: str, session_s: float, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.effect = effect
        self.session_s = session_s
        """How long the group waits for an owner that says nothing."""
        self.ledger = folder / "ledger"
        self.notes = folder / "notes"
        """What the MCP server writes."""
        self.brokers: tuple[str, ...] = ()
        self.cluster: Cluster | None = None
        """None: there is one broker."""
        self.kafka = ""
        self.postgres = ""
        self.api = ""
        self.own_ends: Counter[str] = Counter()
        """Processes that ended without being struck, by name and exit code."""
        self._say = say
        self._struck: dict[str, int] = {}
        self._been_up: set[str] = set()
        self._lives: Counter[str] = Counter()
        self._changed = asyncio.Condition()
        self._free: dict[str, asyncio.Event] = {}
        """Of processes that were held down."""
        self.supervisor = Supervisor(
            logs=folder / "home" / "logs",
            record=self._recorded,
            report=self._quietly,
            initial_backoff_s=RESTART_PAUSE_S,
            max_restarts=NEVER_GIVES_UP,
        )

    async def strike(self, name: str, number: signal.Signals = signal.SIGKILL) -> tuple[int, float]:
        """Signal a process as soon as it is up; its pid and the moment. Raises TimeoutError when it never is."""
        pid = await self.up(name)
        if number in ENDING:
            self._struck[name] = pid
        os.kill(pid, number)
        return pid, time.monotonic()

    async def sleep(self, name: str) -> tuple[int, float]:
        """Stop a process with all it has started, as a machine that is paused; its pid and the moment."""
        pid = await self.up(name)
        at_s = time.monotonic()
        _signal_family(pid, signal.SIGSTOP)
        return pid, at_s

    def wake(self, pid: int) -> float:
        """Let it go on; the moment."""
        _signal_family(pid, signal.SIGCONT)
        return time.monotonic()

    def hold(self, name: str) -> None:
        """From now on the process is not started again until it is let go."""
        self._free[name] = asyncio.Event()

    def let_go(self, name: str) -> None:
        self._free.pop(name).set()

    async def jump(self, name: str, seconds: float) -> tuple[int, float]:
        """Let the clock of a service jump by that much, until its life ends; its pid and the moment."""
        pid = await self.up(name)
        self._clock(name).write_text(str(seconds))
        os.kill(pid, JUMP)
        return pid, time.monotonic()

    async def up(self, name: str, *, other_than: int = 0) -> int:
        """The pid of a process once it is ready. Raises TimeoutError."""
        async with asyncio.timeout(READY_TIMEOUT_S), self._changed:
            while (pid := self._pid(name)) is None or pid == other_than:
                await self._changed.wait()
            return pid

    def log(self, name: str) -> Path:
        return self.folder / "home" / "logs" / f"{name}.log"

    def kept(self, child: ChildSpec) -> ChildSpec:
        """The child, started again at once whenever it ends (unless it is held down), and counted when nobody struck
        it."""

        async def before_start() -> tuple[str, ...]:
            if child.name in self._free:
                await self._free[child.name].wait()
            return child.argv if child.before_start is None else await child.before_start()

        async def after_exit(exit_: ChildExit) -> bool:
            again = child.after_exit is not None and await child.after_exit(exit_)
            if exit_.stop_requested:
                return again
            if exit_.was_ready:
                self._been_up.add(child.name)
            if self._struck.pop(child.name, None) is not None:
                return True
            end = f"{child.name}, exit code {exit_.code}"
            self.own_ends[end] += 1
            if self.own_ends[end] == 1:
                self._say(f"{end}, although nobody struck it; its log ends with:\n{read_tail(self.log(child.name))}")
            if child.name not in self._been_up:
                return again  # a first start that fails is a message, not a loop
            await asyncio.sleep(RESTART_PAUSE_S)
            return True

        return replace(child, before_start=before_start, after_exit=after_exit)

    def service(self, name: str, module: str, environment: Mapping[str, str]) -> ChildSpec:
        """A service that calls itself by another name in each of its lives, so that claims tell which one made them,
        and begins each with the right time."""

        async def before_start() -> tuple[str, ...]:
            self._lives[name] += 1
            text = f"LOOMLOG_REPLICA_ID={self.life(name)}"
            clock = self._clock(name)
            clock.unlink(missing_ok=True)
            main = f"loomlog.services.{module}.main"
            return ("env", text, sys.executable, "-P", "-m", "tests.chaos.clock", str(clock), main)

        return ChildSpec(name=name, environment=environment, cwd=self.folder, before_start=before_start)

    def life(self, name: str) -> str:
        """What the process of that name calls itself now."""
        return f"{name}.{self._lives[name]}"

    def is_up(self, name: str) -> bool:
        return self._pid(name) is not None

    def _clock(self, name: str) -> Path:
        return self.folder / f"clock-{name}"

    def _pid(self, name: str) -> int | None:
        """Of the process when it is ready and not struck; None otherwise."""
        record = next((child for child in self.supervisor.child_records() if child.name == name), None)
        if record is None or record.state != "ready" or record.pid == self._struck.get(name):
            return None
        return record.pid

    async def _recorded(self, children: Sequence[ChildRecord]) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _quietly(self, line: str) -> None:
        if "starting it again" not in line:
            self._say(line)


def _signal_family(pid: int, number: signal.Signals) -> None:
    """The process first, so that it begets no more, then what it has started."""
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(pid)
        family.send_signal(number)
        for one in family.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)
