"""SQL over HTTP on the database of a scope: one statement that reads, within its bounds."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.records import replace
from loomlog.services.families.database import services
from loomlog.services.families.database.services import DatabaseOptions, SqlOptions
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX
from tests.services.families.database.world import LIMITS, Log, Process
from tests.waiting import until

SQL = "/v1/_memory/sql"


@pytest_asyncio.fixture(loop_scope="session")
async def log() -> Log:
    return Log()


@pytest_asyncio.fixture(loop_scope="session")
async def runtime(tmp_path: Path, log: Log) -> AsyncIterator[Process]:
    """The process of the agents, which write."""
    process = Process(log, tmp_path / "runtime", MemoryBlobs())
    yield process
    await process.files.close()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, log: Log) -> AsyncIterator[Served]:
    options = DatabaseOptions(sql=SqlOptions(root=tmp_path / "sql", limits=LIMITS))
    async with served(tmp_path, entity_commands=log, entity_reads=log, family_options=[options]) as made:
        yield made


async def ask(here: Served, statement: Any, caller: Any = ACME, query: str = "", **more: Any) -> httpx.Response:
    body = {"scope": "user", "scope_id": "ada", "statement": statement, **more}
    return await here.client(caller).post(SQL + query, json=body)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_a_select_reads_what_agents_have_written(here: Served, runtime: Process) -> None:
    await runtime.exec("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, raw BLOB)")
    await runtime.exec("INSERT INTO t (name, raw) VALUES (?, x'00'), (?, NULL)", "ada", "bob")
    answer = await ask(here, "SELECT id, name, raw FROM t WHERE id >= ? ORDER BY id", args=[1])
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "scope": "user",
        "scope_id": "ada",
        "columns": ["id", "name", "raw"],
        "rows": [[1, "ada", {"$blob": "AA=="}], [2, "bob", None]],
        "truncated": False,
    }
    await runtime.exec("UPDATE t SET name = 'eve' WHERE id = 1")
    assert (await ask(here, "SELECT name FROM t WHERE id = 1")).json()["rows"] == [["eve"]]


async def test_a_transaction_that_is_open_is_not_seen(here: Served, runtime: Process) -> None:
    await runtime.exec("CREATE TABLE t (id INTEGER)")
    await runtime.do("sql_begin")
    await runtime.exec("INSERT INTO t VALUES (1)")
    assert (await ask(here, "SELECT count(*) FROM t")).json()["rows"] == [[0]]
    await runtime.do("sql_commit")
    assert (await ask(here, "SELECT count(*) FROM t")).json()["rows"] == [[1]]


async def test_a_scope_without_a_database_has_no_tables(here: Served, log: Log) -> None:
    answer = await ask(here, "SELECT name FROM sqlite_schema", scope_id="nobody")
    assert (answer.status_code, answer.json()["rows"]) == (200, [])
    for scope in ({"scope": "tenant", "scope_id": ""}, {"scope": "run", "scope_id": "r_1"}, {"scope": "agent"}):
        assert (await ask(here, "SELECT 1", **scope)).json()["rows"] == [[1]]
    assert not log.asked


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (1)",
        "DELETE FROM t",
        "DROP TABLE t",
        "CREATE TABLE u (id)",
        "WITH one AS (SELECT 1) INSERT INTO t SELECT * FROM one",
        "PRAGMA query_only = 0",
        "ATTACH DATABASE 'x' AS y",
        "SELECT 1; DELETE FROM t",
        "SELECT load_extension('x')",
        "SELECT * FROM missing",
        "SELEC 1",
        "",
        7,
    ],
)
async def test_what_does_not_read_is_refused_in_words_of_the_engine(
    here: Served, runtime: Process, log: Log, statement: Any
) -> None:
    await runtime.exec("CREATE TABLE t (id INTEGER)")
    await runtime.exec("INSERT INTO t VALUES (5)")
    asked = len(log.asked)
    assert refusal(await ask(here, statement)) == (400, "sql_refused")
    assert len(log.asked) == asked
    assert (await ask(here, "SELECT id FROM t")).json()["rows"] == [[5]]


async def test_rows_and_time_are_bounded(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "STATEMENT_S", 0.1)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{}) SELECT {} FROM n"
    answer = (await ask(here, numbers.format(" WHERE i < 1001", "i"))).json()
    assert (len(answer["rows"]), answer["rows"][-1], answer["truncated"]) == (1000, [1000], True)
    answer = (await ask(here, numbers.format(" WHERE i < 1000", "i"))).json()
    assert (len(answer["rows"]), answer["truncated"]) == (1000, False)
    assert refusal(await ask(here, numbers.format("", "count(*)"))) == (400, "sql_timeout")


async def test_no_function_outlives_the_time_and_a_caller_has_a_share(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "STATEMENT_S", 1.0)
    monkeypatch.setattr(services, "BUSY_WAIT_S", 0.1)
    statement = "SELECT instr(printf('%.*c', 1000000, 'a'), printf('%.*c', 500000, 'a') || 'b')"
    calls = [asyncio.create_task(ask(here, statement, scope_id=f"u{number}")) for number in range(6)]
    other = await ask(here, "SELECT 1", GLOBEX)
    assert (other.status_code, other.json()["rows"]) == (200, [[1]])
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*calls)
    assert {refusal(answer) for answer in answers} == {(400, "sql_timeout"), (429, "share_exhausted")}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)


async def test_an_operator_who_allows_less_is_heard(tmp_path: Path, log: Log) -> None:
    options = DatabaseOptions(sql=SqlOptions(root=tmp_path / "sql", limits=replace(LIMITS, rows_max=1)))
    async with served(tmp_path, entity_commands=log, entity_reads=log, family_options=[options]) as here:
        answer = (await ask(here, "SELECT 1 UNION SELECT 2")).json()
        assert (answer["rows"], answer["truncated"]) == ([[1]], True)


async def test_it_says_when_sql_memory_is_off_or_has_no_folder(tmp_path: Path, log: Log) -> None:
    async with served(tmp_path, entity_commands=log, entity_reads=log) as here:
        assert refusal(await ask(here, "SELECT 1")) == (503, "sqlmem_unavailable")
        assert refusal(await ask(here, 1)) == (400, "sql_refused"), "what is wrong with a request is told all the same"
    (tmp_path / "file").write_text("not a folder")
    options = DatabaseOptions(sql=SqlOptions(root=tmp_path / "file", limits=LIMITS))
    async with served(tmp_path, entity_commands=log, entity_reads=log, family_options=[options]) as here:
        answer = await ask(here, "SELECT 1")
        assert refusal(answer) == (503, "memory_unavailable")
        assert str(tmp_path / "file") in answer.json()["error"]


async def test_the_files_of_a_tenant_go_when_one_of_it_is_erased(tmp_path: Path, log: Log, runtime: Process) -> None:
    await runtime.exec("CREATE TABLE t (id INTEGER)")
    options, root = DatabaseOptions(sql=SqlOptions(root=tmp_path / "sql", limits=LIMITS)), tmp_path / "sql"
    async with served(
        tmp_path, encrypted=True, entity_commands=log, entity_reads=log, family_options=[options]
    ) as here:
        keys = here.world.keys
        assert keys is not None
        assert len(keys.on_erased) == 1
        keys.on_erased[0]("acme", "ada")
        await ask(here, "SELECT * FROM t")
        assert list(root.rglob("*.db"))
        keys.on_erased[0]("globex", "ada")
        keys.on_erased[0]("acme", "ada")
        await until(lambda: not list(root.rglob("*.db")))
        assert (await ask(here, "SELECT count(*) FROM t")).json()["rows"] == [[0]]
    assert not list(root.rglob("*.db"))
