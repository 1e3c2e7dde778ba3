"""Limits and usage in the shapes that clients know."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX, IVY


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


async def test_a_limit_is_put_listed_and_deleted(here: Served) -> None:
    client = here.client()
    body = {"tenant_id": "acme", "scope": "user", "scope_id": "ivy", "soft_limit": 100, "hard_limit": 200}
    made = await client.put("/v1/_limits", json=body)
    assert made.status_code == 200
    assert made.headers["x-loomlog-position"].startswith("loom.entity.events/3:")
    actual = made.json()
    assert {name: actual[name] for name in body} == body
    assert (actual["used"], actual["updated_by"], actual["currency"]) == (0, "default", "USD")
    assert actual["updated_at"].endswith("Z")
    listed = (await client.get("/v1/_limits")).json()["limits"]
    assert listed == [actual]
    where = {"scope": "user", "tenant": "acme", "scope_id": "ivy"}
    gone = await client.delete("/v1/_limits", params=where)
    assert (gone.status_code, gone.content) == (204, b"")
    assert gone.headers["x-loomlog-position"].startswith("loom.entity.events/3:")
    assert (await client.get("/v1/_limits")).json() == {"limits": []}
    assert (await client.delete("/v1/_limits", params=where)).status_code == 204


async def test_money_is_limited_in_millionths(here: Served) -> None:
    body = {"scope": "operator", "hard_limit_micros": 5_000_000, "strict": True}
    actual = (await here.client().put("/v1/_limits", json=body)).json()
    assert (actual["hard_limit_micros"], actual["hard_limit"], actual["strict"]) == (5_000_000, None, True)
    assert (actual["used_micros"], actual["reserved_micros"]) == (0, 0)


async def test_what_is_not_a_limit_is_refused(here: Served) -> None:
    client = here.client()
    assert (await client.put("/v1/_limits", json={"scope": "planet", "hard_limit": 1})).status_code == 400
    assert (await client.put("/v1/_limits", json={"scope": "operator"})).status_code == 400
    assert (await client.put("/v1/_limits", json={"scope": "operator", "hard_limit": -1})).status_code == 400
    assert (await client.put("/v1/_limits", json={"scope": "operator", "hard_limit": 1.5})).status_code == 400
    assert (await client.delete("/v1/_limits", params={"scope": "planet"})).status_code == 400


async def test_a_tenant_sets_and_sees_its_own_limits_only(here: Served) -> None:
    mine = {"scope": "user", "scope_id": "ivy", "soft_limit": 5}
    assert (await here.client(ACME).put("/v1/_limits", json=mine)).json()["tenant_id"] == "acme"
    assert (await here.client(GLOBEX).get("/v1/_limits")).json() == {"limits": []}
    assert (await here.client(ACME).put("/v1/_limits", json={"scope": "operator", "hard_limit": 1})).status_code == 403
    assert (await here.client(IVY).put("/v1/_limits", json=mine)).status_code == 403
    assert len((await here.client(ACME).get("/v1/_limits")).json()["limits"]) == 1
    assert (await here.client(IVY).get("/v1/_limits")).status_code == 403, "an isolated user sees only its own"


async def test_usage_has_the_rows_that_clients_know(here: Served) -> None:
    client = here.client()
    await here.run(user_id="ada")
    await here.run(user_id="ada")
    actual = (await client.get("/v1/_usage", params={"group_by": "user"})).json()
    [row] = actual["rows"]
    assert (actual["group_by"], actual["from"], actual["to"]) == (["user"], None, None)
    assert row == {
        "user_id": "ada",
        "input_tokens": 6,
        "output_tokens": 2,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cost": 0.0,
        "cost_micros": 0,
        "call_count": 2,
        "unpriced_calls": 2,
    }
    [row] = (await client.get("/v1/_usage")).json()["rows"]
    assert (row["tenant_id"], row["source"]) == ("default", "operator")


async def test_usage_outside_the_window_is_empty_and_nonsense_is_refused(here: Served) -> None:
    client = here.client()
    assert (await client.get("/v1/_usage", params={"from": "2090-01-01T00:00:00Z"})).json()["rows"] == []
    assert (await client.get("/v1/_usage", params={"group_by": "colour"})).status_code == 400
    assert (await client.get("/v1/_usage", params={"from": "yesterday"})).status_code == 400


STARTS = {
    "/v1/runs": {"agent": "soaker", "prompt": "go"},
    "/v1/runs:batch": {"spawns": [{"agent": "soaker", "prompt": "go"}], "mode": "detach"},
    "/v1/sessions/s_one/messages": {"prompt": "go"},
    "/v1/runs/r_one/fork": {"at": 1, "prompt": "go"},
}


async def test_whatever_starts_runs_waits_for_the_limit_whose_position_it_brings(tmp_path: Path) -> None:
    async with served(tmp_path, position_wait_s=0.05) as here:
        client = here.client()
        limit = {"scope": "tenant", "tenant_id": "acme", "hard_limit": 5}
        position = (await client.put("/v1/_limits", json=limit)).headers["X-Loomlog-Position"]
        replicas = here.world.layer.entity_parts.replicas
        reached, replicas.next_offsets[3] = replicas.next_offsets[3], 1
        for path, body in STARTS.items():
            answer = await client.post(path, json=body, headers={"X-Loomlog-Position": position})
            assert (answer.status_code, answer.json()["code"]) == (503, "not_yet"), path
        assert here.world.commands() == []
        replicas.next_offsets[3] = reached
        answer = await client.post("/v1/runs", json=STARTS["/v1/runs"], headers={"X-Loomlog-Position": position})
        assert answer.status_code == 200
        assert here.world.commands()[0].after == (position,)


async def test_budgets_are_shown_and_stated_anew_by_an_administrator(here: Served) -> None:
    client, where = here.client(), {"aggregate": "budget:/installation"}
    assert (await client.get("/v1/_repair", params=where)).status_code == 404
    limited = await client.put("/v1/_limits", json={"scope": "operator", "hard_limit": 5})
    shown = (await client.get("/v1/_repair", params=where)).json()
    assert shown["position"] == limited.headers["x-loomlog-position"]
    assert (shown["aggregate"], shown["seq"], shown["quarantine"]) == ("budget:/installation", 2, None)
    answer = await client.post("/v1/_repair", json={**where, "state": {**shown["state"], "limits": {}, "accounts": {}}})
    assert answer.headers["x-loomlog-position"] == answer.json()["position"] == "loom.entity.events/3:3"
    listed = await client.get("/v1/_limits", headers={"X-Loomlog-Position": answer.json()["position"]})
    assert listed.json() == {"limits": []}
    assert (await client.post("/v1/_repair", json={**where, "state": {"month": 7}})).status_code == 400
    assert (await here.client(ACME).post("/v1/_repair", json=where)).status_code == 403
