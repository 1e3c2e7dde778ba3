"""Frozen objects made as fast as others.

A frozen dataclass sets each field through `object.__setattr__`: 2.1 microseconds for the 16 fields of a ModelReplied.
Its open twin is a class with the same slots and nothing else. An object of it is filled by plain assignment and then
becomes one of the frozen class, which Python allows because both are laid out alike: 0.16 microseconds, and what comes
out cannot be told from what the class itself makes. For the few places that make an object for every event; everywhere
else call the class.

Not chosen: the slots' own `__set__` (0.6 microseconds), dropping `frozen` (a shared event must not change).
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, ParamSpec, TypeVar

Fields = ParamSpec("Fields")
Made = TypeVar("Made")


@cache
def open_twin(record: Any) -> type[Any]:
    """The class to fill in place of a frozen slotted dataclass; set `__class__` to that when all fields are there."""
    assert record.__bases__ == (object,), f"{record}: has a base, whose slots would be missing"
    assert "__slots__" in vars(record), f"{record}: has no slots"
    assert not hasattr(record, "__post_init__"), f"{record}: would be made without its __post_init__"
    return type(f"Open{record.__name__}", (), {"__slots__": record.__slots__})


def maker(record: Callable[Fields, Made]) -> Callable[Fields, Made]:
    """A function that does what calling this frozen slotted dataclass does, with the same arguments."""
    made: Any = record
    names = [field.name for field in fields(made)]
    known: dict[str, Any] = {"Open": open_twin(made), "Frozen": made}
    arguments = ["*"] if all(field.kw_only for field in fields(made)) else []
    for field in fields(made):
        assert field.default_factory is MISSING, f"{made}.{field.name}: a default that is made anew is not supported"
        known[f"default_{field.name}"] = field.default
        arguments.append(field.name if field.default is MISSING else f"{field.name}=default_{field.name}")
    lines = [f"def make({', '.join(arguments)}):", "    made = Open()"]
    lines += [f"    made.{name} = {name}" for name in names]
    lines += ["    made.__class__ = Frozen", "    return made"]
    exec("\n".join(lines), known)  # noqa: S102  of a class of ours
    make: Callable[Fields, Made] = known["make"]
    return make
