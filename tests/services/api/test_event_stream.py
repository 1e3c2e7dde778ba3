import asyncio
import gc
import weakref
from collections.abc import Mapping
from typing import Any, cast

import pytest

from loomlog.services.api import event_stream as module
from loomlog.services.api.event_stream import EventStream, encode_chunks, encode_comment
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import ENDED, RunStream
from loomlog.services.core.refusals import Refused

TEXT = StreamChunk(513, "text", b'{"type":"text","text":"hi"}')
PREVIEW = StreamChunk(None, "text", b'{"type":"text","text":"h"}')
DONE = StreamChunk(1024, "done", b'{"type":"done"}')


class Script:
    """A stream that gives what it is told; an exception is raised, None ends it."""

    def __init__(self, *steps: list[StreamChunk] | Exception | None, end_reason: str = ENDED) -> None:
        self._steps = list(steps)
        self._reason = end_reason
        self.end_reason = ""
        self.closed = False

    async def next(self) -> list[StreamChunk] | None:
        if not self._steps:
            await asyncio.Event().wait()
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if step is None or (self._steps == [] and self._reason == ENDED):
            self.end_reason = self._reason
        return step

    def close(self, reason: str = "left") -> None:
        self.end_reason = self.end_reason or reason
        self.closed = True


async def written(script: Script, *, with_ids: bool = False) -> tuple[list[bytes], bool]:
    """The bodies that were sent, and whether the answer was completed."""
    sent: list[Mapping[str, Any]] = []
    closed: list[bool] = []

    async def receive() -> Mapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    stream = EventStream(cast(RunStream, script), with_ids=with_ids)
    stream.on_close = lambda: closed.append(True)
    async with asyncio.timeout(30):
        await stream({"type": "http"}, receive, send)  # type: ignore[arg-type]
    assert script.closed
    assert closed == [True], "told once, however it ended"
    return [message["body"] for message in sent[1:]], not sent[-1]["more_body"]


def test_a_frame_is_its_name_its_place_and_one_line() -> None:
    assert encode_chunks([TEXT], with_ids=False) == b'event: text\ndata: {"type":"text","text":"hi"}\n\n'
    assert encode_chunks([TEXT], with_ids=True) == b'event: text\nid: 513\ndata: {"type":"text","text":"hi"}\n\n'
    assert b"id:" not in encode_chunks([PREVIEW], with_ids=True), "a preview cannot be resumed at"
    assert encode_chunks([TEXT, DONE], with_ids=False).count(b"\n\n") == 2
    assert encode_comment("hello") == b": hello\n\n"


async def test_the_last_frames_close_the_answer() -> None:
    bodies, is_complete = await written(Script([TEXT], [DONE]))
    assert bodies == [encode_chunks([TEXT], with_ids=False), encode_chunks([DONE], with_ids=False)]
    assert is_complete


async def test_silence_is_a_comment() -> None:
    bodies, _ = await written(Script([], [DONE]))
    assert bodies[0] == b": keepalive\n\n"


async def test_a_stream_that_has_to_be_resumed_says_so() -> None:
    bodies, is_complete = await written(Script([TEXT], None, end_reason="behind"))
    assert bodies[-1] == b": ended: behind; resume with Last-Event-ID\n\n"
    assert is_complete


async def test_what_is_declined_in_the_middle_is_a_comment_because_the_answer_has_begun() -> None:
    bodies, is_complete = await written(Script([TEXT], Refused("projection_unavailable", "away")))
    assert bodies[-1] == b": ended: projection_unavailable\n\n"
    assert is_complete


async def test_a_client_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_WAIT_S", 0.01)
    script = Script([TEXT], [DONE])

    async def receive() -> Mapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async with asyncio.timeout(30):
        await EventStream(cast(RunStream, script), with_ids=False)({"type": "http"}, receive, send)  # type: ignore[arg-type]
    assert script.closed


async def test_a_bug_in_the_middle_still_closes_the_stream() -> None:
    with pytest.raises(RuntimeError):
        await written(Script([TEXT], RuntimeError("a bug")))


async def test_a_stream_that_was_watched_is_gone_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_AFTER_S", 0.0)
    watching = asyncio.Event()

    class Later(Script):
        async def next(self) -> list[StreamChunk] | None:
            await watching.wait()
            return await super().next()

    async def receive() -> Mapping[str, Any]:
        watching.set()
        await asyncio.Event().wait()
        return {}

    async def send(message: Mapping[str, Any]) -> None:
        pass

    gc.disable()
    try:
        stream = EventStream(cast(RunStream, Later([DONE])), with_ids=False)
        async with asyncio.timeout(30):
            await stream({"type": "http"}, receive, send)  # type: ignore[arg-type]
        left = weakref.ref(stream)
        del stream
        await asyncio.sleep(0)  # the cancelled watcher ends
        await asyncio.sleep(0)
        assert left() is None
    finally:
        gc.enable()
