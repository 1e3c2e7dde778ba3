"""Push of the changes of memory: signed, at least once, and only over what a receiver has taken."""

import asyncio
import hmac
import json
import logging
from typing import Any

import pytest

from loomlog.connectors.configuration.memory_block import ChangeSubscriptionBlock
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.secret_registry import build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.http.signed_callbacks import CallbackClient
from loomlog.projections.memory_feed import tables
from loomlog.projections.memory_feed.changes import delete_changes
from loomlog.projections.memory_feed.tables import feed_schema, prepare_feed
from loomlog.services.projector import change_push
from loomlog.services.projector.change_push import ChangePush, ChangeSubscription, change_subscriptions
from tests.connectors.tools.web_server import Names, Server, page, running
from tests.projections.memory_feed.test_memory_feed import write_changes, written
from tests.waiting import until

SECRET = "between us"


class Stage:
    """A feed in Postgres, a receiver, and pushes between them."""

    def __init__(self, connecting, connection, prefix: str, server: Server) -> None:
        self.schema, self.connection, self.server = feed_schema(prefix), connection, server
        self.server.answers["/changes"] = page("")
        self.stop = asyncio.Event()
        self.connections: list = []
        self.tasks: list[asyncio.Task[None]] = []
        self.offset = 0

        async def connect():
            self.connections.append(await connecting())
            return self.connections[-1]

        self.connect = connect

    def subscription(self, name: str = "crm", path: str = "/changes", **fields: Any) -> ChangeSubscription:
        block = ChangeSubscriptionBlock(
            callback_url=f"http://crm.example:{self.server.port}{path}", secret_env="CRM_SECRET", **fields
        )
        return ChangeSubscription(name=name, block=block, secret=SECRET)

    def start(self, *subscriptions: ChangeSubscription) -> None:
        names = Names()
        push = ChangePush(
            self.schema,
            subscriptions,
            connect=self.connect,
            interval_s=0.02,
            create_client=lambda _: CallbackClient(resolve=names.resolve, network=names),
        )
        self.tasks.append(asyncio.create_task(push.run(self.stop)))

    async def write(self, user: str, *keys: str, **more: Any) -> None:
        self.offset += 1
        await write_changes(
            self.connection, self.schema, written(user, *keys, number=self.offset, **more), kept_from_ms=0
        )

    async def cursors(self) -> dict[str, int]:
        result = await self.connection.execute(f"SELECT subscription, seq FROM {self.schema}.push_cursors")
        return dict(await result.fetchall())

    async def delivered(self, **cursors: int) -> None:
        """Wait for the cursors of subscriptions."""

        async def has_moved() -> bool:
            return await self.cursors() == cursors

        await until(has_moved)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.partition("\r\n\r\n")[2]) for request in self.server.requests]

    @property
    def keys(self) -> list[list[str]]:
        return [[change["key"] for change in body["changes"]] for body in self.bodies]


@pytest.fixture
async def stage(connecting, connection, prefix, monkeypatch):
    monkeypatch.setattr(change_push, "RETRY_PAUSES_S", (0.01, 0.01, 0.01))
    monkeypatch.setattr(change_push, "TABLES_POLL_S", 0.01)
    monkeypatch.setattr(change_push, "SESSION_RETRY_S", 0.01)
    async with running() as server:
        stage = Stage(connecting, connection, prefix, server)
        yield stage
        stage.stop.set()
        await asyncio.gather(*stage.tasks)


@pytest.fixture
async def filled(stage):
    """With tables and two changes."""
    await prepare_feed(stage.connection, stage.schema)
    await stage.write("ada", "a", "b")
    return stage


async def test_changes_are_posted_with_a_signature_over_the_body(filled):
    filled.start(filled.subscription())
    await filled.delivered(crm=2)
    (body,) = filled.bodies
    assert body["subscription"] == "crm"
    assert [(one["seq"], one["type"], one["key"], one["tenant"]) for one in body["changes"]] == [
        (1, "memory.set", "a", "acme"),
        (2, "memory.set", "b", "acme"),
    ]
    assert "value" not in str(body)
    raw = filled.server.requests[0].partition("\r\n\r\n")[2].encode()
    assert filled.server.header("x-loomcycle-signature") == hmac.new(SECRET.encode(), raw, "sha256").hexdigest()
    assert filled.server.header("x-loomcycle-subscription") == "crm"
    await filled.write("ada", "c")
    await filled.delivered(crm=3)
    assert filled.keys == [["a", "b"], ["c"]]


async def test_a_filter_passes_over_the_rest_without_a_request(filled):
    await filled.write("gil", "x", tenant="globex")
    filled.start(
        filled.subscription("globex", tenant_id="globex", kinds=("memory",)),
        filled.subscription("documents", kinds=("document",)),
        filled.subscription("deletes", kinds=("memory.delete",)),
        filled.subscription("agents", scope="agent"),
    )
    await filled.delivered(globex=3, documents=3, deletes=3, agents=3)
    assert [(body["subscription"], len(body["changes"])) for body in filled.bodies] == [("globex", 1)]


async def test_the_cursor_stays_until_the_receiver_has_taken_the_changes(filled, caplog):
    filled.server.answers["/changes"] = page("", status="503 Busy")
    filled.start(filled.subscription())
    await until(lambda: len(filled.bodies) >= 6)
    assert await filled.cursors() == {}
    filled.server.answers["/changes"] = page("", status="410 Gone")
    await until(lambda: "answered 410" in caplog.text)
    assert await filled.cursors() == {}
    assert caplog.text.count("answered 503") == 1, "the same failure is logged once"
    with caplog.at_level(logging.INFO, "loomlog.projector"):
        filled.server.answers["/changes"] = page("", status="202 Accepted")
        await filled.delivered(crm=2)
        await until(lambda: "change_subscriptions.crm is delivered again" in caplog.text)
    assert all(keys == ["a", "b"] for keys in filled.keys)


async def test_a_receiver_that_hangs_delays_no_other(filled):
    async def hang(reader, writer):
        await filled.stop.wait()

    filled.server.answers["/hang"] = hang
    filled.start(filled.subscription("slow", "/hang"), filled.subscription("quick"))
    await filled.delivered(quick=2)
    await filled.write("ada", "c")
    await filled.delivered(quick=3)


async def test_a_window_has_200_rows_and_the_next_follows_at_once(stage, monkeypatch):
    monkeypatch.setattr(change_push, "WINDOW", 2)
    await prepare_feed(stage.connection, stage.schema)
    await stage.write("ada", *"abcde")
    stage.start(stage.subscription())
    await stage.delivered(crm=5)
    assert stage.keys == [["a", "b"], ["c", "d"], ["e"]]


async def test_lost_changes_are_told_as_a_gap(filled):
    filled.start(filled.subscription(), filled.subscription("documents", kinds=("document",)))
    await filled.delivered(crm=2, documents=2)
    filled.stop.set()
    await asyncio.gather(*filled.tasks)
    await filled.write("ada", "c")
    await delete_changes(filled.connection, filled.schema, before_ms=2**60)
    await filled.write("ada", "d")
    filled.server.requests.clear()
    filled.stop = asyncio.Event()
    filled.start(filled.subscription(), filled.subscription("documents", kinds=("document",)))
    await filled.delivered(crm=4, documents=4)
    bodies = {body["subscription"]: body for body in filled.bodies}
    assert [one["key"] for one in bodies["crm"]["changes"]] == ["d"]
    assert (bodies["crm"]["gap"], bodies["documents"]["gap"], bodies["documents"]["changes"]) == (True, True, [])


async def test_a_new_subscription_begins_with_what_is_kept_and_has_no_gap(filled):
    await delete_changes(filled.connection, filled.schema, before_ms=2**60)
    await filled.write("ada", "c")
    filled.start(filled.subscription())
    await filled.delivered(crm=3)
    assert filled.keys == [["c"]]
    assert "gap" not in filled.bodies[0]


async def test_it_waits_for_the_tables_and_survives_lost_connections_and_a_new_version(stage, monkeypatch):
    stage.start(stage.subscription())
    await until(lambda: len(stage.connections) == 1)
    await prepare_feed(stage.connection, stage.schema)
    await stage.write("ada", "a")
    await stage.delivered(crm=1)
    await stage.connection.execute("SELECT pg_terminate_backend(%s)", (stage.connections[0].info.backend_pid,))
    await stage.write("ada", "b")
    await stage.delivered(crm=2)
    monkeypatch.setattr(tables, "VERSION", 2)
    await prepare_feed(stage.connection, stage.schema)
    await stage.write("ada", "c")
    await stage.delivered(crm=3)
    assert stage.keys == [["a"], ["b"], ["c"]]


async def test_one_process_pushes_at_a_time(filled):
    filled.start(filled.subscription())
    await filled.delivered(crm=2)
    filled.start(filled.subscription())
    await until(lambda: len(filled.connections) == 2)
    await filled.write("ada", "c")
    await filled.delivered(crm=3)
    assert filled.keys == [["a", "b"], ["c"]]
    filled.tasks.pop(0).cancel()
    await filled.write("ada", "d")
    await filled.delivered(crm=4)
    assert filled.keys[-1] == ["d"]


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_private_host_is_refused_unless_the_configuration_allows_it(filled, caplog, allowed):
    block = ChangeSubscriptionBlock(
        callback_url=f"http://127.0.0.1:{filled.server.port}/changes",
        secret_env="CRM_SECRET",
        allow_private_host=allowed,
    )
    push = ChangePush(
        filled.schema,
        [ChangeSubscription(name="crm", block=block, secret=SECRET)],
        connect=filled.connect,
        interval_s=0.02,
    )
    filled.tasks.append(asyncio.create_task(push.run(filled.stop)))
    if allowed:
        await filled.delivered(crm=2)
    else:
        await until(lambda: "has no public address" in caplog.text)
        assert (filled.bodies, await filled.cursors()) == ([], {})


def test_subscriptions_need_their_key_and_may_be_disabled(caplog):
    def block(secret_env: str, **fields: Any) -> ChangeSubscriptionBlock:
        return ChangeSubscriptionBlock(callback_url="https://crm.example/x", secret_env=secret_env, **fields)

    blocks = {"crm": block("CRM"), "off": block("CRM", disabled=True), "bare": block("NONE"), "empty": block("BLANK")}
    (one,) = change_subscriptions(
        blocks,
        build_secret_registry(Configuration(change_subscriptions=blocks), Settings(), {"CRM": "s3cret ", "BLANK": " "}),
    )
    assert (one.name, one.secret) == ("crm", "s3cret")
    assert "s3cret" not in repr(one)
    assert "the variable NONE is not set" in caplog.text
    assert "the variable BLANK is not set" in caplog.text
