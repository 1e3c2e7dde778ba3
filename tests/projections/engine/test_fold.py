from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.projections.engine.batch import Cursor, read_records
from loomlog.projections.engine.fold import fold
from loomlog.schemas.generated.run_events import RunCancelled
from loomlog.schemas.generated.values import Usage
from tests.projections.stories import (
    TOPIC,
    Partition,
    asking,
    completed,
    eventful,
    many_runs,
    replied,
    requested,
    started,
)
from tests.projections.twin import Twin, cut, projected


def records_of(partition: Partition, *, number: int = 0):
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, number, partition.outgoing())
    return log.records[TOPIC, number]


def eventful_records():
    """Everything once, then runs with a gap, an unreadable record, and a record of no run."""
    partition = Partition()
    eventful(partition)
    asking(partition)
    partition.add("r_asks", RunCancelled(usage=Usage()))
    partition.add("r_hole", started("r_hole"), requested(1))
    partition.seqs["r_hole"] += 1
    partition.add("r_hole", replied(1, "lost"), completed())
    partition.add("r_cut", started("r_cut"), requested(1), replied(1, "x"))
    partition.records[-1] = partition.records[-1][:-2]
    partition.add("r_cut", completed())
    partition.records.append(b"of no run")
    partition.add("r_first", started("r_first"))
    partition.records[-1] = partition.records[-1][:-2]
    partition.add("r_first", requested(1))
    many_runs(partition, ["r_a", "r_b"])
    return records_of(partition)


RECORDS = eventful_records()
WHOLE = projected([RECORDS]).tables


@settings(max_examples=150, deadline=None)
@given(
    starts=st.lists(st.integers(1, len(RECORDS) - 1), max_size=20),
    restarts=st.sets(st.integers(0, 20)),
)
def test_however_events_fall_into_polls_the_rows_are_the_same(starts, restarts):
    assert projected(cut(RECORDS, starts), restart_after=restarts).tables == WHOLE


def test_one_event_a_poll_with_a_restart_after_each_gives_the_same_rows():
    polls = [[record] for record in RECORDS]
    assert projected(polls, restart_after=range(len(polls))).tables == WHOLE


def test_folding_a_poll_again_gives_the_same_changes_and_mutates_nothing():
    twin = projected([RECORDS[:30]])
    before = dict(twin.known)
    batch = read_records(twin.cursors, {0: RECORDS[30:]})
    first, second = fold(TOPIC, batch, twin.known), fold(TOPIC, batch, twin.known)
    assert first == second
    assert twin.known == before


def test_two_partitions_in_one_poll_do_not_mix():
    one, two = Partition(), Partition()
    one.claim()
    two.claim()
    many_runs(one, ["r_a"])
    many_runs(two, ["r_b"])
    together = projected([[*records_of(one), *records_of(two, number=1)]])
    assert sorted(together.tables["runs"]) == ["r_a", "r_b"]
    assert [together.tables["runs"][run].partition for run in ("r_a", "r_b")] == [0, 1]
    apart = projected([records_of(one), records_of(two, number=1)])
    assert together.tables == apart.tables


def test_a_gap_halts_its_run_with_a_problem_and_no_other():
    run, audit_row = WHOLE["runs"]["r_hole"], WHOLE["audit"]["r_hole"]
    assert (run.status, run.quarantined, run.last_seq) == ("running", True, 2)
    assert "expected seq 3" in run.quarantine_error
    assert (audit_row.last_seq, audit_row.withheld) == (2, 2)
    (problem,) = (row for row in WHOLE["problems"].values() if row.run_id == "r_hole")
    assert (problem.kind, problem.offset) == ("broken_sequence", audit_row.halted_offset)
    assert problem.value == RECORDS[problem.offset].value
    assert WHOLE["runs"]["r_a"].status == WHOLE["runs"]["r_b"].status == "completed"


def test_an_unreadable_record_halts_its_run_and_is_kept():
    assert WHOLE["runs"]["r_cut"].quarantined
    assert WHOLE["audit"]["r_cut"].withheld == 2
    (problem,) = (row for row in WHOLE["problems"].values() if row.run_id == "r_cut")
    assert (problem.kind, problem.value) == ("undecodable", RECORDS[problem.offset].value)


def test_a_run_whose_first_record_is_unreadable_has_an_audit_row_only():
    assert "r_first" not in WHOLE["runs"]
    audit_row = WHOLE["audit"]["r_first"]
    assert (audit_row.tenant, audit_row.withheld, audit_row.last_seq) == ("", 2, 0)


def test_a_record_of_no_run_is_only_a_problem():
    assert [row.value for row in WHOLE["problems"].values() if not row.run_id] == [b"of no run"]


def test_a_repeated_seq_is_a_broken_sequence_too():
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1"), requested(1))
    partition.seqs["r_1"] = 1
    partition.add("r_1", requested(1))
    twin = projected([records_of(partition)])
    assert twin.tables["runs"]["r_1"].quarantined


def test_changes_are_sorted_by_key():
    changes = Twin().apply(RECORDS)
    for rows in (changes.runs, changes.audit, changes.transcript, changes.usage):
        assert rows == sorted(rows)
    keys = [(row.run_id, row.interrupt_id) for row in changes.interrupts]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_an_ended_run_is_not_cached():
    known = projected([RECORDS]).known
    assert {run_id for run_id, run in known.items() if not run.is_over} == set()
    assert not projected([RECORDS[:5]]).known["r_talk"].is_over


def test_a_poll_below_the_cursor_gives_no_changes():
    batch = read_records({0: Cursor(partition=0, next_offset=len(RECORDS), term=0)}, {0: RECORDS})
    assert batch.new_cursors == []
