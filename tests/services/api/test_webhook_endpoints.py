"""Webhooks over HTTP: what is taken, what is refused and how, and what administrators see."""

import asyncio
import dataclasses
import gzip
import hmac
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.configuration.webhook_block import (
    WebhookAuth,
    WebhookBlock,
    WebhookRateLimit,
    WebhookSyncResponse,
)
from loomlog.services.core.refusals import Refused
from loomlog.services.families.ports.ingress import DECISION_WAIT_S
from loomlog.services.families.webhook import rejections
from loomlog.services.families.webhook.limits import INLINE_BYTES
from loomlog.services.families.webhook.mapping import REMOVED
from tests.services.api.serving import Served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, READER, STARTER
from tests.services.webhook_world import HMAC, INGRESS, ISSUES, SECRET, WebhookWorld, webhook_world


def changed(**changes: Any) -> WebhookBlock:
    return dataclasses.replace(ISSUES, **changes)


FEED = changed(delivery="channel", agent="", channel="feed", payload_mapping={})
FILES = {
    "issues": ISSUES,
    "raw": changed(payload_mapping={}),
    "feed": FEED,
    "nowhere": dataclasses.replace(FEED, channel="absent"),
    "off": changed(enabled=False),
    "unnamed": changed(auth=dataclasses.replace(HMAC, delivery_id_header="")),
    "ghost": changed(agent="ghost"),
    "silent": changed(agent="silent"),
    "acme": changed(tenant_id="acme", user_tier="resilient", metadata={"team": "blue"}),
    "mapped": changed(
        payload_mapping={
            "goal": "$.goal",
            "user_id": "$.who",
            "run_metadata.repo": "$.repo",
            "user_credentials.token": "$.key",
        },
        user_credentials_from_env={"fixed": "LOOMLOG_KEY", "token": "LOOMLOG_KEY"},
    ),
    "stored": changed(user_credentials={"token": "$cred:gh"}),
    "limited": changed(rate_limit=WebhookRateLimit(requests_per_minute=1, burst=2)),
    "small": changed(body_size_limit_bytes=40),
    "open": changed(auth=WebhookAuth(kind="none")),
    "unset": changed(auth=WebhookAuth(kind="hmac", signing_secret_env="LOOMLOG_ABSENT")),
    "patient": changed(sync_response=WebhookSyncResponse(enabled=True)),
    "hasty": changed(agent="silent", sync_response=WebhookSyncResponse(enabled=True, timeout_ms=20)),
    "test": ISSUES,
}


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[WebhookWorld]:
    async with webhook_world(tmp_path, FILES) as made:
        yield made


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_a_run_of_a_delivery_is_decided_by_an_owner_that_has_read_the_hooks_before_it(here: WebhookWorld) -> None:
    body = {"owner": "o", "name": "n", "phase": "pre", "callback_url": "https://example.com/hook", "tools": ["*"]}
    registered = await here.here.client().post("/v1/hooks", json=body)
    await here.send("issues", {"goal": "x"}, delivery="d-1")
    (start,) = here.starts()
    assert registered.headers["x-loomlog-position"] in start.after


async def test_a_signed_request_starts_a_run_of_the_definitions_tenant(here: WebhookWorld) -> None:
    answer = await here.send("issues", {"goal": "look"}, delivery="d1")
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["run_id"]
    assert answer.json() == {"webhook_name": "issues", "delivery_id": "d1", "run_id": run_id}
    (start,) = here.starts()
    assert (start.run_id, start.agent, start.envelope.tenant) == (run_id, "soaker", "default")
    (block,) = start.segments[0].content
    assert (block.type, block.kind, block.text) == ("untrusted-block", "webhook_payload", "look")
    assert start.options.trigger == "webhook:default/issues"


async def test_tenant_and_plan_are_the_definitions_under_every_address(here: WebhookWorld) -> None:
    for address in ("acme", "globex/acme"):
        answer = await here.send(address, {"goal": "x", "tenant_id": "globex", "user_tier": "gold"}, delivery=address)
        assert answer.status_code == 202, answer.text
    for start in here.starts():
        assert (start.envelope.tenant, start.options.user_tier) == ("acme", "resilient")
        assert start.options.metadata == {"team": '"blue"'}


async def test_the_same_delivery_starts_one_run(here: WebhookWorld) -> None:
    first = await here.send("issues", {"goal": "x"}, delivery="d1")
    second = await here.send("issues", {"goal": "y"}, delivery="d1")
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json() == {**first.json(), "deduped": "true"}
    other = await here.send("raw", {"goal": "x"}, delivery="d1")
    assert other.status_code == 202
    assert other.json()["run_id"] != first.json()["run_id"]


async def test_without_an_id_the_body_is_the_id(here: WebhookWorld) -> None:
    answers = [await here.send("issues", {"goal": goal}) for goal in ("x", "x", "y")]
    assert [answer.status_code for answer in answers] == [202, 200, 202]
    assert answers[0].json()["delivery_id"].startswith("sha256:")


@pytest.mark.parametrize("form", ["sha256={}", "{}"])
async def test_a_signed_request_is_not_new_under_another_unsigned_id(here: WebhookWorld, form: str) -> None:
    body = b'{"goal":"x"}'
    headers = {"X-Loomcycle-Signature": form.format(hmac.new(SECRET.encode(), body, "sha256").hexdigest())}
    client, answers = here.here.client(None), []
    for more in ({}, {}, {"webhook-id": "z1"}, {"webhook-id": "z2"}, {"webhook-id": "z3", "webhook-timestamp": "1"}):
        answers.append(await client.post("/v1/_webhooks/unnamed", content=body, headers=headers | more))
    assert [answer.status_code for answer in answers] == [202, 200, 200, 200, 200]
    assert len({answer.json()["run_id"] for answer in answers}) == len(here.starts()) == 1


async def test_two_deliveries_of_one_id_at_once_start_one_run(here: WebhookWorld) -> None:
    answers = await asyncio.gather(*(here.send("issues", {"goal": "x"}, delivery="d1") for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 202]
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len(here.starts()) == 1


async def test_a_run_that_is_refused_is_told_and_may_be_tried_again(here: WebhookWorld) -> None:
    first = await here.send("ghost", {"goal": "x"}, delivery="d1")
    assert (first.status_code, first.json()["error"]) == (400, "invalid_run")
    second = await here.send("ghost", {"goal": "x"}, delivery="d1")
    assert (second.status_code, second.json()["error"]) == (400, "invalid_run")
    assert len({start.run_id for start in here.starts()}) == 2
    rows = await here.recent("ghost")
    assert [(row["verdict"], row["status"], row["code"]) for row in rows] == [
        ("rejected_delivery", "refused", "unknown_agent")
    ] * 2


async def test_a_body_gives_user_metadata_and_credentials(here: WebhookWorld) -> None:
    body = {"goal": "x", "who": "ada", "repo": {"id": 1}, "key": "s3cret"}
    answer = await here.send("mapped", body, delivery="d1")
    (start,) = here.starts()
    assert (start.user_id, start.options.payload_metadata) == ("ada", {"repo": '"{\\"id\\":1}"'})
    assert start.options.credentials == ("fixed", "token")
    stored = here.credentials.values["default", answer.json()["run_id"]]
    assert stored == {"fixed": "from the environment", "token": "s3cret"}
    everything = b"".join(record.value or b"" for records in here.log.records.values() for record in records)
    assert b"s3cret" not in everything
    assert REMOVED.encode() in everything
    assert b"from the environment" not in everything


async def test_a_long_goal_lies_in_the_blob_store(here: WebhookWorld) -> None:
    text = "x" * (2 * INLINE_BYTES)
    answer = await here.send("issues", {"goal": text}, delivery="d1")
    assert answer.status_code == 202, answer.text
    (start,) = here.starts()
    (block,) = start.segments[0].content
    assert (await here.world.blobs.get(block.blob)).decode() == text
    biggest = max(len(record.value or b"") for records in here.log.records.values() for record in records)
    assert biggest < INLINE_BYTES


async def test_a_sender_may_wait_for_the_end(here: WebhookWorld) -> None:
    answer = await here.send("patient", {"goal": "x"}, delivery="d1", sync="true")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["final_text"]) == ("completed", "ok")
    assert answer.json()["agent_id"].startswith("a_")
    again = await here.send("patient", {"goal": "x"}, delivery="d1", sync="true")
    assert (again.status_code, again.json()["deduped"]) == (200, "true")
    late = await here.send("hasty", {"goal": "x"}, sync="true")
    assert (late.status_code, late.json()["error"]) == (504, "sync_timeout")
    assert late.json()["run_id"]
    assert (await here.send("issues", {"goal": "x"}, sync="true")).status_code == 202


async def test_content_is_encrypted_everywhere_in_the_log(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, FILES, encrypted=True) as here:
        answer = await here.send("mapped", {"goal": "canary one", "who": "ada", "repo": "canary two"}, delivery="d1")
        assert answer.status_code == 202, answer.text
        await here.until(here.starts)
        everything = b"".join(record.value or b"" for records in here.log.records.values() for record in records)
        assert b"canary" not in everything
        (start,) = here.starts()
        assert here.world.keys is not None
        assert here.world.keys.decrypt(start.segments[0].content[0].text, "default") == "canary one"
        (row,) = await here.recent("mapped")
        assert row["run_metadata"] == {"repo": '"canary two"'}


# --- channels --------------------------------------------------------------------------------------------------------


async def test_a_channel_gets_the_body_before_the_answer(here: WebhookWorld) -> None:
    answer = await here.send("feed", {"n": [1, 2]}, delivery="d1")
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"webhook_name": "feed", "delivery_id": "d1", "channel": "feed"}
    assert here.channels.values() == [{"n": [1, 2]}]
    again = await here.send("feed", {"n": 3}, delivery="d1")
    assert (again.status_code, again.json()["deduped"], again.json()["channel"]) == (200, "true", "feed")
    assert here.channels.values() == [{"n": [1, 2]}]


async def test_a_channel_that_is_not_there_is_told(here: WebhookWorld) -> None:
    answer = await here.send("nowhere", {"n": 1}, delivery="d1")
    assert (answer.status_code, answer.json()["error"]) == (503, "channel_unavailable")
    assert (await here.recent("nowhere"))[0]["verdict"] == "rejected_publish"


# --- what is refused -------------------------------------------------------------------------------------------------


async def test_unknown_and_disabled_look_the_same(here: WebhookWorld) -> None:
    unknown, disabled = await here.send("none", {}), await here.send("off", {})
    assert unknown.status_code == disabled.status_code == 404
    assert unknown.content == disabled.content
    assert unknown.json()["error"] == "unknown_webhook"


async def test_everything_is_unknown_while_webhooks_are_off(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, FILES, options={"enabled": False}) as here:
        assert (await here.send("issues", {"goal": "x"})).status_code == 404


async def test_a_wrong_signature_is_refused_and_says_nothing(here: WebhookWorld) -> None:
    answer = await here.send("issues", {"goal": "x"}, delivery="d1", secret="wrong")
    assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized", "code": "unauthorized"})
    assert here.log.records[INGRESS, 0] == []
    (row,) = await here.recent("issues")
    assert (row["verdict"], row["delivery_id"]) == ("rejected_sig", "d1")
    assert "differs from that of the body" in row["detail"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 1_000_000, "bad_mapping"),
        (b'{"a":1,"a":2}', "bad_mapping"),
        (b"NaN", "bad_mapping"),
        (b"", "bad_mapping"),
    ],
)
async def test_a_body_that_is_no_plain_json_is_refused(here: WebhookWorld, body: bytes, code: str) -> None:
    for name in ("issues", "feed"):
        answer = await here.send(name, body)
        assert (answer.status_code, answer.json()["error"]) == (400, code), answer.text


async def test_a_body_over_the_limit_is_refused(here: WebhookWorld) -> None:
    answer = await here.send("small", {"goal": "x" * 100}, delivery="d1")
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")
    assert (await here.recent("small"))[0]["verdict"] == "rejected_body"


async def test_what_the_operator_has_not_set_is_named(here: WebhookWorld) -> None:
    unset = await here.send("unset", {"goal": "x"})
    assert (unset.status_code, unset.json()["error"], unset.json()["secret_env"]) == (
        503,
        "secret_unresolvable",
        "LOOMLOG_ABSENT",
    )
    closed = await here.send("open", {"goal": "x"})
    assert (closed.status_code, closed.json()["error"]) == (503, "unauthenticated_mode_disabled")


async def test_kind_none_takes_everything_where_it_is_allowed(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, FILES, options={"allow_unauthenticated": True}) as here:
        assert (await here.send("open", {"goal": "x"}, secret="wrong")).status_code == 202


async def test_a_delivery_id_must_be_a_short_name(here: WebhookWorld) -> None:
    answer = await here.send("issues", {"goal": "x"}, delivery="x" * 257)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_delivery")


async def test_too_many_are_refused_until_later(here: WebhookWorld) -> None:
    answers = [await here.send("limited", {"goal": str(n)}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[2].json()["error"] == "rate_limited"
    assert int(answers[2].headers["retry-after"]) == 60


async def test_a_flood_of_bad_signatures_is_counted(here: WebhookWorld) -> None:
    for n in range(rejections.AT_ONCE + 25):
        assert (await here.send("issues", {"n": n}, secret="wrong")).status_code == 401
    assert len(await here.recent("issues")) == rejections.AT_ONCE
    here.webhooks._rejections.flush()
    rows = await here.recent("issues")
    assert (len(rows), rows[0]["count"], rows[0]["verdict"]) == (rejections.AT_ONCE + 1, 25, "rejected_sig")


# --- owners and brokers that are away --------------------------------------------------------------------------------


async def test_broker_and_api_suffice_to_accept(here: WebhookWorld) -> None:
    await here.stop_reading()
    here.webhooks._ingress.wait_s = 0.02
    first = await here.send("issues", {"goal": "x"}, delivery="d1")
    assert (first.status_code, first.json()["pending"]) == (202, True)
    feed = await here.send("feed", {"n": 1}, delivery="d2")
    assert (feed.status_code, feed.json()["pending"], feed.json()["channel"]) == (202, True, "feed")
    assert here.starts() == []
    here.read()
    await here.until(lambda: here.starts() and here.channels.values())
    assert "run_id" not in first.json()
    here.webhooks._ingress.wait_s = 5.0
    repeated = await here.send("issues", {"goal": "x"}, delivery="d1")
    assert repeated.json()["run_id"] == here.starts()[0].run_id


async def test_an_owner_that_starts_no_run_in_time_leaves_the_answer_pending(here: WebhookWorld) -> None:
    here.webhooks._ingress.wait_s = 0.05
    here.world.owner_is_busy = True
    answer = await here.send("issues", {"goal": "x"}, delivery="d1")
    assert (answer.status_code, answer.json()["pending"]) == (202, True)


async def test_a_list_has_the_deliveries_that_were_answered_before_their_decision(here: WebhookWorld) -> None:
    await here.stop_reading()
    here.webhooks._ingress.wait_s = 0.02
    assert (await here.send("issues", {"goal": "x"}, delivery="d1")).json()["pending"] is True
    listing = asyncio.create_task(here.recent("issues"))
    await asyncio.sleep(0)
    here.read()
    (row,) = await listing
    assert (row["delivery_id"], (row["position"],) in here.entities.waited) == ("d1", True)


async def test_a_list_waits_for_the_rows_of_what_was_decided(here: WebhookWorld) -> None:
    assert (await here.send("issues", {"goal": "x"}, delivery="d1")).status_code == 202
    (row,) = await here.recent("issues")
    assert (row["position"],) in here.entities.waited


async def test_a_broker_that_is_away_is_told(here: WebhookWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.world.layer.ingress_publisher, "_queues", [])
    answer = await here.send("issues", {"goal": "x"})
    assert (answer.status_code, answer.json()["error"]) == (503, "runtime_unavailable")


# --- administrators --------------------------------------------------------------------------------------------------


async def test_recent_deliveries_are_for_administrators(here: WebhookWorld) -> None:
    path = "/v1/_webhooks/issues/recent-deliveries"
    assert await here.recent("issues") == [], "it takes requests, and none came"
    unknown = await here.here.client(ADMIN_CALLER).get(path.replace("issues", "nothing"))
    assert (unknown.status_code, "no webhook 'nothing'" in unknown.json()["error"]) == (404, True)
    await here.send("issues", {"goal": "x"}, delivery="d1")
    await here.send("issues", {"goal": "x"}, delivery="d1")
    rows = await here.recent("issues")
    assert [(row["delivery_id"], row["verdict"]) for row in rows] == [("d1", "accepted_replay"), ("d1", "accepted")]
    assert rows == await here.recent("default/issues")
    assert rows[0]["received_at"].endswith("Z")
    places = [row["position"].rpartition(":") for row in rows]
    assert {place[0] for place in places} == {"loom.entity.events/" + places[0][0].rpartition("/")[2]}
    assert int(places[0][2]) > int(places[1][2]), "each delivery has its own event"
    assert rows[1]["source_position"].startswith("loom.ingress/")
    assert (await here.here.client(ACME).get(path)).status_code == 403
    assert (await here.here.client(None).get(path)).status_code == 401
    assert len((await here.here.client(ADMIN_CALLER).get(path, params={"limit": "1"})).json()["deliveries"]) == 1
    assert (await here.here.client(ADMIN_CALLER).get(path, params={"limit": "51"})).status_code == 400


async def test_a_dry_run_tells_what_would_become_of_a_request(here: WebhookWorld) -> None:
    good = await here.send("mapped/test", {"goal": "try", "who": "ada", "key": "s"}, caller=ADMIN_CALLER)
    assert good.json()["would_accept"] is True
    assert good.json()["run_input_preview"] == {
        "agent": "soaker",
        "user_id": "ada",
        "goal": "try",
        "run_metadata": {},
        "credential_keys": ["fixed", "token"],
    }
    bad = await here.send("issues/test", {"goal": "try"}, secret="wrong", caller=ADMIN_CALLER)
    assert (bad.status_code, bad.json()["would_accept"], bad.json()["verdict"]) == (200, False, "rejected_sig")
    assert (await here.send("default/issues/test", {"goal": "x"}, caller=ADMIN_CALLER)).json()["would_accept"] is True
    assert (await here.send("none/test", {}, caller=ADMIN_CALLER)).status_code in (200, 404)
    assert (await here.send("default/issues/test", {}, caller=ACME)).status_code == 403
    assert here.starts() == []


async def test_a_webhook_that_is_called_test_takes_requests(here: WebhookWorld) -> None:
    answer = await here.send("acme/test", {"goal": "x"}, delivery="d1")
    assert (answer.status_code, answer.json()["webhook_name"]) == (202, "test")
    assert len(here.starts()) == 1


async def test_without_a_webhook_called_test_the_path_needs_a_token(tmp_path: Path) -> None:
    async with webhook_world(tmp_path, {"issues": ISSUES}) as here:
        assert (await here.send("issues/test", {"goal": "x"})).status_code == 401
        assert (await here.send("issues/test", {"goal": "x"}, caller=ACME)).status_code == 403
        assert (await here.send("none/test", {}, caller=ADMIN_CALLER)).status_code == 404


async def test_a_run_gets_the_stored_credential_that_its_webhook_names(here: WebhookWorld) -> None:
    await here.send("stored", {"goal": "x"}, delivery="d1")
    assert [row["verdict"] for row in await here.recent("stored")] == ["unresolvable_secret"]
    body = {"op": "create", "name": "gh", "value": "ghp-stored"}
    made = await here.here.client(ADMIN_CALLER).post("/v1/_credentialdef?tenant=default", json=body)
    assert made.status_code == 200, made.text
    answer = await here.send("stored", {"goal": "x"}, delivery="d2")
    assert here.credentials.values["default", answer.json()["run_id"]] == {"token": "ghp-stored"}


async def test_a_delivery_can_be_given_again(here: WebhookWorld) -> None:
    first = await here.send("mapped", {"goal": "x", "key": "s3cret"}, delivery="d1")
    admin = here.here.client(ADMIN_CALLER)
    answer = await admin.post("/v1/_webhooks/mapped/replay", json={"delivery_id": "d1"})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["replay_of"], answer.json()["delivery_id"]) == ("d1", "replay:d1:2")
    run_id = answer.json()["run_id"]
    assert run_id != first.json()["run_id"]
    await here.until(lambda: len(here.starts()) == 2)
    assert here.starts()[1].segments[0].content[0].text == "x"
    assert here.credentials.values["default", run_id]["token"] == "s3cret"
    rows = await here.recent("mapped")
    assert (rows[0]["replay_of"], rows[0]["by"]) == ("d1", "default")
    unknown = await admin.post("/v1/_webhooks/default/mapped/replay", json={"delivery_id": "none"})
    assert unknown.status_code == 404
    wrong = await admin.post("/v1/_webhooks/default/mapped/replay", json={"delivery_id": 7})
    assert wrong.status_code == 400


async def test_a_record_that_is_deleted_cannot_be_given_again(here: WebhookWorld) -> None:
    await here.send("issues", {"goal": "x"}, delivery="d1")
    for partition in range(here.entities.partitions):
        here.log.delete_before(INGRESS, partition, 10)
    answer = await here.here.client(ADMIN_CALLER).post("/v1/_webhooks/issues/replay", json={"delivery_id": "d1"})
    assert (answer.status_code, "no longer kept" in answer.json()["error"]) == (404, True)


# --- CloudEvents -----------------------------------------------------------------------------------------------------

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order", "data": {"goal": "ship"}}


async def post(here: Served, event: Any, *, caller: Any = ACME, kind: str = "application/cloudevents+json") -> Any:
    return await here.client(caller).post("/v1/events", content=json.dumps(event), headers={"Content-Type": kind})


async def test_an_event_goes_to_a_webhook_or_a_channel(here: WebhookWorld) -> None:
    answer = await post(here.here, EVENT | {"webhook": "acme"})
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"id": "1", "source": "/shop", "delivery_id": "/shop#1", "webhook": "acme"}
    await here.until(here.starts)
    assert here.starts()[0].segments[0].content[0].text == "ship"
    await here.until(lambda: here.parked() == [])


@pytest.mark.parametrize("name", sorted(FILES))
async def test_an_event_reaches_no_webhook_of_another_tenant(here: WebhookWorld, name: str) -> None:
    callers = [GLOBEX] if name == "acme" else [GLOBEX, ACME, STARTER]
    for caller in callers:
        unknown = await post(here.here, EVENT | {"webhook": "x" * len(name)}, caller=caller)
        answer = await post(here.here, EVENT | {"webhook": name}, caller=caller)
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_webhook")
        texts = (answer.text.replace(name, "x" * len(name)), unknown.text)
        assert len({re.sub(r"q_[0-9a-f]+", "", text) for text in texts}) == 1
        assert answer.headers.keys() == unknown.headers.keys()
    assert INGRESS not in {topic for (topic, _), records in here.log.records.items() if records}
    assert here.starts() == []


async def test_an_event_in_binary_mode_is_the_same(here: WebhookWorld) -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order", "ce-webhook": "issues"}
    client = here.here.client(ADMIN_CALLER)
    for _ in range(2):
        answer = await client.post("/v1/events", json={"goal": "ship"}, headers=headers)
        assert answer.status_code == 202, answer.text
    await here.until(here.starts)
    rows = await here.recent("issues")
    assert {row["verdict"] for row in rows} <= {"accepted", "accepted_replay"}
    assert len(here.starts()) == 1


async def test_each_event_of_a_batch_has_its_result(here: WebhookWorld) -> None:
    batch = [EVENT | {"webhook": "issues"}, EVENT | {"webhook": "none"}, EVENT, 7]
    answer = await post(here.here, batch, caller=ADMIN_CALLER, kind="application/cloudevents-batch+json")
    assert answer.status_code == 202, answer.text
    assert answer.json()["accepted"] == 1
    codes = [result.get("code", result["status"]) for result in answer.json()["results"]]
    assert codes == ["accepted", "unknown_webhook", "bad_request", "bad_request"]


async def test_events_need_the_scope_of_what_they_do(here: WebhookWorld) -> None:
    assert (await post(here.here, EVENT | {"webhook": "issues"}, caller=None)).status_code == 401
    assert (await post(here.here, EVENT | {"webhook": "issues"}, caller=READER)).status_code == 403
    assert (await post(here.here, EVENT | {"webhook": "issues"}, caller=IVY)).status_code == 403
    assert (await post(here.here, EVENT | {"channel": "feed"}, caller=STARTER)).status_code == 403
    assert (await post(here.here, EVENT | {"webhook": "acme"}, caller=STARTER)).status_code == 202
    assert (await post(here.here, EVENT | {"channel": "absent"}, caller=ACME)).status_code == 404


async def test_an_event_is_published_where_its_caller_may_publish(here: WebhookWorld) -> None:
    for channel, caller, expected in (
        ("feed", ACME, 403),
        ("feed", ADMIN_CALLER, 202),
        ("wall", ACME, 202),
        ("beats", ACME, 403),
        ("beats", ADMIN_CALLER, 409),
    ):
        assert (await post(here.here, EVENT | {"channel": channel}, caller=caller)).status_code == expected, channel


@pytest.mark.parametrize(
    "event",
    [{}, [], EVENT, EVENT | {"webhook": "a", "channel": "b"}, EVENT | {"specversion": "0.3", "webhook": "issues"}],
)
async def test_what_is_no_event_is_refused(here: WebhookWorld, event: Any) -> None:
    answer = await post(here.here, event)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_the_wait_is_a_second() -> None:
    assert (DECISION_WAIT_S, HMAC.kind, SECRET) == (1.0, "hmac", "hush")


# --- what never succeeds, and what passes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "answer", "verdict"),
    [
        ({"title": "z" * 70_000}, (413, "payload_too_large"), "rejected_body"),
        ({"commits": [{"message": "fix\0 it"}]}, (400, "bad_mapping"), "rejected_body"),
        ({"n": 2**64}, (400, "bad_mapping"), "rejected_body"),
        (b"null", (400, "bad_mapping"), "rejected_body"),
    ],
)
async def test_a_body_that_no_channel_keeps_is_refused_for_good_and_shown_so(
    here: WebhookWorld, payload: Any, answer: tuple[int, str], verdict: str
) -> None:
    for _ in range(2):
        sent = await here.send("feed", payload, delivery="d1")
        assert (sent.status_code, sent.json()["error"]) == answer
        assert "retry-after" not in sent.headers
    assert {row["verdict"] for row in await here.recent("feed")} == {verdict}
    assert here.channels.messages == {}


async def test_a_message_that_is_refused_later_is_no_accepted_delivery(here: WebhookWorld) -> None:
    for code, status in (("payload_too_large", 413), ("invalid_request", 400), ("channel_full", 503)):
        here.channels.error = Refused(code, "no")
        assert (await here.send("feed", {"n": code}, delivery=code)).status_code == status
    rows = await here.recent("feed")
    assert [(row["verdict"], row["status"]) for row in rows] == [("rejected_publish", "refused")] * 3


ZEN = b'{"zen":"Design for failure.","goal":"look"}'
FORM = b"payload=%7B%22zen%22%3A%22Design+for+failure.%22%2C%22goal%22%3A%22look%22%7D"
FORM_TYPE = {"Content-Type": "application/x-www-form-urlencoded"}
GZIP = {"Content-Encoding": "gzip"}


async def post_signed(here: WebhookWorld, body: bytes, headers: dict[str, str], name: str = "issues") -> Any:
    signature = "sha256=" + hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    headers = {"X-Hub-Signature-256": signature, "Content-Type": "application/json", **headers}
    return await here.here.client(None).post(f"/v1/_webhooks/{name}", content=body, headers=headers)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (FORM, FORM_TYPE),
        (FORM, {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}),
        (b"x=1&" + FORM, FORM_TYPE),
        (ZEN, FORM_TYPE),
        (b"\xef\xbb\xbf" + ZEN, {}),
        (gzip.compress(ZEN, mtime=0), GZIP),
        (gzip.compress(FORM, mtime=0), {**GZIP, **FORM_TYPE}),
    ],
)
async def test_a_body_is_read_however_its_sender_packs_it(
    here: WebhookWorld, body: bytes, headers: dict[str, str]
) -> None:
    answer = await post_signed(here, body, headers)
    assert answer.status_code == 202, answer.text
    assert [start.segments[0].content[0].text for start in here.starts()] == ["look"]


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"payload=%7B%7D&payload=%7B%7D", FORM_TYPE, 400),
        (b"other=%7B%7D", FORM_TYPE, 400),
        (b"payload=%ff", FORM_TYPE, 400),
        (b"&".join([b"a=1"] * 200) + b"&" + FORM, FORM_TYPE, 400),
        (b"\xff\xfe{\x00}\x00", {}, 400),
        (ZEN, GZIP, 400),
        (gzip.compress(ZEN, mtime=0)[:-4], GZIP, 400),
        (gzip.compress(ZEN, mtime=0) * 2, GZIP, 400),
        (gzip.compress(b"[" + b" " * 2_000_000 + b"]", mtime=0), GZIP, 413),
        (ZEN, {"Content-Encoding": "br"}, 400),
    ],
)
async def test_a_body_that_cannot_be_unpacked_is_refused(
    here: WebhookWorld, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await post_signed(here, body, headers)
    assert answer.status_code == status, answer.text
    assert here.starts() == []


async def test_an_answer_that_is_pending_names_no_run_that_may_never_be(here: WebhookWorld) -> None:
    first = await here.send("issues", {"goal": "x"}, delivery="d1")
    await here.stop_reading()
    here.webhooks._ingress.wait_s = 0.02
    repeated = await here.send("issues", {"goal": "x"}, delivery="d1")
    assert (repeated.status_code, repeated.json()) == (
        202,
        {"webhook_name": "issues", "delivery_id": "d1", "pending": True},
    )
    here.webhooks._ingress.wait_s = 5.0
    here.read()
    again = await here.send("issues", {"goal": "x"}, delivery="d1")
    assert again.json()["run_id"] == first.json()["run_id"]
    assert len(here.starts()) == 1


async def test_events_beyond_the_rate_of_their_webhook_are_refused_until_later(here: WebhookWorld) -> None:
    events = [{**EVENT, "webhook": "limited", "id": str(number)} for number in range(5)]
    answers = [await post(here.here, event, caller=ADMIN_CALLER) for event in events[:3]]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[2].json()["code"] == "rate_limited"
    assert int(answers[2].headers["retry-after"]) > 0
    kind = "application/cloudevents-batch+json"
    batch = [*events[3:], {**EVENT, "webhook": "issues", "id": "9"}]
    results = (await post(here.here, batch, caller=ADMIN_CALLER, kind=kind)).json()["results"]
    assert [result.get("code", result["status"]) for result in results] == ["rate_limited", "rate_limited", "accepted"]
    assert all(result["retry_after_s"] > 0 for result in results[:2])


async def test_an_event_that_its_webhook_does_not_decide_in_time_is_pending(here: WebhookWorld) -> None:
    await here.stop_reading()
    here.webhooks._ingress.wait_s = 0.02
    answer = await post(here.here, EVENT | {"webhook": "issues"}, caller=ADMIN_CALLER)
    assert (answer.status_code, answer.json()["pending"]) == (202, True)


async def test_an_event_that_its_channel_never_keeps_is_refused(here: WebhookWorld) -> None:
    for data, status in (({"title": "z" * 70_000}, 413), ({"text": "fix\0 it"}, 400)):
        answer = await post(here.here, {**EVENT, "channel": "feed", "data": data}, caller=ADMIN_CALLER)
        assert answer.status_code == status, answer.text
    assert here.channels.messages == {}
