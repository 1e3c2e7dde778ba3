"""Batches and resident sub-agents, as a client sees them."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_events import ModelCallRequested, RunStarted
from loomlog.schemas.generated.values import AgentDefinition, ParentCall, RunOptions
from loomlog.services.core.run.state import Refused
from tests.services.api.serving import Served
from tests.services.application.world import ACME, GLOBEX


async def batch(here: Served, *agents: str, caller: Any = ACME, status: int = 200, **more: Any) -> Any:
    spawns = [{"agent": agent, "prompt": "go", "interactive": agent == "parker"} for agent in agents]
    answer = await here.client(caller).post("/v1/runs:batch", json={"spawns": spawns, **more})
    assert answer.status_code == status, answer.text
    positions = {one["position"] for one in answer.json().get("results", ()) if one["position"]}
    assert set(filter(None, answer.headers.get("x-loomlog-position", "").split(","))) <= positions
    assert bool(positions) == ("x-loomlog-position" in answer.headers)
    return answer.json()


async def test_a_join_answers_with_every_end_in_the_order_of_the_spawns(here: Served) -> None:
    actual = await batch(here, "soaker", "soaker", mode="join")
    assert actual["spawned"] == 2
    assert [one["status"] for one in actual["results"]] == ["completed", "completed"]
    one = actual["results"][0]
    assert (one["final_text"], one["stop_reason"], one["error"]) == ("ok", "end_turn", None)
    assert one["run_id"] != actual["results"][1]["run_id"]
    assert one["session_id"]
    assert one["usage"]["input_tokens"] > 0
    assert one["position"].startswith("loom.run.events/")


async def test_one_bad_spawn_does_not_harm_the_others(here: Served) -> None:
    actual = await batch(here, "soaker", "ghost", "soaker")
    assert [one["status"] for one in actual["results"]] == ["completed", "failed", "completed"]
    assert "unknown agent" in actual["results"][1]["error"]
    assert actual["spawned"] == 2


async def test_a_timeout_cancels_what_is_left_and_says_so(here: Served) -> None:
    actual = await batch(here, "soaker", "silent", timeout_ms=200)
    assert [one["status"] for one in actual["results"]] == ["completed", "cancelled"]
    assert actual["results"][1]["stop_reason"] == "batch timeout"
    run_id = actual["results"][1]["run_id"]
    assert (await here.client(ACME).get(f"/v1/runs/{run_id}")).json()["status"] == "cancelled"


async def test_an_interactive_run_is_waited_for_until_it_stands_still(here: Served) -> None:
    actual = await batch(here, "parker")
    assert actual["results"][0]["status"] == "awaiting_input"


async def test_a_detached_batch_answers_with_the_ids(here: Served) -> None:
    actual = await batch(here, "silent", "silent", mode="detach", status=202)
    assert [one["status"] for one in actual["results"]] == ["running", "running"]
    assert all(one["run_id"] for one in actual["results"])


async def test_the_same_key_again_joins_the_same_runs(here: Served) -> None:
    spawns = [{"agent": "soaker", "prompt": "go"}] * 2
    headers = {"Idempotency-Key": "k1"}
    answers = [
        (await here.client(ACME).post("/v1/runs:batch", json={"spawns": spawns}, headers=headers)).json()
        for _ in range(2)
    ]
    names = [[one["run_id"] for one in answer["results"]] for answer in answers]
    assert names[0] == names[1]
    assert len(set(names[0])) == 2


GO, OTHER, GHOST = ({"agent": agent, "prompt": "go"} for agent in ("soaker", "parker", "ghost"))
OWN = {**GO, "idempotency_key": "own"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([GO, GO], [GO]),
        ([GO], [GO, GO]),
        ([GO, GO], [GO, {**GO, "prompt": "stop"}]),
        ([GO, OTHER], [OTHER, GO]),
        ([GHOST, GO], [GHOST, GO, GO]),
        ([GO], [GHOST, GO]),
        ([OWN, GO], [GO, GO]),
        ([GO], [OWN, GO]),
        ([GO, GO], [GO, {**GO, "metadata": {"too large": 10**30}}]),
    ],
)
async def test_another_batch_under_the_same_key_is_refused_and_nothing_of_it_starts(
    here: Served, first: list[Any], second: list[Any]
) -> None:
    async def post(spawns: list[Any]) -> Any:
        return await here.client(ACME).post(
            "/v1/runs:batch", json={"spawns": spawns, "mode": "detach"}, headers={"Idempotency-Key": "k1"}
        )

    begun = await post(first)
    assert begun.status_code == 202
    known = set(here.world.states)
    refused = await post(second)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    again = await post(first)
    assert [one["run_id"] for one in again.json()["results"]] == [one["run_id"] for one in begun.json()["results"]]
    assert {run for run, state in here.world.states.items() if not isinstance(state, Refused)} <= known


def resident(here: Served) -> str:
    """A resident child that works."""
    run_id, world = "r_tree-child", here.world
    definition = AgentDefinition(name="silent", provider="mock", model="m")
    parent = ParentCall(
        run_id="r_tree",
        agent_id="a_parent",
        root_run_id="r_tree",
        turn=1,
        index=0,
        number=0,
        depth=1,
        is_resident=True,
        idle_ttl_s=60,
    )
    world.tenants[run_id] = "acme"
    world.happen(
        run_id,
        RunStarted(
            session_id="s_tree-child",
            agent_id="a_tree-child",
            definition=definition,
            segments=(),
            parent_agent_id="a_parent",
            parent=parent,
            options=RunOptions(interactive=True),
        ),
        ModelCallRequested(turn=1, attempt=1, provider="mock", model="m"),
    )
    return run_id


# --- resident sub-agents ---------------------------------------------------------------------------------------------


async def test_residents_are_listed_and_closed_by_their_tenant(here: Served) -> None:
    run_id = resident(here)
    actual = (await here.client(ACME).get("/v1/_resident")).json()["residents"]
    assert [(one["child_run_id"], one["state"], one["idle_ttl_seconds"]) for one in actual] == [(run_id, "running", 60)]
    assert actual[0]["parent_agent_id"] == "a_parent"
    assert (await here.client(GLOBEX).get("/v1/_resident")).json()["residents"] == []
    assert (await here.client(GLOBEX).post(f"/v1/_resident/{run_id}/close")).status_code == 404
    answer = await here.client(ACME).post(f"/v1/_resident/{run_id}/close")
    assert (answer.status_code, answer.json()["state"]) == (200, "closed")
    again = await here.client(ACME).post(f"/v1/_resident/{run_id}/close")
    assert (again.status_code, again.json()["closed"]) == (200, True)


async def test_the_turn_of_a_resident_is_stopped_and_it_stays(here: Served) -> None:
    run_id = resident(here)
    answer = await here.client(ACME).post(f"/v1/_resident/{run_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "awaiting_input"), answer.text
    actual = (await here.client(ACME).get("/v1/_resident")).json()["residents"]
    assert [one["state"] for one in actual] == ["awaiting_input"]
    assert (await here.client(GLOBEX).post(f"/v1/_resident/{run_id}/cancel")).status_code == 404


async def test_a_run_that_is_no_resident_is_not_closed(here: Served) -> None:
    actual = await batch(here, "silent", mode="detach", status=202)
    run_id = actual["results"][0]["run_id"]
    assert (await here.client(ACME).post(f"/v1/_resident/{run_id}/close")).status_code == 404


async def test_a_cancel_names_the_runs_that_end_with_it(here: Served) -> None:
    actual = await batch(here, "silent", mode="detach", status=202)
    run_id, agent_id = actual["results"][0]["run_id"], actual["results"][0]["agent_id"]
    here.world.cascaded[run_id] = ("a_one", "a_two")
    answer = await here.client(ACME).post(f"/v1/agents/{agent_id}/cancel")
    assert answer.json()["cascaded"] == ["a_one", "a_two"]
