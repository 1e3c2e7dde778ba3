"""The files of databases that this process has: a cache, since any of them can be made again from the log.

Of a scope there is the file of what is committed, and one for the transaction of a tree of runs while there is one.
Calls for one scope come one after another; calls for different scopes run at the same time, each in a worker process.
Tenants and principals have shares of the workers: a call waits for its turn, then its statement has its whole time.
Files are in plaintext, so those of a tenant are removed when anyone of it is erased.

Before: operations.py. After: connectors/sqlite.
"""

import asyncio
import itertools
import math
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from loomlog.connectors.sqlite.folder import ClaimedFolder
from loomlog.connectors.sqlite.pages import PAGE_BYTES
from loomlog.connectors.sqlite.worker_pool import DatabaseFile, WorkerPool, WorkerProcess
from loomlog.services.core.bounded_resources import SQL_STATEMENTS
from loomlog.services.core.shares import Holder
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.state import EMPTY, Database, Head
from loomlog.services.families.memory.author import Scope, scope_of_aggregate
from loomlog.services.stream.shared_slots import SharedSlots

COMMITTED = ""


NO_HOLDER = Holder(tenant="", principal="")


class ScopeBusy(Exception):
    """Another call holds the files of the scope for longer than this one waits."""


class CachedFile:
    """A file, and how far in the chain of changes it is."""

    __slots__ = ("_head", "database")

    def __init__(self, database: DatabaseFile) -> None:
        self.database = database
        self._head: Head = EMPTY

    @property
    def head(self) -> Head:
        return EMPTY if self.database.is_lost else self._head

    @head.setter
    def head(self, head: Head) -> None:
        self._head = head

    async def clear(self) -> None:
        """Make the file an empty one."""
        self._head = EMPTY
        await self.database.remove()


class ScopeFiles:
    """The files of a scope: COMMITTED, and by root run that of a transaction."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.holder = NO_HOLDER
        """For whom its files are used now."""
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
        self.slots = SharedSlots(SQL_STATEMENTS.name, SQL_STATEMENTS.shares)
        self._workers = WorkerPool()
        self._paths = (self._folder.path / f"{number}.db" for number in itertools.count(1))
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def hold(self, scope: Scope, wait_s: float, holder: Holder = NO_HOLDER) -> AsyncIterator[ScopeFiles]:
        """Hold the files of a scope. Raises ScopeBusy. Statements on them wait for the share of the holder, and raise
        ShareExhausted.
        """
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
            held.holder = holder
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
            held.files[name] = CachedFile(DatabaseFile(partial(self._lease, held), self._paths))
        return held.files[name]

    @asynccontextmanager
    async def _lease(self, held: ScopeFiles, preferred: WorkerProcess | None) -> AsyncIterator[WorkerProcess]:
        with await self.slots.acquire(held.holder, wait_s=self._limits.busy_wait_s):
            async with self._workers.lease(preferred) as worker:
                yield worker

    async def remove(self, held: ScopeFiles, name: str) -> None:
        """Remove a file of a scope."""
        if (file := held.files.pop(name, None)) is not None:
            await file.clear()

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
        await self._workers.close()
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
