"""Compare-and-append: decisions run ahead of the wire, effects do not, and only offsets tell what is legal."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import digest
from loomlog.schemas.generated.run_events import InputReceived, ModelReplied
from loomlog.schemas.ids import event_id
from loomlog.schemas.records import replace
from loomlog.services.core.run.react import CallModel
from loomlog.services.stream.partition import partition as partition_module
from loomlog.services.stream.partition.partition import NO_DIGEST, DecisionTooLarge, OffsetGap
from tests.services.core.run.given import NOW, answered, calls, cancel, says, start
from tests.services.stream.given import CODEC, EVENTS, Watch, aggregate, claimed, flushed, partition, started

# --- deciding --------------------------------------------------------------------------------------------------------


def test_a_decision_is_queued_and_the_state_is_ahead_of_the_log() -> None:
    watch = Watch()
    owned = partition(watch)
    run = started(owned)
    assert run.seq == 2
    assert owned.has_pending
    assert owned.aggregates["r_x"] is run
    assert watch.decisions == [("r_x", "RunStarted"), ("r_x", "ModelCallRequested")]
    assert watch.in_log == []
    assert run.first_offset == -1


def test_an_order_without_consequences_queues_nothing_and_keeps_no_aggregate() -> None:
    owned = partition()
    made = aggregate()
    assert not owned.submit(made, cancel(), at_ms=NOW)
    assert not owned.has_pending
    assert owned.aggregates == {}


def test_events_carry_term_seq_chain_cause_and_headers() -> None:
    owned = partition(term=41)
    run = started(owned, command_offset=7)
    first, second = owned.next_batch(MAX_BATCH_BYTES)
    one, two = CODEC.decode(first.value or b"").envelope, CODEC.decode(second.value or b"").envelope
    assert one is not None
    assert two is not None
    assert [(e.term, e.seq, e.aggregate, e.tenant, e.at_ms) for e in (one, two)] == [
        (41, 1, "r_x", "t", NOW),
        (41, 2, "r_x", "t", NOW),
    ]
    assert (one.cause_id, one.cause_offset) == ("c-r_x", 7)
    assert one.prev == NO_DIGEST
    assert two.prev == digest(first.value or b"")
    assert run.digest == digest(second.value or b"")
    assert dict(second.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": event_id("r_x", 2).encode(),
        "ce_type": b"loom.run.events.ModelCallRequested",
        "ce_source": b"/loomlog/loom.run.events/0",
    }
    assert first.key == b"x"


def test_a_trace_context_travels_in_the_headers_of_every_record() -> None:
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    owned = partition()
    made = aggregate()
    owned.submit(made, replace(start(), traceparent=trace), at_ms=NOW)
    assert [dict(record.headers)["traceparent"] for record in owned.next_batch(MAX_BATCH_BYTES)] == [trace.encode()] * 2


def test_a_broken_rule_changes_nothing() -> None:
    owned = partition()
    run = started(owned)
    before = (run.state, run.seq, run.digest, owned.pending_decisions)
    with pytest.raises(AssertionError):
        owned.submit(run, "no order", at_ms=NOW)
    assert (run.state, run.seq, run.digest, owned.pending_decisions) == before


def test_a_decision_that_cannot_fit_one_append_is_refused_whole() -> None:
    owned = partition()
    run = started(owned)
    before = (run.state, run.seq, run.digest, owned.pending_decisions)
    with pytest.raises(DecisionTooLarge):
        owned.submit(run, says("x" * partition_module.DECISION_BYTES_MAX), at_ms=NOW)
    assert (run.state, run.seq, run.digest, owned.pending_decisions) == before


def test_an_aggregate_that_is_over_leaves_when_that_is_decided() -> None:
    watch = Watch()
    owned = partition(watch)
    run = started(owned)
    owned.submit(run, cancel(), at_ms=NOW)
    assert owned.aggregates == {}
    owned.next_batch(MAX_BATCH_BYTES)
    owned.acknowledged(1)
    assert [decision.ended for decision in watch.in_log] == [False, True]


# --- the wire --------------------------------------------------------------------------------------------------------


def test_effects_come_out_when_their_intent_is_in_the_log_and_not_before() -> None:
    owned = partition()
    run = started(owned)
    records = owned.next_batch(MAX_BATCH_BYTES)
    assert len(records) == 2
    dues = owned.acknowledged(1)
    assert [(due.aggregate.id, type(due.effect)) for due in dues] == [("r_x", CallModel)]
    assert dues[0].state is run.state
    assert (run.first_offset, run.last_offset) == (1, 2)
    assert owned.next_offset == 3
    assert owned.is_idle


def test_what_is_decided_while_a_batch_flies_goes_with_the_next_one() -> None:
    owned = partition()
    started(owned, "r_a")
    owned.next_batch(MAX_BATCH_BYTES)
    started(owned, "r_b")
    assert [due.aggregate.id for due in owned.acknowledged(1)] == ["r_a"]
    assert len(owned.next_batch(MAX_BATCH_BYTES)) == 2
    assert [due.aggregate.id for due in owned.acknowledged(3)] == ["r_b"]


def test_one_batch_is_on_the_wire_at_a_time() -> None:
    owned = partition()
    started(owned, "r_a")
    owned.next_batch(MAX_BATCH_BYTES)
    started(owned, "r_b")
    with pytest.raises(AssertionError, match="still on the wire"):
        owned.next_batch(MAX_BATCH_BYTES)


def test_a_batch_that_landed_higher_releases_nothing_until_the_gap_is_known() -> None:
    watch = Watch()
    owned = partition(watch)
    run = started(owned, command_offset=0)
    owned.next_batch(MAX_BATCH_BYTES)
    with pytest.raises(OffsetGap) as caught:
        owned.acknowledged(5)
    assert (caught.value.start, caught.value.end) == (1, 5)
    assert watch.in_log == []
    assert run.first_offset == -1
    assert not owned.progress.is_handled(0)
    owned.skip_to(5)
    assert len(owned.acknowledged(5)) == 1
    assert (run.first_offset, owned.next_offset) == (5, 7)


def test_a_batch_that_landed_lower_is_impossible_and_loud() -> None:
    owned = partition(term=9)
    started(owned)
    owned.next_batch(MAX_BATCH_BYTES)
    with pytest.raises(AssertionError, match="below the expected 10"):
        owned.acknowledged(4)


def test_an_acknowledgement_of_nothing_is_loud() -> None:
    with pytest.raises(AssertionError, match="nothing is on the wire"):
        partition().acknowledged(1)


def test_commands_are_handled_when_their_events_are_in_the_log() -> None:
    owned = partition()
    started(owned, "r_a", command_offset=0)
    started(owned, "r_b", command_offset=1)
    owned.next_batch(MAX_BATCH_BYTES)
    assert owned.progress.low == 0
    owned.acknowledged(1)
    assert owned.progress.low == 2


# --- sizes -----------------------------------------------------------------------------------------------------------


def test_a_decision_is_never_split_over_batches() -> None:
    owned = partition()
    for name in ("r_a", "r_b", "r_c"):
        run = started(owned, name)
        owned.submit(run, answered(run.state, "x" * 1_000, *calls("A", "B", "C")), at_ms=NOW)
    sizes = []
    while owned.has_pending:
        records = owned.next_batch(2_500)
        decisions = [(CODEC.decode(record.value or b"").envelope) for record in records]
        sizes.append([(envelope.aggregate, envelope.seq) for envelope in decisions if envelope is not None])
        owned.acknowledged(owned.next_offset)
    for batch in sizes:
        for name in {name for name, _ in batch}:
            assert [seq for actual, seq in batch if actual == name] in ([1, 2], [3, 4, 5, 6], [1, 2, 3, 4, 5, 6])
    assert sum(map(len, sizes)) == 18
    assert len(sizes) > 3


def test_a_decision_that_is_larger_than_asked_for_still_flies_alone() -> None:
    owned = partition()
    started(owned, "r_a")
    started(owned, "r_b")
    assert len(owned.next_batch(1)) == 2


def test_a_batch_holds_a_bounded_number_of_decisions() -> None:
    owned = partition()
    for number in range(partition_module.BATCH_DECISIONS_MAX + 3):
        started(owned, f"r_{number}")
    assert len(owned.next_batch(10**9)) == 2 * partition_module.BATCH_DECISIONS_MAX
    assert owned.pending_decisions == 3


def packed_bytes(records: tuple[ProducerRecord, ...]) -> int:
    """What the broker's client makes of a batch."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=1,
        producer_epoch=1,
        base_sequence=0,
        batch_size=10**9,
    )
    for at, record in enumerate(records):
        assert builder.append(at, NOW, record.key, record.value, list(record.headers)) is not None
    return int(builder.size())


@pytest.mark.parametrize("text", [0, 3_000, 40_000, 840_000])
def test_a_full_batch_fits_an_append_with_the_longest_keys_and_a_trace(text: int) -> None:
    owned = partition()
    trace = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    for number in range(max(2, min(450, 2 * MAX_BATCH_BYTES // (text + 1_000)))):
        made = aggregate(f"r_{number:0126d}")
        owned.submit(made, replace(start(prompt="p" * (text or 1)), traceparent=trace), at_ms=NOW)
        if text == 0:
            # Many tiny records are the hard case: framing, key and headers weigh more than the value.
            owned.append(made, [InputReceived(text="")] * 10, at_ms=NOW)
    records = owned.next_batch(MAX_BATCH_BYTES)
    assert owned.has_pending
    assert MAX_BATCH_BYTES * 0.7 < packed_bytes(records) <= MAX_BATCH_BYTES


# --- marks -----------------------------------------------------------------------------------------------------------


def test_a_mark_on_an_idle_partition_is_reached_at_once() -> None:
    reached: list[int] = []
    owned = partition(term=4)
    owned.on_durable(reached.append)
    assert reached == [5]


def test_a_mark_is_reached_when_all_decided_before_it_is_in_the_log_and_nothing_after() -> None:
    reached: list[int] = []
    owned = partition()
    started(owned, "r_a", command_offset=0)
    owned.on_durable(reached.append)
    started(owned, "r_b", command_offset=1)
    seen: list[int] = []
    owned.on_durable(lambda offset: seen.append(owned.progress.low))
    owned.next_batch(MAX_BATCH_BYTES)
    assert reached == []
    owned.acknowledged(1)
    assert reached == [3]
    assert seen == [2]


def test_a_mark_behind_a_batch_on_the_wire_waits_for_it() -> None:
    reached: list[int] = []
    owned = partition()
    started(owned, "r_a")
    owned.next_batch(MAX_BATCH_BYTES)
    owned.on_durable(reached.append)
    assert reached == []
    owned.acknowledged(1)
    assert owned.has_pending
    assert owned.next_batch(MAX_BATCH_BYTES) == ()
    assert reached == [3]
    assert owned.is_idle


def test_marks_take_no_place_in_a_batch_however_many_there_are() -> None:
    """A thousand commands without effect behind a batch on the wire must not wait for what is decided next."""
    reached: list[int] = []
    owned = partition()
    started(owned, "r_a")
    owned.next_batch(MAX_BATCH_BYTES)
    for _ in range(2 * partition_module.BATCH_DECISIONS_MAX):
        owned.on_durable(reached.append)
    owned.acknowledged(1)
    assert owned.next_batch(MAX_BATCH_BYTES) == ()
    assert len(reached) == 2 * partition_module.BATCH_DECISIONS_MAX
    assert owned.is_idle


def test_a_whole_run_is_one_dense_chain_in_the_log() -> None:
    log = MemoryLog({EVENTS: 1})
    owned = claimed(log)
    run = started(owned)
    flushed(owned, log)
    owned.submit(run, answered(run.state, "done"), at_ms=NOW)
    flushed(owned, log)
    values = [record.value or b"" for record in log.records[EVENTS, 0][1:]]
    envelopes = [CODEC.decode(value).envelope for value in values]
    assert [envelope.seq for envelope in envelopes if envelope] == [1, 2, 3, 4]
    assert [envelope.prev for envelope in envelopes if envelope] == [NO_DIGEST, *(digest(v) for v in values[:-1])]
    assert isinstance(CODEC.decode(values[2]).record, ModelReplied)
