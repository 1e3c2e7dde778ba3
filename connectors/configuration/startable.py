"""Whether the tiers of a configuration lead anywhere with the providers this process can use.

A tier whose candidates all lack their key, or all name a driver that is switched off, would refuse every run it is
asked for. Processes that start runs find that out before the first one: they do not come up. What is only away for now
(a provider that does not answer, a model that is rate limited) is no matter of the configuration, and a pattern is
taken to match, because nobody has been asked for a list yet.

    refused     the tier an agent names, for users of the default plan; every tier a plan spells out
    warned of   a tier of the file that no agent names; the tier of an agent under another plan that leaves it nothing

Before: load.py, providers.py. After: the main of every process that starts runs.
"""

from collections.abc import Collection

from connectors.configuration.agent_block import Agent
from connectors.configuration.findings import ConfigurationProblem, Finding
from connectors.configuration.model import Configuration
from connectors.configuration.routing import DEFAULT_USER_TIER, Choice, DeadEnd, choices
from connectors.configuration.words import Tier


def check_tiers(configuration: Configuration, usable: Collection[str]) -> list[str]:
    """The warnings. Raises ConfigurationProblem with every tier that resolves to nothing."""
    errors: list[str] = []
    warnings: list[str] = []
    used: set[Tier] = set()
    for name, agent in configuration.agents.items():
        if agent.tier and not (agent.provider or agent.model):
            used.add(agent.tier)
            if wrong := _wrong(configuration, agent, "", usable):
                errors.append(f"agents.{name}.tier: {wrong}")
            for plan in configuration.user_tiers:
                if plan != DEFAULT_USER_TIER and not wrong and (lost := _wrong(configuration, agent, plan, usable)):
                    warnings.append(f"agents.{name} cannot run for users of the tier {plan}: {lost}")
    for plan, block in configuration.user_tiers.items():
        for tier in block.tiers:
            if wrong := _wrong(configuration, Agent(tier=tier), plan, usable):
                errors.append(f"user_tiers.{plan}.tiers.{tier}: {wrong}")
    for tier in configuration.tiers:
        if tier not in used and (wrong := _wrong(configuration, Agent(tier=tier), "", usable)):
            warnings.append(f"tiers.{tier}: {wrong}; no agent uses it")
    if errors:
        raise ConfigurationProblem(Finding(message=message) for message in errors)
    return warnings


def _wrong(configuration: Configuration, agent: Agent, plan: str, usable: Collection[str]) -> str:
    """Why a tier resolves to nothing; empty when it does not. What a plan forbids an agent is a policy, no mistake."""
    found = choices(configuration, agent, plan)
    if isinstance(found, DeadEnd):
        return "" if found.reason_code == "tier_agent_not_available" else found.message
    if any(choice.provider in usable for choice in found):
        return ""
    return f"tier {agent.tier} resolves to nothing: {'; '.join(_needs(configuration, choice) for choice in found)}"


def _needs(configuration: Configuration, choice: Choice) -> str:
    block = configuration.providers.get(choice.provider)
    key = block.api_key_env if block is not None else ""
    return f"{choice.name} is not usable{f' (needs {key})' if key else ''}"
