"""The models runs may go to, as the configuration says: providers, aliases, and the cascade of each plan and tier.

What only the runtime learns while it calls (stalled, rate limited) is shown as not so: this process calls nothing.

Before: operator_endpoints.py. After: connectors/configuration.
"""

from collections.abc import Mapping
from typing import Any, get_args

from connectors.configuration import Configuration, Provider
from connectors.configuration.agent_block import Agent
from connectors.configuration.routing import DEFAULT_USER_TIER, Choice, choices
from connectors.configuration.words import Tier

TIERS = get_args(Tier)


def routing(configuration: Configuration, providers: Mapping[str, Provider], *, is_admin: bool) -> dict[str, Any]:
    """The view of GET /v1/_routing. `why_not` names environment variables, so it is for administrators."""
    plans = tuple(configuration.user_tiers) or (DEFAULT_USER_TIER,)
    return {
        "admin": is_admin,
        "providers": [provider_view(provider, is_admin=is_admin) for provider in providers.values()],
        "user_tiers": [{"name": plan, "tiers": _tiers(configuration, providers, plan)} for plan in plans],
        "operator_key_restricted": False,
        "search": [],
    }


def provider_view(provider: Provider, *, is_admin: bool) -> dict[str, Any]:
    """One provider, without its key."""
    shown: dict[str, Any] = {
        "provider": provider.id,
        "driver": provider.driver,
        "dialect": provider.dialect,
        "available": provider.is_usable,
        "max_concurrent": provider.max_concurrent,
    }
    if is_admin:
        shown["why_not"] = provider.why_not or None
    return shown


def aliases(configuration: Configuration) -> dict[str, Any]:
    """The view of GET /v1/_models."""
    return {
        "models": [
            {
                "name": name,
                "provider": alias.provider,
                "model": alias.model or None,
                "model_pattern": alias.model_pattern or None,
                "effort": alias.effort,
            }
            for name, alias in configuration.models.items()
        ]
    }


def _tiers(configuration: Configuration, providers: Mapping[str, Provider], plan: str) -> list[dict[str, Any]]:
    found = []
    for tier in TIERS:
        picked = choices(configuration, Agent(tier=tier), plan)
        if isinstance(picked, tuple):
            found.append({"tier": tier, "cascade": _cascade(picked, providers)})
    return found


def _cascade(picked: tuple[Choice, ...], providers: Mapping[str, Provider]) -> list[dict[str, Any]]:
    cascade = []
    is_selected = True
    for place, choice in enumerate(picked):
        provider = providers.get(choice.provider)
        is_available = provider is not None and provider.is_usable
        cascade.append(
            {
                "provider": choice.provider,
                "model": choice.model or choice.model_pattern,
                "primary": place == 0,
                "available": is_available,
                "selected": is_available and is_selected,
                "stalled": False,
                "rate_limited": False,
                "reachable": is_available,
            }
        )
        is_selected = is_selected and not is_available
    return cascade
