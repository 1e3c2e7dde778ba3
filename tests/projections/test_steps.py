from loomlog.projections.steps import FIRST_WINS, PREVIEW_CHARACTERS, StepRow, merge_rows, steps, steps_of_run
from loomlog.schemas.generated.run_events import RunCancelled, ToolOutcomeAsked
from loomlog.schemas.generated.values import Usage
from tests.projections.engine.test_fold import records_of
from tests.projections.stories import (
    COMPACTED,
    COMPACTING,
    NOT_COMPACTED,
    Partition,
    a3x2,
    asked,
    call,
    failed,
    replied,
    requested,
    returned,
    started,
)
from tests.projections.twin import projected


def unknown(turn: int, index: int, call_id: str) -> ToolOutcomeAsked:
    return ToolOutcomeAsked(turn=turn, index=index, call_id=call_id, attempt=1, reason="lost")


def rows_of(*events) -> list[StepRow]:
    partition = Partition()
    partition.claim()
    partition.add("r_1", started(), *events)
    return sorted(projected([records_of(partition)]).tables["steps"].values(), key=lambda row: row.seq)


def test_the_fields_of_a_row_are_the_columns_of_the_table():
    assert list(StepRow._fields) == [column.name for column in steps.columns]


def test_a_call_that_is_under_way_is_an_open_step():
    (row,) = rows_of(requested(1))
    assert (row.kind, row.turn, row.number, row.name) == ("model", 1, 1, "mock/mock-generic")
    assert (row.requested_at_ms is None, row.ended_at_ms, row.outcome) == (False, None, None)


def test_an_answer_closes_the_step_with_tokens_cost_and_a_preview():
    (row,) = rows_of(requested(1), replied(1, "x" * 1000))
    assert (row.outcome, row.is_error, row.duration_ms, row.stop_reason) == ("ok", False, 12, "end_turn")
    assert (row.input_tokens, row.output_tokens, row.cost_micros, row.currency) == (101, 20, 7, "USD")
    assert row.output_preview == "x" * PREVIEW_CHARACTERS
    assert row.ended_at_ms > row.requested_at_ms


def test_every_attempt_of_a_turn_is_a_step():
    first, second = rows_of(requested(1), failed(1), requested(1, 2, not_before_ms=77), replied(1, "hi", attempt=2))
    assert (first.number, first.outcome, first.is_error, first.error) == (
        1,
        "rate_limited",
        True,
        "mock 429: slow down",
    )
    assert (second.number, second.outcome, second.not_before_ms) == (2, "ok", 77)


def test_a_tool_call_is_one_step_with_its_name_and_input_whatever_its_attempts():
    rows = rows_of(
        requested(1),
        replied(1, "", call("c1")),
        asked(1, 0, "c1"),
        asked(1, 0, "c1", attempt=2),
        returned(1, 0, "c1", attempt=2),
    )
    tool = rows[1]
    assert (tool.kind, tool.number, tool.attempt, tool.call_id, tool.name) == ("tool", 0, 2, "c1", "Lookup")
    assert (tool.input_preview, tool.output_preview, tool.outcome) == ('{"city":"Paris"}', "sunny", "ok")
    assert tool.seq == 4
    assert tool.ended_at_ms - tool.requested_at_ms == 6


def test_a_call_that_waits_for_a_person_is_an_open_step_that_says_so_until_its_result_is_there():
    lost = (requested(1), replied(1, "", call("c1")), asked(1, 0, "c1"), unknown(1, 0, "c1"))
    waits, done = rows_of(*lost)[1], rows_of(*lost, returned(1, 0, "c1", settled_by="operator"))[1]
    assert (waits.outcome, waits.ended_at_ms, waits.output_preview) == ("outcome_unknown", None, "lost")
    assert (done.outcome, done.output_preview) == ("ok", "sunny")


def test_a_compaction_is_a_step_before_the_turn_that_follows_it():
    (under_way,) = rows_of(COMPACTING)
    assert (under_way.kind, under_way.turn, under_way.number, under_way.outcome) == ("compaction", 2, 1, None)
    (done,) = rows_of(COMPACTING, COMPACTED)
    assert (done.name, done.outcome, done.cost_micros, done.output_preview) == ("mock/small", "ok", 7, "they talked")
    (failed,) = rows_of(COMPACTING, NOT_COMPACTED)
    assert (failed.outcome, failed.is_error, failed.error) == ("overloaded", True, "mock 529: busy")


def test_a_result_without_an_intent_is_a_step_too():
    rows = rows_of(replied(1, "", call("c1")), returned(1, 0, "c1", "not carried out", is_error=True, outcome="error"))
    assert (rows[1].requested_at_ms, rows[1].outcome, rows[1].name) == (None, "error", "Lookup")


def test_a_cancelled_run_leaves_its_open_steps_open():
    (row,) = rows_of(requested(1), RunCancelled(usage=Usage()))
    assert row.outcome is None


def test_laying_changes_over_each_other_does_not_depend_on_how_they_are_grouped():
    base = StepRow("r_1", 1, "tool", 0, "default", 5, 1)
    a = base._replace(name="Lookup", requested_at_ms=10)
    b = base._replace(seq=6, attempt=2, requested_at_ms=20)
    c = base._replace(seq=7, attempt=2, ended_at_ms=30, outcome="ok")
    assert merge_rows(merge_rows(a, b), c) == merge_rows(a, merge_rows(b, c))
    whole = merge_rows(merge_rows(a, b), c)
    assert (whole.seq, whole.requested_at_ms, whole.attempt, whole.outcome) == (5, 10, 2, "ok")
    assert set(StepRow._fields) > FIRST_WINS


async def test_the_timeline_of_a_run_is_read_in_order_in_pages_and_by_its_tenant_only(project, reader):
    partition = Partition()
    partition.claim()
    partition.add("r_1", *a3x2("r_1"))
    partition.add("r_2", *a3x2("r_2"))
    await project(partition)
    rows = await steps_of_run(reader, "default", "r_1")
    assert [(row.kind, row.turn) for row in rows] == [
        ("model", 1),
        ("tool", 1),
        ("model", 2),
        ("tool", 2),
        ("model", 3),
    ]
    first = await steps_of_run(reader, "default", "r_1", limit=2)
    assert first + await steps_of_run(reader, "default", "r_1", after=first[-1]) == rows
    assert await steps_of_run(reader, "acme", "r_1") == []
