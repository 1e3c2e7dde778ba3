import asyncio
from typing import Any

import orjson
import pytest

from loomlog.schemas.generated.run_events import ModelReplied, RunCompleted
from loomlog.schemas.generated.values import BlobRef, Usage
from loomlog.services.application import limits
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream
from loomlog.services.application.streaming.subscription import STOPPING
from tests.services.application.world import (
    ADMIN_CALLER,
    World,
    declined,
    pieces_of,
    types_of,
    until,
    until_type,
    world,
)

FOREVER = 10**9


async def start(made: World, agent: str = "silent", **fields: Any) -> StartedRun:
    return await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent=agent, prompt="go", **fields))


async def watch(made: World, run: StartedRun, after: int = -1) -> RunStream:
    return await made.layer.queries.stream(ADMIN_CALLER, run.run_id, after=after)


def text_of(pieces: list[StreamChunk]) -> str:
    return "".join(orjson.loads(piece.data)["text"] for piece in pieces if piece.type == "text")


def reply_of_blob(ref: BlobRef) -> ModelReplied:
    return ModelReplied(
        turn=1,
        attempt=1,
        text_blob=ref,
        stop_reason="end_turn",
        usage=Usage(),
        provider="mock",
        model="m",
        duration_ms=1,
    )


# --- live ------------------------------------------------------------------------------------------------------------


async def test_frames_come_as_they_happen() -> None:
    async with world() as made:
        run = await start(made)
        assert types_of(await until_type(run.stream, "started")) == ["session", "agent", "started"]
        made.reply(run.run_id, "hello")
        assert types_of(await pieces_of(run.stream)) == ["text", "usage", "done"]


async def test_previews_come_before_their_turn_is_in_the_log() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        made.preview(run.run_id, "hel", start=0)
        (shown,) = await until_type(run.stream, "text")
        made.reply(run.run_id, "hello")
        rest = await pieces_of(run.stream)
    assert shown.seq is None
    assert text_of([shown, *rest]) == "hello"


async def test_silence_gives_a_sign_of_life() -> None:
    async with world(keepalive_s=0.01) as made:
        run = await start(made)
        await until_type(run.stream, "started")
        assert await run.stream.next() == []
        assert await run.stream.next() == []
        run.stream.close()


async def test_events_without_frames_do_not_put_the_sign_of_life_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(keepalive_s=0.03) as made:
        run = await start(made)
        await until_type(run.stream, "started")
        asked = asyncio.create_task(run.stream.next())
        began = asyncio.get_running_loop().time()
        while not asked.done() and asyncio.get_running_loop().time() - began < 1.0:
            made.preview(run.run_id, "ghost", start=50)
            await asyncio.sleep(0.002)
        assert await asked == []
        run.stream.close()


async def test_closing_wakes_and_ends_a_stream() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        asked = asyncio.create_task(run.stream.next())
        await asyncio.sleep(0)
        run.stream.close()
        assert await asked is None
        assert made.hub.subscribers == 0


async def test_a_stopping_process_ends_its_streams_with_the_reason() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        made.hub.stop()
        assert await run.stream.next() is None
        assert run.stream.end_reason == STOPPING


# --- from the read models --------------------------------------------------------------------------------------------


async def test_a_stream_goes_from_what_is_stored_to_what_happens() -> None:
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        stream = await watch(made, run)
        stored = await until_type(stream, "awaiting_input")
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "second")
        live = await until_type(stream, "awaiting_input")
        stream.close()
        run.stream.close()
    assert types_of(stored) == ["agent", "steer", "started", "text", "usage", "awaiting_input"]
    assert types_of(live) == ["steer", "text", "usage", "awaiting_input"]
    places = [piece.seq for piece in stored + live if piece.seq is not None]
    assert places == sorted(set(places))


async def test_a_stream_resumes_after_any_frame_without_hole_or_repetition() -> None:
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        whole = [piece for piece in await pieces_of(await watch(made, run)) if piece.seq is not None]
        for sent, piece in enumerate(whole):
            assert piece.seq is not None
            rest = await pieces_of(await watch(made, run, after=piece.seq))
            assert [p.seq for p in rest if p.seq is not None] == [p.seq for p in whole[sent + 1 :]]


async def test_long_histories_are_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLAY_PAGE", 2)
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        types = types_of(await pieces_of(await watch(made, run)))
    assert types == ["agent", "steer", "started", "text", "usage", "done"]


async def test_the_first_words_of_a_model_wait_for_nothing_and_what_follows_is_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "GATHER_S", FOREVER)
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        made.preview(run.run_id, "hel", start=0)
        assert text_of(await until_type(run.stream, "text")) == "hel"
        made.preview(run.run_id, "lo", start=3)
        following = asyncio.ensure_future(run.stream.next())
        await until(lambda: run.stream._subscription._items)
        assert not following.done()
        made.reply(run.run_id, "hello")
        assert text_of(await following or []) == "lo"
        run.stream.close()


async def test_a_stream_that_joins_in_the_middle_of_a_turn_sees_the_previews_so_far() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        made.preview(run.run_id, "hel", start=0)
        await until_type(run.stream, "text")
        stream = await watch(made, run)
        pieces = await until_type(stream, "text")
        made.reply(run.run_id, "hello")
        pieces += await pieces_of(stream)
        run.stream.close()
    assert text_of(pieces) == "hello"


async def test_a_slow_client_reads_on_from_the_read_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATCH_UP_PAUSE_S", 0.0)
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        seen = await until_type(run.stream, "awaiting_input")
        monkeypatch.setattr("loomlog.services.application.streaming.subscription.QUEUE_ITEMS_MAX", 8)
        for number in range(6):  # nobody reads meanwhile
            await made.layer.control.post_input(ADMIN_CALLER, run.run_id, f"text {number}")
        await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
        seen += await pieces_of(run.stream)
        whole = await pieces_of(await watch(made, run))
    assert run.stream._catch_up_count >= 1, "it did fall behind"
    places = [piece.seq for piece in seen if piece.seq is not None]
    assert places == sorted(set(places))
    stored = [piece for piece in whole if piece.seq is not None]
    # The first user text is shown by a replay only.
    assert places == [piece.seq for piece in stored][1:]


async def test_no_character_is_sent_twice_when_a_stream_falls_behind_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATCH_UP_PAUSE_S", 0.0)
    async with world() as made:
        run = await start(made)
        monkeypatch.setattr("loomlog.services.application.streaming.subscription.QUEUE_ITEMS_MAX", 3)
        pieces = await until_type(run.stream, "started")
        made.preview(run.run_id, "one ", start=0)
        pieces += await until_type(run.stream, "text")
        for number in range(8):
            made.preview(run.run_id, "x", start=4 + number)
        await until(lambda: run.stream._subscription.close_reason)
        made.reply(run.run_id, "one xxxxxxxx two")
        pieces += await pieces_of(run.stream)
    assert text_of(pieces) == "one xxxxxxxx two"


async def test_read_models_that_are_behind_the_ring_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATCH_UP_PAUSE_S", 0.001)
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        made.project()
        made.projecting = False
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "unseen")
        await until_type(run.stream, "awaiting_input")
        made.hub._recent_events.drop_expired(FOREVER)  # neither the ring nor the read models have these events
        stream = await watch(made, run)
        await until_type(stream, "awaiting_input")
        made.happen(run.run_id, RunCompleted(stop_reason="end_turn", usage=Usage()))
        asked = asyncio.create_task(pieces_of(stream))
        await until(lambda: stream._catch_up_count > 3)
        made.projecting = True
        pieces = await asked
        run.stream.close()
    assert types_of(pieces) == ["steer", "text", "usage", "awaiting_input", "done"]


async def test_a_stream_that_cannot_catch_up_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CATCH_UP_PAUSE_S", 0.0)
    monkeypatch.setattr(limits, "CATCH_UPS_MAX", 3)
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        made.project()
        made.projecting = False
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "unseen")
        made.hub._recent_events.drop_expired(FOREVER)
        stream = await watch(made, run)
        await until_type(stream, "awaiting_input")
        made.happen(run.run_id, RunCompleted(stop_reason="end_turn", usage=Usage()))
        await pieces_of(stream)
        assert stream.end_reason == "behind"
        run.stream.close()


# --- blobs -----------------------------------------------------------------------------------------------------------


async def test_a_text_in_the_blob_store_is_loaded_before_it_is_sent() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        ref = await made.blobs.put(b"a very long text")
        made.preview(run.run_id, "a very ", start=0)
        pieces = await until_type(run.stream, "text")
        made.happen(run.run_id, reply_of_blob(ref), RunCompleted(stop_reason="end_turn", usage=Usage()))
        pieces += await pieces_of(run.stream)
        assert text_of(pieces) == "a very long text"
        assert b"text_blob" not in b"".join(piece.data for piece in pieces)
        assert text_of(await pieces_of(await watch(made, run))) == "a very long text"


async def test_a_text_that_cannot_be_loaded_says_so_and_keeps_its_reference() -> None:
    async with world() as made:
        run = await start(made)
        await until_type(run.stream, "started")
        ref = BlobRef(sha256="ab" * 32, size_bytes=9)
        made.happen(run.run_id, reply_of_blob(ref), RunCompleted(stop_reason="end_turn", usage=Usage()))
        (text, *_) = await pieces_of(run.stream)
    shown = orjson.loads(text.data)
    assert shown["text_unavailable"] == "not_found"
    assert shown["text_blob"]["sha256"] == ref.sha256


async def test_read_models_that_go_away_in_the_middle_of_a_replay_are_told() -> None:
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        stream = await watch(made, run)
        made.postgres_is_away = True
        assert (await declined(stream.next())).code == "projection_unavailable"
