"""The parts that decide which model a run goes to, as they are put together from a configuration."""

from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import load
from loomlog.connectors.configuration.providers import Provider
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.services.families.process_start import check_tiers_of_runtime
from loomlog.services.runtime.models.routing import Routing, model_traits
from tests.services.core.run.given import NOW
from tests.services.stream.given import CODEC

TEXT = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
  blind: { driver: openai, api_key_env: A_KEY, capabilities: { supports_vision: false } }
models:
  newest: { provider: mock, model_pattern: "mock-gen*" }
agents:
  helper: { model: newest }
"""
ENVIRON = {"A_KEY": "sk-1", "DEEPSEEK_API_KEY": "sk-2", "ANTHROPIC_API_KEY": "sk-3"}


def routing(folder: Path, log: MemoryLog) -> Routing:
    (folder / "loomlog.yaml").write_text(TEXT, encoding="utf-8")
    loaded = load({}, working_directory=folder, paths=[])
    assert check_tiers_of_runtime(loaded, ENVIRON) == []
    return Routing(loaded, ENVIRON, codec=CODEC, appender=log, clock_ms=lambda: NOW, name="one", topic="providers")


@pytest.mark.parametrize(
    ("provider", "model", "sees", "sibling", "keeps_cache"),
    [
        ("anthropic", "claude-sonnet-4-5", True, "claude-sonnet-4-5", True),
        ("anthropic", "claude-2", False, "claude-2", True),
        ("deepseek", "deepseek-reasoner", False, "deepseek-chat", False),
        ("deepseek", "deepseek-chat", False, "deepseek-chat", False),
        ("blind", "gpt-5", False, "gpt-5", False),
        ("mock", "mock-generic", True, "mock-generic", False),
    ],
)
def test_what_a_fallback_knows_of_a_model(
    tmp_path: Path, provider: str, model: str, sees: bool, sibling: str, keeps_cache: bool
) -> None:
    traits = model_traits(routing(tmp_path, MemoryLog({"providers": 1})).providers[provider])
    assert (traits.supports_vision(model), traits.non_thinking_sibling(model), traits.has_prompt_cache) == (
        sees,
        sibling,
        keeps_cache,
    )


async def test_a_pattern_has_a_meaning_once_its_provider_was_probed(tmp_path: Path) -> None:
    made = routing(tmp_path, MemoryLog({"providers": 1}))
    assert getattr(made.definitions.resolve("helper", tenant="t", user_tier=""), "code", "") == "pin_unavailable"
    await made.prober.probe(made.unlisted_providers())
    assert getattr(made.definitions.resolve("helper", tenant="t", user_tier=""), "model", "") == "mock-generic"
    assert made.unlisted_providers() == ()


def test_a_tier_that_leads_nowhere_is_found_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text("tiers: {low: [{provider: openai, model: m}]}\nagents: {a: {tier: low}}\n")
    loaded = load({}, working_directory=tmp_path, paths=[])
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        check_tiers_of_runtime(loaded, {})
    assert check_tiers_of_runtime(loaded, {"OPENAI_API_KEY": "sk"}) == []


# --- what a fallback knows of the models of one provider --------------------------------------------------------------


def provider(driver: str, **changes: Any) -> Provider:
    values: dict[str, Any] = {
        "id": "p",
        "driver": driver,
        "dialect": "",
        "base_url": "",
        "api_key_env": "",
        "api_key": "",
        "is_usable": True,
        "unusable_reason": "",
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
    assert model_traits(target).supports_vision(model) is sees


def test_a_model_that_needs_reasoning_in_its_history_has_a_sibling_at_its_own_driver_only() -> None:
    assert model_traits(provider("deepseek")).non_thinking_sibling("deepseek-v4-pro") == "deepseek-chat"
    assert model_traits(provider("openai")).non_thinking_sibling("deepseek-v4-pro") == "deepseek-v4-pro"


def test_leaving_a_provider_with_a_prompt_cache_is_told() -> None:
    assert model_traits(provider("anthropic")).has_prompt_cache
    assert not model_traits(provider("gemini")).has_prompt_cache
    assert model_traits(provider("gemini", capabilities={"native_prompt_cache": True})).has_prompt_cache
