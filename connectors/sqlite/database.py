"""One database as a file: statements with their limits, and changes as pages.

A change is tentative until `keep`: its pages are in the write-ahead log beside the file, and `discard` cuts them off.
So the log decides whether a change happens, and the file follows.

All methods block, and a worker process calls them (worker.py). The file is a cache: nothing is flushed to the disk.

    statement    one, of few kinds (statement.py), within a time, a number of rows, and HEAP_BYTES_MAX of memory
    connection   no extensions, no other files, no temporary tables, shadow tables and schema read-only

Before: worker.py. After: apsw, pages.py.
"""

import errno
import math
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from loomlog.connectors.sqlite.errors import QUOTA, FileDamaged, FileFailed, StatementRefused, too_slow
from loomlog.connectors.sqlite.pages import (
    PAGE_BYTES,
    PageChange,
    cut_frames,
    page_change,
    read_frames,
    read_pages,
    write_pages,
)
from loomlog.connectors.sqlite.statement import (
    DEFINITIONS,
    READS,
    WRITES,
    check_rest,
    check_statement,
    refused,
    refused_action,
    result_bytes,
    result_value,
    vector_distance,
)
from loomlog.schemas.records import Value

ROWS_MAX = 10_000
RESULT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the values of a result: it becomes one text for a model."""
STATEMENT_S = 30.0
QUOTA_BYTES = 50 * 1024 * 1024
HEAP_BYTES_MAX = 256 * 1024 * 1024
"""Memory of all databases of a worker: SQLite gives an error beyond it. A sort of the largest usual database fits."""
CACHE_BYTES = 512 * 1024
"""Pages in memory of one connection; a hundred may be open."""
VFS = "unix-none"
"""Without locks: of a file one connection is used at a time (worker_pool.py), and the lock of one that was left behind
in a busy worker would stand in the way of the next.
"""
CHECK_EVERY = 2_000
"""Instructions of SQLite between two looks at the clock: under a millisecond, and rare enough to cost nothing."""
CHECKPOINT_FRAMES = 1_000
"""Frames of the write-ahead log at which it is moved into the file: that takes half a millisecond."""
LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: 1024 * 1024,
    apsw.SQLITE_LIMIT_COLUMN: 100,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 50,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""A value, or a row of a table, has at most 1 MiB, so that a row of a result, of 100 of them, fits the memory."""


class QueryResult(Value, frozen=True, kw_only=True):
    """Rows as JSON; `truncated` when there are more than fit."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """Outcome of a statement; `change` is None when it wrote nothing."""

    change: PageChange | None
    rows_affected: int = 0
    last_insert_id: int = 0
    """Id of the last row that it inserted into a table with rowids; 0: none."""


class ScopeDatabase:
    """The database in a file, which is created on first use.

    All methods raise FileFailed when the file does not work; it is to be deleted then.
    """

    def __init__(self, path: Path, *, result_bytes_max: int = RESULT_BYTES_MAX) -> None:
        self.path = path
        self._result_bytes_max = result_bytes_max
        self._wal = path.with_name(f"{path.name}-wal")
        self._connection: apsw.Connection | None = None
        self._frames = self._kept_frames = 0
        """Frames of commits in the write-ahead log, and those of them that are kept."""
        self._is_read_only = False
        self._page_count_max = 0
        self.is_statement = False
        """Whether a statement of a caller is compiled and run, and none of this module."""
        self._reason = ""
        """Why the authorizer refused the statement."""
        self._timeout_s = self._deadline = 0.0

    # --- statements --------------------------------------------------------------------------------------------------

    def query(
        self,
        statement: str,
        values: Sequence[Any] = (),
        *,
        timeout_s: float = STATEMENT_S,
        rows_max: int = ROWS_MAX,
    ) -> QueryResult:
        """Return the rows of a SELECT. Raises StatementRefused."""
        check_statement(statement, READS)
        self.discard()
        connection = self._open()
        self._set_read_only(connection, True)
        columns: tuple[str, ...] = ()
        rows, room, truncated = list[list[Any]](), self._result_bytes_max, False
        with self._running(connection, statement, values, timeout_s) as running:
            columns = running.columns
            for row in running.cursor:
                room -= sum(map(result_bytes, row))
                if room < 0 and not rows:
                    message = f"a row is longer than {self._result_bytes_max} bytes: select fewer columns, or substr()"
                    raise refused(message)
                if room < 0 or len(rows) == rows_max:
                    truncated = True
                    break
                rows.append([result_value(value) for value in row])
        return QueryResult(columns=columns, rows=rows, truncated=truncated)

    def change(
        self,
        statement: str,
        values: Sequence[Any] = (),
        *,
        quota_bytes: int = QUOTA_BYTES,
        timeout_s: float = STATEMENT_S,
    ) -> ChangeResult:
        """Carry out a statement tentatively: `keep` or `discard` comes next. Raises StatementRefused."""
        word = check_statement(statement, WRITES)
        self.discard()
        connection = self._open()
        self._set_read_only(connection, False)
        self._set_quota(connection, quota_bytes)
        connection.set_last_insert_rowid(0)
        try:
            with self._running(connection, statement, values, timeout_s) as running:
                if running.is_read_only:
                    raise refused("statement: it changes nothing; use sql_query")
                for _ in running.cursor:
                    pass
        except StatementRefused:
            if connection.in_transaction:
                self.close()
            raise
        if _has_temporary_objects(connection):
            raise refused("statement: it made something in the database temp, which is not kept")
        if self._frames == self._kept_frames:
            return ChangeResult(change=None)
        rows = 0 if word in DEFINITIONS else connection.changes()
        try:
            change = read_frames(self._wal, self._kept_frames, self._frames)
        except OSError as error:
            raise FileFailed(f"the change cannot be read: {error.strerror}") from error
        return ChangeResult(change=change, rows_affected=rows, last_insert_id=connection.last_insert_rowid())

    def keep(self) -> None:
        """Keep the change: it is in the log."""
        self._kept_frames = self._frames

    def discard(self) -> None:
        """Forget a change that is not kept."""
        if self._frames != self._kept_frames:
            self.restore(self._kept_frames)

    def restore(self, frames: int) -> None:
        """Make the kept changes those of the first frames of the write-ahead log, which another process may have
        written; what follows them is cut off.
        """
        self.disconnect()
        try:
            cut_frames(self._wal, frames)
        except OSError as error:
            raise FileFailed(f"a change cannot be discarded: {error.strerror}") from error
        self._frames = self._kept_frames = frames

    @property
    def frames(self) -> int:
        """Frames of commits in the write-ahead log, kept or not."""
        return self._frames

    def checkpoint(self) -> None:
        """Move the kept changes from the write-ahead log into the file."""
        self.discard()
        if not self._frames:
            return
        connection = self._open()
        self._deadline = math.inf
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            raise FileFailed(f"changes cannot be moved into the file: {error}") from error
        self._frames = self._kept_frames = 0

    # --- pages -------------------------------------------------------------------------------------------------------

    def apply(self, change: PageChange) -> None:
        """Write the pages of a change that was made elsewhere."""
        self.close()
        try:
            write_pages(self.path, change)
        except OSError as error:
            raise FileFailed(f"the pages cannot be written: {error.strerror}") from error

    def copy(self) -> PageChange:
        """Return the whole file as a change of an empty one."""
        self.checkpoint()
        try:
            return read_pages(self.path) if self.path.exists() else page_change(0, {})
        except OSError as error:
            raise FileFailed(f"the file cannot be read: {error.strerror}") from error

    def clone(self, other: Path) -> None:
        """Become a copy of another file, whose changes are all in the file itself."""
        self.delete()
        try:
            if other.exists():
                shutil.copyfile(other, self.path)
        except OSError as error:
            raise FileFailed(f"the file cannot be copied: {error.strerror}") from error

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def close(self) -> None:
        """Close the file, without a change that is not kept."""
        self.checkpoint()
        self._remove_log()

    def delete(self) -> None:
        """Close the file and remove it."""
        self._remove_log()
        self.path.unlink(missing_ok=True)

    def _remove_log(self) -> None:
        self.disconnect()
        self._frames = self._kept_frames = 0
        self._wal.unlink(missing_ok=True)

    def disconnect(self) -> None:
        """Close the connection and leave the files as they are."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(apsw.Error):
                connection.close(True)
        self._page_count_max, self._is_read_only = 0, False

    # --- the connection ----------------------------------------------------------------------------------------------

    def _open(self) -> apsw.Connection:
        if self._connection is not None and _has_temporary_objects(self._connection):
            self.disconnect()
        if self._connection is None:
            apsw.hard_heap_limit(HEAP_BYTES_MAX)
            try:
                self._connection = self._connect()
            except apsw.Error as error:
                raise FileFailed(f"the file of the database cannot be opened: {error}") from error
        return self._connection

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=VFS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("page_size", PAGE_BYTES)
        connection.pragma("locking_mode", "exclusive")
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "off")
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -CACHE_BYTES // 1024)
        for limit, value in LIMITS.items():
            connection.limit(limit, value)
        connection.create_scalar_function(
            "vector_distance", vector_distance, 2, deterministic=True, flags=apsw.SQLITE_INNOCUOUS
        )
        connection.authorizer = self._authorize
        connection.set_wal_hook(self._on_commit)
        connection.set_progress_handler(self._is_over, CHECK_EVERY)
        return connection

    def _on_commit(self, connection: apsw.Connection, name: str, frames: int) -> int:
        self._frames = frames
        return apsw.SQLITE_OK

    def _is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, trigger: str | None
    ) -> int:
        if not self.is_statement:
            return apsw.SQLITE_OK
        reason = refused_action(action, first, second, database)
        self._reason = self._reason or reason
        return apsw.SQLITE_DENY if reason else apsw.SQLITE_OK

    def _set_read_only(self, connection: apsw.Connection, is_read_only: bool) -> None:
        if self._is_read_only is not is_read_only:
            connection.pragma("query_only", is_read_only)
            self._is_read_only = is_read_only

    def _set_quota(self, connection: apsw.Connection, quota_bytes: int) -> None:
        page_count_max = max(1, quota_bytes // PAGE_BYTES)
        if self._page_count_max != page_count_max:
            connection.pragma("max_page_count", page_count_max)
            self._page_count_max = page_count_max

    def _running(
        self,
        connection: apsw.Connection,
        statement: str,
        values: Sequence[Any],
        timeout_s: float,
    ) -> "_Running":
        self._timeout_s, self._deadline, self._reason = timeout_s, time.monotonic() + timeout_s, ""
        return _Running(self, connection, statement, values)

    def problem(self, error: Exception, connection: apsw.Connection) -> Exception:
        """Return what an error of the driver means."""
        match error:
            case StatementRefused():
                return error
            case apsw.InterruptError():
                return too_slow(self._timeout_s)
            case apsw.FullError() if connection.system_errno != errno.ENOSPC:
                return StatementRefused(
                    QUOTA,
                    f"the database would be larger than {self._page_count_max * PAGE_BYTES} bytes; delete rows first",
                )
            case apsw.NoMemError():
                return refused("the statement needs more memory than databases may use; make it smaller")
            case apsw.AuthError():
                return refused(self._reason or "the statement is not allowed")
            case apsw.IOError() | apsw.CantOpenError() | apsw.NotADBError() | apsw.FullError() | apsw.BusyError():
                return FileFailed(f"the file of the database does not work: {error}")
            case apsw.CorruptError():
                return FileDamaged(str(error))
            case UnicodeError():
                return refused("a value is no UTF-8 text: select it with hex() or CAST(... AS BLOB)")
            case _:
                return refused(str(error))


def _has_temporary_objects(connection: apsw.Connection) -> bool:
    """Whether the connection has objects that are not in the file. They would hide those of the file from the
    statements after it, so the authorizer lets none be made; this is the second lock. It takes 2 microseconds.
    """
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM temp.sqlite_schema)").get)


class _Running:
    """A statement while it runs: its cursor, columns and kind, once SQLite has compiled it."""

    def __init__(
        self, database: ScopeDatabase, connection: apsw.Connection, statement: str, values: Sequence[Any]
    ) -> None:
        self.cursor = connection.cursor()
        self.columns: tuple[str, ...] = ()
        self.is_read_only = True
        self._is_compiled = False
        self._database, self._connection = database, connection
        self._statement, self._values = statement, values

    def __enter__(self) -> "_Running":
        self.cursor.exec_trace = self._on_compiled
        self._database.is_statement = True
        try:
            self.cursor.execute(self._statement, tuple(self._values))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _on_compiled(self, cursor: apsw.Cursor, sql: str, values: Any) -> bool:
        if self._is_compiled:
            return True  # the comment behind the statement
        check_rest(self._statement[len(sql) :])
        self._is_compiled = True
        self.columns = tuple(name for name, *_ in cursor.get_description())
        self.is_read_only = cursor.is_readonly
        return True

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        with suppress(apsw.Error):
            self.cursor.close(True)
        self._database.is_statement = False
        if isinstance(error, apsw.Error | UnicodeError | ValueError | OverflowError):
            raise self._database.problem(error, self._connection) from error
