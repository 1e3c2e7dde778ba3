"""JSON of the answers about the process, its models, its agents and its configuration layers.

Before: services/api/process_handlers.py, services/api/operator_endpoints.py. After: openapi.py.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import JsonObject


class Health(TypedDict):
    """This process."""

    ok: Literal[True]
    version: str
    commit: str
    built: str
    uptime_seconds: float
    metrics_enabled: bool
    replica_id: str
    replicas: list[str]


class Readiness(TypedDict):
    """`missing` names the dependencies that do not answer."""

    ready: bool
    missing: list[str]
    code: NotRequired[Literal["not_ready"]]
    error: NotRequired[str]


class Capabilities(TypedDict):
    """Capabilities of this installation."""

    mcp_allow_dynamic_stdio: bool
    http_host_allowlist_configured: bool


class Me(TypedDict):
    """The caller, by its token."""

    tenant_id: str
    subject: str
    name: str
    scopes: list[str]
    is_admin: bool
    is_isolated: bool
    legacy: bool
    open_mode: bool
    capabilities: Capabilities


class LoginIssuer(TypedDict):
    """An identity provider with which people sign in. `page`: in the web page. `device_client_id`: the client of
    `loomlog login`; empty: it cannot.
    """

    name: str
    title: str
    page: bool
    issuer: str
    device_client_id: str
    scopes: list[str]


class LoginConfig(TypedDict):
    """What the sign-in page and `loomlog login` need before anybody is signed in."""

    login_origins: list[str]
    open_mode: bool
    version: str
    issuers: NotRequired[list[LoginIssuer]]


class ProviderModels(TypedDict):
    """Models that a provider lists at this moment."""

    provider: str
    models: list[str]


class ActiveRuns(TypedDict):
    """Runs that are active, and starts that wait; `queued` null: not known to this process."""

    active: int
    queued: int | None


class Concurrency(TypedDict):
    """Open runs, by user and by provider: those at work and those that are parked."""

    active: int
    at_work: int
    """Open runs that a call is due or under way for."""
    queued: int | None
    per_user: Mapping[str, int]
    providers: Mapping[str, ActiveRuns]


class ModelChoiceStatus(TypedDict):
    """A model of a cascade."""

    provider: str
    model: str
    primary: bool
    available: bool
    selected: bool
    stalled: bool
    rate_limited: bool
    reachable: bool


class TierCascade(TypedDict):
    """The models of a tier, in the order in which they are tried."""

    tier: str
    cascade: list[ModelChoiceStatus]


class UserTier(TypedDict):
    """A plan of users and its tiers."""

    name: str
    tiers: list[TierCascade]


class ProviderStatus(TypedDict):
    """A provider, without its key. `available`: this process can call it; `reachable`: it answers."""

    provider: str
    driver: str
    dialect: str
    available: bool
    reachable: bool
    max_concurrent: int
    why_not: NotRequired[str | None]


class RoutingTable(TypedDict):
    """Models by plan and tier."""

    admin: bool
    providers: list[ProviderStatus]
    user_tiers: list[UserTier]
    operator_key_restricted: bool
    search: tuple[()]
    """Always empty: no search provider is routed."""


class Routing(RoutingTable):
    """Models by plan and tier, at a time."""

    generated_at: str


class ConfigInstance(TypedDict):
    """The program that answers. What the public view leaves out is absent."""

    version: str
    commit: NotRequired[str]
    build_time: NotRequired[str]
    url: NotRequired[str]


class Feature(TypedDict):
    """A feature; `backend` is that of the storage, for administrators."""

    available: bool
    backend: NotRequired[str]


class OfferedProvider(TypedDict):
    """A provider; `active`: it can be called."""

    provider: str
    active: bool


class OfferedModel(TypedDict):
    """A model of the plans and tiers; `selected`: a tier takes it now."""

    provider: str
    model: str
    tiers: list[str]
    active: bool
    selected: bool


class ConfigLimits(TypedDict):
    """Bounds of requests and runs; 0: none."""

    max_request_bytes: int
    max_concurrent_runs: int
    max_queue_depth: int
    max_concurrent_runs_per_user: int


class ConfigView(TypedDict):
    """What this installation offers. `view` is public, authenticated or admin; the public one ends with `search`."""

    generated_at: str
    view: str
    instance: ConfigInstance
    features: dict[str, Feature]
    providers: list[OfferedProvider]
    models: list[OfferedModel]
    search: tuple[()]
    """Always empty: no search provider is routed."""
    user_tiers: NotRequired[list[UserTier]]
    limits: NotRequired[ConfigLimits]


class Kept(TypedDict):
    """Something that is kept; `max_age_ms` null: until it is deleted or erased."""

    what: str
    max_age_ms: int | None


class RetentionView(TypedDict):
    """What is deleted by age: modes are off, prune, or export and prune. `kept` has all that is kept, and how long."""

    admin: bool
    enabled: bool
    interval_ms: int
    defs_mode: str
    defs_max_age_ms: int
    defs_keep_last_n: int
    chats_mode: str
    chats_max_age_ms: int
    chats_internal_max_age_ms: int
    mem_mode: str
    mem_max_age_ms: int
    mem_content_mode: str
    mem_content_max_age_ms: int
    kept: list[Kept]


class ModelStatus(TypedDict):
    """What calls and probes have shown of a model."""

    listed: bool
    stalled: bool
    rate_limited: bool
    rate_limited_until: str | None
    reason: str | None


class ProviderAvailability(ProviderStatus):
    """A provider with its models. `excluded`: this process cannot call it."""

    excluded: bool
    models: Mapping[str, ModelStatus]
    last_check: str | None
    last_error: str | None


class AvailabilityMatrix(TypedDict):
    """Providers and their models."""

    providers: Mapping[str, ProviderAvailability]


class Resolver(AvailabilityMatrix):
    """Providers and their models, at a time."""

    generated_at: str


class ModelAlias(TypedDict):
    """A name of a model in the configuration."""

    name: str
    provider: str
    model: str | None
    model_pattern: str | None
    effort: str | None


class AliasTarget(TypedDict):
    """The model, or the pattern of models, that a name means."""

    provider: str
    model: str


class ModelAliasList(TypedDict):
    """Names of models in the configuration: by name, and as a list with all that is known of each."""

    aliases: Mapping[str, AliasTarget]
    models: list[ModelAlias]


class RunnableAgent(TypedDict):
    """An agent that may be run. `available` is whether one of its models is usable for the operator's keys."""

    name: str
    source: str
    description: str
    provider: str | None
    model: str | None
    tools: list[str]
    volumes: list[str]
    available: bool
    unavailable_reason: str | None


class RunnableAgents(TypedDict):
    """The agents that may be run."""

    agents: list[RunnableAgent]


class AgentDefinitionView(RunnableAgent):
    """An agent with the keys of its definition that differ from their defaults."""

    definition: JsonObject


class PresetSummary(TypedDict):
    """A configuration layer that comes with the program."""

    name: str
    kind: str
    description: str


class PresetList(TypedDict):
    """Configuration layers that come with the program."""

    units: list[PresetSummary]


class PresetContent(PresetSummary):
    """A configuration layer with its YAML."""

    content: str
