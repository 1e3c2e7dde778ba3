import importlib.util
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.ports import pick_port
from loomlog.services.cli.stack.postgres import (
    HBA_RULES,
    SETTINGS,
    Postgres,
    check_data,
    find_programs,
    is_postgres_of,
    needed_connections,
    ping_postgres,
    read_max_connections,
    redact_password,
    remove_stale_pid_file,
)
from loomlog.services.cli.stack.record import ChildRecord
from loomlog.services.cli.stack.supervisor import Supervisor


def test_the_wheel_has_the_programs() -> None:
    assert (find_programs() / "initdb").exists()


def test_a_missing_wheel_is_said_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(StackError, match=r"pip install 'loomlog\[local\]'.*LOOMLOG_POSTGRES"):
        find_programs()


def test_data_of_another_major_version_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "PG_VERSION").write_text("18\n")
    check_data(tmp_path)
    (tmp_path / "PG_VERSION").write_text("17\n")
    with pytest.raises(StackError, match=r"its PG_VERSION is 17\. .*rebuilt from the log: move the folder away"):
        check_data(tmp_path)


def test_a_folder_that_is_no_database_is_said(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="its PG_VERSION is none"):
        check_data(tmp_path)


def test_a_pid_file_that_names_a_stranger_is_removed(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n/elsewhere\n")
    assert remove_stale_pid_file(tmp_path)
    assert not (tmp_path / "postmaster.pid").exists()


def test_a_damaged_pid_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text("garbage")
    assert remove_stale_pid_file(tmp_path)


def test_a_pid_file_of_a_dead_process_is_left_to_postgres(tmp_path: Path) -> None:
    assert not remove_stale_pid_file(tmp_path)
    (tmp_path / "postmaster.pid").write_text("4194303999\n")
    assert not remove_stale_pid_file(tmp_path)
    assert (tmp_path / "postmaster.pid").exists()


def test_only_the_postgres_of_this_folder_is_ours(tmp_path: Path) -> None:
    home = open_home(tmp_path / "one")
    assert is_postgres_of(home, ["/x/bin/postgres", "-D", str(home.postgres_data)])
    assert not is_postgres_of(home, ["/x/bin/postgres", "-D", str(open_home(tmp_path / "two").postgres_data)])
    assert not is_postgres_of(home, ["ls", str(home.postgres_data)])


def test_a_password_is_not_shown() -> None:
    shown = redact_password("postgresql://me:hush@db.example:5432/loomlog?sslmode=require")
    assert "hush" not in shown
    assert "db.example" in shown
    assert "me" in shown


def test_it_is_reachable_by_one_role_from_this_machine_only() -> None:
    rules = [line for line in HBA_RULES.splitlines() if not line.startswith("#")]
    assert [rule.split() for rule in rules] == [["host", "all", "loomlog", "127.0.0.1/32", "scram-sha-256"]]
    assert SETTINGS["listen_addresses"] == "127.0.0.1"
    assert SETTINGS["unix_socket_directories"] == ""
    assert "fsync" not in SETTINGS


def test_there_are_connections_for_all_processes_and_their_pools():
    few, more = needed_connections(runtimes=1, api_pool=10), needed_connections(runtimes=4, api_pool=20)
    assert (few, more) == (20 + 2 * 38 + 40, 4 * 20 + 2 * 68 + 40)


async def test_nobody_answering_is_a_reason_and_no_exception() -> None:
    reason = await ping_postgres(f"postgresql://loomlog@127.0.0.1:{pick_port()}/loomlog")
    assert reason is not None
    assert "refused" in reason


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def local_dsn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A Postgres of our own, because LOOMLOG_POSTGRES may give the other tests one with other rules."""

    async def record(_: Sequence[ChildRecord]) -> None:
        return None

    home = open_home(tmp_path_factory.mktemp("postgres"))
    database = Postgres(home=home, port=pick_port(), environ=os.environ, report=print)
    async with Supervisor(logs=home.logs, record=record, report=print) as supervisor:
        await supervisor.start(await database.child())
        yield database.dsn


@pytest.mark.integration
async def test_the_role_is_no_superuser_and_the_extension_is_there(local_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(local_dsn, autocommit=True) as connection:
        row = await (await connection.execute("SELECT current_user, current_setting('is_superuser')")).fetchone()
        assert row == ("loomlog", "off")
        assert await read_max_connections(local_dsn) == needed_connections()
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute("CREATE TABLE near (v vector(2))")
        await connection.execute("INSERT INTO near VALUES ('[1,2]')")
        row = await (await connection.execute("SELECT v <-> '[1,2]' FROM near")).fetchone()
        assert row == (0.0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute("COPY near TO PROGRAM 'true'")


@pytest.mark.integration
async def test_a_database_made_later_has_the_extension_too(local_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(local_dsn, autocommit=True) as connection:
        await connection.execute("CREATE DATABASE later")
        try:
            other = psycopg.conninfo.make_conninfo(local_dsn, dbname="later")
            async with await psycopg.AsyncConnection.connect(other) as fresh:
                row = await (await fresh.execute("SELECT '[1]'::vector::text")).fetchone()
                assert row == ("[1]",)
        finally:
            await connection.execute("DROP DATABASE later")


@pytest.mark.integration
async def test_only_who_can_read_the_password_file_comes_in(local_dsn: str, tmp_path: Path) -> None:
    passfile = Path(psycopg.conninfo.conninfo_to_dict(local_dsn)["passfile"])
    assert passfile.stat().st_mode & 0o777 == 0o600
    assert passfile.read_text().strip().rpartition(":")[2] not in local_dsn
    without = psycopg.conninfo.make_conninfo(local_dsn, passfile=str(tmp_path / "none"))
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        await psycopg.AsyncConnection.connect(without)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        await psycopg.AsyncConnection.connect(psycopg.conninfo.make_conninfo(local_dsn, password="guessed"))


@pytest.mark.integration
async def test_a_database_without_a_password_file_gets_a_new_password(tmp_path: Path) -> None:
    async def record(_: Sequence[ChildRecord]) -> None:
        return None

    home = open_home(tmp_path)
    passwords = []
    for _ in range(2):
        database = Postgres(home=home, port=pick_port(), environ=os.environ, report=print)
        async with Supervisor(logs=home.logs, record=record, report=print) as supervisor:
            await supervisor.start(await database.child())
            assert await ping_postgres(database.dsn) is None
        passwords.append(home.postgres_password.read_text())
        home.postgres_password.unlink()
    assert len(set(passwords)) == 2


@pytest.mark.integration
async def test_a_database_made_after_the_data_was_moved_away_is_reachable(tmp_path: Path) -> None:
    async def record(_: Sequence[ChildRecord]) -> None:
        return None

    home = open_home(tmp_path)
    home.postgres_password.write_text("127.0.0.1:*:*:loomlog:of a database before\n")
    database = Postgres(home=home, port=pick_port(), environ=os.environ, report=print)
    async with Supervisor(logs=home.logs, record=record, report=print) as supervisor:
        await supervisor.start(await database.child())
        assert await ping_postgres(database.dsn) is None


@pytest.mark.integration
async def test_the_superuser_cannot_come_in(local_dsn: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
        await psycopg.AsyncConnection.connect(psycopg.conninfo.make_conninfo(local_dsn, user="postgres"))
