"""The operations on what this process knows by itself: its caller, its configuration, models, live figures. Pure.

They answer before the log and the read models are there, apart from those that need them.

Before: services/application/operations/__init__.py. After: services/api/process_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.connectors.http.insights_report import InsightsReport
from loomlog.services.application.answers.operators import (
    AgentDefinitionView,
    ConfigView,
    Me,
    ModelAliasList,
    PresetContent,
    PresetList,
    ProviderModels,
    Resolver,
    RetentionView,
    Routing,
    RunnableAgents,
)
from loomlog.services.application.log.json_types import HealthReport
from loomlog.services.application.operations.fields import PROCESS_TAG, http
from loomlog.services.application.operations.metrics import METRIC_OPERATIONS
from loomlog.services.core.access.rules import ANY_CALLER, own_data, requires
from loomlog.services.core.access.scopes import ADMIN, RUNS_READ, TENANT_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, McpTool, NoInput, Operation, Tag

AGENT_TAG = Tag(name="Agents", description="The agents that may be run, and their definitions.")
CONFIGURATION_TAG = Tag(name="Configuration", description="Configuration layers and settings.")
UNAVAILABLE = "projection_unavailable"


class ProviderNamed(Input, frozen=True, kw_only=True):
    provider_id: Annotated[str, Meta(description="Name of the provider in the configuration.")]


class RunnableAgentNamed(Input, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="Name of the agent.")]


class PresetNamed(Input, frozen=True, kw_only=True):
    name: Annotated[str, Meta(description="Name of the layer.")]


_read = partial(Operation, effect=Effect.READ, tag=PROCESS_TAG, unavailable_code=UNAVAILABLE)
GET_CALLER = _read(
    name="installation.get_caller",
    summary="Get the principal of the token.",
    input=NoInput,
    output=Me,
    access=ANY_CALLER,
    http=(http(route="GET /v1/_me", id="get_caller"),),
    mcp=(McpTool(tool="context", op="self"),),
)
GET_INSIGHTS = _read(
    name="installation.get_insights",
    summary="Get the live figures of the last minutes, as insights has them: runs, tokens, errors, latencies.",
    input=NoInput,
    output=InsightsReport,
    access=requires(ADMIN),
    http=(http(route="GET /v1/_insights", id="get_insights"),),
)
GET_ROUTING = _read(
    name="model.get_routing",
    summary="Get the models of plans and tiers.",
    input=NoInput,
    output=Routing,
    access=requires(TENANT_READ),
    http=(http(route="GET /v1/_routing", id="get_routing"),),
)
LIST_MODEL_ALIASES = _read(
    name="model.list_aliases",
    summary="List the model aliases of the configuration.",
    input=NoInput,
    output=ModelAliasList,
    access=requires(TENANT_READ),
    http=(http(route="GET /v1/_models", id="list_model_aliases"),),
)
LIST_PROVIDER_MODELS = _read(
    name="model.list_of_provider",
    summary="List the models of a provider, as it reports them now.",
    input=ProviderNamed,
    output=ProviderModels,
    access=requires(ADMIN),
    unavailable_code="provider_unavailable",
    http=(http(route="GET /v1/_providers/{provider_id}/models", id="list_provider_models", refusal_statuses=(502,)),),
)
GET_RESOLVER = _read(
    name="model.get_availability",
    summary="Get the availability of providers and models.",
    input=NoInput,
    output=Resolver,
    access=requires(ADMIN),
    http=(http(route="GET /v1/_resolver", id="get_resolver"),),
)
PROBE_PROVIDERS = Operation(
    name="model.probe",
    summary="Probe all providers now; answers as /v1/_resolver.",
    input=NoInput,
    output=Resolver,
    access=requires(ADMIN),
    effect=Effect.WAIT,
    tag=PROCESS_TAG,
    unavailable_code="log_unavailable",
    http=(http(route="POST /v1/_resolve/probe", id="probe_providers"),),
    mcp=(McpTool(tool="resolve_probe"),),
)
GET_HEALTH_REPORT = _read(
    name="installation.check_health",
    summary="Check broker, Postgres, topics, dead letters, signatures, read models, runs, entities and insights.",
    input=NoInput,
    output=HealthReport,
    access=requires(ADMIN),
    http=(http(route="GET /v1/_doctor", id="get_health_report"),),
)
LIST_RUNNABLE_AGENTS = _read(
    name="agent.list_runnable",
    summary="List the agents that may be run.",
    input=NoInput,
    output=RunnableAgents,
    access=own_data(RUNS_READ),
    tag=AGENT_TAG,
    http=(http(route="GET /v1/_runnable-agents", id="list_runnable_agents"),),
    mcp=(McpTool(tool="context", op="agents"),),
)
GET_RUNNABLE_AGENT = _read(
    name="agent.get_runnable",
    summary="Get an agent with its definition.",
    input=RunnableAgentNamed,
    output=AgentDefinitionView,
    access=requires(TENANT_READ),
    tag=AGENT_TAG,
    http=(http(route="GET /v1/_runnable-agents/{name}", id="get_runnable_agent"),),
)
LIST_PRESETS = _read(
    name="preset.list",
    summary="List the configuration layers that come with the program.",
    input=NoInput,
    output=PresetList,
    access=requires(ADMIN),
    tag=CONFIGURATION_TAG,
    http=(http(route="GET /v1/_presets", id="list_presets"),),
)
GET_PRESET = _read(
    name="preset.get",
    summary="Get a configuration layer with its YAML.",
    input=PresetNamed,
    output=PresetContent,
    access=requires(ADMIN),
    tag=CONFIGURATION_TAG,
    http=(http(route="GET /v1/_presets/{name}", id="get_preset"),),
)
GET_CONFIG = _read(
    name="installation.get_config",
    summary="Show what this installation offers: features, providers, models, plans and limits.",
    input=NoInput,
    output=ConfigView,
    access=ANY_CALLER,
    http=(http(route="GET /v1/config", id="get_config", opens_with_public_config=True),),
)
GET_RETENTION = _read(
    name="installation.get_retention",
    summary="Show what is kept how long.",
    input=NoInput,
    output=RetentionView,
    access=requires(TENANT_READ),
    http=(http(route="GET /v1/_retention", id="get_retention"),),
)
PROCESS_OPERATIONS: tuple[AnyOperation, ...] = (
    GET_CALLER,
    GET_INSIGHTS,
    GET_ROUTING,
    LIST_MODEL_ALIASES,
    LIST_PROVIDER_MODELS,
    GET_RESOLVER,
    PROBE_PROVIDERS,
    GET_HEALTH_REPORT,
    LIST_RUNNABLE_AGENTS,
    GET_RUNNABLE_AGENT,
    LIST_PRESETS,
    GET_PRESET,
    GET_CONFIG,
    GET_RETENTION,
    *METRIC_OPERATIONS,
)
