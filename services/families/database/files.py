"""The files of databases that this process has: a cache, since any of them can be made again from the log.

Of a scope there is the file of what is committed, and one for the transaction of a tree of runs while there is one.
Calls for one scope come one after another; calls for different scopes run at the same time, each in a thread.
Files are in plaintext, so those of a tenant are removed when anyone of it is erased.

Before: operations.py. After: connectors/sqlite.
"""

import asyncio
import itertools
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import TypeVar

from loomlog.connectors.sqlite.database import IsCancelled, ScopeDatabase
from loomlog.connectors.sqlite.folder import ClaimedFolder
from loomlog.connectors.sqlite.pages import PAGE_BYTES
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.state import EMPTY, Database, Head
from loomlog.services.families.memory.author import Scope, scope_of_aggregate

WORKERS = 16
"""Threads: SQLite works without the interpreter's lock, and a slow statement must not keep other scopes waiting."""
COMMITTED = ""

Result = TypeVar("Result")


class ScopeBusy(Exception):
    """Another call holds the files of the scope for longer than this one waits."""


class CachedFile:
    """A file, and how far in the chain of changes it is."""

    __slots__ = ("database", "head")

    def __init__(self, database: ScopeDatabase) -> None:
        self.database = database
        self.head: Head = EMPTY


class ScopeFiles:
    """The files of a scope: COMMITTED, and by root run that of a transaction."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.files: dict[str, CachedFile] = {}
        self.state: Database | None = None
        """State after the last command of this process; None when another one may have come between."""
        self.users = 0
        self.is_forgotten = False
        """Whether the files are removed before they are used again."""

    @property
    def size_bytes(self) -> int:
        return sum(file.head.page_count * PAGE_BYTES for file in self.files.values())


class DatabaseFiles:
    """See the module. `root` is a folder for the files of all processes of this machine."""

    def __init__(self, root: Path, limits: SqlLimits) -> None:
        """Raises OSError. Blocking."""
        self._folder = ClaimedFolder(root)
        self._limits = limits
        self._scopes: OrderedDict[tuple[str, str], ScopeFiles] = OrderedDict()
        """By tenant and aggregate, the least recently used first."""
        self._executor = ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="sql")
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(self, scope: Scope, wait_s: float) -> AsyncIterator[ScopeFiles]:
        """Hold the files of a scope. Raises ScopeBusy."""
        key = (scope.tenant, scope.aggregate)
        held = self._scopes.setdefault(key, ScopeFiles())
        self._scopes.move_to_end(key)
        held.users += 1
        try:
            try:
                async with asyncio.timeout(max(wait_s, 0.001)):
                    await held.lock.acquire()
            except TimeoutError:
                raise ScopeBusy from None
            try:
                if held.is_forgotten:
                    held.is_forgotten, held.state = False, None
                    for name in list(held.files):
                        await self.remove(held, name)
                yield held
            finally:
                held.lock.release()
        finally:
            held.users -= 1
            if not held.users and not held.files and self._scopes.get(key) is held:
                del self._scopes[key]
        await self._evict()

    def has(self, scope: Scope) -> bool:
        """Whether there are files of a scope."""
        return (scope.tenant, scope.aggregate) in self._scopes

    def open(self, held: ScopeFiles, name: str) -> CachedFile:
        """Return a file of a scope: an empty one if there is none."""
        if name not in held.files:
            path = self._folder.path / f"{next(self._numbers)}.db"
            held.files[name] = CachedFile(ScopeDatabase(path, rows_max=self._limits.rows_max))
        return held.files[name]

    async def clear(self, file: CachedFile) -> None:
        """Make a file an empty one."""
        file.head = EMPTY
        await self.run(lambda is_cancelled: file.database.delete())

    async def remove(self, held: ScopeFiles, name: str) -> None:
        """Remove a file of a scope."""
        if (file := held.files.pop(name, None)) is not None:
            await self.clear(file)

    async def run(self, work: Callable[[IsCancelled], Result]) -> Result:
        """Return the result of blocking work. When the caller is cancelled, the work is, and its end is awaited:
        a connection is used by one thread at a time.
        """
        stop = Event()
        future = asyncio.get_running_loop().run_in_executor(self._executor, work, stop.is_set)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            stop.set()
            while not future.done():
                try:
                    await asyncio.wait({future})
                except asyncio.CancelledError:
                    continue
            future.exception()
            raise

    def forget(self, tenant: str) -> None:
        """Remove the files of a tenant: no later call uses them, and they go after those under way."""
        for (named, aggregate), held in self._scopes.items():
            if named == tenant:
                held.is_forgotten = True
                task = asyncio.get_running_loop().create_task(self._touch(scope_of_aggregate(tenant, aggregate)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _touch(self, scope: Scope) -> None:
        async with self.hold(scope, math.inf):
            pass

    async def close(self) -> None:
        """Remove all files; no call may be under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        scopes = list(self._scopes.values())
        self._scopes.clear()
        for held in scopes:
            for name in list(held.files):
                await self.remove(held, name)
        self._executor.shutdown()
        await asyncio.to_thread(self._folder.close)

    async def _evict(self) -> None:
        """Remove the files that were not used for longest, until the rest is within the limits."""
        size_bytes = sum(held.size_bytes for held in self._scopes.values())
        count = sum(len(held.files) for held in self._scopes.values())
        for key, held in list(self._scopes.items()):
            if count <= self._limits.files_max and size_bytes <= self._limits.files_bytes_max:
                return
            if held.users or self._scopes.get(key) is not held:
                continue
            del self._scopes[key]
            count, size_bytes = count - len(held.files), size_bytes - held.size_bytes
            for name in list(held.files):
                await self.remove(held, name)
