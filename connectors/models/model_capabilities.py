"""Capabilities of one model by driver and name: pure, without a driver object, a key or a network.

Routing uses it for candidate models (an image in the conversation rules out a target without vision), and the drivers
use the same functions before a request is sent, so the two cannot disagree. The name has to suffice, because the wires
report no more before they fail; where the configuration has its own entry about a provider, `provider_supports_vision`
applies it.

A *thinking model* here is one that requires its own reasoning in the history and refuses a conversation that another
model began. It has a sibling that does not think, and only its driver declares such models (runtime parity 1.9).

After: routing, catalog.
"""

from collections.abc import Callable, Mapping

from loomlog.connectors.models import (
    anthropic,
    code_js,
    deepseek,
    gemini,
    gemini_request,
    ollama,
    ollama_request,
    openai,
    untrusted_json,
)
from loomlog.connectors.models.mock import model as mock_model
from loomlog.connectors.models.openai_request import OPENAI
from loomlog.connectors.models.openai_request import has_vision as openai_sees
from loomlog.connectors.protocols import Capabilities

UNKNOWN_CAPABILITIES = Capabilities(supports_vision=False)
_CAPABILITIES: Mapping[str, Callable[[Mapping[str, object]], Capabilities]] = {
    "anthropic": lambda options: anthropic.CAPABILITIES,
    "openai": lambda options: openai.capabilities(OPENAI),
    "deepseek": lambda options: openai.capabilities(deepseek.DEEPSEEK),
    "gemini": lambda options: gemini.CAPABILITIES,
    "ollama": lambda options: ollama.capabilities(untrusted_json.count(options.get("num_ctx"))),
    "mock": lambda options: mock_model.CAPABILITIES,
    "code-js": lambda options: code_js.CAPABILITIES,
}
_HAS_VISION: Mapping[str, Callable[[str, Mapping[str, object]], bool]] = {
    "anthropic": lambda model, options: anthropic.has_vision(model),
    "openai": lambda model, options: openai_sees(model, OPENAI),
    "deepseek": lambda model, options: False,
    "gemini": lambda model, options: gemini_request.has_vision(model),
    "ollama": lambda model, options: ollama_request.has_vision(model, vision_models(options)),
    "mock": lambda model, options: True,
    "code-js": lambda model, options: False,
}
_NO_OPTIONS: Mapping[str, object] = {}
_NO_CHANGES: Mapping[str, bool | int] = {}


def capabilities_of(driver: str, options: Mapping[str, object] = _NO_OPTIONS) -> Capabilities:
    """Return the capabilities of a driver before changes by the configuration; none for an unknown driver."""
    known = _CAPABILITIES.get(driver)
    return known(options) if known else UNKNOWN_CAPABILITIES


def supports_vision(driver: str, model: str, options: Mapping[str, object] = _NO_OPTIONS) -> bool:
    """Return whether a model of a driver accepts images. `options` are the provider's (Ollama's `vision_models`)."""
    asked = _HAS_VISION.get(driver)
    return asked is not None and asked(model, options)


def provider_supports_vision(
    driver: str, model: str, options: Mapping[str, object], changes: Mapping[str, bool | int]
) -> bool:
    """Return the same for a configured provider: `changes` are the capabilities in its file. Both the provider and the
    model must support images.
    """
    provider_sees = changes.get("supports_vision", capabilities_of(driver, options).supports_vision)
    return bool(provider_sees) and supports_vision(driver, model, options)


def has_native_prompt_cache(driver: str, changes: Mapping[str, bool | int] = _NO_CHANGES) -> bool:
    """Return whether switching away from a provider of this driver loses a prompt cache that was paid for."""
    return bool(changes.get("native_prompt_cache", capabilities_of(driver).native_prompt_cache))


def non_thinking_sibling(driver: str, model: str) -> str:
    """Return the model to use where that reasoning is missing; the same model when it needs none."""
    return deepseek.non_thinking_sibling(model) if driver == "deepseek" else model


def vision_models(options: Mapping[str, object]) -> tuple[str, ...]:
    """Return the provider's option that lists models with vision; entries that are not text are left out."""
    listed = options.get("vision_models")
    names = listed if isinstance(listed, (list, tuple)) else []
    return tuple(name.lower() for name in names if isinstance(name, str) and name)
