"""The fold: what each event makes of a state, and which events cannot follow."""

from collections.abc import Callable

import pytest

from loomlog.schemas.conversation import Message, TextBlock, ToolUseBlock
from loomlog.schemas.generated.run_events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    CallNotBegun,
    ChildrenPlanned,
    ChildRequested,
    ChildReturned,
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
    FallbackSuppressed,
    HookActed,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    LimitReached,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ModelSwitched,
    OutputRejected,
    PersonNotified,
    ResidentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunRefused,
    RunReleased,
    RunRestored,
    RunResumed,
    RunStarted,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
    TreeCounted,
    TurnCancelled,
    WaitReported,
)
from loomlog.schemas.generated.values import BlobRef, CallVerdict, HookAct, LimitNotice, Spawn, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.run_facts import add_usage
from loomlog.services.core.run.state import Absent, AwaitingModel, AwaitingTools, Ended, IllegalEvent, Parked, State
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    RUN,
    USAGE,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancelled,
    compacting,
    completed,
    erred,
    parked,
    paused,
    recover,
    refused,
    returned,
)
from tests.services.core.run.waiting import WAITING, waiting

STARTED = RunStarted(session_id="s_tok", agent_id="a_tok", definition=DEFINITION, segments=())


def asking() -> Run:
    """A run whose second call waits for a person, under the id i1."""
    run = at_tools("A", "B")
    assert isinstance(run.state, AwaitingTools)
    opened = InterruptionOpened(turn=1, index=1, call_id="c1", interrupt_id="i1", question="q", expires_at_ms=NOW + 1)
    run.state = evolve(replace(run.state, open=()), opened, NOW)
    return run


REPLIED = ModelReplied(
    turn=1, attempt=1, stop_reason="end_turn", usage=USAGE, provider="acme", model="large", duration_ms=1, text="x"
)
REQUESTED = CompactionRequested(
    number=1, turn=2, trigger="manual", keep_n=0, keep_first=True, before_tokens=10, provider="acme", model="large"
)
ACT = HookAct(hook_id="h1", owner="ops", name="guard", phase="pre", act="denied")
EVERY: tuple[Event, ...] = (
    STARTED,
    RunRefused(code="c", message="m"),
    RunRestored(events=1),
    ModelCallRequested(turn=1, attempt=2, provider="acme", model="large"),
    REPLIED,
    ModelCallFailed(turn=1, attempt=1, kind="invalid", message="m", provider="acme", model="large"),
    ModelSwitched(
        turn=1,
        attempt=1,
        failed_provider="acme",
        failed_model="large",
        provider="other",
        model="small",
        number=1,
        reason="retryable",
    ),
    FallbackSuppressed(turn=1, attempt=1, code="no_vision"),
    OutputRejected(turn=1, number=1, path="$", problem="p"),
    ToolCallRequested(turn=1, index=0, call_id="c0", effect_class="read"),
    ToolReturned(turn=1, index=0, call_id="c0"),
    ToolReconcileRequested(turn=1, index=0, call_id="c0", attempt=1, ask=1),
    ToolOutcomeAsked(turn=1, index=0, call_id="c0", attempt=1),
    ApprovalDecided(
        turn=1,
        index=0,
        call_id="c0",
        verdict=CallVerdict(index=0, outcome="allow"),
        arguments_sha256="0",
        effect_class="read",
    ),
    ApprovalGiven(turn=1, index=0, call_id="c0", interrupt_id="i", votes=()),
    ApprovalEscalated(turn=1, index=0, call_id="c0", interrupt_id="i", group=1, expires_at_ms=1),
    WAITING,
    WaitReported(turn=1, index=0, wait_id=WAITING.wait_id, queue=0, count=1),
    CallNotBegun(kind="tool", turn=1, index=0, attempt=1),
    HookActed(turn=1, index=0, call_id="c0", act=ACT),
    ChildrenPlanned(turn=1, index=0, call_id="c0", spawns=(Spawn(agent="a", prompt="p"),)),
    ChildRequested(turn=1, index=0, call_id="c0"),
    ChildReturned(turn=1, index=0, call_id="c0"),
    ResidentLeft(child_run_id="r_tok-x"),
    RunParked(since_turn=1),
    RunPauseRequested(scope="tenant"),
    RunPaused(turn=1),
    RunResumed(scope="run"),
    InputReceived(text="t"),
    LimitReached(notice=LimitNotice(scope="user", scope_id="alice", severity="soft")),
    RunCompleted(stop_reason="end_turn", usage=USAGE),
    RunFailed(code="c", error="e", usage=USAGE),
    RunCancelled(usage=USAGE),
    RunQuarantined(error="e", record_topic="t", record_offset=1),
    RunReleased(by="someone"),
    InterruptionOpened(turn=1, index=0, call_id="c0", interrupt_id="i0", question="q", expires_at_ms=NOW),
    InterruptionClosed(turn=1, index=1, call_id="c1", interrupt_id="i1", status="resolved"),
    PersonNotified(turn=1, index=0, call_id="c0", interrupt_id="i0", message="m"),
    TurnCancelled(turn=1, attempt=1),
    CommandRefused(code="c", message="m"),
    TreeCounted(run_id="r_below"),
    REQUESTED,
    CompactionFailed(
        number=1, attempt=1, turn=6, trigger="manual", kind="k", usage=USAGE, provider="acme", model="large"
    ),
    ContextCompacted(
        number=1,
        attempt=1,
        turn=6,
        trigger="manual",
        summary="s",
        before_tokens=10,
        after_tokens=5,
        keep_n=0,
        keep_first=True,
        usage=USAGE,
        provider="acme",
        model="large",
    ),
)
STATES: dict[str, Callable[[], Run]] = {
    "absent": Run,
    "refused": refused,
    "awaiting model": begun,
    "awaiting tools": lambda: at_tools("A", "B"),
    "asking a person": asking,
    "waiting for a channel": lambda: waiting("A", "B"),
    "parked": parked,
    "paused": paused,
    "compacting": compacting,
    "ended": completed,
}
LIVE = {
    "RunPauseRequested",
    "InputReceived",
    "LimitReached",
    "RunCompleted",
    "RunFailed",
    "RunCancelled",
    "RunQuarantined",
    "RunRestored",
    "RunReleased",
    "ResidentLeft",
    "CommandRefused",
    "TreeCounted",
}
"""What may follow wherever a run is live."""
LEGAL = {
    "absent": {"RunStarted", "RunRefused", "CommandRefused"},
    "refused": {"CommandRefused"},
    "awaiting model": LIVE
    | {
        "TurnCancelled",
        "ModelCallRequested",
        "ModelReplied",
        "ModelCallFailed",
        "ModelSwitched",
        "FallbackSuppressed",
        "RunParked",
    },
    "asking a person": LIVE
    | {"InterruptionOpened", "InterruptionClosed", "PersonNotified", "ToolCallRequested", "ToolReturned", "RunParked"},
    # Waiting again: by an owner that took the run over after the wait had ended.
    "waiting for a channel": LIVE
    | {"CallWaiting", "PersonNotified", "WaitReported", "HookActed", "ToolCallRequested", "ToolReturned", "RunParked"},
    "awaiting tools": LIVE
    | {
        "CallWaiting",
        "PersonNotified",
        "ToolCallRequested",
        "ToolReturned",
        "ToolReconcileRequested",
        "ToolOutcomeAsked",
        "CallNotBegun",
        "HookActed",
        "ChildrenPlanned",
        "RunParked",
    },
    "parked": LIVE | {"CompactionRequested", "RunParked"},
    "paused": LIVE | {"RunResumed", "RunParked"},
    "compacting": LIVE | {"ContextCompacted", "CompactionFailed"},
    "ended": {"CommandRefused"},
}


@pytest.mark.parametrize("name", STATES)
def test_which_events_may_follow_in_which_state(name: str) -> None:
    state = STATES[name]().state
    legal = set()
    for event in EVERY:
        try:
            evolve(state, event, NOW)
        except IllegalEvent:
            continue
        legal.add(type(event).__name__)
    assert legal == LEGAL[name]


def test_the_table_above_has_every_event() -> None:
    assert {type(event).__name__ for event in EVERY} == {record.__name__ for record in Event.__args__}


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (begun, replace(REPLIED, turn=2)),
        (begun, replace(REPLIED, attempt=2)),
        (begun, ModelCallRequested(turn=1, attempt=3, provider="acme", model="large")),
        (begun, ModelCallRequested(turn=2, attempt=1, provider="acme", model="large")),
        (begun, ModelCallFailed(turn=1, attempt=9, kind="x", message="", provider="acme", model="large")),
        (parked, ModelCallRequested(turn=3, attempt=1, provider="acme", model="large")),
        (parked, ModelCallRequested(turn=2, attempt=2, provider="acme", model="large")),
        (lambda: at_tools("A"), ToolCallRequested(turn=1, index=1, call_id="c1", effect_class="read")),
        (lambda: at_tools("A"), ToolCallRequested(turn=1, index=-1, call_id="c0", effect_class="read")),
        (lambda: at_tools("A"), ToolCallRequested(turn=2, index=0, call_id="c0", effect_class="read")),
        (lambda: at_tools("A"), ToolReturned(turn=1, index=1, call_id="c1")),
        (lambda: at_tools("A"), ToolReturned(turn=1, index=-1, call_id="c0")),
        (lambda: at_tools("A"), ToolReturned(turn=2, index=0, call_id="c0")),
    ],
)
def test_an_event_of_another_turn_attempt_or_call_is_illegal(make: Callable[[], Run], event: Event) -> None:
    with pytest.raises(IllegalEvent):
        evolve(make().state, event, NOW)


def test_a_second_result_and_a_request_after_the_result_are_illegal() -> None:
    run = at_tools("A", "B")
    run.give(returned(run.state, 0))
    with pytest.raises(IllegalEvent, match="second result"):
        evolve(run.state, ToolReturned(turn=1, index=0, call_id="c0"), NOW)
    with pytest.raises(IllegalEvent, match="after its result"):
        evolve(run.state, ToolCallRequested(turn=1, index=0, call_id="c0", effect_class="read", attempt=2), NOW)


def test_a_run_starts_at_the_time_of_its_event_with_the_segments_as_one_message() -> None:
    state = begun(user_id="u", user_tier="gold", allowed_hosts=("a.example",)).live
    facts = state.facts
    assert (facts.run_id, facts.started_at_ms) == (RUN, NOW)
    assert facts.system == ("Be kind.",)
    assert facts.messages == (Message(role="user", blocks=(TextBlock(text="go"),)),)
    assert (facts.user_id, facts.options.user_tier, facts.options.allowed_hosts) == ("u", "gold", ("a.example",))


def test_an_answer_is_text_then_calls_with_the_reasoning_of_its_turn() -> None:
    run = begun()
    run.give(
        answered(run.state, "let me see", *calls("A"), reasoning="hm", reasoning_signature="sig", max_context_tokens=9)
    )
    facts = run.live.facts
    assert facts.messages[-1] == Message(
        role="assistant",
        blocks=(TextBlock(text="let me see"), ToolUseBlock(id="c0", name="A", input="{}")),
        reasoning="hm",
        reasoning_signature="sig",
    )
    assert (facts.turns, facts.last_usage, facts.max_context_tokens) == (1, USAGE, 9)


def test_an_empty_answer_leaves_no_empty_message() -> None:
    run = parked()
    before = run.live.facts.messages
    run = begun(interactive=True)
    run.give(answered(run.state, ""))
    assert run.live.facts.messages == before[:1]
    assert run.live.facts.turns == 1


def test_an_answer_in_the_blob_store_is_a_message_too() -> None:
    ref = BlobRef(sha256="0" * 64, size_bytes=9)
    run = begun(interactive=True)
    run.give(answered(run.state, "", text_blob=ref))
    assert run.live.facts.messages[-1].blocks == (TextBlock(text="", blob=ref),)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("interrupted", (0, 0, 1)), ("rate_limited", (0, 1, 0)), ("overloaded", (1, 0, 0)), ("broken_off", (1, 0, 0))],
)
def test_failures_are_counted_by_what_they_count_against(kind: str, counts: tuple[int, int, int]) -> None:
    event = ModelCallFailed(turn=1, attempt=1, kind=kind, message="m", provider="acme", model="large")
    state = evolve(begun().state, event, NOW)
    assert isinstance(state, AwaitingModel)
    assert (state.failures, state.rate_limits, state.lost_attempts) == counts
    assert state.facts.model_errors == 1


def test_a_new_turn_begins_with_clean_counts() -> None:
    run = begun(replace(DEFINITION, retry_attempts=5))
    run.give(erred(run.state, "overloaded", transient=True))
    run.give(recover())
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    assert isinstance(run.state, AwaitingModel)
    assert (run.state.failures, run.state.lost_attempts, run.state.waited_ms, run.state.turn) == (0, 0, 0, 2)


def test_results_that_were_in_when_a_run_ended_are_kept() -> None:
    run = at_tools("A", "B")
    run.give(returned(run.state, 1, "b is done"))
    ended = evolve(run.state, RunCancelled(usage=USAGE, reason="enough"), NOW)
    assert isinstance(ended, Ended)
    assert [(answer.index, answer.text) for answer in ended.results] == [(1, "b is done")]


def test_nothing_is_kept_twice_when_all_results_were_in() -> None:
    run = begun(replace(DEFINITION, max_iterations=1))
    run.give(answered(run.state, "", *calls("A")))
    run.give(returned(run.state, 0))
    assert isinstance(run.state, Ended)
    assert run.state.results == ()


def test_a_quarantined_run_keeps_its_state_and_says_why() -> None:
    for make in (begun, parked, lambda: at_tools("A")):
        before: State = make().state
        after = evolve(before, RunQuarantined(error="bug", record_topic="t", record_offset=1), NOW)
        assert type(after) is type(before)
        assert isinstance(after, AwaitingModel | AwaitingTools | Parked)
        assert after.facts.quarantine_error == "bug"


def test_usage_adds_up_field_by_field() -> None:
    one = Usage(input_tokens=1, output_tokens=2, cache_creation_input_tokens=3, cache_read_input_tokens=4)
    assert add_usage(one, one) == Usage(
        input_tokens=2, output_tokens=4, cache_creation_input_tokens=6, cache_read_input_tokens=8
    )


@pytest.mark.parametrize("name", STATES)
def test_every_state_survives_being_written_down(name: str) -> None:
    codec = StateCodec(State)
    state = STATES[name]().state
    assert codec.decode(codec.encode(state)) == state


def test_folding_never_changes_the_state_it_was_given() -> None:
    codec = StateCodec(State)
    run = at_tools("A", "B")
    before = codec.digest(run.state)
    evolve(run.state, ToolReturned(turn=1, index=0, call_id="c0"), NOW)
    evolve(run.state, RunCancelled(usage=USAGE), NOW)
    assert codec.digest(run.state) == before


def test_a_cancelled_run_says_so() -> None:
    state = cancelled().state
    assert isinstance(state, Ended)
    assert (state.status, state.reason) == ("cancelled", "enough")
    assert Absent(run_id="r_1") != Absent(run_id="r_2")
