"""Files in every shape that the reference takes (corpus/*.yaml) are taken here, and mean the same."""

from pathlib import Path

import pytest

from loomlog.connectors.configuration.load import ProcessConfiguration, load
from tests.connectors.configuration.conftest import Folder

CORPUS = Path(__file__).parent / "corpus"
ENVIRONMENT = {"LOOMLOG_MOCK_ENABLED": "1", "LOOMLOG_CODE_AGENTS_ENABLED": "1", "OPENAI_API_KEY": "k"}


def load_file(name: str, folder: Path) -> ProcessConfiguration:
    return load(ENVIRONMENT, working_directory=folder, paths=[CORPUS / name])


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shape_of_the_reference_is_taken(file: Path, tmp_path: Path) -> None:
    assert load_file(file.name, tmp_path).configuration.agents


def test_a_bare_text_in_a_tier_is_an_alias(tmp_path: Path) -> None:
    configuration = load_file("aliases_in_tiers.yaml", tmp_path).configuration
    assert [one.model for one in configuration.tiers["low"]] == ["quick", "careful"]
    assert [one.provider for one in configuration.tiers["middle"]] == [None, "mock"]
    assert [one.model for one in configuration.agents["own"].models["low"]] == ["careful"]
    assert [one.model for one in configuration.user_tiers["free"].tiers["low"]] == ["quick"]


def test_each_block_without_effect_gets_a_warning_with_its_line(tmp_path: Path) -> None:
    warnings = load_file("blocks_without_effect.yaml", tmp_path).warnings
    ignored = {one.message.split()[0] for one in warnings if " is ignored: " in one.message}
    assert ignored == {
        *("cache", "storage", "search_providers", "search_priority", "env_allowlist"),
        *("document_sources", "a2a_server_cards", "a2a_agents"),
    }
    assert all(one.line and one.file.endswith("blocks_without_effect.yaml") for one in warnings)


def test_an_unset_number_of_the_reference_is_the_default_and_an_empty_text_clears_a_field(tmp_path: Path) -> None:
    bounds = load_file("blocks_without_effect.yaml", tmp_path).configuration.interruption
    assert (bounds.default_timeout_ms, bounds.max_timeout_ms, bounds.max_pending_per_run) == (3_600_000, 86_400_000, 10)
    configuration = load_file("providers_and_tiers.yaml", tmp_path).configuration
    assert configuration.concurrency.max_concurrent_runs == 1_000
    assert (configuration.agents["pinned"].tier, configuration.agents["pinned"].effort) == (None, None)


def test_an_upper_layer_clears_the_tier_of_a_lower_one(folder: Folder) -> None:
    folder.write("agents: {a: {tier: low, description: d}}\ntiers: {low: [{provider: mock, model: m}]}", "lower.yaml")
    loaded = folder.load('agents: {a: {tier: "", provider: mock, model: m}}', None, "lower.yaml", "loomlog.yaml")
    agent = loaded.configuration.agents["a"]
    assert (agent.tier, agent.model, agent.description) == (None, "m", "d")


@pytest.mark.parametrize(
    "text",
    [
        "tiers: {sideways: [x]}",
        "agents: {a: {provider: mock, model: m, volumes: ['']}}",
        'providers: {p: {driver: ""}}',
        'principals: {p: {tenant: "", subject: s, scopes: [runs:read], token_env: LOOMLOG_P}}',
    ],
)
def test_an_empty_text_is_still_refused_where_a_value_is_needed(folder: Folder, text: str) -> None:
    assert folder.problems(text)


def test_grants_under_the_earlier_key_and_the_earlier_name_of_a_tool_are_grants(tmp_path: Path) -> None:
    configuration = load_file("names_of_tools.yaml", tmp_path).configuration
    assert configuration.agents["old-name"].tools == ("WebFetchTool",)
    assert "WebFetch" in configuration.agents["everything"].tools
    assert configuration.skills["group/howto"].tools == ("WebFetch",)


def test_layers_merge_whichever_name_of_a_key_they_use_and_one_file_uses_one(folder: Folder) -> None:
    folder.write("agents: {a: {provider: mock, model: m, tools: [Read]}}", "lower.yaml")
    upper = "agents: {a: {allowed_tools: !append [Write]}}"
    loaded = folder.load(upper, None, "lower.yaml", "loomlog.yaml")
    assert loaded.configuration.agents["a"].tools == ("Read", "Write")
    both = "agents:\n  a: {provider: mock, model: m, tools: [Read], allowed_tools: [Write]}"
    assert folder.problems(both) == ["loomlog.yaml:2: agents.a.allowed_tools: tools says the same; give one of them"]


def test_a_script_in_the_file_is_the_script_of_its_agent(tmp_path: Path) -> None:
    agent = load_file("scripts_and_volumes.yaml", tmp_path).configuration.agents["script"]
    assert (agent.code, agent.code_body.startswith("function run(input) {\n")) == ("", True)


def test_entries_of_all_users_are_those_of_the_tenant(tmp_path: Path) -> None:
    entries = load_file("channels_and_memory.yaml", tmp_path).configuration.memory.entries
    assert [one.scope for one in entries] == ["tenant", "agent"]
