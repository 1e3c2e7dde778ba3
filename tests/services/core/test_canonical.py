from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.records import Value
from loomlog.services.core.canonical import StateCodec, UnreadableState


class Leaf(Value, frozen=True, kw_only=True):
    text: str
    raw: bytes = b""
    number: float | None = None


class Branch(Value, frozen=True, kw_only=True):
    leaves: tuple[Leaf, ...] = ()
    named: Mapping[str, int] | None = None
    last: Leaf | None = None
    is_open: bool = False


class Other(Value, frozen=True, kw_only=True):
    number: int


CODEC = StateCodec(Branch | Other)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
"""Without minus zero, which equals zero and is written otherwise; for what is not finite see below."""
LEAVES = st.builds(Leaf, text=st.text(max_size=8), raw=st.binary(max_size=8), number=st.none() | FLOATS)
BRANCHES = st.builds(
    Branch,
    leaves=st.lists(LEAVES, max_size=3).map(tuple),
    named=st.none() | st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
    last=st.none() | LEAVES,
    is_open=st.booleans(),
)


@given(BRANCHES)
def test_a_state_comes_back_as_it_was(state: Branch) -> None:
    assert CODEC.decode(CODEC.encode(state)) == state


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_is_not_finite_is_written_as_none(number: float) -> None:
    assert CODEC.decode(CODEC.encode(Branch(last=Leaf(text="a", number=number)))) == Branch(last=Leaf(text="a"))


@given(BRANCHES, BRANCHES)
def test_two_states_have_one_digest_exactly_when_they_are_equal(one: Branch, other: Branch) -> None:
    assert (CODEC.digest(one) == CODEC.digest(other)) == (one == other)


def test_the_order_of_a_mapping_does_not_matter() -> None:
    one, other = Branch(named={"a": 1, "b": 2}), Branch(named={"b": 2, "a": 1})
    assert CODEC.encode(one) == CODEC.encode(other)


@given(st.binary(max_size=60))
def test_random_bytes_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableState):
        CODEC.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"_":"Unknown"}',
        b'{"_":"Other"}',
        b'{"_":"Other","number":1,"more":2}',
        b'{"_":["Other"],"number":1}',
        b'{"number":1}',
        b'{"_":"Other","number":"1"}',
        b'{"_":"Other","number":null}',
        b'{"_":"Leaf","text":"only within a Branch"}',
        b'{"_":"Branch","leaves":[{"_":"Other","number":1}]}',
        b'{"_":"Branch","leaves":[{"text":"a","raw":"not base64!"}]}',
        b'{"_":"Branch","leaves":[{"text":"\xff"}]}',
        b'{"_":"Branch","named":{"a":[]}}',
        b'{"_":"Branch","leaves":' + b"[" * 100_000,
        b'[{"_":"Other","number":1}]',
        b"1",
    ],
)
def test_what_the_classes_cannot_make_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableState):
        CODEC.decode(data)


def test_only_classes_reachable_from_the_root_are_read() -> None:
    class Stranger(Value, frozen=True, kw_only=True):
        number: int

    with pytest.raises(UnreadableState, match="Stranger"):
        CODEC.decode(CODEC.encode(Stranger(number=1)))


def test_two_classes_of_one_name_cannot_be_told_apart_and_are_refused() -> None:
    def made() -> type:
        class Same(Value, frozen=True):
            number: int

        return Same

    with pytest.raises(TypeError, match="Same"):
        StateCodec(made() | made())
