"""The families that the contract is checked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import Family
from loomlog.services.families.registry import all_families
from tests.services.families.contract import samples
from tests.services.families.contract.commands import plain_commands
from tests.services.stream.entities import counters

MakeExamples = Callable[[CommandEnvelope], Sequence[Any]]
"""Makes commands with that envelope; their ids are replaced."""

TESTS = "tests.services.families"


def registered_examples(family: str) -> MakeExamples | None:
    """Return `examples` of tests/services/families/<family>/examples.py, if there is such a file."""
    if family in OWN_EXAMPLES:
        return OWN_EXAMPLES[family]
    name = f"{TESTS}.{family}"
    if find_spec(name) is None or find_spec(f"{name}.examples") is None:
        return None
    made: MakeExamples = import_module(f"{name}.examples").examples
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A family, with the others of its installation."""

    name: str
    family: Family[Any, Any, Any]
    families: tuple[Family[Any, Any, Any], ...]
    """All families of the process: what it sends may be for another one."""

    def examples(self, envelope: CommandEnvelope) -> list[Any]:
        """A short script of commands: those that are registered, or one of each kind, twice."""
        made = registered_examples(self.name if self.name in OWN_EXAMPLES else self.family.name)
        return list(made(envelope)) if made is not None else plain_commands(self.family, envelope) * 2


def _counters(envelope: CommandEnvelope) -> list[Any]:
    def increment(name: str, by: int, **fields: Any) -> IncrementCounter:
        return IncrementCounter(envelope=envelope, name=name, by=by, **fields)

    return [
        increment("hits", 2, also="misses"),
        increment("misses", 3),
        increment("hits", 0),
        ResetCounter(envelope=envelope, name="empty"),
        increment("hits", 4, also="far", reset_after_ms=60_000),
    ]


def _notebooks(envelope: CommandEnvelope) -> list[Any]:
    def increment(by: int, note: str = "", **fields: Any) -> IncrementCounter:
        return IncrementCounter(envelope=envelope, name="notes", by=by, also=note, **fields)

    return [increment(6, "first"), increment(2), increment(1), increment(6, "second", reset_after_ms=60_000)]


OWN_EXAMPLES: dict[str, MakeExamples] = {
    "counter": _counters,
    "notebook": _notebooks,
    "notebook, replicated": _notebooks,
}
"""Of families that have no folder of tests."""


def _cases() -> list[Case]:
    installed = tuple(family for family in all_families() if family.name != "counter")
    together = (*installed, counters.FAMILY)
    return [
        *(Case(name=family.name, family=family, families=together) for family in together),
        Case(name="notebook", family=samples.indexed, families=(samples.indexed,)),
        Case(name="notebook, replicated", family=samples.replicated, families=(samples.replicated,)),
    ]


CASES = _cases()
BY_NAME = {case.name: case for case in CASES}
