"""The families of this installation: every folder beside this file, and the modules that LOOMLOG_FAMILIES names.

A family is found by its folder, so that nothing else names it: adding the folder adds the family to every process, and
removing it takes it out of all of them. Before: a family's declaration. After: every shell builds a FamilySet.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from loomlog.services import families
from loomlog.services.core.endpoints import Endpoint
from loomlog.services.core.entity_operations import entity_operations, entity_tool
from loomlog.services.core.event_types import EventType
from loomlog.services.core.families import Family
from loomlog.services.core.operations import AnyOperation, Tool
from loomlog.services.families import FamilyProblem
from loomlog.services.families.declaration import declaration_problem

ENVIRONMENT = "LOOMLOG_FAMILIES"
"""Names of further modules with a declaration FAMILY, with commas between."""


def load_families(modules: Iterable[str]) -> tuple[Family[Any, Any, Any], ...]:
    """Return the declarations of these modules, sorted by name. Raises FamilyProblem."""
    families_by_name: dict[str, Family[Any, Any, Any]] = {}
    for name in modules:
        try:
            declared = getattr(import_module(name), "FAMILY", None)
        except ImportError as error:
            raise FamilyProblem(f"the family {name} cannot be imported: {error}") from error
        if not isinstance(declared, Family):
            raise FamilyProblem(f"{name} has no FAMILY: expected a Family of services/core/families.py")
        if not declared.name.isalpha() or not declared.name.islower() or not declared.name.isascii():
            raise FamilyProblem(f"{name}: a family's name has letters a to z only, not {declared.name!r}")
        if problem := declaration_problem(declared):
            raise FamilyProblem(f"the family {declared.name}: {problem}")
        if declared.name in families_by_name:
            raise FamilyProblem(f"two families are called {declared.name}")
        families_by_name[declared.name] = declared
    return tuple(families_by_name[name] for name in sorted(families_by_name))


@cache
def all_families() -> tuple[Family[Any, Any, Any], ...]:
    """Return the families of this process. Raises FamilyProblem."""
    named = [name.strip() for name in os.environ.get(ENVIRONMENT, "").split(",") if name.strip()]
    return load_families([*family_folders(), *named])


def families_of(topic_set: str) -> tuple[Family[Any, Any, Any], ...]:
    """Return the families of this process that live in a topic set. Raises FamilyProblem."""
    return tuple(family for family in all_families() if family.topics == topic_set)


def all_operations() -> tuple[AnyOperation, ...]:
    """Return the operations of the families of this process, by family. Raises FamilyProblem."""
    return operations_of(all_families())


def operations_by_name() -> Mapping[str, AnyOperation]:
    """Return the operations of the families of this process, for those who know some of them by name. It takes
    milliseconds: keep what it returns. Raises FamilyProblem.
    """
    return {operation.name: operation for operation in all_operations()}


def operations_of(families: Iterable[Family[Any, Any, Any]]) -> tuple[AnyOperation, ...]:
    """Return the operations of families: those that they declare, then those of their commands and queries."""
    return tuple(one for family in families for one in (*_declared(family)[0], *entity_operations(family)))


def all_endpoints() -> tuple[Endpoint, ...]:
    """Return the endpoints of the families of this process, by family. Raises FamilyProblem."""
    return tuple(one for family in all_families() for one in family.endpoints)


def all_event_types() -> tuple[EventType, ...]:
    """Return the types of events of the families of this process, by family. Raises FamilyProblem."""
    return tuple(one for family in all_families() for one in family.event_types)


def all_tools() -> tuple[Tool, ...]:
    """Return the tools of agents that are made of operations. Raises FamilyProblem."""
    return tools_of(all_families())


def tools_of(families: Iterable[Family[Any, Any, Any]]) -> tuple[Tool, ...]:
    """Return the tools of families."""
    return tuple(
        tool for family in families for tool in (*_declared(family)[1], *([entity_tool(family)] if family.tool else []))
    )


def _declared(family: Family[Any, Any, Any]) -> tuple[Sequence[AnyOperation], Sequence[Tool]]:
    """Return the operations and tools that a family declares."""
    if not family.api:
        return family.operations, family.tools
    api = import_module(family.api)
    return api.OPERATIONS, api.TOOLS


def family_tools() -> frozenset[str]:
    """Return the names of the tools that the families of this process bring. Raises FamilyProblem."""
    return frozenset(family.tool for family in all_families() if family.tool)


def family_folders() -> list[str]:
    """Return the modules of the families in the folders beside this file: those of every installation."""
    folders = [f"{families.__name__}.{one.name}" for one in iter_modules(families.__path__) if one.ispkg]
    return [name for name in folders if hasattr(import_module(name), "FAMILY")]
