"""The routes of erasure: a dry run unless it is confirmed, for operators, in the shapes that clients know."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX, IVY, READER

PLACE = "/v1/_erasure?tenant=acme"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, encrypted=True) as made:
        yield made


async def test_a_subject_is_reported_then_erased_then_proved(here: Served) -> None:
    await here.run(prompt="the words of ivy", caller=IVY, metadata={"note": "hers"})
    client = here.client()
    assert (await client.get(PLACE)).json() == {"tenant": "acme", "subjects": ["ivy"]}
    actual = (await client.get(f"{PLACE}&subject=ivy")).json()
    counts = {name: count for name, count in actual["tier1_covered"]["counts"].items() if count}
    assert counts == {"keys": 1, "chats": 1, "runs": 1, "events": 4, "frames": 1}
    in_clear = {"counts": {"frames": 1, "blobs": 0, "memory_versions": 0}, "total": 1, "runs": 1}
    assert actual["tier2_uncovered"] == in_clear, "its owner here seals nothing"
    stays = {"events_naming": 0, "definitions": 0}
    assert actual["tier3_residue"] == {"rows": 1, "scopes": 0, "sessions_examined": 1, "truncated": False, **stays}
    assert [key["erased"] for key in actual["keys"]] == [False]
    assert [note for note in actual["notes"] if "tools of other services" in note], "what is not looked at is said"

    dry = await client.post(PLACE, json={"subject": "ivy", "confirm": "ivy"})
    assert (dry.status_code, dry.json()["dry_run"], dry.json()["deleted"]) == (200, True, {})
    session = (await here.client(IVY).get("/v1/runs")).json()["runs"][0]["session_id"]
    assert "the words of ivy" in (await here.client(IVY).get(f"/v1/sessions/{session}/transcript")).text

    mistaken = await client.post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "Ivy"})
    assert (mistaken.status_code, mistaken.json()["code"]) == (400, "confirm_mismatch")
    done = await client.post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "ivy", "reason": "asked"})
    assert {name: count for name, count in done.json()["deleted"].items() if count} == {"keys": 1, "frames": 1}
    assert done.headers["x-loomlog-position"] == "loom.subject.keys/0:1"
    assert done.json()["tier2_uncovered"] == in_clear
    assert set(done.json()["retained"]) == {"events", "in_clear"}
    assert done.json()["retained"]["in_clear"].startswith("1 texts in 1 runs are stored in plaintext and stay readable")

    after = (await client.get(f"{PLACE}&subject=ivy")).json()
    assert after["tier1_covered"]["counts"]["keys"] == 0
    assert after["keys"][0]["erasure"]["reason"] == "asked"
    assert after["keys"][0]["erasure"]["position"] == "loom.subject.keys/0:1"
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
    actual = (await here.client().get(f"{PLACE}&subject=ivy")).json()
    assert (actual["known"], len(actual["keys"]), len(actual["erasures"])) == (True, 1, 2)


async def test_operators_erase_in_their_tenant_and_administrators_name_one(here: Served) -> None:
    body = {"subject": "ivy"}
    for client in (here.client(READER), here.client(IVY), here.client(GLOBEX)):
        assert (await client.post(PLACE, json=body)).status_code == 403
        assert (await client.get(PLACE)).status_code == 403
    await here.run(caller=IVY)
    own = await here.client(ACME).post("/v1/_erasure", json=body)
    assert (own.status_code, own.json()["tenant"]) == (200, "acme"), "the operator means its own tenant"
    assert (await here.client(ACME).get(PLACE)).status_code == 200
    assert (await here.client().post("/v1/_erasure", json=body)).status_code == 400
    assert (await here.client().get("/v1/_erasure")).status_code == 400
    assert (await here.client().post(PLACE, json={**body, "force": True})).status_code == 400
    assert (await here.client().post("/v1/_erasure/rewrap")).json() == {"wrapped": 0}


async def test_where_nothing_is_encrypted_nothing_can_be_erased_and_that_is_said(tmp_path: Path) -> None:
    async with served(tmp_path) as made:
        await made.run(caller=IVY)
        actual = (await made.client().get(f"{PLACE}&subject=ivy")).json()
        assert (actual["encrypted"], actual["tier2_uncovered"]["total"]) == (False, 2)
        assert "keys" not in actual["tier1_covered"]["counts"], "the topic of keys was not looked at"
        refused = await made.client().post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "ivy"})
        assert (refused.status_code, refused.json()["code"]) == (503, "encryption_off")


async def test_what_was_taken_in_in_clear_is_said_to_stay_and_nobody_goes_on_with_it(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "there") as there, served(tmp_path / "here", encrypted=True) as here:
        run = (await there.run(prompt="in clear", caller=IVY))[1].data["run_id"]
        data = (await there.client().get(f"/v1/runs/{run}/export")).content
        taken_in = await here.client(ACME).post("/v1/runs/import?in_clear=1", content=data)
        assert taken_in.status_code == 200, taken_in.text
        assert (await here.client(IVY).post(f"/v1/runs/{run}/fork", json={"at": 1})).status_code == 200
        erased = await here.client().post(PLACE, json={"subject": "ivy", "dry_run": False, "confirm": "ivy"})
        assert erased.json()["tier2_uncovered"]["runs"] >= 1
        assert "1 of them imported from a file" in erased.json()["retained"]["in_clear"]
        refused = await here.client(IVY).post(f"/v1/runs/{run}/fork", json={"at": 1})
        assert (refused.status_code, refused.json()["code"]) == (410, "content_erased")
