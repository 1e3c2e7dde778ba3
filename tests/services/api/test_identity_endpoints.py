"""Tokens and users over HTTP: made, used, replaced and taken back, by those who may."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.crypto.operator_tokens import Peppers
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ, USER
from loomlog.services.families.identity import directory
from loomlog.services.families.identity.services import IdentityOptions
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.api.serving import Served, Wire, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, READER, STARTER

TOKENS, USERS = "/v1/_operatortokendef", "/v1/_users"
OPTIONS = IdentityOptions(peppers=Peppers(keys=(b"pepper",)), grace_s=60)
CREATE = {"op": "create", "name": "ci", "tenant_id": "acme", "scopes": [RUNS_CREATE]}


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, family_options=[OPTIONS], request_keys=MemoryRequestKeys()) as made:
        yield made


async def on_tokens(here: Served, *, caller: Caller = ADMIN_CALLER, key: str = "", **body: Any) -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    return await here.client(caller).post(TOKENS, json=body, headers=headers)


async def made_token(here: Served, **body: Any) -> dict[str, Any]:
    answer = await on_tokens(here, **{**CREATE, **body})
    assert answer.status_code == 200, answer.text
    row: dict[str, Any] = answer.json()
    return row


async def registered(here: Served, subject: str = "ada", **fields: str) -> dict[str, Any]:
    answer = await here.client(ACME).post(USERS, json={"subject": subject, **fields})
    assert answer.status_code == 201, answer.text
    row: dict[str, Any] = answer.json()
    return row


async def token_of_user(here: Served, subject: str = "ada") -> dict[str, Any]:
    answer = await here.client(ACME).post(f"{USERS}/{subject}/tokens", json={})
    assert answer.status_code == 201, answer.text
    row: dict[str, Any] = answer.json()
    return row


async def with_text(here: Served, text: str, method: str = "GET", path: str = "/v1/_me", **more: Any) -> httpx.Response:
    """Send a request with a token."""
    headers = {"authorization": f"Bearer {text}", **more.pop("headers", {})}
    return await here.client(None).request(method, path, headers=headers, **more)


# --- tokens ----------------------------------------------------------------------------------------------------------


async def test_a_minted_token_is_its_holder_and_its_text_is_shown_once(here: Served) -> None:
    made = await made_token(here, subject="robot")
    assert made["token"].startswith("lct_")
    assert made["token_suffix"] == made["token"][4:10]
    assert (made["allowed_scopes"], made["retired"], made["active"]) == ([RUNS_CREATE], False, True)
    me = (await with_text(here, made["token"])).json()
    assert (me["tenant_id"], me["subject"], me["scopes"], me["is_admin"]) == ("acme", "robot", [RUNS_CREATE], False)
    for body in ({"op": "get", "def_id": made["def_id"]}, {"op": "list", "name": "ci"}):
        shown = await on_tokens(here, **body)
        assert shown.status_code == 200
        assert made["def_id"] in shown.text
        assert made["token"] not in shown.text
    names = (await here.client().get(f"{TOKENS}/names")).json()["names"]
    assert [(row["name"], row["active_def_id"]) for row in names] == [("ci", made["def_id"])]
    assert all(
        made["token"].encode() not in (one.value or b"") for all_ in here.world.log.records.values() for one in all_
    )


async def test_the_subject_is_named_after_the_token_where_nobody_names_it(here: Served) -> None:
    assert (await made_token(here))["subject"] == "tok-ci"


async def test_two_mints_of_one_name_at_once_make_one_token(here: Served) -> None:
    answers = await asyncio.gather(*(on_tokens(here, **CREATE) for _ in range(4)))
    assert sorted(one.status_code for one in answers) == [200, 422, 422, 422]


async def test_a_repeated_request_gives_the_same_token_without_its_text(here: Served) -> None:
    first = await on_tokens(here, key="k", **CREATE)
    again = await on_tokens(here, key="k", **CREATE)
    assert first.json()["def_id"] == again.json()["def_id"]
    assert "token" in first.json()
    assert "token" not in again.json()
    rotated = await on_tokens(here, key="r", op="rotate", name="ci")
    again = await on_tokens(here, key="r", op="rotate", name="ci")
    assert (rotated.json()["def_id"], "token" in again.json()) == (again.json()["def_id"], False)
    other = await on_tokens(here, key="k", **{**CREATE, "scopes": [RUNS_READ]})
    assert other.json()["code"] == "idempotency_key_reused"


async def test_an_imported_text_gives_access_and_shows_nothing_of_itself(here: Served) -> None:
    text = "a secret of 24 characters"
    made = await made_token(here, import_token=text)
    assert (made["imported"], "token_suffix" in made) == (True, False)
    assert (await with_text(here, text)).json()["subject"] == "tok-ci"
    answer = await on_tokens(here, **{**CREATE, "name": "other", "import_token": text})
    assert (answer.status_code, answer.json()["reason"]) == (422, "name_taken")


async def test_rotation_replaces_the_text_at_once_or_after_its_grace(here: Served) -> None:
    first = await made_token(here)
    second = (await on_tokens(here, op="rotate", def_id=first["def_id"])).json()
    assert (second["rotated_from"], second["name"]) == (first["def_id"], "ci")
    assert second["prior_retires_at"] > first["created_at"]
    for text in (first["token"], second["token"]):
        assert (await with_text(here, text)).status_code == 200
    third = (await on_tokens(here, op="rotate", name="ci", grace_seconds=0)).json()
    assert (await with_text(here, second["token"])).status_code == 401
    assert (await with_text(here, third["token"])).status_code == 200


async def test_unknown_expired_and_retired_tokens_are_one_refusal(here: Served) -> None:
    retired = await made_token(here)
    assert (await on_tokens(here, op="retire", def_id=retired["def_id"], retired=True)).json()["retired"] is True
    bodies = [(await with_text(here, text)) for text in (retired["token"], "lct_unknown", "unknown")]
    assert {one.status_code for one in bodies} == {401}
    assert len({one.json()["error"] for one in bodies}) == 1


async def test_the_shared_token_ends_only_on_request(here: Served) -> None:
    await made_token(here, name="root", scopes=[ADMIN])
    assert (await here.client().get("/v1/_me")).status_code == 200
    second = await made_token(here, name="second", scopes=[ADMIN], supersede_shared=True)
    assert (await here.client().get("/v1/_me")).status_code == 401
    assert (await here.client(ACME).get("/v1/_me")).status_code == 200, "principals of the files go on"
    assert (await with_text(here, second["token"])).status_code == 200


async def test_without_a_pepper_nothing_is_minted(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        answer = await on_tokens(here, **CREATE)
        assert (answer.status_code, answer.json()["code"]) == (503, "minting_off")
        assert "LOOMLOG_OPERATOR_TOKEN_PEPPER" in answer.json()["error"]


async def test_a_process_that_hears_nothing_answers_for_no_minted_token(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await made_token(here)
    monkeypatch.setattr(directory, "SILENCE_S", -1.0)
    for text in (made["token"], "lct_unknown"):
        answer = await with_text(here, text)
        assert (answer.status_code, answer.json()["code"]) == (503, "identity_unavailable")
        assert "retry-after" in answer.headers
    assert (await here.client(ACME).get("/v1/_me")).status_code == 200
    assert (await with_text(here, "wrong")).status_code == 401


async def test_an_open_stream_ends_with_the_token(here: Served) -> None:
    made = await made_token(here, scopes=[RUNS_READ])
    stream = Wire(here.app, "GET", "/v1/users/tok-ci/agents/stream", caller=None)
    stream.header("authorization", f"Bearer {made['token']}").begin()
    await stream.until("stream_open")
    here.service.open_access.end_revoked()
    assert not stream.ended
    await on_tokens(here, op="retire", def_id=made["def_id"])
    here.service.open_access.end_revoked()
    assert "ended: the token gives no access any more" in await stream.done()


# --- users -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "scopes"),
    [("isolated", {USER}), ("tenant", {"runs:create", "runs:read", "channel:publish", "channel:read"})],
)
async def test_the_scopes_of_a_user_follow_the_access_mode(here: Served, mode: str, scopes: set[str]) -> None:
    row = await registered(here, access_mode=mode, display_name="Ada L.")
    assert (row["status"], row["access_mode"], row["display_name"], row["created_by"]) == (
        "active",
        mode,
        "Ada L.",
        "acme-op",
    )
    made = await token_of_user(here)
    assert set(made["scopes"]) == scopes
    me = (await with_text(here, made["token"])).json()
    assert (me["subject"], set(me["scopes"]), me["is_isolated"]) == ("ada", scopes, mode == "isolated")


async def test_user_tokens_are_listed_without_their_text_and_revoked(here: Served) -> None:
    await registered(here)
    made, client = await token_of_user(here), here.client(ACME)
    listed = await client.get(f"{USERS}/ada/tokens")
    assert made["def_id"] in listed.text
    assert made["token"] not in listed.text
    gone = await client.delete(f"{USERS}/ada/tokens/{made['def_id']}")
    assert (gone.status_code, gone.json()["def_id"]) == (200, made["def_id"])
    assert (await with_text(here, made["token"])).status_code == 401
    (row,) = (await client.get(f"{USERS}/ada/tokens")).json()["tokens"]
    assert (row["active"], row["retired_at"]) == (False, gone.json()["retired_at"])


async def test_disabling_or_removing_a_user_ends_the_tokens_in_the_same_decision(here: Served) -> None:
    client = here.client(ACME)
    await registered(here)
    made = await token_of_user(here)
    assert (await client.patch(f"{USERS}/ada", json={"status": "disabled"})).json()["status"] == "disabled"
    assert (await with_text(here, made["token"])).status_code == 401
    await client.patch(f"{USERS}/ada", json={"status": "active"})
    made = await token_of_user(here)
    assert (await client.delete(f"{USERS}/ada")).status_code == 204
    assert (await with_text(here, made["token"])).status_code == 401
    assert (await client.get(f"{USERS}/ada/tokens")).status_code == 404


async def test_users_of_another_tenant_are_none(here: Served) -> None:
    await registered(here)
    made = await token_of_user(here)
    client = here.client(GLOBEX)
    for answer in (
        await client.patch(f"{USERS}/ada", json={"status": "disabled"}),
        await client.get(f"{USERS}/ada/tokens"),
        await client.delete(f"{USERS}/ada/tokens/{made['def_id']}"),
        await client.delete(f"{USERS}/ada"),
    ):
        assert answer.status_code == 404, answer.text
    assert (await with_text(here, made["token"])).status_code == 200


async def test_a_registered_isolated_user_is_confined_to_its_own_runs(here: Served) -> None:
    await registered(here, access_mode="isolated")
    text = (await token_of_user(here))["token"]
    run = await here.run("soaker", caller=ACME)
    run_id = next(frame.data["run_id"] for frame in run if "run_id" in frame.data)
    assert (await with_text(here, text, path=f"/v1/runs/{run_id}")).status_code in (404, 405)
    assert (await with_text(here, text, path=f"/v1/runs/{run_id}/stream")).status_code == 404
    assert (await with_text(here, text, path="/v1/_channels")).status_code == 403
    mine = await with_text(
        here,
        text,
        "POST",
        "/v1/runs",
        json={"agent": "soaker", "prompt": "go", "user_id": "bob", "tenant_id": "globex"},
    )
    assert mine.status_code == 200
    (row,) = (await here.client(ACME).get("/v1/runs", params={"user_id": "ada"})).json()["runs"]
    assert (row["user_id"], row["tenant_id"]) == ("ada", "acme")


# --- quotas ----------------------------------------------------------------------------------------------------------


async def test_quotas_bound_users_and_tokens_of_a_tenant(here: Served) -> None:
    admin = here.client()
    put = await admin.put("/v1/_quotas", params={"tenant": "acme"}, json={"scope": "tenant", "users": 1, "tokens": 1})
    assert put.json() == {"scope": "tenant", "scope_id": "", "users": 1, "tokens": 1}
    assert (await here.client(ACME).get("/v1/_quotas")).json()["quotas"] == [put.json()]
    await registered(here)
    await token_of_user(here)
    for answer, what in (
        (await here.client(ACME).post(USERS, json={"subject": "bob"}), "users"),
        (await here.client(ACME).post(f"{USERS}/ada/tokens", json={}), "tokens"),
    ):
        body = answer.json()
        assert (answer.status_code, body["code"], body["cap"], body["what"]) == (429, "tenant_quota_exhausted", 1, what)
    assert (await here.client(ACME).put("/v1/_quotas", json={"scope": "tenant"})).status_code == 403


# --- what there is ---------------------------------------------------------------------------------------------------


async def test_users_are_listed_with_what_they_have_run_also_those_that_nobody_registered(here: Served) -> None:
    await registered(here, display_name="Ada L.")
    await here.run("soaker", caller=STARTER)
    users = {row["user_id"]: row for row in (await here.client(READER).get(USERS)).json()["users"]}
    assert users["ada"] == {
        "user_id": "ada",
        "running_count": 0,
        "total_count": 0,
        "registered": True,
        "display_name": "Ada L.",
        "access_mode": "tenant",
        "status": "active",
    }
    assert (users["mem"]["registered"], users["mem"]["total_count"]) == (False, 1)
    assert users["mem"]["last_started_at"]


async def test_an_isolated_caller_sees_itself_alone(here: Served) -> None:
    await registered(here, access_mode="isolated")
    await registered(here, "bob")
    text = (await token_of_user(here))["token"]
    assert [row["user_id"] for row in (await with_text(here, text, path=USERS)).json()["users"]] == ["ada"]
    assert (await here.client(IVY).get(USERS)).json()["users"] == []


async def test_a_user_is_inspected_and_one_that_nobody_knows_has_nothing(here: Served) -> None:
    await registered(here)
    await token_of_user(here)
    shown = (await here.client(ACME).get(f"{USERS}/ada")).json()
    assert (shown["tenant"], shown["subject"], shown["tokens"], shown["chats"]) == ("acme", "ada", 1, 0)
    assert {"activity", "memory", "budget", "usage", "errors", "notes"} <= set(shown)
    nobody = await here.client(ACME).get(f"{USERS}/nobody")
    assert (nobody.status_code, nobody.json()["usage"]) == (200, {"calls": 0, "cost": 0.0})
    unnamed = await here.client().get(f"{USERS}/ada")
    assert (unnamed.status_code, unnamed.json()["code"]) == (400, "tenant_required")
    assert (await here.client().get(f"{USERS}/ada", params={"tenant": "acme"})).json()["tokens"] == 1
    assert (await here.client(READER).get(f"{USERS}/ada")).status_code == 403


async def test_tenants_are_listed_for_administrators(here: Served) -> None:
    await made_token(here, tenant_id="initech")
    await registered(here)
    await here.run("soaker", caller=STARTER)
    tenants = {row["tenant"]: row for row in (await here.client().get("/v1/_tenants")).json()["tenants"]}
    assert tenants["acme"] == {"tenant": "acme", "users": 2, "runs": 1}
    assert tenants["initech"] == {"tenant": "initech", "users": 0, "runs": 0}
    assert (await here.client(ACME).get("/v1/_tenants")).status_code == 403


async def test_access_is_explained_by_the_rule_that_decides_it(here: Served) -> None:
    made = await made_token(here, scopes=[RUNS_READ])
    await registered(here, access_mode="isolated")

    async def why(who: str, operation: str, caller: Caller = ACME) -> tuple[bool, str]:
        params = {"who": who, "operation": operation}
        answer = (await here.client(caller).get("/v1/_access/explain", params=params)).json()
        return answer.get("allowed", False), answer.get("why") or answer["code"]

    assert await why("ci", "user.list") == (True, "any caller may")
    assert await why(made["def_id"], "identity.register_user") == (False, "the scope substrate:tenant is missing")
    assert (await why("ada", "identity.list_quotas"))[1].startswith("the operation is on data of the whole tenant")
    assert await why("rob", "tenant.list") == (False, "the scope substrate:admin is missing")
    assert await why("ci", "user.list", GLOBEX) == (False, "not_found")
    assert await why("ci", "no.such") == (False, "bad_request")
    await on_tokens(here, op="retire", name="ci")
    assert (await why("ci", "user.list"))[1].startswith("the token has ended at")


async def test_quotas_bound_calls_runs_and_streams(here: Served) -> None:
    admin, params = here.client(), {"tenant": "acme"}

    async def set_quota(**bounds: int) -> None:
        answer = await admin.put("/v1/_quotas", params=params, json={"scope": "tenant", **bounds})
        assert answer.status_code == 200, answer.text

    def exhausted(answer: httpx.Response, what: str) -> None:
        body = answer.json()
        assert (answer.status_code, body["code"], body["what"]) == (429, "tenant_quota_exhausted", what)
        assert int(answer.headers["retry-after"]) > 0

    await set_quota(calls_per_minute=1)
    assert (await here.client(ACME).get("/v1/_me")).status_code == 200
    exhausted(await here.client(ACME).get("/v1/_me"), "calls_per_minute")
    assert (await here.client(GLOBEX).get("/v1/_me")).status_code == 200
    await set_quota(open_streams=0)
    exhausted(await here.client(ACME).get("/v1/users/ada/agents/stream"), "open_streams")
    await set_quota(runs_per_minute=0)
    run = {"agent": "soaker", "prompt": "go"}
    exhausted(await here.client(ACME).post("/v1/runs", json=run), "runs_per_minute")
    await set_quota()
    assert (await here.client(ACME).get("/v1/_quotas")).json()["quotas"] == []
    assert (await here.client(ACME).post("/v1/runs", json=run)).status_code == 200
