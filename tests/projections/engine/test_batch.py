from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.projections.engine.batch import Cursor, PositionedEvent, UnreadableEvent, read_records
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import CancelRun
from loomlog.schemas.generated.values import CommandEnvelope
from tests.projections.stories import TOPIC, Partition, completed, requested, started

START = {0: Cursor(partition=0, next_offset=0, term=-1, epoch=7)}


def polled(values):
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, [ProducerRecord(key=b"k", value=value) for value in values])
    return {0: log.records[TOPIC, 0]}


def some_runs() -> Partition:
    partition = Partition()
    partition.claim()
    partition.add("r_1", started("r_1"))
    partition.add("r_2", started("r_2"))
    partition.add("r_1", requested(1))
    return partition


def test_events_come_by_run_in_log_order_and_the_cursor_moves_past_them():
    batch = read_records(START, polled(some_runs().records))
    assert {run: [item.offset for item in items] for run, items in batch.aggregates.items()} == {
        "r_1": [1, 3],
        "r_2": [2],
    }
    assert batch.new_cursors == [Cursor(partition=0, next_offset=4, term=0, epoch=7)]
    assert (batch.events, batch.stale, batch.problems) == (3, 0, [])


def test_records_of_a_stale_owner_are_counted_and_ignored():
    partition = some_runs()
    partition.claim("next")
    partition.add("r_1", completed(), term=0)
    batch = read_records(START, polled(partition.records))
    assert batch.stale == 1
    assert [item.offset for item in batch.aggregates["r_1"]] == [1, 3]
    assert batch.new_cursors[0].term == 4


def test_a_cursor_moves_past_records_that_change_nothing():
    partition = Partition()
    partition.claim()
    batch = read_records(START, polled(partition.records))
    assert batch.aggregates == {}
    assert batch.new_cursors == [Cursor(partition=0, next_offset=1, term=0, epoch=7)]


def test_reading_resumes_under_the_term_of_the_cursor():
    records = polled(some_runs().records)
    first = read_records(START, {0: records[0][:2]})
    batch = read_records({0: first.new_cursors[0]}, {0: records[0][2:]})
    assert sorted(batch.aggregates) == ["r_1", "r_2"]


def test_records_below_the_cursor_are_left_out():
    records = polled(some_runs().records)
    cursor = {0: Cursor(partition=0, next_offset=3, term=0)}
    assert list(read_records(cursor, records).aggregates) == ["r_1"]
    done = {0: Cursor(partition=0, next_offset=4, term=0)}
    assert read_records(done, records).new_cursors == []


def test_a_record_without_a_frame_is_a_problem_of_no_run_with_its_bytes():
    partition = some_runs()
    partition.records.insert(2, b"garbage")
    batch = read_records(START, polled(partition.records))
    (problem,) = batch.problems
    assert (problem.offset, problem.kind, problem.run_id, problem.value, problem.key) == (
        2,
        "undecodable",
        "",
        b"garbage",
        b"k",
    )
    assert batch.new_cursors[0].next_offset == 5


def test_a_tombstone_is_a_problem():
    assert read_records(START, polled([None])).problems[0].kind == "undecodable"


def test_an_event_that_cannot_be_read_is_replaced_by_an_unreadable_event():
    partition = some_runs()
    partition.records[3] = partition.records[3][:-1]
    first, second = read_records(START, polled(partition.records)).aggregates["r_1"]
    assert isinstance(first, PositionedEvent)
    assert isinstance(second, UnreadableEvent)
    assert second.problem.kind == "undecodable"
    assert second.problem.value == partition.records[3]


def test_an_event_of_a_newer_version_is_named_so():
    partition = some_runs()
    partition.records[3] = b"\x00\x00\x01\x00\x00" + partition.records[3][5:]
    (_, item) = read_records(START, polled(partition.records)).aggregates["r_1"]
    assert item.problem.kind == "unknown_schema"


def test_a_command_among_the_events_is_no_event():
    command = CancelRun(envelope=CommandEnvelope(command_id="c"), run_id="r_1")
    partition = some_runs()
    partition.records.append(local_codec().encode(command))
    batch = read_records(START, polled(partition.records))
    assert (
        batch.stale
        + len(batch.problems)
        + sum(isinstance(i, UnreadableEvent) for r in batch.aggregates.values() for i in r)
        == 1
    )


def test_a_gap_in_the_offsets_is_a_problem():
    records = polled(some_runs().records)[0]
    (problem,) = read_records(START, {0: [records[0], *records[2:]]}).problems
    assert (problem.kind, problem.offset) == ("offset_gap", 1)


def test_a_run_id_no_table_can_hold_is_a_problem_and_does_not_stop_the_others():
    partition = some_runs()
    partition.add("r_\x00", started("r_3"))
    batch = read_records(START, polled(partition.records))
    assert sorted(batch.aggregates) == ["r_1", "r_2"]
    assert batch.problems[0].offset == 4
