"""Statements in worker processes: each ends at its deadline, and nothing but itself is lost with its worker."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.sqlite import worker_pool
from loomlog.connectors.sqlite.database import CHECKPOINT_FRAMES
from loomlog.connectors.sqlite.errors import FileDamaged, FileFailed, StatementRefused
from loomlog.connectors.sqlite.messages import StoredChange, Written
from loomlog.connectors.sqlite.pages import GENESIS
from loomlog.connectors.sqlite.worker_pool import DatabaseFile, WorkerPool
from tests.waiting import until

TEXT = "printf('%.*c', 1000000, 'a')"
HALF = "printf('%.*c', 500000, 'a')"
SEARCH = f"SELECT instr({TEXT}, {HALF} || 'b')"
REPLACE = f"SELECT length(replace({TEXT}, {HALF} || 'b', 'x'))"
DISTANCES = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c), b(v) AS MATERIALIZED (SELECT zeroblob(1000000)) "
    "SELECT count(vector_distance(v, v)) FROM c, b"
)
MARGIN_S = 60.0
"""For a machine that is busy; without the deadline the statements take minutes."""


class Place:
    """Files of one pool."""

    def __init__(self, folder: Path) -> None:
        self.pool = WorkerPool()
        self._paths = (folder / f"{number}.db" for number in itertools.count(1))

    def file(self) -> DatabaseFile:
        return DatabaseFile(self.pool.lease, self._paths)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.pool.close()


async def do(file: DatabaseFile, statement: str, *values: Any, chain: str = GENESIS) -> Written:
    written = await file.change(statement, values, chain=chain)
    file.keep(written)
    return written


async def rows(file: DatabaseFile, statement: str = "SELECT a FROM t") -> list[list[Any]]:
    return (await file.query(statement)).rows


def pid_of(file: DatabaseFile) -> int:
    assert file._worker is not None
    return file._worker._process.pid


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("statement", [SEARCH, REPLACE, DISTANCES], ids=["instr", "replace", "vector_distance"])
async def test_a_statement_ends_at_its_deadline_inside_of_a_function(place: Place, statement: str) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    await do(file, "INSERT INTO t VALUES (1)")
    pid, started = pid_of(file), time.monotonic()
    with pytest.raises(StatementRefused, match=r"took over 0\.3 s") as caught:
        await file.query(statement, timeout_s=0.3)
    assert caught.value.code == "sql_timeout"
    assert time.monotonic() - started < 0.3 + MARGIN_S
    assert await rows(file) == [[1]]
    await until(lambda: pid_of(file) == pid or not is_running(pid))


async def test_a_change_that_was_killed_has_changed_nothing(place: Place) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    await do(file, "INSERT INTO t VALUES (1)")
    with pytest.raises(StatementRefused, match="took over"):
        await file.change(
            f"INSERT INTO t VALUES (2), ((SELECT instr({TEXT}, {HALF} || 'b')))", (), chain="", timeout_s=0.2
        )
    assert await rows(file) == [[1]]
    await do(file, "INSERT INTO t VALUES (3)")
    assert await rows(file) == [[1], [3]]


async def test_the_worker_of_a_cancelled_statement_is_killed_at_once(place: Place) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    pid = pid_of(file)
    call = asyncio.create_task(file.query(SEARCH, timeout_s=600))
    await until(lambda: file._worker is not None and file._worker._is_asking)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not is_running(pid))
    assert await rows(file) == []


async def test_a_slow_statement_holds_up_no_other_file(place: Place) -> None:
    one, other = place.file(), place.file()
    for file in (one, other):
        await do(file, "CREATE TABLE t(a)")
    assert pid_of(one) == pid_of(other), "one worker is enough for calls after each other"
    slow = asyncio.create_task(one.query(DISTANCES, timeout_s=600))
    await until(lambda: one._worker is not None and one._worker._is_asking)
    for number in range(3):
        await do(other, "INSERT INTO t VALUES (?)", number)
    assert await rows(other) == [[0], [1], [2]]
    assert pid_of(one) != pid_of(other)
    assert not slow.done()
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert await rows(one) == []


async def test_files_go_on_in_other_workers_where_they_were(place: Place) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    for number in range(5):
        await do(file, "INSERT INTO t VALUES (?)", number)
        await file.change("INSERT INTO t VALUES ('not kept')", (), chain=GENESIS)
        worker = file._worker
        assert worker is not None
        if number % 2:
            worker.kill()
        else:
            place.pool._idle.remove(worker)
            await do(place.file(), "CREATE TABLE t(a)")
            place.pool._idle.insert(0, worker)
            file._worker = None
        assert await rows(file) == [[one] for one in range(number + 1)]


async def test_a_long_log_is_moved_into_the_file(place: Place) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    await do(file, "INSERT INTO t VALUES (zeroblob(1000000))")
    await do(file, "UPDATE t SET a = randomblob(1000000)")
    assert file._frames >= CHECKPOINT_FRAMES
    await do(file, "INSERT INTO t VALUES (1)")
    assert file._frames < CHECKPOINT_FRAMES
    assert await rows(file, "SELECT length(a) FROM t") == [[1_000_000], [1]]


async def test_changes_and_copies_pass_from_file_to_file(place: Place) -> None:
    one, other, third, fourth = (place.file() for _ in range(4))
    chain, changes = GENESIS, []
    for statement in ("CREATE TABLE t(a)", "INSERT INTO t VALUES (x'00ff')", "INSERT INTO t VALUES ('b')"):
        written = await do(one, statement, chain=chain)
        changes.append(StoredChange(written.parts, written.chain))
        chain = written.chain
    assert (await other.apply(changes, GENESIS)).count == 3
    copied = await one.copy()
    assert (await third.apply([StoredChange(copied.parts, copied.chain)], GENESIS)).count == 1
    await do(one, "INSERT INTO t VALUES (3)", chain=chain)
    await fourth.clone(one)
    for file in (other, third):
        assert await rows(file) == [[{"$blob": "AP8="}], ["b"]]
    assert await rows(fourth) == [[{"$blob": "AP8="}], ["b"], [3]]
    wrong = [StoredChange(changes[0].parts, changes[1].chain)]
    assert (await place.file().apply(wrong, GENESIS)).count == 0


async def test_a_file_that_may_be_half_written_is_begun_anew(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    path = file.path
    with monkeypatch.context() as patch:
        patch.setattr(worker_pool, "MAINTENANCE_S", 0)
        os.kill(pid_of(file), signal.SIGSTOP)  # else it may be done in time
        with pytest.raises(FileFailed):
            await file.copy()
    assert file.is_lost
    assert await rows(file, "SELECT count(*) FROM sqlite_schema") == [[0]]
    assert (file.is_lost, path.exists()) == (False, False)


async def test_a_worker_that_dies_takes_its_statement_along(place: Place) -> None:
    file = place.file()
    await do(file, "CREATE TABLE t(a)")
    os.kill(pid_of(file), signal.SIGKILL)
    await until(lambda: file._worker is None or not file._worker.is_alive)
    assert await rows(file) == [], "an idle one is not missed"
    call = asyncio.create_task(file.query(SEARCH, timeout_s=600))
    await until(lambda: file._worker is not None and file._worker._is_asking)
    os.kill(pid_of(file), signal.SIGKILL)
    with pytest.raises(FileDamaged, match="has ended"):
        await call
    assert await rows(file) == []


async def test_a_worker_that_cannot_start_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "WORKER_MODULE", "loomlog.no_such_module")
    with pytest.raises(FileFailed, match="does not start"):
        await place.file().query("SELECT 1")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileFailed, match="cannot be started"):
        await place.file().query("SELECT 1")


async def test_a_worker_has_nothing_of_the_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_AUTH_TOKEN", "secret")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    file = place.file()
    assert await rows(file, "SELECT time('2026-01-01 00:00', 'localtime')") == [["09:00:00"]]
    process = Path(f"/proc/{pid_of(file)}")
    if process.stat().st_uid == os.getuid() == 0:  # to others it is not readable at all
        names = {entry.split(b"=")[0] for entry in (process / "environ").read_bytes().split(b"\0") if entry}
        assert names <= {b"TZ", b"LC_CTYPE"}
    else:
        with pytest.raises(PermissionError):
            (process / "environ").read_bytes()


PARENT = """
import asyncio, sys
from pathlib import Path
from loomlog.connectors.sqlite.worker_pool import DatabaseFile, WorkerPool
async def main():
    file = DatabaseFile(WorkerPool().lease, iter([Path(sys.argv[1])]))
    await file.query("SELECT 1")
    print(file._worker._process.pid, flush=True)
    await file.query(sys.argv[2], timeout_s=600)
asyncio.run(main())
"""


async def test_a_worker_ends_with_its_parent_whatever_it_does(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "a.db"), SEARCH], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(await asyncio.to_thread(parent.stdout.readline))
    await until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "R")
    parent.kill()
    await asyncio.to_thread(parent.communicate)
    await until(lambda: not is_running(pid))
