"""Configuration: LOOMLOG_* settings and YAML files in, plain frozen values out. Start at `load`.

    settings, configuration         load(os.environ, working_directory=Path.cwd(), paths=...)
    principals and their tokens     build_token_table(...), authenticate(...)
    providers that can be called    build_providers(...), usable_provider_ids(...), run_key_provider_ids(...)
    what a run is pinned to         resolve_agent(...)

Nothing here reads the environment or a file at import, and pydantic is not visible outside.
"""

from loomlog.connectors.configuration.agent_block import AgentBlock, Candidate, InterruptionAccess
from loomlog.connectors.configuration.concurrency_limits import ConcurrencyLimits, resolve_limits
from loomlog.connectors.configuration.environment import check_names, read_settings, secret_names
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.load import LoadedConfiguration, ProcessConfiguration, load, load_configuration
from loomlog.connectors.configuration.memory_block import (
    ChangeSubscriptionBlock,
    ConsolidationBlock,
    EmbedderBlock,
    MemoryBackendBlock,
    MemoryBlock,
    MemoryEntryBlock,
)
from loomlog.connectors.configuration.model import Concurrency, Configuration, UserTier, VolumeBlock
from loomlog.connectors.configuration.model_patterns import select_newest
from loomlog.connectors.configuration.pricing import find_price
from loomlog.connectors.configuration.principals import (
    OPEN_PRINCIPAL,
    SCOPES,
    Principal,
    TokenTable,
    authenticate,
    build_token_table,
    find_principal,
    is_loopback_listen_addr,
)
from loomlog.connectors.configuration.providers import (
    Provider,
    build_providers,
    run_key_provider_ids,
    usable_provider_ids,
)
from loomlog.connectors.configuration.resolve import (
    FallbackModel,
    ResolvedAgent,
    UnavailableReason,
    UnresolvedAgent,
    build_hashed_definition,
    canonical_json,
    resolve_agent,
)
from loomlog.connectors.configuration.routing import collect_patterns
from loomlog.connectors.configuration.settings import SettingRow, Settings, setting_rows
from loomlog.connectors.configuration.tier_check import check_tiers
from loomlog.connectors.configuration.unsupported_keys import SUPPORTED_TOOLS, UNSUPPORTED_TOOLS
from loomlog.connectors.configuration.volumes import check_volumes, prepare_volumes

__all__ = [
    "OPEN_PRINCIPAL",
    "SCOPES",
    "SUPPORTED_TOOLS",
    "UNSUPPORTED_TOOLS",
    "AgentBlock",
    "Candidate",
    "ChangeSubscriptionBlock",
    "Concurrency",
    "ConcurrencyLimits",
    "Configuration",
    "ConfigurationError",
    "ConfigurationFinding",
    "ConsolidationBlock",
    "EmbedderBlock",
    "FallbackModel",
    "InterruptionAccess",
    "LoadedConfiguration",
    "MemoryBackendBlock",
    "MemoryBlock",
    "MemoryEntryBlock",
    "Principal",
    "ProcessConfiguration",
    "Provider",
    "ResolvedAgent",
    "SettingRow",
    "Settings",
    "TokenTable",
    "UnavailableReason",
    "UnresolvedAgent",
    "UserTier",
    "VolumeBlock",
    "authenticate",
    "build_hashed_definition",
    "build_providers",
    "build_token_table",
    "canonical_json",
    "check_names",
    "check_tiers",
    "check_volumes",
    "collect_patterns",
    "find_price",
    "find_principal",
    "is_loopback_listen_addr",
    "load",
    "load_configuration",
    "prepare_volumes",
    "read_settings",
    "resolve_agent",
    "resolve_limits",
    "run_key_provider_ids",
    "secret_names",
    "select_newest",
    "setting_rows",
    "usable_provider_ids",
]
