"""Which runs need nothing but an order of a person."""

import pytest

from loomlog.schemas.generated.values import ParentCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.lifecycle.activity import is_active, may_rest
from loomlog.services.core.run.state import AwaitingTools, Parked, State
from tests.services.core.run.asking import QUESTION, asking
from tests.services.core.run.given import answered, begun, recover, says


def parked() -> Parked:
    run = begun(interactive=True)
    run.give(answered(run.state, "hm"))
    assert isinstance(run.state, Parked)
    return run.state


def test_a_parked_root_and_one_that_only_asks_people_may_rest() -> None:
    assert may_rest(parked())
    asks = asking().state
    assert isinstance(asks, AwaitingTools)
    assert may_rest(asks)
    assert not is_active(asks)


def test_a_run_that_may_rest_is_recovered_without_an_event() -> None:
    for run in (begun(interactive=True), asking()):
        if not may_rest(run.state):
            run.give(answered(run.state, "hm"))
        assert may_rest(run.state)
        assert run.give(recover()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"quarantine_error": "a bug"},
        {"residents": ("r_child",)},
        {"imported_events": 3, "imported_as": "imported 3 x"},
        {"parent": ParentCall(run_id="r_up", agent_id="a_up", root_run_id="r_up", turn=1, index=0, number=0, depth=1)},
    ],
    ids=["quarantined", "with a resident child", "partly imported", "a child"],
)
def test_what_others_may_need_at_once_does_not_rest(changes: dict[str, object]) -> None:
    state = parked()
    assert not may_rest(replace(state, facts=replace(state.facts, **changes)))


def test_a_run_with_a_call_under_way_does_not_rest() -> None:
    running: State = begun(interactive=True).state
    assert not may_rest(running)
    assert not may_rest(asking(QUESTION, "Read").state)
    run = begun(interactive=True)
    run.give(answered(run.state, "hm"))
    run.give(says("go on"))
    assert not may_rest(run.state)
