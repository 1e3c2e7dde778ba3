"""Which queue an operation is for, and whether the caller may use it. Pure.

The declared scope decides on every path: a caller never names a scope, an operator only the user or the agent of it.
Agents are bound to the patterns of their definition: a name, or a name with a trailing `/*`.

Before: operations.py. After: nothing.
"""

from collections.abc import Sequence
from typing import Any

from loomlog.services.families.channel.caller import (
    AGENT,
    GLOBAL,
    SHARED_TENANT,
    TENANT,
    USER,
    ChannelCaller,
    Declaration,
    Declarations,
    Queue,
)
from loomlog.services.families.channel.limits import NAME_CHARACTERS_MAX
from loomlog.services.families.operation import OperationRefused

SYSTEM_PREFIX = "_system/"
SYSTEM = "system"


def require_channel(declarations: Declarations, caller: ChannelCaller, name: str, *, publishes: bool) -> Declaration:
    """Return the declaration of a channel that the caller may publish to or read. Raises OperationRefused."""
    patterns = caller.publish if publishes else caller.subscribe
    if patterns is not None and not is_granted(patterns, name):
        listed = ", ".join(patterns) or "none"
        what = "publish to" if publishes else "read"
        raise OperationRefused("channel_not_granted", f"{name[:80]!r}: this agent may {what}: {listed}")
    declared = declarations.find(caller.tenant, name)
    if declared is None:
        raise OperationRefused("channel_not_declared", f"there is no channel {name[:80]!r}: declare it first")
    is_agent = patterns is not None
    if publishes and is_agent and (name.startswith(SYSTEM_PREFIX) or declared.publisher == SYSTEM):
        raise OperationRefused("channel_not_granted", f"{name[:80]!r}: only the system publishes to this channel")
    return declared


def is_granted(patterns: Sequence[str], name: str) -> bool:
    """Whether a pattern is the name, or ends with `/*` and the name lies below."""
    if ".." in name or "//" in name:
        return False
    return any(
        pattern == name or (pattern.endswith("/*") and name.startswith(pattern[:-1]) and len(name) > len(pattern) - 1)
        for pattern in patterns
    )


def resolve_queue(declared: Declaration, caller: ChannelCaller, scope_id: Any = None) -> Queue:
    """Return the queue of a channel for a caller. Raises OperationRefused(channel_scope_invalid, insufficient_scope).

    `scope_id` is that of an operator; None or empty: the caller's own user or agent.
    """
    if scope_id is not None and not isinstance(scope_id, str):
        raise OperationRefused("channel_scope_invalid", f"scope_id: expected text, not {str(scope_id)[:60]}")
    if caller.is_isolated and declared.scope not in (USER, AGENT):
        raise OperationRefused(
            "insufficient_scope",
            f"{declared.name[:80]!r} has the scope {declared.scope}: this caller is confined to user and agent scope",
        )
    match declared.scope:
        case "global":
            return Queue(SHARED_TENANT, declared.name, GLOBAL)
        case "tenant":
            return Queue(caller.tenant, declared.name, TENANT)
        case "user":
            own, hint = caller.user_id, "start the run with a user_id"
        case _:
            own, hint = caller.agent, "name the agent"
    is_agent = caller.publish is not None or caller.subscribe is not None
    chosen = own if is_agent or not scope_id else scope_id
    if not chosen:
        what = hint if is_agent else f"name the {declared.scope} as scope_id"
        raise OperationRefused(
            "channel_scope_invalid", f"{declared.name[:80]!r} has a queue for each {declared.scope}: {what}"
        )
    if len(chosen) > NAME_CHARACTERS_MAX or not chosen.isprintable():
        raise OperationRefused(
            "channel_scope_invalid",
            f"scope_id: expected 1 to {NAME_CHARACTERS_MAX} characters that can be printed, not {chosen[:60]!r}",
        )
    return Queue(caller.tenant, declared.name, declared.scope, chosen)
