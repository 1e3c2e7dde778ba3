"""Processes for SQL statements, and files that are used through them.

A function of SQLite such as instr() looks at no clock and may take minutes over two texts of 1 MB, so no thread that
carries out a statement can be stopped. A process can: it is killed when a statement does not end at its deadline, or
its caller leaves. What is kept of a file does not depend on the worker (messages.py), so nothing else is lost with it.

    DatabaseFile    one file; the caller sees to it that one coroutine uses it at a time
    WorkerPool      as many workers as requests at the same time, which the caller bounds; they stay for later ones

A request goes to the worker that had the file last, as its connection is warm, or to any idle one. SQLite's locks on
files are off (database.py), so a connection left behind in a busy worker blocks none.

Not chosen: threads (above), bounded functions of our own in place of SQLite's (each release adds some), a process for
each statement (50 ms).

Before: services/families/database/files.py. After: worker.py.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from loomlog.connectors.sqlite import messages
from loomlog.connectors.sqlite.database import CHECKPOINT_FRAMES, QUOTA_BYTES, ROWS_MAX, STATEMENT_S, QueryResult
from loomlog.connectors.sqlite.errors import FileDamaged, FileFailed, StatementRefused, too_slow
from loomlog.connectors.sqlite.messages import (
    LENGTH_BYTES,
    MESSAGE_BYTES_MAX,
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
    SqlValue,
    StoredChange,
    Written,
    decode_reply,
    encode,
)

KILL_AFTER_S = 0.25
"""Seconds after the deadline of a statement until its worker is killed: SQLite usually stops by itself before."""
START_S = 30.0
"""Longest start of a worker; it takes 0.1 s on an idle machine."""
MAINTENANCE_S = 120.0
"""Longest time for pages of at most 1 GiB to be read or written."""
EXIT_S = 10.0
"""Longest wait for a killed worker to be gone, with what it was writing."""
RECEIVE_BYTES = 256 * 1024
WORKER_MODULE = "loomlog.connectors.sqlite.worker"
ENVIRONMENT = ("TZ",)
"""Variables that a worker has of this process: the time zone of datetime(..., 'localtime')."""

ReplyType = TypeVar("ReplyType", QueryResult, Written, Applied, Copied, Done)


class WorkerLost(Exception):
    """The worker ended before its reply."""


class WorkerProcess:
    """A worker, seen from its parent. It serves one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process, connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._unsent = bytearray()
        self._heard = bytearray()
        self._is_asking = self._is_killed = False

    @property
    def has_exited(self) -> bool:
        return self._process.returncode is not None

    @property
    def is_alive(self) -> bool:
        return not self._is_killed and not self.has_exited

    async def ask(self, call: Call) -> Reply:
        """Return the reply. Raises WorkerLost. The worker is killed unless the reply is read in whole."""
        self._is_asking = True
        try:
            frames, self._unsent = self._unsent + encode(call), bytearray()
            await asyncio.get_running_loop().sock_sendall(self._connection, frames)
            reply = await self.read()
        except OSError as error:
            self.kill()
            raise WorkerLost(str(error)) from error
        except BaseException:
            self.kill()
            raise
        self._is_asking = False
        self._flush()
        return reply

    async def read(self) -> Reply:
        """Return the next message of the worker. Raises WorkerLost, OSError."""
        while (end := self._end_of_frame()) > len(self._heard):
            piece = await asyncio.get_running_loop().sock_recv(self._connection, RECEIVE_BYTES)
            if not piece:
                raise WorkerLost("it closed its connection")
            self._heard += piece
        reply, self._heard = decode_reply(self._heard[LENGTH_BYTES:end]), self._heard[end:]
        return reply

    def _end_of_frame(self) -> int:
        if len(self._heard) < LENGTH_BYTES:
            return LENGTH_BYTES
        length = int.from_bytes(self._heard[:LENGTH_BYTES])
        if length > MESSAGE_BYTES_MAX:
            raise WorkerLost(f"it sent {length} bytes, at most {MESSAGE_BYTES_MAX} are expected")
        return LENGTH_BYTES + length

    def forget(self, path: Path) -> None:
        """Have a file closed, now or after the request under way."""
        self._unsent += encode(Call(path=str(path), frames=0, generation=0, request=Forget()))
        if not self._is_asking:
            self._flush()

    def _flush(self) -> None:
        if self._unsent and self.is_alive:
            with suppress(OSError):  # it is full, or the worker is gone
                del self._unsent[: self._connection.send(self._unsent)]

    def kill(self) -> None:
        """End the worker whatever it does."""
        if self.is_alive:
            self._is_killed = True
            with suppress(ProcessLookupError):
                self._process.kill()
        self._connection.close()

    async def wait_for_exit(self) -> None:
        """Wait until a worker that was killed writes no more. Raises FileFailed when it hangs in the kernel."""
        try:
            async with asyncio.timeout(EXIT_S):
                await self._process.wait()
        except TimeoutError as error:
            raise FileFailed(f"a killed process has not ended within {EXIT_S:g} s") from error


class WorkerPool:
    """Workers that are started when none is idle, and a spare one, so that who comes next need not wait for a start."""

    def __init__(self) -> None:
        self._workers: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        """Those without a request, the most recently used last."""
        self._spare: asyncio.Task[None] | None = None
        """The start of the spare one."""

    @asynccontextmanager
    async def lease(self, preferred: WorkerProcess | None) -> AsyncIterator[WorkerProcess]:
        """Hold a worker for one request: `preferred` if it is idle. Raises FileFailed when none can be started."""
        worker = self._take_idle(preferred) or await self._start()
        if not self._idle and (self._spare is None or self._spare.done()):
            self._spare = asyncio.get_running_loop().create_task(self._start_spare())
        try:
            yield worker
        finally:
            self._idle.append(worker)

    def _take_idle(self, preferred: WorkerProcess | None) -> WorkerProcess | None:
        self._idle = [worker for worker in self._idle if worker.is_alive]
        if preferred is not None and preferred in self._idle:
            self._idle.remove(preferred)
            return preferred
        return self._idle.pop() if self._idle else None

    async def _start_spare(self) -> None:
        with suppress(FileFailed):  # who needs one starts one, and gets the error
            self._idle.insert(0, await self._start())

    async def _start(self) -> WorkerProcess:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-I", "-m", WORKER_MODULE, str(os.getpid())),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise FileFailed(f"the process for statements cannot be started: {error}") from error
        worker = WorkerProcess(process, ours)
        self._workers = {one for one in self._workers if not one.has_exited} | {worker}
        try:
            async with asyncio.timeout(START_S):
                await worker.read()
        except (WorkerLost, OSError, TimeoutError) as error:
            worker.kill()
            raise FileFailed(f"the process for statements does not start: {error or 'it is too slow'}") from error
        except BaseException:
            worker.kill()
            raise
        return worker

    async def close(self) -> None:
        """End all workers; no request may be under way."""
        if self._spare is not None:
            self._spare.cancel()
            await asyncio.wait({self._spare})
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            await worker.wait_for_exit()


Lease = Callable[[WorkerProcess | None], AbstractAsyncContextManager[WorkerProcess]]


class DatabaseFile:
    """A file used through workers, by one coroutine at a time; `paths` gives a new path whenever it is begun again, and
    `lease` holds a worker for a request, preferably the one that is passed.

    A change is tentative until `keep`, as in database.py. All methods raise FileFailed when the file does not work.
    """

    def __init__(self, lease: Lease, paths: Iterator[Path]) -> None:
        self._lease, self._paths = lease, paths
        self.path = next(paths)
        self.is_lost = False
        """Whether its content is unknown; it is empty when it is used next."""
        self._frames = 0
        """Frames of the write-ahead log that are kept."""
        self._worker: WorkerProcess | None = None
        """The one that had it last."""
        self._generation = 0

    async def query(
        self,
        statement: str,
        values: Sequence[SqlValue] = (),
        *,
        timeout_s: float = STATEMENT_S,
        rows_max: int = ROWS_MAX,
    ) -> QueryResult:
        """Return the rows of a SELECT. Raises StatementRefused."""
        await self._prepare()
        request = Query(
            statement=statement,
            values=tuple(values),
            timeout_s=timeout_s,
            rows_max=rows_max,
        )
        return await self._carry_out(request, QueryResult, timeout_s)

    async def change(
        self,
        statement: str,
        values: Sequence[SqlValue] = (),
        *,
        chain: str,
        quota_bytes: int = QUOTA_BYTES,
        timeout_s: float = STATEMENT_S,
    ) -> Written:
        """Carry out a statement tentatively on the file with the chain value `chain`. Raises StatementRefused."""
        await self._prepare()
        if self._frames >= CHECKPOINT_FRAMES:
            await self._checkpoint()
        request = Change(
            statement=statement,
            values=tuple(values),
            timeout_s=timeout_s,
            quota_bytes=quota_bytes,
            chain=chain,
        )
        return await self._carry_out(request, Written, timeout_s)

    def keep(self, written: Written) -> None:
        """Keep a change: it is in the log. Does not block."""
        self._frames = written.frames

    async def apply(self, changes: Sequence[StoredChange], chain: str) -> Applied:
        """Write changes into the file with the chain value `chain`, up to the first that does not continue it."""
        await self._prepare()
        request = Apply(changes=tuple(changes), chain=chain)
        return await self._rewrite(request, Applied)

    async def copy(self) -> Copied:
        """Return the whole file."""
        await self._prepare()
        return await self._rewrite(Copy(), Copied)

    async def clone(self, other: "DatabaseFile") -> None:
        """Become a copy of another file."""
        await self._prepare()
        await other._prepare()
        if other._frames:
            await other._checkpoint()
        await self._rewrite(Clone(str(other.path)), Done)

    async def remove(self) -> None:
        """Remove what is on the disk; the file is an empty one then."""
        worker, self._worker = self._worker, None
        path, self.path = self.path, next(self._paths)
        self._frames, self.is_lost = 0, False
        if worker is not None and worker.is_alive:
            worker.forget(path)
        elif worker is not None:
            await worker.wait_for_exit()
        await asyncio.to_thread(_unlink, path)

    async def _checkpoint(self) -> None:
        await self._rewrite(Checkpoint(), Done)

    async def _carry_out(self, request: Query | Change, kind: type[ReplyType], timeout_s: float) -> ReplyType:
        try:
            return await self._ask(request, kind, timeout_s + KILL_AFTER_S)
        except TimeoutError:
            raise too_slow(timeout_s) from None
        except WorkerLost as error:
            raise FileDamaged(f"the process that carried out the statement has ended: {error}") from error

    async def _rewrite(self, request: Apply | Copy | Clone | Checkpoint, kind: type[ReplyType]) -> ReplyType:
        """Return the reply to a request after which all changes are in the file itself."""
        try:
            reply = await self._ask(request, kind, MAINTENANCE_S)
        except (TimeoutError, WorkerLost) as error:
            raise FileFailed(f"the process for the file of the database has ended: {error or 'too slow'}") from error
        self._frames, self.is_lost = 0, False
        return reply

    async def _prepare(self) -> None:
        """Wait for a killed worker, which may have been writing, and begin again if the content is unknown."""
        if self._worker is not None and not self._worker.is_alive:
            await self._worker.wait_for_exit()
            self._worker = None
        if self.is_lost:
            await self.remove()

    async def _ask(self, request: Request, kind: type[ReplyType], timeout_s: float) -> ReplyType:
        async with self._lease(self._worker) as worker:
            if self._worker is not worker:
                if self._worker is not None:
                    self._worker.forget(self.path)
                self._worker = worker
                self._generation += 1
            self.is_lost = not isinstance(request, Query | Change)
            call = Call(path=str(self.path), frames=self._frames, generation=self._generation, request=request)
            async with asyncio.timeout(timeout_s):
                reply = await worker.ask(call)
        if isinstance(reply, Problem):
            raise _error(reply)
        assert isinstance(reply, kind), reply
        return reply


def _error(problem: Problem) -> Exception:
    match problem.code:
        case messages.FILE_FAILED:
            return FileFailed(problem.message)
        case messages.FILE_DAMAGED:
            return FileDamaged(problem.message)
    return StatementRefused(problem.code, problem.message)


def _unlink(path: Path) -> None:
    for name in (path, path.with_name(f"{path.name}-wal")):
        name.unlink(missing_ok=True)
