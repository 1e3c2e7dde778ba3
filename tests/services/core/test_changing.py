from dataclasses import FrozenInstanceError, dataclass, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomlog.services.core.changing import changed
from tests.services.core.run.given import at_tools, begun, parked


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 0
    name: str = ""


@settings(deadline=None)
@given(
    st.builds(Point, x=st.integers(), y=st.integers(), name=st.text()),
    st.fixed_dictionaries({}, optional={"x": st.integers(), "y": st.integers(), "name": st.text()}),
)
def test_it_gives_what_replace_gives(point: Point, changes: dict[str, object]) -> None:
    before = replace(point)
    assert changed(point, **changes) == replace(point, **changes)  # type: ignore[arg-type]  # any of the fields
    assert point == before


@pytest.mark.parametrize(
    "state", [begun().state, at_tools("A").state, parked().state], ids=["model", "tools", "parked"]
)
def test_every_field_of_a_state_is_copied(state: object) -> None:
    facts = state.facts  # type: ignore[attr-defined]  # these have facts
    for field in fields(facts):
        assert changed(facts, **{field.name: "new"}) == replace(facts, **{field.name: "new"})


def test_the_copy_is_frozen_too() -> None:
    copy = changed(Point(x=1), x=2)
    assert type(copy) is Point
    with pytest.raises(FrozenInstanceError):
        copy.y = 3  # type: ignore[misc]  # that is the point


def test_a_field_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError):
        changed(Point(x=1), z=2)  # type: ignore[call-arg]  # that is the point


def test_a_class_that_checks_what_it_is_made_of_is_not_copied_past_its_checks() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        x: int
        y: int

        def __post_init__(self) -> None:
            assert self.x < self.y

    with pytest.raises(AssertionError, match="Checked"):
        changed(Checked(1, 2), x=3)
