import pytest

from loomlog.connectors.models import model_capabilities
from loomlog.connectors.models.catalog import DRIVERS
from loomlog.connectors.protocols import Capabilities


@pytest.mark.parametrize(
    ("driver", "model", "sees"),
    [
        ("anthropic", "claude-sonnet-4-5", True),
        ("anthropic", "claude-2.1", False),
        ("anthropic", "claude-instant-1.2", False),
        ("openai", "gpt-5", True),
        ("openai", "gpt-3.5-turbo", False),
        ("openai", "gpt-4-0613", False),
        ("deepseek", "deepseek-chat", False),
        ("deepseek", "deepseek-vl", False),
        ("gemini", "gemini-2.5-flash", True),
        ("gemini", "gemini-1.0-pro", False),
        ("ollama", "llava", True),
        ("ollama", "llama3.1", False),
        ("mock", "mock-generic", True),
        ("telepathy", "any", False),
    ],
)
def test_whether_a_model_sees_follows_from_driver_and_name(driver: str, model: str, sees: bool) -> None:
    assert model_capabilities.supports_vision(driver, model) is sees


def test_a_configured_provider_sees_when_both_it_and_the_model_do() -> None:
    assert model_capabilities.provider_supports_vision("openai", "gpt-5", {}, {})
    assert not model_capabilities.provider_supports_vision("openai", "gpt-5", {}, {"supports_vision": False})
    assert not model_capabilities.provider_supports_vision("openai", "gpt-3.5-turbo", {}, {"supports_vision": True})
    assert not model_capabilities.provider_supports_vision("deepseek", "deepseek-chat", {}, {"supports_vision": True})
    assert model_capabilities.provider_supports_vision("ollama", "mine:7b", {"vision_models": ["Mine"]}, {})
    assert not model_capabilities.provider_supports_vision("ollama", "mine:7b", {"vision_models": "mine"}, {})


@pytest.mark.parametrize("model", ["deepseek-v4-pro", "deepseek-reasoner", "deepseek-r1", "deepseek-v4-flash"])
def test_thinking_models_of_deepseek_have_a_sibling(model: str) -> None:
    assert model_capabilities.non_thinking_sibling("deepseek", model) == "deepseek-chat"
    assert model_capabilities.non_thinking_sibling("openai", model) == model


@pytest.mark.parametrize(
    ("driver", "model"), [("deepseek", "deepseek-chat"), ("anthropic", "claude-opus-4"), ("openai", "o3")]
)
def test_other_models_take_any_history(driver: str, model: str) -> None:
    assert model_capabilities.non_thinking_sibling(driver, model) == model


def test_only_anthropic_has_a_prompt_cache_of_its_own_unless_a_file_says_so() -> None:
    assert [driver for driver in DRIVERS if model_capabilities.has_native_prompt_cache(driver)] == ["anthropic"]
    assert model_capabilities.has_native_prompt_cache("openai", {"native_prompt_cache": True})
    assert not model_capabilities.has_native_prompt_cache("anthropic", {"native_prompt_cache": False})


@pytest.mark.parametrize(
    ("driver", "window", "thinking", "vision", "effort"),
    [
        ("anthropic", 200_000, True, True, True),
        ("openai", 128_000, False, True, True),
        ("deepseek", 128_000, True, False, True),
        ("gemini", 2_000_000, True, True, True),
        ("ollama", 0, True, True, True),
        ("mock", 200_000, False, True, False),
    ],
)
def test_the_flags_of_every_driver(driver: str, window: int, thinking: bool, vision: bool, effort: bool) -> None:
    assert model_capabilities.capabilities_of(driver) == Capabilities(
        native_prompt_cache=driver == "anthropic",
        parallel_tool_calls=True,
        streaming=True,
        max_context_tokens=window,
        supports_thinking=thinking,
        supports_vision=vision,
        supports_effort=effort,
        unbounded_iterations=False,
        metadata_via_input=False,
    )


def test_every_driver_has_its_traits() -> None:
    without = [
        driver
        for driver in DRIVERS
        if model_capabilities.capabilities_of(driver) is model_capabilities.UNKNOWN_CAPABILITIES
    ]
    assert without == []
    assert model_capabilities.capabilities_of("telepathy") is model_capabilities.UNKNOWN_CAPABILITIES
