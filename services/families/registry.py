"""The families of this installation: every folder beside this file, and the modules that LOOMLOG_FAMILIES names.

A family is found by its folder, so that nothing else names it: adding the folder adds the family to every process, and
removing it takes it out of all of them. Before: a family's declaration. After: every shell builds a FamilySet.
"""

import os
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from loomlog.services import families
from loomlog.services.core.families import Family

ENVIRONMENT = "LOOMLOG_FAMILIES"
"""Names of further modules with a declaration FAMILY, with commas between."""


class FamilyProblem(Exception):
    """A family that cannot be used; the text says which and why."""


def load_families(modules: Iterable[str]) -> tuple[Family[Any, Any, Any], ...]:
    """Return the declarations of these modules, sorted by name. Raises FamilyProblem."""
    found: dict[str, Family[Any, Any, Any]] = {}
    for name in modules:
        try:
            declared = getattr(import_module(name), "FAMILY", None)
        except ImportError as error:
            raise FamilyProblem(f"the family {name} cannot be imported: {error}") from error
        if not isinstance(declared, Family):
            raise FamilyProblem(f"{name} has no FAMILY: expected a Family of services/core/families.py")
        if not declared.name.isalpha() or not declared.name.islower() or not declared.name.isascii():
            raise FamilyProblem(f"{name}: a family's name has letters a to z only, not {declared.name!r}")
        if declared.name in found:
            raise FamilyProblem(f"two families are called {declared.name}")
        found[declared.name] = declared
    return tuple(found[name] for name in sorted(found))


@cache
def all_families() -> tuple[Family[Any, Any, Any], ...]:
    """Return the families of this process. Raises FamilyProblem."""
    folders = [f"{families.__name__}.{one.name}" for one in iter_modules(families.__path__) if one.ispkg]
    folders = [name for name in folders if hasattr(import_module(name), "FAMILY")]
    named = [name.strip() for name in os.environ.get(ENVIRONMENT, "").split(",") if name.strip()]
    return load_families([*folders, *named])
