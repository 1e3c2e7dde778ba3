"""Stored credentials outside the log: sealed, one row for each version, bound to whose they are."""

import asyncio

import pytest

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage import stored_credentials
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.stored_credentials import (
    CredentialKey,
    MemoryStoredCredentialRows,
    PostgresStoredCredentialRows,
    SealedCredential,
    StoredCredentials,
)
from loomlog.schemas.records import replace

KEY, OTHER = SecretKey(keys=(bytes(32),)), SecretKey(keys=(b"1" * 32,))
GIT = CredentialKey(tenant="acme", scope="tenant", name="git")
VALUE = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (replace(GIT, tenant="globex"), 1),
        (replace(GIT, scope="user", scope_id="ada"), 1),
        (replace(GIT, name="gitlab"), 1),
        (GIT, 2),
    ],
)
async def test_a_row_that_is_moved_opens_nothing(key: CredentialKey, version: int) -> None:
    rows = MemoryStoredCredentialRows()
    store = StoredCredentials(rows, KEY)
    await store.put(GIT, 1, VALUE)
    assert await store.get(GIT, 1) == VALUE
    assert VALUE.encode() not in rows.rows[GIT, 1]
    await rows.put(SealedCredential(key=key, version=version, sealed=rows.rows[GIT, 1]))
    with pytest.raises(Permanent) as caught:
        await store.get(key, version)
    assert VALUE not in str(caught.value)


async def test_after_it_is_encrypted_again_the_previous_key_can_go() -> None:
    rows = MemoryStoredCredentialRows()
    await StoredCredentials(rows, KEY).put(GIT, 1, VALUE)
    both = StoredCredentials(rows, SecretKey(keys=(*OTHER.keys, *KEY.keys)))
    for row in await rows.after(None):
        await both.rewrap(row)
    assert await StoredCredentials(rows, OTHER).get(GIT, 1) == VALUE
    with pytest.raises(Permanent, match="LOOMLOG_SECRET_KEY_PREVIOUS"):
        await StoredCredentials(rows, KEY).get(GIT, 1)


@pytest.mark.integration
async def test_rows_in_postgres(postgres: str, pg_schema: str) -> None:
    rows = PostgresStoredCredentialRows(PostgresOptions(dsn=postgres), schema=pg_schema)
    try:
        store = StoredCredentials(rows, KEY)
        assert (await rows.get(GIT, 1), await rows.after(None)) == (None, [])
        for version in (1, 2, 3):
            await store.put(GIT, version, f"{VALUE}{version}")
        with pytest.raises(Transient, match="another process stores the credential git now"):
            await store.put(GIT, 3, "another value")
        assert await store.get(GIT, 3) == f"{VALUE}3"
        assert (await rows.newest(GIT), await rows.newest(replace(GIT, name="none"))) == (3, 0)
        first = (await rows.after(None))[0]
        assert [row.version for row in await rows.after(first)] == [2, 3]
        await rows.delete(GIT, below=2)
        await rows.replace(SealedCredential(key=GIT, version=2, sealed=b"new"), old=b"not so")
        assert [await store.get(GIT, version) for version in (2, 3)] == [f"{VALUE}2", f"{VALUE}3"]
        await rows.delete_version(GIT, 2)
        assert [row.version for row in await rows.after(None)] == [3]
        for user in ("ada", "bob"):
            await store.put(replace(GIT, scope="user", scope_id=user), 1, VALUE)
        await rows.delete_owned("acme", "user", "ada")
        assert [row.key.scope_id for row in await rows.after(None)] == ["", "bob"]
        await rows.delete_owned("acme", "user", None)
        await rows.delete_owned("globex", "tenant", None)
        assert [row.key.scope for row in await rows.after(None)] == ["tenant"]
    finally:
        await rows.close()


async def check_newest_and_taken(rows: PostgresStoredCredentialRows | MemoryStoredCredentialRows) -> None:
    store = StoredCredentials(rows, KEY)
    assert (await store.newest(GIT), await store.take(GIT, 1)) == (None, None)
    for version in (1, 3):
        await store.put(GIT, version, f"{VALUE}{version}")
    assert await store.newest(GIT) == (3, f"{VALUE}3")
    taken = await asyncio.gather(*(store.take(GIT, 3) for _ in range(4)))
    assert sorted(taken, key=bool) == [None, None, None, f"{VALUE}3"]
    assert await store.newest(GIT) == (1, f"{VALUE}1")


async def check_locked(rows: PostgresStoredCredentialRows | MemoryStoredCredentialRows) -> None:
    inside = 0

    async def hold(key: CredentialKey) -> None:
        nonlocal inside
        async with rows.lock(key):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(hold(GIT) for _ in range(8)))
    async with rows.lock(GIT), rows.lock(replace(GIT, tenant="globex")):
        pass  # those of others are not held


async def check_held_by_another_process(
    rows: PostgresStoredCredentialRows, other: PostgresStoredCredentialRows
) -> None:
    waits = asyncio.Event()

    async def enter() -> None:
        waits.set()
        async with other.lock(GIT):
            pass

    async with rows.lock(GIT):
        entering = asyncio.create_task(enter())
        await waits.wait()
        assert await store_works(rows)
        assert not entering.done()
        assert all(row.version for row in await other.after(None)), "a rewrap would delete the lock as left over"
    async with asyncio.timeout(30):
        await entering


async def store_works(rows: PostgresStoredCredentialRows) -> bool:
    """Whether the holder of a lock has connections."""
    return await rows.newest(GIT) is not None


async def test_the_newest_version_is_found_and_one_caller_takes_it() -> None:
    await check_newest_and_taken(MemoryStoredCredentialRows())
    await check_locked(MemoryStoredCredentialRows())


@pytest.mark.integration
async def test_rows_in_postgres_are_taken_and_locked(
    postgres: str, pg_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_credentials, "LOCK_POLL_S", 0.001)
    rows, other = (PostgresStoredCredentialRows(PostgresOptions(dsn=postgres), schema=pg_schema) for _ in range(2))
    try:
        await check_newest_and_taken(rows)
        await check_locked(rows)
        await check_held_by_another_process(rows, other)
    finally:
        await rows.close()
        await other.close()
