"""Credentials of runs outside the log: sealed, one row a run, and gone when their time is over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage import postgres, side_table
from loomlog.connectors.storage.postgres import PostgresOptions, connect, translate_errors
from loomlog.connectors.storage.run_credentials import LIFETIME_S, PostgresCredentialRows, RunCredentials
from tests.connectors.storage.memory import MemoryCredentialRows

KEY, OTHER = SecretKey(keys=(bytes(32),)), SecretKey(keys=(b"1" * 32,))
GIVEN = {"default": "hunter2-hunter2", "git": "ä\nb"}


async def test_what_is_put_is_given_back_for_that_run_alone() -> None:
    store = RunCredentials(MemoryCredentialRows(), KEY)
    await store.put("acme", "r_1", GIVEN)
    assert await store.get("acme", "r_1") == GIVEN
    assert await store.get("acme", "r_2") == {}


async def test_a_row_that_is_copied_to_another_run_or_tenant_opens_nothing() -> None:
    rows = MemoryCredentialRows()
    store = RunCredentials(rows, KEY)
    await store.put("acme", "r_1", GIVEN)
    rows.rows["r_2"] = rows.rows["r_1"]
    for tenant, run_id in (("acme", "r_2"), ("globex", "r_1")):
        with pytest.raises(Permanent) as caught:
            await store.get(tenant, run_id)
        assert "hunter2" not in str(caught.value)


async def test_another_key_opens_nothing_and_says_which_setting_helps() -> None:
    rows = MemoryCredentialRows()
    await RunCredentials(rows, KEY).put("acme", "r_1", GIVEN)
    with pytest.raises(Permanent, match="LOOMLOG_SECRET_KEY_PREVIOUS"):
        await RunCredentials(rows, OTHER).get("acme", "r_1")
    assert await RunCredentials(rows, SecretKey(keys=(*OTHER.keys, *KEY.keys))).get("acme", "r_1") == GIVEN


async def test_what_was_left_behind_goes_when_its_time_is_over() -> None:
    now = 0.0
    store = RunCredentials(MemoryCredentialRows(lambda: now), KEY)
    await store.put("acme", "r_1", GIVEN)
    now = LIFETIME_S - 1
    assert (await store.sweep(), await store.get("acme", "r_1")) == (0, GIVEN)
    now = LIFETIME_S
    assert await store.get("acme", "r_1") == {}
    assert (await store.sweep(), await store.sweep()) == (1, 0)


# --- Postgres --------------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def rows(postgres: str, pg_schema: str) -> AsyncIterator[PostgresCredentialRows]:
    made = PostgresCredentialRows(PostgresOptions(dsn=postgres), schema=pg_schema)
    yield made
    await made.close()


@pytest.mark.integration
async def test_postgres_keeps_them_sealed_and_the_first_ones_stay(
    rows: PostgresCredentialRows, postgres: str, pg_schema: str
) -> None:
    store = RunCredentials(rows, KEY)
    assert await store.get("acme", "r_1") == {}  # nothing was ever written: there is no table
    await store.delete(["r_1"])
    assert await store.sweep() == 0
    await store.put("acme", "r_1", GIVEN)
    await store.put("acme", "r_1", {"default": "later"})
    assert await store.get("acme", "r_1") == GIVEN
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        answer = await connection.execute(f'SELECT sealed FROM "{pg_schema}".run_credentials')
        assert not any(b"hunter2" in bytes(row[0]) for row in await answer.fetchall())
    await store.delete(["r_1", "r_unknown"])
    assert await store.get("acme", "r_1") == {}


@pytest.mark.integration
async def test_a_table_that_was_never_needed_is_no_error_in_the_servers_log(
    rows: PostgresCredentialRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[BaseException] = []

    @asynccontextmanager
    async def watched(what: str) -> AsyncIterator[None]:
        async with translate_errors(what):
            try:
                yield
            except Exception as error:
                refused.append(error)
                raise

    monkeypatch.setattr(side_table, "translate_errors", watched)
    assert await rows.sweep() == 0
    await rows.delete(["r_1"])
    await rows.put("r_1", b"x", 60.0)
    assert await rows.get("r_1") == b"x"
    assert not refused


@pytest.mark.integration
async def test_a_table_that_somebody_drops_is_made_again(
    rows: PostgresCredentialRows, postgres: str, pg_schema: str
) -> None:
    await rows.put("r_1", b"x", 60.0)
    async with await connect(PostgresOptions(dsn=postgres)) as connection:
        await connection.execute(f'DROP TABLE "{pg_schema}".run_credentials')
    assert await rows.get("r_1") is None
    await rows.put("r_2", b"y", 60.0)
    assert await rows.get("r_2") == b"y"


@pytest.mark.integration
async def test_postgres_forgets_what_is_over_its_time(rows: PostgresCredentialRows) -> None:
    await rows.put("r_over", b"x", 0.0)
    await rows.put("r_live", b"x", 60.0)
    assert await rows.get("r_over") is None
    assert (await rows.sweep(), await rows.sweep()) == (1, 0)
    assert await rows.get("r_live") == b"x"


@pytest.mark.integration
async def test_processes_that_write_first_at_once_do_not_hinder_each_other(postgres: str, pg_schema: str) -> None:
    several = [PostgresCredentialRows(PostgresOptions(dsn=postgres), schema=pg_schema) for _ in range(4)]
    await asyncio.gather(*(made.put(f"r_{n}", b"x", 60.0) for n, made in enumerate(several)))
    assert [await several[0].get(f"r_{n}") for n in range(4)] == [b"x"] * 4
    for made in several:
        await made.close()


async def test_a_server_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "POOL_WAIT_S", 0.2)
    made = PostgresCredentialRows(PostgresOptions(dsn="postgresql://someone@127.0.0.1:1/nowhere"))
    with pytest.raises((Transient, Permanent)):
        await made.get("r_1")
    await made.close()
