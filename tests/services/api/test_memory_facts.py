"""Entries over HTTP with what they are, and what became of those that were superseded."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource, Provenance
from loomlog.services.families.memory import FAMILY, store
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX
from tests.services.entities import MemoryEntities

KEYS = "/v1/_memory/scopes/user/ada/keys"
SUPERSEDED = "/v1/_memory/superseded"
SOURCE = MemorySource(origin="consolidator", run_id="r_1", turn=2, call=1, agent="keeper", user_id="ada")
PROVENANCE = Provenance(
    fact_class="preference", origin="consolidator", source_session_id="s_1", source_run_id="r_9", spans=()
)


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> MemoryEntities:
    return MemoryEntities(FAMILY)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: MemoryEntities) -> AsyncIterator[Served]:
    async with served(tmp_path, entity_commands=entities, entity_reads=entities) as made:
        yield made


class Agent:
    """Changes the memory of a user as an agent does."""

    def __init__(self, entities: MemoryEntities, user: str = "ada") -> None:
        self.entities, self.user, self.number = entities, user, 0

    async def _do(self, command: Any, **fields: Any) -> None:
        self.number += 1
        envelope = CommandEnvelope(
            command_id=f"{self.user}.{self.number}", tenant=ACME.tenant, subject=self.user, issued_at_ms=1
        )
        made = command(envelope=envelope, scope="user", scope_id=self.user, source=SOURCE, **fields)
        await self.entities.ask(made, wait_s=1.0)

    async def set(self, key: str, text: str, provenance: Provenance | None = None) -> None:
        await self._do(SetEntry, key=key, value=text, value_bytes=len(text), provenance=provenance)

    async def supersede(self, key: str, by_key: str = "", reason: str = "") -> None:
        await self._do(SupersedeEntry, key=key, by_key=by_key, reason=reason)

    async def delete(self, key: str) -> None:
        await self._do(DeleteEntry, key=key)

    async def drop(self) -> None:
        await self._do(DropScope, reason="")


async def get(here: Served, url: str, caller: Any = ACME, status: int = 200, **query: str) -> Any:
    answer = await here.client(caller).get(url, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def superseded(here: Served, **query: str) -> Any:
    return await get(here, SUPERSEDED, ACME, 200, **{"scope": "user", "scope_id": "ada", **query})


async def test_details_of_entries_are_told_when_asked_for(here: Served, entities: MemoryEntities) -> None:
    agent = Agent(entities)
    await agent.set("fact", '"tea"', PROVENANCE)
    await agent.set("note", "12")
    plain = await get(here, KEYS)
    assert set(plain["entries"][0]) == {"key", "value", "created_at", "updated_at"}
    assert "embedding_metadata" not in plain
    fact, note = (await get(here, KEYS, details="1", include_embedding_metadata="1"))["entries"]
    assert (fact["revision"], fact["bytes"], fact["embed"], fact["embedded_with"]) == (1, 5, False, None)
    assert (fact["source"]["run_id"], fact["source"]["turn"], fact["source"]["call"]) == ("r_1", 2, 1)
    assert fact["provenance"] == {
        "origin": "consolidator",
        "class": "preference",
        "source_session_id": "s_1",
        "source_run_id": "r_9",
        "origin_available": True,
        "spans": [],
    }
    assert (note["revision"], note["provenance"]) == (2, None)


async def test_facts_and_notes_are_listed_apart_in_pages(here: Served, entities: MemoryEntities) -> None:
    agent = Agent(entities)
    for number in range(7):
        await agent.set(f"k{number}", str(number), PROVENANCE if number % 2 else None)
    page = await get(here, KEYS, kind="fact", limit="2")
    assert ([one["key"] for one in page["entries"]], page["truncated"]) == (["k1", "k3"], True)
    page = await get(here, KEYS, kind="fact", limit="2", after="k3")
    assert ([one["key"] for one in page["entries"]], page["truncated"]) == (["k5"], False)
    page = await get(here, KEYS, kind="note", limit="4")
    assert ([one["key"] for one in page["entries"]], page["truncated"]) == (["k0", "k2", "k4", "k6"], False)
    assert (await get(here, KEYS, status=400, kind="thought"))["code"] == "bad_request"


async def test_a_superseded_entry_is_shown_with_what_it_was(here: Served, entities: MemoryEntities) -> None:
    agent = Agent(entities)
    await agent.set("tea", '"black"', PROVENANCE)
    await agent.set("tea", '"green"', PROVENANCE)
    await agent.set("tea/new", '"white"', PROVENANCE)
    await agent.supersede("tea", "tea/new", "she said so")
    answer = await superseded(here)
    (one,) = answer["superseded"]
    assert (answer["scope"], answer["scope_id"], answer["next"]) == ("user", "ada", None)
    assert (one["key"], one["by_key"], one["reason"], one["op"]) == ("tea", "tea/new", "she said so", "supersede")
    assert (one["value"], one["provenance"]["fact_class"], one["previous_revision"]) == ("green", "preference", 2)
    assert one["source"]["run_id"] == "r_1"
    assert {"at", "valid_from", "position"} <= set(one)


async def test_other_changes_and_other_scopes_are_not_superseded_entries(
    here: Served, entities: MemoryEntities
) -> None:
    agent, other = Agent(entities), Agent(entities, "ada#1.2")
    await agent.set("a", "1")
    await agent.delete("a")
    await agent.set("b", "2")
    await agent.drop()
    await other.set("c", "3")
    await other.supersede("c")
    assert (await superseded(here))["superseded"] == []
    (one,) = (await superseded(here, scope_id="ada#1.2"))["superseded"]
    assert (one["key"], one["value"]) == ("c", 3)
    assert (await get(here, SUPERSEDED, GLOBEX, scope_id="ada"))["superseded"] == []


async def test_superseded_entries_come_in_pages_of_a_bounded_search(
    here: Served, entities: MemoryEntities, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PAGE", 2)
    monkeypatch.setattr(store, "SCANNED_MAX", 4)
    agent = Agent(entities)
    for number in range(5):
        await agent.set(f"k{number}", str(number))
        await agent.supersede(f"k{number}")
    found, cursor, calls = list[str](), "", 0
    while calls == 0 or cursor:
        page = await superseded(here, limit="3", cursor=cursor)
        found += [one["key"] for one in page["superseded"]]
        cursor, calls = page["next"] or "", calls + 1
        assert calls < 10
    assert (found, calls) == (["k0", "k1", "k2", "k3", "k4"], 3)
    pages = [await superseded(here, limit="1", cursor=cursor) for cursor in ("", "2", "4")]
    assert [[one["key"] for one in page["superseded"]] for page in pages] == [["k0"], ["k1"], ["k2"]]
