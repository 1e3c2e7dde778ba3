"""Channels over HTTP: declarations, messages, waiting, streams, who may do what, and what is refused."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.streaming.family_streams import FamilyStreams
from loomlog.services.families.channel.api import FOLLOW
from loomlog.services.families.channel.handlers import ChannelHandlers
from loomlog.services.families.channel.operations import ChannelLimits, ChannelOperations
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.channel.stream import ChannelStreams
from tests.services.api.serving import Served, Wire, frames_of, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY
from tests.services.entities import NOW_MS, UNANSWERED
from tests.services.families.channel.declared_channels import DeclaredChannels
from tests.services.families.channel.heard_entities import HeardEntities

CHANNELS = "/v1/_channels"
PLAZA, RESEARCH = f"{CHANNELS}/plaza", f"{CHANNELS}/research%2Fc1"
POSITION_HEADER = "x-loomlog-position"
WAIT_CAP_MS = 60


class Process:
    """The channels of an api over entities in memory."""

    def __init__(self) -> None:
        self.declared = DeclaredChannels()
        self.entities = HeardEntities()
        tokens = iter(range(10_000))

        async def decrypt(value: Any, tenant: str) -> Any:
            return value

        store = ChannelStore(
            cast(Any, self.entities),
            cast(Any, self.entities),
            self.entities.cache,
            clock_ms=lambda: NOW_MS,
            decrypt=decrypt,
        )
        operations = ChannelOperations(
            self.declared.declarations,
            store,
            limits=ChannelLimits(longpoll_cap_ms=WAIT_CAP_MS),
            clock_ms=lambda: NOW_MS,
        )
        self.handlers = ChannelHandlers(operations, self.declared.operations, clock_ms=lambda: NOW_MS)
        self.operations = operations
        self.dispatch = Dispatch(
            self.handlers.by_operation(), clock_ms=lambda: NOW_MS, new_token=lambda: f"t{next(tokens)}"
        )
        self.endpoints = {FOLLOW: ChannelStreams(operations).answer}
        self.streams = FamilyStreams(keepalive_s=0.05)


@pytest_asyncio.fixture(loop_scope="session")
async def process() -> AsyncIterator[Process]:
    made = Process()
    yield made
    await made.operations.close()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, process: Process, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        monkeypatch.setattr(made.world.layer, "_publish_rights", process.handlers)
        monkeypatch.setattr(made.world.layer, "dispatch", process.dispatch)
        monkeypatch.setattr(made.world.layer, "endpoints", process.endpoints)
        monkeypatch.setattr(made.world.layer, "family_streams", process.streams)
        yield made


async def send(
    here: Served, method: str, path: str, body: Any = None, caller: Any = ACME, status: int = 200, key: str = ""
) -> Any:
    headers = {"idempotency-key": key} if key else {}
    answer = await here.client(caller).request(method, path, json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def publish(here: Served, payload: Any, path: str = PLAZA, caller: Any = ACME, **more: Any) -> Any:
    return await send(here, "POST", f"{path}/publish", {"payload": payload, **more}, caller)


async def subscribe(here: Served, path: str = PLAZA, caller: Any = ACME, **body: Any) -> Any:
    return await send(here, "POST", f"{path}/subscribe", body, caller)


def values(batch: Any) -> list[Any]:
    return [message["value"] for message in batch["messages"]]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def refused(here: Served, method: str, path: str, body: Any = None, caller: Any = ACME) -> tuple[int, str]:
    return refusal(await here.client(caller).request(method, path, json=body))


# --- declarations ----------------------------------------------------------------------------------------------------


async def test_a_channel_is_made_listed_changed_and_deleted(here: Served) -> None:
    made = await here.client(ACME).post(CHANNELS, json={"name": "mine", "scope": "tenant", "max_messages": 9})
    assert made.status_code == 201
    assert POSITION_HEADER in made.headers
    row = {
        "name": "mine",
        "description": "",
        "scope": "tenant",
        "semantic": "queue",
        "publisher": "",
        "period": "",
        "default_ttl": 0,
        "max_messages": 9,
        "source": "runtime",
        "message_count": 0,
    }
    assert made.json() == row
    changed = await send(here, "PATCH", f"{CHANNELS}/mine", {"description": "e", "default_ttl": 60})
    assert changed == {**row, "description": "e", "default_ttl": 60}
    listed = (await send(here, "GET", CHANNELS))["channels"]
    assert [one["name"] for one in listed] == sorted(one["name"] for one in listed)
    assert changed in listed
    assert {one["name"]: one["source"] for one in listed}["plaza"] == "yaml"
    assert await send(here, "DELETE", f"{CHANNELS}/mine", status=204) is None
    assert await refused(here, "DELETE", f"{CHANNELS}/mine") == (404, "channel_not_found")
    assert "mine" not in [one["name"] for one in (await send(here, "GET", CHANNELS))["channels"]]


async def test_a_row_tells_what_the_queues_hold(here: Served) -> None:
    for user, payload in (("ann", 1), ("bob", 2), ("ann", 3)):
        await publish(here, payload, f"{CHANNELS}/inbox", scope_id=user)
    rows = {one["name"]: one for one in (await send(here, "GET", CHANNELS))["channels"]}
    assert rows["inbox"]["message_count"] == 3
    assert rows["inbox"]["oldest_visible_at"] <= rows["inbox"]["newest_visible_at"]
    assert "oldest_visible_at" not in rows["plaza"]
    other = {one["name"]: one for one in (await send(here, "GET", CHANNELS, caller=GLOBEX))["channels"]}
    assert other["inbox"]["message_count"] == 0


async def test_a_deleted_channel_with_messages_is_an_orphan(here: Served) -> None:
    await send(here, "POST", CHANNELS, {"name": "mine"}, status=201)
    await publish(here, 1, f"{CHANNELS}/mine")
    await send(here, "DELETE", f"{CHANNELS}/mine", status=204)
    rows = {one["name"]: one for one in (await send(here, "GET", CHANNELS))["channels"]}
    assert (rows["mine"]["source"], rows["mine"]["scope"], rows["mine"]["message_count"]) == ("orphan", "tenant", 1)


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", CHANNELS, {"name": "plaza"}, (409, "channel_yaml_immutable")),
        ("PATCH", PLAZA, {"description": "x"}, (409, "channel_yaml_immutable")),
        ("DELETE", RESEARCH, None, (409, "channel_yaml_immutable")),
        ("POST", CHANNELS, {"name": "a b"}, (400, "invalid_request")),
        ("POST", CHANNELS, {"name": "a", "scope": "run"}, (400, "channel_scope_invalid")),
        ("POST", CHANNELS, {"name": "a", "scope": "global"}, (403, "insufficient_scope")),
        ("POST", CHANNELS, [], (400, "invalid_body")),
        ("PATCH", f"{CHANNELS}/none", {}, (404, "channel_not_found")),
        ("POST", f"{CHANNELS}/none/purge", None, (404, "channel_not_found")),
    ],
)
async def test_a_declaration_that_cannot_be_is_refused(
    here: Served, method: str, path: str, body: Any, expected: tuple[int, str]
) -> None:
    assert await refused(here, method, path, body) == expected


# --- messages --------------------------------------------------------------------------------------------------------


async def test_messages_are_published_taken_and_stay(here: Served) -> None:
    sent = [await publish(here, {"n": n}) for n in range(3)]
    assert sent[0]["channel"] == "plaza"
    assert sent[0]["created_at"].startswith("20")
    batch = await subscribe(here, max_messages=2)
    assert batch["channel"] == "plaza"
    assert [message["id"] for message in batch["messages"]] == [one["msg_id"] for one in sent[:2]]
    assert batch["messages"][0]["published_at"] == sent[0]["created_at"]
    assert values(await subscribe(here)) == [{"n": 2}]
    assert values(await subscribe(here)) == []
    assert values(await subscribe(here, from_cursor=batch["next_cursor"])) == [{"n": 2}]
    assert values(await send(here, "GET", f"{PLAZA}/peek")) == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_peek_pages_from_the_oldest_and_from_the_newest(here: Served) -> None:
    for n in range(5):
        await publish(here, n)
    first = await send(here, "GET", f"{PLAZA}/peek?max_messages=2")
    assert values(first) == [0, 1]
    assert first["next_cursor"] == first["messages"][1]["cursor"]
    assert values(await send(here, "GET", f"{PLAZA}/peek?from_cursor={first['next_cursor']}")) == [2, 3, 4]
    newest = await send(here, "GET", f"{PLAZA}/peek?order=newest&max_messages=2")
    assert values(newest) == [4, 3]
    before = await send(here, "GET", f"{PLAZA}/peek?order=newest&from_cursor={newest['next_cursor']}")
    assert values(before) == [2, 1, 0]
    end = await send(here, "GET", f"{PLAZA}/peek?order=newest&from_cursor={before['next_cursor']}")
    assert end == {"channel": "plaza", "messages": []}
    assert await refused(here, "GET", f"{PLAZA}/peek?order=best") == (400, "invalid_request")


async def test_a_message_names_the_event_that_published_it(here: Served, process: Process) -> None:
    positions = []
    for n in range(2):
        answer = await here.client(ACME).post(f"{PLAZA}/publish", json={"payload": n})
        positions.append(answer.headers["x-loomlog-position"])
    peeked = await send(here, "GET", f"{PLAZA}/peek")
    assert [message["position"] for message in peeked["messages"]] == positions
    wire = Wire(here.app, "GET", f"{PLAZA}/stream", caller=ACME).begin()
    await wire.until(positions[1])
    process.streams.stop()
    assert [frame.data["position"] for frame in frames_of(await wire.done())] == positions
    process.entities.cache._messages.clear()  # as in a process that has heard of none: they come from their rows
    assert (await send(here, "GET", f"{PLAZA}/peek"))["messages"] == peeked["messages"]


async def test_a_body_is_optional_for_subscribe(here: Served) -> None:
    await publish(here, 1)
    answer = await here.client(ACME).post(f"{PLAZA}/subscribe")
    assert (answer.status_code, values(answer.json())) == (200, [1])


async def test_a_name_with_a_slash_is_escaped_or_not(here: Served) -> None:
    await publish(here, "x", RESEARCH)
    assert values(await subscribe(here, f"{CHANNELS}/research/c1")) == ["x"]
    # The file declares it for each tenant.
    assert values(await send(here, "GET", f"{RESEARCH}/peek", caller=GLOBEX)) == []


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("none/publish", {"payload": 1}, (404, "channel_not_declared")),
        ("plaza/publish", {"payload": 1, "value": 2}, (400, "invalid_request")),
        ("plaza/publish", {"payload": "x" * 70_000}, (413, "payload_too_large")),
        ("plaza/publish", {"payload": 1, "deliver_at": "9999-01-01T00:00:00Z"}, (400, "invalid_request")),
        ("plaza/ack", {"cursor": "garbage"}, (400, "invalid_request")),
        ("inbox/publish", {"payload": 1}, (400, "channel_scope_invalid")),
        ("_await", {"channels": ["plaza"], "scope": "user"}, (400, "channel_scope_invalid")),
        ("_await", {"channels": ["plaza"], "scope": "run"}, (400, "channel_scope_invalid")),
        ("_await", {"channels": ["none"]}, (404, "channel_not_declared")),
        ("plaza/publish", {"payload": 1, "scope_id": None}, (400, "channel_scope_invalid")),
        ("_broadcast", {"channels": ["plaza", "none"], "payload": 1}, (404, "channel_not_declared")),
    ],
)
async def test_a_wrong_request_is_refused(here: Served, path: str, body: Any, expected: tuple[int, str]) -> None:
    assert await refused(here, "POST", f"{CHANNELS}/{path}", body) == expected


async def test_broadcast_reaches_every_channel_or_none(here: Served, process: Process) -> None:
    body = {"channels": ["plaza", "research/c1", "plaza"], "payload": {"all": 1}}
    answer = await send(here, "POST", f"{CHANNELS}/_broadcast", body)
    assert (answer["published"], answer["failed"]) == (2, 0)
    assert [row["channel"] for row in answer["results"]] == ["plaza", "research/c1"]
    for path in (PLAZA, RESEARCH):
        assert values(await subscribe(here, path)) == [{"all": 1}]
    before = len(process.entities.asked)
    await refused(here, "POST", f"{CHANNELS}/_broadcast", {"channels": ["plaza", "beat"], "payload": 1})
    assert len(process.entities.asked) == before


async def test_await_tells_which_channels_have_messages_and_moves_no_cursor(here: Served) -> None:
    await publish(here, "x", RESEARCH)
    body = {"channels": ["plaza", "research/c1"], "mode": "any", "wait_ms": 10}
    answer = await send(here, "POST", f"{CHANNELS}/_await", body)
    assert (answer["satisfied"], answer["timed_out"], answer["fired"]) == (True, False, ["research/c1"])
    assert answer["total_messages"] == 1
    assert answer["results"]["research/c1"]["messages"][0]["value"] == "x"
    answer = await send(here, "POST", f"{CHANNELS}/_await", {**body, "mode": "all"})
    assert (answer["satisfied"], answer["timed_out"]) == (False, True)
    assert values(await subscribe(here, RESEARCH)) == ["x"]


async def test_cursors_of_an_agent_are_listed(here: Served) -> None:
    await send(here, "POST", CHANNELS, {"name": "notes", "scope": "agent"}, status=201)
    assert await send(here, "GET", "/v1/agents/helper/channels") == {"agent": "helper", "channels": []}
    for n in range(2):
        await publish(here, n, f"{CHANNELS}/notes", scope_id="helper")
    cursor = (await subscribe(here, f"{CHANNELS}/notes", scope_id="helper", max_messages=1))["next_cursor"]
    row = {"channel": "notes", "scope": "agent", "scope_id": "helper", "reader": "", "cursor": cursor, "behind": 1}
    assert (await send(here, "GET", "/v1/agents/helper/channels"))["channels"] == [row]
    assert (await send(here, "GET", "/v1/agents/team%2Fother/channels"))["channels"] == []


async def test_the_queues_of_a_channel_are_listed(here: Served) -> None:
    inboxes = f"{CHANNELS}/inbox"
    for name in ("ann", "bob", "cleo/x"):
        await publish(here, name, inboxes, scope_id=name)
    first = await send(here, "GET", f"{inboxes}/queues?limit=2")
    assert (first["scope"], [row["scope_id"] for row in first["queues"]]) == ("user", ["ann", "bob"])
    assert first["queues"][0]["message_count"] == 1
    rest = await send(here, "GET", f"{inboxes}/queues?cursor={first['next']}")
    assert ([row["scope_id"] for row in rest["queues"]], rest["next"]) == (["cleo/x"], None)
    assert (await send(here, "GET", f"{inboxes}/queues", caller=GLOBEX))["queues"] == []
    assert await refused(here, "GET", f"{CHANNELS}/nothing/queues") == (404, "channel_not_declared")
    assert await refused(here, "GET", f"{inboxes}/queues?limit=0") == (400, "bad_request")
    assert await refused(here, "GET", f"{inboxes}/queues", caller=IVY) == (403, "insufficient_scope")


async def test_the_readers_of_a_queue_are_listed(here: Served) -> None:
    for n in range(3):
        await publish(here, n)
    delayed = datetime.fromtimestamp(NOW_MS // 1000 + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await publish(here, "later", deliver_at=delayed)
    await subscribe(here, max_messages=1)
    cursor = (await subscribe(here, max_messages=2, reader="audit"))["next_cursor"]
    answer = await send(here, "GET", f"{PLAZA}/readers")
    assert [(row["reader"], row["behind"]) for row in answer["readers"]] == [("", 2), ("audit", 1)]
    assert answer["readers"][1]["cursor"] == cursor
    assert (answer["message_count"], answer["delayed"], answer["published"]) == (3, 1, 4)
    assert answer["readers_count"] == 2
    assert answer["next_visible_at"] == delayed.replace("Z", ".000000000Z")
    assert await refused(here, "GET", f"{CHANNELS}/inbox/readers") == (400, "channel_scope_invalid")


# --- users and the system --------------------------------------------------------------------------------------------


def inbox(user: str) -> str:
    return f"/v1/users/{user}/channels/inbox"


async def test_each_user_has_a_queue(here: Served) -> None:
    await publish(here, "for ann", inbox("ann"), ADMIN_CALLER)
    assert values(await subscribe(here, inbox("bob"), ADMIN_CALLER)) == []
    batch = await send(here, "GET", f"{inbox('ann')}/peek", caller=ADMIN_CALLER)
    assert values(batch) == ["for ann"]
    taken = await subscribe(here, inbox("ann"), ADMIN_CALLER)
    assert await send(here, "POST", f"{inbox('ann')}/ack", {"cursor": taken["next_cursor"]}, ADMIN_CALLER) == {
        "ok": True
    }
    assert values(await send(here, "GET", f"{CHANNELS}/inbox/peek?scope_id=ann", caller=ADMIN_CALLER)) == ["for ann"]


async def test_the_channels_of_another_user_do_not_exist(here: Served) -> None:
    assert await refused(here, "POST", f"{inbox('ann')}/publish", {"payload": 1}) == (404, "unknown_channel")
    own = inbox(ACME.subject)
    await publish(here, 1, own)
    # The path has named whose queue it is.
    assert await refused(here, "POST", f"{own}/publish", {"payload": 1, "scope_id": "ann"}) == (400, "invalid_request")
    assert await refused(here, "GET", f"{own}/peek?scope_id=ann") == (400, "bad_request")
    assert await refused(here, "POST", "/v1/users/acme-op/channels/plaza/publish", {"payload": 1}) == (
        400,
        "channel_scope_invalid",
    )


async def test_only_administrators_publish_to_the_channels_of_the_system(here: Served, process: Process) -> None:
    state = f"{CHANNELS}/_system%2Fruntime-state"
    assert await refused(here, "POST", f"{state}/publish", {"payload": 1}) == (403, "insufficient_scope")
    assert await refused(here, "POST", f"{CHANNELS}/beat/publish", {"payload": 1}) == (403, "insufficient_scope")
    await send(here, "POST", state, {"payload": {"up": 1}}, ADMIN_CALLER)
    assert process.entities.asked[-1].publisher == "_admin"
    assert values(await send(here, "GET", f"{state}/peek")) == [{"up": 1}]
    assert await refused(here, "POST", PLAZA, {"payload": 1}, ADMIN_CALLER) == (403, "non_system_channel")
    assert await refused(here, "POST", f"{CHANNELS}/_system%2Fother", {"payload": 1}, ADMIN_CALLER) == (
        404,
        "channel_not_declared",
    )


async def test_a_global_channel_takes_messages_of_administrators_unless_it_is_declared_otherwise(
    here: Served, process: Process
) -> None:
    news = f"{CHANNELS}/news"
    for path, body in (
        (f"{news}/publish", {"payload": 1}),
        (f"{CHANNELS}/_broadcast", {"channels": ["plaza", "news"], "payload": 1}),
    ):
        answer = await here.client(ACME).post(path, json=body)
        assert refusal(answer) == (403, "insufficient_scope")
        assert answer.headers["www-authenticate"].endswith('scope="substrate:admin"')
        assert "publisher: any" in answer.json()["error"]
    assert process.entities.asked == []
    await publish(here, 1, news, ADMIN_CALLER)
    await publish(here, 1, PLAZA, ACME)


async def test_a_run_publishes_at_its_end_only_where_its_caller_may(here: Served) -> None:
    async def start(channel: str, caller: Any) -> httpx.Response:
        hook = {"kind": "channel.publish", "channel": channel}
        return await here.client(caller).post(
            "/v1/runs", json={"agent": "soaker", "prompt": "go", "on_complete": [hook]}
        )

    for channel in ("news", "beat"):
        assert refusal(await start(channel, ACME)) == (403, "insufficient_scope")
    assert here.world.commands() == []
    for channel, caller in (("news", ADMIN_CALLER), ("plaza", ACME), ("research/c1", ACME)):
        assert (await start(channel, caller)).status_code == 200


async def test_a_global_channel_is_emptied_by_administrators_only(here: Served) -> None:
    await publish(here, 1)
    assert await refused(here, "POST", f"{PLAZA}/purge") == (403, "insufficient_scope")
    assert await send(here, "POST", f"{PLAZA}/purge", caller=ADMIN_CALLER) == {"name": "plaza", "purged": 1}


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_has_each_message_with_its_cursor(here: Served, process: Process) -> None:
    first = await publish(here, {"n": 1})
    wire = Wire(here.app, "GET", f"{PLAZA}/stream", caller=ACME).begin()
    await wire.until('{"n":1}')
    await publish(here, {"n": 2})
    await wire.until('{"n":2}')
    await wire.until(": keepalive")
    process.streams.stop()
    one, two = frames_of(await wire.done())
    assert (one.event, one.data["id"], one.data["value"]) == ("message", first["msg_id"], {"n": 1})
    assert one.id == one.data["cursor"]
    assert two.data["value"] == {"n": 2}
    assert not process.entities.cache._watches
    assert not process.streams._streams
    # Nothing was taken, and a client that comes back, to another process, goes on after what it has.
    process.streams = here.world.layer.family_streams = FamilyStreams(keepalive_s=0.05)
    assert values(await subscribe(here)) == [{"n": 1}, {"n": 2}]
    assert one.id is not None
    again = Wire(here.app, "GET", f"{PLAZA}/stream?from_cursor=cur_0", caller=ACME).header("last-event-id", one.id)
    await again.begin().until('{"n":2}')
    process.streams.stop()
    assert [frame.data["value"] for frame in frames_of(await again.done())] == [{"n": 2}]


async def test_a_stream_of_a_user_names_the_user(here: Served) -> None:
    assert await refused(here, "GET", f"{CHANNELS}/inbox/stream") == (400, "channel_scope_invalid")
    assert await refused(here, "GET", f"{CHANNELS}/none/stream") == (404, "channel_not_declared")
    assert await refused(here, "GET", f"{PLAZA}/stream?from_cursor=garbage") == (400, "invalid_request")


async def test_streams_end_when_the_process_stops(here: Served, process: Process) -> None:
    wire = Wire(here.app, "GET", f"{CHANNELS}/inbox/stream?scope_id=ann", caller=ACME).begin()
    await wire.until(": keepalive")
    process.streams.stop()
    await wire.done()
    assert b"resume with Last-Event-ID" in wire.body


# --- what does not answer --------------------------------------------------------------------------------------------


async def test_an_owner_that_does_not_answer_is_pending_and_rows_that_cannot_be_read_unavailable(
    here: Served, process: Process
) -> None:
    process.entities.error = UNANSWERED
    assert await refused(here, "POST", f"{PLAZA}/publish", {"payload": 1}) == (503, "command_pending")
    process.entities.error = Transient("Postgres is away", kind="unavailable")
    process.entities.is_owner = False
    assert await refused(here, "GET", f"{PLAZA}/peek") == (503, "channel_unavailable")
    assert await refused(here, "GET", CHANNELS) == (503, "channel_unavailable")


def test_the_document_has_the_channels(here: Served) -> None:
    paths = json.loads(here.service.openapi_document)["paths"]
    assert set(paths["/v1/_channels/{name}"]) == {"post", "patch", "delete"}
    assert paths["/v1/_channels/{name}/subscribe"]["post"]["requestBody"]["required"] is False
