"""The merge of previews and events: whatever the interleaving, a client gets the text of a turn, once."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.projections.frames.frame import FrameMemory
from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.generated.run_events import (
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    RunCompleted,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.stream_records import ModelDelta
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, ContentBlock, Envelope, Segment, ToolCall, Usage
from loomlog.schemas.reader import RawEvent
from loomlog.services.application.streaming import merge as module
from loomlog.services.application.streaming.items import DeltaItem, EventItem, Item, StreamChunk
from loomlog.services.application.streaming.merge import EventGap, PreviewBuffer, StreamMerge

RUN = "r_1"
TERM = 7


def item(seq: int, event: Any) -> EventItem:
    envelope = Envelope(term=TERM, seq=seq, aggregate=RUN, tenant="default", at_ms=5, prev=bytes(16))
    value = local_codec().encode_event(envelope, event)
    return EventItem(RawEvent(100 + seq, local_codec().schema_id_of(event.SCHEMA), TERM, seq, RUN, value), 0)


def events(*found: Any, start: int = 1) -> list[EventItem]:
    return [item(start + number, event) for number, event in enumerate(found)]


def started() -> RunStarted:
    block = ContentBlock(type="trusted-text", text="hi")
    return RunStarted(
        session_id="s_1",
        agent_id="a_1",
        definition=AgentDefinition(name="writer", provider="mock", model="m"),
        segments=(Segment(role="user", content=(block,)),),
    )


def requested(turn: int = 1, attempt: int = 1) -> ModelCallRequested:
    return ModelCallRequested(turn=turn, attempt=attempt, provider="mock", model="m")


def failed(turn: int = 1, attempt: int = 1) -> ModelCallFailed:
    return ModelCallFailed(turn=turn, attempt=attempt, kind="overloaded", message="x", provider="mock", model="m")


def replied(text: str = "", *, turn: int = 1, attempt: int = 1, **more: Any) -> ModelReplied:
    return ModelReplied(
        **{
            "turn": turn,
            "attempt": attempt,
            "text": text,
            "stop_reason": "end_turn",
            "usage": Usage(input_tokens=1),
            "provider": "mock",
            "model": "m",
            "duration_ms": 1,
            **more,
        }
    )


def completed() -> RunCompleted:
    return RunCompleted(stop_reason="end_turn", usage=Usage())


def delta(
    text: str, start: int = 0, *, turn: int = 1, attempt: int = 1, term: int = TERM, thinking: bool = False
) -> DeltaItem:
    made = ModelDelta(term=term, run_id=RUN, turn=turn, attempt=attempt, start=start, text=text, thinking=thinking)
    return DeltaItem(local_codec().encode(made), 0)


def merging(**more: Any) -> StreamMerge:
    return StreamMerge(term_of=lambda partition: TERM, **more)


def taken(merge: StreamMerge, items: Iterable[Item]) -> list[StreamChunk]:
    return [piece for one in items for piece in merge.take(one)]


def texts(pieces: Sequence[StreamChunk], kind: str = "text") -> list[str]:
    return [orjson.loads(piece.data)["text"] for piece in pieces if piece.type == kind]


def types(pieces: Sequence[StreamChunk]) -> list[str]:
    return [piece.type for piece in pieces]


# --- examples --------------------------------------------------------------------------------------------------------


def test_a_run_without_previews_is_its_frames() -> None:
    merge = merging()
    pieces = taken(merge, events(started(), requested(), replied("hello"), completed()))
    assert types(pieces) == ["started", "text", "usage", "done"]
    assert texts(pieces) == ["hello"]
    assert merge.ended


def test_previews_are_shown_at_once_and_the_event_brings_the_rest() -> None:
    merge = merging()
    assert types(taken(merge, events(started(), requested()))) == ["started"]
    assert texts(merge.take(delta("hel"))) == ["hel"]
    assert texts(merge.take(delta("lo ", 3))) == ["lo "]
    pieces = merge.take(item(3, replied("hello world")))
    assert texts(pieces) == ["world"]
    assert types(pieces) == ["text", "usage"]


def test_when_previews_had_everything_the_event_brings_no_text() -> None:
    merge = merging()
    pieces = taken(merge, [*events(started(), requested()), delta("hello"), item(3, replied("hello"))])
    assert types(pieces) == ["started", "text", "usage"]


def test_a_preview_has_no_place_to_resume_at_and_a_frame_has() -> None:
    merge = merging()
    pieces = taken(merge, [*events(started(), requested()), delta("he"), item(3, replied("hello"))])
    assert [piece.seq for piece in pieces] == [257, None, 768, 769]


def test_a_preview_before_the_event_that_opens_its_turn_waits_for_it() -> None:
    merge = merging()
    assert merge.take(delta("hel")) == []
    assert merge.take(delta("lo", 3)) == []
    assert merge.take(item(1, started())) != []
    assert texts(merge.take(item(2, requested()))) == ["hel", "lo"]


def test_a_preview_after_its_turn_is_in_the_log_is_left_out() -> None:
    merge = merging()
    taken(merge, events(started(), requested(), replied("hello")))
    assert merge.take(delta("lo", 3)) == []


def test_a_hole_in_the_previews_is_filled_by_the_event() -> None:
    merge = merging()
    taken(merge, [*events(started(), requested()), delta("hel")])
    assert merge.take(delta("world", 6)) == []
    assert texts(merge.take(item(3, replied("hello world")))) == ["lo world"]


def test_a_preview_that_comes_twice_is_shown_once() -> None:
    merge = merging()
    pieces = taken(merge, [*events(started(), requested()), delta("hel"), delta("hel"), delta("ello", 1)])
    assert texts(pieces) == ["hel", "lo"]


def test_previews_of_a_fenced_owner_are_left_out() -> None:
    merge = merging()
    taken(merge, events(started(), requested()))
    assert merge.take(delta("ghost", term=TERM - 1)) == []


def test_a_new_attempt_begins_the_text_again_after_its_retry_frame() -> None:
    merge = merging()
    pieces = taken(
        merge,
        [
            *events(started(), requested()),
            delta("first try"),
            *events(failed(), requested(attempt=2), start=3),
            delta("late", 9),
            delta("sec", attempt=2),
            item(5, replied("second", attempt=2)),
        ],
    )
    assert types(pieces) == ["started", "text", "retry", "text", "text", "usage"]
    assert texts(pieces[3:]) == ["sec", "ond"]


def test_a_preview_of_a_failed_attempt_never_follows_the_failure() -> None:
    merge = merging()
    taken(merge, [*events(started(), requested()), item(3, failed())])
    assert merge.take(delta("late")) == []


def test_thinking_and_text_are_counted_apart() -> None:
    merge = merging()
    pieces = taken(
        merge,
        [
            *events(started(), requested()),
            delta("hmm", thinking=True),
            delta("he"),
            item(3, replied("hello", reasoning="hmm yes")),
        ],
    )
    assert texts(pieces, "thinking") == ["hmm", " yes"]
    assert texts(pieces) == ["he", "llo"]


def test_each_turn_has_a_text_of_its_own() -> None:
    call = ToolCall(id="c1", name="Read", input="{}")
    merge = merging()
    pieces = taken(
        merge,
        [
            *events(started(), requested()),
            delta("one"),
            *events(
                replied("one", tool_calls=(call,)),
                ToolCallRequested(turn=1, index=0, call_id="c1", effect_class="read"),
                ToolReturned(turn=1, index=0, call_id="c1", text="result"),
                requested(turn=2),
                start=3,
            ),
            delta("tw", turn=2),
            item(7, replied("two", turn=2)),
        ],
    )
    assert types(pieces) == ["started", "text", "tool_call", "usage", "tool_result", "text", "text", "usage"]
    assert texts(pieces) == ["one", "tw", "o"]


def test_a_tool_result_names_its_tool_from_what_came_before() -> None:
    call = ToolCall(id="c1", name="Read", input='{"path":"x"}')
    merge = merging()
    pieces = taken(
        merge,
        events(
            started(),
            requested(),
            replied("", tool_calls=(call,)),
            ToolReturned(turn=1, index=0, call_id="c1", text="result"),
        ),
    )
    use = orjson.loads(pieces[-1].data)["tool_use"]
    assert use == {"id": "c1", "name": "Read", "input": {"path": "x"}}


def test_the_text_of_a_blob_is_cut_where_the_previews_ended() -> None:
    ref = BlobRef(sha256="ab" * 32, size_bytes=100_000)
    merge = merging()
    taken(merge, [*events(started(), requested()), delta("hel")])
    (text, _) = merge.take(item(3, replied("", text_blob=ref)))
    assert (text.blob, text.skip) == (ref, 3)


def test_frames_up_to_the_place_given_are_not_sent_again() -> None:
    items = events(started(), requested(), replied("hello", reasoning="hmm"), completed())
    whole = taken(merging(), items)
    for sent in range(len(whole)):
        place = whole[sent].seq
        assert place is not None
        assert taken(merging(after=place), items) == whole[sent + 1 :]


def test_events_the_read_models_had_are_passed_over() -> None:
    merge = merging(memory=FrameMemory(provider="mock", model="m"), next_event=3)
    pieces = taken(merge, events(started(), requested(), replied("hello"), completed()))
    assert types(pieces) == ["text", "usage", "done"]


def test_a_hole_in_the_events_is_never_passed_over() -> None:
    merge = merging()
    merge.take(item(1, started()))
    with pytest.raises(EventGap):
        merge.take(item(3, replied("hello")))


def test_an_event_nobody_can_read_stops_the_stream_there() -> None:
    merge = merging()
    raw = item(1, started()).raw
    broken = EventItem(RawEvent(raw.offset, raw.schema_id, raw.term, 1, RUN, raw.value[:-3]), 0)
    with pytest.raises(Undecodable):
        merge.take(broken)


def test_previews_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFERED_PREVIEWS_MAX", 2)
    merge = merging()
    for number in range(5):
        merge.take(delta("x", number))
    assert texts(taken(merge, events(started(), requested()))) == ["x", "x"]


# --- joining in the middle -------------------------------------------------------------------------------------------


def joined(recent: Sequence[Item], last_event: int, *, open_turn: int = 0, **more: Any) -> StreamMerge:
    previews = PreviewBuffer()
    previews.resume_after(recent, last_event, open_turn=open_turn)
    memory = FrameMemory(provider="mock", model="m")
    return merging(memory=memory, next_event=last_event + 1, previews=previews, **more)


def test_who_joins_in_the_middle_of_a_turn_sees_its_previews() -> None:
    recent = events(started(), requested())
    merge = joined(recent, 2)
    assert texts(taken(merge, [*recent, delta("hel"), item(3, replied("hello"))])) == ["hel", "lo"]


def test_who_joins_after_a_turn_does_not_see_its_previews_again() -> None:
    recent = events(started(), requested(), replied("hello"))
    assert taken(joined(recent, 3), [*recent, delta("hel")]) == []


def test_who_joins_too_late_for_the_first_previews_gets_the_whole_with_the_event() -> None:
    merge = joined(events(started(), requested()), 2)
    assert merge.take(delta("lo", 3)) == []
    assert texts(merge.take(item(3, replied("hello")))) == ["hello"]


def test_who_joins_a_turn_that_opened_long_ago_gets_it_whole_with_the_event() -> None:
    merge = joined([], 2)
    assert merge.take(delta("hel", attempt=3)) == []
    assert texts(merge.take(item(3, replied("hello", attempt=3)))) == ["hello"]


def test_who_joins_after_a_restart_sees_the_previews_of_the_newest_attempt() -> None:
    kept = [delta("wor", attempt=1), delta("hel", attempt=2), delta("old", turn=0)]
    merge = joined(kept, 4, open_turn=1)
    assert texts(taken(merge, [*kept, delta("lo", 3, attempt=2)])) == ["hel", "lo"]
    assert texts(merge.take(item(5, replied("hello!", attempt=2)))) == ["!"]


def test_who_joins_after_a_restart_before_the_first_preview_sees_the_turn_from_there() -> None:
    merge = joined([], 4, open_turn=2)
    assert texts(taken(merge, [delta("old", turn=1), delta("hel", turn=2, attempt=3)])) == ["hel"]
    assert merge.take(delta("no", turn=3)) == []
    assert texts(taken(merge, [delta("lo", 3, turn=2, attempt=3), delta("x", turn=2, attempt=2)])) == ["lo"]
    assert texts(merge.take(item(5, replied("hello!", turn=2, attempt=3)))) == ["!"]


def test_a_turn_that_ended_before_its_first_preview_came_is_not_shown_twice() -> None:
    merge = joined([], 4, open_turn=2)
    assert texts(merge.take(item(5, replied("hello", turn=2)))) == ["hello"]
    assert merge.take(delta("hel", turn=2)) == []


def test_who_joins_after_a_restart_between_two_turns_does_not_see_the_last_again() -> None:
    kept = [delta("hel"), delta("lo", 3)]
    assert taken(joined(kept, 3, open_turn=2), kept) == []
    assert taken(joined(kept, 3), kept) == []


def test_what_was_shown_before_a_stream_fell_behind_is_not_shown_again() -> None:
    previews = PreviewBuffer()
    before = merging(previews=previews)
    opening = events(started(), requested())
    taken(before, [*opening, delta("hel")])
    previews.resume_after(opening, 2)
    after = merging(memory=FrameMemory(), next_event=3, previews=previews)
    assert texts(taken(after, [*opening, delta("hel"), delta("lo", 3), item(3, replied("hello!"))])) == ["lo", "!"]


def test_a_turn_that_ended_while_a_stream_was_behind_is_not_shown_in_the_next() -> None:
    previews = PreviewBuffer()
    before = merging(previews=previews)
    opening = events(started(), requested())
    taken(before, [*opening, delta("hel")])
    memory = FrameMemory()
    for one in [*opening, item(3, replied("hello"))]:
        _, stored, memory = one.frames(memory)
        for piece in stored:
            previews.remainder(piece, lambda: "hello")
    previews.resume_after([], 3)  # nothing is at hand any more
    after = merging(memory=memory, next_event=4, previews=previews)
    assert taken(after, [delta("hel"), delta("lo", 3)]) == []


# --- properties ------------------------------------------------------------------------------------------------------

WORDS = st.text(alphabet=st.sampled_from('abcäß😀 \n"\\\x00'), max_size=30)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Item], list[Item], list[str], list[str]]:
    """The events of a run, the previews of it, and the text and reasoning of each turn."""
    actual: list[Any] = [started()]
    previews: list[Item] = []
    answers, thoughts = [], []
    for turn in range(1, draw(st.integers(1, 3)) + 1):
        attempts = draw(st.integers(1, 3))
        for attempt in range(1, attempts + 1):
            actual.append(requested(turn, attempt))
            text, thought = draw(WORDS), draw(WORDS)
            for whole, thinking in ((thought, True), (text, False)):
                cuts = sorted(draw(st.sets(st.integers(0, len(whole)), max_size=4)) | {0, len(whole)})
                shown = cuts if attempt == attempts else cuts[: draw(st.integers(0, len(cuts)))]
                for start, end in itertools.pairwise(shown):
                    previews.append(delta(whole[start:end], start, turn=turn, attempt=attempt, thinking=thinking))
            if attempt < attempts:
                actual.append(failed(turn, attempt))
        actual.append(replied(text, turn=turn, attempt=attempts, reasoning=thought))
        answers.append(text)
        thoughts.append(thought)
    actual.append(completed())
    return list(events(*actual)), previews, answers, thoughts


@st.composite
def disturbed(draw: st.DrawFn, previews: list[Item]) -> list[Item]:
    """Previews with some lost, some doubled and some late."""
    kept: list[Item] = []
    for one in previews:
        kept += [one] * draw(st.sampled_from([1, 1, 1, 0, 2]))
    if kept and draw(st.booleans()):
        kept.append(kept.pop(draw(st.integers(0, len(kept) - 1))))
    return kept


@st.composite
def interleaved(draw: st.DrawFn, one: list[Item], other: list[Item]) -> list[Item]:
    """The two in some order, each in its own."""
    one, other = list(one), list(other)
    items: list[Item] = []
    while one or other:
        take_one = bool(one) and (not other or draw(st.booleans()))
        items.append((one if take_one else other).pop(0))
    return items


def open_turn_after(items: Sequence[Item]) -> int:
    """The turn whose model call is under way, as the row of the run tells it; 0 for none."""
    records = [one.record for one in items if isinstance(one, EventItem)]
    replies = sum(isinstance(one, ModelReplied) for one in records)
    requests = {one.turn for one in records if isinstance(one, ModelCallRequested)}
    return replies + 1 if replies + 1 in requests else 0


def turns_of(pieces: Sequence[StreamChunk], kind: str) -> list[str]:
    """What a client has of each turn: its frames joined, from the last attempt on."""
    actual, so_far = [], ""
    for piece in pieces:
        if piece.type == "retry":
            so_far = ""
        elif piece.type == kind:
            so_far += orjson.loads(piece.data)["text"]
        elif piece.type == "usage":
            actual.append(so_far)
            so_far = ""
    return actual


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_any_interleaving_of_previews_and_events_gives_each_turn_its_exact_text(data: st.DataObject) -> None:
    items, previews, answers, thoughts = data.draw(stories())
    order = data.draw(interleaved(items, data.draw(disturbed(previews))))
    merge = merging()
    pieces = taken(merge, order)
    assert turns_of(pieces, "text") == answers
    assert turns_of(pieces, "thinking") == thoughts
    assert merge.ended
    places = [piece.seq for piece in pieces if piece.seq is not None]
    assert places == sorted(set(places))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_falling_back_to_the_read_models_at_any_moment_changes_no_text(data: st.DataObject) -> None:
    """The stream stops after some items, reads stored frames up to some event, and goes on with everything again."""
    items, previews, answers, thoughts = data.draw(stories())
    order = data.draw(interleaved(items, previews))
    state = PreviewBuffer()
    first = merging(previews=state)
    cut = data.draw(st.integers(0, len(order)))
    pieces = taken(first, order[:cut])
    if first.ended:
        return
    seen = max((one.raw.seq for one in order[:cut] if isinstance(one, EventItem)), default=0)
    last_event = data.draw(st.integers(seen, len(items)))
    # What is stored: the frames of the events up to there, as if nobody had sent previews.
    memory, stored = FrameMemory(), []
    for one in items[:last_event]:
        assert isinstance(one, EventItem)
        _, frames, memory = one.frames(memory)
        stored += frames
    for piece in stored:
        assert piece.seq is not None
        if piece.seq > first.after:
            kept = state.remainder(piece, lambda piece=piece: orjson.loads(piece.data)["text"])
            pieces += [kept] if kept is not None else []
    after = max([first.after, *(piece.seq or 0 for piece in stored)])
    recent = data.draw(st.sampled_from([order, items, previews]))
    state.resume_after(recent, last_event, open_turn=open_turn_after(items[:last_event]))
    second = merging(memory=memory, next_event=last_event + 1, after=after, previews=state)
    pieces += taken(second, order)
    assert turns_of(pieces, "text") == answers
    assert turns_of(pieces, "thinking") == thoughts
