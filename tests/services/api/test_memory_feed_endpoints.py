"""The feeds of changes over HTTP."""

import json
from pathlib import Path

import pytest

from loomlog.services.families.memory import change_stream
from tests.services.api.serving import Wire, frames_of, served
from tests.services.application.change_feed import MemoryChangeFeed
from tests.services.application.world import ACME, ADMIN_CALLER


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "POLL_S", 0.005)


async def test_a_follower_is_sent_changes_with_ids_and_can_come_back(tmp_path: Path) -> None:
    feed = MemoryChangeFeed()
    async with served(tmp_path, change_feed=feed) as here:
        wire = Wire(here.app, "GET", "/v1/_memory/changes?since=nonsense", caller=ACME).begin()
        await wire.until("event: feed\n")
        assert (wire.status, wire.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        feed.add("a")
        feed.add("b")
        await wire.until('"key":"b"')
        wire.leave()
        frames = frames_of(await wire.done())
        assert [(one.event, one.id) for one in frames] == [("feed", None), ("change", "1"), ("change", "2")]
        assert here.service.shares.open_streams == 0

        wire = Wire(here.app, "GET", "/v1/_memory/changes?since=0", caller=ACME).header("last-event-id", "1").begin()
        await wire.until('"key":"b"')
        wire.leave()
        frames = frames_of(await wire.done())
        assert [one.data.get("seq") for one in frames] == [None, 2]
        assert frames[0].data["since"] == 1


async def test_documents_have_a_feed_of_their_own(tmp_path: Path) -> None:
    feed = MemoryChangeFeed()
    feed.add("a")
    feed.add("", kind="document.chunk.deleted")
    async with served(tmp_path, change_feed=feed) as here:
        wire = Wire(here.app, "GET", "/v1/_document/changes?tenant=acme", caller=ADMIN_CALLER).begin()
        await wire.until("document.chunk.deleted")
        wire.leave()
        assert [one.data.get("seq") for one in frames_of(await wire.done())] == [None, 2]


async def test_a_feed_that_cannot_be_read_is_refused_before_the_stream_begins(tmp_path: Path) -> None:
    feed = MemoryChangeFeed()
    feed.away = True
    async with served(tmp_path, change_feed=feed) as here:
        answer = await here.client(ACME).get("/v1/_memory/changes")
        assert (answer.status_code, answer.json()["code"]) == (503, "projection_unavailable")
        assert here.service.shares.open_streams == 0


async def test_a_feed_that_is_off_opens_and_a_stop_ends_it(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        wire = Wire(here.app, "GET", "/v1/_memory/changes", caller=ACME).begin()
        body = await wire.until("event: feed\n")
        assert json.loads(body.split("data: ")[1])["enabled"] is False
        here.world.layer.end_streams()
        assert (await wire.done()).endswith(": ended: stopping; resume with Last-Event-ID\n\n")
