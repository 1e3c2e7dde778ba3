"""Blocks of memory in the configuration files: memory, memory_backends and change_subscriptions.

A value of memory.entries is a JSON value: its numbers are finite and its texts can be stored. Rules that compare two
fields are in memory_check.py, except those of backends, which hold for backends made at run time too.

Before: field_types.py, environment.py. After: model.py; connectors/definitions/memory_backend.py.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from loomlog.connectors.configuration.environment import secret_names
from loomlog.connectors.configuration.field_classes import NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import (
    EnvName,
    FiniteFloat,
    JsonValue,
    MemoryScope,
    NonNegativeInt,
    OptionalTenant,
    OptionalUrl,
    PositiveInt,
    Switch,
    Url,
    WordList,
    configuration_block,
)

MAX_DIMENSIONS = 4_000
"""Numbers of a vector that the index can hold."""
MAX_EMBED_TIMEOUT_MS = 600_000
"""Milliseconds of one call of an embedder, as long as a local one needs that loads its model first."""
EMBEDDER_KEYS = frozenset({"GEMINI_API_KEY", "OLLAMA_API_KEY", "OPENAI_API_KEY", "VOYAGE_API_KEY"})
"""Variables with the keys of embedders whose block names none."""
MAX_KEY_CHARACTERS = 512
MAX_SCOPE_ID_CHARACTERS = 256
TENANT_PLACEHOLDER = "{tenant_id}"
PROMPT_PLACEHOLDERS = (
    "core_blocks",
    "user_info",
    "tenant_info",
    "ontology",
    "search_request",
    "consolidation_bands",
)
"""Names of {{memory:...}} in a prompt."""
PLACEHOLDER_START = "{{memory:"
"""Looked for before the expression, which takes 100 times as long for a long prompt without a placeholder."""
PLACEHOLDER = re.compile(r"(\\?)\{\{memory:([^{}\n]*)\}\}")
"""A placeholder: the backslash that keeps it as text, and its name."""

EmbedderProvider = Literal["stub", "openai", "gemini", "voyage", "anthropic", "ollama", "ollama-local"]
STUB_EMBEDDER: Literal["stub"] = "stub"
"""Embedder of tests, which asks no server."""
ChangeKind = Literal[
    "memory",
    "document",
    "memory.set",
    "memory.delete",
    "memory.scope_deleted",
    "document.chunk.updated",
    "document.chunk.deleted",
]
"""`memory` and `document` stand for all types that begin with them."""


def _check_name(value: str, limit: int) -> str:
    if not 0 < len(value) <= limit or not value.isprintable():
        raise ValueError(f"expected 1 to {limit} characters that can be printed")
    return value


@configuration_block
class EmbedderBlock:
    """The block memory.embedder. `dimensions` 0: the model's own. None: the setting."""

    provider: EmbedderProvider
    model: str = ""
    base_url: OptionalUrl = ""
    api_key_env: EnvName | None = None
    dimensions: Annotated[NonNegativeInt, Field(le=MAX_DIMENSIONS)] = 0
    timeout_ms: Annotated[PositiveInt, Field(le=MAX_EMBED_TIMEOUT_MS)] | None = None
    batch_size: Annotated[PositiveInt, Field(le=2_048)] | None = None


@configuration_block
class MemoryEntryBlock:
    """Item of memory.entries[]: an entry that is set at the start if it is not there. `scope_id`: empty for tenant."""

    scope: Annotated[MemoryScope, BeforeValidator(lambda value: "tenant" if value == "global" else value)]
    scope_id: str = ""
    key: Annotated[str, AfterValidator(lambda value: _check_name(value, MAX_KEY_CHARACTERS))]
    value: JsonValue
    embed: Switch = False

    @property
    def json_text(self) -> str:
        """JSON text of the value."""
        return json.dumps(self.value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


_Share = Annotated[FiniteFloat, Field(ge=0, le=1)]


@configuration_block
class ConsolidationBlock:
    """The block memory.consolidation: the similarities from which facts are related and from which they are one."""

    merge_threshold: _Share = 0.95
    related_threshold: _Share = 0.85
    verify_writes: Switch = False
    detect_conflicts: Switch = False


@configuration_block
class MemoryBlock:
    """The memory block."""

    embedder: EmbedderBlock | None = None
    entries: tuple[MemoryEntryBlock, ...] = ()
    consolidation: ConsolidationBlock = field(default_factory=ConsolidationBlock)


@configuration_block
class ChangeSubscriptionBlock:
    """Value of change_subscriptions.<name>. An empty tenant, scope or list of kinds lets all pass."""

    callback_url: Url
    secret_env: EnvName
    """NAME of the variable with the key of the signature."""
    tenant_id: OptionalTenant = ""
    scope: Literal["agent", "user", "tenant", ""] = ""
    kinds: WordList[ChangeKind] = ()
    allow_private_host: Switch = False
    disabled: Switch = False

    def accepts(self, *, tenant: str, scope: str, change_type: str) -> bool:
        """Return whether a change of that type, like memory.set, is sent."""
        is_of_kind = not self.kinds or change_type in self.kinds or change_type.partition(".")[0] in self.kinds
        return is_of_kind and self.tenant_id in ("", tenant) and self.scope in ("", scope)


@configuration_block
class MemoryBackendConfig:
    """Address of a remote memory."""

    base_url: OptionalUrl = ""
    api_version: str = ""
    api_key_env: EnvName | None = None


@configuration_block
class MemoryTenancy:
    """How tenants are kept apart; the patterns hold {tenant_id}."""

    kind: Literal["key_per_tenant", "shared_key_with_prefix"]
    env_pattern: str = ""
    prefix_pattern: str = ""


@configuration_block
class MemoryBackendBlock:
    """Value of memory_backends.<name>, and content of a memory backend made at run time."""

    kind: Annotated[Literal["inprocess", "remote"], NEUTRAL]
    config: Annotated[MemoryBackendConfig | None, Grant(order=Order.UNSET)] = None
    tenancy_strategy: Annotated[MemoryTenancy | None, Grant(order=Order.UNSET)] = None
    fallback_on_error: Annotated[Literal["inprocess"] | None, NEUTRAL] = None
    health_check_interval_seconds: Annotated[NonNegativeInt, NEUTRAL] = 0


class BackendProblem(NamedTuple):
    """Rule of several fields that a backend breaks; `is_missing`: the field has no value."""

    path: tuple[str, ...]
    message: str
    is_missing: bool = False


def iter_backend_problems(backend: MemoryBackendBlock) -> Iterator[BackendProblem]:
    """Yield what is wrong with a backend whose fields are right one by one."""
    config = backend.config or MemoryBackendConfig()
    if backend.kind == "remote" and not config.base_url:
        yield BackendProblem(("config", "base_url"), "needs an address (for kind remote)", is_missing=True)
    secrets = secret_names()
    if config.api_key_env in secrets:
        message = f"{config.api_key_env} is a secret of the installation and must not be sent to a backend"
        yield BackendProblem(("config", "api_key_env"), message)
    match backend.tenancy_strategy:
        case MemoryTenancy(kind="key_per_tenant", env_pattern=pattern):
            path = ("tenancy_strategy", "env_pattern")
            if problem := describe_pattern_problem(pattern):
                yield BackendProblem(path, problem)
            elif any(fnmatchcase(name, pattern.replace(TENANT_PLACEHOLDER, "*")) for name in secrets):
                message = "expected a longer pattern: some tenant's name would make it a secret of the installation"
                yield BackendProblem(path, message)
        case MemoryTenancy(kind="shared_key_with_prefix", prefix_pattern=pattern):
            if problem := describe_pattern_problem(pattern):
                yield BackendProblem(("tenancy_strategy", "prefix_pattern"), problem)


def describe_pattern_problem(pattern: str) -> str:
    """Return what is expected of a pattern that does not differ between tenants, or an empty text."""
    return "" if TENANT_PLACEHOLDER in pattern else f"expected a pattern with {TENANT_PLACEHOLDER}"


def memory_placeholders(prompt: str) -> tuple[str, ...]:
    """Return the names in {{memory:...}} placeholders; one after a backslash is text."""
    if PLACEHOLDER_START not in prompt:
        return ()
    return tuple(name for slash, name in PLACEHOLDER.findall(prompt) if not slash)


def unknown_memory_placeholders(prompt: str) -> tuple[str, ...]:
    """Return the names of {{memory:...}} placeholders that do not exist."""
    return tuple(name for name in memory_placeholders(prompt) if name not in PROMPT_PLACEHOLDERS)
