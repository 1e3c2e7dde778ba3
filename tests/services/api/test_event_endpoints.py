import pytest

from tests.services.api.serving import Served


async def test_the_events_of_a_run_with_their_places(here: Served) -> None:
    run = await here.run()
    run_id = run[1].data["run_id"]
    actual = (await here.client().get("/v1/events", params={"run_id": run_id})).json()
    assert [event["type"] for event in actual["events"]] == [
        "RunStarted",
        "ModelCallRequested",
        "ModelReplied",
        "RunCompleted",
    ]
    first = actual["events"][0]
    assert {"position", "term", "seq", "run_id", "type", "at", "payload"} <= set(first)
    assert first["payload"]["agent_id"] == run[1].data["agent_id"]
    assert actual["next"] is None
    place = first["position"].removeprefix("loom.run.events/").replace(":", "/")
    for topic in ("loom.run.events", "run.events"):
        assert (await here.client().get(f"/v1/events/{topic}/{place}")).json() == first


async def test_lists_page_and_narrow(here: Served) -> None:
    for _ in range(3):
        await here.run()
    client = here.client()
    page = (await client.get("/v1/events", params={"type": "RunStarted", "limit": 2})).json()
    rest = (await client.get("/v1/events", params={"type": "RunStarted", "cursor": page["next"]})).json()
    assert len(page["events"]) + len(rest["events"]) == 3
    assert (await client.get("/v1/events?from=2100-01-01T00:00:00Z")).json()["events"] == []
    assert len((await client.get("/v1/events?partition=0&from=0&to=1")).json()["events"]) == 1


@pytest.mark.parametrize(
    "query", ["type=Nothing", "partition=99", "partition=x", "from=5", "to=soon", "limit=0", "limit=5000", "cursor=x!"]
)
async def test_a_question_that_makes_no_sense_is_a_clear_400(here: Served, query: str) -> None:
    answer = await here.client().get(f"/v1/events?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "path",
    [
        "loom.run.events/0/99999",
        "loom.run.events/0/x",
        "loom.run.events/x/0",
        "loom.run.events/0/-1",
        "secrets/0/0",
        "loom.run.events/0/²",
        "loom.run.events/0/99999999999999999999999",
    ],
)
async def test_a_record_that_is_not_there_is_404(here: Served, path: str) -> None:
    answer = await here.client().get(f"/v1/events/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
