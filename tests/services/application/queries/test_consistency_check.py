from typing import Any

import pytest

from loomlog.projections import audit, runs
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunParked, RunRefused
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.reader import RawEvent
from loomlog.services.application.queries.consistency_check import find_differences
from loomlog.services.core.run.history.replay import replay
from tests.projections.stories import a3x2, completed, replied, requested, started
from tests.services.core.run.history.test_replay import run_of


def projected(events: list[RawEvent]) -> tuple[Any, Any]:
    """(audit row, run row) as the projector makes them."""
    seen = []
    for event in events:
        decoded = local_codec().decode(event.value)
        seen.append(
            PositionedEvent(
                partition=0, offset=event.offset, envelope=decoded.envelope, event=decoded.record, value=event.value
            )
        )
    return audit.apply(None, seen), runs.apply(None, seen)


def test_the_read_models_agree_with_the_fold():
    spent = Usage(input_tokens=306, output_tokens=60)
    ending = completed(usage=spent, iterations=3, cost_micros=21, currency="USD")
    events = run_of(*a3x2("r_1")[:-1], ending)
    assert find_differences(replay("r_1", events), *projected(events)) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"status": "failed"}, "the read models say status failed, the fold gives completed"),
        ({"iterations": 9}, "turns 9"),
        ({"input_tokens": 1}, "input tokens 1"),
        ({"cost_micros": 1}, "cost 1"),
        ({"definition_sha256": "00"}, "definition 00"),
        ({"parked": True}, "parked True"),
    ],
)
def test_a_row_that_says_otherwise_is_drift(row, said):
    events = run_of(started(), requested(1), replied(1, "Hi!"), completed(iterations=1, cost_micros=7, currency="USD"))
    place, run = projected(events)
    assert any(said in sentence for sentence in find_differences(replay("r_1", events), place, run._replace(**row)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"last_seq": 3}, "last seq 3"),
        ({"last_offset": 99}, "last offset 99"),
        ({"tail_digest": bytes(16)}, "tail digest 0000"),
        ({"halted_offset": 2, "withheld": 4}, "halted the run at offset 2: 4 records wait"),
    ],
)
def test_an_index_that_says_otherwise_is_drift(changes, said):
    events = run_of(*a3x2("r_1"))
    place, run = projected(events)
    assert any(said in sentence for sentence in find_differences(replay("r_1", events), place._replace(**changes), run))


def test_a_run_the_read_models_do_not_know_is_drift():
    events = run_of(*a3x2("r_1"))
    place, _ = projected(events)
    assert find_differences(replay("r_1", events), None, None) == ["the read models do not know the run"]
    assert find_differences(replay("r_1", events), place, None) == ["the read models have no row for the run"]


def test_a_refused_run_needs_no_row():
    events = run_of(RunRefused(code="unknown_agent", message="no agent", agent="ghost"))
    replayed = replay("r_1", events)
    place, run = projected(events)
    assert (replayed.status, run) == ("refused", None)
    assert find_differences(replayed, place, run) == []


def test_a_parked_run_is_running_to_everybody():
    events = run_of(started(interactive=True), requested(1), replied(1, "Hi!"), RunParked(since_turn=1))
    replayed = replay("r_1", events)
    assert replayed.status == "running"
    assert find_differences(replayed, *projected(events)) == []
