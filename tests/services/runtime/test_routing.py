from typing import Any

import pytest

from connectors.configuration import Provider
from services.runtime.routing import traits_of


def provider(driver: str, **changes: Any) -> Provider:
    values: dict[str, Any] = {
        "id": "p",
        "driver": driver,
        "dialect": "",
        "base_url": "",
        "api_key_env": "",
        "api_key": "",
        "is_usable": True,
        "why_not": "",
        "max_concurrent": 1,
        "header_timeout_s": 1.0,
        "idle_timeout_s": 1.0,
        "options": {},
        "capabilities": {},
    }
    return Provider(**(values | changes))


@pytest.mark.parametrize(
    ("target", "model", "sees"),
    [
        (provider("openai"), "gpt-5", True),
        (provider("openai"), "gpt-3.5-turbo", False),
        (provider("openai", capabilities={"supports_vision": False}), "gpt-5", False),
        (provider("anthropic"), "claude-2.1", False),
        (provider("deepseek"), "deepseek-chat", False),
        (provider("ollama"), "qwen3:8b", False),
        (provider("ollama", options={"vision_models": ["qwen3"]}), "qwen3:8b", True),
    ],
)
def test_a_conversation_with_an_image_goes_only_to_a_model_whose_driver_would_take_it(
    target: Provider, model: str, sees: bool
) -> None:
    assert traits_of(target).sees(model) is sees


def test_a_model_that_needs_reasoning_in_its_history_has_a_sibling_at_its_own_driver_only() -> None:
    assert traits_of(provider("deepseek")).sibling("deepseek-v4-pro") == "deepseek-chat"
    assert traits_of(provider("openai")).sibling("deepseek-v4-pro") == "deepseek-v4-pro"


def test_leaving_a_provider_with_a_prompt_cache_is_told() -> None:
    assert traits_of(provider("anthropic")).keeps_cache
    assert not traits_of(provider("gemini")).keeps_cache
    assert traits_of(provider("gemini", capabilities={"native_prompt_cache": True})).keeps_cache
