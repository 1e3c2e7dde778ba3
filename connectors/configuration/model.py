"""Validated configuration: the blocks of the files as plain frozen dataclasses.

Pydantic fills these (see `validate`) and is used here only: all other modules get dataclasses with tuples. Blocks of
later versions have no class; unsupported_keys.py lists them. Paths of volumes are made absolute and prompt files are
read before anything is validated (load.py), so a Configuration does not need the disk.

Before: field_types.py, agent_block.py, memory_block.py. After: check.py checks that the parts fit together;
providers.py, resolve.py, principals.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from loomlog.connectors.configuration.agent_block import AgentBlock, Candidates
from loomlog.connectors.configuration.approvals_block import ApprovalsBlock
from loomlog.connectors.configuration.channel_block import ChannelBlock, ChannelName
from loomlog.connectors.configuration.credential_block import CredentialStoreBlock
from loomlog.connectors.configuration.field_classes import NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import (
    AgentName,
    BlockLabel,
    Driver,
    Effort,
    EnvName,
    JsonObject,
    NonNegativeInt,
    OutputSchema,
    PositiveInt,
    ProviderId,
    RemoteToolName,
    Scope,
    StringList,
    Subject,
    Switch,
    Tenant,
    Tier,
    VolumeMode,
    VolumeName,
    configuration_block,
    require_number,
    zero_for,
)
from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.configuration.local_api_block import LocalApiBlock
from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.configuration.memory_block import ChangeSubscriptionBlock, MemoryBackendBlock, MemoryBlock
from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.secret_block import SecretBlock
from loomlog.connectors.configuration.webhook_block import WebhookBlock

DEFAULT_PROVIDER_ORDER = ("ollama-local", "deepseek", "openai", "anthropic", "ollama")
"""Order of providers where no file sets one, the same as the reference."""
DEFAULT_CURRENCY = "USD"
MICROS = 1_000_000
"""Micro-units of money in one unit."""
MAX_REMOTE_TIMEOUT_S = 1_800
"""Seconds a remote call may take; half the retention of loom.tool.requests: a request must outlive
its caller's wait.
"""
CONCURRENT_RUNS = 1_000
ASK_TIMEOUT_MS, MAX_ASK_TIMEOUT_MS, MAX_PENDING_ASKS = 3_600_000, 86_400_000, 10
"""Defaults of how long a question waits for its answer, an hour and a day, and of how many wait in a run."""
MAX_RATE = 1_000_000
"""Money per million tokens above which a rate is a typo."""


@configuration_block
class Defaults:
    """Model of agents that name none."""

    provider: ProviderId | None = None
    model: str = ""


@configuration_block
class ModelAlias:
    """Value of models.<name>: an alias of one model, or of the newest one that matches a pattern."""

    provider: ProviderId
    model: str = ""
    model_pattern: str = ""
    effort: Effort | None = None


@configuration_block
class CapabilityOverrides:
    """Overrides of a provider's capabilities in a file; None leaves it to the driver."""

    native_prompt_cache: Switch | None = None
    parallel_tool_calls: Switch | None = None
    streaming: Switch | None = None
    max_context_tokens: PositiveInt | None = None
    supports_thinking: Switch | None = None
    supports_vision: Switch | None = None
    supports_effort: Switch | None = None


@configuration_block
class ProviderBlock:
    """Value of providers.<id>. `api_key_env` is a NAME; `max_concurrent` 0 = LOOMLOG_MODEL_CALLS_PER_PROVIDER."""

    driver: Driver
    dialect: str = ""
    base_url: str = ""
    api_key_env: EnvName | None = None
    max_concurrent: NonNegativeInt = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    capabilities: CapabilityOverrides = field(default_factory=CapabilityOverrides)


@configuration_block
class UserTier:
    """Value of user_tiers.<name>: a plan. `max_fallback_attempts` 0 = 3."""

    provider_priority: tuple[ProviderId, ...] = ()
    tiers: Mapping[Tier, Candidates] = field(default_factory=dict)
    fallback_on_error: Switch = False
    max_fallback_attempts: NonNegativeInt = 0
    retry_attempts: NonNegativeInt = 0
    rate_limit_cooldown_ms: NonNegativeInt = 30_000


@configuration_block
class Concurrency:
    """Limits of each runtime process. The provider queue defaults to the queue of the process.

    The reference defaults to 8 runs and a queue of 16; one runtime here runs a thousand, and a limit that is not
    configured would only slow it down.
    """

    max_concurrent_runs: Annotated[PositiveInt, zero_for(CONCURRENT_RUNS)] = CONCURRENT_RUNS
    max_queue_depth: NonNegativeInt = 4_000
    queue_timeout_ms: NonNegativeInt = 30_000
    max_concurrent_runs_per_user: NonNegativeInt = 0
    provider_queue_depth: NonNegativeInt | None = None
    provider_queue_timeout_ms: NonNegativeInt | None = None


def _require_exact_micros(rate: Decimal) -> Decimal:
    if rate * MICROS != (rate * MICROS).to_integral_value():
        raise ValueError("expected at most six digits after the point")
    return rate


Rate = Annotated[
    Decimal, BeforeValidator(require_number), Field(ge=0, le=MAX_RATE), AfterValidator(_require_exact_micros)
]


@configuration_block
class ModelRates:
    """Value of pricing.models."provider/model": money per million tokens. Cache rates default to the input rate."""

    input: Rate
    output: Rate
    cache_write: Rate | None = None
    cache_read: Rate | None = None


@configuration_block
class Pricing:
    """The pricing block: prices of models, in one currency."""

    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = DEFAULT_CURRENCY
    models: Mapping[str, ModelRates] = field(default_factory=dict)


@configuration_block
class VolumeBlock:
    """Value of volumes.<name>: a folder. A relative path is resolved against the folder of the file that has it."""

    path: Annotated[str, Field(min_length=1)]
    mode: VolumeMode = "ro"
    default: Switch = False
    dynamic_root: Switch = False


@configuration_block
class RemoteToolBlock:
    """Value of remote_tools.<name>: a tool that a microservice serves over the log."""

    description: str
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})
    output_schema: OutputSchema = field(default_factory=dict)
    effect: Literal["pure", "read", "idempotent", "unsafe"] = "unsafe"
    timeout_seconds: Annotated[NonNegativeInt, Field(ge=1, le=MAX_REMOTE_TIMEOUT_S)] = 60
    topic: str = ""


@configuration_block
class ContextPluginBlock:
    """Item of context_plugins[]: changes the conversation on its way to a provider; plugins run in their order."""

    name: Literal["redact"]
    enabled: Switch = True
    redact_tool_input: Switch = False


@configuration_block
class PermitHostWiden:
    """Value of hooks.permit_host_widen: whose hooks may allow hosts for a call, as `tenant:owner` or `owner`."""

    owners: StringList = ()


@configuration_block
class HooksBlock:
    """The hooks block: the operator's rules for hooks; hooks are registered over the API."""

    permit_host_widen: PermitHostWiden = field(default_factory=PermitHostWiden)


@configuration_block
class InterruptionBlock:
    """The interruption block: how runs ask people. `heartbeat_interval_ms` has no effect: no
    heartbeat is needed here.
    """

    backend: Annotated[str, Field(pattern=r"^(webui|cli|mcp_server:.+)$")] = "webui"
    default_timeout_ms: Annotated[PositiveInt, zero_for(ASK_TIMEOUT_MS)] = ASK_TIMEOUT_MS
    max_timeout_ms: Annotated[PositiveInt, zero_for(MAX_ASK_TIMEOUT_MS)] = MAX_ASK_TIMEOUT_MS
    max_pending_per_run: Annotated[PositiveInt, zero_for(MAX_PENDING_ASKS)] = MAX_PENDING_ASKS
    heartbeat_interval_ms: NonNegativeInt = 30_000


@configuration_block
class SkillBlock:
    """Value of skills.<name>: an inline skill. `files`: relative path -> text."""

    description: Annotated[str, NEUTRAL] = ""
    tools: Annotated[StringList, Grant(order=Order.TOOLS, held="tools")] = ()
    body: Annotated[str, NEUTRAL]
    files: Annotated[Mapping[str, str], NEUTRAL] = field(default_factory=dict)


@configuration_block
class PrincipalBlock:
    """Value of principals.<name>: the holder of the token in the environment variable `token_env`."""

    tenant: Tenant
    subject: Subject
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    token_env: EnvName


@configuration_block
class Configuration:
    """All blocks. Immutable; a changed file is a new Configuration."""

    defaults: Defaults = field(default_factory=Defaults)
    models: Mapping[str, ModelAlias] = field(default_factory=dict)
    agents: Mapping[AgentName, AgentBlock] = field(default_factory=dict)
    providers: Mapping[ProviderId, ProviderBlock] = field(default_factory=dict)
    provider_priority: tuple[ProviderId, ...] = DEFAULT_PROVIDER_ORDER
    tiers: Mapping[Tier, Candidates] = field(default_factory=dict)
    user_tiers: Mapping[str, UserTier] = field(default_factory=dict)
    concurrency: Concurrency = field(default_factory=Concurrency)
    pricing: Pricing = field(default_factory=Pricing)
    volumes: Mapping[VolumeName, VolumeBlock] = field(default_factory=dict)
    remote_tools: Mapping[RemoteToolName, RemoteToolBlock] = field(default_factory=dict)
    mcp_servers: Mapping[AgentName, McpServerBlock] = field(default_factory=dict)
    local_api: LocalApiBlock = field(default_factory=LocalApiBlock)
    skills: Mapping[AgentName, SkillBlock] = field(default_factory=dict)
    interruption: InterruptionBlock = field(default_factory=InterruptionBlock)
    approvals: ApprovalsBlock = field(default_factory=ApprovalsBlock)
    principals: Mapping[str, PrincipalBlock] = field(default_factory=dict)
    issuers: Mapping[BlockLabel, IssuerBlock] = field(default_factory=dict)
    credential_stores: Mapping[BlockLabel, CredentialStoreBlock] = field(default_factory=dict)
    hooks: HooksBlock = field(default_factory=HooksBlock)
    context_plugins: tuple[ContextPluginBlock, ...] = ()
    memory: MemoryBlock = field(default_factory=MemoryBlock)
    memory_backends: Mapping[AgentName, MemoryBackendBlock] = field(default_factory=dict)
    change_subscriptions: Mapping[AgentName, ChangeSubscriptionBlock] = field(default_factory=dict)
    channels: Mapping[ChannelName, ChannelBlock] = field(default_factory=dict)
    scheduled_runs: Mapping[AgentName, ScheduleBlock] = field(default_factory=dict)
    webhooks: Mapping[AgentName, WebhookBlock] = field(default_factory=dict)
    secrets: Mapping[EnvName, SecretBlock] = field(default_factory=dict)


_ADAPTER = TypeAdapter(Configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationProblem:
    """Value that the model refused: its path, and what was expected."""

    path: tuple[str | int, ...]
    is_missing: bool
    value: object
    expected: str


def validate(values: Mapping[str, object]) -> tuple[Configuration | None, list[ValidationProblem]]:
    """Return the configuration of those values, or everything that is wrong with them."""
    try:
        return _ADAPTER.validate_python(values), []
    except ValidationError as error:
        return None, list_problems(error)


def list_problems(error: ValidationError) -> list[ValidationProblem]:
    """Return what is wrong with the values that pydantic refused, in its order."""
    detailses = error.errors(include_url=False)
    paths = [tuple(one["loc"]) for one in detailses]
    return [
        ValidationProblem(
            path=path,
            is_missing=one["type"] == "missing",
            value=one["input"],
            expected=_format_expectation(one["type"], one["msg"]),
        )
        for path, one in zip(paths, detailses, strict=True)
        if one["type"] != "too_short" or not any(_is_descendant(other, path) for other in paths)
    ]


def _is_descendant(path: tuple[str | int, ...], ancestor: tuple[str | int, ...]) -> bool:
    """Return whether `path` is below `ancestor`: a list too short because of invalid items gets no
    finding of its own.
    """
    return len(path) > len(ancestor) and path[: len(ancestor)] == ancestor


_EXPECTED_TYPES = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping",
    "decimal_type": "a number",
    "dict_type": "a mapping",
    "float_type": "a number",
    "int_type": "a whole number",
    "mapping_type": "a mapping",
    "string_type": "text (in quotes when it looks like a number)",
    "too_short": "at least one item",
    "tuple_type": "a list",
}
"""Expected values by pydantic's kind of error, in the words of people who write YAML."""


def _format_expectation(kind: str, message: str) -> str:
    """Return pydantic's message rephrased as the second half of ours."""
    if kind in _EXPECTED_TYPES:
        return f"expected {_EXPECTED_TYPES[kind]}"
    if kind == "too_long" and (bound := re.search(r"at most (\d+)", message)):
        return f"expected at most {bound[1]} items"
    words = message
    for beginning in ("Value error, ", "Input should be ", "Input should have ", "String should have "):
        words = words.removeprefix(beginning)
    return words if words.startswith("expected ") else f"expected {words[:1].lower()}{words[1:]}"
