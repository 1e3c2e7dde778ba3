from loomlog.schemas.generated.pause_events import PauseSet
from tests.services.api.serving import Served
from tests.services.application.entity_owner import event_at


async def test_pause_state_and_resume_have_the_shapes_that_clients_know(here: Served) -> None:
    client = here.client()
    paused = await client.post("/v1/_pause", json={"timeout_ms": 2000, "reason": "deploy"})
    actual = paused.json()
    assert (paused.status_code, actual["state"]) == (200, "paused")
    assert (actual["force_cancelled_count"], actual["paused_runs_count"], actual["warnings"]) == (0, 0, [])
    assert actual["duration_ms"] >= 0
    position = paused.headers["x-loomlog-position"]
    assert type(event_at(here.world.log, position)) is PauseSet
    assert (await client.get("/v1/_state", headers={"X-Loomlog-Position": position})).status_code == 200
    state = (await client.get("/v1/_state")).json()
    assert (state["state"], state["paused_runs_count"], state["pauses"][0]["reason"]) == ("paused", 0, "deploy")
    again = await client.post("/v1/_pause")
    assert (again.status_code, again.json()["code"]) == (409, "already_pausing")
    refused = await client.post("/v1/runs", json={"agent": "soaker", "prompt": "x"})
    assert (refused.status_code, refused.json()["code"]) == (503, "runtime_paused")
    assert refused.headers["retry-after"] == "5"
    resumed = await client.post("/v1/_resume")
    assert (resumed.status_code, resumed.json()) == (200, {"state": "running", "resumed_runs_count": 0})
    again = await client.post("/v1/_resume", json={})
    assert (again.status_code, again.json()["code"]) == (409, "not_paused")
    assert (await here.run())[-1].event == "done"
