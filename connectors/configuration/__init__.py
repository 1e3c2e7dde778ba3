"""The configuration: LOOMLOG_* settings and YAML files in, plain frozen values out. Start at `load`.

    settings, configuration   load(os.environ, working_directory=Path.cwd(), paths=...)
    who may ask               token_table(...), authenticate(...)
    what can be called        providers_of(...), usable_ids(...), open_to_keys(...)
    what a run is pinned to   resolve_agent(...)

Nothing here reads the environment or a file at import, and pydantic stays inside.
"""

from loomlog.connectors.configuration.agent_block import Agent, Candidate, InterruptionAccess
from loomlog.connectors.configuration.bounds import RunBounds, bounds_of
from loomlog.connectors.configuration.environment import check_names, read_settings, secret_names
from loomlog.connectors.configuration.findings import ConfigurationProblem, Finding
from loomlog.connectors.configuration.load import Loaded, LoadedConfiguration, load, load_configuration
from loomlog.connectors.configuration.model import Concurrency, Configuration, UserTier, Volume
from loomlog.connectors.configuration.patterns import newest
from loomlog.connectors.configuration.pricing import price_of
from loomlog.connectors.configuration.principals import (
    OPEN_PRINCIPAL,
    SCOPES,
    Principal,
    TokenTable,
    authenticate,
    is_loopback,
    principal_of,
    token_table,
)
from loomlog.connectors.configuration.providers import Provider, open_to_keys, providers_of, usable_ids
from loomlog.connectors.configuration.resolve import (
    Fallback,
    ResolvedAgent,
    Unresolved,
    WhyNot,
    canonical_json,
    definition_of,
    resolve_agent,
)
from loomlog.connectors.configuration.routing import patterns_of
from loomlog.connectors.configuration.settings import SettingRow, Settings, setting_rows
from loomlog.connectors.configuration.tier_check import check_tiers
from loomlog.connectors.configuration.unsupported_keys import LATER_TOOLS, TOOLS_NOW
from loomlog.connectors.configuration.volumes import check_volumes, prepare_volumes

__all__ = [
    "LATER_TOOLS",
    "OPEN_PRINCIPAL",
    "SCOPES",
    "TOOLS_NOW",
    "Agent",
    "Candidate",
    "Concurrency",
    "Configuration",
    "ConfigurationProblem",
    "Fallback",
    "Finding",
    "InterruptionAccess",
    "Loaded",
    "LoadedConfiguration",
    "Principal",
    "Provider",
    "ResolvedAgent",
    "RunBounds",
    "SettingRow",
    "Settings",
    "TokenTable",
    "Unresolved",
    "UserTier",
    "Volume",
    "WhyNot",
    "authenticate",
    "bounds_of",
    "canonical_json",
    "check_names",
    "check_tiers",
    "check_volumes",
    "definition_of",
    "is_loopback",
    "load",
    "load_configuration",
    "newest",
    "open_to_keys",
    "patterns_of",
    "prepare_volumes",
    "price_of",
    "principal_of",
    "providers_of",
    "read_settings",
    "resolve_agent",
    "secret_names",
    "setting_rows",
    "token_table",
    "usable_ids",
]
