"""The hosts a run may reach where callers choose them instead of narrowing the operator's list.

That is the operator's decision (LOOMLOG_HTTP_CALLER_AUTHORITATIVE). Two things a caller cannot choose all the same:
this machine itself, by whichever of its names, and everything at once: `*` gives what the operator's list has, because
what the operator has opened of his own network would be part of everything.

Before: tool_calls.py. After: connectors/tools/hosts.py, for each request and each redirect.
"""

from loomlog.connectors.tools.hosts import ANY_PUBLIC, EXACT_PREFIX, is_loopback_host


def resolve_caller_hosts(operator: tuple[str, ...], caller: tuple[str, ...]) -> tuple[str, ...]:
    """The hosts of a caller who names some."""
    found: list[str] = []
    for entry in caller:
        if entry.strip() == ANY_PUBLIC:
            found += operator
        elif not is_loopback_host(entry.removeprefix(EXACT_PREFIX)):
            found.append(entry)
    return tuple(dict.fromkeys(found))
