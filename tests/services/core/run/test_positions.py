"""Positions of writes of a run: the newest of each partition, a bounded number of them."""

from loomlog.schemas.generated.values import ResultDetails
from loomlog.schemas.records import replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.run_facts import RunFacts, with_positions
from tests.services.core.run.given import at_tools, returned


def facts() -> RunFacts:
    return at_tools("A").state.facts  # type: ignore[no-any-return]  # the state of a Run is not typed


def test_the_newest_position_of_each_partition_is_kept() -> None:
    after = with_positions(facts(), ("loom.entity.events/1:7", "loom.entity.events/2:1"))
    after = with_positions(after, ("loom.entity.events/1:10", "loom.entity.events/2:0"))
    assert after.positions == ("loom.entity.events/2:1", "loom.entity.events/1:10")
    # As numbers, not as texts.
    assert with_positions(after, ("loom.entity.events/1:9",)).positions == after.positions


def test_as_many_are_kept_as_are_needed_and_the_newest_stay() -> None:
    after = facts()
    for number in range(limits.POSITIONS_KEPT + 3):
        after = with_positions(after, (f"loom.entity.events/{number}:1",))
    assert len(after.positions) == limits.POSITIONS_KEPT
    assert after.positions[-1] == f"loom.entity.events/{limits.POSITIONS_KEPT + 2}:1"
    assert after.positions[0] == "loom.entity.events/3:1"


def test_a_call_without_writes_changes_nothing() -> None:
    run = at_tools("A")
    before = run.state.facts.positions
    (event, *_) = run.give(returned(run.state, 0))
    assert (event.details, run.state.facts.positions) == (None, before)


def test_positions_come_with_the_result_of_a_call() -> None:
    run = at_tools("A")
    (event, *_) = run.give(returned(run.state, 0, positions=("loom.entity.events/1:7",)))
    assert event.details == ResultDetails(positions=("loom.entity.events/1:7",))
    assert run.state.facts.positions == event.details.positions


def test_positions_of_an_imported_run_are_of_another_log() -> None:
    imported = replace(facts(), imported_as="imported 3 abc")
    assert with_positions(imported, ("loom.entity.events/1:7",)).positions == ()
