"""Scopes and keys of memory, as commands name them: `user ada KEY`, `agent helper KEY`, `tenant KEY`.

The scope of the tenant has no id. It is left out, or written as `-`, which is also what it is in the path of a route.

Before: reads.py, changes.py. After: services/cli/http/api.py.
"""

import shlex
from collections.abc import Sequence

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory.author import SCOPES, TENANT, Scope, named_scope
from loomlog.services.families.memory.decide import key_problem

PATH = "/v1/_memory"
NO_ID = "-"
"""Id of the tenant's scope on a command line and in a path."""


def check_scope_name(name: str) -> str:
    """Return the name of a scope. Raises UsageError."""
    if name not in SCOPES:
        raise UsageError(f"SCOPE is {name[:60]!r}{did_you_mean(name, SCOPES)}: expected one of {', '.join(SCOPES)}.")
    return name


def scope_named(name: str, scope_id: str) -> Scope:
    """Return a scope; its tenant is empty. Raises UsageError."""
    check_scope_name(name)
    if name == TENANT and scope_id not in ("", NO_ID):
        raise UsageError(f"The tenant has one scope, which has no id: leave {scope_id[:60]!r} out.")
    try:
        return named_scope("", name, scope_id)
    except Refused as refused:
        raise UsageError(f"{refused}.") from refused


def parse_words(words: Sequence[str], *following: str) -> tuple[Scope, Sequence[str]]:
    """Return the scope that words begin with, and those after it, which are as many as `following` names.

    The first of `following` is a key. Raises UsageError.
    """
    name, *rest = words
    check_scope_name(name)
    has_id = len(rest) == len(following) + 1
    if not has_id and (name != TENANT or len(rest) != len(following)):
        expected = " ".join((name, *(() if name == TENANT else ("SCOPE_ID",)), *following))
        raise UsageError(f"Expected {expected}, not {' '.join(words)[:120]}. Words with spaces need quotes.")
    scope = scope_named(name, rest.pop(0) if has_id else "")
    if rest and (problem := key_problem(rest[0])):
        raise UsageError(f"{problem}.")
    return scope, rest


def scope_path(scope: Scope) -> str:
    """Return the path of a scope."""
    return f"{PATH}/scopes/{scope.name}/{quote_segment(scope.id or NO_ID)}"


def key_path(scope: Scope, key: str) -> str:
    """Return the path of a key."""
    return f"{scope_path(scope)}/keys/{quote_segment(key)}"


def scope_label(scope: Scope) -> str:
    """Format a scope as `user ada`, or `tenant`."""
    return f"{scope.name} {scope.id}".rstrip()


def hint(verb: str, scope: Scope, *words: str, tenant: str = "") -> str:
    """Return a command line of `loomlog memory` that can be copied."""
    options = ("--tenant", tenant) if tenant else ()
    return shlex.join(("loomlog", "memory", verb, scope.name, *((scope.id,) if scope.id else ()), *words, *options))
