"""The families that the contract is checked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loomlog.schemas.generated.counter_commands import IncrementCounter, ResetCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.records import replace
from loomlog.services.core.families import Family
from loomlog.services.families.registry import all_families
from tests.services.families.budget.given import lost, release, reserve, settle, tenant_limit, user_limit
from tests.services.families.contract import samples
from tests.services.families.contract.commands import plain_commands
from tests.services.stream.entities import counters

MakeExamples = Callable[[CommandEnvelope], Sequence[Any]]
"""Makes commands with that envelope; their ids are replaced."""

_EXAMPLES: dict[str, MakeExamples] = {}


def register_examples(family: str, examples: MakeExamples) -> None:
    """Add commands of a family that a generator would not find."""
    _EXAMPLES[family] = examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A family, with the others of its installation."""

    name: str
    family: Family[Any, Any, Any]
    families: tuple[Family[Any, Any, Any], ...]
    """All families of the process: what it sends may be for another one."""

    def examples(self, envelope: CommandEnvelope) -> list[Any]:
        """A short script of commands: those that are registered, or one of each kind, twice."""
        made = _EXAMPLES.get(self.name) or _EXAMPLES.get(self.family.name)
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


def _budgets(envelope: CommandEnvelope) -> list[Any]:
    commands = [
        tenant_limit(hard_micros=100, currency="USD"),
        reserve("r:1.1", 50, 60),
        reserve("r:2.1", 50, 60),
        settle("r:1.1", 20, 10),
        reserve("r:2.1", 50, 60),
        lost("r:2.1"),
        settle("r:2.1", 30, 20),
        reserve("r:3.1", 5, 5),
        release("r:3.1"),
        user_limit(),
    ]
    return [replace(command, envelope=envelope) for command in commands]


register_examples("budget", _budgets)
register_examples("counter", _counters)
register_examples("notebook", _notebooks)
register_examples("notebook, replicated", _notebooks)


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
