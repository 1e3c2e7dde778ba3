"""Model objects built from configuration: which driver serves which provider.

A provider is described by values; their source (files, settings, the environment) is not known here. Building opens no
connection. Options that a driver does not know are ignored, because they may be meant for another version of it; the
configuration warns about them. An unknown driver is refused.

Before: services' main, with the configuration's providers. After: the drivers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from msgspec import structs

from loomlog.connectors.errors import Permanent
from loomlog.connectors.models.anthropic import AnthropicModel
from loomlog.connectors.models.code_js import RUN_TIMEOUT_S, CodeModel
from loomlog.connectors.models.deepseek import DEEPSEEK
from loomlog.connectors.models.gemini import GeminiModel
from loomlog.connectors.models.mock.model import MockModel, MockOptions
from loomlog.connectors.models.model_capabilities import vision_models
from loomlog.connectors.models.ollama import OllamaModel
from loomlog.connectors.models.openai import OpenAiModel
from loomlog.connectors.models.openai_request import OPENAI, Dialect
from loomlog.connectors.models.provider_client import HEADER_TIMEOUT_S, IDLE_TIMEOUT_S
from loomlog.connectors.protocols import Capabilities, Model

STABLE_PROVIDER = "mock-stable"


class ProviderConfig(Protocol):
    """Fields read from a provider's configuration; ProviderSpec is one implementation."""

    @property
    def id(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key(self) -> str: ...
    @property
    def options(self) -> Mapping[str, object]: ...
    @property
    def capabilities(self) -> Mapping[str, bool | int]: ...
    @property
    def header_timeout_s(self) -> float: ...
    @property
    def idle_timeout_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """A provider as values.

    Options of driver openai: `echo_reasoning` (bool) for providers that require their reasoning back,
    `reasoning_models` (list of name prefixes) that take an effort and max_completion_tokens in addition to OpenAI's
    own. Of driver ollama: `num_ctx` (tokens) pins the window, `num_gpu` (layers), `vision_models` (list of name
    prefixes) with vision in addition to the known ones. Of driver mock: `stable`, `latency_ms`, `latency_jitter_ms`,
    `rate_429`, `rate_500`.
    """

    id: str
    driver: str
    base_url: str = ""
    """Empty for the vendor's own address."""
    api_key: str = field(default="", repr=False)
    options: Mapping[str, object] = field(default_factory=dict)
    capabilities: Mapping[str, bool | int] = field(default_factory=dict)
    """Deviations from the driver's Capabilities, by field name."""
    header_timeout_s: float = HEADER_TIMEOUT_S
    idle_timeout_s: float = IDLE_TIMEOUT_S


def build_models(providers: Mapping[str, ProviderConfig]) -> dict[str, Model]:
    """Return one Model per provider, by id. Raises Permanent for an unknown driver, option value or capability."""
    return {name: build_model(provider) for name, provider in providers.items()}


def build_model(provider: ProviderConfig) -> Model:
    """Return the Model of one provider. Raises Permanent(unsupported) for an unknown driver, Permanent(invalid) for
    values that cannot be used.
    """
    build = DRIVERS.get(provider.driver)
    if build is None:
        raise Permanent(
            f"{provider.id}: no driver {provider.driver!r}; there are {', '.join(DRIVERS)}", kind="unsupported"
        )
    model = build(provider)
    model.capabilities = _override_capabilities(provider, model.capabilities)
    return model


def _build_anthropic(provider: ProviderConfig) -> Model:
    return AnthropicModel(
        provider=provider.id,
        api_key=provider.api_key,
        base_url=provider.base_url,
        header_timeout_s=provider.header_timeout_s,
        idle_timeout_s=provider.idle_timeout_s,
    )


def _build_openai(provider: ProviderConfig) -> Model:
    extra = _names_option(provider, "reasoning_models")
    dialect = replace(
        OPENAI,
        echoes_reasoning=_bool_option(provider, "echo_reasoning"),
        effort_models=(*OPENAI.effort_models, *extra),
        max_completion_tokens_models=(*OPENAI.max_completion_tokens_models, *extra),
    )
    return _build_openai_dialect(provider, dialect)


def _build_deepseek(provider: ProviderConfig) -> Model:
    return _build_openai_dialect(provider, DEEPSEEK)


def _build_openai_dialect(provider: ProviderConfig, dialect: Dialect) -> Model:
    return OpenAiModel(
        provider=provider.id,
        api_key=provider.api_key,
        base_url=provider.base_url,
        dialect=dialect,
        header_timeout_s=provider.header_timeout_s,
        idle_timeout_s=provider.idle_timeout_s,
    )


def _build_gemini(provider: ProviderConfig) -> Model:
    return GeminiModel(
        provider=provider.id,
        api_key=provider.api_key,
        base_url=provider.base_url,
        header_timeout_s=provider.header_timeout_s,
        idle_timeout_s=provider.idle_timeout_s,
    )


def _build_ollama(provider: ProviderConfig) -> Model:
    _names_option(provider, "vision_models")
    return OllamaModel(
        provider=provider.id,
        api_key=provider.api_key,
        base_url=provider.base_url,
        num_ctx=_int_option(provider, "num_ctx", 0, minimum=0, maximum=MAX_CONTEXT_TOKENS),
        num_gpu=_int_option(provider, "num_gpu", -1, minimum=-1, maximum=MAX_GPU_LAYERS),
        vision_models=vision_models(provider.options),
        header_timeout_s=provider.header_timeout_s,
        idle_timeout_s=provider.idle_timeout_s,
    )


def _build_mock(provider: ProviderConfig) -> Model:
    default = MockOptions()
    knobs = MockOptions(
        latency_ms=_float_option(provider, "latency_ms", default.latency_ms, maximum=MAX_LATENCY_MS),
        latency_jitter_ms=_float_option(
            provider, "latency_jitter_ms", default.latency_jitter_ms, maximum=MAX_LATENCY_MS
        ),
        rate_429=_float_option(provider, "rate_429", default.rate_429, maximum=1.0),
        rate_500=_float_option(provider, "rate_500", default.rate_500, maximum=1.0),
    )
    stable = _bool_option(provider, "stable") or provider.id == STABLE_PROVIDER
    return MockModel(provider=provider.id, options=knobs, stable=stable)


def _build_code_js(provider: ProviderConfig) -> Model:
    return CodeModel(
        provider=provider.id,
        run_timeout_s=_float_option(provider, "run_timeout_seconds", RUN_TIMEOUT_S, maximum=MAX_RUN_TIMEOUT_S),
        is_deterministic=_bool_option(provider, "deterministic"),
    )


DRIVERS: Mapping[str, Callable[[ProviderConfig], Model]] = {
    "anthropic": _build_anthropic,
    "openai": _build_openai,
    "deepseek": _build_deepseek,
    "gemini": _build_gemini,
    "ollama": _build_ollama,
    "mock": _build_mock,
    "code-js": _build_code_js,
}
MAX_RUN_TIMEOUT_S = 86_400.0
MAX_LATENCY_MS = 600_000.0
"""Limit in milliseconds, longer than any real turn; more is a mistake in the unit."""
MAX_CONTEXT_TOKENS = 10_000_000
"""Limit in tokens: five times the largest existing window."""
MAX_GPU_LAYERS = 1_000
"""Limit in layers: models have up to some 130; 999 is a common value for all of them."""


def _override_capabilities(provider: ProviderConfig, capabilities: Capabilities) -> Capabilities:
    known = {entry.name: entry.type for entry in structs.fields(Capabilities)}
    for name, value in provider.capabilities.items():
        expected_type = known.get(name)
        if expected_type is None:
            raise _invalid_option(provider, f"capabilities.{name}", value, f"one of {', '.join(known)}")
        if type(value) is not expected_type:
            raise _invalid_option(
                provider, f"capabilities.{name}", value, "a whole number" if expected_type is int else "true or false"
            )
    changes: dict[str, Any] = dict(provider.capabilities)
    return structs.replace(capabilities, **changes)


def _bool_option(provider: ProviderConfig, option: str) -> bool:
    value = provider.options.get(option, False)
    if not isinstance(value, bool):
        raise _invalid_option(provider, option, value, "true or false")
    return value


def _names_option(provider: ProviderConfig, option: str) -> tuple[str, ...]:
    value = provider.options.get(option, [])
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise _invalid_option(provider, option, value, "a list of model name prefixes")
    return tuple(value)


def _int_option(provider: ProviderConfig, option: str, default: int, *, minimum: int, maximum: int) -> int:
    value = provider.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise _invalid_option(provider, option, value, f"a whole number from {minimum} to {maximum}")
    return value


def _float_option(provider: ProviderConfig, option: str, default: float, *, maximum: float) -> float:
    value = provider.options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= maximum:
        raise _invalid_option(provider, option, value, f"a number from 0 to {maximum:g}")
    return float(value)


def _invalid_option(provider: ProviderConfig, option: str, value: object, expected: str) -> Permanent:
    return Permanent(f"{provider.id}: {option} is {value!r:.100}; expected {expected}", kind="invalid")
