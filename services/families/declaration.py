"""Checks of a declaration: what every transport relies on, so that a mistake shows at start and names the family.

Before: registry.py. After: the routes, commands and tools that are made from the declaration.
"""

import re
from collections.abc import Iterator
from typing import Any

from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.command_fields import field_names
from loomlog.services.core.families import ENTITY_SET, TOPIC_SETS, Audit, Erasure, Family, Reads, Rebuild
from loomlog.services.stream.encryption.content_fields import has_content

VERB = re.compile(r"[a-z][a-z_]{0,39}\Z")
READ_VERBS = frozenset({"ls", "show"})
"""Operations that every family has."""
OPERATION = "op"
"""Argument of the tool that names the operation."""
RESERVED_PARAMETERS = frozenset({"id", "tenant", "position", OPERATION})
"""Parameters that every query has."""
TOOL = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
"""A name that all providers of models accept."""


def declaration_problem(family: Family[Any, Any, Any]) -> str:
    """Return what is wrong with a declaration; empty when nothing is."""
    return next(_problems(family), "")


def _problems(family: Family[Any, Any, Any]) -> Iterator[str]:
    verbs = [row.verb for row in family.commands] + [query.verb for query in family.queries]
    for verb in verbs:
        if not VERB.match(verb) or verb in READ_VERBS:
            yield f"the verb {verb!r} must be a word of a to z and _, and neither ls nor show"
        if verbs.count(verb) > 1:
            yield f"two operations are called {verb}"
    if family.tool and not TOOL.match(family.tool):
        yield f"the tool {family.tool!r} must be a name of letters, digits and _"
    if family.topics not in TOPIC_SETS:
        yield f"topics is {family.topics!r}: expected one of {', '.join(TOPIC_SETS)}"
    if family.reads is Reads.REPLICATED and family.topics != ENTITY_SET:
        yield f"it is REPLICATED: every process folds such families from the topics {ENTITY_SET!r}, so keep it there"
    scopes = [(row.verb, row.scope) for row in family.commands if row.in_transports]
    scopes += [(query.verb, query.scope) for query in family.queries]
    scopes += [("ls and show", family.scope)] if family.scope else []
    for verb, scope in scopes:
        if scope not in SCOPES:
            yield f"{verb} needs the scope {scope!r}, which is none of {', '.join(sorted(SCOPES))}"
    for query in family.queries:
        if reserved := RESERVED_PARAMETERS.intersection(query.parameters):
            yield f"{query.verb} has the parameter {min(reserved)}, which every query has"
    for row in family.commands:
        try:
            names = field_names(row.record)
        except LookupError as error:
            yield f"{row.verb}: {error}"
            continue
        if family.tool and row.in_tool and OPERATION in names:
            yield f"{row.verb} has a field {OPERATION!r}, which names the operation of a tool"
    yield from _lifecycle_problems(family)


def _lifecycle_problems(family: Family[Any, Any, Any]) -> Iterator[str]:
    """What a lifecycle says against what the records and the topics of the family are."""
    lifecycle = family.lifecycle
    kept = family.topics == ENTITY_SET
    for name, declared, expected in (
        ("audit", lifecycle.audit, Audit.WHOLE if kept else Audit.WHILE_KEPT),
        ("rebuild", lifecycle.rebuild, Rebuild.EVENTS if kept else Rebuild.ROWS),
    ):
        if declared is not expected:
            topics = f"with the topics {family.topics!r} it is {expected.value!r}"
            yield f"its lifecycle says {name} {declared.value!r}: {topics}"
    with_content = [row.verb for row in family.commands if has_content(row.record)]
    if with_content and lifecycle.erasure is Erasure.NOTHING:
        yield f"its lifecycle says that an erasure changes nothing, and {with_content[0]} has content: say KEYS"
    if not with_content and lifecycle.erasure is Erasure.KEYS:
        yield "its lifecycle says that keys encrypt its content, and no command of it has any: say NOTHING"
