"""Resolution of an agent's name to everything a run is pinned to.

Aliases, tiers, user tiers and patterns are resolved here: a ResolvedAgent names one provider and one model. Its content
is hashed (`definition_sha256`), so a run can prove which definition it started with. The hash covers what the run is
promised, not where this process keeps things: volume paths, prices and the order of fallbacks are left out.

Pure. The caller passes which providers are usable (providers.usable_provider_ids), what each provider lists, for
patterns, and why a model cannot be called just now. A model that an agent pins by its name is not checked for that: the
agent wants that one, and receives the provider's own error.

Before: routing.py, model_patterns.py. After: the command layer puts the result into StartRun; the runtime builds its
calls from it.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from msgspec import structs

from loomlog.connectors.configuration.agent_block import (
    DEFAULT_CONCURRENT_CHILDREN,
    DEFAULT_OUTPUT_RETRIES,
    AgentBlock,
    CompactionBlock,
    InterruptionAccess,
    InterruptionOverrides,
    SamplingBlock,
)
from loomlog.connectors.configuration.field_types import parse_switch
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.model import Configuration, InterruptionBlock, ProviderBlock, UserTier
from loomlog.connectors.configuration.model_patterns import select_newest
from loomlog.connectors.configuration.pricing import find_price
from loomlog.connectors.configuration.routing import (
    CODE_DRIVER,
    DEFAULT_USER_TIER,
    Choice,
    RoutingFailure,
    resolve_choices,
    resolve_user_tier,
)
from loomlog.connectors.configuration.unsupported_keys import UNSUPPORTED_DRIVERS
from loomlog.connectors.models.pricing import Price
from loomlog.connectors.protocols import VolumeBinding
from loomlog.connectors.tools.skill_patterns import deny_everything
from loomlog.connectors.tools.tool_guide import with_guide
from loomlog.schemas.client_names import visible_name
from loomlog.schemas.generated.values import AgentGrants, Compaction, CoreBlock, Sampling

MAX_RETRY_ATTEMPTS = 5
"""Largest number of retry attempts, as in the reference; larger values are reduced to it."""
DEFAULT_FALLBACK_ATTEMPTS = 3
COOLDOWN_BOUNDS_MS = (1_000, 600_000)
"""Bounds in milliseconds that a user tier's cooldown is clamped to, as in the reference."""
DEFAULT_COMPACTION = CompactionBlock(
    enabled=False,
    target_percentage=10,
    keep_last_n=4,
    keep_first=True,
    autocompact_at_pct=80,
    model="",
    memory_flush=False,
)
"""Values of the fields of an agent's compaction that its author left out."""
CONTEXT_TOOL = "Context"
"""Tool that every agent has unless disable_context is set."""
SKILL_TOOL = "Skill"
"""Tool that every agent has that may use some skill."""
DEFAULT_BLOCK_SCOPE = "agent"
"""Scope of a core block whose author names none."""
NO_GRANTS = AgentGrants()
_NO_GRANTS_AVRO = NO_GRANTS.to_avro()
_DERIVED_GRANTS = frozenset({"channels_publish", "channels_subscribe", "core_blocks", "memory_consolidation"})
GRANTED_FIELDS = tuple(name for name in AgentGrants.__struct_fields__ if name not in _DERIVED_GRANTS)
"""Grants that an agent's definition has under the same name. 0, None and empty ones have the default of the grant."""
DEFAULT_VOLUME = "default"
"""Volume of the agents that name none."""
FindVolume = Callable[[str], VolumeBinding | None]
UnavailableReason = Callable[[str, str], str]
"""Function of provider and model; returns why it cannot be called just now, for people, or empty when it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackModel:
    """Model to try when the one before it fails."""

    provider: str
    model: str
    effort: str = ""
    price: Price | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedAgent:
    """Agent that is ready to run. 0 and empty mean "not set" as in loomlog.schemas.generated.values.AgentDefinition."""

    name: str
    description: str
    provider: str
    model: str
    effort: str
    system_prompt: str
    tools: tuple[str, ...]
    """Granted tools: names and trailing-* globs, Context included unless disabled."""
    max_tokens: int
    max_iterations: int
    unbounded_iterations: bool
    retry_attempts: int
    unknown_outcome: str
    """Policy when it is unknown whether an unsafe call had its effect: tell, ask or fail."""
    run_timeout_s: int
    sampling: Sampling | None
    compaction: Compaction | None
    volumes: tuple[VolumeBinding, ...]
    """Volumes in the agent's order; exactly one is the default when there is one volume or one of them is marked."""
    max_concurrent_children: int
    interruption: InterruptionAccess
    interruption_bounds: InterruptionBlock
    """The operator's limits, for every agent; the stricter of the two applies."""
    user_tier: str
    """Plan in force; empty when the files have none."""
    fallback_on_error: bool
    max_fallback_attempts: int
    rate_limit_cooldown_ms: int
    fallbacks: tuple[FallbackModel, ...]
    """Other usable models, best first, including those that cannot be called just now."""
    price: Price | None
    currency: str
    """Currency of the prices."""
    code_body: str = ""
    """The script of a code agent."""
    grants: AgentGrants | None = None
    """What it may use and author besides tools and volumes; None when its author grants nothing."""
    output_schema: Mapping[str, object] = field(default_factory=dict)
    """JSON Schema of its final answer; empty: any text."""
    output_retries: int = 0
    """How often the model may correct an answer that does not meet the schema."""
    definition_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedAgent:
    """Reason why an agent cannot run.

    Codes: unknown_agent, invalid_argument, pin_unavailable, tier_unavailable, tier_agent_not_available.
    """

    reason_code: str
    message: str


AGENTS_NAMED = 20
"""Maximum agents that a message lists."""


def unknown_agent(name: str, agents: Collection[str]) -> str:
    """Return the message for a name that no agent has."""
    known = sorted(agents)
    listed = ", ".join(known[:AGENTS_NAMED]) + (
        f" and {len(known) - AGENTS_NAMED} more" if len(known) > AGENTS_NAMED else ""
    )
    return f"unknown agent {name[:80]}{did_you_mean(name, agents)}; agents: {listed or 'none'}"


def resolve_agent(
    configuration: Configuration,
    name: str,
    *,
    user_tier: str = "",
    usable: Collection[str],
    listings: Mapping[str, Sequence[str]] | None = None,
    unavailable_reason: UnavailableReason = lambda provider, model: "",
    has_skills: bool = False,
    block: AgentBlock | None = None,
    find_volume: FindVolume | None = None,
) -> ResolvedAgent | UnresolvedAgent:
    """Resolve the agent `name` for a user of the plan `user_tier`. `listings`: provider id -> the models it lists.
    `has_skills`: there are skills for it besides those of the configuration. `block`: its definition, if it is not that
    of the configuration; `find_volume` finds the volumes that it names and the configuration does not have.
    """
    agent = configuration.agents.get(name) if block is None else block
    if agent is None:
        return UnresolvedAgent(reason_code="unknown_agent", message=unknown_agent(name, configuration.agents))
    if user_tier not in ("", DEFAULT_USER_TIER) and user_tier not in configuration.user_tiers:
        plans = ", ".join(sorted(configuration.user_tiers)) or "none"
        hint = did_you_mean(user_tier, configuration.user_tiers)
        return UnresolvedAgent(
            reason_code="invalid_argument", message=f"unknown user_tier {user_tier[:80]}{hint}; user tiers: {plans}"
        )
    choices = resolve_choices(configuration, agent, user_tier)
    if isinstance(choices, RoutingFailure):
        return UnresolvedAgent(reason_code=choices.reason_code, message=f"agent {name}: {choices.message}")
    picked, passed_over = _select_usable(configuration, choices, usable, listings or {})
    is_pinned = not agent.tier and all(choice.model for choice in choices)
    best = next(
        (choice for choice in picked if is_pinned or not unavailable_reason(choice.provider, choice.model)), None
    )
    if best is None:
        code = "tier_unavailable" if agent.tier else "pin_unavailable"
        passed_over += [f"{choice.name}: {unavailable_reason(choice.provider, choice.model)}" for choice in picked]
        return UnresolvedAgent(
            reason_code=code, message=f"agent {name}: no model is available: {'; '.join(passed_over)}"
        )
    ordered = [best, *(choice for choice in picked if choice is not best)]
    plan = resolve_user_tier(configuration, user_tier)
    resolved = _assemble_agent(
        configuration,
        name,
        agent,
        ordered,
        plan,
        usable,
        listings or {},
        has_skills=has_skills,
        find_volume=find_volume,
    )
    return replace(
        resolved, definition_sha256=hashlib.sha256(canonical_json(build_hashed_definition(resolved))).hexdigest()
    )


def build_hashed_definition(agent: ResolvedAgent) -> dict[str, object]:
    """Return the part of the definition that the hash covers."""
    return {
        "name": agent.name,
        "provider": agent.provider,
        "model": agent.model,
        "effort": agent.effort,
        "system_prompt": agent.system_prompt,
        "tools": list(agent.tools),
        "max_tokens": agent.max_tokens,
        "max_iterations": agent.max_iterations,
        "unbounded_iterations": agent.unbounded_iterations,
        "retry_attempts": agent.retry_attempts,
        "run_timeout_s": agent.run_timeout_s,
        "sampling": structs.asdict(agent.sampling) if agent.sampling else None,
        "volumes": [{"name": v.name, "mode": v.mode, "is_default": v.is_default} for v in agent.volumes],
        "max_concurrent_children": agent.max_concurrent_children,
        "interruption": {entry.name: getattr(agent.interruption, entry.name) for entry in fields(agent.interruption)},
        # Left out while they have the default: definitions made before these keys keep their hash.
        **({"code_body": agent.code_body} if agent.code_body else {}),
        **(_changed_grants(agent.grants) if agent.grants else {}),
        **({"unknown_outcome": agent.unknown_outcome} if agent.unknown_outcome != "tell" else {}),
        **(
            {}
            if agent.interruption_bounds == InterruptionBlock()
            else {"interruption_bounds": _interruption_limits(agent)}
        ),
        **({"compaction": agent.compaction.to_avro()} if agent.compaction else {}),
        **(
            {"output_schema": agent.output_schema, "output_retries": agent.output_retries}
            if agent.output_schema
            else {}
        ),
    }


def _interruption_limits(agent: ResolvedAgent) -> list[int]:
    bounds = agent.interruption_bounds
    return [bounds.max_pending_per_run, bounds.default_timeout_ms, bounds.max_timeout_ms]


def canonical_json(value: object) -> bytes:
    """Return the unique text of a value: sorted keys, no spaces, UTF-8, no NaN; floats in their shortest exact form."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _select_usable(
    configuration: Configuration,
    candidates: Sequence[Choice],
    usable: Collection[str],
    listings: Mapping[str, Sequence[str]],
) -> tuple[list[Choice], list[str]]:
    """Return the choices that can be used now, with patterns resolved, and why the others cannot."""
    picked: list[Choice] = []
    passed_over: list[str] = []
    for choice in candidates:
        provider = configuration.providers.get(choice.provider)
        if provider is None or choice.provider not in usable:
            passed_over.append(f"{choice.name} is not usable{_requirement_hint(provider)}")
        elif choice.model:
            picked.append(choice)
        elif model := select_newest(choice.model_pattern, listings.get(choice.provider, ())):
            picked.append(replace(choice, model=model, model_pattern=""))
        elif listings.get(choice.provider):
            passed_over.append(f"{choice.name} matches no single model that {choice.provider} lists")
        else:
            passed_over.append(
                f"{choice.name} cannot be looked up: it is not known which models {choice.provider} lists"
            )
    return picked, passed_over


def _requirement_hint(provider: ProviderBlock | None) -> str:
    if provider is None:
        return ""
    if provider.driver in UNSUPPORTED_DRIVERS:
        return f" (its driver {provider.driver} is not in this version)"
    if provider.driver == CODE_DRIVER:
        return " (needs LOOMLOG_CODE_AGENTS_ENABLED=1)"
    return f" (needs {provider.api_key_env})" if provider.api_key_env else ""


def _assemble_agent(
    configuration: Configuration,
    name: str,
    agent: AgentBlock,
    ordered: Sequence[Choice],
    plan_name: str,
    usable: Collection[str],
    listings: Mapping[str, Sequence[str]],
    *,
    has_skills: bool,
    find_volume: FindVolume | None,
) -> ResolvedAgent:
    plan = configuration.user_tiers.get(plan_name, UserTier())
    retries = plan.retry_attempts if agent.retry_attempts is None else agent.retry_attempts
    best, *others = ordered
    return ResolvedAgent(
        name=name,
        description=agent.description,
        provider=best.provider,
        model=best.model,
        effort=best.effort or agent.effort or "",
        system_prompt=with_guide(agent.system_prompt) if agent.inject_tool_guide else agent.system_prompt,
        tools=_granted_tools(agent, has_skills=has_skills or bool(configuration.skills)),
        max_tokens=agent.max_tokens,
        max_iterations=agent.max_iterations,
        unbounded_iterations=agent.unbounded_iterations,
        retry_attempts=min(retries, MAX_RETRY_ATTEMPTS),
        unknown_outcome=agent.unknown_outcome,
        run_timeout_s=agent.run_timeout_seconds,
        code_body=agent.code_body if _is_code_agent(configuration, best) else "",
        grants=_to_grants(agent),
        output_schema=agent.output_schema,
        output_retries=_output_retries(agent) if agent.output_schema else 0,
        sampling=_to_sampling(agent.sampling),
        compaction=_to_compaction(configuration, agent.compaction, usable, listings),
        volumes=_to_volume_bindings(configuration, agent, find_volume),
        max_concurrent_children=agent.max_concurrent_children or DEFAULT_CONCURRENT_CHILDREN,
        interruption=interruption_access(agent),
        interruption_bounds=configuration.interruption,
        user_tier=plan_name,
        fallback_on_error=plan.fallback_on_error,
        max_fallback_attempts=plan.max_fallback_attempts or DEFAULT_FALLBACK_ATTEMPTS,
        rate_limit_cooldown_ms=min(max(plan.rate_limit_cooldown_ms, COOLDOWN_BOUNDS_MS[0]), COOLDOWN_BOUNDS_MS[1]),
        fallbacks=tuple(
            FallbackModel(
                provider=choice.provider,
                model=choice.model,
                effort=choice.effort or agent.effort or "",
                price=find_price(configuration, choice.provider, choice.model),
            )
            for choice in others
        ),
        price=find_price(configuration, best.provider, best.model),
        currency=configuration.pricing.currency,
    )


def _output_retries(agent: AgentBlock) -> int:
    return DEFAULT_OUTPUT_RETRIES if agent.output_retries is None else agent.output_retries


def _is_code_agent(configuration: Configuration, choice: Choice) -> bool:
    return configuration.providers[choice.provider].driver == CODE_DRIVER


def _granted_tools(agent: AgentBlock, *, has_skills: bool) -> tuple[str, ...]:
    """Return the agent's tools and those that it need not list. Without any skill there is no tool for them, which
    keeps prompts short.
    """
    extra = () if agent.disable_context else (CONTEXT_TOOL,)
    if (has_skills or agent.skills) and not deny_everything(agent.skills):
        extra = (*extra, SKILL_TOOL)
    return tuple(dict.fromkeys((*map(visible_name, agent.tools), *extra)))


def interruption_access(agent: AgentBlock) -> InterruptionAccess:
    block, default = agent.interruption or InterruptionOverrides(), InterruptionAccess()
    return InterruptionAccess(
        enabled="Interruption" in agent.tools if block.enabled is None else block.enabled,
        kinds=block.kinds or default.kinds,
        max_pending=block.max_pending or default.max_pending,
    )


def _to_grants(agent: AgentBlock) -> AgentGrants | None:
    grants = AgentGrants(
        **{name: value for name in GRANTED_FIELDS if (value := getattr(agent, name))},
        channels_publish=agent.channels.publish,
        channels_subscribe=agent.channels.subscribe,
        memory_consolidation=may_consolidate(agent.memory_consolidation),
        core_blocks=tuple(
            CoreBlock(**asdict(block) | {"scope": block.scope or DEFAULT_BLOCK_SCOPE}) for block in agent.core_blocks
        ),
    )
    return None if grants == NO_GRANTS else grants


def may_consolidate(value: bool | Mapping[str, object]) -> bool:
    """Return the gate of consolidation; a mapping opens it unless it has an `enabled` that is not true."""
    return parse_switch(value.get("enabled", True)) is True if isinstance(value, Mapping) else value


def _changed_grants(grants: AgentGrants) -> dict[str, object]:
    """Return the grants that differ from the default."""
    return {name: value for name, value in grants.to_avro().items() if value != _NO_GRANTS_AVRO[name]}


def _to_sampling(block: SamplingBlock | None) -> Sampling | None:
    return None if block is None else Sampling(**asdict(block))


def _to_compaction(
    configuration: Configuration,
    block: CompactionBlock | None,
    usable: Collection[str],
    listings: Mapping[str, Sequence[str]],
) -> Compaction | None:
    """Return the policy with its model resolved: an alias, or a model of the run's provider. With an alias that cannot
    be used now the run's own model summarises: a summary by a more expensive model is better than none.
    """
    if block is None:
        return None
    block = replace(DEFAULT_COMPACTION, **{key: value for key, value in asdict(block).items() if value is not None})
    provider, model = "", block.model or ""
    alias = configuration.models.get(model)
    if alias is not None:
        model = alias.model or select_newest(alias.model_pattern, listings.get(alias.provider, ())) or ""
        is_there = bool(model) and alias.provider in usable
        provider, model = (alias.provider, model) if is_there else ("", "")
    return Compaction(**asdict(block) | {"provider": provider, "model": model})


def _to_volume_bindings(
    configuration: Configuration, agent: AgentBlock, find_volume: FindVolume | None
) -> tuple[VolumeBinding, ...]:
    """Return the volumes that the agent names, or the one named `default`. One that there is not is left out."""
    names = tuple(dict.fromkeys(agent.volumes)) or (DEFAULT_VOLUME,)
    bindings: list[VolumeBinding] = []
    for name in names:
        volume = configuration.volumes.get(name)
        source = find_volume(name) if volume is None and find_volume is not None else volume
        if source is not None:
            is_default = (volume is not None and volume.default) or len(names) == 1
            bindings.append(VolumeBinding(name=name, path=source.path, mode=source.mode, is_default=is_default))
    return tuple(bindings)
