"""Sees what a supervisor records and says, so that a test can wait for it instead of sleeping."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loomlog.services.cli.stack.errors import DiskFull, StackError
from loomlog.services.cli.stack.record import ChildRecord

WAIT_TIMEOUT_S = 30.0


class Watcher:
    """`record` and `say` for a Supervisor."""

    def __init__(self) -> None:
        self.children: dict[str, ChildRecord] = {}
        self.history: list[tuple[str, str]] = []
        self.said: list[str] = []
        self._changed = asyncio.Condition()

    async def record(self, children: Sequence[ChildRecord]) -> None:
        for child in children:
            before = self.children.get(child.name)
            if before is None or before.state != child.state:
                self.history.append((child.name, child.state))
            self.children[child.name] = child
        async with self._changed:
            self._changed.notify_all()

    def say(self, text: str) -> None:
        self.said.append(text)

    async def until(self, holds: Callable[[dict[str, ChildRecord]], bool]) -> None:
        """Wait, bounded, until `holds` for the newest record."""
        async with asyncio.timeout(WAIT_TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: holds(self.children))


@dataclass
class Disk:
    """Where a supervisor's record is written: nothing can be while it is full, which `problem` says."""

    watcher: Watcher
    problem: type[StackError] = DiskFull
    is_full: bool = False

    async def record(self, children: Sequence[ChildRecord]) -> None:
        if self.is_full:
            raise self.problem("the disk is full")
        await self.watcher.record(children)
