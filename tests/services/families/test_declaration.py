"""A wrong declaration is named at start."""

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from loomlog.services.core.families import CHANNEL_SET, Audit, Erasure, Query, Rebuild
from loomlog.services.families import FamilyProblem, registry
from loomlog.services.families.declaration import declaration_problem
from loomlog.services.families.registry import family_folders, load_families
from tests.services.entities import COUNTER

(INCREMENT,), (REMAINING,) = COUNTER.commands, COUNTER.queries


class OtherRecord:
    """A record without a schema."""

    SCHEMA = "loom.nothing.commands.Do"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"commands": [replace(INCREMENT, verb="ls")]}, "neither ls nor show"),
        ({"commands": [replace(INCREMENT, verb="Add-up")]}, "a word of a to z"),
        ({"commands": [INCREMENT, INCREMENT]}, "two operations are called increment"),
        ({"commands": [INCREMENT], "queries": [replace(REMAINING, verb="increment")]}, "two operations"),
        ({"commands": [replace(INCREMENT, scope="nobody")]}, "the scope 'nobody'"),
        ({"commands": [replace(INCREMENT, record=OtherRecord)]}, "there is no record loom.nothing.commands.Do"),
        ({"queries": [replace(REMAINING, parameters=("tenant",))]}, "the parameter tenant"),
        ({"scope": "nobody"}, "ls and show needs the scope 'nobody'"),
        ({"tool": "my tool"}, "a name of letters, digits and _"),
        (
            {"lifecycle": replace(COUNTER.lifecycle, audit=Audit.WHILE_KEPT)},
            "audit 'while kept': with the topics",
        ),
        ({"lifecycle": replace(COUNTER.lifecycle, rebuild=Rebuild.ROWS)}, "rebuild 'rows': with the topics 'entity'"),
        ({"topics": CHANNEL_SET}, "with the topics 'channel' it is 'while kept'"),
        ({"lifecycle": replace(COUNTER.lifecycle, erasure=Erasure.NOTHING)}, "increment has content: say KEYS"),
        ({"commands": []}, "no command of it has any: say NOTHING"),
    ],
)
def test_a_wrong_declaration_is_described(changes: dict[str, Any], text: str) -> None:
    assert text in declaration_problem(replace(COUNTER, **changes))


def test_a_right_declaration_has_no_problem() -> None:
    assert declaration_problem(COUNTER) == ""
    inner = replace(INCREMENT, scope="", in_transports=False)
    assert declaration_problem(replace(COUNTER, commands=[inner], scope="", tool="", queries=[])) == ""


def test_a_module_with_a_wrong_declaration_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("made_up_family")
    module.FAMILY = replace(COUNTER, tool="my tool")  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "made_up_family", module)
    with pytest.raises(FamilyProblem, match="the family counter: the tool 'my tool'"):
        load_families(["made_up_family"])
    module.FAMILY = COUNTER  # type: ignore[attr-defined]  # a module made here
    assert load_families(["made_up_family"]) == (COUNTER,)
    monkeypatch.setenv(registry.ENVIRONMENT, "made_up_family")
    registry.all_families.cache_clear()
    try:
        assert COUNTER in registry.all_families()
    finally:
        monkeypatch.delenv(registry.ENVIRONMENT)
        registry.all_families.cache_clear()
    assert "made_up_family" not in family_folders()


def test_a_question_without_parameters_is_right() -> None:
    query: Query[Any] = replace(REMAINING, parameters=())
    assert declaration_problem(replace(COUNTER, queries=[query])) == ""
