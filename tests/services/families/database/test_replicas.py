"""Random statements and transactions in two processes: their files have the same bytes, and the rows of one SQLite."""

import asyncio
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.services.families.database.files import COMMITTED
from loomlog.services.families.operation import OperationRefused
from tests.services.families.database.world import ADA, OTHER, Log, Process

STATEMENTS = (
    "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)",
    "CREATE TABLE IF NOT EXISTS k(a PRIMARY KEY, b) WITHOUT ROWID",
    "CREATE VIRTUAL TABLE IF NOT EXISTS f USING fts5(x)",
    "INSERT INTO t(v) SELECT count(*) FROM t",
    "INSERT INTO t(v) VALUES (zeroblob(5000))",
    "INSERT OR REPLACE INTO k SELECT (SELECT count(*) FROM t) % 3, 'b'",
    "INSERT INTO f SELECT 'word' || count(*) FROM f",
    "DELETE FROM t WHERE id % 2",
    "DELETE FROM f WHERE x = 'word1'",
    "DROP TABLE IF EXISTS k",
    "UPDATE t SET v = id WHERE id > 2",
)
STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from((*STATEMENTS, *STATEMENTS, "begin", "commit", "rollback"))),
    max_size=30,
)
TABLES = ("t", "k", "f")


class Model:
    """One SQLite with the same statements, and savepoints for transactions."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.depth = 0

    def do(self, step: str) -> bool:
        try:
            match step:
                case "begin":
                    self.depth += 1
                    self.connection.execute(f"SAVEPOINT s{self.depth}")
                case "commit" | "rollback":
                    if not self.depth:
                        return False
                    if step == "rollback":
                        self.connection.execute(f"ROLLBACK TO s{self.depth}")
                    self.connection.execute(f"RELEASE s{self.depth}")
                    self.depth -= 1
                case _:
                    self.connection.execute(step)
        except sqlite3.OperationalError:
            return False
        return True

    def rows(self) -> dict[str, Any]:
        tables = [name for (name,) in self.connection.execute("SELECT name FROM sqlite_master") if name in TABLES]
        return {name: [list(row) for row in self.connection.execute(_select(name))] for name in sorted(tables)}


def _select(table: str) -> str:
    return "SELECT id, hex(v) FROM t ORDER BY id" if table == "t" else f"SELECT * FROM {table} ORDER BY 1"


async def rows_of(process: Process, **more: Any) -> dict[str, Any]:
    tables = [name for (name,) in await process.rows("SELECT name FROM sqlite_master", **more) if name in TABLES]
    return {name: await process.rows(_select(name), **more) for name in sorted(tables)}


async def bytes_of(process: Process) -> bytes:
    await process.rows("SELECT 1", author=OTHER)
    file = process.files._scopes[ADA.tenant, ADA.aggregate].files[COMMITTED]
    file.database.close()
    return file.database.path.read_bytes()


async def play(steps: list[tuple[int, str]], folder: Path) -> None:
    log, blobs, model = Log(), MemoryBlobs(), Model()
    processes = [Process(log, folder, blobs) for _ in range(3)]
    for number, step in steps:
        process = processes[number]
        is_done = True
        try:
            if step in ("begin", "commit", "rollback"):
                await process.do(f"sql_{step}")
            else:
                await process.exec(step)
        except OperationRefused:
            is_done = False
        assert model.do(step) == is_done, step
        assert await rows_of(processes[1 - number]) == model.rows(), step
    for _ in range(model.depth):
        await processes[0].do("sql_rollback")
        model.do("rollback")
    assert await rows_of(processes[2]) == model.rows()
    first, *others = [await bytes_of(process) for process in processes]
    assert others == [first, first]
    for process in processes:
        await process.operations.close()


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_processes_fold_to_the_same_bytes(steps: list[tuple[int, str]]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(play(steps, Path(folder)))
