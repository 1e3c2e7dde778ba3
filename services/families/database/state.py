"""The state of a database: where its chain of changes is, without a byte of its content.

    revision    number of the last change that counts; the next one is one higher
    chain       chain value of that revision (connectors/sqlite/pages.py): with it a file is proven
    copy        the changes up to that revision are in a full copy

A transaction has changes of its own after the revision it began at, which count once it is committed. A rollback
gives their numbers free, so a number and its chain value are named together.

Before: decide.py. After: items.py has the content as rows.
"""

from typing import Any, assert_never

from loomlog.connectors.sqlite.pages import GENESIS, PAGE_BYTES
from loomlog.schemas.generated.database_events import (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionBegan,
    SqlTransactionEnded,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.families.database.limits import CHANGES_PER_COPY, COPY_AFTER_BYTES, RUN_IDLE_MS
from loomlog.services.families.memory.author import RUN, scope_of_aggregate

FAMILY_NAME = "database"
VERSION = 2
"""Raise it whenever the same events give another state or other rows."""
ASKED, IDLE, ACKNOWLEDGED = "asked", "idle", "acknowledged"
"""Why a transaction ended."""

DatabaseEvent = SqlChanged | SqlCopied | SqlDropped | SqlRowsRemoved | SqlTransactionBegan | SqlTransactionEnded


class Head(Value, frozen=True):
    """A place in the chain of changes."""

    revision: int = 0
    chain: str = GENESIS
    page_count: int = 0


EMPTY = Head()


class Transaction(Value, frozen=True, kw_only=True):
    """The open transaction of a tree of runs."""

    root_run_id: str
    savepoints: tuple[Head, ...]
    """Where each of the nested transactions began, the outermost first."""
    head: Head
    packed_bytes: int = 0
    idle_ms: int
    deadline_ms: int
    """When it is rolled back without a further statement, UTC milliseconds."""


class Database(Value, frozen=True, kw_only=True):
    """State of the database of a scope."""

    scope: str = ""
    scope_id: str = ""
    head: Head = EMPTY
    copy_revision: int = 0
    """0: there is no copy."""
    packed_bytes: int = 0
    """Packed bytes of the changes since the copy."""
    transaction: Transaction | None = None
    expired: str = ""
    """Tree of runs whose transaction was rolled back as idle, until it begins another one or rolls back itself."""
    changed_at_ms: int = 0
    """When the database of a tree of runs was changed last; 0 for all others, and after a drop."""

    @property
    def drop_at_ms(self) -> int:
        """When it is dropped as left behind, UTC milliseconds; 0: never."""
        return self.changed_at_ms + RUN_IDLE_MS if self.changed_at_ms and self.head.revision else 0

    def transaction_of(self, root_run_id: str) -> Transaction | None:
        """Return the open transaction of a tree of runs."""
        open_one = self.transaction
        return open_one if open_one is not None and root_run_id and open_one.root_run_id == root_run_id else None

    def is_held_from(self, root_run_id: str) -> bool:
        """Whether another tree of runs has an open transaction."""
        return self.transaction is not None and self.transaction_of(root_run_id) is None

    def needs_copy(self) -> bool:
        """Whether a full copy is due."""
        changes = self.head.revision - self.copy_revision
        many = max(COPY_AFTER_BYTES, self.head.page_count * PAGE_BYTES)
        return self.transaction is None and (changes >= CHANGES_PER_COPY or (changes > 1 and self.packed_bytes >= many))


def initial(aggregate: str) -> Database:
    """Return the database of a scope without events; `aggregate` is `database:<tenant>/<scope>/<scope id>`."""
    scope = scope_of_aggregate("", aggregate.partition("/")[2])
    return Database(scope=scope.name, scope_id=scope.id)


def next_timer_ms(database: Database) -> int:
    """Return when a transaction ends as idle, or else when the database is dropped as left behind; 0: never."""
    return database.drop_at_ms if database.transaction is None else database.transaction.deadline_ms


def evolve(database: Database, event: DatabaseEvent, at_ms: int) -> Database:
    """Return the state after an event."""
    after = _folded(database, event, at_ms)
    is_use = isinstance(event, SqlChanged | SqlTransactionBegan | SqlTransactionEnded)
    return replace(after, changed_at_ms=at_ms) if is_use and after.scope == RUN else after


def _folded(database: Database, event: DatabaseEvent, at_ms: int) -> Database:
    open_one = database.transaction
    match event:
        case SqlChanged(root_run_id=""):
            packed_bytes = database.packed_bytes + event.packed_bytes
            return replace(database, head=_head(event), packed_bytes=packed_bytes)
        case SqlChanged():
            return database if open_one is None else replace(database, transaction=_changed(open_one, event, at_ms))
        case SqlTransactionBegan():
            return _began(database, event, at_ms)
        case SqlTransactionEnded():
            return _ended(database, event, at_ms)
        case SqlDropped():
            expired = database.expired if open_one is None else open_one.root_run_id
            return Database(scope=database.scope, scope_id=database.scope_id, expired=expired)
        case SqlCopied():
            return replace(database, copy_revision=event.revision, packed_bytes=0)
        case SqlRowsRemoved():
            return database
        case _:
            assert_never(event)


def _head(event: Any) -> Head:
    return Head(event.revision, event.chain, event.page_count)


def _changed(transaction: Transaction, event: SqlChanged, at_ms: int) -> Transaction:
    return replace(
        transaction,
        head=_head(event),
        packed_bytes=transaction.packed_bytes + event.packed_bytes,
        deadline_ms=at_ms + transaction.idle_ms,
    )


def _began(database: Database, event: SqlTransactionBegan, at_ms: int) -> Database:
    open_one = database.transaction
    outer = () if open_one is None else open_one.savepoints
    head = database.head if open_one is None else open_one.head
    transaction = Transaction(
        root_run_id=event.root_run_id,
        savepoints=(*outer, head),
        head=head,
        packed_bytes=0 if open_one is None else open_one.packed_bytes,
        idle_ms=event.idle_ms,
        deadline_ms=at_ms + event.idle_ms,
    )
    expired = "" if database.expired == event.root_run_id else database.expired
    return replace(database, transaction=transaction, expired=expired)


def _ended(database: Database, event: SqlTransactionEnded, at_ms: int) -> Database:
    open_one = database.transaction
    if event.reason == ACKNOWLEDGED:
        return replace(database, expired="")
    if open_one is None:
        return database
    if event.depth:
        inner = replace(
            open_one,
            savepoints=open_one.savepoints[: event.depth],
            head=_head(event),
            deadline_ms=at_ms + open_one.idle_ms,
        )
        return replace(database, transaction=inner)
    if event.committed:
        packed_bytes = database.packed_bytes + open_one.packed_bytes
        return replace(database, head=_head(event), packed_bytes=packed_bytes, transaction=None)
    return replace(
        database, transaction=None, expired=open_one.root_run_id if event.reason == IDLE else database.expired
    )
