"""Which queue an operation is for, and whether the caller may use it. Pure.

The declared scope decides on every path: a caller never names a scope, an operator only the user or the agent of it.
Agents are bound to the patterns of their definition: a name, or a name with a trailing `/*`.

Who may publish is decided by `may_publish` alone, for requests, tools, hooks, deliveries and events:

    publisher system    the runtime, and requests of administrators
    scope global        requests of administrators, unless the publisher is `any`; agents, deliveries and events too,
                        because a definition names the channel, or the log admits the producer
    other scopes        everybody of the tenant

Before: operations.py. After: nothing.
"""

from collections.abc import Sequence

from loomlog.connectors.configuration.channel_block import ANY, SYSTEM, SYSTEM_PREFIX
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.caller import (
    AGENT,
    GLOBAL,
    SHARED_TENANT,
    TENANT,
    USER,
    ChannelCaller,
    Declaration,
    Declarations,
    Origin,
    Queue,
)
from loomlog.services.families.channel.limits import NAME_CHARACTERS_MAX


def may_publish(declaration: Declaration, origin: Origin) -> bool:
    """Whether messages of an origin may be published to a channel, by its declaration alone."""
    if origin in (Origin.SYSTEM, Origin.ADMINISTRATOR):
        return True
    if is_system_channel(declaration):
        return False
    return origin is not Origin.MEMBER or declaration.scope != GLOBAL or declaration.publisher == ANY


def is_system_channel(declaration: Declaration) -> bool:
    """Whether only the runtime and administrators publish to a channel."""
    return declaration.publisher == SYSTEM or is_system_name(declaration.name)


def is_system_name(name: str) -> bool:
    """Whether a name is one of the channels of the system."""
    return name.startswith(SYSTEM_PREFIX)


def require_publisher(declaration: Declaration, origin: Origin) -> None:
    """Raise Refused unless messages of the origin may be published to the channel."""
    if may_publish(declaration, origin):
        return
    text = "it is seen by all tenants, so administrators publish to it, unless it is declared with publisher: any"
    if is_system_channel(declaration):
        text = "only the system and administrators publish to it"
    if origin is Origin.MEMBER:
        raise Refused("insufficient_scope", f"{declaration.name[:80]!r}: {text}", details={"scope": ADMIN})
    raise Refused("channel_not_granted", f"{declaration.name[:80]!r}: {text}")


def require_channel(declarations: Declarations, caller: ChannelCaller, name: str, *, publishes: bool) -> Declaration:
    """Return the declaration of a channel that the caller may publish to or read. Raises Refused."""
    patterns = caller.publish if publishes else caller.subscribe
    if patterns is not None and not is_granted(patterns, name):
        listed = ", ".join(patterns) or "none"
        what = "publish to" if publishes else "read"
        raise Refused("channel_not_granted", f"{name[:80]!r}: this agent may {what}: {listed}")
    declared = declarations.find(caller.tenant, name)
    if declared is None:
        raise Refused("channel_not_declared", f"there is no channel {name[:80]!r}: declare it first")
    if publishes:
        require_publisher(declared, caller.origin)
    return declared


def is_granted(patterns: Sequence[str], name: str) -> bool:
    """Whether a pattern is the name, or ends with `/*` and the name lies below."""
    if ".." in name or "//" in name:
        return False
    return any(
        pattern == name or (pattern.endswith("/*") and name.startswith(pattern[:-1]) and len(name) > len(pattern) - 1)
        for pattern in patterns
    )


def resolve_queue(declared: Declaration, caller: ChannelCaller, scope_id: str = "") -> Queue:
    """Return the queue of a channel for a caller. Raises Refused(channel_scope_invalid, insufficient_scope).

    `scope_id` is that of an operator; empty: the caller's own user or agent.
    """
    if caller.is_isolated and declared.scope not in (USER, AGENT):
        raise Refused(
            "insufficient_scope",
            f"{declared.name[:80]!r} has the scope {declared.scope}: this caller is confined to user and agent scope",
            details={"scope": ADMIN},
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
        raise Refused("channel_scope_invalid", f"{declared.name[:80]!r} has a queue for each {declared.scope}: {what}")
    if len(chosen) > NAME_CHARACTERS_MAX or not chosen.isprintable():
        raise Refused(
            "channel_scope_invalid",
            f"scope_id: expected 1 to {NAME_CHARACTERS_MAX} characters that can be printed, not {chosen[:60]!r}",
        )
    return Queue(caller.tenant, declared.name, declared.scope, chosen)
