import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.routing import collect_patterns
from loomlog.connectors.configuration.tier_check import check_tiers
from tests.connectors.configuration.conftest import Folder

TEXT = """\
models:
  newest: {provider: anthropic, model_pattern: "claude-*"}
provider_priority: [anthropic, openai, mock]
tiers:
  low: [{provider: mock, model: small}, {model: newest}]
  high: [{provider: openai, model: large}]
user_tiers:
  default: {}
  gold:
    provider_priority: [openai]
    tiers: {middle: [{provider: openai, model_pattern: "gpt-*"}]}
agents:
  cheap: {tier: low}
  own: {tier: middle, models: {middle: [{provider: mock, model: m}, {provider: openai, model_pattern: "o-*"}]}}
  pinned: {provider: openai, model: large}
"""


def wrong(folder: Folder, *usable: str, text: str = TEXT) -> list[str]:
    with pytest.raises(ConfigurationError) as problem:
        check_tiers(folder.load(text).configuration, usable)
    return [finding.message for finding in problem.value.findings]


def test_a_tier_of_an_agent_that_resolves_to_nothing_ends_the_start(folder: Folder) -> None:
    actual = wrong(folder, "openai")
    assert [message.partition(":")[0] for message in actual] == ["agents.cheap.tier"]
    assert "tier low resolves to nothing" in actual[0]
    assert "ANTHROPIC_API_KEY" in actual[0]


def test_every_tier_a_plan_spells_out_has_to_lead_somewhere(folder: Folder) -> None:
    actual = wrong(folder, "mock")
    assert [message.partition(":")[0] for message in actual] == ["user_tiers.gold.tiers.middle"]


def test_one_usable_candidate_is_enough_and_a_pattern_is_taken_to_match(folder: Folder) -> None:
    check_tiers(folder.load(TEXT).configuration, ["anthropic", "openai"])


def test_what_is_only_odd_is_warned_of(folder: Folder) -> None:
    text = TEXT.replace("gold:", "gold:\n    retry_attempts: 1").replace(
        "[{provider: openai, model: large}]", "[{provider: deepseek, model: d}]"
    )
    warnings = check_tiers(folder.load(text).configuration, ["mock", "openai"])
    assert any(one.message.startswith("tiers.high: ") and "no agent uses it" in one.message for one in warnings)
    assert any(str(one).startswith("agents.cheap cannot run for users of the tier gold") for one in warnings)


def test_pins_and_policies_are_no_matter_of_the_start(folder: Folder) -> None:
    text = TEXT.replace("cheap: {tier: low}", "cheap: {tier: low, providers: [mock]}")
    check_tiers(folder.load(text).configuration, ["mock", "openai"])
    assert not any(
        "pinned" in str(warning) for warning in check_tiers(folder.load(text).configuration, ["mock", "openai"])
    )


def test_the_patterns_of_aliases_tiers_plans_and_agents_are_found(folder: Folder) -> None:
    assert collect_patterns(folder.load(TEXT).configuration) == {
        ("anthropic", "claude-*"),
        ("openai", "gpt-*"),
        ("openai", "o-*"),
    }
