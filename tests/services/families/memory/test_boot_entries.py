"""Entries of the files: set once, and never over what is there or was deleted."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.configuration.memory_block import MemoryEntryBlock
from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.memory_events import EntrySet
from loomlog.services.families.memory import FAMILY, boot_entries
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.boot_entries import BootEntries
from loomlog.services.families.memory.entry_operations import EntryLimits
from loomlog.services.families.memory.store import Change, MemoryStore
from tests.services.entities import NOW_MS, UNANSWERED, MemoryEntities

ADA = Scope("default", "user", "ada")
OPERATOR = Author(tenant="default", subject="op", command_id="c", issued_at_ms=NOW_MS)


def block(key: str = "k", value: Any = 1, **more: Any) -> MemoryEntryBlock:
    return MemoryEntryBlock(**{"scope": "user", "scope_id": "ada", "key": key, "value": value, **more})


@pytest.fixture
def entities() -> MemoryEntities:
    return MemoryEntities(FAMILY)


@pytest.fixture
def store(entities: MemoryEntities) -> MemoryStore:
    return MemoryStore(entities, entities, clock_ms=lambda: NOW_MS)


async def boot(entities: MemoryEntities, *blocks: MemoryEntryBlock, limits: EntryLimits | None = None) -> None:
    """What a runtime does that starts, with its own copy of the files."""
    async with asyncio.timeout(30):
        await BootEntries(blocks, entities, limits or EntryLimits()).run(lambda: True)


async def text(store: MemoryStore, key: str = "k", scope: Scope = ADA) -> str | None:
    entry = await store.get(scope, key, OPERATOR)
    return None if entry is None else entry.text


async def test_entries_are_set_with_their_source(entities: MemoryEntities, store: MemoryStore) -> None:
    blocks = (
        block(value={"a": [1, None, "ü"]}, embed=True),
        block(scope="tenant", scope_id="", value="all"),
        block(scope="agent", scope_id="helper", value=2.5),
    )
    await boot(entities, *blocks)
    entry = await store.get(ADA, "k", OPERATOR)
    assert entry is not None
    assert (entry.text, entry.embed, entry.source["origin"]) == ('{"a":[1,null,"ü"]}', True, "configuration")
    assert await text(store, scope=Scope("default", "tenant")) == '"all"'
    assert await text(store, scope=Scope("default", "agent", "helper")) == "2.5"


async def test_a_key_that_is_there_stays_as_it_is(entities: MemoryEntities, store: MemoryStore) -> None:
    await store.set(ADA, "k", Change(text='"mine"'), OPERATOR)
    await boot(entities, block())
    assert await text(store) == '"mine"'


@pytest.mark.parametrize("was_there", [False, True])
async def test_a_key_that_was_deleted_does_not_come_back_unless_the_files_say_something_else(
    entities: MemoryEntities, store: MemoryStore, was_there: bool
) -> None:
    if was_there:
        await store.set(ADA, "k", Change(text='"mine"'), OPERATOR)
    await boot(entities, block())
    await store.delete(ADA, "k", Author(tenant="default", subject="op", command_id="d", issued_at_ms=NOW_MS))
    written = entities.offset
    for _ in range(3):
        await boot(entities, block())
    assert await text(store) is None
    assert entities.offset == written
    await boot(entities, block(value=2))
    assert await text(store) == "2"


async def test_only_the_active_runtime_sets_them_and_each_once(entities: MemoryEntities) -> None:
    blocks = [block(str(number)) for number in range(5)]
    idle = asyncio.create_task(BootEntries(blocks, entities, EntryLimits()).run(lambda: False))
    await boot(entities, *blocks)
    assert not idle.done()
    idle.cancel()
    assert len(entities.asked) == 5
    await boot(entities, *blocks)
    assert sum(isinstance(event, EntrySet) for answer in entities.answers.values() for event in answer.events) == 5


@pytest.mark.parametrize("error", [UNANSWERED, Transient("the log is away", kind="unavailable")])
async def test_what_fails_is_tried_again(
    entities: MemoryEntities, store: MemoryStore, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot_entries, "EVERY_S", 0.01)
    entities.error = error
    running = asyncio.create_task(boot(entities, block()))
    await asyncio.sleep(0.05)
    assert not running.done()
    entities.error = None
    await running
    assert await text(store) == "1"


async def test_an_entry_that_is_refused_holds_no_other_back(
    entities: MemoryEntities, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    blocks = (block("large", "x" * 50), block("small", 1))
    await boot(entities, *blocks, limits=EntryLimits(scope_bytes_max=20))
    assert (await text(store, "large"), await text(store, "small")) == (None, "1")
    assert "'large' of user ada is not set (memory_quota_exceeded)" in caplog.text
    assert "xxx" not in caplog.text


async def test_without_entries_it_ends_at_once(entities: MemoryEntities) -> None:
    async with asyncio.timeout(30):
        await BootEntries([], entities, EntryLimits()).run(lambda: False)
