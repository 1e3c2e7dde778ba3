import orjson
import pytest

from loomlog.projections.frames.frame import FRAMES_PER_EVENT, Frame, FrameCall, FrameMemory
from loomlog.projections.frames.frame_json import parse_input
from loomlog.projections.frames.frames import build_frames
from loomlog.projections.frames.output import replay_frames, stream_frame
from loomlog.projections.frames.turn_events import CALLS_SHOWN_MAX
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.generated.run_events import (
    CallWaiting,
    CommandRefused,
    FallbackSuppressed,
    HookActed,
    InputReceived,
    ModelCallRequested,
    ModelSwitched,
    PersonNotified,
    RunCancelled,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunRefused,
    RunResumed,
    TurnCancelled,
    WaitReported,
)
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    ChannelUse,
    ContentBlock,
    Envelope,
    HookAct,
    MemoryBanked,
    MemoryContext,
    ResultDetails,
    Segment,
    Usage,
)
from loomlog.schemas.records import replace
from loomlog.services.core.admission import PROVIDER_FULL
from tests.projections.stories import (
    COMPACTED,
    COMPACTING,
    NOT_COMPACTED,
    asked,
    call,
    closed,
    completed,
    failed,
    opened,
    replied,
    requested,
    returned,
    started,
    user,
)

BLOB = BlobRef(sha256="cd" * 32, size_bytes=70_000)


def envelope(seq: int = 1, at_ms: int = 1_780_000_000_123) -> Envelope:
    return Envelope(term=0, seq=seq, aggregate="r_1", tenant="default", at_ms=at_ms, prev=bytes(16))


def shown(*events, memory: FrameMemory | None = None) -> list[Frame]:
    """The frames of events with seqs from 1."""
    memory, frames = memory or FrameMemory(), []
    for seq, event in enumerate(events, 1):
        event_frames, memory = build_frames(memory, envelope(seq), event)
        frames += event_frames
    return frames


def one(*events) -> Frame:
    return shown(*events)[-1]


# --- what each event shows -------------------------------------------------------------------------------------------


def test_a_run_starts_with_the_request_then_the_system_prompt_then_started():
    frames = shown(started())
    assert [(f.seq, f.type, f.live) for f in frames] == [
        (256, "user_input", False),
        (257, "system_prompt", False),
        (258, "started", True),
    ]
    assert frames[1].event["text"] == "You write."
    assert frames[2].event == {"type": "started"}


def test_the_request_is_stored_as_its_caller_wrote_it_after_the_system_prompt_of_the_agent():
    segments = (
        Segment(role="system", content=(ContentBlock(type="trusted-text", text="rules", cacheable=True),)),
        Segment(role="user", content=(ContentBlock(type="untrusted-block", kind="web_content", text="page"),)),
    )
    assert shown(started(segments=segments))[0].payload == [
        {"role": "system", "content": [{"type": "trusted-text", "text": "You write.", "source": "definition"}]},
        {"role": "system", "content": [{"type": "trusted-text", "text": "rules", "cacheable": True}]},
        {"role": "user", "content": [{"type": "untrusted-block", "text": "page", "kind": "web_content"}]},
    ]


def test_an_agent_without_a_system_prompt_stores_none_and_seqs_stay_dense():
    frames = shown(started(definition=AgentDefinition(name="a", provider="p", model="m")))
    assert [(f.seq, f.type) for f in frames] == [(256, "user_input"), (257, "started")]


def test_a_long_system_prompt_is_named_where_its_text_would_be():
    ref = BlobRef(sha256="ab" * 32, size_bytes=70_000)
    definition = AgentDefinition(name="a", provider="p", model="m", system_prompt_blob=ref)
    request, prompt, _ = shown(started(definition=definition))
    block = {"type": "trusted-text", "text": "", "source": "definition", "blob": ref.to_avro()}
    assert request.payload is not None
    assert request.payload[0] == {"role": "system", "content": [block]}
    assert (prompt.type, prompt.event["text"], prompt.event["text_blob"]) == ("system_prompt", "", ref.to_avro())
    assert prompt.payload == [
        {"role": "system", "content": [{"type": "trusted-text", "text": "", "blob": ref.to_avro()}]}
    ]


@pytest.mark.parametrize(
    ("memory", "texts"),
    [
        (MemoryContext(text="I am Iris."), ["You write.", "I am Iris."]),
        (MemoryContext(text="You write, Iris.", replaces_prompt=True), ["You write, Iris."]),
        (MemoryContext(text="", replaces_prompt=True), []),
    ],
)
def test_memory_is_shown_with_the_system_prompt_or_in_it(memory: MemoryContext, texts: list[str]):
    request, *others = shown(started(memory_context=memory))
    assert request.payload is not None
    system = [segment for segment in request.payload if segment["role"] == "system"]
    assert [block["text"] for segment in system for block in segment["content"]] == texts
    assert [frame.event["text"] for frame in others if frame.type == "system_prompt"] == texts
    assert [frame.seq for frame in others] == list(range(257, 258 + len(texts)))


def test_a_turn_shows_thinking_text_calls_and_usage_in_this_order():
    frames = shown(replied(1, "Let me look.", call("c1"), call("c2", "Search", "{}"), reasoning="Hm."))
    assert [(f.seq, f.type) for f in frames] == [
        (256, "thinking"),
        (257, "text"),
        (258, "tool_call"),
        (259, "tool_call"),
        (260, "usage"),
    ]
    assert frames[2].event["tool_use"] == {"id": "c1", "name": "Lookup", "input": {"city": "Paris"}}


def test_a_turn_without_text_shows_no_text():
    assert [f.type for f in shown(replied(1, "", call("c1")))] == ["tool_call", "usage"]


def test_usage_names_the_model_and_leaves_out_zeros():
    usage = one(replied(1, "hi", usage=Usage(input_tokens=5, output_tokens=0, cache_read_input_tokens=9)))
    assert usage.event["usage"] == {
        "input_tokens": 5,
        "output_tokens": 0,
        "cache_read_input_tokens": 9,
        "model": "mock-generic",
        "provider": "mock",
        "cost_micros": 7,
        "currency": "USD",
    }
    assert one(replied(1, "hi", max_context_tokens=8000)).event["usage"]["max_context_tokens"] == 8000


def test_usage_names_whose_key_paid():
    usage = one(replied(1, "hi", credential_source="run", credential_scope="r_1")).event["usage"]
    assert (usage["credential_source"], usage["credential_scope_id"]) == ("run", "r_1")
    usage = one(replied(1, "hi", credential_source="operator")).event["usage"]
    assert usage["credential_source"] == "operator"
    assert "credential_scope_id" not in usage


def test_a_result_names_the_tool_and_its_input_although_the_event_has_only_the_call_id():
    frame = one(started(), requested(1), replied(1, "", call("c1")), asked(1, 0, "c1"), returned(1, 0, "c1"))
    assert frame.event == {
        "type": "tool_result",
        "tool_use": {"id": "c1", "name": "Lookup", "input": {"city": "Paris"}},
        "text": "sunny",
    }
    assert frame.seq == 5 * FRAMES_PER_EVENT


def test_a_failed_result_says_so_and_one_of_an_unknown_call_keeps_its_id():
    assert one(returned(1, 0, "c9", "no", is_error=True)).event == {
        "type": "tool_result",
        "tool_use": {"id": "c9"},
        "text": "no",
        "is_error": True,
    }


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (failed(1, retry_after_ms=700), "retry-after header"),
        (failed(1, kind=PROVIDER_FULL, message="full", retry_after_ms=5_000), "provider queue"),
        (failed(1), "exponential backoff"),
        (failed(1, kind="interrupted", message="lost"), "owner lost"),
        (failed(1, kind="broken_off", message="cut"), "exponential backoff"),
    ],
)
def test_another_attempt_shows_a_retry_with_its_wait_and_why(failure, reason):
    frame = one(failure, requested(1, 2, not_before_ms=envelope().at_ms + 650))
    assert frame.event["retry"] == {"provider": "mock", "attempt": 1, "wait_ms": 650, "reason": reason}


def test_an_attempt_that_was_due_before_waits_for_nothing():
    assert one(failed(1), requested(1, 2, not_before_ms=5)).event["retry"]["wait_ms"] == 0


def test_a_retry_is_numbered_as_the_run_counted_it():
    retry = ModelCallRequested(turn=1, attempt=7, provider="mock", model="mock-large", retry=2)
    assert one(failed(1), retry).event["retry"]["attempt"] == 2


SWITCHED = ModelSwitched(
    turn=1,
    attempt=1,
    failed_provider="mock",
    failed_model="mock-large",
    provider="other",
    model="small",
    number=2,
    user_tier="gold",
    reason="retryable",
    cause="mock 500: " + "x" * 300,
)


def test_a_fallback_shows_where_the_run_goes_and_why():
    (frame,) = shown(SWITCHED)
    assert (frame.type, frame.event["type"]) == ("provider_fallback", "provider_fallback")
    assert frame.event["fallback"] == {
        "failed_provider": "mock",
        "failed_model": "mock-large",
        "new_provider": "other",
        "new_model": "small",
        "attempt": 2,
        "user_tier": "gold",
        "reason": "retryable",
        "cause_error": SWITCHED.cause[:200],
    }


def test_the_losses_of_a_fallback_follow_in_order():
    frames = shown(replace(SWITCHED, cache_lost=True, reasoning_cleared=3, downgraded_from="thinker"))
    assert [(frame.seq, frame.type) for frame in frames] == [
        (256, "provider_fallback"),
        (257, "cache_invalidated"),
        (258, "reasoning_invalidated"),
        (259, "model_downgraded"),
    ]
    assert all(set(frame.event) == {"type", "text"} for frame in frames[1:])
    assert "3 earlier answers" in frames[2].event["text"]
    assert "thinker" in frames[3].event["text"]


def test_only_losses_are_shown_and_seqs_stay_dense():
    frames = shown(replace(SWITCHED, reasoning_cleared=1))
    assert [(frame.seq, frame.type) for frame in frames] == [(256, "provider_fallback"), (257, "reasoning_invalidated")]


def test_the_first_call_after_a_fallback_is_no_retry_and_its_own_retry_is():
    first = ModelCallRequested(turn=1, attempt=2, provider="other", model="small")
    again = ModelCallRequested(turn=1, attempt=3, provider="other", model="small", retry=1)
    frames = shown(failed(1), SWITCHED, first, failed(1), again)
    assert [frame.type for frame in frames] == ["provider_fallback", "retry"]
    assert (frames[1].event["retry"]["provider"], frames[1].event["retry"]["attempt"]) == ("other", 1)


def test_an_end_after_a_fallback_names_the_new_model():
    assert one(started(), SWITCHED, completed()).event["usage"]["model"] == "small"


@pytest.mark.parametrize(
    ("code", "words"),
    [("pinned_after_success", "has succeeded"), ("no_vision", "other/small"), ("something new", "something new")],
)
def test_a_fallback_that_was_not_taken_says_why(code, words):
    (frame,) = shown(FallbackSuppressed(turn=1, attempt=1, code=code, provider="other", model="small"))
    assert (frame.type, set(frame.event)) == ("fallback_suppressed", {"type", "text"})
    assert words in frame.event["text"]


def test_a_first_attempt_an_intent_and_a_refusal_show_nothing():
    refusal = RunRefused(code="unknown_agent", message="no")
    assert shown(requested(1), failed(1), asked(1, 0, "c1"), refusal, CommandRefused(code="x", message="y")) == []


def test_an_ended_run_shows_done_with_the_sum_and_the_last_model():
    frame = one(started(), replied(1, "hi", model="mock-large"), completed())
    assert frame.event == {
        "type": "done",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 300, "output_tokens": 60, "model": "mock-large", "provider": "mock"},
    }


def test_a_cancelled_run_ends_its_stream_with_done():
    frame = one(started(), RunCancelled(reason="enough", usage=Usage(input_tokens=4)))
    assert (frame.type, frame.event["stop_reason"]) == ("done", "cancelled")


def test_a_failed_run_shows_its_error_once_and_no_done():
    frames = shown(failed(1, kind="permanent"), RunFailed(code="model_error", error="mock 400: no", usage=Usage()))
    assert [f.event for f in frames] == [{"type": "error", "error": "mock 400: no"}]


def test_a_pause_is_shown_when_the_run_stops_and_when_it_resumes():
    events = [RunPauseRequested(scope="run"), RunPaused(turn=2, reason="look"), RunResumed(scope="run", remaining=1)]
    (paused,) = shown(*events)
    assert paused.event == {"type": "paused", "paused": {"turn": 2, "reason": "look"}}
    assert one(RunResumed(scope="all", by="op")).event == {"type": "resumed", "resumed": {"by": "op"}}


def test_parking_and_quarantine_are_shown():
    assert one(RunParked(since_turn=2)).event["awaiting_input"] == {"since_turn": 2}
    quarantined = RunQuarantined(error="bad", record_offset=1, record_topic="t")
    assert one(quarantined).event == {"type": "quarantined", "error": "bad"}


def test_a_compaction_shows_its_summary_and_its_usage():
    frame = one(COMPACTED)
    assert frame.type == "context_compaction"
    assert frame.event["context_compaction"] == {
        "summary": "they talked",
        "before_tokens": 900,
        "after_tokens": 300,
        "keep_n": 4,
        "keep_first": True,
        "trigger": "auto",
    }
    assert frame.event["usage"]["input_tokens"] == 800
    assert shown(COMPACTING) == []


def test_a_compaction_shows_what_memory_keeps_of_it():
    banked = one(replace(COMPACTED, memory_banked=MemoryBanked(pending_id="mp_1", messages=3)))
    shown_fields = banked.event["context_compaction"]["memory_banked"]
    assert shown_fields == {"pending_id": "mp_1", "messages": 3, "error": ""}


def test_a_failed_compaction_is_shown_and_ends_no_stream():
    frame = one(NOT_COMPACTED)
    assert frame.type == "compaction_failed"
    assert frame.event["error"] == "the context could not be compacted: mock 529: busy"
    assert frame.event["compaction_failed"] == {"trigger": "auto", "kind": "overloaded"}


def test_input_has_a_stored_and_a_live_frame_with_one_seq():
    stored, live = shown(InputReceived(text="more", source="webui"), requested(2))
    assert (stored.seq, stored.type, stored.stored, stored.live) == (512, "user_input", True, False)
    assert (live.seq, live.type, live.stored, live.live) == (512, "steer", False, True)
    assert live.event["user_input"] == {"text": "more", "source": "webui", "seen_at": "2026-05-28T20:26:40.123Z"}
    assert stored.payload == [{"role": "user", "content": [{"type": "trusted-text", "text": "more"}]}]


def test_a_long_input_refers_to_its_blob_live_and_in_a_replay():
    events = [InputReceived(text="", source="webui", text_blob=BLOB), requested(2)]
    input_frame, live = shown(*events)
    assert input_frame.payload == [
        {"role": "user", "content": [{"type": "trusted-text", "text": "", "blob": BLOB.to_avro()}]}
    ]
    [replayed] = replay_frames(stored(*events))
    for frame in (stream_frame(live), replayed):
        assert (frame.type, frame.blob) == ("steer", BLOB)


def test_a_text_in_the_middle_of_a_turn_is_shown_where_it_joins_the_conversation():
    events = [requested(1), replied(1, "", call("c1")), asked(1, 0, "c1"), InputReceived(text="wait")]
    frames = shown(*events, InputReceived(text="no"), returned(1, 0, "c1"), requested(2))
    assert [frame.type for frame in frames if frame.live] == ["tool_call", "usage", "tool_result", "steer", "steer"]
    assert [frame.event["user_input"]["text"] for frame in frames if frame.type == "steer"] == ["wait", "no"]
    assert [frame.seq - 7 * FRAMES_PER_EVENT for frame in frames if frame.type == "user_input"] == [0, 1]


def test_another_attempt_of_a_turn_shows_no_text_that_waits_for_the_next():
    frames = shown(requested(1), InputReceived(text="wait"), failed(1), requested(1, 2))
    assert [frame.type for frame in frames] == ["retry"]


def test_pending_inputs_are_shown_before_the_end():
    frames = shown(InputReceived(text="wait"), RunCancelled(usage=Usage()))
    assert [(frame.type, frame.seq) for frame in frames if frame.live] == [("steer", 512), ("done", 513)]


# --- rules over all frames -------------------------------------------------------------------------------------------


def test_every_frame_repeats_its_name_and_can_be_written():
    events = [started(), replied(1, "x", call("c1"), reasoning="y"), returned(1, 0, "c1"), completed()]
    for frame in shown(*events, InputReceived(text="z"), requested(2), RunParked(since_turn=2)):
        assert orjson.loads(orjson.dumps(frame.event))["type"] == frame.type


def test_a_turn_with_too_many_calls_fits_its_seqs_and_counts_the_calls_not_shown():
    calls = [call(f"c{n}") for n in range(CALLS_SHOWN_MAX + 7)]
    frames = shown(replied(1, "x", *calls, reasoning="y"))
    assert len(frames) == FRAMES_PER_EVENT
    assert frames[-1].seq == 2 * FRAMES_PER_EVENT - 1
    assert frames[-1].event["tool_calls_not_shown"] == 7


@pytest.mark.parametrize("text", ["not json", "", '{"a": "\\ud800"}', "[" * 300 + "]" * 300, "NaN"])
def test_an_input_that_is_no_usable_json_stays_text(text):
    value = parse_input(text)
    assert value == text
    assert orjson.loads(orjson.dumps(value)) == text


def test_a_long_list_of_objects_is_still_json():
    assert parse_input(orjson.dumps([{"n": n} for n in range(400)]).decode())[399] == {"n": 399}


def test_a_time_out_of_range_does_not_stop_a_frame():
    for at_ms in (-5, 10**18):
        _, memory = build_frames(FrameMemory(), envelope(at_ms=at_ms), InputReceived(text="x"))
        stored, _ = build_frames(memory, envelope(), requested(2))[0]
        assert stored.event["user_input"]["seen_at"].endswith("Z")


# --- out to the client -----------------------------------------------------------------------------------------------


def row(seq: int, kind: str, event: dict, payload: list | None = None) -> TranscriptRow:
    stored = None if payload is None else orjson.dumps(payload).decode()
    return TranscriptRow(
        "r_1", seq, "default", "s_1", 1_780_000_000_123 * 10**6, kind, orjson.dumps(event).decode(), stored, 0
    )


def stored(*events) -> list[TranscriptRow]:
    return [row(f.seq, f.type, f.event, f.payload) for f in shown(*events) if f.stored]


def test_a_replay_shows_what_was_streamed_with_the_same_seqs():
    events = [started(), replied(1, "hi", call("c1")), returned(1, 0, "c1"), replied(2, "bye"), completed()]
    live = [stream_frame(f) for f in shown(*events) if f.live]
    assert [f for f in replay_frames(stored(*events)) if f.type != "steer"] == live


def test_a_replay_shows_user_turns_as_steers_without_the_system_text():
    segments = (
        Segment(role="system", content=(ContentBlock(type="trusted-text", text="secret rules"),)),
        user("hello"),
    )
    (frame, *_) = replay_frames(stored(started(segments=segments)))
    assert (frame.seq, frame.type) == (256, "steer")
    data = orjson.loads(frame.data)
    assert data["type"] == "steer"
    assert data["user_input"] == {"text": "hello", "source": "replay", "seen_at": "2026-05-28T20:26:40.123Z"}


def test_a_replay_hides_the_system_prompt():
    assert [f.type for f in replay_frames(stored(started()))] == ["steer", "started"]


def test_a_long_text_refers_to_its_blob_live_and_in_a_replay():
    events = [replied(1, "", text_blob=BLOB), returned(1, 0, "c1", "", text_blob=BLOB)]
    live = [stream_frame(f) for f in shown(*events) if f.type in ("text", "tool_result")]
    replayed = [f for f in replay_frames(stored(*events)) if f.type in ("text", "tool_result")]
    assert live == replayed
    for frame in live:
        assert frame.blob == BLOB


def test_a_prompt_that_is_one_long_text_refers_to_its_blob_in_a_replay():
    long = ContentBlock(type="trusted-text", text="", blob=BLOB)
    image = ContentBlock(type="image", text="", media_type="image/png", blob=BLOB)
    cases = {
        (long,): BLOB,
        (image, long): BLOB,
        (image,): None,
        (long, ContentBlock(type="trusted-text", text="and briefly")): None,
    }
    for content, blob in cases.items():
        (frame, *_) = replay_frames(stored(started(segments=(Segment(role="user", content=content),))))
        assert frame.blob == blob


def test_a_tool_input_that_mentions_a_blob_is_not_one():
    (frame,) = (
        f for f in replay_frames(stored(replied(1, "", call("c1", text='{"text_blob": 1}')))) if f.type != "usage"
    )
    assert frame.blob is None


def test_data_is_one_line():
    assert "\n" not in stream_frame(one(replied(1, "a\nb\r\n"))).data


def test_the_memory_holds_the_calls_of_the_latest_turn_only():
    _, memory = build_frames(FrameMemory(), envelope(1), replied(1, "", call("c1")))
    _, memory = build_frames(memory, envelope(2), replied(2, "", call("c2", "Search", "[1]")))
    assert memory.calls == {"c2": FrameCall("Search", [1])}


# --- hooks -----------------------------------------------------------------------------------------------------------


def hooked(act: str, **fields) -> HookActed:
    action = HookAct(hook_id="h1", owner="ops", name="guard", phase="pre", act=act, **fields)
    return HookActed(turn=1, index=0, call_id="call-1", act=action)


FETCH = replied(1, "", call("call-1", "HTTP", '{"url":"https://a.com/x"}'))


def test_added_hosts_are_shown_between_the_call_and_its_result():
    widened = hooked("widened_hosts", url="https://a.com/x", hosts_added=("a.com",))
    frames = shown(started(), FETCH, widened, returned(1, 0, "call-1"))
    assert [f.type for f in frames][-4:] == ["tool_call", "usage", "host_widened", "tool_result"]
    assert frames[-2].event == {
        "type": "host_widened",
        "host_widening": {
            "tool_call_id": "call-1",
            "tool_name": "HTTP",
            "url": "https://a.com/x",
            "hook_owner": "ops",
            "hook_name": "guard",
            "hosts_added": ["a.com"],
        },
    }


def test_a_rewritten_input_is_shown_as_the_tool_got_it():
    frame = one(started(), FETCH, hooked("rewrote_input", input='{"url":"https://b.com"}'))
    assert frame.type == "hook_acted"
    assert frame.event["hook_acted"] == {
        "tool_call_id": "call-1",
        "tool_name": "HTTP",
        "hook_owner": "ops",
        "hook_name": "guard",
        "phase": "pre",
        "act": "rewrote_input",
        "input": {"url": "https://b.com"},
    }


def test_an_unavailable_hook_is_shown_with_its_reason():
    frame = one(started(), FETCH, hooked("unavailable", reason="no answer within 5 s"))
    assert (frame.event["hook_acted"]["act"], frame.event["hook_acted"]["reason"]) == (
        "unavailable",
        "no answer within 5 s",
    )


# --- channels --------------------------------------------------------------------------------------------------------


def use(kind: str, number: int, **more) -> ChannelUse:
    return ChannelUse(
        kind=kind,
        channel="news",
        scope="user",
        scope_id="alice",
        message_id=f"msg_{number}",
        payload_bytes=7,
        preview='"hello"',
        **more,
    )


def with_uses(*uses: ChannelUse):
    return replace(returned(1, 0, "c1", text="done"), details=ResultDetails(channels=uses))


def test_a_published_message_is_shown_before_the_result_of_its_call():
    frames = shown(with_uses(use("publish", 1, dropped_oldest=2)))
    assert [(frame.seq, frame.type) for frame in frames] == [(256, "channel_publish"), (257, "tool_result")]
    assert frames[0].event == {
        "type": "channel_publish",
        "channel": {
            "channel": "news",
            "message_id": "msg_1",
            "scope": "user",
            "scope_id": "alice",
            "payload_bytes": 7,
            "payload_preview": '"hello"',
            "dropped_oldest": 2,
        },
    }


def test_each_message_that_a_call_returned_is_shown_with_its_cursor():
    frames = shown(with_uses(use("delivery", 1), use("delivery", 2, cursor="cur_2", attempt=3)))
    assert [frame.type for frame in frames] == ["channel_delivery", "channel_delivery", "tool_result"]
    told = [frame.event["channel"] for frame in frames[:2]]
    assert [one["cursor"] for one in told] == ["msg_1", "cur_2"]
    assert all("dropped_oldest" not in one for one in told)
    assert [(one.get("redelivered"), one.get("attempt")) for one in told] == [(None, None), (True, 3)]


def test_a_call_that_waits_shows_nothing_until_its_result():
    waiting = CallWaiting(
        turn=1, index=0, call_id="c1", attempt=1, wait_id="w", until_ms=1, queues=(), mode="subscribe"
    )
    assert shown(waiting, WaitReported(turn=1, index=0, wait_id="w", queue=0, count=1)) == []


# --- people ----------------------------------------------------------------------------------------------------------


def test_a_question_is_shown_with_the_fields_clients_know():
    frame = one(opened(1, 0, "c1", "intr_1", context="c", priority="high", expires_at_ms=1_780_000_000_123))
    assert frame.type == "interruption_pending"
    assert frame.event["interruption"] == {
        "interrupt_id": "intr_1",
        "kind": "question",
        "question": "Shall I?",
        "options": ["yes", "no"],
        "context": "c",
        "priority": "high",
        "expires_at": "2026-05-28T20:26:40.123Z",
    }


def test_a_question_in_free_text_has_neither_options_nor_a_context():
    shown_as = one(opened(1, 0, "c1", "intr_1", options=())).event["interruption"]
    assert "options" not in shown_as
    assert "context" not in shown_as


def test_the_end_of_a_question_is_shown_before_the_result_of_its_call():
    frames = shown(closed(1, 0, "c1", "intr_1", "resolved", answer="yes", resolved_by="Ada"), returned(1, 0, "c1"))
    assert [frame.type for frame in frames] == ["interruption_resolved", "tool_result"]
    assert frames[0].event["interruption"] == {
        "interrupt_id": "intr_1",
        "status": "resolved",
        "answer": "yes",
        "resolved_by": "Ada",
    }


def test_a_notice_is_shown():
    notice = PersonNotified(turn=1, index=0, call_id="c1", interrupt_id="intr_1", message="Half done.")
    assert one(notice).event == {
        "type": "notice",
        "notice": {"interrupt_id": "intr_1", "message": "Half done.", "priority": "normal"},
    }


def test_a_cancelled_turn_shows_its_partial_text_and_its_reason():
    frames = shown(TurnCancelled(turn=2, attempt=1, reason="stop talking", text="I was"))
    assert [frame.event for frame in frames] == [
        {"type": "text", "text": "I was"},
        {"type": "turn_cancelled", "turn_cancelled": {"reason": "stop talking", "since_turn": 2}},
    ]
    blob = shown(TurnCancelled(turn=2, attempt=1, text_blob=BLOB))[0]
    assert stream_frame(blob).blob == BLOB
    assert [frame.type for frame in shown(TurnCancelled(turn=2))] == ["turn_cancelled"]
