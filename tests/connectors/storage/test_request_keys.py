"""Idempotency-Keys in Postgres: the first body of a key stays until its time is over."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage import request_keys
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.connectors.storage.request_keys import LIFETIME_S, PostgresRequestKeys
from tests.waiting import until


@pytest_asyncio.fixture(loop_scope="session")
async def keys(postgres: str, pg_schema: str) -> AsyncIterator[PostgresRequestKeys]:
    made = PostgresRequestKeys(PostgresOptions(dsn=postgres), schema=pg_schema)
    yield made
    await made.close()


async def test_a_key_keeps_its_first_body(keys: PostgresRequestKeys) -> None:
    assert [await keys.first_body("k", body) for body in ("a", "a", "b", "a")] == ["a"] * 4
    assert await keys.first_body("other", "b") == "b"


async def test_of_two_bodies_at_once_one_is_first_also_while_the_table_is_made(
    postgres: str, pg_schema: str, keys: PostgresRequestKeys
) -> None:
    other = PostgresRequestKeys(PostgresOptions(dsn=postgres), schema=pg_schema)
    asked = (one.first_body("k", body) for one, body in ((keys, "a"), (other, "b"), (keys, "c"), (other, "d")))
    answers = await asyncio.gather(*asked)
    await other.close()
    assert len(set(answers)) == 1


async def test_a_key_whose_time_is_over_is_free_and_is_deleted(
    postgres: str, pg_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_keys, "SWEEP_EVERY", 1)
    keys = PostgresRequestKeys(PostgresOptions(dsn=postgres), schema=pg_schema, lifetime_s=0.05)
    assert await keys.first_body("k", "a") == "a"

    async def is_free() -> bool:
        return await keys.first_body("k", "b") == "b"

    await until(is_free)
    keys._lifetime_s = LIFETIME_S
    await keys.first_body("kept", "a")
    async with await connect(PostgresOptions(dsn=postgres)) as connection:

        async def only_kept() -> bool:
            await keys.first_body("kept", "a")
            rows = await connection.execute(f"SELECT key FROM {pg_schema}.request_keys")  # type: ignore[call-overload]
            return [row[0] for row in await rows.fetchall()] == ["kept"]

        await until(only_kept)
    await keys.close()


async def test_a_server_that_is_away_is_an_error_of_a_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.connectors.storage.postgres.POOL_WAIT_S", 0.2)
    keys = PostgresRequestKeys(PostgresOptions(dsn="postgresql://127.0.0.1:1/none"))
    with pytest.raises(Transient):
        await keys.first_body("k", "a")
    await keys.close()
