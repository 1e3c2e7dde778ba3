"""Loading the state of an aggregate that rests."""

from typing import Any

import pytest

from loomlog.services.core.run.state import Absent
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.partition.resting import (
    Resting,
    SnapshotUnusable,
    StateLoader,
    is_resting,
    shared_resting,
    snapshot_token,
)
from tests.services.stream.given import FAMILY

STATE, NEWER = Absent(run_id="r_x"), Absent(run_id="r_x", history=())


class Reader:
    """A reader whose answer is a value, or an exception; `meanwhile` happens to the aggregate first."""

    def __init__(self, answer: Any, meanwhile: Any = None) -> None:
        self._answer = answer
        self._meanwhile = meanwhile

    async def read_state(self, partition: int, aggregate: Aggregate) -> Any:
        return self._give(aggregate)

    async def refold(self, aggregate: Aggregate) -> Any:
        return self._give(aggregate)

    def _give(self, aggregate: Aggregate) -> Any:
        if self._meanwhile is not None:
            aggregate.state = self._meanwhile
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def at_rest() -> Aggregate:
    return Aggregate(id="r_x", state=Resting(), key=b"x", tenant="t", seq=4, snapshot_seq=4, snapshot_offset=7)


def folded(state: Any) -> Aggregate:
    return Aggregate(id="r_x", state=state, key=b"x", tenant="t")


async def test_the_state_comes_from_the_snapshot() -> None:
    run = at_rest()
    await StateLoader(0, FAMILY, Reader(STATE), Reader(AssertionError()).refold).load(run)
    assert (run.state, is_resting(run), run.snapshot_seq) == (STATE, False, 4)


async def test_without_a_snapshot_it_comes_from_the_log_and_is_written_again() -> None:
    run = at_rest()
    await StateLoader(0, FAMILY, Reader(SnapshotUnusable("gone")), Reader(folded(STATE)).refold).load(run)
    assert (run.state, run.snapshot_seq, run.quarantined) == (STATE, 0, "")


async def test_without_both_the_run_is_quarantined() -> None:
    run = at_rest()
    await StateLoader(0, FAMILY, Reader(SnapshotUnusable("gone")), Reader("its chain is broken").refold).load(run)
    assert (run.quarantined, run.pending_events, is_resting(run)) == ("its chain is broken", True, False)


@pytest.mark.parametrize("answer", [STATE, SnapshotUnusable("gone")])
async def test_what_was_loaded_and_changed_meanwhile_is_left_alone(answer: Any) -> None:
    run = at_rest()
    await StateLoader(0, FAMILY, Reader(answer, meanwhile=NEWER), Reader(folded(STATE)).refold).load(run)
    if isinstance(answer, Exception):
        run = at_rest()
        await StateLoader(0, FAMILY, Reader(answer), Reader(folded(STATE), meanwhile=NEWER).refold).load(run)
        assert run.snapshot_seq == 4
    assert run.state is NEWER


def test_runs_that_are_alike_share_what_they_are_at_rest() -> None:
    assert shared_resting("", "", "helper", ()) is shared_resting("", "", "helper", ())
    assert shared_resting("", "", "helper", ()) != shared_resting("", "", "helper", ("all",))


def test_a_token_tells_runs_seqs_and_states_apart() -> None:
    assert (
        len({snapshot_token(*of) for of in (("r_a", 1, "x"), ("r_b", 1, "x"), ("r_a", 2, "x"), ("r_a", 1, "y"))}) == 4
    )
