"""The text of a position: one form, there and back, and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.position import Position

TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True)
POSITIONS = st.builds(Position, topic=TOPICS, partition=st.integers(0, 10**9 - 1), offset=st.integers(0, 10**18 - 1))


@given(POSITIONS)
def test_a_position_reads_back_from_its_text(position: Position) -> None:
    assert Position.parse(str(position)) == position


@given(st.text())
def test_any_text_is_a_position_in_its_one_form_or_is_refused(text: str) -> None:
    try:
        position = Position.parse(text)
    except ValueError:
        return
    assert str(position) == text


@given(POSITIONS, st.sampled_from(["\n", " ", ",", "0 ", "x"]), st.booleans())
def test_a_text_around_a_position_is_refused(position: Position, more: str, before: bool) -> None:
    text = f"{position}{more}" if not before else f"{more.strip('x0') or '/'}{position}"
    with pytest.raises(ValueError, match="is not a position"):
        Position.parse(text)


def test_the_text_is_topic_partition_offset() -> None:
    assert str(Position(topic="acme.run.events", partition=3, offset=1042)) == "acme.run.events/3:1042"


@pytest.mark.parametrize(
    "text",
    ["", "3:12", "t/3", "t/x:1", "t/1:-2", "t:1:2", "t/1/2", "t/1:2:3", "t/01:2", "t/1:02", "t/1:²", "é/1:2", "/1:2",
     "t/1:2\n", "t/1:" + "9" * 19, "t" * 250 + "/1:2"],
)  # fmt: skip
def test_a_malformed_position_is_refused_with_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("expected <topic>/<partition>:<offset>")):
        Position.parse(text)
