from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loomlog.connectors.protocols import ProducerRecord
from loomlog.services.application.application import TOPICS
from tests.services.api.serving import Served, served
from tests.services.application.log.test_dead_letters import CODEC, letter
from tests.services.application.world import ACME

LETTERS = "/v1/_dead_letters"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        for one in (letter(), letter(topic="loom.run.events", kind="fold_bug", offset=3)):
            made.world.log.put("loom.dead-letter", 0, [ProducerRecord(key=b"p", value=CODEC.encode(one))])
        yield made


def count_commands(here: Served) -> int:
    return sum(len(records) for (topic, _), records in here.world.log.records.items() if topic == TOPICS.commands)


async def test_letters_are_listed_and_shown(here: Served) -> None:
    client = here.client()
    first = (await client.get(LETTERS, params={"limit": 1})).json()
    assert [one["from"] for one in first["letters"]] == ["loom.run.events/2:3"]
    rest = (await client.get(LETTERS, params={"cursor": first["next"]})).json()
    assert [one["offset"] for one in rest["letters"]] == [0]
    shown = (await client.get(f"{LETTERS}/0")).json()
    assert shown["original"]["payload"]["reason"] == "enough"


async def test_a_replay_is_recorded_and_a_repetition_of_the_request_changes_nothing(here: Served) -> None:
    client, key = here.client(), {"Idempotency-Key": "one"}
    before = count_commands(here)
    first = await client.post(f"{LETTERS}/0/replay", headers=key)
    assert first.status_code == 200, first.text
    assert (await client.post(f"{LETTERS}/0/replay", headers=key)).json() == {**first.json(), "repeated": True}
    assert count_commands(here) == before + 1
    assert (await client.get(f"{LETTERS}/0")).json()["replayed"] == [first.json()["position"]]
    refused = await client.post(f"{LETTERS}/0/replay")
    assert (refused.status_code, refused.json()["code"]) == (409, "command_refused")
    assert (await client.post(f"{LETTERS}/0/replay", json={"again": True})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "?kind=nope", 400),
        ("GET", "?limit=0", 400),
        ("GET", "?cursor=x", 400),
        ("GET", "/7", 404),
        ("GET", "/x", 404),
        ("POST", "/1/replay", 409),
        ("POST", "/7/replay", 404),
    ],
)
async def test_what_cannot_be_done_is_told(here: Served, method: str, path: str, status: int) -> None:
    answer = await here.client().request(method, f"{LETTERS}{path}")
    assert answer.status_code == status, answer.text


async def test_letters_are_for_administrators(here: Served) -> None:
    client = here.client(ACME)
    for answer in (
        await client.get(LETTERS),
        await client.get(f"{LETTERS}/0"),
        await client.post(f"{LETTERS}/0/replay"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")
