"""Routing: which models an agent may run on, in which order, from tiers, plans of users and aliases.

    the agent pins a model     provider + model, or an alias: that one
    the agent names a tier     candidates: agent.models[tier], else the user tier's, else the file's
                               providers:  those of the agent that the user tier has too, in the agent's order;
                                           else those of the agent, of the user tier, or of the file
                               order:      provider by provider, and for each its candidates in turn
    neither                    the file's defaults

Pure and total: a problem is returned as a RoutingFailure with a reason code, at load (check.py) as at run time
(resolve.py).

Before: model.py. After: check.py, resolve.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loomlog.connectors.configuration.agent_block import AgentBlock, Candidate
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.model import Configuration, UserTier

DEFAULT_USER_TIER = "default"
CODE_DRIVER = "code-js"
CODE_MODEL = "code-js"
"""Default model of a code agent: there is only one engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Model to try: `model`, or `model_pattern` to be matched against the provider's list."""

    provider: str
    model: str = ""
    model_pattern: str = ""
    effort: str = ""

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model or self.model_pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingFailure:
    """Reason why there is no model to try."""

    reason_code: str
    message: str


def resolve_user_tier(configuration: Configuration, requested: str) -> str:
    """Return the plan in force: the requested one, `default` when it does not exist, empty when the files have none."""
    if requested in configuration.user_tiers:
        return requested
    return DEFAULT_USER_TIER if DEFAULT_USER_TIER in configuration.user_tiers else ""


def resolve_choices(
    configuration: Configuration, agent: AgentBlock, user_tier: str = ""
) -> tuple[Choice, ...] | RoutingFailure:
    """Return everything the agent may run on, best first; never empty."""
    if code_choices := _code_choices(configuration, agent):
        return code_choices
    if agent.tier:
        return _tier_choices(
            configuration, agent, configuration.user_tiers.get(resolve_user_tier(configuration, user_tier))
        )
    if agent.provider or agent.model:
        return _pinned_choices(configuration, agent.provider or "", agent.model)
    if configuration.defaults.provider or configuration.defaults.model:
        return _pinned_choices(configuration, configuration.defaults.provider or "", configuration.defaults.model)
    return RoutingFailure(
        reason_code="invalid_argument",
        message="names no model; give provider and model, a model alias, or a tier, or set defaults",
    )


def _code_choices(configuration: Configuration, agent: AgentBlock) -> tuple[Choice, ...] | RoutingFailure | None:
    """Return the choices of a code agent; None when the agent calls a model."""
    provider = agent.provider or (CODE_DRIVER if agent.code_body or agent.code else "")
    block = configuration.providers.get(provider)
    if block is not None and block.driver == CODE_DRIVER and not agent.tier:
        return (Choice(provider=provider, model=agent.model or CODE_MODEL),)
    if agent.code_body or agent.code:
        message = f"is a code agent, so its provider has to be one with the driver {CODE_DRIVER}, and it has no tier"
        return RoutingFailure(reason_code="invalid_argument", message=message)
    return None


def collect_patterns(configuration: Configuration) -> frozenset[tuple[str, str]]:
    """Return provider and pattern of every choice that must be matched against the provider's list."""
    plans = configuration.user_tiers.values()
    tiers = [configuration.tiers, *(plan.tiers for plan in plans), *(a.models for a in configuration.agents.values())]
    candidates = [candidate for named in tiers for listed in named.values() for candidate in listed]
    resolved = [resolve_candidate(configuration, candidate) for candidate in candidates]
    patterns = {(one.provider, one.model_pattern) for one in resolved if isinstance(one, Choice)}
    patterns |= {(alias.provider, alias.model_pattern) for alias in configuration.models.values()}
    return frozenset((provider, pattern) for provider, pattern in patterns if pattern)


def resolve_candidate(configuration: Configuration, candidate: Candidate) -> Choice | RoutingFailure:
    """Return the model a candidate of a tier refers to."""
    if candidate.provider and bool(candidate.model) != bool(candidate.model_pattern):
        return Choice(
            provider=candidate.provider,
            model=candidate.model,
            model_pattern=candidate.model_pattern,
            effort=candidate.effort or "",
        )
    if candidate.provider or candidate.model_pattern:
        return RoutingFailure(
            reason_code="invalid_argument",
            message="a candidate has a provider and either model or model_pattern, or only an alias as model",
        )
    pinned_choices = _pinned_choices(configuration, "", candidate.model)
    if isinstance(pinned_choices, RoutingFailure):
        return pinned_choices
    choice = pinned_choices[0]
    return Choice(
        provider=choice.provider,
        model=choice.model,
        model_pattern=choice.model_pattern,
        effort=candidate.effort or choice.effort,
    )


def _pinned_choices(configuration: Configuration, provider: str, model: str) -> tuple[Choice, ...] | RoutingFailure:
    if provider and model:
        return (Choice(provider=provider, model=model),)
    if provider:
        return RoutingFailure(
            reason_code="invalid_argument", message=f"provider {provider} comes without a model; give both"
        )
    alias = configuration.models.get(model)
    if alias is None:
        hint = did_you_mean(model, configuration.models)
        return RoutingFailure(
            reason_code="invalid_argument",
            message=f"model {model} comes without a provider and is not an alias in `models`{hint}",
        )
    effort = alias.effort or ""
    return (Choice(provider=alias.provider, model=alias.model, model_pattern=alias.model_pattern, effort=effort),)


def _tier_choices(
    configuration: Configuration, agent: AgentBlock, plan: UserTier | None
) -> tuple[Choice, ...] | RoutingFailure:
    assert agent.tier
    candidates = _tier_candidates(configuration, agent, plan)
    if not candidates:
        return RoutingFailure(
            reason_code="tier_unavailable",
            message=f"tier {agent.tier} has no candidates: not in the agent's models, its user tier's tiers or `tiers`",
        )
    providers = _provider_order(configuration, agent, plan)
    if not providers:
        return RoutingFailure(
            reason_code="tier_agent_not_available",
            message="none of the agent's providers is in the provider_priority of the user tier",
        )
    choices = [
        choice for candidate in candidates if isinstance(choice := resolve_candidate(configuration, candidate), Choice)
    ]
    ordered = tuple(choice for provider in providers for choice in choices if choice.provider == provider)
    if ordered:
        return ordered
    return RoutingFailure(
        reason_code="tier_unavailable",
        message=f"tier {agent.tier} resolves to nothing: its candidates are at {_join_providers(choices)}, "
        f"the provider order is {', '.join(providers)}",
    )


def _tier_candidates(configuration: Configuration, agent: AgentBlock, plan: UserTier | None) -> tuple[Candidate, ...]:
    assert agent.tier
    if agent.tier in agent.models:
        return agent.models[agent.tier]
    if plan and agent.tier in plan.tiers:
        return plan.tiers[agent.tier]
    return configuration.tiers.get(agent.tier, ())


def _provider_order(configuration: Configuration, agent: AgentBlock, plan: UserTier | None) -> tuple[str, ...]:
    planned = plan.provider_priority if plan else ()
    if agent.providers and planned:
        return tuple(provider for provider in agent.providers if provider in planned)
    return tuple(dict.fromkeys(agent.providers or planned or configuration.provider_priority))


def _join_providers(resolved: Sequence[Choice]) -> str:
    return ", ".join(dict.fromkeys(choice.provider for choice in resolved)) or "no provider"
