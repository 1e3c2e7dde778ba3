"""Random statements and transactions in two processes: their files have the same bytes, and the rows of one SQLite."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused
from loomlog.services.families.database.files import COMMITTED
from tests.services.families.database.world import ADA, AUTHOR, OTHER, Log, Process

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


class Replicas:
    """Three processes, which take long to start, for all examples; each example has a scope and a tree of runs."""

    def __init__(self, folder: Path) -> None:
        blobs, log = MemoryBlobs(), Log()
        self.processes = [Process(log, folder, blobs) for _ in range(3)]
        self.number = 0
        self.scope, self.author = ADA, AUTHOR

    async def play(self, steps: list[tuple[int, str]]) -> None:
        self.number += 1
        self.scope = replace(ADA, id=f"ada{self.number}")
        self.author = replace(AUTHOR, root_run_id=f"r_{self.number}")
        model = Model()
        for number, step in steps:
            assert model.do(step) == await self.do(number, step), step
            assert await self.rows(1 - number) == model.rows(), step
        for _ in range(model.depth):
            await self.do(0, "rollback")
            model.do("rollback")
        assert await self.rows(2) == model.rows()
        first, *others = [await self.bytes_of(process) for process in self.processes]
        assert others == [first, first]

    async def do(self, number: int, step: str) -> bool:
        """Carry out a step in a process; return whether it was accepted."""
        op, fields = ("sql_exec", {"statement": step}) if " " in step else (f"sql_{step}", {})
        try:
            await self.processes[number].do(op, self.author, self.scope, **fields)
        except Refused:
            return False
        return True

    async def rows(self, number: int) -> dict[str, Any]:
        names = await self._rows(number, "SELECT name FROM sqlite_master")
        return {name: await self._rows(number, _select(name)) for (name,) in sorted(names) if name in TABLES}

    async def _rows(self, number: int, statement: str) -> Any:
        return await self.processes[number].rows(statement, author=self.author, scope=self.scope)

    async def bytes_of(self, process: Process) -> bytes:
        await process.rows("SELECT 1", author=OTHER, scope=self.scope)
        file = process.files._scopes[self.scope.tenant, self.scope.aggregate].files[COMMITTED]
        await file.database.copy()
        return file.database.path.read_bytes()

    async def close(self) -> None:
        for process in self.processes:
            await process.operations.close()


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[tuple[int, str]]], None]]:
    replicas = Replicas(tmp_path_factory.mktemp("replicas"))
    with asyncio.Runner() as runner:
        yield lambda steps: runner.run(replicas.play(steps))
        runner.run(replicas.close())


@settings(max_examples=15, deadline=None)
@given(STEPS)
def test_processes_fold_to_the_same_bytes(
    replay: Callable[[list[tuple[int, str]]], None], steps: list[tuple[int, str]]
) -> None:
    replay(steps)
