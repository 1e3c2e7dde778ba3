import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.generated.run_events import RunParked
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import BrokenSequence, RawEvent, SequenceCheck, TermReader

CODEC = local_codec()


def claim(last_seen: int = -1) -> bytes:
    """A Claim by somebody who saw that term last."""
    envelope = Envelope(term=last_seen, seq=0, aggregate="", tenant="", at_ms=0, prev=bytes(16))
    return CODEC.encode_event(envelope, Claim(owner="o"))


def event(term: int, seq: int = 1, aggregate: str = "r_x") -> bytes:
    """An event of the owner of that term."""
    envelope = Envelope(term=term, seq=seq, aggregate=aggregate, tenant="t", at_ms=0, prev=bytes(16))
    return CODEC.encode_event(envelope, RunParked(since_turn=seq))


def accepted(values: list[bytes | None], *, term: int = -1, first: int = 0) -> list[int]:
    """Offsets of what a reader accepts; undecodable records are stepped over."""
    reader = TermReader(term=term, next_offset=first)
    actual: list[int] = []
    for offset, value in enumerate(values, start=first):
        try:
            read = reader.read(offset, value)
        except Undecodable:
            continue
        if read is not None:
            actual.append(read.offset)
    return actual


def test_a_claim_makes_its_own_offset_the_term() -> None:
    reader = TermReader()
    assert reader.read(0, claim()) is None
    assert (reader.term, reader.claims, reader.stale, reader.next_offset) == (0, 1, 0, 1)
    raw_event = reader.read(1, event(term=0))
    assert raw_event is not None
    assert (raw_event.term, raw_event.seq, raw_event.aggregate, raw_event.offset) == (0, 1, "r_x", 1)
    assert raw_event.decode().record == RunParked(since_turn=1)


def test_what_is_written_before_any_claim_is_stale() -> None:
    assert accepted([event(term=0), event(term=-1), claim(), event(term=2)]) == [1, 3]


def test_the_former_owner_is_stale_from_the_claim_on() -> None:
    reader = TermReader()
    for offset, value in enumerate([claim(), event(0), claim(), event(0), event(2), event(0)]):
        reader.read(offset, value)
    assert reader.stale == 2
    assert reader.claims == 2
    assert reader.term == 2


def test_two_zombies_and_the_owner_interleaved_give_one_history() -> None:
    values: list[bytes | None] = [claim(), event(0), claim(), event(0), event(2), claim(), event(0), event(5), event(2)]
    values += [event(5), event(0), event(5)]
    assert accepted(values) == [1, 4, 7, 9, 11]


def test_a_later_term_than_the_current_one_is_stale_too() -> None:
    assert accepted([claim(), event(term=9), event(term=0)]) == [2]


def test_a_reader_resumes_with_the_term_it_had() -> None:
    assert accepted([event(40), event(39), claim(), event(40), event(52)], term=40, first=50) == [50, 54]


def test_the_term_in_a_claim_is_only_told_and_never_taken() -> None:
    assert accepted([claim(last_seen=77), event(0), event(77)]) == [1]


@pytest.mark.parametrize("value", [None, b"", b"not framed", b"\0\0\0\0\1"])
def test_a_tombstone_or_garbage_raises_and_the_position_moves_on(value: bytes | None) -> None:
    reader = TermReader()
    reader.read(0, claim())
    with pytest.raises(Undecodable):
        reader.read(1, value)
    assert reader.next_offset == 2
    assert reader.term == 0
    assert reader.read(2, event(0)) is not None


@settings(deadline=None)
@given(st.lists(st.integers(min_value=-1, max_value=3), max_size=30))
def test_exactly_the_events_of_the_last_claim_before_them_are_accepted(steps: list[int]) -> None:
    """-1 claims; n appends under the n-th claim so far, by its owner or by a zombie."""
    values: list[bytes | None] = []
    terms: list[int] = []
    expected: list[int] = []
    for step in steps:
        if step < 0:
            terms.append(len(values))
            values.append(claim())
        elif terms:
            chosen = terms[step % len(terms)]
            if chosen == terms[-1]:
                expected.append(len(values))
            values.append(event(chosen))
    assert accepted(values) == expected


def raw(seq: int, aggregate: str = "r_x", offset: int = 9) -> RawEvent:
    return RawEvent(offset, 1, 0, seq, aggregate, b"")


def test_a_dense_sequence_passes_and_aggregates_do_not_mix() -> None:
    check = SequenceCheck()
    for seq, aggregate in [(1, "a"), (1, "b"), (2, "a"), (3, "a"), (2, "b")]:
        check.check(raw(seq, aggregate))


@pytest.mark.parametrize("seq", [1, 2, 4, 5, 0, -1])
def test_a_gap_or_a_repetition_is_raised_with_its_place(seq: int) -> None:
    check = SequenceCheck()
    check.check(raw(1))
    check.check(raw(2))
    with pytest.raises(BrokenSequence, match="r_x: expected seq 3 at offset 77") as caught:
        check.check(raw(seq, offset=77))
    assert (caught.value.aggregate, caught.value.expected, caught.value.actual) == ("r_x", 3, seq)


def test_after_a_broken_sequence_the_expected_one_still_passes() -> None:
    check = SequenceCheck()
    check.check(raw(1))
    with pytest.raises(BrokenSequence):
        check.check(raw(3))
    check.check(raw(2))


def test_an_aggregate_met_in_the_middle_or_forgotten_is_taken_as_it_is() -> None:
    check = SequenceCheck()
    check.check(raw(17))
    check.check(raw(18))
    check.forget("r_x")
    check.forget("never seen")
    check.check(raw(1))
