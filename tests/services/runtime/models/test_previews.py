"""Previews: in groups, with their place in the text, and never in anybody's way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.services.core.run.react import CallModel
from loomlog.services.runtime.content.redaction import Redaction
from loomlog.services.runtime.models import previews as deltas_module
from loomlog.services.runtime.models.previews import ModelPreview, Previews
from tests.services.runtime.given import values
from tests.services.stream.given import CODEC

TOPIC = "loom.run.deltas"
PARTITIONS = 3


def effect(run_id: str = "r_tok", attempt: int = 2) -> CallModel:
    return CallModel(run_id=run_id, turn=1, attempt=attempt, provider="p", model="m", not_before_ms=0)


class Sender:
    """Previews whose sending is driven by the test."""

    def __init__(self) -> None:
        self.log = MemoryLog({TOPIC: PARTITIONS})
        self.previews = Previews(
            CODEC, self.log, topic=TOPIC, partitions=PARTITIONS, term_of=lambda partition: 100 + partition
        )
        self.rounds = 0

    def sent(self) -> list[ModelDelta]:
        return values(self.log, TOPIC)

    async def round(self) -> list[ModelDelta]:
        """Let at least one group leave; all that was sent so far."""
        for _ in range(8):
            await asyncio.sleep(0)
        return self.sent()


@pytest_asyncio.fixture(loop_scope="session")
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sender]:
    monkeypatch.setattr(deltas_module, "FLUSH_INTERVAL_S", 0.0)
    monkeypatch.setattr(deltas_module, "RECORDS_PER_S", float("inf"))
    monkeypatch.setattr(deltas_module, "FIRST_FLUSH_PAUSE_S", 0.0)
    made = Sender()
    task = asyncio.get_running_loop().create_task(made.previews.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_characters_travel_in_groups_with_their_place_in_the_text(sender: Sender) -> None:
    with sender.previews.open_preview(effect()) as preview:
        preview.add("Hel", thinking=False)
        preview.add("lo", thinking=False)
        await sender.round()
        preview.add(" world", thinking=False)
        deltas = await sender.round()
    assert [(delta.start, delta.text) for delta in deltas] == [(0, "Hello"), (5, " world")]
    first = deltas[0]
    place = partition_of(b"tok", PARTITIONS)
    assert (first.run_id, first.turn, first.attempt, first.term, first.thinking) == ("r_tok", 1, 2, 100 + place, False)
    assert [record.key for record in sender.log.records[TOPIC, place]] == [b"tok", b"tok"]


async def test_thinking_and_answer_are_counted_apart(sender: Sender) -> None:
    with sender.previews.open_preview(effect()) as preview:
        preview.add("hm", thinking=True)
        preview.add("yes", thinking=False)
        await sender.round()
        preview.add("...", thinking=True)
        deltas = await sender.round()
    assert [(delta.thinking, delta.start, delta.text) for delta in deltas] == [
        (True, 0, "hm"),
        (False, 0, "yes"),
        (True, 2, "..."),
    ]


async def test_a_call_that_is_over_sends_nothing_more(sender: Sender) -> None:
    with sender.previews.open_preview(effect()) as preview:
        preview.add("too quick", thinking=False)
    assert await sender.round() == []


async def test_first_characters_leave_at_once_and_what_follows_is_gathered(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltas_module, "FLUSH_INTERVAL_S", 60.0)
    with sender.previews.open_preview(effect("r_a")) as one:
        one.add("now", thinking=False)
        assert [delta.text for delta in await sender.round()] == ["now"]
        one.add("not yet", thinking=False)
        with sender.previews.open_preview(effect("r_b")) as two:
            two.add("now too", thinking=True)
            assert [delta.text for delta in await sender.round()] == ["now", "now too"]


async def test_the_more_streams_say_something_the_longer_it_is_gathered(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deltas_module, "RECORDS_PER_S", 1 / 60)
    with sender.previews.open_preview(effect()) as preview:
        for text in ("first", "second", "third"):
            preview.add(text, thinking=False)
            deltas = await sender.round()
    assert [delta.text for delta in deltas] == ["first", "second"], "a record a minute has been sent"


async def test_nobody_looks_at_calls_that_say_nothing(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    gather = sender.previews._gather

    def counted(preview: ModelPreview) -> None:
        nonlocal looks
        looks += 1
        gather(preview)

    monkeypatch.setattr(sender.previews, "_gather", counted)
    with sender.previews.open_preview(effect("r_a")) as one, sender.previews.open_preview(effect("r_b")):
        one.add("said", thinking=False)
        await sender.round()
        await sender.round()
    assert looks == 1


async def test_a_text_in_one_piece_is_cut_so_that_each_record_fits_an_append(sender: Sender) -> None:
    text = "€" * 1_000_000
    with sender.previews.open_preview(effect()) as preview:
        preview.add(text, thinking=False)
        deltas = await sender.round()
    assert "".join(delta.text for delta in deltas) == text
    assert [delta.start for delta in deltas] == [sum(len(d.text) for d in deltas[:at]) for at in range(len(deltas))]
    assert all(len(delta.text.encode()) < MAX_BATCH_BYTES for delta in deltas)


async def test_what_utf8_cannot_hold_does_not_stop_the_previews(sender: Sender) -> None:
    with sender.previews.open_preview(effect()) as preview:
        preview.add("half \ud83d", thinking=False)
        assert [delta.text for delta in await sender.round()] == ["half \ufffd"]


async def test_previews_that_cannot_be_sent_are_counted_and_forgotten(sender: Sender) -> None:
    append = sender.log.append

    async def away(*_: Any) -> int:
        raise UnknownOutcome("no broker")

    sender.log.append = away  # type: ignore[method-assign, assignment]  # the fault is asked for
    with sender.previews.open_preview(effect()) as preview:
        preview.add("lost", thinking=False)
        await sender.round()
        assert sender.previews.dropped == 1
        sender.log.append = append  # type: ignore[method-assign]  # as it was
        preview.add("kept", thinking=False)
        assert [(delta.start, delta.text) for delta in await sender.round()] == [(4, "kept")]


async def test_more_than_the_bound_is_dropped_and_counted(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas_module, "MAX_WAITING", 2)
    with (
        sender.previews.open_preview(effect("r_a")) as one,
        sender.previews.open_preview(effect("r_b")) as two,
        sender.previews.open_preview(effect("r_c")) as three,
    ):
        for preview in (one, two, three):
            preview.add("text", thinking=False)
        assert len(await sender.round()) == 2
    assert sender.previews.dropped == 1


async def test_a_secret_that_comes_in_pieces_is_masked_and_places_are_those_of_the_masked_text(sender: Sender) -> None:
    mask = Redaction({"KEY": "sk-12345"}).mask_prefix
    with sender.previews.open_preview(effect(), mask=mask) as preview:
        for piece in ("the key is s", "k-1", "2345", " yes, s", "o it may be"):
            preview.add(piece, thinking=False)
            await sender.round()
        sent = sender.sent()
    assert "".join(delta.text for delta in sent) == "the key is [redacted:KEY] yes, so it may be"
    assert [delta.start for delta in sent] == [0, 11, 25, 31]
