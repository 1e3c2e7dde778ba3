"""Decisions about databases: a change counts when it was made on the last revision, by a run that may write now.

The statement has been carried out elsewhere (operations.py), on a file of the revision that the command names. When
that is no longer the last one, the command is refused and the statement carried out again.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the events.
"""

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from loomlog.connectors.sqlite.errors import QUOTA, REFUSED, TIMEOUT
from loomlog.connectors.sqlite.pages import PAGE_BYTES
from loomlog.schemas.generated.database_commands import (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
from loomlog.schemas.generated.database_events import (
    SqlChanged,
    SqlCopied,
    SqlDropped,
    SqlRowsRemoved,
    SqlTransactionBegan,
    SqlTransactionEnded,
)
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import MemorySource
from loomlog.schemas.records import copy_as
from loomlog.services.core.families import At, TimerFired, name_problem
from loomlog.services.families.database import limits
from loomlog.services.families.database.state import (
    ACKNOWLEDGED,
    ASKED,
    IDLE,
    Database,
    DatabaseEvent,
    Head,
    Transaction,
)
from loomlog.services.families.memory.author import RUN, SCOPES, aggregate_name

BUSY, CONFLICT, BAD_REQUEST = "sql_busy", "revision_conflict", "bad_request"
REFUSALS = frozenset({BUSY, REFUSED, TIMEOUT, QUOTA})
"""Codes of statements that failed where they were carried out."""
ANY_REVISION = -1
"""Base revision of a refusal that depends on none."""
CHAIN = re.compile(rf"[0-9a-f]{{{limits.CHAIN_DIGITS}}}\Z")
HELD = "another run has a transaction open; try again when it has ended"
EXPIRED = (
    "the transaction was rolled back, because no statement came for too long; call sql_begin to begin again, or "
    "sql_rollback to go on without one"
)

DatabaseCommand = ChangeDatabase | BeginTransaction | EndTransaction | DropDatabase | PutCopy


def decide(
    database: Database, command: DatabaseCommand | TimerFired, at: At
) -> Sequence[DatabaseEvent | CommandRefused]:
    """Return the events that follow a command."""
    if isinstance(command, TimerFired):
        return _roll_back_idle(database, at) or _drop_left_behind(database, at)
    if problem := _name_error(command.scope, command.scope_id):
        return [CommandRefused(code=BAD_REQUEST, message=problem)]
    match command:
        case ChangeDatabase():
            return _change(database, command)
        case BeginTransaction():
            return _begin(database, command)
        case EndTransaction():
            return _end(database, command)
        case DropDatabase():
            return _drop(database, command.reason, command.source)
        case PutCopy():
            return _copy(database, command)
        case _:
            assert_never(command)


def _name_error(scope: str, scope_id: str) -> str:
    if scope not in (*SCOPES, RUN):
        return f"scope: expected one of {', '.join((*SCOPES, RUN))}"
    problem = name_problem(aggregate_name(scope, scope_id))
    return f"scope_id: {problem}" if problem else ""


def _refused(code: str, message: str) -> list[DatabaseEvent | CommandRefused]:
    return [CommandRefused(code=code, message=message)]


# --- changes ---------------------------------------------------------------------------------------------------------


def _change(database: Database, command: ChangeDatabase) -> Sequence[DatabaseEvent | CommandRefused]:
    if command.refusal and command.base_revision == ANY_REVISION:
        return _recorded(command)
    if database.is_held_from(command.root_run_id):
        return _refused(CONFLICT, HELD)
    transaction = database.transaction_of(command.root_run_id)
    if command.root_run_id and transaction is None and database.expired == command.root_run_id:
        return _refused(TIMEOUT, EXPIRED)
    head = database.head if transaction is None else transaction.head
    is_current = (command.base_revision, command.base_chain) == (head.revision, head.chain)
    if not is_current or (command.root_run_id and transaction is None):
        return _refused(CONFLICT, f"the database is at revision {head.revision}")
    if command.refusal:
        return _recorded(command)
    if not command.chain:
        return [] if transaction is None else [_event(command, head, head)]
    after = Head(head.revision + 1, command.chain, command.page_count)
    if refusal := _pages_refusal(command) or _size_refusal(command, head, transaction):
        return [refusal]
    return [_event(command, head, after)]


def _recorded(command: ChangeDatabase) -> Sequence[DatabaseEvent | CommandRefused]:
    code = command.refusal if command.refusal in REFUSALS else BAD_REQUEST
    return _refused(code, "the statement was not carried out")


def _event(command: ChangeDatabase, before: Head, after: Head) -> SqlChanged:
    return copy_as(
        SqlChanged,
        command,
        revision=after.revision,
        previous_revision=before.revision,
        chain=after.chain,
        page_count=after.page_count,
        packed_bytes=max(0, command.packed_bytes),
    )


def _pages_refusal(command: ChangeDatabase | PutCopy) -> CommandRefused | None:
    if not CHAIN.match(command.chain):
        return CommandRefused(code=BAD_REQUEST, message=f"chain: expected {limits.CHAIN_DIGITS} hex digits")
    if not 0 < command.page_count <= limits.PAGE_COUNT_MAX:
        return CommandRefused(code=BAD_REQUEST, message=f"page_count: expected 1 to {limits.PAGE_COUNT_MAX}")
    if bool(command.pages) == bool(command.blobs):
        return CommandRefused(code=BAD_REQUEST, message="pages, blobs: expected one of them")
    if len(command.blobs) > limits.BLOBS_MAX:
        return CommandRefused(code=BAD_REQUEST, message=f"blobs: {len(command.blobs)}, at most {limits.BLOBS_MAX}")
    return None


def _size_refusal(command: ChangeDatabase, head: Head, transaction: Transaction | None) -> CommandRefused | None:
    if command.page_count > max(head.page_count, command.quota_bytes // PAGE_BYTES):
        message = f"the database would be larger than {command.quota_bytes} bytes; delete rows first"
        return CommandRefused(code=QUOTA, message=message)
    if transaction is not None and _changes(transaction) >= limits.TRANSACTION_CHANGES_MAX:
        message = f"the transaction has {limits.TRANSACTION_CHANGES_MAX} statements: commit it and begin another one"
        return CommandRefused(code=REFUSED, message=message)
    return None


def _changes(transaction: Transaction) -> int:
    return transaction.head.revision - transaction.savepoints[0].revision


# --- transactions ----------------------------------------------------------------------------------------------------


def _begin(database: Database, command: BeginTransaction) -> Sequence[DatabaseEvent | CommandRefused]:
    if problem := name_problem(command.root_run_id):
        return _refused(BAD_REQUEST, f"root_run_id: {problem}")
    if not 0 < command.idle_ms <= limits.IDLE_MS_MAX:
        return _refused(BAD_REQUEST, f"idle_ms: expected 1 to {limits.IDLE_MS_MAX}")
    if database.is_held_from(command.root_run_id):
        return _refused(CONFLICT, HELD)
    transaction = database.transaction
    depth, depth_max = 1, min(command.depth_max, limits.DEPTH_MAX)
    if transaction is not None:
        depth = len(transaction.savepoints) + 1
    if depth > depth_max:
        return _refused(REFUSED, f"{depth - 1} transactions are open inside of each other, at most {depth_max}")
    head = database.head if transaction is None else transaction.head
    return [copy_as(SqlTransactionBegan, command, depth=depth, revision=head.revision)]


def _end(database: Database, command: EndTransaction) -> Sequence[DatabaseEvent | CommandRefused]:
    transaction = database.transaction_of(command.root_run_id)
    scope = command.scope, command.scope_id
    if transaction is not None:
        head = transaction.head if command.committed else transaction.savepoints[-1]
        depth = len(transaction.savepoints) - 1
        return _ended(scope, transaction, head, depth, committed=command.committed, reason=ASKED)
    if not command.root_run_id or database.expired != command.root_run_id:
        return _refused(REFUSED, "no transaction is open; sql_begin begins one")
    if command.committed:
        return _refused(TIMEOUT, EXPIRED)
    return [_ended_event(scope, command.root_run_id, database.head, 0, committed=False, reason=ACKNOWLEDGED)]


def _roll_back_idle(database: Database, at: At) -> Sequence[DatabaseEvent | CommandRefused]:
    transaction = database.transaction
    if transaction is None or at.at_ms < transaction.deadline_ms:
        return []
    scope = database.scope, database.scope_id
    return _ended(scope, transaction, transaction.savepoints[0], 0, committed=False, reason=IDLE)


def _ended(
    scope: tuple[str, str], transaction: Transaction, head: Head, depth: int, *, committed: bool, reason: str
) -> list[DatabaseEvent | CommandRefused]:
    last = head.revision if committed else transaction.head.revision
    return [
        _ended_event(scope, transaction.root_run_id, head, depth, committed=committed, reason=reason),
        *_rows_removed(scope, head.revision, last),
    ]


def _ended_event(
    scope: tuple[str, str], root_run_id: str, head: Head, depth: int, *, committed: bool, reason: str
) -> SqlTransactionEnded:
    return SqlTransactionEnded(
        scope=scope[0],
        scope_id=scope[1],
        root_run_id=root_run_id,
        depth=depth,
        committed=committed,
        reason=reason,
        revision=head.revision,
        chain=head.chain,
        page_count=head.page_count,
    )


def _rows_removed(scope: tuple[str, str], after: int, last: int) -> Iterator[SqlRowsRemoved]:
    """Yield the events that remove the rows of the revisions after `after`, up to `last`."""
    for first in range(after + 1, last + 1, limits.ROWS_PER_EVENT):
        end = min(last, first + limits.ROWS_PER_EVENT - 1)
        yield SqlRowsRemoved(scope=scope[0], scope_id=scope[1], first=first, last=end)


# --- the whole database ----------------------------------------------------------------------------------------------


def _drop(database: Database, reason: str, source: MemorySource) -> Sequence[DatabaseEvent | CommandRefused]:
    head, transaction = database.head, database.transaction
    if not head.revision and transaction is None:
        return []
    last = head.revision if transaction is None else transaction.head.revision
    return [
        SqlDropped(
            scope=database.scope,
            scope_id=database.scope_id,
            revision=head.revision,
            bytes=head.page_count * PAGE_BYTES,
            reason=reason,
            source=source,
        ),
        *_rows_removed((database.scope, database.scope_id), database.copy_revision, last),
    ]


def _drop_left_behind(database: Database, at: At) -> Sequence[DatabaseEvent | CommandRefused]:
    if database.transaction is not None or not 0 < database.drop_at_ms <= at.at_ms:
        return []
    return _drop(database, "unused for too long", MemorySource(origin="service"))


def _copy(database: Database, command: PutCopy) -> Sequence[DatabaseEvent | CommandRefused]:
    if refusal := _pages_refusal(command):
        return [refusal]
    if not CHAIN.match(command.copy_chain):
        return _refused(BAD_REQUEST, f"copy_chain: expected {limits.CHAIN_DIGITS} hex digits")
    head = database.head
    if database.transaction is not None or (command.revision, command.chain) != (head.revision, head.chain):
        return _refused(CONFLICT, f"the database is at revision {head.revision}, or a transaction is open")
    if command.page_count != head.page_count:
        return _refused(BAD_REQUEST, f"page_count: the database has {head.page_count} pages")
    if command.revision == database.copy_revision:
        return []
    return [
        copy_as(SqlCopied, command, packed_bytes=max(0, command.packed_bytes)),
        *_rows_removed((command.scope, command.scope_id), database.copy_revision, command.revision),
    ]
