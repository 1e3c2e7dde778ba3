"""Providers as a process can use them: file, settings and environment combined.

A provider is usable when the process could call it: its key is in the environment (or it needs none), it is not
switched off by the address `disabled`, and a synthetic one was allowed, by LOOMLOG_MOCK_ENABLED or by the option
`enabled` in a file. Whether it responds is not checked here; the caller finds out.

One that lacks nothing but its key is open to runs that bring it (`run_key_provider_ids`), where runs can bring
credentials at all. It is never called without: it is not probed and lists nothing.

Before: model.py, settings.py. After: resolve.py receives the ids of the usable ones, connectors/models builds a driver
from each, and from those that are open to keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal

from loomlog.connectors.configuration.model import Configuration, ProviderBlock
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.unsupported_keys import UNSUPPORTED_DRIVERS

OLLAMA_LOCAL = "ollama-local"
DISABLED_URL = "disabled"
"""Address of a provider that is switched off."""
BASE_URLS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama": "https://ollama.com",
}
"""Default address of each driver, where no file sets one."""
OLLAMA_LOCAL_URL = "http://127.0.0.1:11434"

TIMEOUT_OPTIONS = frozenset({"header_timeout_ms", "idle_timeout_ms"})
KNOWN_OPTIONS: Mapping[str, frozenset[str]] = {
    "anthropic": TIMEOUT_OPTIONS,
    "openai": TIMEOUT_OPTIONS | {"echo_reasoning", "reasoning_models"},
    "deepseek": TIMEOUT_OPTIONS,
    "gemini": TIMEOUT_OPTIONS,
    "ollama": TIMEOUT_OPTIONS | {"num_ctx", "num_gpu", "vision_models"},
    "code-js": frozenset(),
    "mock": frozenset({"enabled", "stable", "latency_ms", "latency_jitter_ms", "rate_429", "rate_500"}),
}
"""Options that a driver reads; others only get a warning, because they may be meant for another version."""
DIALECTS: Mapping[str, str] = {
    "anthropic": "anthropic-messages",
    "anthropic_oauth_dev": "anthropic-messages",
    "openai": "openai-chat",
    "deepseek": "openai-chat",
    "gemini": "gemini-v1beta",
    "ollama": "ollama-chat",
    "mock": "mock",
    "code-js": "code-js",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Complete description of one provider, enough to build its driver."""

    id: str
    driver: str
    dialect: str
    base_url: str
    api_key_env: str
    """Name of the key's variable; empty for keyless providers."""
    api_key: str = field(repr=False)
    is_usable: bool
    unusable_reason: str
    """Reason why it is not usable, for people; empty when it is."""
    max_concurrent: int
    """Calls one process may have open; 0 = no limit is configured."""
    header_timeout_s: float
    idle_timeout_s: float
    options: Mapping[str, object]
    """The driver's own options, with defaults from the settings. Mock: stable, latency_ms, latency_jitter_ms, rate_429,
    rate_500. Code agents: run_timeout_seconds, deterministic.
    """
    capabilities: Mapping[str, bool | int]
    """Overrides of the driver's Capabilities in a file, by their field names."""

    @property
    def needs_key(self) -> bool:
        """Whether nothing but its key is missing."""
        return self.unusable_reason == f"{self.api_key_env} is not set"


def build_providers(
    configuration: Configuration, settings: Settings, environ: Mapping[str, str]
) -> dict[str, Provider]:
    """Return every provider of the configuration, by id."""
    return {name: _build_provider(name, block, settings, environ) for name, block in configuration.providers.items()}


def usable_provider_ids(providers: Iterable[Provider]) -> frozenset[str]:
    """Return the ids that resolve.py may choose from."""
    return frozenset(provider.id for provider in providers if provider.is_usable)


def run_key_provider_ids(providers: Iterable[Provider], settings: Settings) -> frozenset[str]:
    """Return the ids of those that only runs with a key of their own can use. None without LOOMLOG_SECRET_KEY: no
    credential can be encrypted without it, so no run brings one.
    """
    if not settings.secret_key:
        return frozenset()
    return frozenset(provider.id for provider in providers if provider.needs_key)


def _build_provider(name: str, block: ProviderBlock, settings: Settings, environ: Mapping[str, str]) -> Provider:
    key_name = block.api_key_env or ""
    key = environ.get(key_name, "").strip() if key_name else ""
    options = _build_options(name, block, settings)
    base_url = _resolve_base_url(name, block, environ)
    why_not = _find_unusable_reason(block, key_name, key, base_url, options, settings)
    is_local = _is_local_ollama(name, block)
    header_ms = settings.ollama_local_header_timeout_ms if is_local else settings.provider_header_timeout_ms
    idle_ms = settings.ollama_local_idle_timeout_ms if is_local else settings.provider_idle_timeout_ms
    changes = {entry.name: getattr(block.capabilities, entry.name) for entry in fields(block.capabilities)}
    return Provider(
        id=name,
        driver=block.driver,
        dialect=block.dialect or DIALECTS[block.driver],
        base_url=base_url,
        api_key_env=key_name,
        api_key=key,
        is_usable=not why_not,
        unusable_reason=why_not,
        max_concurrent=block.max_concurrent or settings.model_calls_per_provider,
        header_timeout_s=_resolve_timeout_s(options.get("header_timeout_ms"), header_ms),
        idle_timeout_s=_resolve_timeout_s(options.get("idle_timeout_ms"), idle_ms),
        options={key: value for key, value in options.items() if key not in TIMEOUT_OPTIONS | {"enabled"}},
        capabilities={key: value for key, value in changes.items() if value is not None},
    )


def _is_local_ollama(name: str, block: ProviderBlock) -> bool:
    """Return whether it is a self-hosted server: it loads its models, reads long prompts slowly, and needs no key."""
    return block.driver == "ollama" and (name == OLLAMA_LOCAL or not block.api_key_env)


def _resolve_base_url(name: str, block: ProviderBlock, environ: Mapping[str, str]) -> str:
    if block.base_url:
        return block.base_url.rstrip("/")
    if _is_local_ollama(name, block):
        return (environ.get("OLLAMA_BASE_URL", "").strip() or OLLAMA_LOCAL_URL).rstrip("/")
    return BASE_URLS.get(block.driver, "")


def _find_unusable_reason(
    block: ProviderBlock, key_name: str, key: str, base_url: str, options: Mapping[str, object], settings: Settings
) -> str:
    if base_url == DISABLED_URL:
        return "it is switched off (its address is `disabled`)"
    if block.driver in UNSUPPORTED_DRIVERS:
        return f"its driver {block.driver} ({UNSUPPORTED_DRIVERS[block.driver]}) is not in this version"
    if block.driver == "mock" and not settings.mock_enabled and options.get("enabled") is not True:
        return "synthetic models are not allowed: set LOOMLOG_MOCK_ENABLED=1, or the provider's option enabled to true"
    if block.driver == "code-js" and not settings.code_agents_enabled:
        return "code agents are not allowed: set LOOMLOG_CODE_AGENTS_ENABLED=1"
    if key_name and not key:
        return f"{key_name} is not set"
    return ""


def _build_options(name: str, block: ProviderBlock, settings: Settings) -> dict[str, object]:
    """Return the options of the file over the defaults from settings. Fractions become floats: drivers accept nothing
    else.
    """
    options: dict[str, object] = {}
    if block.driver == "mock":
        stable = block.options.get("stable") is True
        options = {
            "stable": stable,
            "latency_ms": settings.mock_latency_ms,
            "latency_jitter_ms": settings.mock_latency_jitter_ms,
            "rate_429": 0.0 if stable else settings.mock_429_rate,
            "rate_500": 0.0 if stable else settings.mock_500_rate,
        }
    elif block.driver == "code-js":
        options = {
            "run_timeout_seconds": settings.code_agents_run_timeout_seconds,
            "deterministic": settings.code_agents_deterministic,
        }
    elif block.driver == "ollama":
        is_local = _is_local_ollama(name, block)
        window = settings.ollama_local_num_ctx if is_local else settings.ollama_num_ctx
        layers = settings.ollama_local_num_gpu if is_local else -1
        options = {**({"num_ctx": window} if window else {}), **({"num_gpu": layers} if layers >= 0 else {})}
    for key, value in block.options.items():
        options[key] = float(value) if isinstance(value, Decimal) else value
    return options


def _resolve_timeout_s(option: object, setting_ms: int) -> float:
    is_count = isinstance(option, int) and not isinstance(option, bool) and option > 0
    return (option if is_count else setting_ms) / 1000  # type: ignore[operator]  # is_count has looked at the type
