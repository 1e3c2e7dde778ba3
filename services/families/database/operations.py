"""What is done with the database of a scope: the rows of a SELECT, any other statement, and transactions of the tree
of runs, with others inside of them.

A statement that writes is carried out on the file of the last revision that this process knows, and its pages are sent
to the owner of the aggregate. When another revision came first, the owner refuses them, and the statement is carried
out again with the next command id of the call. A repeated call walks the same ids, so what happened is answered and
nothing happens twice; a statement that fails in a repeated call is sent too, because it may fail by what an earlier
attempt has changed.

Before: handlers.py. After: decide.py; file_builder.py, files.py, page_store.py.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import UnsetType

from loomlog.connectors.process.logs import about
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.sqlite.database import QueryResult
from loomlog.connectors.sqlite.errors import REFUSED, TIMEOUT, FileDamaged, FileFailed, StatementRefused
from loomlog.connectors.sqlite.messages import Written
from loomlog.connectors.sqlite.pages import GENESIS
from loomlog.connectors.sqlite.statement import READS, WRITES, bind_values, check_statement, texts_to_embed
from loomlog.schemas.generated.database_commands import (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
from loomlog.schemas.generated.database_events import SqlChanged, SqlDropped, SqlTransactionBegan, SqlTransactionEnded
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.shares import Holder, ShareExhausted, ShareLimits
from loomlog.services.families.database.api import DatabaseChanged, DatabaseExec, DatabaseTransaction, MemorySqlRows
from loomlog.services.families.database.decide import ANY_REVISION, BAD_REQUEST, BUSY, CONFLICT, EXPIRED, HELD
from loomlog.services.families.database.file_builder import FileBuilder
from loomlog.services.families.database.files import COMMITTED, CachedFile, DatabaseFiles, ScopeBusy, ScopeFiles
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.open_transactions import Key, OpenTransactions, TreeBusy
from loomlog.services.families.database.page_store import PageStore, StoredPages
from loomlog.services.families.database.state import Database, Head, evolve
from loomlog.services.families.database.subject import subject_of
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.operation import Decrypt, Encrypt, ask_owner, plain_text, plaintext
from loomlog.services.stream.entities.answers import Answer as OwnerAnswer
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

log = logging.getLogger(__name__)

WAIT_S = 50.0
"""Seconds to wait for the owner's answer; within the time of a tool call, so that the outcome is told as unknown."""
POLL_S = 0.05
"""Pause before a transaction of another run is looked at again."""

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Returns the vectors of texts. Raises Refused and Unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A command to send, and the file that has its change tentatively."""

    command: Any
    file: CachedFile | None = None
    written: Written | None = None


class Failure(Exception):
    """A statement is refused here, as it is on a revision: `base` is None when that does not matter."""

    def __init__(self, refusal: Refused, base: Head | None = None, root_run_id: str = "") -> None:
        super().__init__(str(refusal))
        self.refusal, self.base, self.root_run_id = refusal, base, root_run_id


Result = TypeVar("Result")
Work = Callable[[CachedFile], Awaitable[Result]]
"""A statement on a file."""
Prepare = Callable[[ScopeFiles, Database, str], Awaitable[Attempt]]
"""Makes an attempt on a state, with a step for its command id. Raises Failure."""


class DatabaseOperations:
    """All methods raise Refused and Unavailable."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        files: DatabaseFiles,
        blobs: Blobs,
        *,
        clock_ms: Callable[[], int],
        limits: SqlLimits | None = None,
        decrypt: Decrypt = plaintext,
        encrypt: Encrypt = plain_text,
        embed: Embed | None = None,
        wait_s: float = WAIT_S,
    ) -> None:
        """`embed` None: there is no embedder."""
        self._commands = commands
        self._files = files
        self._pages = PageStore(blobs, decrypt=decrypt, encrypt=encrypt)
        self._builder = FileBuilder(reads, files, self._pages)
        self._clock_ms = clock_ms
        self._limits = limits or SqlLimits()
        self._embed = embed
        self._wait_s = wait_s
        self._transactions = OpenTransactions(ShareLimits.of(self._limits.transactions_max))

    async def drop(self, scope: Scope, author: Author, reason: str = "") -> bool:
        """Delete a database: when its run has ended, its user is erased, or an operator asks. Return whether there was
        one.
        """
        command = DropDatabase(
            envelope=author.envelope(), scope=scope.name, scope_id=scope.id, reason=reason, source=author.source()
        )
        async with self._files.hold(scope, math.inf) as held:
            answer = await self._ask(command)
            if isinstance(last := answer.events[-1], CommandRefused):
                raise Refused(last.code, last.message)
            for name in list(held.files):
                await self._files.remove(held, name)
            held.state = None
        return any(isinstance(event, SqlDropped) for event in answer.events)

    def has_files(self, scope: Scope) -> bool:
        """Whether this process has files of a database, as it does for those that it used lately."""
        return self._files.has(scope)

    async def exists(self, scope: Scope, positions: Sequence[str]) -> bool:
        """Return whether a database has something to drop."""
        state = await self._builder.state(scope, positions)
        return state.head.revision > 0 or state.transaction is not None

    async def close(self) -> None:
        """Remove the files of this process."""
        await self._files.close()

    # --- statements --------------------------------------------------------------------------------------------------

    async def query(self, asked: DatabaseExec, author: Author, scope: Scope) -> Answer[MemorySqlRows]:
        """Return the rows of a SELECT."""
        timeout_s, statement = self._timeout_s(asked), asked.statement

        async def work(file: CachedFile) -> QueryResult:
            return await file.database.query(statement, values, timeout_s=timeout_s, rows_max=self._limits.rows_max)

        try:
            check_statement(statement, READS)
            values = await self._values(asked.args)
            wait_s = self._limits.busy_wait_s + self._limits.statement_s
            with _shares_told():
                async with self._files.hold(scope, wait_s, _holder(author)) as held:
                    state = await self._builder.state(scope, author.positions)
                    _check_expired(state, author)
                    _, result = await self._on_file(held, scope, author, state, work)
                    await self._keep_open(held, state, author, scope)
        except StatementRefused as refusal:
            raise Refused(refusal.code, str(refusal)) from refusal
        except ScopeBusy as error:
            raise Refused(BUSY, "another statement uses the database; try again") from error
        rows = MemorySqlRows(columns=list(result.columns), rows=list(result.rows), truncated=result.truncated)
        return Answer(value=rows)

    async def exec(self, asked: DatabaseExec, author: Author, scope: Scope) -> Answer[DatabaseChanged]:
        """Carry out a statement that writes."""
        timeout_s, quota_bytes = self._timeout_s(asked), self._quota_bytes(author)
        statement, values = asked.statement, list[Any]()

        async def work(file: CachedFile) -> Written:
            return await file.database.change(
                statement, values, chain=file.head.chain, quota_bytes=quota_bytes, timeout_s=timeout_s
            )

        async def prepare(held: ScopeFiles, state: Database, step: str) -> Attempt:
            try:
                check_statement(statement, WRITES)
                values[:] = values or await self._values(asked.args)
                _check_expired(state, author)
            except StatementRefused as refusal:
                raise Failure(Refused(refusal.code, str(refusal))) from refusal
            except Refused as refusal:
                raise Failure(refusal) from refusal
            try:
                file, written = await self._on_file(held, scope, author, state, work)
            except StatementRefused as refusal:
                raise self._failure(held, author, state, refusal) from refusal
            stored = StoredPages()
            if written.parts:
                stored = await self._pages.store(written.parts, scope.tenant, _subject(scope, author))
            command = ChangeDatabase(
                envelope=author.envelope(step),
                scope=scope.name,
                scope_id=scope.id,
                root_run_id="" if held.files.get(COMMITTED) is file else author.root_run_id,
                base_revision=file.head.revision,
                base_chain=file.head.chain,
                chain=written.chain if written.parts else "",
                page_count=written.page_count,
                pages=stored.pages,
                blobs=stored.blobs,
                packed_bytes=stored.packed_bytes,
                statement=statement,
                rows_affected=written.rows_affected,
                last_insert_id=written.last_insert_id,
                quota_bytes=quota_bytes,
                source=author.source(),
            )
            return Attempt(command=command, file=file, written=written)

        answer = await self._carry_out(author, scope, prepare)
        changed = DatabaseChanged(rows_affected=0, last_insert_id=0)
        for event in answer.events:
            if isinstance(event, SqlChanged):
                changed = DatabaseChanged(rows_affected=event.rows_affected, last_insert_id=event.last_insert_id)
        return Answer(value=changed, positions=(answer.position,))

    def _failure(self, held: ScopeFiles, author: Author, state: Database, refusal: StatementRefused) -> "Failure":
        """Return a failure as it was on the file of the author: on a later revision the statement may do."""
        transaction = state.transaction_of(author.root_run_id)
        file = held.files.get(COMMITTED if transaction is None else author.root_run_id)
        root_run_id = "" if transaction is None else author.root_run_id
        return Failure(Refused(refusal.code, str(refusal)), None if file is None else file.head, root_run_id)

    # --- transactions ------------------------------------------------------------------------------------------------

    async def begin(self, author: Author, scope: Scope) -> Answer[DatabaseTransaction]:
        """Begin a transaction, or one inside of it."""
        _check_in_run(author, "sql_begin")

        key, is_reserved = Key(scope, author.root_run_id), False

        async def prepare(held: ScopeFiles, state: Database, step: str) -> Attempt:
            nonlocal is_reserved
            now_ms = self._clock_ms()
            try:
                is_new = self._transactions.reserve(key, _holder(author), now_ms=now_ms, ends_ms=now_ms + self._idle_ms)
            except (TreeBusy, ShareExhausted) as error:
                raise Failure(Refused(BUSY, str(error))) from error
            is_reserved = is_reserved or is_new
            command = BeginTransaction(
                envelope=author.envelope(step),
                scope=scope.name,
                scope_id=scope.id,
                root_run_id=author.root_run_id,
                depth_max=self._limits.depth_max,
                idle_ms=self._idle_ms,
                source=author.source(),
            )
            return Attempt(command=command)

        try:
            answer = await self._carry_out(author, scope, prepare)
        except Refused:
            if is_reserved:
                self._transactions.end(key)
            raise
        return _transaction(answer)

    async def commit(self, author: Author, scope: Scope) -> Answer[DatabaseTransaction]:
        """Commit the innermost transaction."""
        return await self._end(author, scope, "sql_commit", committed=True)

    async def roll_back(self, author: Author, scope: Scope) -> Answer[DatabaseTransaction]:
        """Take the innermost transaction back."""
        return await self._end(author, scope, "sql_rollback", committed=False)

    async def _end(self, author: Author, scope: Scope, op: str, *, committed: bool) -> Answer[DatabaseTransaction]:
        _check_in_run(author, op)

        async def prepare(held: ScopeFiles, state: Database, step: str) -> Attempt:
            command = EndTransaction(
                envelope=author.envelope(step),
                scope=scope.name,
                scope_id=scope.id,
                root_run_id=author.root_run_id,
                committed=committed,
                source=author.source(),
            )
            return Attempt(command=command)

        return _transaction(await self._carry_out(author, scope, prepare, waits=False))

    async def _keep_open(self, held: ScopeFiles, state: Database, author: Author, scope: Scope) -> None:
        """Tell the owner that a transaction is in use, once half of its idle time has passed."""
        transaction = state.transaction_of(author.root_run_id)
        if transaction is None or transaction.deadline_ms - self._clock_ms() > transaction.idle_ms / 2:
            return
        command = ChangeDatabase(
            envelope=author.envelope("open"),
            scope=scope.name,
            scope_id=scope.id,
            root_run_id=author.root_run_id,
            base_revision=transaction.head.revision,
            base_chain=transaction.head.chain,
            quota_bytes=self._quota_bytes(author),
            source=author.source(),
        )
        try:
            await self._ask(command)
        except (Refused, Unavailable) as error:
            log.info(
                "a transaction of %s may end as idle: %s",
                author.root_run_id,
                error,
                extra=about(author.root_run_id, author.tenant),
            )

    # --- one command -------------------------------------------------------------------------------------------------

    async def _carry_out(self, author: Author, scope: Scope, prepare: Prepare, *, waits: bool = True) -> OwnerAnswer:
        """Return the answer to a command that is made again whenever the database has changed meanwhile. `waits`:
        whether a transaction of another run is waited for.
        """
        deadline = asyncio.get_running_loop().time() + self._limits.busy_wait_s
        positions = author.positions
        for number in itertools.count():
            step, failure = str(number) if number else "", None
            try:
                with _shares_told():
                    answer = await self._attempt(author, scope, prepare, step, positions, deadline, waits=waits)
            except Failure as caught:
                if author.issued_at_ms:
                    raise caught.refusal from caught
                failure = caught
                answer = await self._record(author, scope, step, failure)
            last = answer.events[-1]
            if not isinstance(last, CommandRefused):
                return answer
            if last.code != CONFLICT:
                is_own = failure is not None and last.code in (failure.refusal.code, BAD_REQUEST)
                raise failure.refusal if failure is not None and is_own else Refused(last.code, last.message)
            positions = (*author.positions, answer.position)
        raise AssertionError("steps have no end")

    async def _attempt(
        self,
        author: Author,
        scope: Scope,
        prepare: Prepare,
        step: str,
        positions: Sequence[str],
        deadline: float,
        *,
        waits: bool,
    ) -> OwnerAnswer:
        """Return the answer to one command. Raises Failure when there is none to send."""
        loop = asyncio.get_running_loop()
        while True:
            if step and loop.time() >= deadline:
                raise Failure(Refused(BUSY, "other runs write to the database all the time; try again"))
            try:
                async with self._files.hold(scope, deadline - loop.time(), _holder(author)) as held:
                    is_remembered = held.state is not None
                    state = held.state or await self._builder.state(scope, positions)
                    if not waits or not state.is_held_from(author.root_run_id):
                        held.state = state
                        attempt = await prepare(held, state, step)
                        answer = await self._ask(attempt.command)
                        await self._take(held, scope, author, attempt, answer)
                        return answer
                    held.state = None
            except ScopeBusy as error:
                raise Failure(Refused(BUSY, "another statement uses the database; try again")) from error
            except Failure:
                held.state = None
                if not is_remembered:
                    raise
                continue  # it may not fail on the state as it is now
            if is_remembered:
                continue
            if loop.time() >= deadline:
                raise Failure(Refused(BUSY, HELD))
            await asyncio.sleep(POLL_S)

    async def _record(self, author: Author, scope: Scope, step: str, failure: Failure) -> OwnerAnswer:
        """Return the answer to an earlier attempt with this step; without one, record that this one fails."""
        base = failure.base
        command = ChangeDatabase(
            envelope=author.envelope(step),
            scope=scope.name,
            scope_id=scope.id,
            root_run_id=failure.root_run_id,
            base_revision=ANY_REVISION if base is None else base.revision,
            base_chain=GENESIS if base is None else base.chain,
            quota_bytes=0,
            refusal=failure.refusal.code,
            source=author.source(),
        )
        return await self._ask(command)

    async def _ask(self, command: Any) -> OwnerAnswer:
        return await ask_owner(self._commands, command, wait_s=self._wait_s, invalid_code=REFUSED)

    async def _take(
        self, held: ScopeFiles, scope: Scope, author: Author, attempt: Attempt, answer: OwnerAnswer
    ) -> None:
        """Follow an answer with the files. It may be that to an earlier attempt."""
        state, held.state = held.state, None
        root_run_id = author.root_run_id
        key = Key(scope, root_run_id)
        for event in answer.events:
            match event:
                case SqlChanged():
                    file, written = attempt.file, attempt.written
                    if file is None or written is None or written.chain != event.chain or state is None:
                        continue
                    file.database.keep(written)
                    file.head = Head(event.revision, event.chain, event.page_count)
                    held.state = evolve(state, event, self._clock_ms())
                    if event.root_run_id:
                        self._note_open(key, author)
                case SqlTransactionBegan():
                    self._note_open(key, author)
                case SqlTransactionEnded(depth=0):
                    self._transactions.end(key)
                    file = held.files.get(root_run_id)
                    if event.committed and file is not None and file.head.chain == event.chain:
                        await self._files.remove(held, COMMITTED)
                        held.files[COMMITTED] = held.files.pop(root_run_id)
                    await self._files.remove(held, root_run_id)
        if any(map(_is_committed, answer.events)):
            await self._copy_if_due(held, scope, author, answer)

    def _note_open(self, key: Key, author: Author) -> None:
        self._transactions.note(key, _holder(author), self._clock_ms() + self._idle_ms)

    @property
    def _idle_ms(self) -> int:
        return round(self._limits.idle_s * 1000)

    async def _copy_if_due(self, held: ScopeFiles, scope: Scope, author: Author, answer: OwnerAnswer) -> None:
        """Add a full copy when there are many changes since the last one. A failure leaves it to the next change."""
        try:
            state = held.state or await self._builder.state(scope, (answer.position,))
            file = held.files.get(COMMITTED)
            if not state.needs_copy() or file is None or file.head != state.head:
                return

            head, copied = file.head, await file.database.copy()
            stored = await self._pages.store(copied.parts, scope.tenant, _subject(scope, author))
            command = PutCopy(
                envelope=author.envelope("copy"),
                scope=scope.name,
                scope_id=scope.id,
                revision=head.revision,
                chain=head.chain,
                copy_chain=copied.chain,
                page_count=copied.page_count,
                pages=stored.pages,
                blobs=stored.blobs,
                packed_bytes=stored.packed_bytes,
            )
            await self._ask(command)
            held.state = None
        except (Refused, Unavailable, FileFailed, ShareExhausted) as error:
            log.warning("the database %s/%s has no new copy: %s", scope.tenant, scope.aggregate[:80], error)

    async def _on_file(
        self, held: ScopeFiles, scope: Scope, author: Author, state: Database, work: Work[Result]
    ) -> tuple[CachedFile, Result]:
        """Return the file that the author sees, and the result of work on it. A file that does not work is made again,
        once. Raises StatementRefused.
        """
        for is_last in (False, True):
            try:
                state, file = await self._builder.open(held, scope, author.root_run_id, state, author.positions)
                return file, await work(file)
            except FileFailed as error:
                if is_last and isinstance(error, FileDamaged):
                    raise StatementRefused(REFUSED, str(error)) from error
                if is_last:
                    raise Unavailable(str(error)) from error
                for name in list(held.files):
                    await self._files.remove(held, name)
        raise AssertionError("the last attempt returns or raises")

    # --- fields ------------------------------------------------------------------------------------------------------

    def _timeout_s(self, asked: DatabaseExec) -> float:
        most_s = self._limits.statement_s
        return most_s if isinstance(asked.timeout_ms, UnsetType) else min(asked.timeout_ms / 1000, most_s)

    def _quota_bytes(self, author: Author) -> int:
        most = self._limits.quota_bytes
        return most if author.grants is None else author.grants.quota("sql_quota_bytes", most)

    async def _values(self, args: Any) -> tuple[Any, ...]:
        """Return the values to bind. Raises StatementRefused, Refused."""
        texts = texts_to_embed(args)
        if texts and self._embed is None:
            raise Refused("embedder_not_configured", "args: $embed needs an embedder, and none is configured")
        vectors = await self._embed(texts) if texts and self._embed is not None else ()
        return bind_values(args, vectors)


@contextmanager
def _shares_told() -> Iterator[None]:
    """Raise Unavailable for a share of the files that is used up."""
    try:
        yield
    except ShareExhausted as error:
        raise Unavailable(str(error)) from error


def _subject(scope: Scope, author: Author) -> str:
    return subject_of(scope.name, scope.id, author.envelope().subject)


def _holder(author: Author) -> Holder:
    return Holder(tenant=author.tenant, principal=author.user_id or author.subject)


def _check_in_run(author: Author, op: str) -> None:
    if not author.root_run_id:
        raise Refused(REFUSED, f"{op} needs a run: transactions are those of a tree of runs")


def _check_expired(state: Database, author: Author) -> None:
    is_open = state.transaction_of(author.root_run_id) is not None
    if author.root_run_id and state.expired == author.root_run_id and not is_open:
        raise Refused(TIMEOUT, EXPIRED)


def _is_committed(event: Any) -> bool:
    match event:
        case SqlChanged(root_run_id="") | SqlTransactionEnded(committed=True, depth=0):
            return True
    return False


def _transaction(answer: OwnerAnswer) -> Answer[DatabaseTransaction]:
    depth = next(event.depth for event in answer.events if isinstance(event, SqlTransactionBegan | SqlTransactionEnded))
    return Answer(value=DatabaseTransaction(ok=True, depth=depth), positions=(answer.position,))
