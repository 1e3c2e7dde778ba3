"""Which children of a live parent are left behind."""

from typing import Any

import pytest

from loomlog.schemas.generated.values import ParentCall
from loomlog.schemas.ids import child_run_id
from loomlog.schemas.records import replace
from loomlog.services.runtime.run.child_runs import _is_orphaned
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import RUN, Run, begun, start

CHILD = child_run_id(RUN, 1, 0, 0)


def aggregate(run_id: str, state: Any) -> Aggregate:
    return Aggregate(id=run_id, state=state, key=b"tok", tenant="t")


def parent(**facts: Any) -> Aggregate:
    """It waits for the model, so for no child."""
    state = begun().live
    return aggregate(RUN, replace(state, facts=replace(state.facts, **facts)))


def child(*, is_resident: bool) -> Aggregate:
    call = ParentCall(
        run_id=RUN, agent_id="a", root_run_id=RUN, turn=1, index=0, number=0, depth=1, is_resident=is_resident
    )
    run = Run()
    run.give(replace(start(interactive=is_resident), parent=call))
    return aggregate(CHILD, run.state)


@pytest.mark.parametrize("is_resident", [False, True])
def test_a_child_that_its_parent_does_not_know_of_is_left(is_resident: bool) -> None:
    assert _is_orphaned(parent(), child(is_resident=is_resident))


def test_a_resident_child_lives_between_calls() -> None:
    assert not _is_orphaned(parent(residents=(CHILD,)), child(is_resident=True))


@pytest.mark.parametrize("is_resident", [False, True])
def test_what_a_parent_wants_is_not_known_before_all_of_it_is_restored(is_resident: bool) -> None:
    """Its last part comes after its children."""
    assert not _is_orphaned(parent(imported_events=7), child(is_resident=is_resident))
