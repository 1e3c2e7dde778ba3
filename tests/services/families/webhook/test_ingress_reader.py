"""The reader of loom.ingress: our records, CloudEvents and garbage, and what survives a crash."""

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope
from loomlog.schemas.generated.webhook_commands import ReceiveDelivery, SubmitDelivery
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.channel.caller import Declaration
from loomlog.services.families.webhook import ingress_reader as ingress
from loomlog.services.families.webhook import state
from loomlog.services.families.webhook.ingress_records import Unreadable, read_record
from loomlog.services.families.webhook.limits import GENERATIONS
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.webhook_world import INGRESS, ISSUES, MemoryGroup, WebhookWorld, webhook_world

FEED = dataclasses.replace(ISSUES, delivery="channel", agent="", channel="feed", payload_mapping={})
FILES = {"issues": ISSUES, "feed": FEED, "system": dataclasses.replace(FEED, channel="_system/x")}
FILES |= {"of-acme": dataclasses.replace(ISSUES, tenant_id="acme")}
ATTRIBUTES = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "/shop", "ce_type": "order"}


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebhookWorld]:
    monkeypatch.setattr(ingress, "RETRY_S", 0.01)
    async with webhook_world(tmp_path, FILES) as made:
        yield made


def submission(**fields: Any) -> bytes:
    envelope = CommandEnvelope(command_id=fields.pop("command_id", "c1"), tenant=fields.pop("tenant", "default"))
    fields = {"delivery_id": "d1", "received_at_ms": 1, "body": '{"goal":"x"}', **fields}
    return local_codec().encode(SubmitDelivery(envelope=envelope, **fields))


async def test_a_record_is_committed_once_it_is_answered(here: WebhookWorld) -> None:
    await here.send("issues", {"goal": "x"}, delivery="d1")
    await here.until(lambda: sum(here.committed.values()) == 1)


async def test_a_commit_that_fails_is_part_of_the_next(here: WebhookWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress, "COMMIT_EVERY_S", 0.0)
    commit, failures = MemoryGroup.commit, [Transient("away", kind="unavailable")]

    async def failing(group: MemoryGroup, offsets: Any) -> None:
        if failures:
            raise failures.pop()
        await commit(group, offsets)

    monkeypatch.setattr(MemoryGroup, "commit", failing)
    here.put(submission(name="issues"))
    await here.until(lambda: not failures)
    here.put(submission(name="issues", command_id="c2", delivery_id="d2"), partition=1)
    await here.until(lambda: here.committed == {0: 1, 1: 1})


async def test_a_reader_that_dies_before_it_commits_does_no_harm(here: WebhookWorld) -> None:
    await here.send("issues", {"goal": "x"}, delivery="d1")
    await here.send("feed", {"n": 1}, delivery="d2")
    await here.stop_reading()
    here.committed.clear()
    here.read()
    await here.until(lambda: sum(here.committed.values()) == 2)
    await here.send("issues", {"goal": "y"}, delivery="d3")
    assert sorted(start.segments[0].content[0].text for start in here.starts()) == ["x", "y"]
    assert here.channels.values() == [{"n": 1}]
    assert [row["verdict"] for row in await here.recent("feed")] == ["accepted"]


async def test_a_record_that_was_appended_twice_is_one_delivery(here: WebhookWorld) -> None:
    for _ in range(2):
        here.put(submission(name="issues"))
    await here.until(lambda: here.committed.get(0) == 2)
    assert [row["verdict"] for row in await here.recent("issues")] == ["accepted"]


async def test_a_delivery_that_waits_holds_commits_back_and_no_other_delivery(
    here: WebhookWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loomlog.services.families.webhook.ingress_reader.RETRY_S", 0.001)
    here.channels.error = Unavailable("away")
    assert (await here.send("feed", {"n": 1}, delivery="d1")).status_code == 202
    answer = await here.send("issues", {"goal": "x"}, delivery="d2")
    assert (answer.status_code, "pending" in answer.json()) == (202, False)
    assert not any(here.committed.values())
    here.channels.error = None
    await here.until(lambda: sum(here.committed.values()) == 2)
    assert here.channels.values() == [{"n": 1}]


async def test_owners_and_channels_that_are_away_are_waited_for(
    here: WebhookWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.webhooks._ingress.wait_s = 0.02
    ask, failures = here.entities.ask, [CommandUnanswered("away"), Transient("away", kind="unavailable")]

    async def failing(command: Any, *, wait_s: float) -> Any:
        if failures and isinstance(command, ReceiveDelivery):
            raise failures.pop()
        return await ask(command, wait_s=wait_s)

    monkeypatch.setattr(here.entities, "ask", failing)
    here.channels.error = Unavailable("away")
    assert (await here.send("feed", {"n": 1}, delivery="d1")).json()["pending"] is True
    await here.until(lambda: not failures)
    assert here.committed == {}
    here.channels.error = None
    await here.until(lambda: sum(here.committed.values()) == 1)
    assert here.channels.values() == [{"n": 1}]


async def test_a_message_that_is_refused_leaves_its_delivery_new(here: WebhookWorld) -> None:
    here.channels.error = Refused("channel_full", "no room")
    refused = await here.send("feed", {"n": 1}, delivery="d1")
    assert (refused.status_code, refused.json()["detail"]) == (503, "no room")
    here.channels.error = None
    assert (await here.send("feed", {"n": 1}, delivery="d1")).status_code == 202
    assert here.channels.values() == [{"n": 1}]


async def test_only_the_system_publishes_to_its_channels(here: WebhookWorld) -> None:
    here.channels.declared["_system/x"] = Declaration(name="_system/x", scope="global")
    assert (await here.send("system", {"n": 1})).status_code == 503
    for number, name in enumerate(("_system/x", "beats")):
        here.put(b"{}", ATTRIBUTES | {"ce_channel": name}, partition=number)
    await here.until(lambda: len(here.parked()) == 2)
    assert all("only the system" in reason for reason in here.parked())
    assert here.channels.messages == {}


async def test_an_id_that_its_owner_has_forgotten_is_found_in_the_rows(
    here: WebhookWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "GENERATION_MAX", 1)
    first = await here.send("issues", {"goal": "x"}, delivery="old")
    for number in range(GENERATIONS):
        assert (await here.send("issues", {"goal": "x"}, delivery=f"d{number}")).status_code == 202
    answer = await here.send("issues", {"goal": "x"}, delivery="old")
    assert (answer.status_code, answer.json()["run_id"]) == (200, first.json()["run_id"])
    assert len(here.starts()) == GENERATIONS + 1


# --- CloudEvents -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["binary", "structured"])
async def test_a_cloud_event_of_any_producer_starts_a_run(here: WebhookWorld, mode: str) -> None:
    for _ in range(2):
        if mode == "binary":
            here.put(b'{"goal":"ship"}', ATTRIBUTES | {"ce_webhook": "issues", "content-type": "application/json"})
        else:
            event = {name.removeprefix("ce_"): value for name, value in ATTRIBUTES.items()}
            event |= {"webhook": "issues", "data": {"goal": "ship"}}  # type: ignore[dict-item]  # of JSON
            content_type = "application/cloudevents+json; charset=UTF-8"
            here.put(json.dumps(event).encode(), {"content-type": content_type})
    await here.until(lambda: here.committed.get(0) == 2)
    (start,) = here.starts()
    assert (start.segments[0].content[0].text, start.envelope.tenant) == ("ship", "default")
    rows = await here.recent("issues")
    assert [(row["delivery_id"], row["verdict"]) for row in rows] == [
        ("/shop#1", "accepted_replay"),
        ("/shop#1", "accepted"),
    ]


async def test_a_cloud_event_is_published_once_to_its_channel(here: WebhookWorld) -> None:
    here.put(b"[1]", ATTRIBUTES | {"ce_channel": "feed", "ce_tenant": "acme"})
    here.put(b"hello", ATTRIBUTES | {"ce_channel": "feed", "ce_scopeid": "ada", "content-type": "text/plain"})
    await here.until(lambda: len(here.channels.messages) == 2)
    await here.stop_reading()
    here.committed.clear()
    here.read()
    await here.until(lambda: here.committed.get(0) == 2)
    assert sorted(here.channels.values(), key=str) == [[1], "hello"]
    assert {caller.tenant for _, _, caller in here.channels.messages.values()} == {"acme", "default"}


GARBAGE: list[tuple[bytes, dict[str, str], str]] = [
    (b"", {}, "neither headers"),
    (b"hello", {}, "neither headers"),
    (b"\0\0\0\0\7garbage", {}, ""),
    (b"\0", {}, ""),
    (b"{}", ATTRIBUTES, "webhook and channel"),
    (b"{}", ATTRIBUTES | {"ce_webhook": "none"}, "there is no webhook"),
    (b"{}", ATTRIBUTES | {"ce_webhook": "issues", "ce_tenant": "acme"}, "there is no webhook"),
    (b"{}", ATTRIBUTES | {"ce_webhook": "of-acme"}, "there is no webhook"),
    (b"{}", ATTRIBUTES | {"ce_webhook": "feed", "ce_tenant": "acme"}, "there is no webhook"),
    (submission(name="of-acme", tenant="globex", address="acme"), {}, "there is no webhook"),
    (submission(name="issues", tenant="acme"), {}, "there is no webhook"),
    (b"{}", ATTRIBUTES | {"ce_webhook": "issues", "ce_tenant": "a/b"}, "tenant"),
    (b"{}", ATTRIBUTES | {"ce_channel": "absent"}, "channel_not_declared"),
    (b"{}", {"ce_specversion": "0.3"}, "specversion"),
    (b"\xff", ATTRIBUTES | {"ce_webhook": "issues", "content-type": "text/plain"}, "not UTF-8"),
    (b'{"a":1,"a":2}', ATTRIBUTES | {"ce_webhook": "issues"}, "twice"),
    (b"\xff", ATTRIBUTES | {"ce_webhook": "issues", "content-type": "image/png"}, "only JSON and text"),
    (b"[" * 100_000, {"content-type": "application/cloudevents+json"}, "deeper"),
    (submission(), {}, "neither a webhook nor a channel"),
    (submission(channel="feed", body="[" * 100), {}, "deeper"),
    (submission(name="issues", delivery_id=""), {}, "bad_delivery"),
    (submission(name="issues", positions=("x",)), {}, "positions"),
    (submission(name="issues", command_id=""), {}, "command_id"),
    (submission(name="issues", tenant="a/b"), {}, "tenant"),
    (
        submission(name="issues", body_blob=BlobRef(sha256="0" * 64, size_bytes=1, media_type="a/b")),
        {},
        "cannot be read",
    ),
]
"""Records that go nowhere, with the reason."""


async def test_what_goes_nowhere_is_a_dead_letter_and_what_follows_is_read(here: WebhookWorld) -> None:
    for value, headers, _ in GARBAGE:
        here.put(value, headers)
    here.put(submission(name="issues", command_id="c2", delivery_id="d2"))
    await here.until(lambda: here.committed.get(0) == len(GARBAGE) + 1)
    assert len(here.parked()) == len(GARBAGE)
    reasons = dict(zip(here.parked_offsets(), here.parked(), strict=True))
    for number, (_, _, reason) in enumerate(GARBAGE):
        assert reason in reasons[number], (number, reasons[number])
    assert len(here.starts()) == 1


async def test_what_does_not_fit_its_webhook_is_refused_there(here: WebhookWorld) -> None:
    here.put(submission(name="issues", body="[1"))
    await here.until(lambda: here.committed.get(0) == 1)
    assert [row["verdict"] for row in await here.recent("issues")] == ["rejected_body"]
    assert here.parked() == []


HEADERS = st.dictionaries(
    st.sampled_from([*ATTRIBUTES, "ce_webhook", "ce_channel", "ce_tenant", "content-type", "x"]),
    st.one_of(st.binary(max_size=20), st.sampled_from([b"1.0", b"application/cloudevents+json", b"application/json"])),
    max_size=8,
)


@given(st.one_of(st.none(), st.binary(max_size=60), st.binary(max_size=20).map(b"\0\0\0".__add__)), HEADERS)
def test_no_record_does_more_than_be_unreadable(value: bytes | None, headers: dict[str, bytes]) -> None:
    record = ConsumerRecord(INGRESS, 0, 7, -1, None, value, tuple(headers.items()))
    try:
        submitted = read_record(record, local_codec())
    except Unreadable as error:
        assert str(error)  # noqa: PT017 - it may also be read
        return
    assert bool(submitted.name) != bool(submitted.channel)


def test_a_header_that_is_not_utf8_is_no_part_of_an_id() -> None:
    pairs = [(name, value.encode()) for name, value in ATTRIBUTES.items()]
    for header in (("ce_id", b"\xed\xa0\x80"), ("ce_tenant", b"\xff")):
        headers = [*pairs, ("ce_webhook", b"issues"), ("traceparent", b"\xff"), header]
        record = ConsumerRecord(
            topic=INGRESS, partition=0, offset=0, timestamp=0, key=b"k", value=b"{}", headers=headers
        )
        with pytest.raises(Unreadable, match=f"{header[0]} is not UTF-8"):
            read_record(record, local_codec())
