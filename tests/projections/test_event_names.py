"""Frame names of streams and transcripts, with the fields that clients know (reference surfaces 1.3).

Every event of a run is mapped to its frames: an unknown name or field fails here and not in a client's switch.
"""

from typing import get_args

import pytest

from loomlog.projections.frames.frame import Frame, FrameMemory
from loomlog.projections.frames.frames import build_frames
from loomlog.schemas.generated.run_events import (
    ChildRequested,
    ChildReturned,
    Event,
    HookActed,
    InputReceived,
    ModelCallFailed,
    ModelCallRequested,
    ModelSwitched,
    RunResumed,
    ToolReturned,
)
from loomlog.schemas.generated.values import ChannelUse, Envelope, ResultDetails
from loomlog.schemas.records import replace
from tests.projections.stories import COMPACTED, call, replied
from tests.services.core.run.test_state import EVERY

USAGE = (
    "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens model provider max_context_tokens"
)
KNOWN: dict[str, dict[str, str]] = {
    "started": {},
    "text": {"text": ""},
    "thinking": {"text": ""},
    "tool_call": {"tool_use": "id name input"},
    "tool_result": {"tool_use": "id name input", "text": "", "is_error": ""},
    "usage": {"usage": USAGE},
    "done": {"stop_reason": "", "usage": USAGE},
    "error": {"error": ""},
    "retry": {"retry": "provider attempt wait_ms reason"},
    "provider_fallback": {
        "fallback": "failed_provider failed_model new_provider new_model attempt user_tier reason cause_error"
    },
    "fallback_suppressed": {"text": ""},
    "cache_invalidated": {"text": ""},
    "reasoning_invalidated": {"text": ""},
    "model_downgraded": {"text": ""},
    "channel_publish": {
        "channel": "channel message_id scope scope_id payload_bytes payload_preview dropped_oldest",
    },
    "channel_delivery": {"channel": "channel message_id scope scope_id payload_bytes payload_preview cursor"},
    "interruption_pending": {
        "interruption": "interrupt_id kind question options context priority expires_at",
    },
    "host_widened": {"host_widening": "tool_call_id tool_name url hook_owner hook_name hosts_added"},
    "steer": {"user_input": "text source seen_at"},
    "user_input": {"user_input": "text source seen_at"},
    "system_prompt": {"text": "", "agent": "", "definition_sha256": ""},
    "awaiting_input": {"awaiting_input": "since_turn"},
    "turn_cancelled": {"turn_cancelled": "reason since_turn"},
    "spawn_child_started": {"spawn_child": "tool_use_id index run_id agent"},
    "spawn_child_result": {"spawn_child": "tool_use_id index run_id agent ok output error"},
    "context_compaction": {
        "context_compaction": "summary before_tokens after_tokens keep_n keep_first trigger memory_banked",
        "usage": USAGE,
    },
    "limit": {"limit": "scope scope_id severity window used limit message"},
}
ADDED = frozenset(
    {
        "compaction_failed",
        "hook_acted",
        "interruption_resolved",
        "notice",
        "outcome_unknown",
        "output_rejected",
        "paused",
        "quarantined",
        "released",
        "resumed",
    }
)
"""Additional names of ours; frames.py has the reasons."""
STORED_ONLY = frozenset({"user_input", "system_prompt", "spawn_child_started", "spawn_child_result"})
LIVE_ONLY = frozenset({"steer"})
ADDED_FIELDS = frozenset(
    {"text_blob", "output_blob", "outcome", "settled_by", "tool_calls_not_shown", "unit", "cost_micros", "currency"}
)
"""Fields of ours in known frames; `unit` says whether a limit counts tokens or money."""

ACT = next(event.act for event in EVERY if isinstance(event, HookActed))
SWITCHED = next(event for event in EVERY if isinstance(event, ModelSwitched))
USE = ChannelUse(kind="publish", channel="news", scope="user", scope_id="alice", message_id="msg_1", payload_bytes=3)
REQUESTED = ModelCallRequested(turn=1, attempt=1, provider="mock", model="m")
MORE: tuple[Event, ...] = (
    replied(1, "hi", call("c0"), reasoning="so"),
    replace(SWITCHED, cache_lost=True, reasoning_cleared=2, downgraded_from="big"),
    HookActed(turn=1, index=0, call_id="c0", act=replace(ACT, act="widened_hosts", hosts_added=("a.example",))),
    ChildRequested(turn=1, index=0, call_id="c0", child_run_id="r_c", child_agent_id="a_c", agent="helper"),
    ChildReturned(turn=1, index=0, call_id="c0", child_run_id="r_c", agent="helper", status="failed", text="no"),
    ToolReturned(turn=1, index=0, call_id="c0", details=ResultDetails(channels=(USE, replace(USE, kind="delivery")))),
    COMPACTED,
    ModelCallFailed(turn=1, attempt=1, kind="overloaded", message="m", provider="mock", model="m"),
    ModelCallRequested(turn=1, attempt=2, provider="mock", model="m", retry=1),
    InputReceived(text="and?", source="api"),
    REQUESTED,
    RunResumed(scope="run"),
)


def shown() -> list[Frame]:
    """The frames of every event."""
    frames: list[Frame] = []
    memory = FrameMemory()
    for seq, event in enumerate((*EVERY, *MORE), start=1):
        envelope = Envelope(term=0, seq=seq, aggregate="r_1", tenant="t", at_ms=1_780_000_000_000, prev=bytes(16))
        event_frames, memory = build_frames(memory, envelope, event)
        frames += event_frames
    return frames


def test_every_event_is_shown_or_known_to_show_nothing() -> None:
    assert {type(event) for event in EVERY} == set(get_args(Event))


def test_the_names_are_those_clients_know_and_the_few_we_added() -> None:
    assert {frame.type for frame in shown()} == set(KNOWN) | ADDED


@pytest.mark.parametrize("frame", shown(), ids=lambda frame: f"{frame.seq}-{frame.type}")
def test_a_known_name_has_the_fields_clients_know(frame: Frame) -> None:
    if frame.type not in KNOWN:
        return
    known = KNOWN[frame.type]
    assert set(frame.event) - {"type"} - ADDED_FIELDS <= set(known)
    for field, words in known.items():
        if words and field in frame.event:
            assert set(frame.event[field]) - ADDED_FIELDS <= set(words.split()), field


@pytest.mark.parametrize("frame", shown(), ids=lambda frame: f"{frame.seq}-{frame.type}")
def test_stored_and_live_frames_are_those_clients_know(frame: Frame) -> None:
    assert frame.live == (frame.type not in STORED_ONLY)
    assert frame.stored == (frame.type not in LIVE_ONLY)
