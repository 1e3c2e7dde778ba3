"""Check that the tiers of a configuration resolve to a provider this process can use.

A tier whose candidates all lack their key, or all name a driver that is switched off, would refuse every run that
requests it. Processes that start runs find that out before the first one and do not start. What is only temporarily
unavailable (a provider that does not respond, a model that is rate limited) is not a matter of configuration, and a
pattern is taken to match, because no provider has been queried for its list yet.

    refused     the tier an agent names, for users of the default plan; every tier a plan has
    warned of   the same, when all that is missing is a key that runs can bring: an operator may mean to have none
                a tier of the file that no agent names; the tier of an agent under another plan that leaves it nothing

A key of a run helps only where a model is named: for a pattern there is no list, because the provider cannot be queried
without a key.

Before: load.py, providers.py. After: the main of every process that starts runs.
"""

from collections.abc import Collection

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.field_types import Tier
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.routing import DEFAULT_USER_TIER, Choice, RoutingFailure, resolve_choices
from loomlog.connectors.configuration.shape import format_path
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, Mark, find_mark

NO_PROVIDERS: Collection[str] = frozenset()


def check_tiers(
    configuration: Configuration,
    usable: Collection[str],
    run_key_providers: Collection[str] = NO_PROVIDERS,
    *,
    tree: MappingNode | None = None,
) -> list[ConfigurationFinding]:
    """Return the warnings. `run_key_providers`: those that runs with their own key can use
    (providers.run_key_provider_ids). `tree`: the merged files, for the places of the findings.

    Raises ConfigurationError with every tier that resolves to nothing, whatever runs bring.
    """
    errors: list[ConfigurationFinding] = []
    warnings: list[ConfigurationFinding] = []
    used: set[Tier] = set()

    def finding(path: KeyPath, message: str) -> ConfigurationFinding:
        mark = Mark(file="", line=0) if tree is None else find_mark(tree, path)
        return ConfigurationFinding(message=message, file=mark.file, line=mark.line)

    def is_wrong(path: KeyPath, agent: AgentBlock, plan: str) -> bool:
        """Report a problem as an error, or as a warning where a key of the run is all that is missing."""
        wrong = _find_tier_problem(configuration, agent, plan, usable)
        if wrong and (keys := _usable_run_keys(configuration, agent, plan, run_key_providers)):
            of_runs = f"only runs that bring a key of their own can use it, as the credential {' or '.join(keys)}"
            warnings.append(finding(path, f"{format_path(path)}: {wrong}; {of_runs}"))
        elif wrong:
            errors.append(finding(path, f"{format_path(path)}: {wrong}"))
        return bool(wrong)

    for name, agent in configuration.agents.items():
        if agent.tier and not (agent.provider or agent.model):
            used.add(agent.tier)
            is_lost = is_wrong(("agents", name, "tier"), agent, "")
            for plan in configuration.user_tiers:
                if (
                    plan != DEFAULT_USER_TIER
                    and not is_lost
                    and (lost := _find_tier_problem(configuration, agent, plan, usable))
                ):
                    message = f"agents.{name} cannot run for users of the tier {plan}: {lost}"
                    warnings.append(finding(("agents", name, "tier"), message))
    for plan, block in configuration.user_tiers.items():
        for tier in block.tiers:
            is_wrong(("user_tiers", plan, "tiers", tier), AgentBlock(tier=tier), plan)
    for tier in configuration.tiers:
        if tier not in used and (wrong := _find_tier_problem(configuration, AgentBlock(tier=tier), "", usable)):
            warnings.append(finding(("tiers", tier), f"tiers.{tier}: {wrong}; no agent uses it"))
    if errors:
        raise ConfigurationError(errors)
    return warnings


def _find_tier_problem(configuration: Configuration, agent: AgentBlock, plan: str, usable: Collection[str]) -> str:
    """Return why a tier resolves to nothing; empty when it does not. What a plan forbids is a policy, not a mistake."""
    choices = resolve_choices(configuration, agent, plan)
    if isinstance(choices, RoutingFailure):
        return "" if choices.reason_code == "tier_agent_not_available" else choices.message
    if any(choice.provider in usable for choice in choices):
        return ""
    requirements = "; ".join(_describe_requirement(configuration, choice) for choice in choices)
    return f"tier {agent.tier} resolves to nothing: {requirements}"


def _usable_run_keys(
    configuration: Configuration, agent: AgentBlock, plan: str, run_key_providers: Collection[str]
) -> list[str]:
    """Return the names of the keys that would let a run use a model of the tier."""
    choices = resolve_choices(configuration, agent, plan)
    if isinstance(choices, RoutingFailure):
        return []
    names = [
        configuration.providers[choice.provider].api_key_env or ""
        for choice in choices
        if choice.model and choice.provider in run_key_providers
    ]
    return list(dict.fromkeys(names))


def _describe_requirement(configuration: Configuration, choice: Choice) -> str:
    block = configuration.providers.get(choice.provider)
    key = block.api_key_env if block is not None else ""
    return f"{choice.name} is not usable{f' (needs {key})' if key else ''}"
