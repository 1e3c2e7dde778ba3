import asyncio

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolTimeout, TooManyRequests
from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, Table, Text, func, select
from sqlalchemy.types import JSON

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage import postgres as module
from loomlog.connectors.storage.postgres import (
    PostgresOptions,
    StatementCache,
    connect,
    create_tables,
    open_reader,
    to_connector_error,
    translate_errors,
)

THINGS = Table(
    "things",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("size", BigInteger),
    Column("raw", LargeBinary),
    Column("event", JSON),
    Index("things_size", "size"),
)


def given(dsn: str, **more) -> dict:
    return conninfo_to_dict(PostgresOptions(dsn=dsn, **more).conninfo())


# --- how the server is reached ---------------------------------------------------------------------------------------


def test_every_connection_has_bounds_and_keepalives():
    found = given("postgresql://u@h:5/d")
    assert (found["host"], found["port"], found["dbname"], found["connect_timeout"]) == ("h", "5", "d", "5")
    assert (found["keepalives_idle"], found["application_name"]) == ("10", "loomlog")
    for bound in ("lock_timeout=10000", "idle_in_transaction_session_timeout=30000", "tcp_keepalives_idle=10"):
        assert f"-c {bound}" in found["options"]


def test_what_the_operator_wrote_wins_over_our_defaults_and_adds_to_the_bounds():
    found = given("host=h connect_timeout=9 application_name=mine options='-c lock_timeout=5'")
    assert (found["connect_timeout"], found["application_name"]) == ("9", "mine")
    assert found["options"].endswith("-c lock_timeout=5")


def test_tls_settings_win_over_the_connection_string():
    tls = {"sslmode": "verify-full", "sslrootcert": "/certs/ca.pem"}
    found = given("postgresql://h/d?sslmode=disable", tls=tls)
    assert (found["sslmode"], found["sslrootcert"]) == ("verify-full", "/certs/ca.pem")


@pytest.mark.parametrize("dsn", ["postgresql://u:hunter2@h:5/d", "password=hunter2 host=h"])
def test_a_password_is_never_shown(dsn):
    options = PostgresOptions(dsn=dsn)
    assert "hunter2" not in repr(options) + options.address


@pytest.mark.parametrize("dsn", ["nonsense hunter2", "postgresql://h?hunter2=1", "hunter2"])
def test_an_unreadable_connection_string_says_what_was_expected_and_not_what_was_given(dsn):
    with pytest.raises(Permanent, match="LOOMLOG_POSTGRES") as caught:
        PostgresOptions(dsn=dsn).conninfo()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_server_that_is_not_there_is_transient():
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1/d") as caught:
        await connect(PostgresOptions(dsn="postgresql://u@127.0.0.1:1/d"))
    assert caught.value.kind == "unavailable"


async def test_a_server_that_never_answers_is_given_up():
    async def silence(reader, writer):
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(30):
        with pytest.raises(Transient) as caught:
            await connect(PostgresOptions(dsn=f"postgresql://u@127.0.0.1:{port}/d?connect_timeout=2"))
    assert caught.value.kind == "timeout"
    server.close()


async def test_a_database_or_role_that_does_not_exist_is_permanent(postgres):
    for change in ({"dbname": "no_such_database"}, {"user": "no_such_role"}):
        dsn = psycopg.conninfo.make_conninfo(postgres, **change)
        with pytest.raises(Permanent) as caught:
            await connect(PostgresOptions(dsn=dsn))
        # A server that asks for passwords does not tell which roles there are.
        assert caught.value.kind in ("not_found", "unauthorised")


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.AdminShutdown("x"), "broken_off"),
        (errors.DeadlockDetected("x"), "broken_off"),
        (errors.SerializationFailure("x"), "broken_off"),
        (errors.ConnectionFailure("x"), "broken_off"),
        (errors.IoError("x"), "broken_off"),
        (errors.CannotConnectNow("x"), "overloaded"),
        (errors.TooManyConnections("x"), "overloaded"),
        (errors.DiskFull("x"), "overloaded"),
        (errors.QueryCanceled("x"), "timeout"),
        (errors.LockNotAvailable("x"), "timeout"),
        (errors.IdleInTransactionSessionTimeout("x"), "timeout"),
        (psycopg.errors.ConnectionTimeout("x"), "timeout"),
        (psycopg.OperationalError("the connection is closed"), "unavailable"),
        (psycopg.InterfaceError("the cursor is closed"), "unavailable"),
        (psycopg.OperationalError("FATAL:  sorry, too many clients already"), "overloaded"),
        (PoolTimeout("x"), "overloaded"),
        (TooManyRequests("x"), "overloaded"),
        (ConnectionResetError("x"), "network"),
    ],
)
def test_what_may_go_away_is_transient(error, kind):
    found = to_connector_error("read", error)
    assert isinstance(found, Transient)
    assert found.kind == kind
    assert str(found).startswith("read: ")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.InvalidPassword("x"), "unauthorised"),
        (psycopg.OperationalError('FATAL:  password authentication failed for user "u"'), "unauthorised"),
        (errors.UndefinedTable("x"), "not_found"),
        (errors.UndefinedColumn("x"), "not_found"),
        (errors.InvalidCatalogName("x"), "not_found"),
        (errors.InsufficientPrivilege("x"), "forbidden"),
        (errors.UniqueViolation("x"), "invalid"),
        (errors.InvalidTextRepresentation("x"), "invalid"),
        (errors.SyntaxError("x"), "invalid"),
        (psycopg.DataError("zero"), "invalid"),
        (psycopg.ProgrammingError("x"), "invalid"),
    ],
)
def test_what_stays_wrong_is_permanent(error, kind):
    found = to_connector_error("read", error)
    assert isinstance(found, Permanent)
    assert found.kind == kind


def test_no_error_of_the_driver_leaks():
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, psycopg.Error)]
    assert len(classes) > 200
    for found in (to_connector_error("try", error("x")) for error in classes):
        assert isinstance(found, ConnectorError)


async def test_errors_keep_their_cause_and_others_pass_through():
    with pytest.raises(Transient) as caught:
        async with translate_errors("read"):
            raise errors.AdminShutdown("x")
    assert isinstance(caught.value.__cause__, errors.AdminShutdown)
    with pytest.raises(ZeroDivisionError):
        async with translate_errors("read"):
            raise ZeroDivisionError


# --- tables and reads ------------------------------------------------------------------------------------------------


@pytest.fixture
async def things(postgres, pg_schema):
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        await create_tables(connection, THINGS.metadata, pg_schema)
        await create_tables(connection, THINGS.metadata, pg_schema)
        await connection.execute(
            f"INSERT INTO {pg_schema}.things VALUES ('a', 1, '\\x00ff', '{{\"b\": 1,  \"a\": \"\\u0000\"}}')"
        )
    return pg_schema


async def test_a_row_is_read_with_json_as_it_was_written(postgres, things):
    reader = await open_reader(PostgresOptions(dsn=postgres), schema=things)
    try:
        rows = await reader.fetch(select(THINGS).where(THINGS.c.name.in_(["a", "b"])))
    finally:
        await reader.close()
    assert rows == [("a", 1, b"\x00\xff", '{"b": 1,  "a": "\\u0000"}')]


async def test_tables_and_indexes_are_made_where_they_belong(postgres, things):
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        found = await connection.execute("SELECT indexname FROM pg_indexes WHERE schemaname = %s ORDER BY 1", (things,))
        assert await found.fetchall() == [("things_pkey",), ("things_size",)]
        here = await connection.execute("SHOW search_path")
        assert await here.fetchone() == ('"$user", public',)


async def test_a_read_of_a_missing_table_says_so(postgres, pg_schema):
    reader = await open_reader(PostgresOptions(dsn=postgres), schema=pg_schema)
    try:
        with pytest.raises(Permanent, match="does not exist") as caught:
            await reader.fetch(select(THINGS))
    finally:
        await reader.close()
    assert caught.value.kind == "not_found"


async def test_a_connection_that_died_while_idle_is_replaced(postgres, things):
    reader = await open_reader(PostgresOptions(dsn=postgres), schema=things, max_connections=1)
    try:
        ((pid,),) = await reader.fetch(select(func.pg_backend_pid()))
        async with await connect(PostgresOptions(dsn=postgres)) as other:
            await other.execute("SELECT pg_terminate_backend(%s)", (pid,))
        assert len(await reader.fetch(select(THINGS))) == 1
    finally:
        await reader.close()


async def test_reads_beyond_the_pool_wait_a_bounded_time(postgres, things, monkeypatch):
    monkeypatch.setattr(module, "POOL_WAIT_S", 0.1)
    reader = await open_reader(PostgresOptions(dsn=postgres), schema=things, max_connections=1)
    try:
        slow = asyncio.create_task(reader.fetch(select(func.pg_sleep(0.5))))
        await asyncio.sleep(0)
        with pytest.raises(Transient) as caught:
            await reader.fetch(select(THINGS))
        assert caught.value.kind == "overloaded"
        await slow
    finally:
        await reader.close()


async def test_a_reader_opens_while_the_server_is_away_and_its_reads_say_so(monkeypatch):
    monkeypatch.setattr(module, "POOL_WAIT_S", 0.2)
    reader = await open_reader(PostgresOptions(dsn="postgresql://u@127.0.0.1:1/d"), schema="s")
    try:
        with pytest.raises(Transient, match="Postgres is away"):
            await reader.fetch(select(THINGS))
    finally:
        await reader.close()


def test_a_statement_is_compiled_once_for_all_its_values() -> None:
    statements = StatementCache("here")
    texts = {statements.compile(select(THINGS).where(THINGS.c.name == name))[0] for name in "abc"}
    (text,) = texts
    assert "here.things" in text
    assert statements.compile(select(THINGS).where(THINGS.c.name == "d"))[1] == {"name_1": "d"}
    assert statements.compilations == 1


def test_a_list_of_values_in_the_text_is_never_taken_for_another_list() -> None:
    statements = StatementCache("here")
    for names in (["a"], ["a", "b"], ["c"]):
        text, parameters = statements.compile(select(THINGS).where(THINGS.c.name.in_(names)))
        assert sorted(parameters.values()) == names
        assert text.count("%(") == len(names)


def test_the_statements_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATEMENTS_MAX", 2)
    statements = StatementCache("here")
    for _ in range(2):
        for columns in ((THINGS.c.name,), (THINGS.c.size,), (THINGS.c.name, THINGS.c.size)):
            statements.compile(select(*columns))
            assert len(statements._compiled) <= 2
