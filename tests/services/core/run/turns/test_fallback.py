"""What a run does when its model has failed for good: to which model it goes, and what its conversation gives up."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.errors import PERMANENT_KINDS, TRANSIENT_KINDS
from loomlog.schemas.conversation import ImageBlock, Message
from loomlog.schemas.generated.run_events import (
    Event,
    FallbackSuppressed,
    ModelCallFailed,
    ModelCallRequested,
    ModelSwitched,
)
from loomlog.schemas.generated.values import AgentDefinition, ContentBlock, ModelChoice, Segment
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import Alternative
from loomlog.services.core.run.state import AwaitingModel, Ended
from loomlog.services.core.run.turns.fallback import CLASSES, failure_class
from tests.services.core.run.given import (
    DEFINITION,
    NOW,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    erred,
    kinds,
    pause,
    recover,
    resume,
    returned,
    start,
)

FALLS_BACK = replace(DEFINITION, fallback_on_error=True, max_fallback_attempts=2, max_iterations=16)


def other(
    provider: str = "other", model: str = "small", effort: str = "low", *, sees: bool = False, sibling: str = ""
) -> Alternative:
    choice = ModelChoice(provider=provider, model=model, effort=effort)
    return Alternative(choice=choice, sees_images=sees, sibling=sibling)


def fails(run: Run, kind: str = "unavailable", *alternatives: Alternative, **more: Any) -> list[Event]:
    """The model the run is with fails, without a retry that the definition does not ask for."""
    transient = kind in TRANSIENT_KINDS
    return run.give(erred(run.state, kind, transient=transient, alternatives=alternatives, **more))


def only(events: list[Event], kind: type[Any]) -> Any:
    (actual,) = (event for event in events if isinstance(event, kind))
    return actual


def thinking_run(definition: AgentDefinition = FALLS_BACK) -> Run:
    """In its third turn, after two answers with reasoning and one of them signed."""
    run = begun(definition)
    for turn, signature in enumerate(("", "signed")):
        reply = answered(run.state, "I see", *calls("A"), reasoning=f"thought {turn}", reasoning_signature=signature)
        run.give(reply)
        run.give(returned(run.state, 0))
    return run


def with_an_image(definition: AgentDefinition = FALLS_BACK) -> Run:
    image = ContentBlock(type="image", media_type="image/png", data="aGk=")
    return begun(definition, segments=(Segment(role="user", content=(image,)),))


# --- whether ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("rate_limited", "retryable"),
        ("overloaded", "retryable"),
        ("unavailable", "retryable"),
        ("timeout", "retryable"),
        ("network", "retryable"),
        ("interrupted", "retryable"),
        ("broken_off", "retryable"),
        ("provider_concurrency_exhausted", "retryable"),
        ("invalid", "permanent"),
        ("unauthorised", "permanent"),
        ("forbidden", "permanent"),
        ("not_found", "permanent"),
        ("unsupported", "permanent"),
        ("refused", "permanent"),
        ("quota_exhausted", "permanent"),
        ("context_exceeded", "permanent"),
        ("deprecated", "deprecated"),
        ("cancelled", "cancelled"),
        ("deadline_exceeded", "deadline_exceeded"),
        ("something new", "unknown"),
    ],
)
def test_every_kind_of_failure_has_the_class_clients_know(kind: str, name: str) -> None:
    assert failure_class(kind) == name


def test_no_kind_of_failure_is_without_a_class() -> None:
    assert set(CLASSES) >= TRANSIENT_KINDS | PERMANENT_KINDS


@pytest.mark.parametrize(
    "kind", ["unavailable", "overloaded", "network", "timeout", "broken_off", "deprecated", "quota_exhausted"]
)
def test_another_model_takes_over_what_it_may_not_share(kind: str) -> None:
    run = begun(FALLS_BACK)
    events = fails(run, kind, other())
    assert kinds(events) == ["ModelCallFailed", "ModelSwitched", "ModelCallRequested"]
    switched, requested = only(events, ModelSwitched), only(events, ModelCallRequested)
    assert (switched.failed_provider, switched.failed_model) == ("acme", "large")
    assert (switched.provider, switched.model, switched.effort, switched.number) == ("other", "small", "low", 1)
    assert switched.reason == only(events, ModelCallFailed).failure_class == failure_class(kind)
    assert (requested.provider, requested.model, requested.turn, requested.attempt) == ("other", "small", 1, 2)
    assert requested.not_before_ms == 0


@pytest.mark.parametrize("kind", ["invalid", "unauthorised", "forbidden", "not_found", "unsupported", "refused"])
def test_what_another_model_would_answer_the_same_ends_the_run(kind: str) -> None:
    assert kinds(fails(begun(FALLS_BACK), kind, other())) == ["ModelCallFailed", "RunFailed"]


@pytest.mark.parametrize("kind", sorted(PERMANENT_KINDS - {"context_exceeded"}))
def test_what_is_permanent_is_not_tried_again_whatever_the_definition_allows(kind: str) -> None:
    run = begun(replace(FALLS_BACK, retry_attempts=5))
    assert kinds(fails(run, kind)) == ["ModelCallFailed", "RunFailed"]


def test_a_plan_without_fallback_has_none() -> None:
    definition = replace(FALLS_BACK, fallback_on_error=False)
    assert kinds(fails(begun(definition), "unavailable", other())) == ["ModelCallFailed", "RunFailed"]


def test_without_a_model_that_can_be_called_the_run_fails() -> None:
    assert kinds(fails(begun(FALLS_BACK))) == ["ModelCallFailed", "RunFailed"]


def test_the_model_that_failed_is_no_alternative_to_itself() -> None:
    itself = other("acme", "large")
    assert kinds(fails(begun(FALLS_BACK), "unavailable", itself)) == ["ModelCallFailed", "RunFailed"]
    assert only(fails(begun(FALLS_BACK), "unavailable", itself, other()), ModelSwitched).provider == "other"


def test_a_sibling_that_failed_is_not_gone_back_to_by_its_other_name() -> None:
    run = thinking_run()
    thinking = other("deep", "thinker", sibling="chat")
    fails(run, "unavailable", thinking)
    assert isinstance(run.state, AwaitingModel)
    assert run.state.model == "chat"
    assert kinds(fails(run, "unavailable", thinking)) == ["ModelCallFailed", "RunFailed"]


@pytest.mark.parametrize(("allowed", "most"), [(1, 1), (2, 2), (5, 5), (0, limits.FALLBACKS_DEFAULT)])
def test_switches_are_counted_over_the_whole_run(allowed: int, most: int) -> None:
    run = begun(replace(FALLS_BACK, max_fallback_attempts=allowed))
    places = (other("a"), other("b"))
    for number in range(most):
        events = fails(run, "unavailable", *places)
        assert only(events, ModelSwitched).number == number + 1
        run.give(answered(run.state, "", *calls("A")))
        run.give(returned(run.state, 0))
    assert kinds(fails(run, "unavailable", *places)) == ["ModelCallFailed", "RunFailed"]


def test_a_run_that_is_pinned_stays_where_a_turn_succeeded() -> None:
    run = at_tools("A", definition=replace(FALLS_BACK, pin_after_success=True))
    run.give(returned(run.state, 0))
    events = fails(run, "unavailable", other())
    assert kinds(events) == ["ModelCallFailed", "FallbackSuppressed", "RunFailed"]
    assert only(events, FallbackSuppressed).code == "pinned_after_success"


def test_a_run_that_is_pinned_may_leave_a_model_that_never_answered() -> None:
    run = begun(replace(FALLS_BACK, pin_after_success=True))
    assert "ModelSwitched" in kinds(fails(run, "unavailable", other()))


# --- what the conversation gives up ----------------------------------------------------------------------------------


def test_images_are_not_sent_to_a_model_that_cannot_see() -> None:
    run = with_an_image()
    events = fails(run, "unavailable", other("blind"))
    assert kinds(events) == ["ModelCallFailed", "FallbackSuppressed", "RunFailed"]
    assert only(events, FallbackSuppressed) == FallbackSuppressed(
        turn=1, attempt=1, code="no_vision", provider="blind", model="small"
    )


def test_a_blind_model_costs_no_attempt_and_the_next_one_is_taken() -> None:
    run = with_an_image(replace(FALLS_BACK, max_fallback_attempts=1))
    events = fails(run, "unavailable", other("blind"), other("seeing", sees=True))
    assert kinds(events) == ["ModelCallFailed", "FallbackSuppressed", "ModelSwitched", "ModelCallRequested"]
    assert (only(events, ModelSwitched).provider, only(events, ModelSwitched).number) == ("seeing", 1)


def test_without_images_nobody_needs_to_see() -> None:
    run = begun(FALLS_BACK)
    assert "FallbackSuppressed" not in kinds(fails(run, "unavailable", other()))


def test_reasoning_and_signature_of_every_answer_are_taken_out() -> None:
    run = thinking_run()
    events = fails(run, "unavailable", other())
    assert only(events, ModelSwitched).reasoning_cleared == 2
    assert isinstance(run.state, AwaitingModel)
    assert [(m.reasoning, m.reasoning_signature) for m in run.state.facts.messages] == [("", "")] * 5
    assert [m.role for m in run.state.facts.messages] == ["user", "assistant", "user", "assistant", "user"]


def test_a_conversation_without_reasoning_keeps_its_very_messages() -> None:
    run = at_tools("A", definition=FALLS_BACK)
    run.give(returned(run.state, 0))
    assert isinstance(run.state, AwaitingModel)
    before = run.state.facts.messages
    assert only(fails(run, "unavailable", other()), ModelSwitched).reasoning_cleared == 0
    assert run.state.facts.messages is before


def test_a_model_that_needs_its_reasoning_is_asked_as_its_sibling_without_an_effort() -> None:
    run = thinking_run()
    switched = only(fails(run, "unavailable", other("deep", "thinker", "high", sibling="chat")), ModelSwitched)
    assert (switched.model, switched.effort, switched.downgraded_from) == ("chat", "", "thinker")
    assert isinstance(run.state, AwaitingModel)
    assert run.state.facts.current_model == ModelChoice(provider="deep", model="chat", effort="")


def test_a_conversation_without_an_answer_has_no_reasoning_to_lack() -> None:
    switched = only(
        fails(begun(FALLS_BACK), "unavailable", other("deep", "thinker", "high", sibling="chat")), ModelSwitched
    )
    assert (switched.model, switched.effort, switched.downgraded_from) == ("thinker", "high", "")


@pytest.mark.parametrize("leaves", [True, False])
def test_a_cache_that_is_left_is_said_to_be_lost(leaves: bool) -> None:
    events = fails(begun(FALLS_BACK), "unavailable", other(), leaves_cache=leaves)
    assert only(events, ModelSwitched).cache_lost is leaves


def test_the_cause_is_the_beginning_of_the_error_or_what_the_shell_made_of_it() -> None:
    long = "acme 500: " + "x" * 1_000
    assert only(fails(begun(FALLS_BACK), "unavailable", other(), message=long), ModelSwitched).cause == long[:200]
    assert only(fails(begun(FALLS_BACK), "unavailable", other(), cause="sealed"), ModelSwitched).cause == "sealed"


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_later_turns_stay_with_the_new_model() -> None:
    run = begun(FALLS_BACK)
    fails(run, "unavailable", other())
    run.give(answered(run.state, "", *calls("A")))
    (_, requested) = run.give(returned(run.state, 0))
    assert isinstance(requested, ModelCallRequested)
    assert (requested.provider, requested.model, requested.attempt) == ("other", "small", 1)


def test_retries_come_first_and_are_counted_anew_at_the_new_model() -> None:
    run = begun(replace(FALLS_BACK, retry_attempts=2))
    waits = []
    for _ in range(2):
        waits += [only(fails(run, "unavailable", other()), ModelCallRequested)]
    assert [(call.provider, call.retry, call.not_before_ms - NOW) for call in waits] == [
        ("acme", 1, 100),
        ("acme", 2, 300),
    ]
    moved = only(fails(run, "unavailable", other()), ModelCallRequested)
    assert (moved.provider, moved.retry, moved.attempt) == ("other", 0, 4)
    again = only(fails(run, "unavailable", other("third")), ModelCallRequested)
    assert (again.provider, again.retry, again.not_before_ms - NOW) == ("other", 1, 100)


def test_rate_limits_are_waited_for_before_another_model_is_asked() -> None:
    run = begun(FALLS_BACK)
    for _ in range(limits.RATE_LIMIT_ATTEMPTS - 1):
        assert kinds(fails(run, "rate_limited", other(), retry_after_ms=1_000)) == [
            "ModelCallFailed",
            "ModelCallRequested",
        ]
    assert "ModelSwitched" in kinds(fails(run, "rate_limited", other(), retry_after_ms=1_000))
    # The other model has its own patience.
    assert only(fails(run, "rate_limited", retry_after_ms=1_000), ModelCallRequested).provider == "other"


def test_a_paused_run_goes_on_with_the_new_model() -> None:
    run = begun(FALLS_BACK)
    run.give(pause())
    assert kinds(fails(run, "unavailable", other())) == ["ModelCallFailed", "ModelSwitched", "RunPaused"]
    requested = only(run.give(resume()), ModelCallRequested)
    assert (requested.provider, requested.model, requested.attempt) == ("other", "small", 2)


def test_a_lost_owner_changes_nothing_about_the_model() -> None:
    run = begun(FALLS_BACK)
    fails(run, "unavailable", other())
    requested = only(run.give(recover()), ModelCallRequested)
    assert (requested.provider, requested.model, requested.attempt) == ("other", "small", 3)


# --- iterations ------------------------------------------------------------------------------------------------------


def test_a_retry_and_a_fallback_use_up_an_iteration_each() -> None:
    run = begun(replace(FALLS_BACK, max_iterations=3, retry_attempts=1))
    assert only(fails(run, "unavailable", other()), ModelCallFailed).takes_iteration
    assert only(fails(run, "unavailable", other()), ModelCallFailed).takes_iteration
    events = run.give(answered(run.state, "", *calls("A")))
    assert kinds(events) == ["ModelReplied", "ToolCallRequested"]
    (_, completed) = run.give(returned(run.state, 0))
    assert getattr(completed, "stop_reason", "") == "max_iterations"


def test_without_an_iteration_left_there_is_neither_retry_nor_fallback() -> None:
    run = begun(replace(FALLS_BACK, max_iterations=1, retry_attempts=5))
    assert kinds(fails(run, "unavailable", other())) == ["ModelCallFailed", "RunFailed"]
    assert isinstance(run.state, Ended)


def test_waiting_for_a_rate_limit_losing_an_owner_and_a_stale_connection_use_up_none() -> None:
    run = begun(replace(FALLS_BACK, max_iterations=1))
    assert not only(fails(run, "stale"), ModelCallFailed).takes_iteration
    assert not only(fails(run, "rate_limited"), ModelCallFailed).takes_iteration
    assert not only(run.give(recover()), ModelCallFailed).takes_iteration
    assert kinds(run.give(answered(run.state, "done"))) == ["ModelReplied", "RunCompleted"]


def test_an_image_of_a_continued_conversation_counts_too() -> None:
    run = Run()
    run.state = replace(run.state, history=(Message(role="user", blocks=(ImageBlock(media_type="a/b", data="x"),)),))
    run.give(start(definition=FALLS_BACK))
    assert "FallbackSuppressed" in kinds(fails(run, "unavailable", other("blind")))


# --- whatever happens ------------------------------------------------------------------------------------------------

FAILURES = st.sampled_from(sorted(TRANSIENT_KINDS | PERMANENT_KINDS))
PLACES = st.lists(
    st.builds(
        other,
        provider=st.sampled_from(["acme", "a", "b"]),
        model=st.sampled_from(["large", "small"]),
        sees=st.booleans(),
        sibling=st.sampled_from(["", "chat", "small"]),
    ),
    max_size=4,
).map(tuple)


@given(data=st.data(), fallbacks=st.integers(0, 4), retries=st.integers(0, 5), cap=st.integers(1, 20))
def test_whatever_fails_in_whatever_order_the_run_ends_within_its_attempts(
    data: st.DataObject, fallbacks: int, retries: int, cap: int
) -> None:
    definition = replace(
        FALLS_BACK, max_fallback_attempts=fallbacks, retry_attempts=retries, max_iterations=cap, pin_after_success=False
    )
    run = begun(definition)
    models = (fallbacks or limits.FALLBACKS_DEFAULT) + 1
    most = models * (retries + limits.RATE_LIMIT_ATTEMPTS)
    for _ in range(most):
        if isinstance(run.state, Ended):
            break
        fails(
            run,
            data.draw(FAILURES),
            *data.draw(PLACES),
            retries_rate_limits=data.draw(st.booleans()),
            retry_after_ms=data.draw(st.sampled_from([0, 1, 400_000])),
        )
    assert isinstance(run.state, Ended), f"still tries after {most} failures"
    assert run.state.facts.switches == sum(isinstance(event, ModelSwitched) for event in run.events) < models
    assert run.state.facts.retries < cap
    numbers = [event.retry for event in run.events if isinstance(event, ModelCallRequested)]
    assert max(numbers) < retries + limits.RATE_LIMIT_ATTEMPTS
