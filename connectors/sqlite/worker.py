"""The process that carries out SQL statements, so that one can be ended whatever SQLite is busy with.

    worker.py PARENT_PID        requests come and replies go over the socket that is its standard input

It serves one request at a time and keeps connections to the files that it used lately. It has no secret of its
parent's environment, is not readable by other programs of the user, and ends with its parent.

Before: worker_pool.py. After: database.py.
"""

import signal
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, assert_never

from loomlog.connectors.process.hardening import disable_process_dumping
from loomlog.connectors.process.parent import end_with_parent
from loomlog.connectors.sqlite.database import ScopeDatabase
from loomlog.connectors.sqlite.errors import FileDamaged, FileFailed, StatementRefused
from loomlog.connectors.sqlite.messages import (
    FILE_DAMAGED,
    FILE_FAILED,
    LENGTH_BYTES,
    Applied,
    Apply,
    Call,
    Change,
    Checkpoint,
    Clone,
    Copied,
    Copy,
    Done,
    Forget,
    Problem,
    Query,
    Reply,
    Request,
    Written,
    decode_call,
    encode,
)
from loomlog.connectors.sqlite.pages import GENESIS, pack_texts, unpack_texts

CONNECTIONS_MAX = 100
"""Connections that a worker keeps open, of 0.5 MiB at most; others are opened again, which takes 0.3 ms."""


class Worker:
    """The databases of a worker, by path, the least recently used first."""

    def __init__(self) -> None:
        self._databases: OrderedDict[str, tuple[ScopeDatabase, int]] = OrderedDict()
        """With the generation that they were opened in."""

    def serve(self, call: Call) -> Reply | None:
        """Return the reply to a call; None when it has none."""
        if isinstance(call.request, Forget):
            self._forget(call.path)
            return None
        try:
            return self._carry_out(call.request, self._open(call))
        except StatementRefused as refused:
            return Problem(refused.code, str(refused))
        except FileFailed as error:
            self._forget(call.path)
            return Problem(FILE_DAMAGED if isinstance(error, FileDamaged) else FILE_FAILED, str(error))

    def _carry_out(self, request: Request, database: ScopeDatabase) -> Reply:
        match request:
            case Query():
                return database.query(
                    request.statement, request.values, timeout_s=request.timeout_s, rows_max=request.rows_max
                )
            case Change():
                return _change(database, request)
            case Apply():
                return _apply(database, request)
            case Copy():
                copied = database.copy()
                return Copied(pack_texts(copied), copied.chain(GENESIS), copied.page_count)
            case Clone():
                database.clone(Path(request.source))
                return Done()
            case Checkpoint():
                database.checkpoint()
                return Done()
            case Forget():
                raise AssertionError("it has no reply")
            case _:
                assert_never(request)

    def _open(self, call: Call) -> ScopeDatabase:
        """Return a database with the changes of the frames that are kept."""
        database, generation = self._databases.get(call.path, (None, 0))
        if database is None or generation != call.generation or database.frames != call.frames:
            self._forget(call.path)
            database = ScopeDatabase(Path(call.path))
            database.restore(call.frames)
            self._databases[call.path] = (database, call.generation)
        database.keep()
        self._databases.move_to_end(call.path)
        if len(self._databases) > CONNECTIONS_MAX:
            self._forget(next(iter(self._databases)))
        return database

    def _forget(self, path: str) -> None:
        database, _ = self._databases.pop(path, (None, 0))
        if database is not None:
            database.disconnect()


def _change(database: ScopeDatabase, request: Change) -> Written:
    result = database.change(
        request.statement, request.values, quota_bytes=request.quota_bytes, timeout_s=request.timeout_s
    )
    change = result.change
    return Written(
        rows_affected=result.rows_affected,
        last_insert_id=result.last_insert_id,
        frames=database.frames,
        parts=() if change is None else pack_texts(change),
        chain=request.chain if change is None else change.chain(request.chain),
        page_count=0 if change is None else change.page_count,
    )


def _apply(database: ScopeDatabase, request: Apply) -> Applied:
    chain, count, page_count = request.chain, 0, 0
    for stored in request.changes:
        change = unpack_texts(stored.parts)
        if change.chain(chain) != stored.chain:
            break
        database.apply(change)
        chain, count, page_count = stored.chain, count + 1, change.page_count
    return Applied(count, page_count)


def serve(requests: BinaryIO, send: Callable[[bytes], None]) -> None:
    """Serve requests until there are no more."""
    worker = Worker()
    send(encode(Done()))
    while len(head := requests.read(LENGTH_BYTES)) == LENGTH_BYTES:
        reply = worker.serve(decode_call(requests.read(int.from_bytes(head))))
        if reply is not None:
            send(encode(reply))


def main() -> None:
    end_with_parent(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when a worker ends
    disable_process_dumping()
    channel = socket.socket(fileno=sys.stdin.fileno())
    try:
        serve(channel.makefile("rb"), channel.sendall)
    except ConnectionError:
        pass  # the parent has ended


if __name__ == "__main__":
    main()
