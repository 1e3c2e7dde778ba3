from dataclasses import fields, replace

import pytest

from loomlog.schemas.generated.run_events import RunCompleted, RunRefused
from tests.chaos.checker import check
from tests.chaos.evidence import Row, Spent
from tests.chaos.story_book import CALL, RUN, USAGE, Log, asked, good, replied, returned, turns, until_the_call


def texts(log: Log, kind: str, spent: Spent | None = None) -> list[str]:
    violations = check(replace(log.evidence(), spent=spent)).violations
    return [violation.text for violation in violations if violation.kind == kind]


def test_the_rows_of_a_good_history_are_equal() -> None:
    assert check(good().evidence()).violations == ()


@pytest.mark.parametrize("name", [field.name for field in fields(Row)])
def test_a_row_that_differs_in_any_column_is_found(name: str) -> None:
    log = good()
    was = getattr(log.rows[RUN], name)
    wrong = f"not {was}" if isinstance(was, str) else was + 1
    log.rows[RUN] = replace(log.rows[RUN], **{name: wrong})
    assert texts(log, "row") == [f"{RUN}: {name} is {wrong!r}, the log says {was!r}"]


def test_a_row_that_is_missing_is_found() -> None:
    log = good()
    del log.rows[RUN]
    assert texts(log, "row")[0].startswith(f"{RUN}: has no row")


def test_a_row_of_nobody_is_found() -> None:
    log = good()
    log.rows["r_two"] = log.rows[RUN]
    assert texts(log, "row") == ["r_two: has a row, but no accepted run"]


def test_a_refused_request_has_no_row() -> None:
    log = good()
    offset = log.order("r_two", key=b"two", command_id="k2")
    refusal = RunRefused(code="backpressure", message="later")
    log.event(refusal, run_id="r_two", key=b"two", cause_offset=offset)
    assert texts(log, "row") == []


@pytest.mark.parametrize(
    "end",
    [
        RunCompleted(stop_reason="end_turn", iterations=3, usage=turns(2)),
        RunCompleted(stop_reason="end_turn", iterations=2, usage=turns(3)),
    ],
)
def test_an_end_whose_sums_are_not_those_of_its_turns_is_found(end: RunCompleted) -> None:
    log = Log()
    until_the_call(log)
    for event in (returned(), asked(2), replied(2), end):
        log.event(event)
    assert "the turns before it sum up to (2, 60, 14)" in texts(log, "sums")[0]


def test_what_was_spent_is_the_sum_of_all_answers() -> None:
    log = good()
    right = Spent(calls=2, input_tokens=2 * USAGE.input_tokens, output_tokens=2 * USAGE.output_tokens)
    assert texts(log, "spent", right) == []
    for wrong in (replace(right, calls=3), replace(right, input_tokens=0), replace(right, output_tokens=1)):
        assert len(texts(log, "spent", wrong)) == 1


def test_an_answer_of_a_stale_owner_is_not_spent() -> None:
    log = good()
    log.event(replied(3, CALL), keep=False, term=log.term - 1)
    right = Spent(calls=2, input_tokens=2 * USAGE.input_tokens, output_tokens=2 * USAGE.output_tokens)
    assert texts(log, "spent", right) == []
