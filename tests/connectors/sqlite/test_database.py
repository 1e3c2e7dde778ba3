"""Statements on a file, their limits, and the pages they write."""

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loomlog.connectors.sqlite.database import ChangeResult, ScopeDatabase
from loomlog.connectors.sqlite.errors import FileDamaged, FileFailed, StatementRefused
from loomlog.connectors.sqlite.pages import GENESIS, PAGE_BYTES, PageChange, pack, page_change, unpack
from loomlog.connectors.sqlite.statement import encode_vector


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ScopeDatabase]:
    opened = ScopeDatabase(tmp_path / "a.db")
    yield opened
    opened.close()


def do(database: ScopeDatabase, statement: str, *values: Any, **more: Any) -> ChangeResult:
    result = database.change(statement, values, **more)
    database.keep()
    return result


def rows(database: ScopeDatabase, statement: str, *values: Any) -> Any:
    return database.query(statement, values).rows


def refusal(database: ScopeDatabase, statement: str, *values: Any, **more: Any) -> tuple[str, str]:
    run = database.query if statement.lstrip().upper().startswith(("SELECT", "VALUES")) else database.change
    with pytest.raises(StatementRefused) as caught:
        run(statement, values, **more)
    return caught.value.code, str(caught.value)


def content(database: ScopeDatabase) -> str:
    database.close()
    return hashlib.sha256(database.path.read_bytes()).hexdigest()


class Replica:
    """A file to which packed changes are applied."""

    def __init__(self, path: Path) -> None:
        self.database, self.chain = ScopeDatabase(path), GENESIS

    def apply(self, result: ChangeResult) -> None:
        if result.change is not None:
            change = unpack(list(pack(result.change)))
            self.chain = change.chain(self.chain)
            self.database.apply(change)


SCRIPT = (
    "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, at TEXT)",
    "INSERT INTO t(name, at) VALUES ('a', datetime('now')), ('b', random())",
    "CREATE TABLE keyless(a, b)",
    "INSERT INTO keyless VALUES (1, 2), (1, 2)",
    "CREATE TABLE pairs(a TEXT, b TEXT, PRIMARY KEY (a, b)) WITHOUT ROWID",
    "INSERT INTO pairs VALUES ('x', 'y')",
    "CREATE VIRTUAL TABLE notes USING fts5(text)",
    "INSERT INTO notes VALUES ('the quick brown fox')",
    "CREATE INDEX by_name ON t(name)",
    "CREATE VIEW v AS SELECT name FROM t",
    "CREATE TRIGGER copy AFTER INSERT ON keyless BEGIN INSERT INTO t(name) VALUES (new.a); END",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 500) "
    "INSERT INTO keyless SELECT x, hex(randomblob(40)) FROM c",
    "UPDATE t SET at = random()",
    "DELETE FROM keyless",
    "REPLACE INTO t(id, name) VALUES (1, 'z')",
    "INSERT INTO notes VALUES ('over the lazy dog')",
    "INSERT INTO notes(notes) VALUES ('optimize')",
    "ALTER TABLE t ADD COLUMN more",
    "ALTER TABLE t RENAME COLUMN more TO less",
    "ALTER TABLE pairs RENAME TO couples",
    "DROP TABLE notes",
    "DROP TABLE keyless",
    "CREATE TABLE large AS SELECT zeroblob(900000) AS b",
    "DROP TABLE large",
)


def test_changes_give_the_same_bytes_wherever_they_are_applied(database: ScopeDatabase, tmp_path: Path) -> None:
    one, late = Replica(tmp_path / "b.db"), Replica(tmp_path / "c.db")
    chain, results = GENESIS, []
    for statement in SCRIPT:
        result = do(database, statement)
        results.append(result)
        assert result.change is not None
        chain = result.change.chain(chain)
        one.apply(result)
        assert one.chain == chain
        assert content(one.database) == content(database), statement
        assert database.size_bytes == result.change.page_count * PAGE_BYTES
    for result in results:
        late.apply(result)
    assert content(late.database) == content(database)
    assert rows(late.database, "SELECT name FROM v LIMIT 0") == []


def test_a_replica_goes_on_where_the_other_stopped(database: ScopeDatabase, tmp_path: Path) -> None:
    other = Replica(tmp_path / "b.db")
    assert rows(other.database, "SELECT 1") == [[1]]
    for number, statement in enumerate(SCRIPT):
        executing, applying = (database, other.database) if number % 2 else (other.database, database)
        result = do(executing, statement)
        assert result.change is not None
        applying.apply(result.change)
        assert content(database) == content(other.database)


STATEMENTS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)",
                "CREATE TABLE IF NOT EXISTS k(a PRIMARY KEY, b) WITHOUT ROWID",
                "CREATE VIRTUAL TABLE IF NOT EXISTS f USING fts5(x)",
                "INSERT INTO t(v) VALUES (randomblob(3000))",
                "INSERT OR REPLACE INTO k VALUES (random() % 5, hex(randomblob(700)))",
                "INSERT INTO f VALUES ('word ' || random())",
                "DELETE FROM t WHERE id % 2",
                "DELETE FROM f",
                "UPDATE k SET b = randomblob(10)",
                "DROP TABLE IF EXISTS t",
                "CREATE INDEX IF NOT EXISTS i ON t(v)",
            )
        ),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STATEMENTS)
def test_discarded_changes_leave_no_trace(steps: list[tuple[str, bool]], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("replicas")
    database, replica = ScopeDatabase(folder / "a.db"), Replica(folder / "b.db")
    database.query("SELECT 1")
    replica.database.query("SELECT 1")
    for statement, is_kept in steps:
        try:
            result = database.change(statement)
        except StatementRefused:  # no such table
            continue
        if is_kept:
            database.keep()
            replica.apply(result)
        else:
            database.discard()
        assert (
            database.query("SELECT count(*) FROM sqlite_master").rows
            == replica.database.query("SELECT count(*) FROM sqlite_master").rows
        )
    assert content(database) == content(replica.database)


PLACE = st.sampled_from(("", "", "main.", "temp.", '"temp".', "TEMP . ", "temporary."))
TABLE = st.sampled_from(("t", "u", "v", "f"))
KIND = st.sampled_from(("", "", "TEMP ", "TEMPORARY "))
ANY_STATEMENT = st.one_of(
    st.builds("CREATE {}TABLE {}{}(id INTEGER PRIMARY KEY, v)".format, KIND, PLACE, TABLE),
    st.builds("CREATE {}TABLE {}{} AS SELECT 1 AS id, 'other' AS v".format, KIND, PLACE, TABLE),
    st.builds("CREATE {}VIEW {}{} AS SELECT 7 AS id, 'view' AS v".format, KIND, PLACE, TABLE),
    st.builds("CREATE {}TABLE {}{}(id PRIMARY KEY, v) WITHOUT ROWID".format, KIND, PLACE, TABLE),
    st.builds("CREATE VIRTUAL TABLE {}{} USING fts5(id, v)".format, PLACE, TABLE),
    st.builds("CREATE {}TRIGGER {}g AFTER INSERT ON {}{} BEGIN DELETE FROM u; END".format, KIND, PLACE, PLACE, TABLE),
    st.builds(
        "CREATE TRIGGER {}h INSTEAD OF INSERT ON {}{} BEGIN INSERT INTO t(v) VALUES ('h'); END".format,
        PLACE,
        PLACE,
        TABLE,
    ),
    st.builds("CREATE INDEX {}i ON {}(v)".format, PLACE, TABLE),
    st.builds("INSERT INTO {}{}(id, v) VALUES (abs(random()) % 50, random())".format, PLACE, TABLE),
    st.builds("REPLACE INTO {}{}(id, v) VALUES (1, 'same')".format, PLACE, TABLE),
    st.builds("UPDATE {}{} SET v = {}".format, PLACE, TABLE, st.sampled_from(("v", "random()", "id"))),
    st.builds("WITH x AS (SELECT 3 AS id) INSERT INTO {}{}(v) SELECT id FROM x".format, PLACE, TABLE),
    st.builds("DELETE FROM {}{} WHERE id % 3".format, PLACE, TABLE),
    st.builds("ALTER TABLE {}{} RENAME TO {}".format, PLACE, TABLE, TABLE),
    st.builds("ALTER TABLE {}{} ADD COLUMN w".format, PLACE, TABLE),
    st.builds("DROP {} IF EXISTS {}{}".format, st.sampled_from(("TABLE", "VIEW")), PLACE, TABLE),
    st.builds("DROP TRIGGER IF EXISTS {}g".format, PLACE),
)


def answers(database: ScopeDatabase) -> list[Any]:
    """What a caller sees: the objects by their names, and the rows under each name that there may be."""
    seen: list[Any] = []
    for statement in (
        "SELECT type, name, sql FROM sqlite_schema ORDER BY name",
        *(f"SELECT * FROM {name} ORDER BY 1, 2" for name in ("t", "u", "v", "f")),
    ):
        try:
            seen.append(database.query(statement).rows)
        except StatementRefused as refused:
            seen.append(str(refused))
    return seen


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(ANY_STATEMENT, max_size=12))
def test_what_was_accepted_is_in_the_pages(steps: list[str], tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("pages")
    database, replica = ScopeDatabase(folder / "a.db"), Replica(folder / "b.db")
    do(database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    replica.database.apply(database.copy())
    for statement in steps:
        try:
            replica.apply(do(database, statement))
        except StatementRefused:
            pass
        assert answers(database) == answers(replica.database), statement
        replica.database.close()
    database.close()


def test_a_connection_with_a_temporary_table_serves_nobody(
    database: ScopeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(database, "CREATE TABLE t(a)")
    monkeypatch.setattr("loomlog.connectors.sqlite.database.refused_action", lambda *action: "")
    with pytest.raises(StatementRefused, match="temp, which is not kept"):
        database.change("CREATE TABLE temp.t(a)")
    assert do(database, "INSERT INTO t VALUES (1)").change is not None
    assert rows(database, "SELECT a FROM t") == [[1]]


def test_a_change_that_is_neither_kept_nor_discarded_is_gone_with_the_next_one(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE t(a)")
    database.change("INSERT INTO t VALUES (1)")
    do(database, "INSERT INTO t VALUES (2)")
    assert rows(database, "SELECT a FROM t") == [[2]]


def test_what_is_answered(database: ScopeDatabase) -> None:
    created = do(database, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)")
    assert (created.rows_affected, created.last_insert_id) == (0, 0)
    result = do(database, "INSERT INTO t(v) VALUES (?), (?), (?);  -- three", 1, "zwei", b"\x00\xff")
    assert (result.rows_affected, result.last_insert_id) == (3, 3)
    changed = do(database, "UPDATE t SET v = NULL WHERE id = 1")
    assert (changed.rows_affected, changed.last_insert_id) == (1, 0)
    assert do(database, "INSERT INTO t(v) VALUES (9) RETURNING id").last_insert_id == 4
    assert do(database, "DELETE FROM t WHERE id > 99").change is None
    selected = database.query("select id, v, 9e999 as big, 9007199254740993 as n from t where id < 4")
    assert selected.columns == ("id", "v", "big", "n")
    assert selected.rows == [
        [1, None, "Infinity", 9007199254740993],
        [2, "zwei", "Infinity", 9007199254740993],
        [3, {"$blob": "AP8="}, "Infinity", 9007199254740993],
    ]
    assert not selected.truncated
    assert database.query("SELECT v FROM t WHERE id = 77").columns == ("v",)


TEMPORARY = "the database temp is not allowed, only main"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("", "empty"),
        (" ;; -- only a comment", "empty"),
        ("/* open", "empty"),
        ("INSERT INTO t VALUES (1); DROP TABLE t", "one statement"),
        ("INSERT INTO t VALUES (1); /* x */ ; SELECT 1", "one statement"),
        ("SELECT 1; SELECT 2", "one statement"),
        ("ATTACH 'x.db' AS x", "ATTACH is not allowed"),
        ("DETACH main", "DETACH is not allowed"),
        ("VACUUM", "VACUUM is not allowed"),
        ("VACUUM INTO 'x.db'", "VACUUM is not allowed"),
        ("PRAGMA writable_schema = 1", "PRAGMA is not allowed"),
        ("BEGIN", "BEGIN is not allowed"),
        ("COMMIT", "COMMIT is not allowed"),
        ("SAVEPOINT a", "SAVEPOINT is not allowed"),
        ("EXPLAIN SELECT 1", "EXPLAIN is not allowed"),
        ("ANALYZE", "ANALYZE is not allowed"),
        ("REINDEX", "REINDEX is not allowed"),
        ("?", r"\? is not allowed"),
        ("SELECT load_extension('x.so')", "load_extension|no such function"),
        ("SELECT * FROM pragma_database_list", "not allowed|prohibited|unsafe"),
        ("CREATE TEMP TABLE x(a)", TEMPORARY),
        ("CREATE TEMP TABLE x AS SELECT 1 AS a", TEMPORARY),
        ("CREATE TABLE temp.t(a)", TEMPORARY),
        ("CREATE TABLE Temp . t AS SELECT 1 AS a", TEMPORARY),
        ('CREATE TABLE "temp"."t"(a)', TEMPORARY),
        ("CREATE TABLE IF NOT EXISTS [temp].t(a PRIMARY KEY) WITHOUT ROWID", TEMPORARY),
        ("CREATE TABLE temporary.t(a)", "unknown database temporary"),
        ("CREATE TEMP VIEW x AS SELECT 1", TEMPORARY),
        ("CREATE VIEW temp.t AS SELECT 1 AS a", TEMPORARY),
        ("CREATE TEMP TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END", TEMPORARY),
        ("CREATE TRIGGER temp.x AFTER INSERT ON t BEGIN DELETE FROM t; END", TEMPORARY),
        ("CREATE TRIGGER temp.x AFTER INSERT ON main.t BEGIN SELECT 1; END", TEMPORARY),
        ("CREATE VIRTUAL TABLE temp.t USING fts5(a)", TEMPORARY),
        ("CREATE VIRTUAL TABLE temp.t USING rtree(id, a, b)", TEMPORARY),
        ("CREATE INDEX temp.i ON t(a)", "cannot create a TEMP index"),
        ("INSERT INTO temp.sqlite_schema VALUES ('table', 't', 't', 0, '')", TEMPORARY),
        ("UPDATE temp.sqlite_master SET sql = ''", "may not be modified"),
        ("UPDATE sqlite_temp_master SET sql = ''", "may not be modified"),
        ("DELETE FROM sqlite_temp_schema", "may not be modified"),
        ("DROP TABLE temp.sqlite_temp_master", TEMPORARY),
        ("INSERT INTO temp.t VALUES (1)", "no such table: temp.t"),
        ("CREATE VIRTUAL TABLE x USING dbstat(main)", "virtual tables of dbstat"),
        ("INSERT INTO sqlite_master VALUES ('table', 'x', 'x', 0, '')", "may not be modified"),
        ("UPDATE sqlite_schema SET sql = ''", "may not be modified"),
        ("DELETE FROM sqlite_master", "may not be modified"),
        ("DROP TABLE sqlite_master", "may not be dropped"),
        ("INSERT INTO f_data VALUES (1, x'00')", "may not be modified"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "use sql_query"),
        ("INSERT INTO nowhere VALUES (1)", "no such table: nowhere"),
        ("INSERT INTO t VALUES (", "incomplete input"),
        ("INSERT INTO t VALUES (1, 2)", "has 1 columns but 2 values"),
        ("INSERT INTO t VALUES (\0)", "NUL"),
        ("INSERT INTO t VALUES ('\ud800')", "surrogate"),
        ("INSERT INTO t VALUES ('" + "x" * 70_000 + "')", "at most 65536"),
        ("SELECT zeroblob(1000000000)", "too big"),
        ("INSERT INTO t VALUES (zeroblob(1000000000))", "too big"),
        ("SELECT replace(hex(zeroblob(400000)), '0', 'xxxxxxxxxx')", "too big"),
        ("SELECT CAST(x'ff' AS TEXT)", "no UTF-8"),
        ("SELECT 1" + "+1" * 600, "too large"),
        ("SELECT 1" + " UNION SELECT 1" * 150, "too many terms"),
        ("SELECT " + ",".join("1" * 1 for _ in range(300)), "too many columns"),
    ],
)
def test_what_is_refused(database: ScopeDatabase, statement: str, reason: str) -> None:
    for before in (
        "CREATE TABLE t(a)",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
    ):
        do(database, before)
    before_bytes = content(database)
    code, message = refusal(database, statement)
    assert code == "sql_refused"
    assert re.search(reason, message), message
    assert content(database) == before_bytes
    assert do(database, "INSERT INTO t VALUES (1)").rows_affected == 1


def test_triggers_do_not_loop(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE t(a)")
    do(database, "CREATE TABLE u(a)")
    do(database, "CREATE TRIGGER one AFTER INSERT ON t BEGIN INSERT INTO u VALUES (new.a + 1); END")
    do(database, "CREATE TRIGGER two AFTER INSERT ON u BEGIN INSERT INTO t VALUES (new.a + 1); END")
    do(database, "INSERT INTO t VALUES (1)")
    assert rows(database, "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)") == [[2, 1]]


def test_a_query_writes_nothing(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE t(a)")
    for statement in ("INSERT INTO t VALUES (1)", "DELETE FROM t", "VALUES (1)", "CREATE TABLE u(a)"):
        with pytest.raises(StatementRefused, match="expected SELECT, WITH"):
            database.query(statement)
    with pytest.raises(StatementRefused, match="readonly"):
        database.query("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x")
    assert do(database, "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x").rows_affected == 1


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS.replace("WITH", "SELECT (WITH", 1) + "SELECT count(*) FROM c)",
        "SELECT count(*) FROM n a, n b, n c, n d, n e, n f",
        "INSERT INTO n SELECT a.x FROM n a, n b, n c, n d, n e WHERE a.x + b.x + c.x + d.x + e.x < 0",
        "UPDATE n SET x = (" + ENDLESS + "SELECT max(x) FROM c)",
        "INSERT INTO t SELECT 1 FROM n a, n b, n c WHERE length(hex(randomblob(400000 + b.x + c.x))) < 0",
    ],
)
def test_an_endless_statement_is_stopped(database: ScopeDatabase, statement: str) -> None:
    do(database, "CREATE TABLE n(x)")
    do(database, "CREATE TABLE t(a)")
    do(database, ENDLESS + "INSERT INTO n SELECT x FROM c LIMIT 300")
    before, started = content(database), time.monotonic()
    assert refusal(database, statement, timeout_s=0.5)[0] == "sql_timeout"
    assert time.monotonic() - started < 60
    assert content(database) == before
    assert rows(database, "SELECT count(*) FROM n") == [[300]]


def test_memory_is_bounded(database: ScopeDatabase) -> None:
    code, message = refusal(
        database,
        "SELECT count(*) FROM (WITH RECURSIVE c(x) AS (SELECT hex(zeroblob(50000)) || 0 UNION "
        "SELECT substr(x, 1, 100000) || (CAST(substr(x, 100001) AS INTEGER) + 1) FROM c) SELECT x FROM c)",
    )
    assert code == "sql_refused"
    assert "more memory" in message
    assert rows(database, "SELECT 1") == [[1]]
    database.close()


def test_results_are_bounded(tmp_path: Path) -> None:
    database = ScopeDatabase(tmp_path / "a.db", result_bytes_max=1_000)
    many = database.query(ENDLESS + "SELECT x FROM c", rows_max=10)
    assert (many.truncated, many.rows[-1]) == (True, [10])
    assert not database.query(ENDLESS + "SELECT x FROM c LIMIT 10", rows_max=10).truncated
    long = database.query(ENDLESS + "SELECT hex(zeroblob(150)) FROM c")
    assert (long.truncated, len(long.rows)) == (True, 3)
    with pytest.raises(StatementRefused, match="a row is longer than 1000 bytes"):
        database.query("SELECT hex(zeroblob(600))")
    database.close()


def test_the_quota_bounds_the_file(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE t(a)")
    code, message = refusal(database, "INSERT INTO t VALUES (zeroblob(200000))", quota_bytes=100_000)
    assert code == "sql_quota_exceeded"
    assert "larger than 99328 bytes" in message
    do(database, "INSERT INTO t VALUES (zeroblob(200000))", quota_bytes=300_000)
    assert do(database, "DELETE FROM t", quota_bytes=100_000).rows_affected == 1


def test_vectors(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE v(id INTEGER PRIMARY KEY, e BLOB)")
    for vector in ((1, 0, 0), (0, 1, 0), (-1, 0, 0), (2, 2, 0)):
        do(database, "INSERT INTO v(e) VALUES (?)", encode_vector(vector))
    found_rows = rows(database, "SELECT id, vector_distance(e, ?) FROM v ORDER BY 2, 1", encode_vector((1, 0, 0)))
    assert [row[0] for row in found_rows] == [1, 4, 2, 3]
    assert [row[1] for row in found_rows] == pytest.approx([0, 1 - 2**-0.5, 1, 2], abs=1e-6)
    for other in (encode_vector((1, 0)), b"", b"abc", "text", None, 7, encode_vector((0, 0, 0))):
        assert rows(database, "SELECT vector_distance(?, ?)", other, encode_vector((1, 0, 0))) == [[None]]


def test_the_bindings_are_counted(database: ScopeDatabase) -> None:
    assert "uses 2 and there are 1" in refusal(database, "SELECT ?, ?", 1)[1]
    assert "uses 1 and there are 2" in refusal(database, "SELECT ?", 1, 2)[1]


def test_a_copy_is_the_file(database: ScopeDatabase, tmp_path: Path) -> None:
    for statement in SCRIPT[:8]:
        do(database, statement)
    other = ScopeDatabase(tmp_path / "b.db")
    other.apply(unpack(list(pack(database.copy()))))
    assert content(other) == content(database)
    assert rows(other, "SELECT * FROM notes WHERE notes MATCH 'fox'") == [["the quick brown fox"]]
    assert ScopeDatabase(tmp_path / "none.db").copy().page_count == 0


def test_a_damaged_file_is_reported(database: ScopeDatabase) -> None:
    do(database, "CREATE TABLE t(a)")
    database.close()
    database.path.write_bytes(b"x" * 2048)
    with pytest.raises(FileFailed):
        database.query("SELECT * FROM t")
    database.delete()
    assert rows(database, "SELECT 1") == [[1]]
    do(database, "CREATE TABLE t(a)")
    database.close()
    damaged = bytearray(database.path.read_bytes())
    damaged[1024:2048] = b"\xff" * 1024
    database.path.write_bytes(damaged)
    with pytest.raises(FileDamaged):
        database.query("SELECT * FROM t")


def test_a_folder_that_is_gone_is_reported(tmp_path: Path) -> None:
    database = ScopeDatabase(tmp_path / "no" / "a.db")
    with pytest.raises(FileFailed):
        database.query("SELECT 1")
    with pytest.raises(FileFailed):
        database.apply(page_change(1, {1: bytes(PAGE_BYTES)}))


# --- packed pages ----------------------------------------------------------------------------------------------------


def test_large_changes_have_several_parts() -> None:
    change = page_change(9_000, {number: number.to_bytes(4) * 256 for number in range(1, 9_001)})
    parts = list(pack(change))
    assert len(parts) == 3
    assert unpack(parts) == change
    assert unpack(list(pack(page_change(0, {})))).pages == {}


def test_the_chain_depends_on_everything() -> None:
    change = PageChange(nonce=b"n" * 16, page_count=2, pages={1: b"a" * PAGE_BYTES, 2: b"b" * PAGE_BYTES})
    others = [
        PageChange(nonce=b"m" * 16, page_count=2, pages=change.pages),
        PageChange(nonce=change.nonce, page_count=3, pages=change.pages),
        PageChange(nonce=change.nonce, page_count=2, pages={1: change.pages[1]}),
        PageChange(nonce=change.nonce, page_count=2, pages={1: change.pages[2], 2: change.pages[1]}),
    ]
    values = {one.chain(GENESIS) for one in (change, *others)} | {change.chain("1" * 64)}
    assert len(values) == 6
    assert change.chain(GENESIS) == change.chain(GENESIS)


@pytest.mark.parametrize("damage", [b"", b"x" * 30, b"\x02" + bytes(24)])
def test_parts_that_were_altered_are_refused(damage: bytes) -> None:
    with pytest.raises(FileFailed):
        unpack([damage])


def test_a_part_does_not_unpack_to_more_than_it_says() -> None:
    (part,) = pack(page_change(3, {number: bytes(PAGE_BYTES) for number in range(1, 4)}))
    fewer = part[:24] + (1).to_bytes(1) + part[25:]
    with pytest.raises(FileFailed, match="expected 1 pages"):
        unpack([fewer])
    with pytest.raises(FileFailed, match="page 3 of 2"):
        unpack([part[:17] + (2).to_bytes(4) + part[21:]])
