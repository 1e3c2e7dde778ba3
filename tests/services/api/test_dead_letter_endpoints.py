from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from loomlog.connectors.protocols import ProducerRecord
from tests.services.api.serving import Served, served
from tests.services.application.log.test_dead_letters import CODEC, letter

LETTERS = "/v1/_dead_letters"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        for one in (letter(), letter(topic="loom.run.events", kind="fold_bug", offset=3)):
            made.world.log.put("loom.dead-letter", 0, [ProducerRecord(key=b"p", value=CODEC.encode(one))])
        yield made


async def test_letters_are_listed_and_shown(here: Served) -> None:
    client = here.client()
    first = (await client.get(LETTERS, params={"limit": 1})).json()
    assert [one["from"] for one in first["letters"]] == ["loom.run.events/2:3"]
    rest = (await client.get(LETTERS, params={"cursor": first["next"]})).json()
    assert [one["offset"] for one in rest["letters"]] == [0]
    shown = (await client.get(f"{LETTERS}/0")).json()
    assert shown["original"]["payload"]["reason"] == "enough"
