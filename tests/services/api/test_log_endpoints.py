from pathlib import Path

import pytest

from loomlog.services.application.resources import TOPICS
from tests.services.api.serving import Served, served
from tests.services.application.owner import PARTITIONS
from tests.services.application.world import IVY


async def test_the_records_of_a_run_are_found_over_its_topic(here: Served) -> None:
    run_id = (await here.run())[1].data["run_id"]
    client = here.client()
    topics = (await client.get("/v1/_log/topics")).json()["topics"]
    events = next(topic for topic in topics if topic["name"] == TOPICS.events)
    records = []
    for partition in events["partitions"]:
        path = f"/v1/_log/topics/{TOPICS.events}/{partition['partition']}"
        answer = await client.get(path, params={"from": 0, "run_id": run_id})
        assert answer.status_code == 200, answer.text
        records += answer.json()["records"]
    assert [record["type"] for record in records] == [
        "RunStarted",
        "ModelCallRequested",
        "ModelReplied",
        "RunCompleted",
    ]
    assert {record["kind"] for record in records} == {"legal"}
    place = records[0]["position"].removeprefix("loom.run.events/").replace(":", "/")
    assert (await client.get(f"/v1/events/run.events/{place}")).json()["payload"] == records[0]["payload"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("run.events/0?from=soon", "bad_request"),
        ("run.events/0?from=1&tail=1", "bad_request"),
        ("run.events/0?tail=0", "bad_request"),
        ("run.events/0?limit=501", "bad_request"),
        ("run.events/x", "not_found"),
        ("run.events/²", "not_found"),
        ("run.events/99999999999999999999", "not_found"),
        ("run.events/99", "not_found"),
        ("nothing/0", "not_found"),
    ],
)
async def test_a_question_that_makes_no_sense_is_told(here: Served, path: str, code: str) -> None:
    answer = await here.client().get(f"/v1/_log/topics/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404 if code == "not_found" else 400, code)


async def test_content_is_shown_until_its_subject_is_erased(tmp_path: Path) -> None:
    async with served(tmp_path, encrypted=True) as made:
        await made.run(prompt="the words of ivy", caller=IVY)
        client = made.client()

        async def events() -> str:
            paths = [f"/v1/_log/topics/run.events/{number}?from=0" for number in range(PARTITIONS)]
            return "".join([(await client.get(path)).text for path in paths])

        assert "the words of ivy" in await events()
        erasure = {"subject": "ivy", "dry_run": False, "confirm": "ivy"}
        assert (await client.post("/v1/_erasure?tenant=acme", json=erasure)).status_code == 200
        shown = await events()
        assert "RunStarted" in shown
        assert "the words of ivy" not in shown
