"""A configuration after reading: the blocks of the files as plain frozen dataclasses.

Pydantic fills these (see `validate`) and stays here: everyone else gets dataclasses with tuples. Blocks of later
versions have no class; unsupported_keys.py lists them. Paths of volumes are absolute and prompts from files are read in
before anything is validated (load.py), so a Configuration needs no disk any more.

Before: field_types.py, agent_block.py. After: check.py asks whether the parts fit together; providers.py, resolve.py,
principals.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from loomlog.connectors.configuration.agent_block import AgentBlock, Candidate
from loomlog.connectors.configuration.field_types import (
    FORBID_EXTRA,
    AgentName,
    Driver,
    Effort,
    EnvName,
    NonNegativeInt,
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
    require_number,
)

DEFAULT_PROVIDER_ORDER = ("ollama-local", "deepseek", "openai", "anthropic", "ollama")
"""Parity: the order that is used where no file says one."""
MICROS = 1_000_000
"""Micro-units of money in one unit."""
MAX_REMOTE_TIMEOUT_S = 1_800
"""Half of what loom.tool.requests keeps: a request must not be gone while somebody waits."""
MAX_RATE = 1_000_000
"""Money per million tokens above which a rate is a typo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The model of agents that name none."""

    __pydantic_config__ = FORBID_EXTRA
    provider: ProviderId | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAlias:
    """models.<name>: another name for one model, or for the newest one that a pattern finds."""

    __pydantic_config__ = FORBID_EXTRA
    provider: ProviderId
    model: str = ""
    model_pattern: str = ""
    effort: Effort | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityOverrides:
    """What a file says about a provider's abilities; None leaves it to the driver."""

    __pydantic_config__ = FORBID_EXTRA
    native_prompt_cache: Switch | None = None
    parallel_tool_calls: Switch | None = None
    streaming: Switch | None = None
    max_context_tokens: PositiveInt | None = None
    supports_thinking: Switch | None = None
    supports_vision: Switch | None = None
    supports_effort: Switch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBlock:
    """providers.<id>. `api_key_env` is a NAME; `max_concurrent` 0 = LOOMLOG_MODEL_CALLS_PER_PROVIDER."""

    __pydantic_config__ = FORBID_EXTRA
    driver: Driver
    dialect: str = ""
    base_url: str = ""
    api_key_env: EnvName | None = None
    max_concurrent: NonNegativeInt = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    capabilities: CapabilityOverrides = field(default_factory=CapabilityOverrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserTier:
    """user_tiers.<name>: a plan. `max_fallback_attempts` 0 = 3."""

    __pydantic_config__ = FORBID_EXTRA
    provider_priority: tuple[ProviderId, ...] = ()
    tiers: Mapping[Tier, tuple[Candidate, ...]] = field(default_factory=dict)
    fallback_on_error: Switch = False
    max_fallback_attempts: NonNegativeInt = 0
    retry_attempts: NonNegativeInt = 0
    rate_limit_cooldown_ms: NonNegativeInt = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """Bounds of each runtime process. The provider queue is that of the process where it is not said.

    The reference begins with 8 runs and a queue of 16; one runtime here keeps a thousand, and a bound that nobody asked
    for would only slow it down.
    """

    __pydantic_config__ = FORBID_EXTRA
    max_concurrent_runs: PositiveInt = 1_000
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRates:
    """pricing.models."provider/model": money per million tokens. Cache rates that are not said are those of input."""

    __pydantic_config__ = FORBID_EXTRA
    input: Rate
    output: Rate
    cache_write: Rate | None = None
    cache_read: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """pricing: what models cost, in one currency."""

    __pydantic_config__ = FORBID_EXTRA
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    models: Mapping[str, ModelRates] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeBlock:
    """volumes.<name>: a folder. A relative path is taken from the folder of the file that says it."""

    __pydantic_config__ = FORBID_EXTRA
    path: Annotated[str, Field(min_length=1)]
    mode: VolumeMode = "ro"
    default: Switch = False
    dynamic_root: Switch = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteToolBlock:
    """remote_tools.<name>: a tool that a microservice serves over the log."""

    __pydantic_config__ = FORBID_EXTRA
    description: str
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    effect: Literal["pure", "read", "idempotent", "unsafe"] = "unsafe"
    timeout_seconds: Annotated[NonNegativeInt, Field(ge=1, le=MAX_REMOTE_TIMEOUT_S)] = 60
    topic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPluginBlock:
    """context_plugins[]: changes the conversation on its way to a provider; they run in their order."""

    __pydantic_config__ = FORBID_EXTRA
    name: Literal["redact"]
    enabled: Switch = True
    redact_tool_input: Switch = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitHostWiden:
    """hooks.permit_host_widen: whose hooks may open hosts for a call, as `tenant:owner` or `owner`."""

    __pydantic_config__ = FORBID_EXTRA
    owners: StringList = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksBlock:
    """hooks: what the operator decides about hooks; they are registered over the API."""

    __pydantic_config__ = FORBID_EXTRA
    permit_host_widen: PermitHostWiden = field(default_factory=PermitHostWiden)


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionBlock:
    """interruption: how runs ask people. `heartbeat_interval_ms` has no effect: a question needs no pulse here."""

    __pydantic_config__ = FORBID_EXTRA
    backend: Annotated[str, Field(pattern=r"^(webui|cli|mcp_server:.+)$")] = "webui"
    default_timeout_ms: PositiveInt = 3_600_000
    max_timeout_ms: PositiveInt = 86_400_000
    max_pending_per_run: PositiveInt = 10
    heartbeat_interval_ms: NonNegativeInt = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillBlock:
    """skills.<name>: an inline skill."""

    __pydantic_config__ = FORBID_EXTRA
    description: str = ""
    tools: StringList = ()
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalBlock:
    """principals.<name>: who holds the token whose environment name is `token_env`."""

    __pydantic_config__ = FORBID_EXTRA
    tenant: Tenant
    subject: Subject
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    token_env: EnvName


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All blocks. Immutable; a changed file is a new Configuration."""

    __pydantic_config__ = FORBID_EXTRA
    defaults: Defaults = field(default_factory=Defaults)
    models: Mapping[str, ModelAlias] = field(default_factory=dict)
    agents: Mapping[AgentName, AgentBlock] = field(default_factory=dict)
    providers: Mapping[ProviderId, ProviderBlock] = field(default_factory=dict)
    provider_priority: tuple[ProviderId, ...] = DEFAULT_PROVIDER_ORDER
    tiers: Mapping[Tier, tuple[Candidate, ...]] = field(default_factory=dict)
    user_tiers: Mapping[str, UserTier] = field(default_factory=dict)
    concurrency: Concurrency = field(default_factory=Concurrency)
    pricing: Pricing = field(default_factory=Pricing)
    volumes: Mapping[VolumeName, VolumeBlock] = field(default_factory=dict)
    remote_tools: Mapping[RemoteToolName, RemoteToolBlock] = field(default_factory=dict)
    skills: Mapping[str, SkillBlock] = field(default_factory=dict)
    interruption: InterruptionBlock = field(default_factory=InterruptionBlock)
    principals: Mapping[str, PrincipalBlock] = field(default_factory=dict)
    hooks: HooksBlock = field(default_factory=HooksBlock)
    context_plugins: tuple[ContextPluginBlock, ...] = ()


_ADAPTER = TypeAdapter(Configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationProblem:
    """A value the model refused: where, and what was expected."""

    path: tuple[str | int, ...]
    is_missing: bool
    value: object
    expected: str


def validate(values: Mapping[str, object]) -> tuple[Configuration | None, list[ValidationProblem]]:
    """The configuration those values make, or everything that is wrong with them."""
    try:
        return _ADAPTER.validate_python(values), []
    except ValidationError as error:
        detailses = error.errors(include_url=False)
        paths = [tuple(one["loc"]) for one in detailses]
        return None, [
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
    """A list that is short because its items are wrong needs no words of its own."""
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
"""Pydantic's kinds of error in the words of people who write YAML."""


def _format_expectation(kind: str, message: str) -> str:
    """Pydantic's sentence as the second half of ours."""
    if kind in _EXPECTED_TYPES:
        return f"expected {_EXPECTED_TYPES[kind]}"
    if kind == "too_long" and (bound := re.search(r"at most (\d+)", message)):
        return f"expected at most {bound[1]} items"
    words = message.removeprefix("Value error, ").removeprefix("Input should be ").removeprefix("Input should have ")
    return words if words.startswith("expected ") else f"expected {words[:1].lower()}{words[1:]}"
