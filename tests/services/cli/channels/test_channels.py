"""`loomlog channels`: requests, tables, streams, and input that is refused before anything is sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.services.cli.errors import USAGE_ERROR
from loomlog.services.cli.http import events
from loomlog.services.cli.http.api import ApiClient
from tests.services.api.serving import served
from tests.services.api.test_channel_endpoints import Process
from tests.services.application.world import ACME
from tests.services.cli.fake_api import FakeApi, Scripted, frame, invoke, let_commands_use, refused
from tests.services.families.memory.commands.conftest import _LoopTransport, ok

AT = {"X-Loomlog-Position": "loom.channel.events/1:7"}
CHANNELS = "/v1/_channels"
ROW: dict[str, Any] = {
    "name": "reviews",
    "description": "what to read",
    "scope": "tenant",
    "semantic": "queue",
    "publisher": "",
    "period": "",
    "default_ttl": 60,
    "max_messages": 9,
    "source": "runtime",
    "message_count": 2,
    "oldest_visible_at": "2026-01-31T12:00:00.000000001Z",
    "newest_visible_at": "2026-01-31T12:00:01.000000002Z",
}
MESSAGE: dict[str, Any] = {"id": "msg_1", "value": {"n": 1}, "published_at": "2026-01-31T12:00:00.000000001Z"}


channels = partial(invoke, "channels")


@pytest.fixture
def fake(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    monkeypatch.setattr(events, "RETRY_S", 0.0)
    return fake


def test_channels_are_a_table(fake: FakeApi) -> None:
    other = {**ROW, "name": "beat", "max_messages": 0, "default_ttl": 0, "publisher": "system", "message_count": 0}
    del other["newest_visible_at"]
    fake.answers["GET", CHANNELS] = Scripted(body={"channels": [other, ROW]})
    assert ok(channels("ls", "--tenant", "acme")) == [
        "NAME SCOPE SOURCE MESSAGES NEWEST KEEPS PUBLISHER",
        "beat tenant runtime 0 - all system",
        "reviews tenant runtime 2 2026-01-31T12:00:01.000 60 s, 9 messages -",
    ]
    assert dict(fake.asked[0].url.params) == {"tenant": "acme"}
    assert ok(channels("ls", "rev*"))[1:] == ["reviews tenant runtime 2 2026-01-31T12:00:01.000 60 s, 9 messages -"]
    assert json.loads(channels("show", "reviews", "--json").stdout) == ROW
    assert "There is no channel none" in channels("show", "none").stderr


def test_a_channel_is_declared_and_changed(fake: FakeApi) -> None:
    fake.answers["POST", CHANNELS] = Scripted(body=ROW, headers=AT, status=200)
    fake.answers["PATCH", f"{CHANNELS}/reviews"] = Scripted(body=ROW, headers=AT)
    fake.answers["DELETE", f"{CHANNELS}/reviews"] = Scripted(status=204, headers=AT)
    shown = ok(channels("create", "reviews", "--scope", "tenant", "--ttl", "1h30m", "--period", "60"))
    assert shown[0] == "reviews"
    assert fake.bodies(CHANNELS) == [{"name": "reviews", "scope": "tenant", "default_ttl": 5_400, "period": 60}]
    channels("set", "reviews", "--description", "", "--max-messages", "0")
    assert fake.bodies(f"{CHANNELS}/reviews") == [{"description": "", "max_messages": 0}]
    assert channels("set", "reviews").exit_code == USAGE_ERROR
    assert channels("create", "reviews", "--ttl", "soon").exit_code == USAGE_ERROR
    assert ok(channels("rm", "reviews")) == ["reviews is not declared any more event loom.channel.events/1:7"]


def test_a_value_is_published_as_it_was_given(fake: FakeApi) -> None:
    path = f"{CHANNELS}/research/c1/publish"
    fake.answers["POST", path] = Scripted(
        body={"msg_id": "msg_1", "channel": "research/c1", "dropped_oldest": 1}, headers=AT
    )
    options = ("--ttl", "90", "--at", "2026-01-31T12:00:00Z", "--scope-id", "ada", "--idempotency-key", "once")
    shown = ok(channels("publish", "research/c1", "[1.10, 1234567890123456789]", *options))
    assert shown == [
        "msg_1 is published event loom.channel.events/1:7",
        "1 message made room for it: the queue keeps no more.",
    ]
    (request,) = fake.asked
    assert request.content == (
        b'{"payload": [1.10, 1234567890123456789], "deliver_at": "2026-01-31T12:00:00Z", "scope_id": "ada", "ttl": 90}'
    )
    assert request.headers["idempotency-key"] == "once"
    assert b"research%2Fc1" in request.url.raw_path
    channels("publish", "research/c1", "red", "--text")
    assert fake.bodies(path)[-1] == {"payload": "red"}
    assert channels("publish", "research/c1", "red").exit_code == USAGE_ERROR


def test_messages_are_taken_looked_at_and_acknowledged(fake: FakeApi) -> None:
    batch = {"channel": "reviews", "messages": [MESSAGE], "next_cursor": "cur_1", "wait_capped_ms": 30_000}
    fake.answers["POST", f"{CHANNELS}/reviews/subscribe"] = Scripted(body=batch)
    fake.answers["GET", f"{CHANNELS}/reviews/peek"] = Scripted(body={"channel": "reviews", "messages": []})
    fake.answers["POST", f"{CHANNELS}/reviews/ack"] = Scripted(body={"ok": True}, headers=AT)
    assert ok(channels("subscribe", "reviews", "--wait", "1m", "--max", "5", "--reader", "me")) == [
        '2026-01-31T12:00:00.000 msg_1 {"n": 1}',
        "The wait was cut to 30 s.",
        "cursor cur_1",
    ]
    assert fake.bodies(f"{CHANNELS}/reviews/subscribe") == [{"max_messages": 5, "wait_ms": 60_000, "reader": "me"}]
    assert ok(channels("peek", "reviews", "--from", "cur_0")) == ["No messages."]
    assert dict(fake.asked[-1].url.params) == {"max_messages": "10", "from_cursor": "cur_0"}
    assert ok(channels("ack", "reviews", "cur_1")) == ["reviews is read up to there event loom.channel.events/1:7"]
    assert fake.bodies(f"{CHANNELS}/reviews/ack") == [{"cursor": "cur_1"}]
    assert channels("subscribe", "reviews", "--wait", "soon").exit_code == USAGE_ERROR


def test_purge_counts_and_with_yes_removes(fake: FakeApi) -> None:
    fake.answers["GET", CHANNELS] = Scripted(body={"channels": [ROW]})
    fake.answers["POST", f"{CHANNELS}/reviews/purge"] = Scripted(body={"name": "reviews", "purged": 2}, headers=AT)
    assert ok(channels("purge", "reviews")) == ["reviews: 2 messages", "Nothing was removed; --yes removes them."]
    assert [request.method for request in fake.asked] == ["GET"]
    assert ok(channels("purge", "reviews", "--yes")) == ["reviews has lost 2 messages event loom.channel.events/1:7"]


def test_await_tells_what_came_and_fails_without(fake: FakeApi) -> None:
    answer = {"satisfied": True, "fired": ["a"], "results": {"a": {"messages": [MESSAGE], "next_cursor": "cur_1"}}}
    fake.answers["POST", f"{CHANNELS}/_await"] = Scripted(body=answer)
    assert ok(channels("await", "a", "b", "--at-least", "3", "--wait", "5s"))[0] == "a"
    body = {"channels": ["a", "b"], "mode": "at_least", "n": 3, "max_messages": 10, "wait_ms": 5_000}
    assert fake.bodies(f"{CHANNELS}/_await") == [body]
    fake.answers["POST", f"{CHANNELS}/_await"] = Scripted(body={"satisfied": False, "fired": [], "results": {}})
    result = channels("await", "a")
    assert result.exit_code != 0
    assert "There are not enough messages." in result.stderr
    assert channels("await", "a", "--all", "--at-least", "1").exit_code == USAGE_ERROR


def test_tail_goes_on_after_the_last_message_when_a_connection_is_lost(fake: FakeApi) -> None:
    first = frame("message", {**MESSAGE, "cursor": "cur_1"}, "cur_1")
    second = frame("message", {**MESSAGE, "id": "msg_2", "cursor": "cur_2"}, "cur_2")
    fake.streams += [
        Scripted(pieces=[first, b": keepalive\n\n"], breaks=True),
        Scripted(pieces=[second]),
        refused(404, "channel_not_declared", "there is no channel"),
    ]
    result = channels("tail", "reviews", "--scope-id", "ada", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["msg_1", "msg_2"]
    assert result.exit_code != 0  # the channel was deleted meanwhile
    assert [request.headers.get("last-event-id") for request in fake.asked] == [None, "cur_1", "cur_2"]
    assert dict(fake.asked[0].url.params) == {"scope_id": "ada"}


@pytest_asyncio.fixture(loop_scope="session")
async def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    made = Process()
    async with served(tmp_path) as api:
        monkeypatch.setattr(api.world.layer, "dispatch", made.dispatch)
        transport = _LoopTransport(api.app, asyncio.get_running_loop())
        let_commands_use(monkeypatch, lambda: ApiClient("http://test", f"{ACME.name}-token", transport=transport))
        monkeypatch.setenv("COLUMNS", "200")
        yield made
    await made.operations.close()


async def test_the_commands_fit_the_api(process: Process) -> None:
    async def run(*arguments: str) -> list[str]:
        return ok(await asyncio.to_thread(channels, *arguments))

    await run("create", "mine", "--description", "d", "--max-messages", "5", "--ttl", "7d")
    await run("set", "mine", "--semantic", "topic")
    assert "semantic topic" in await run("show", "mine")
    for value in ("1", '{"a": [1]}'):
        await run("publish", "mine", value)
    assert [line.split(" ", 2)[2] for line in await run("peek", "mine")] == ["1", '{"a": [1]}']
    taken = await run("subscribe", "mine", "--max", "1")
    assert taken[0].endswith(" 1")
    await run("await", "mine")
    cursor = json.loads("\n".join(await run("subscribe", "mine", "--json")))["next_cursor"]
    await run("ack", "mine", cursor)
    assert (await run("purge", "mine"))[0] == "mine: 2 messages"
    assert (await run("purge", "mine", "--yes"))[0].startswith("mine has lost 2 messages")
    assert (await run("rm", "mine"))[0].startswith("mine is not declared any more")
