from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from loomlog.schemas.making import maker


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    name: str
    size: int = 3
    parts: tuple[str, ...] = ()


make = maker(Thing)


def test_what_is_made_is_what_the_class_makes() -> None:
    made = make(name="a", parts=("b",))
    assert made == Thing(name="a", parts=("b",))
    assert (type(made), hash(made), repr(made)) == (Thing, hash(Thing(name="a", parts=("b",))), repr(made))
    assert replace(made, size=4) == Thing(name="a", size=4, parts=("b",))


def test_what_is_made_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make(name="a").size = 4  # type: ignore[misc]  # the point of the test


def test_arguments_are_those_of_the_class() -> None:
    with pytest.raises(TypeError, match="name"):
        make()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        make("a")  # type: ignore[misc]


def test_a_class_that_checks_itself_is_not_made_past_its_check() -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        size: int

        def __post_init__(self) -> None:
            assert self.size > 0

    with pytest.raises(AssertionError, match="__post_init__"):
        maker(Checked)
