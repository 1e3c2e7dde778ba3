"""The orders of grants: what one value of a field gives that another does not. Pure.

Where patterns meet, an order is on the safe side: what is not known to be covered is not.

Before: attenuation.py. After: connectors/definitions/tool_grants.py, connectors/tools/skill_patterns.py, hosts.py.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loomlog.connectors.configuration.agent_block import EFFORTS, TIERS, AgentBlock, Candidate, CoreBlockDeclaration
from loomlog.connectors.configuration.field_classes import Order
from loomlog.connectors.configuration.resolve import (
    CONTEXT_TOOL,
    DEFAULT_BLOCK_SCOPE,
    DEFAULT_VOLUME,
    SKILL_TOOL,
    interruption_access,
    may_consolidate,
)
from loomlog.connectors.configuration.routing import CODE_DRIVER, CODE_MODEL
from loomlog.connectors.configuration.trigger_block import CompletionHook
from loomlog.connectors.definitions import covers
from loomlog.connectors.mcp.tool_list import visible_name as mcp_tool_name
from loomlog.connectors.tools.hosts import is_host_allowed
from loomlog.connectors.tools.skill_patterns import EVERY_NAME, deny_everything, parse_patterns

ALL, ANY, SELF, DESCENDANTS, NAMED = "*", "any", "self", "descendants", "named:"
SUBMIT, SUBMIT_ANY = "submit_", "submit_any"
HTTP_TOOL = "HTTP"
OPERATORS_CHOICE = "the operator's choice"
_CREDENTIAL = re.compile(r"\$cred:[A-Za-z0-9_-]*")
_WILD = re.compile(r"[*?]")
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value of a field, and the definition that has it. `block` None: the value is all that counts."""

    value: Any
    name: str = ""
    """Name of the definition."""
    block: Any = None


Names = tuple[str, ...]


def beyond(order: Order, requested: Side, holder: Side) -> Names:
    """Return what is requested and not held, for people; nothing when the holder has it all."""
    return tuple(dict.fromkeys(_BEYOND[order](requested, holder)))


def list_shown(order: Order, holder: Side) -> str:
    """Return what a holder has, for people."""
    listed = tuple(_SHOWN.get(order, _names_of)(holder))
    return ", ".join(listed[:SHOWN_MAX]) + (", ..." if len(listed) > SHOWN_MAX else "") or "none"


# --- names -----------------------------------------------------------------------------------------------------------


def _names_of(side: Side) -> Names:
    """Return the names that a value has."""
    value = side.value
    if value is None or value == "":
        return ()
    if isinstance(value, str | bool):
        return (str(value),)
    return tuple(map(str, value))


def _beyond_names(requested: Side, holder: Side, names_of: Callable[[Side], Iterable[str]] = _names_of) -> Names:
    held = set(names_of(holder))
    return () if ALL in held else tuple(name for name in names_of(requested) if name not in held)


def _beyond_same(requested: Side, holder: Side) -> Names:
    return () if requested.value == holder.value else (str(requested.value) or "none",)


def _beyond_rules(requested: Side, holder: Side) -> Names:
    """The first rule that matches decides, so those of the holder must come first."""
    kept = requested.value.rules[: len(holder.value.rules)]
    return () if kept == holder.value.rules else ("other rules for its calls",)


def _shown_rules(holder: Side) -> Names:
    return tuple(str(rule["name"]) for rule in holder.value.rules)


def _beyond_switch(requested: Side, holder: Side) -> Names:
    return ("true",) if requested.value and not holder.value else ()


def _beyond_choice(requested: Side, holder: Side) -> Names:
    if holder.value and not requested.value:
        return (OPERATORS_CHOICE,)
    return _beyond_names(requested, holder)


def _beyond_unset(requested: Side, holder: Side) -> Names:
    is_set = requested.value not in (None, "", (), {}, [])
    return ("a value of its own",) if is_set and requested.value != holder.value else ()


def _beyond_user(requested: Side, holder: Side) -> Names:
    # A template has the user "" and is for each user; no user at all is None.
    return () if requested.value in ("", holder.value) or holder.value == "" else (str(requested.value),)


def _volumes(side: Side) -> Names:
    return tuple(side.value) or (DEFAULT_VOLUME,)


def _beyond_volumes(requested: Side, holder: Side) -> Names:
    return _beyond_names(requested, holder, _volumes)


# --- patterns --------------------------------------------------------------------------------------------------------


def _tools(side: Side) -> Names:
    """Return the tools of a value, with the one that an agent need not list."""
    agent = side.block
    if not isinstance(agent, AgentBlock):
        return tuple(side.value)
    own = () if agent.disable_context else (CONTEXT_TOOL,)
    return tuple(dict.fromkeys((*agent.tools, *own)))


def _beyond_tools(requested: Side, holder: Side) -> Names:
    # An agent that may use some skill has the tool for it, as soon as there are skills.
    has_skills = isinstance(holder.block, AgentBlock) and not deny_everything(holder.block.skills)
    return covers((*_tools(holder), *((SKILL_TOOL,) if has_skills else ())), _tools(requested))


def _beyond_channels(requested: Side, holder: Side) -> Names:
    """A name, or a name with `/*` at its end for all below (services/families/channel/access.py)."""
    patterns = tuple(holder.value)
    return tuple(
        one
        for one in _names_of(requested)
        if not any(
            one == pattern or (pattern.endswith("/*") and one.startswith(pattern[:-1]) and ".." not in one)
            for pattern in patterns
        )
    )


def _beyond_skills(requested: Side, holder: Side) -> Names:
    entries, held = tuple(requested.value), tuple(holder.value)
    if deny_everything(entries):
        return ()
    added, removed = _signed(entries)
    held_added, held_removed = _signed(held)
    everything = not added or any(one in EVERY_NAME for one in added)
    if everything:
        if held_added and not any(one in EVERY_NAME for one in held_added):
            return ("every skill",)
        return tuple(f"{one} is not excluded" for one in held_removed if one not in removed)
    try:
        allows = parse_patterns(held).allows
    except ValueError:  # a holder whose patterns mean nothing has no skill
        return added
    is_bounded = set(held_removed) <= set(removed)
    all_added = not held_added or any(one in EVERY_NAME for one in held_added)
    return tuple(
        one
        for one in added
        if not ((one in held_added or all_added) and is_bounded) and (_WILD.search(one) or not allows(one))
    )


def _signed(entries: Iterable[str]) -> tuple[Names, Names]:
    """Return the entries that add and those that take away, without their signs."""
    added = tuple(one.removeprefix("+") for one in entries if not one.startswith("-"))
    return added, tuple(one[1:] for one in entries if one.startswith("-"))


def _beyond_authorship(requested: Side, holder: Side) -> Names:
    """self < descendants < any, and named:<name> for one more. `self` is the name of the agent that has it."""
    held = set(holder.value)
    if ANY in held:
        held |= {SELF, DESCENDANTS}
        return tuple(one for one in requested.value if one not in held and not one.startswith(NAMED))
    own = {f"{NAMED}{holder.name}"} if SELF in held else set()
    names = {one for one in held if one.startswith(NAMED)} | own
    if requested.name != holder.name:
        held.discard(SELF)  # another one's
    if f"{NAMED}{requested.name}" in names or (DESCENDANTS in held and requested.name != holder.name):
        held.add(SELF)
    return tuple(one for one in requested.value if one not in held | names)


def _beyond_evaluation(requested: Side, holder: Side) -> Names:
    missing = _beyond_names(requested, holder)
    return tuple(one for one in missing if not (SUBMIT_ANY in holder.value and one.startswith(SUBMIT)))


def _beyond_host(requested: Side, holder: Side) -> Names:
    """An address below the hosts of a run, or the address that the origin has."""
    url = str(requested.value or "")
    if not url or url == holder.value:
        return ()
    host = _host_of(url)
    is_listed = isinstance(holder.value, tuple) and bool(host) and is_host_allowed(host, holder.value)
    return () if is_listed else (host or url,)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url if "//" in url else f"//{url}").hostname or ""
    except ValueError:
        return ""


def _references(side: Side) -> Names:
    values = side.value.values() if isinstance(side.value, Mapping) else (side.value or "",)
    return tuple(name for text in values for name in _CREDENTIAL.findall(text))


def _beyond_references(requested: Side, holder: Side) -> Names:
    return _beyond_names(requested, holder, _references)


# --- blocks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """The models of an agent: candidates that it names, tiers of the operator, and the providers that bound these."""

    named: tuple[Candidate, ...] = ()
    tiers: Names = ()
    providers: Names = ()
    is_default: bool = False


def _models(agent: AgentBlock, *, with_lower_tiers: bool) -> _Models:
    has_code = bool(agent.code_body or agent.code)
    if agent.tier:
        lower = TIERS[: TIERS.index(agent.tier)] if with_lower_tiers else ()
        tiers = (*lower, agent.tier)
        return _Models(
            named=tuple(one for tier in tiers for one in agent.models.get(tier, ())),
            tiers=tuple(tier for tier in tiers if tier not in agent.models),
            providers=agent.providers,
        )
    if has_code or agent.provider == CODE_DRIVER:
        provider = agent.provider or CODE_DRIVER
        return _Models(named=(Candidate(provider=provider, model=agent.model or CODE_MODEL),))
    if agent.provider or agent.model:
        return _Models(named=(Candidate(provider=agent.provider, model=agent.model),))
    return _Models(is_default=True)


def _beyond_models(requested: Side, holder: Side) -> Iterator[str]:
    asked = _models(requested.block, with_lower_tiers=False)
    held = _models(holder.block, with_lower_tiers=True)
    if asked.is_default and not held.is_default:
        yield OPERATORS_CHOICE
    for candidate in asked.named:
        if not any(_is_within(candidate, one, held.providers) for one in held.named):
            yield _candidate_text(candidate)
    for tier in asked.tiers:
        if tier not in held.tiers:
            yield f"tier {tier}"
        elif held.providers and not asked.providers:
            yield f"tier {tier} of every provider"
        elif extra := [one for one in asked.providers if one not in held.providers]:
            yield f"provider {', '.join(extra)}"


def _is_within(candidate: Candidate, holder: Candidate, providers: Names) -> bool:
    same = (candidate.provider, candidate.model, candidate.model_pattern) == (
        holder.provider,
        holder.model,
        holder.model_pattern,
    )
    is_bound = not providers or not candidate.provider or candidate.provider in providers
    effort = EFFORTS.index(candidate.effort) if candidate.effort else len(EFFORTS)
    return same and is_bound and effort <= (EFFORTS.index(holder.effort) if holder.effort else len(EFFORTS))


def _candidate_text(candidate: Candidate) -> str:
    model = candidate.model or candidate.model_pattern
    text = f"{candidate.provider}/{model}" if candidate.provider else model
    return f"{text} ({candidate.effort})" if candidate.effort else text


def _shown_models(holder: Side) -> Iterator[str]:
    held = _models(holder.block, with_lower_tiers=True)
    yield from map(_candidate_text, held.named)
    yield from (f"tier {tier}" for tier in held.tiers)
    yield from (f"provider {one}" for one in held.providers)
    if held.is_default:
        yield OPERATORS_CHOICE


def _beyond_core_blocks(requested: Side, holder: Side) -> Iterator[str]:
    """A block reads and writes its entry without memory_scopes; a read-only one protects it from these."""
    asked, held = _blocks(requested), _blocks(holder)
    for place, block in asked.items():
        own = held.get(place)
        if own is None:
            if place[1] not in holder.block.memory_scopes:
                yield "/".join(place)
        elif _is_wider(block, own):
            yield f"{'/'.join(place)} beyond its limits"
    for place, block in held.items():
        is_reached = place[1] in requested.block.memory_scopes
        if place not in asked and is_reached and (block.read_only or block.limit_bytes):
            yield f"{'/'.join(place)} without its limits"


def _is_wider(block: CoreBlockDeclaration, own: CoreBlockDeclaration) -> bool:
    is_larger = bool(own.limit_bytes) and (not block.limit_bytes or block.limit_bytes > own.limit_bytes)
    return (own.read_only and not block.read_only) or (is_larger and not block.read_only)


def _blocks(side: Side) -> dict[tuple[str, str], CoreBlockDeclaration]:
    return {(one.label, one.scope or DEFAULT_BLOCK_SCOPE): one for one in side.block.core_blocks}


def _shown_blocks(holder: Side) -> Iterator[str]:
    yield from map("/".join, _blocks(holder))
    yield from (f"memory scope {scope}" for scope in holder.block.memory_scopes)


def _beyond_interruption(requested: Side, holder: Side) -> Iterator[str]:
    asked, held = interruption_access(requested.block), interruption_access(holder.block)
    if not asked.enabled:
        return
    if not held.enabled:
        yield "questions to people"
        return
    yield from (f"kind {kind}" for kind in asked.kinds if kind not in held.kinds)
    if asked.max_pending > held.max_pending:
        yield f"max_pending {asked.max_pending}"


def _shown_interruption(holder: Side) -> Iterator[str]:
    access = interruption_access(holder.block)
    if access.enabled:
        yield from (*access.kinds, f"max_pending {access.max_pending}")


def _beyond_consolidation(requested: Side, holder: Side) -> Names:
    may, held = (may_consolidate(side.block.memory_consolidation) for side in (requested, holder))
    return ("true",) if may and not held else ()


def _shown_consolidation(holder: Side) -> Names:
    return (str(may_consolidate(holder.block.memory_consolidation)).lower(),)


# --- schedules, webhooks and others ----------------------------------------------------------------------------------


def _beyond_hooks(requested: Side, holder: Side) -> Iterator[str]:
    """What an agent cannot do itself. `holder`: the hosts of a run, and its agent."""
    for hook in requested.value:
        yield from _beyond_hook(hook, requested.name, holder)


def _beyond_hook(hook: CompletionHook, name: str, holder: Side) -> Iterator[str]:
    agent: AgentBlock = holder.block
    match hook.kind:
        case "channel.publish":
            channels = Side(value=agent.channels.publish)
            yield from (f"channel {one}" for one in _beyond_channels(Side(value=(hook.channel,)), channels))
        case "memory.set":
            scope = "tenant" if hook.scope == "global" else hook.scope
            if scope not in agent.memory_scopes:
                yield f"memory scope {scope}"
            elif scope == "agent" and name != holder.name:  # the memory is that of the name
                yield f"memory of {name}"
        case "http":
            if covers(agent.tools, (HTTP_TOOL,)):
                yield f"the tool {HTTP_TOOL}"
            yield from (f"host {one}" for one in _beyond_host(Side(value=hook.url), holder))
            if hook.secret_env:
                yield f"secret_env {hook.secret_env}"
        case "mcp.call":
            yield from (f"the tool {one}" for one in covers(agent.tools, (mcp_tool_name(hook.server, hook.tool),)))


def _shown_hooks(holder: Side) -> Iterator[str]:
    agent: AgentBlock = holder.block
    yield from (f"channel {one}" for one in agent.channels.publish)
    yield from (f"memory scope {one}" for one in agent.memory_scopes)
    if not covers(agent.tools, (HTTP_TOOL,)):
        yield from (f"host {one}" for one in holder.value)


def _handlers(side: Side) -> Names:
    """Return the agents of the handlers of a team; names as they are."""
    handlers = [one.handler if hasattr(one, "handler") else one for one in side.value or ()]
    return tuple(
        name
        for one in handlers
        for name in ((one,) if isinstance(one, str) else (one.agent, *one.agents, one.consolidator))
        if name
    )


def _exposed(side: Side) -> Names:
    return tuple(one if isinstance(one, str) else one.agent_name for one in side.value or ())


JOINT = frozenset({Order.TOOLS, Order.MODELS})
"""Orders that look at several fields of a definition at once: one comparison is enough."""
_BEYOND: Mapping[Order, Callable[[Side, Side], Iterable[str]]] = {
    Order.NAMES: _beyond_names,
    Order.SWITCH: _beyond_switch,
    Order.SAME: _beyond_same,
    Order.CHOICE: _beyond_choice,
    Order.TOOLS: _beyond_tools,
    Order.CHANNELS: _beyond_channels,
    Order.SKILLS: _beyond_skills,
    Order.VOLUMES: _beyond_volumes,
    Order.AUTHORSHIP: _beyond_authorship,
    Order.EVALUATION: _beyond_evaluation,
    Order.MODELS: _beyond_models,
    Order.CORE_BLOCKS: _beyond_core_blocks,
    Order.INTERRUPTION: _beyond_interruption,
    Order.CONSOLIDATION: _beyond_consolidation,
    Order.RULES: _beyond_rules,
    Order.USER: _beyond_user,
    Order.HOOKS: _beyond_hooks,
    Order.HANDLERS: lambda requested, holder: _beyond_names(requested, holder, _handlers),
    Order.EXPOSED: lambda requested, holder: _beyond_names(requested, holder, _exposed),
    Order.HOST: _beyond_host,
    Order.REFERENCES: _beyond_references,
    Order.UNSET: _beyond_unset,
}
_SHOWN: Mapping[Order, Callable[[Side], Iterable[str]]] = {
    Order.TOOLS: _tools,
    Order.VOLUMES: _volumes,
    Order.MODELS: _shown_models,
    Order.CORE_BLOCKS: _shown_blocks,
    Order.INTERRUPTION: _shown_interruption,
    Order.CONSOLIDATION: _shown_consolidation,
    Order.RULES: _shown_rules,
    Order.HOOKS: _shown_hooks,
    Order.HANDLERS: _handlers,
    Order.EXPOSED: _exposed,
    Order.REFERENCES: _references,
    Order.UNSET: lambda holder: (),
    Order.SKILLS: lambda holder: tuple(holder.value) or ("every skill",),
}
