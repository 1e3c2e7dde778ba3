"""Statements and transactions over a log in memory: several processes, kills, and what is refused."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent
from loomlog.connectors.sqlite.errors import FileFailed
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.database_events import SqlChanged
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.shares import ShareExhausted
from loomlog.services.families.database import file_builder, limits
from loomlog.services.families.database.files import CachedFile
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.memory.author import Author, Grants, Scope
from loomlog.services.stream.encryption.subject_keys import ERASED
from tests.services.entities import UNANSWERED
from tests.services.families.database.world import ADA, AUTHOR, LIMITS, OTHER, Log, Process
from tests.waiting import until

CREATE = "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)"
COUNT = "SELECT count(*) FROM t"
OPERATOR = Author(tenant="acme", subject="op", command_id="o", issued_at_ms=1)


class World:
    def __init__(self, folder: Path) -> None:
        self.log, self.blobs, self.folder = Log(), MemoryBlobs(), folder
        self.processes: list[Process] = []

    def process(self, **more: Any) -> Process:
        made = Process(self.log, self.folder, self.blobs, **more)
        self.processes.append(made)
        return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    for process in made.processes:
        await process.operations.close()


@pytest.fixture
def here(world: World) -> Process:
    return world.process()


# --- statements ------------------------------------------------------------------------------------------------------


async def test_answers_have_the_fields_of_the_reference(here: Process) -> None:
    assert await here.exec(CREATE) == {"rows_affected": 0, "last_insert_id": 0}
    assert await here.exec("INSERT INTO t(v) VALUES (?), (?)", "a", None) == {"rows_affected": 2, "last_insert_id": 2}
    assert await here.exec("DELETE FROM t WHERE id > 99") == {"rows_affected": 0, "last_insert_id": 0}
    assert await here.do("sql_query", statement="SELECT id, v FROM t") == {
        "columns": ["id", "v"],
        "rows": [[1, "a"], [2, None]],
        "truncated": False,
    }


async def test_values_are_bound(here: Process) -> None:
    values = [None, True, False, 3, 2**62, 0.5, "text", {"$blob": "AP8="}]
    sql = "SELECT " + ", ".join("?" * len(values))
    assert await here.rows(sql, *values) == [[None, 1, 0, 3, 2**62, 0.5, "text", {"$blob": "AP8="}]]


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ("text", "expected a list"),
        ([2**64], "64 bits"),
        ([float("inf")], "finite"),
        ([float("nan")], "finite"),
        ([[1]], "JSON text"),
        ([{"a": 1}], "JSON text"),
        ([{"$blob": "not base64!"}], "base64"),
        ([{"$blob": 3}], "JSON text"),
        (["\ud800"], "surrogate"),
        ([{"$embed": ""}], "expected text"),
        ([{"$embed": 1}], "expected text"),
        ([1, 2], "uses 1 and there are 2"),
        ([], "uses 1 and there are 0"),
        ([0] * 40_000, "at most 32766"),
    ],
)
async def test_bad_values_are_refused(here: Process, args: Any, reason: str) -> None:
    code, message = await here.refused("sql_query", statement="SELECT ?", args=args)
    assert code == "sql_refused"
    assert reason in message


async def test_vectors_are_bound(world: World) -> None:
    asked: list[Sequence[str]] = []

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        asked.append(texts)
        return [[1.0, 0.0] if text == "east" else [0.0, 1.0] for text in texts]

    here = world.process(embed=embed)
    await here.exec("CREATE TABLE v(name, e)")
    await here.exec("INSERT INTO v VALUES (?, ?), (?, ?)", "east", {"$embed": "east"}, "north", {"$embed": "north"})
    assert asked == [["east", "north"]]
    nearest = "SELECT name FROM v ORDER BY vector_distance(e, ?) LIMIT 1"
    assert await here.rows(nearest, {"$embed": "up"}) == [["north"]]
    without = world.process()
    code, _ = await without.refused("sql_query", statement="SELECT ?", args=[{"$embed": "x"}])
    assert code == "embedder_not_configured"


async def test_what_is_not_sql_memory_is_refused(here: Process) -> None:
    assert (await here.refused("sql_exec"))[0] == "missing_value"
    assert (await here.refused("sql_query", statement="DELETE FROM t"))[0] == "sql_refused"
    assert (await here.refused("sql_exec", statement="PRAGMA page_size"))[0] == "sql_refused"
    assert (await here.refused("sql_query", statement=5))[0] == "sql_refused"
    assert (await here.refused("sql_query", statement="SELECT 1", timeout_ms=0))[0] == "bad_request"
    assert here.log.asked == []


async def test_a_call_has_a_shorter_time_if_it_asks_for_one(here: Process) -> None:
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    code, message = await here.refused("sql_query", statement=endless, timeout_ms=50)
    assert (code, "0.05 s" in message) == ("sql_timeout", True)


async def test_the_quota_is_the_smaller_of_agent_and_installation_unless_a_file_says_more(world: World) -> None:
    here = world.process(limits=replace(LIMITS, quota_bytes=100_000))
    large = "INSERT INTO t(v) VALUES (zeroblob(150000))"
    await here.exec(CREATE)
    assert (await here.refused("sql_exec", statement=large))[0] == "sql_quota_exceeded"
    more = Grants(sql_scopes=("user",), sql_quota_bytes=600_000)
    at_run_time = replace(AUTHOR, grants=more)
    assert (await here.refused("sql_exec", statement=large, author=at_run_time))[0] == "sql_quota_exceeded"
    await here.exec(large, author=replace(AUTHOR, grants=replace(more, is_of_file=True)))
    assert await here.rows(COUNT) == [[1]]
    less = replace(AUTHOR, grants=replace(more, sql_quota_bytes=50_000))
    small = "INSERT INTO t(v) VALUES (zeroblob(60000))"
    assert (await here.refused("sql_exec", statement=small, author=less))[0] == "sql_quota_exceeded"


async def test_scopes_and_tenants_have_databases_of_their_own(here: Process) -> None:
    await here.exec(CREATE)
    for scope in (Scope("acme", "user", "bob"), Scope("acme", "agent", "ada"), Scope("globex", "user", "ada")):
        author = replace(AUTHOR, tenant=scope.tenant)
        assert await here.rows("SELECT count(*) FROM sqlite_master", author=author, scope=scope) == [[0]]


async def test_an_operator_has_no_transactions(here: Process) -> None:
    await here.exec(CREATE, author=OPERATOR)
    for op in ("sql_begin", "sql_commit", "sql_rollback"):
        code, message = await here.refused(op, OPERATOR)
        assert (code, "needs a run" in message) == ("sql_refused", True)


async def test_events_say_who_and_what(here: Process) -> None:
    await here.exec(CREATE)
    (answer,) = here.log.answers.values()
    (event,) = answer.events
    assert isinstance(event, SqlChanged)
    assert event.statement == CREATE
    assert (event.source.run_id, event.source.user_id, event.source.origin) == ("r_1", "ada", "agent_explicit")


# --- several processes -----------------------------------------------------------------------------------------------


async def test_processes_see_each_others_changes(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    for number in range(6):
        await (one if number % 2 else other).exec("INSERT INTO t(v) VALUES (?)", number)
    assert await one.rows(COUNT) == await other.rows(COUNT) == [[6]]


@pytest.mark.parametrize("is_owner", [True, False])
async def test_a_statement_on_an_old_revision_is_carried_out_again(world: World, is_owner: bool) -> None:
    world.log.is_owner = is_owner
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    await one.exec("INSERT INTO t(v) VALUES (1)")
    await other.exec("UPDATE t SET v = v + 10")
    await one.exec("UPDATE t SET v = v * 2")
    assert await other.rows("SELECT v FROM t") == [[22]]
    assert world.log.refusals == ["revision_conflict"]


async def test_writers_in_all_processes_lose_nothing(world: World) -> None:
    processes = [world.process(limits=replace(LIMITS, busy_wait_s=10)) for _ in range(3)]
    await processes[0].exec("CREATE TABLE n(v)")
    await processes[0].exec("INSERT INTO n VALUES (0)")
    await asyncio.gather(*(process.exec("UPDATE n SET v = v + 1") for process in processes for _ in range(10)))
    assert [await process.rows("SELECT v FROM n") for process in processes] == [[[30]]] * 3


async def test_large_changes_are_in_blobs(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    await one.exec("INSERT INTO t(v) VALUES (randomblob(900000))")
    assert world.blobs.blobs
    assert await other.rows("SELECT length(v), hex(substr(v, -1000)) FROM t") == await one.rows(
        "SELECT length(v), hex(substr(v, -1000)) FROM t"
    )
    world.blobs.blobs.clear()
    with pytest.raises(Unavailable, match="not in memory"):
        await world.process().rows(COUNT)


@pytest.mark.parametrize("size", [10, 900_000])
async def test_a_copy_takes_the_place_of_many_changes(world: World, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("loomlog.services.families.database.state.CHANGES_PER_COPY", 5)
    one = world.process()
    await one.exec(CREATE)
    for _ in range(6):
        await one.exec("INSERT INTO t(v) VALUES (randomblob(?))", size)
    assert world.log.state().copy_revision == 5
    kinds = [kind for _, kind, _ in world.log.items.rows]
    assert sorted(kinds) == ["change", "change", "copy", "database"]
    assert await world.process().rows("SELECT length(v), hex(substr(v, -1000)) FROM t") == await one.rows(
        "SELECT length(v), hex(substr(v, -1000)) FROM t"
    )


async def test_a_copy_that_fails_is_made_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.families.database.state.CHANGES_PER_COPY", 2)
    here = world.process()
    await here.exec(CREATE)

    async def fail(file: Any) -> Any:
        raise FileFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("loomlog.connectors.sqlite.worker_pool.DatabaseFile.copy", fail)
        await here.exec("INSERT INTO t(v) VALUES (1)")
    assert world.log.state().copy_revision == 0
    await here.exec("INSERT INTO t(v) VALUES (2)")
    assert world.log.state().copy_revision == 3


async def test_pages_that_cannot_be_stored_change_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world.process()
    await here.exec(CREATE)

    async def fail(*args: Any) -> Any:
        raise Permanent("no space", kind="forbidden")

    with monkeypatch.context() as patch:
        patch.setattr(world.blobs, "put", fail)
        with pytest.raises(Unavailable, match="no space"):
            await here.exec("INSERT INTO t(v) VALUES (randomblob(900000))")
    assert await here.rows(COUNT) == [[0]]
    await here.exec("INSERT INTO t(v) VALUES (1)")
    assert await world.process().rows(COUNT) == [[1]]


async def test_a_damaged_file_is_made_again(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    await here.exec("INSERT INTO t(v) VALUES (1)")
    for file in held_files(here):
        path = await flushed(file)
        path.write_bytes(b"x" * 4096)
    assert await here.rows(COUNT) == [[1]]
    for file in held_files(here):
        path = await flushed(file)
        damaged = bytearray(path.read_bytes())
        damaged[1024:] = b"\xff" * (len(damaged) - 1024)
        path.write_bytes(damaged)
    await here.exec("INSERT INTO t(v) VALUES (2)")
    assert await here.rows(COUNT) == [[2]]


async def flushed(file: CachedFile) -> Path:
    """The path of a file, with all its pages in it and no connection open."""
    await file.database.copy()
    worker = file.database._worker
    assert worker is not None
    worker.kill()
    return file.database.path


def held_files(process: Process) -> list[CachedFile]:
    return [file for held in process.files._scopes.values() for file in held.files.values()]


async def test_pages_that_were_altered_in_the_rows_are_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_builder, "ROW_WAIT_S", 0.1)
    here = world.process()
    await here.exec(CREATE)
    await here.exec("INSERT INTO t(v) VALUES (1)")
    rows = world.log.items.rows
    first, second = [key for key in rows if key[1] == "change"]
    rows[second] = rows[second]._replace(document=rows[first].document.replace('"revision":1', '"revision":2'))
    with pytest.raises(Unavailable, match="not read yet"):
        await world.process().rows(COUNT)
    assert await here.rows(COUNT) == [[1]]


async def test_the_files_of_a_process_are_bounded(world: World) -> None:
    here = world.process(limits=replace(LIMITS, files_max=3))
    scopes = [Scope("acme", "user", f"u{number}") for number in range(8)]
    for scope in scopes:
        await here.exec(CREATE, scope=scope)
    assert len(list(here.files._folder.path.glob("*.db"))) == 3
    for scope in scopes:
        await here.exec("INSERT INTO t(v) VALUES (1)", scope=scope)
        assert await here.rows(COUNT, scope=scope) == [[1]]
    small = world.process(limits=replace(LIMITS, files_bytes_max=5_000))
    for scope in scopes:
        assert await small.rows(COUNT, scope=scope) == [[1]]
    assert len(list(small.files._folder.path.glob("*.db"))) == 1


async def test_rows_that_come_late_are_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    rows = dict(world.log.items.rows)
    world.log.items.rows.clear()
    asyncio.get_running_loop().call_later(0.1, world.log.items.rows.update, rows)
    assert await other.rows(COUNT) == [[0]]
    monkeypatch.setattr(file_builder, "ROW_WAIT_S", 0.1)
    world.log.items.rows.clear()
    with pytest.raises(Unavailable, match="not read yet"):
        await world.process().rows(COUNT)


# --- transactions ----------------------------------------------------------------------------------------------------


async def test_a_transaction_is_seen_by_its_runs_alone_until_it_is_committed(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    assert await one.do("sql_begin") == {"ok": True, "depth": 1}
    await one.exec("INSERT INTO t(v) VALUES (1)")
    child = replace(AUTHOR, run_id="r_1-child")
    assert await one.rows(COUNT) == await other.rows(COUNT, author=child) == [[1]]
    assert await one.rows(COUNT, author=OTHER) == await other.rows(COUNT, author=OPERATOR) == [[0]]
    await other.exec("INSERT INTO t(v) VALUES (2)", author=child)
    assert await other.do("sql_commit", child) == {"ok": True, "depth": 0}
    assert await one.rows(COUNT, author=OTHER) == await other.rows(COUNT) == await one.rows(COUNT) == [[2]]


async def test_a_rollback_forgets_the_changes_everywhere(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    for number in range(3):
        await one.do("sql_begin")
        await one.exec("INSERT INTO t(v) VALUES (?)", number)
        await other.exec("CREATE TABLE more(a)")
        assert await one.do("sql_rollback") == {"ok": True, "depth": 0}
        assert await one.rows(COUNT) == await other.rows(COUNT) == await world.process().rows(COUNT) == [[0]]
    assert await other.rows("SELECT name FROM sqlite_master WHERE name = 'more'") == []


async def test_nested_transactions(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    await one.do("sql_begin")
    await one.exec("INSERT INTO t(v) VALUES ('outer')")
    assert await other.do("sql_begin") == {"ok": True, "depth": 2}
    await other.exec("INSERT INTO t(v) VALUES ('inner')")
    assert await one.rows(COUNT) == [[2]]
    assert await one.do("sql_rollback") == {"ok": True, "depth": 1}
    assert await other.rows("SELECT v FROM t") == await one.rows("SELECT v FROM t") == [["outer"]]
    await other.do("sql_begin")
    await one.exec("INSERT INTO t(v) VALUES ('kept')")
    assert await one.do("sql_commit") == {"ok": True, "depth": 1}
    assert await other.do("sql_commit") == {"ok": True, "depth": 0}
    assert await other.rows("SELECT v FROM t ORDER BY id", author=OTHER) == [["outer"], ["kept"]]
    assert (await one.refused("sql_commit"))[0] == "sql_refused"


async def test_depth_is_bounded(world: World) -> None:
    here = world.process(limits=replace(LIMITS, depth_max=2))
    await here.do("sql_begin")
    await here.do("sql_begin")
    assert (await here.refused("sql_begin"))[0] == "sql_refused"


async def test_others_wait_for_a_transaction_and_are_refused_after_a_while(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    await here.do("sql_begin")
    await here.exec("INSERT INTO t(v) VALUES (1)")
    calls: list[tuple[str, dict[str, Any]]] = [("sql_exec", {"statement": "DELETE FROM t"}), ("sql_begin", {})]
    for op, fields in calls:
        assert (await here.refused(op, OTHER, **fields))[0] == "sql_busy"
    assert (await here.refused("sql_commit", OTHER))[0] == "sql_refused"
    waiting = asyncio.create_task(here.exec("INSERT INTO t(v) VALUES (3)", author=OTHER))
    await asyncio.sleep(0.1)
    await here.do("sql_commit")
    assert (await waiting)["rows_affected"] == 1
    assert await here.rows("SELECT v FROM t ORDER BY v") == [[1], [3]]


async def test_an_open_transaction_survives_its_process(world: World) -> None:
    one = world.process()
    await one.exec(CREATE)
    await one.do("sql_begin")
    await one.exec("INSERT INTO t(v) VALUES (1)")
    other = world.process()
    await other.exec("INSERT INTO t(v) VALUES (2)")
    assert await other.do("sql_commit") == {"ok": True, "depth": 0}
    assert await other.rows(COUNT, author=OTHER) == [[2]]


async def test_an_idle_transaction_is_rolled_back_and_its_runs_are_told(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    await here.do("sql_begin")
    await here.exec("INSERT INTO t(v) VALUES (1)")
    world.log.fire_timer()
    statement: dict[str, Any] = {"statement": "INSERT INTO t(v) VALUES (2)"}
    for op, fields in (("sql_exec", statement), ("sql_query", {"statement": COUNT}), ("sql_commit", {})):
        code, message = await here.refused(op, **fields)
        assert code == "sql_timeout"
        assert "sql_begin" in message
    assert await here.rows(COUNT, author=OTHER) == [[0]]
    assert await here.do("sql_rollback") == {"ok": True, "depth": 0}
    await here.exec(**statement)
    assert await here.rows(COUNT) == [[1]]


async def test_queries_keep_a_transaction_open(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    await here.do("sql_begin")
    asked = len(world.log.asked)
    await here.rows(COUNT)
    assert len(world.log.asked) == asked
    here.now_ms += 20_000
    await here.rows(COUNT)
    assert len(world.log.asked) == asked + 1
    (kept,) = list(world.log.answers.values())[-1].events
    assert isinstance(kept, SqlChanged)
    assert kept.revision == kept.previous_revision


def author_of(number: int, *, user: str = "ada", tenant: str = "acme") -> Author:
    run_id = f"r_{tenant}-{user}-{number}"
    return replace(AUTHOR, tenant=tenant, user_id=user, run_id=run_id, root_run_id=run_id)


async def begin(process: Process, author: Author) -> str:
    """Begin a transaction in a database of its own; return the code of the refusal."""
    try:
        await process.do("sql_begin", author, Scope(author.tenant, "run", author.root_run_id))
    except Refused as refused:
        return refused.code
    return ""


async def test_nobody_closes_transactions_for_others(world: World) -> None:
    here = world.process(limits=replace(LIMITS, transactions_max=8))
    greedy = await asyncio.gather(*(begin(here, author_of(number, user="eve")) for number in range(30)))
    assert (greedy.count(""), set(greedy)) == (4, {"", "sql_busy"}), "half, and no race beyond it"
    colleagues = [await begin(here, author_of(0, user=f"u{number}")) for number in range(8)]
    assert colleagues.count("") == 2, "three quarters for the tenant"
    code, message = await here.refused("sql_begin", author_of(99, user="eve"), scope=Scope("acme", "run", "r_x"))
    assert (code, "its share is 4" in message) == ("sql_busy", True)
    first = author_of(0, user="eve")
    await here.do("sql_rollback", first, Scope("acme", "run", first.root_run_id))
    assert await begin(here, author_of(31, user="eve")) == ""
    assert await begin(here, author_of(32, user="eve")) == "sql_busy"
    assert await begin(here, author_of(0, tenant="globex")) == ""
    here.now_ms += 31_000  # all have ended as idle
    assert await begin(here, author_of(33, user="eve")) == ""


async def test_a_begin_that_is_refused_takes_no_share(world: World) -> None:
    here = world.process(limits=replace(LIMITS, transactions_max=2, busy_wait_s=0.05))
    await here.do("sql_begin")
    for number in range(3):
        assert (await here.refused("sql_begin", author_of(number, user="bob")))[0] == "sql_busy"
    await here.do("sql_rollback")
    assert await begin(here, author_of(7, user="bob")) == ""


async def test_a_tree_of_runs_has_one_transaction_at_a_time(here: Process) -> None:
    await here.do("sql_begin")
    code, message = await here.refused("sql_begin", scope=Scope("acme", "agent", "helper"))
    assert (code, "transaction open in the scope user" in message) == ("sql_busy", True)
    assert await here.do("sql_begin") == {"ok": True, "depth": 2}
    await here.do("sql_commit")
    await here.do("sql_commit")
    assert (await here.do("sql_begin", scope=Scope("acme", "agent", "helper")))["depth"] == 1


# --- exactly once ----------------------------------------------------------------------------------------------------

REPEATED = replace(AUTHOR, issued_at_ms=0)


async def test_a_call_that_is_repeated_after_a_kill_has_one_effect_and_one_answer(world: World) -> None:
    one = world.process()
    await one.exec(CREATE)
    insert: dict[str, Any] = {"statement": "INSERT INTO t(v) VALUES ('once')"}
    first = await one.again("sql_exec", AUTHOR, **insert)
    for process in (one, world.process()):
        again = await process.again("sql_exec", REPEATED, **insert)  # it would fail: the value is there
        assert again == first
        assert await process.rows(COUNT) == [[1]]


async def test_a_repeated_call_walks_the_ids_of_the_first(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    await one.exec("INSERT INTO t(v) VALUES (1)")
    await other.exec("UPDATE t SET v = 5")
    first = await one.again("sql_exec", AUTHOR, statement="UPDATE t SET v = v + 1")
    assert world.log.refusals == ["revision_conflict"]
    await other.exec("UPDATE t SET v = v * 10")
    again = await world.process().again("sql_exec", REPEATED, statement="UPDATE t SET v = v + 1")
    assert again.value == first.value
    assert await other.rows("SELECT v FROM t") == [[60]]


async def test_a_repeated_call_whose_first_attempt_did_nothing_is_carried_out(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    reply = await here.again("sql_exec", REPEATED, statement="INSERT INTO t(v) VALUES (1)")
    assert reply.value == {"rows_affected": 1, "last_insert_id": 1}


async def test_a_statement_that_fails_is_recorded_in_a_repeated_call_only(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    bad: dict[str, Any] = {"statement": "INSERT INTO missing VALUES (1)"}
    for author in (AUTHOR, REPEATED, REPEATED):
        with pytest.raises(Refused, match="no such table: missing"):
            await here.again("sql_exec", author, **bad)
    assert world.log.refusals == ["sql_refused"]
    await here.exec("CREATE TABLE missing(a)")
    with pytest.raises(Refused, match="not carried out"):  # its failure is the answer
        await here.again("sql_exec", REPEATED, **bad)
    assert await here.rows("SELECT count(*) FROM missing") == [[0]]


async def test_a_repeated_call_behind_the_transaction_of_another_run_knows_its_answer(world: World) -> None:
    one = world.process()
    await one.exec(CREATE)
    first = await one.again("sql_exec", AUTHOR, statement="INSERT INTO t(v) VALUES (1)")
    began = await one.again("sql_begin", replace(OTHER, command_id="b"))
    repeated = world.process()
    assert await repeated.again("sql_exec", REPEATED, statement="INSERT INTO t(v) VALUES (1)") == first
    assert await repeated.again("sql_begin", replace(OTHER, command_id="b", issued_at_ms=0)) == began
    with pytest.raises(Refused, match="another run has a transaction open") as caught:
        await repeated.again("sql_begin", replace(REPEATED, command_id="new"))
    assert caught.value.code == "sql_busy"


async def test_repeated_ends_of_transactions_end_one(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    await here.do("sql_begin")
    await here.do("sql_begin")
    await here.exec("INSERT INTO t(v) VALUES (1)")
    for process in (here, world.process()):
        for author in (AUTHOR, REPEATED):
            assert (await process.again("sql_commit", author)).value == {"ok": True, "depth": 1}
    assert await here.do("sql_rollback") == {"ok": True, "depth": 0}
    assert await here.rows(COUNT) == [[0]]


async def test_an_unanswered_command_has_an_unknown_outcome(world: World) -> None:
    here = world.process()
    await here.exec(CREATE)
    world.log.error = UNANSWERED
    held = here.files._scopes["acme", "user/ada"]
    assert held.state is not None
    with pytest.raises(Unavailable) as caught:
        await here.exec("INSERT INTO t(v) VALUES (1)")
    assert caught.value.is_unknown
    world.log.error = None
    assert await here.rows(COUNT) == [[0]]


async def test_a_cancelled_call_leaves_the_file_as_it_was(world: World) -> None:
    here = world.process(limits=replace(LIMITS, statement_s=600))
    await here.exec(CREATE)
    endless = "INSERT INTO t(v) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    call = asyncio.create_task(here.exec(endless))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(30):
            await call
    await here.exec("INSERT INTO t(v) VALUES (1)")
    assert await here.rows(COUNT) == [[1]]


async def test_a_slow_statement_does_not_stop_the_loop_or_other_scopes(world: World) -> None:
    here = world.process()
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    slow = asyncio.create_task(here.refused("sql_query", statement=endless, timeout_ms=1_000))
    await asyncio.sleep(0.1)
    assert await here.rows("SELECT 1", scope=Scope("acme", "user", "bob")) == [[1]]
    assert (await here.refused("sql_exec", statement=CREATE))[0] == "sql_busy"
    assert not slow.done()
    assert (await slow)[0] == "sql_timeout"


SEARCH = "SELECT instr(printf('%.*c', 1000000, 'a'), printf('%.*c', 500000, 'a') || 'b')"
DISTANCES = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c), b(v) AS MATERIALIZED (SELECT zeroblob(1000000)) "
    "SELECT count(vector_distance(v, v)) FROM c, b"
)


@pytest.mark.parametrize("statement", [SEARCH, DISTANCES], ids=["instr", "vector_distance"])
async def test_statements_that_take_minutes_end_and_starve_no_other_tenant(world: World, statement: str) -> None:
    here = world.process()

    async def slow(number: int) -> str:
        scope = Scope("acme", "user", f"eve{number}")
        try:
            await here.rows(statement, author=author_of(number, user="eve"), scope=scope)
        except Refused as refused:
            return refused.code
        except Unavailable as error:
            return error.__cause__.bound if isinstance(error.__cause__, ShareExhausted) else str(error)
        return "answered"

    async with asyncio.timeout(60):
        greedy = [asyncio.create_task(slow(number)) for number in range(16)]
        await until(lambda: here.files.slots.shares.in_use)
        for number in range(5):
            polite = author_of(number, tenant="globex")
            assert await here.rows("SELECT 1", author=polite, scope=Scope("globex", "user", "ada")) == [[1]]
        assert not all(task.done() for task in greedy)
        assert here.files.slots.shares.in_use <= 4, "half for one principal"
        ends = await asyncio.gather(*greedy)
    assert set(ends) == {"sql_timeout", "principal"}
    assert ends.count("sql_timeout") >= 4


async def test_a_cancelled_call_ends_its_statement_inside_of_a_function(world: World) -> None:
    here = world.process(limits=replace(LIMITS, statement_s=600))
    call = asyncio.create_task(here.rows(SEARCH))
    await until(lambda: here.files.slots.shares.in_use)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert here.files.slots.shares.in_use == 0
    assert await here.rows("SELECT 1") == [[1]]


async def test_a_transaction_goes_on_after_a_statement_that_was_killed(here: Process) -> None:
    await here.exec(CREATE)
    await here.do("sql_begin")
    await here.exec("INSERT INTO t(v) VALUES (1)")
    code, _ = await here.refused("sql_exec", statement=f"INSERT INTO t(v) {SEARCH}", timeout_ms=200)
    assert code == "sql_timeout"
    await here.exec("INSERT INTO t(v) VALUES (2)")
    await here.do("sql_commit")
    assert await here.rows("SELECT v FROM t", author=OTHER) == [[1], [2]]


async def test_what_is_not_in_the_log_is_not_answered_as_done(world: World) -> None:
    ann, op = world.process(), AUTHOR
    await ann.exec("CREATE TABLE stock(id INTEGER PRIMARY KEY, v)")
    for statement in (
        "CREATE TABLE temp.stock(id INTEGER PRIMARY KEY, v)",
        "CREATE VIEW temp.stock AS SELECT 1 AS id, 'forged' AS v",
        "CREATE TRIGGER temp.forge AFTER INSERT ON main.stock BEGIN DELETE FROM stock; END",
    ):
        assert (await ann.refused("sql_exec", OTHER, statement=statement))[0] == "sql_refused"
    for number in range(8):
        await ann.exec("INSERT INTO stock(v) VALUES (?)", number, author=op)
    expected = [[number] for number in range(8)]
    assert await ann.rows("SELECT v FROM stock", author=op) == expected
    assert await world.process().rows("SELECT v FROM stock", author=op) == expected


# --- the whole database ----------------------------------------------------------------------------------------------


async def test_a_dropped_database_is_empty_and_can_be_used_again(world: World) -> None:
    one, other = world.process(), world.process()
    await one.exec(CREATE)
    await other.exec("INSERT INTO t(v) VALUES (1)")
    assert await one.operations.drop(ADA, replace(AUTHOR, command_id="d"), "the run has ended")
    assert world.log.items.rows == {}
    for process in (one, other):
        assert (await process.refused("sql_query", statement=COUNT))[1] == "no such table: t"
    await other.exec(CREATE)
    assert await one.rows(COUNT) == [[0]]
    assert not await one.operations.drop(Scope("acme", "user", "bob"), replace(AUTHOR, command_id="d2"))
    world.log.quarantine("acme", ADA.aggregate)
    with pytest.raises(Refused, match="quarantined"):
        await one.operations.drop(ADA, replace(AUTHOR, command_id="d3"))


async def test_a_process_knows_which_databases_there_are_and_which_it_has_used(world: World) -> None:
    one, other = world.process(), world.process()
    bob = Scope("acme", "user", "bob")
    assert not await one.operations.exists(ADA, ())
    await one.exec(CREATE)
    await one.refused("sql_query", statement="SELECT * FROM t", scope=bob)
    assert (one.operations.has_files(ADA), other.operations.has_files(ADA)) == (True, False)
    assert await other.operations.exists(ADA, ())
    assert not await one.operations.exists(bob, ())
    await one.operations.drop(ADA, replace(AUTHOR, command_id="d"))
    assert not one.operations.has_files(ADA), "nothing is kept of a database without files"
    assert not await one.operations.exists(ADA, ())
    await one.do("sql_begin")
    assert await one.operations.exists(ADA, ())


async def test_blobs_and_pages_are_encrypted_and_read_in_plaintext(world: World) -> None:
    subjects: list[tuple[str, str]] = []

    async def encrypt(text: str, tenant: str, subject: str) -> str:
        subjects.append((tenant, subject))
        return "sealed:" + base64.b64encode(text.encode()).decode()

    async def decrypt(value: Any, tenant: str) -> Any:
        is_sealed = isinstance(value, str) and value.startswith("sealed:")
        return base64.b64decode(value[7:]).decode() if is_sealed else value

    process = world.process(encrypt=encrypt, decrypt=decrypt)
    ask: Callable[..., Any] = world.log.ask

    async def ask_encrypted(command: Any, *, wait_s: float) -> Any:
        if pages := getattr(command, "pages", ""):
            command = replace(command, pages=await encrypt(pages, "acme", "kit"))
        return await ask(command, wait_s=wait_s)

    world.log.ask = ask_encrypted  # type: ignore[method-assign]
    await process.exec(CREATE)
    await process.exec("INSERT INTO t(v) VALUES (randomblob(900000))")
    assert ("acme", "ada") in subjects
    assert all(data.startswith(b"sealed:") for data in world.blobs.blobs.values())
    again = world.process(encrypt=encrypt, decrypt=decrypt)
    assert await again.rows(COUNT) == [[1]]

    async def erased(value: Any, tenant: str) -> Any:
        return ERASED

    code, message = await world.process(decrypt=erased).refused("sql_query", statement=COUNT)
    assert (code, "erased" in message) == ("sqlmem_unavailable", True)


async def test_the_default_limits_are_those_of_the_reference() -> None:
    defaults = SqlLimits()
    assert (defaults.rows_max, defaults.statement_s, defaults.idle_s, defaults.transactions_max) == (10_000, 30, 30, 64)
    assert (defaults.depth_max, defaults.quota_bytes, defaults.busy_wait_s) == (16, 50 * 1024 * 1024, 5)
    assert limits.CHANGES_PER_COPY == 1_000


async def test_forgotten_files_are_removed_and_made_again_and_a_transaction_goes_on(here: Process) -> None:
    await here.exec(CREATE)
    await here.do("sql_begin")
    await here.exec("INSERT INTO t(v) VALUES ('a')")
    folder = here.files._folder.path
    assert len(list(folder.glob("*.db"))) == 2
    here.files.forget("globex")
    assert len(here.files._tasks) == 0
    here.files.forget("acme")
    while here.files._tasks:
        await asyncio.sleep(0.001)
    assert list(folder.iterdir()) == []
    assert await here.rows("SELECT v FROM t") == [["a"]]
    await here.do("sql_commit")
    here.files.forget("acme")
    assert await here.rows("SELECT v FROM t") == [["a"]], "at once, from the log"


async def test_files_are_not_removed_from_under_a_call(here: Process) -> None:
    await here.exec(CREATE)
    async with here.files.hold(ADA, 1) as held:
        here.files.forget("acme")
        await asyncio.sleep(0.01)
        assert held.files
    while here.files._tasks:
        await asyncio.sleep(0.001)
    assert held.files == {}
