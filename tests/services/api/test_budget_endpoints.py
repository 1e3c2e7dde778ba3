"""Limits and usage in the shapes that clients know."""

from pathlib import Path

from tests.services.api.serving import Served, served


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


STARTS = {
    "/v1/runs": {"agent": "soaker", "prompt": "go"},
    "/v1/runs:batch": {"spawns": [{"agent": "soaker", "prompt": "go"}], "mode": "detach"},
    "/v1/sessions/s_one/messages": {"prompt": "go"},
    "/v1/runs/r_one/fork": {"at": 1, "prompt": "go"},
}


async def test_whatever_starts_runs_waits_for_the_limit_whose_position_it_brings(tmp_path: Path) -> None:
    async with served(tmp_path, waits={"position_s": 0.05}) as here:
        client = here.client()
        limit = {"scope": "tenant", "tenant_id": "acme", "hard_limit": 5}
        position = (await client.put("/v1/_limits", json=limit)).headers["X-Loomlog-Position"]
        replicas = here.world.layer.resources.entities.replicas
        reached, replicas.next_offsets[3] = replicas.next_offsets[3], 1
        for path, body in STARTS.items():
            answer = await client.post(path, json=body, headers={"X-Loomlog-Position": position})
            assert (answer.status_code, answer.json()["code"]) == (503, "not_yet"), path
        assert here.world.commands() == []
        replicas.next_offsets[3] = reached
        answer = await client.post("/v1/runs", json=STARTS["/v1/runs"], headers={"X-Loomlog-Position": position})
        assert answer.status_code == 200
        assert here.world.commands()[0].after == (position,)
