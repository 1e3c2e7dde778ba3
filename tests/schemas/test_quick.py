from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from loomlog.schemas.quick import frozen_on_paper, quick

BOTH = pytest.mark.parametrize("faster", [quick, frozen_on_paper])
Faster = Callable[[type[Any]], type[Any]]


def of_three(faster: Faster) -> type[Any]:
    """A class with every kind of field: positional, keyword, default, default that is made."""

    @dataclass(frozen=True, slots=True)
    class Value:
        first: int
        name: str = "none"
        labels: dict[str, str] = field(default_factory=dict, kw_only=True)

    return faster(Value)


@BOTH
def test_it_is_made_as_the_dataclass_is(faster: Faster) -> None:
    value = of_three(faster)
    made = value(1)
    assert (made.first, made.name, made.labels) == (1, "none", {})
    made = value(1, "x", labels={"a": "b"})
    assert (made.first, made.name, made.labels) == (1, "x", {"a": "b"})
    assert made == value(first=1, name="x", labels={"a": "b"})
    assert repr(made).endswith("Value(first=1, name='x', labels={'a': 'b'})")


@BOTH
def test_a_default_that_is_made_is_made_for_each(faster: Faster) -> None:
    value = of_three(faster)
    assert value(1).labels is not value(1).labels


@BOTH
def test_what_it_is_not_made_of_is_an_error(faster: Faster) -> None:
    value = of_three(faster)
    for arguments, keywords in (((), {}), ((1, "x", {}), {}), ((1,), {"other": 2})):
        with pytest.raises(TypeError):
            value(*arguments, **keywords)


@BOTH
def test_it_is_compared_hashed_and_replaced_as_before(faster: Faster) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Point:
        x: int
        y: int = 0

    point = faster(Point)
    assert len({point(x=1), point(x=1), point(x=2)}) == 2
    assert replace(point(x=1), y=5) == point(x=1, y=5)


def test_a_quick_one_stays_frozen() -> None:
    made = of_three(quick)(1)
    with pytest.raises(FrozenInstanceError):
        made.first = 2


@BOTH
def test_a_class_that_it_does_not_suit_is_refused(faster: Faster) -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        x: int

        def __post_init__(self) -> None:
            assert self.x

    @dataclass(frozen=True)
    class Loose:
        x: int

    @dataclass(slots=True)
    class Open:
        x: int

    for unsuited, why in ((Checked, "checks"), (Loose, "slots"), (Open, "frozen")):
        with pytest.raises(AssertionError, match=why):
            faster(unsuited)
