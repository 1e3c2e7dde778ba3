from collections.abc import Callable

import pytest

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InputReceived,
    ModelCallRequested,
    RunCancelled,
    RunFailed,
    RunQuarantined,
    ToolCallRequested,
)
from loomlog.schemas.generated.values import Usage
from loomlog.services.core.run.evolve import evolve
from loomlog.services.core.run.react import CallModel, CallTool, StopCalls, react
from tests.services.core.run.given import (
    NOW,
    RUN,
    Run,
    answered,
    at_tools,
    begun,
    completed,
    erred,
    parked,
    recover,
    returned,
    says,
)

QUARANTINED = RunQuarantined(error="bug", record_topic="t", record_offset=1)


def test_an_intent_of_a_model_call_is_the_call_with_its_time() -> None:
    run = begun()
    run.give(erred(run.state, "rate_limited", transient=True, retry_after_ms=5_000))
    assert run.effects[-1] == CallModel(
        run_id=RUN, turn=1, attempt=2, provider="acme", model="large", not_before_ms=NOW + 5_000
    )


def test_an_intent_of_a_tool_call_is_the_call_the_model_asked_for() -> None:
    run = at_tools("Read", "Bash", classes=("read", "unsafe"))
    assert run.effects[-1] == CallTool(
        run_id=RUN, turn=1, index=1, attempt=1, call_id="c1", name="Bash", input="{}", effect_class="unsafe"
    )


def test_every_intent_gives_exactly_one_call_and_every_call_has_its_own_key() -> None:
    run = at_tools("A", "B", "C")
    run.give(recover())
    for index in (2, 0, 1):
        run.give(returned(run.state, index))
    run.give(answered(run.state, "done"))
    intents = [event for event in run.events if isinstance(event, ModelCallRequested | ToolCallRequested)]
    keys = [effect.key for effect in run.effects if isinstance(effect, CallModel | CallTool)]
    assert len(keys) == len(intents) == len(set(keys))


@pytest.mark.parametrize("event", [RunCancelled(usage=Usage()), RunFailed(code="c", error="e", usage=Usage())])
@pytest.mark.parametrize("make", [begun, parked, lambda: at_tools("A")], ids=["model", "parked", "tools"])
def test_an_end_from_outside_or_by_failure_stops_what_is_under_way(
    make: Callable[[], Run], event: RunCancelled | RunFailed
) -> None:
    state = evolve(make().state, event, NOW)
    assert react(state, event) == (StopCalls(run_id=RUN),)


@pytest.mark.parametrize("make", [begun, parked, lambda: at_tools("A")], ids=["model", "parked", "tools"])
def test_a_quarantine_stops_what_is_under_way(make: Callable[[], Run]) -> None:
    state = evolve(make().state, QUARANTINED, NOW)
    assert react(state, QUARANTINED) == (StopCalls(run_id=RUN),)


def test_nothing_is_called_when_a_run_ends_by_itself_parks_or_is_told_something() -> None:
    assert len(completed().effects) == 1  # the one call it made
    assert len(parked().effects) == 1
    run = begun()
    run.give(says("hello"))
    assert len(run.effects) == 1
    assert react(run.state, InputReceived(text="x")) == ()
    assert react(run.state, CommandRefused(code="c", message="m")) == ()
