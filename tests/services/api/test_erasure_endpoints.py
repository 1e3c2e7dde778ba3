"""The routes of erasure: a dry run unless it is confirmed, for administrators, in the shapes that clients know."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.api.serving import Served, served
from tests.services.commands.world import ACME, IVY

PLACE = "/v1/_erasure?tenant=acme"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, encrypted=True) as made:
        yield made


async def test_a_subject_is_reported_then_erased_then_proved(here: Served) -> None:
    await here.run(prompt="the words of ivy", caller=IVY, metadata={"note": "hers"})
    client = here.client()
    assert (await client.get(PLACE)).json() == {"tenant": "acme", "subjects": ["ivy"]}
    found = (await client.get(f"{PLACE}&subject=ivy")).json()
    assert found["tier1_covered"]["counts"] == {
        "keys": 1, "runs": 1, "live_runs": 0, "events": 4, "frames": 1, "blobs": 0
    }  # fmt: skip
    assert found["tier2_uncovered"] == {"counts": {"frames": 1, "blobs": 0}, "total": 1}, "its owner here seals nothing"
    assert found["tier3_residue"] == {"rows": 1, "scopes": 0, "sessions_examined": 1, "truncated": False}
    assert [key["erased"] for key in found["keys"]] == [False]

    dry = await client.post(PLACE, json={"subject": "ivy", "confirm": "ivy"})
    assert (dry.status_code, dry.json()["dry_run"], dry.json()["deleted"]) == (200, True, {})
    session = (await here.client(IVY).get("/v1/runs")).json()["runs"][0]["session_id"]
    assert "the words of ivy" in (await here.client(IVY).get(f"/v1/sessions/{session}/transcript")).text

    mistaken = await client.post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "Ivy"})
    assert (mistaken.status_code, mistaken.json()["code"]) == (400, "confirm_mismatch")
    done = await client.post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "ivy", "reason": "asked"})
    assert done.json()["deleted"] == {"keys": 1, "frames": 1, "blobs": 0}
    assert done.headers["x-loomlog-position"] == "subject.keys/0:1"
    assert set(done.json()["retained"]) == {"events", "in_clear"}

    after = (await client.get(f"{PLACE}&subject=ivy")).json()
    assert after["tier1_covered"]["counts"]["keys"] == 0
    assert after["keys"][0]["erasure"]["reason"] == "asked"
    assert after["keys"][0]["erasure"]["position"] == "subject.keys/0:1"
    shown = await here.client(IVY).get(f"/v1/sessions/{session}/transcript")
    assert shown.status_code == 200
    assert "[erased]" in shown.text
    assert "the words of ivy" not in shown.text
    run = (await here.client(IVY).get("/v1/runs")).json()["runs"][0]
    assert run["metadata"] == {"note": "[erased]"}


async def test_somebody_of_whom_nothing_is_known_is_not_erased(here: Served) -> None:
    client = here.client()
    for body in ({"subject": "ghost"}, {"subject": "ghost", "dry_run": False, "confirm": "ghost"}):
        refused = await client.post(PLACE, json=body)
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
        assert refused.json()["error"] == "there is nothing of ghost in acme; `loomlog subjects ls` lists them"
    assert (await client.get(PLACE)).json()["subjects"] == []
    assert (await client.get(f"{PLACE}&subject=ghost")).json()["known"] is False


async def test_an_erasure_may_be_repeated_and_each_is_told(here: Served) -> None:
    await here.run(caller=IVY)
    body = {"subject": "ivy", "dry_run": False, "confirm": "ivy"}
    for _ in range(2):
        assert (await here.client().post(PLACE, json=body)).status_code == 200
    found = (await here.client().get(f"{PLACE}&subject=ivy")).json()
    assert (found["known"], len(found["keys"]), len(found["erasures"])) == (True, 1, 2)


async def test_only_an_administrator_may_and_only_with_a_tenant_and_known_fields(here: Served) -> None:
    body = {"subject": "ivy"}
    assert (await here.client(ACME).post(PLACE, json=body)).status_code == 403
    assert (await here.client(ACME).get(PLACE)).status_code == 403
    assert (await here.client().post("/v1/_erasure", json=body)).status_code == 400
    assert (await here.client().get("/v1/_erasure")).status_code == 400
    assert (await here.client().post(PLACE, json={**body, "force": True})).status_code == 400
    assert (await here.client().post("/v1/_erasure/rewrap")).json() == {"wrapped": 0}


async def test_where_nothing_is_encrypted_nothing_can_be_erased_and_that_is_said(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        await made.run(caller=IVY)
        found = (await made.client().get(f"{PLACE}&subject=ivy")).json()
        assert (found["encrypted"], found["tier2_uncovered"]["total"]) == (False, 2)
        assert "keys" not in found["tier1_covered"]["counts"], "the topic of keys was not looked at"
        refused = await made.client().post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "ivy"})
        assert (refused.status_code, refused.json()["code"]) == (503, "encryption_off")
