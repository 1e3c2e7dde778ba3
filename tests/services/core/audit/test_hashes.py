from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.records import replace
from loomlog.services.core.audit.hashes import START_CHAIN, extend_chain, hash_record
from tests.services.core.audit.written import Record

BYTES = st.one_of(st.none(), st.binary(max_size=8))
RECORDS = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 3),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=2), st.binary(max_size=2)), max_size=3).map(tuple),
)


@given(RECORDS, RECORDS)
def test_two_records_have_one_hash_only_when_they_are_the_same(one: Record, other: Record):
    assert (hash_record(one).record_hash == hash_record(other).record_hash) == (one == other)


def test_no_two_ways_to_cut_the_same_bytes_give_one_hash():
    record = Record(offset=0, timestamp=1, key=b"ab", value=b"c", headers=(("x", b"y"),))
    for other in (
        replace(record, key=b"a", value=b"bc"),
        replace(record, headers=(("xy", b""),)),
        replace(record, headers=(("", b"xy"),)),
        replace(record, key=None, value=b"abc"),
        replace(record, value=None),
        replace(record, value=b""),
    ):
        assert hash_record(other).record_hash != hash_record(record).record_hash


def test_a_header_without_a_value_is_hashed_and_is_another_than_an_empty_one():
    null = Record(offset=0, timestamp=1, key=b"k", value=b"v", headers=(("x", None),))  # type: ignore[arg-type]
    assert hash_record(null).record_hash != hash_record(replace(null, headers=(("x", b""),))).record_hash


def test_the_chain_depends_on_offset_and_order():
    one, two = bytes(32), bytes([1]) * 32
    assert extend_chain(extend_chain(START_CHAIN, 0, one), 1, two) != extend_chain(
        extend_chain(START_CHAIN, 0, two), 1, one
    )
    assert extend_chain(START_CHAIN, 0, one) != extend_chain(START_CHAIN, 1, one)
