"""Brings a file of this process to the last revision, from the rows of changes, and proves it by its chain.

A file follows by the changes that it lacks; one that does not fit, after a rollback or a drop, is made again: from the
committed file for a transaction, else from the last copy.

Before: operations.py. After: services/stream/entities/reads.py; files.py, page_store.py.
"""

import asyncio
from collections.abc import Sequence

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.sqlite.errors import FileFailed
from loomlog.connectors.sqlite.messages import StoredChange
from loomlog.connectors.sqlite.pages import GENESIS
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Unavailable
from loomlog.services.families.database.files import COMMITTED, CachedFile, DatabaseFiles, ScopeFiles
from loomlog.services.families.database.items import CHANGE_ITEM, COPY_ITEM, change_id, change_prefix
from loomlog.services.families.database.page_store import PageStore
from loomlog.services.families.database.state import FAMILY_NAME, Database, Head, Transaction, initial
from loomlog.services.families.memory.author import Scope
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

ROW_WAIT_S, POLL_S = 5.0, 0.02
"""How long rows are waited for that are older than the owner's state."""
ROWS_PAGE = 100
"""Changes of one read: each may have 120 KB."""
APPLY_BYTES = 16 * 1024 * 1024
"""Bytes of changes that are written at a time: those in blobs may have much more."""


class RowsMissing(Exception):
    """The rows do not lead to the revision: they are older than the state, or newer."""


class FileBuilder:
    """See the module. All methods raise Unavailable; Refused when the content was erased."""

    def __init__(self, reads: EntityReads, files: DatabaseFiles, pages: PageStore) -> None:
        self._reads = reads
        self._files = files
        self._pages = pages

    async def state(self, scope: Scope, positions: Sequence[str]) -> Database:
        """Return the state of a database: that of its owner in this process, else that of its row."""
        try:
            row = await self._reads.local(
                FAMILY_NAME, scope.tenant, scope.aggregate, positions=positions
            ) or await self._reads.show(FAMILY_NAME, scope.tenant, scope.aggregate, positions=positions)
        except (PositionNotRead, ConnectorError) as error:
            raise _unread(error) from error
        if row is None:
            return initial(aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate))
        state: Database = row.entity.state
        return state

    async def open(
        self, held: ScopeFiles, scope: Scope, root_run_id: str, state: Database, positions: Sequence[str]
    ) -> tuple[Database, CachedFile]:
        """Return the file that a tree of runs sees, at its last revision, and the state that it is of: the one that is
        passed or a later one. Raises FileFailed too.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ROW_WAIT_S
        while True:
            try:
                return state, await self._current(held, scope, root_run_id, state)
            except RowsMissing as error:
                if loop.time() >= deadline:
                    raise Unavailable(str(error)) from error
            await asyncio.sleep(POLL_S)
            state = await self.state(scope, positions)

    async def _current(self, held: ScopeFiles, scope: Scope, root_run_id: str, state: Database) -> CachedFile:
        transaction = state.transaction_of(root_run_id)
        target = state.head if transaction is None else transaction.head
        file = self._files.open(held, COMMITTED if transaction is None else root_run_id)
        if await self._follow(file, scope, target):
            return file
        await file.clear()
        await self._start(held, file, scope, state, transaction)
        if not await self._follow(file, scope, target):
            raise RowsMissing(f"the changes of the database up to revision {target.revision} are not read yet")
        return file

    async def _start(
        self, held: ScopeFiles, file: CachedFile, scope: Scope, state: Database, transaction: Transaction | None
    ) -> None:
        """Make an empty file one that can follow."""
        committed = held.files.get(COMMITTED)
        if transaction is not None and committed is not None and committed.head == transaction.savepoints[0]:
            await file.database.clone(committed.database)
            file.head = committed.head
        elif state.copy_revision:
            await self._apply_copy(file, scope)

    async def _apply_copy(self, file: CachedFile, scope: Scope) -> None:
        try:
            rows = await self._reads.load_items(FAMILY_NAME, scope.tenant, COPY_ITEM, [scope.aggregate])
        except (PositionNotRead, ConnectorError) as error:
            raise _unread(error) from error
        if not rows:
            raise RowsMissing("the copy of the database is not read yet")
        document = orjson.loads(rows[0].document)
        stored = StoredChange(await self._pages.load(document, scope.tenant), document["copy_chain"])
        applied = await file.database.apply([stored], GENESIS)
        if not applied.count:
            raise FileFailed("the copy of the database is not the one that its event names")
        file.head = Head(document["revision"], document["chain"], applied.page_count)

    async def _follow(self, file: CachedFile, scope: Scope, target: Head) -> bool:
        """Apply the changes that a file lacks; return whether it is at the target then."""
        while file.head.revision < target.revision:
            before = file.head.revision
            await self._apply_page(file, scope, target)
            if file.head.revision == before:
                return False
        return file.head == target

    async def _apply_page(self, file: CachedFile, scope: Scope, target: Head) -> None:
        """Apply the next changes, as far as they continue the file's chain."""
        try:
            rows = await self._reads.list_items_by_id(
                FAMILY_NAME,
                scope.tenant,
                CHANGE_ITEM,
                prefix=change_prefix(scope.aggregate),
                after=change_id(scope.aggregate, file.head.revision),
                limit=ROWS_PAGE,
            )
        except (PositionNotRead, ConnectorError) as error:
            raise _unread(error) from error
        changes: list[StoredChange] = []
        size = 0
        for number, row in enumerate(rows, file.head.revision + 1):
            document = orjson.loads(row.document)
            if document["revision"] != number or number > target.revision or size >= APPLY_BYTES:
                break
            stored = StoredChange(await self._pages.load(document, scope.tenant), document["chain"])
            size += sum(map(len, stored.parts))
            changes.append(stored)
        if not changes:
            return
        head = file.head
        applied = await file.database.apply(changes, head.chain)
        if applied.count:
            last = changes[applied.count - 1]
            file.head = Head(head.revision + applied.count, last.chain, applied.page_count)


def _unread(error: Exception) -> Unavailable:
    return Unavailable(f"the database cannot be read: {error}")
