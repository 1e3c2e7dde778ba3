"""Model routing as JSON: providers, aliases, the cascade of each plan and tier, and the availability of each model.

What the runtimes learn from calls and probes reaches this process over the log
(services/stream/global_tables/providers.py); this process calls no provider for these views.

Before: process_handlers.py. After: connectors/configuration, services/core/availability.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.field_types import Tier
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.model_patterns import select_newest
from loomlog.connectors.configuration.providers import Provider
from loomlog.connectors.configuration.routing import DEFAULT_USER_TIER, Choice, resolve_choices
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.services.application.answers.operators import (
    AvailabilityMatrix,
    ModelAliasList,
    ModelChoiceStatus,
    ModelStatus,
    ProviderAvailability,
    ProviderStatus,
    RoutingTable,
    TierCascade,
)
from loomlog.services.core.availability import AvailabilityTable

TIERS = get_args(Tier)


def routing_json(
    configuration: Configuration,
    providers: Mapping[str, Provider],
    matrix: AvailabilityTable,
    *,
    now_ms: int,
    is_admin: bool,
    operator_key_restricted: bool = False,
) -> RoutingTable:
    """Return the view of GET /v1/_routing for one caller.

    `why_not` names environment variables, so only administrators see it.

    `operator_key_restricted`: a provider that the caller cannot call without its own key is shown as unavailable.
    """
    if operator_key_restricted:
        providers = {name: without_operator_key(provider) for name, provider in providers.items()}
    plans = tuple(configuration.user_tiers) or (DEFAULT_USER_TIER,)

    def tiers_of(plan: str) -> list[TierCascade]:
        tiers: list[TierCascade] = []
        for tier in TIERS:
            picked = resolve_choices(configuration, AgentBlock(tier=tier), plan)
            if isinstance(picked, tuple):
                tiers.append({"tier": tier, "cascade": _cascade_json(picked, providers, matrix, now_ms)})
        return tiers

    return {
        "admin": is_admin,
        "providers": [provider_json(provider, matrix, is_admin=is_admin) for provider in providers.values()],
        "user_tiers": [{"name": plan, "tiers": tiers_of(plan)} for plan in plans],
        "operator_key_restricted": operator_key_restricted,
        "search": (),
    }


def without_operator_key(provider: Provider) -> Provider:
    """Return the provider as seen by runs that may not use the operator's key and have none of their own."""
    if not provider.api_key_env or not provider.is_usable:
        return provider
    return replace(
        provider, is_usable=False, unusable_reason=f"it needs a key of yours, as the credential {provider.api_key_env}"
    )


def provider_json(provider: Provider, matrix: AvailabilityTable, *, is_admin: bool) -> ProviderStatus:
    """Return one provider, without its key. `available`: this process could call it; `reachable`: it also responds."""
    shown: ProviderStatus = {
        "provider": provider.id,
        "driver": provider.driver,
        "dialect": provider.dialect,
        "available": provider.is_usable,
        "reachable": _is_reachable(provider, matrix),
        "max_concurrent": provider.max_concurrent,
    }
    if is_admin:
        shown["why_not"] = provider.unusable_reason or None
    return shown


def resolver_json(providers: Mapping[str, Provider], matrix: AvailabilityTable, *, now_ms: int) -> AvailabilityMatrix:
    """Return the view of GET /v1/_resolver: the availability of all models. Providers unusable here are excluded."""
    return {
        "providers": {name: _provider_models_json(provider, matrix, now_ms) for name, provider in providers.items()}
    }


def aliases_json(configuration: Configuration) -> ModelAliasList:
    """Return the view of GET /v1/_models."""
    return {
        "aliases": {
            name: {"provider": alias.provider, "model": alias.model or alias.model_pattern}
            for name, alias in configuration.models.items()
        },
        "models": [
            {
                "name": name,
                "provider": alias.provider,
                "model": alias.model or None,
                "model_pattern": alias.model_pattern or None,
                "effort": alias.effort,
            }
            for name, alias in configuration.models.items()
        ],
    }


def _cascade_json(
    picked: tuple[Choice, ...], providers: Mapping[str, Provider], matrix: AvailabilityTable, now_ms: int
) -> list[ModelChoiceStatus]:
    cascade: list[ModelChoiceStatus] = []
    is_selected = True
    for place, choice in enumerate(picked):
        provider, model = providers.get(choice.provider), _model_of(choice, matrix)
        standing = matrix.availability(choice.provider, model or "", now_ms)
        is_usable = provider is not None and provider.is_usable
        is_available = is_usable and model is not None and standing.is_available
        cascade.append(
            {
                "provider": choice.provider,
                "model": model or choice.model_pattern,
                "primary": place == 0,
                "available": is_available,
                "selected": is_available and is_selected,
                "stalled": standing.stalled,
                "rate_limited": standing.rate_limited,
                "reachable": is_usable and standing.reachable,
            }
        )
        is_selected = is_selected and not is_available
    return cascade


def _model_of(choice: Choice, matrix: AvailabilityTable) -> str | None:
    """Return the model of a choice, a pattern resolved against its provider's list; None when nothing matches."""
    return choice.model or select_newest(choice.model_pattern, matrix.listings().get(choice.provider, ()))


def _provider_models_json(provider: Provider, matrix: AvailabilityTable, now_ms: int) -> ProviderAvailability:
    probed = matrix.providers.get(provider.id)
    names = {*(probed.models if probed else ()), *(model for name, model in matrix.statuses if name == provider.id)}
    return {
        **provider_json(provider, matrix, is_admin=True),
        "excluded": not provider.is_usable,
        "models": {name: _cell_json(provider.id, name, matrix, now_ms) for name in sorted(names)},
        "last_check": format_rfc3339(probed.checked_at_ms) if probed else None,
        "last_error": provider.unusable_reason or (probed.error if probed else "") or None,
    }


def _cell_json(provider: str, model: str, matrix: AvailabilityTable, now_ms: int) -> ModelStatus:
    standing, cell = matrix.availability(provider, model, now_ms), matrix.status(provider, model)
    return {
        "listed": standing.listed,
        "stalled": standing.stalled,
        "rate_limited": standing.rate_limited,
        "rate_limited_until": format_rfc3339(cell.limited_until_ms) if standing.rate_limited else None,
        "reason": cell.reason or None,
    }


def _is_reachable(provider: Provider, matrix: AvailabilityTable) -> bool:
    probed = matrix.providers.get(provider.id)
    return provider.is_usable and (probed is None or probed.reachable)
