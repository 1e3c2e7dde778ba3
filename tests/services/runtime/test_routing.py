"""The parts that decide which model a run goes to, as they are put together from a configuration."""

from pathlib import Path

import pytest

from connectors.configuration import ConfigurationProblem, load
from connectors.memory_log import MemoryLog
from services.runtime.routing import Routing, checked_tiers, traits_of
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
    assert checked_tiers(loaded, ENVIRON) == []
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
    traits = traits_of(routing(tmp_path, MemoryLog({"providers": 1})).providers[provider])
    assert (traits.sees(model), traits.sibling(model), traits.keeps_cache) == (sees, sibling, keeps_cache)


async def test_a_pattern_has_a_meaning_once_its_provider_was_probed(tmp_path: Path) -> None:
    made = routing(tmp_path, MemoryLog({"providers": 1}))
    assert getattr(made.definitions.resolve("helper", tenant="t", user_tier=""), "code", "") == "pin_unavailable"
    await made.prober.probe(made.unlisted())
    assert getattr(made.definitions.resolve("helper", tenant="t", user_tier=""), "model", "") == "mock-generic"
    assert made.unlisted() == ()


def test_a_tier_that_leads_nowhere_is_found_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text("tiers: {low: [{provider: openai, model: m}]}\nagents: {a: {tier: low}}\n")
    loaded = load({}, working_directory=tmp_path, paths=[])
    with pytest.raises(ConfigurationProblem, match="OPENAI_API_KEY"):
        checked_tiers(loaded, {})
    assert checked_tiers(loaded, {"OPENAI_API_KEY": "sk"}) == []
