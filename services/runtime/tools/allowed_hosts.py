"""The hosts a run may reach where callers choose them instead of narrowing the operator's list.

The operator decides that (LOOMLOG_HTTP_CALLER_AUTHORITATIVE). Two things a caller still cannot choose: this machine
itself, under any of its names, and everything at once: `*` expands to the operator's list only, because "everything"
would include what the operator has opened of the private network.

Before: tool_calls.py. After: connectors/tools/hosts.py, for each request and each redirect.
"""

from loomlog.connectors.tools.hosts import ANY_PUBLIC, EXACT_PREFIX, is_loopback_host


def resolve_caller_hosts(operator: tuple[str, ...], caller: tuple[str, ...]) -> tuple[str, ...]:
    """Return the hosts of a caller who names some."""
    hosts: list[str] = []
    for entry in caller:
        if entry.strip() == ANY_PUBLIC:
            hosts += operator
        elif not is_loopback_host(entry.removeprefix(EXACT_PREFIX)):
            hosts.append(entry)
    return tuple(dict.fromkeys(hosts))
