from collections.abc import Mapping

import pytest

from loomlog.connectors.configuration.providers import Provider, build_providers, usable_provider_ids
from loomlog.connectors.configuration.unsupported_keys import UNSUPPORTED_DRIVERS
from loomlog.connectors.models.catalog import build_models
from tests.connectors.configuration.conftest import Folder


def providers(
    folder: Folder, text: str = "agents: {}", environ: Mapping[str, str] | None = None
) -> dict[str, Provider]:
    loaded = folder.load(text, environ)
    return build_providers(loaded.configuration, loaded.settings, environ or {})


def test_a_keyed_provider_is_usable_exactly_when_its_key_is_there(folder: Folder):
    without = providers(folder)
    assert usable_provider_ids(without.values()) == {"ollama-local"}
    assert without["anthropic"].unusable_reason == "ANTHROPIC_API_KEY is not set"
    with_key = providers(folder, environ={"ANTHROPIC_API_KEY": "sk-1", "OPENAI_API_KEY": " "})
    assert usable_provider_ids(with_key.values()) == {"anthropic", "ollama-local"}
    assert with_key["anthropic"].api_key == "sk-1"
    assert "sk-1" not in repr(with_key)


def test_synthetic_models_must_be_allowed_by_the_environment_or_a_file(folder: Folder):
    assert "LOOMLOG_MOCK_ENABLED" in providers(folder)["mock"].unusable_reason
    allowed = providers(folder, environ={"LOOMCYCLE_MOCK_ENABLED": "1"})
    assert {"mock", "mock-stable"} <= usable_provider_ids(allowed.values())
    by_file = providers(folder, "providers: {mock: {options: {enabled: true}}}")
    assert "mock" in usable_provider_ids(by_file.values())
    assert "mock-stable" not in usable_provider_ids(by_file.values())


def test_the_mock_options_come_from_the_settings_and_the_stable_one_never_fails(folder: Folder):
    environ = {
        "LOOMCYCLE_MOCK_ENABLED": "1",
        "LOOMCYCLE_MOCK_LATENCY_MS": "5",
        "LOOMCYCLE_MOCK_429_RATE": "0.5",
        "LOOMCYCLE_MOCK_500_RATE": "0.25",
    }
    actual = providers(folder, "providers: {mock: {options: {rate_500: 0.1, latency_jitter_ms: 0}}}", environ)
    assert actual["mock"].options == {
        "stable": False, "latency_ms": 5, "latency_jitter_ms": 0, "rate_429": 0.5, "rate_500": 0.1
    }  # fmt: skip
    assert isinstance(actual["mock"].options["rate_500"], float)
    assert actual["mock-stable"].options == {
        "stable": True, "latency_ms": 5, "latency_jitter_ms": 25, "rate_429": 0.0, "rate_500": 0.0
    }  # fmt: skip


def test_addresses_have_defaults_and_lose_their_last_slash(folder: Folder):
    actual = providers(folder, "providers: {mine: {driver: openai, base_url: 'http://127.0.0.1:1/v1/'}}")
    assert actual["mine"].base_url == "http://127.0.0.1:1/v1"
    assert actual["mine"].is_usable
    assert actual["openai"].base_url == "https://api.openai.com/v1"
    assert actual["ollama"].base_url == "https://ollama.com"
    assert actual["ollama-local"].base_url == "http://127.0.0.1:11434"
    assert all(
        actual[name].base_url for name in ("anthropic", "openai", "deepseek", "gemini", "ollama", "ollama-local")
    )


def test_the_local_ollama_follows_its_variable_and_can_be_switched_off(folder: Folder):
    assert providers(folder, environ={"OLLAMA_BASE_URL": "http://gpu:1/"})["ollama-local"].base_url == "http://gpu:1"
    off = providers(folder, environ={"OLLAMA_BASE_URL": "disabled", "OLLAMA_API_KEY": "k"})
    assert "switched off" in off["ollama-local"].unusable_reason
    assert off["ollama"].base_url == "https://ollama.com"


def test_time_limits_are_those_of_the_settings_unless_a_file_says_others(folder: Folder):
    text = "providers: {openai: {options: {header_timeout_ms: 1500}}}"
    actual = providers(folder, text, {"LOOMLOG_PROVIDER_IDLE_TIMEOUT_MS": "2000"})
    assert (actual["openai"].header_timeout_s, actual["openai"].idle_timeout_s) == (1.5, 2.0)
    assert (actual["anthropic"].header_timeout_s, actual["anthropic"].idle_timeout_s) == (60.0, 2.0)
    assert (actual["ollama-local"].header_timeout_s, actual["ollama-local"].idle_timeout_s) == (600.0, 600.0)
    assert "header_timeout_ms" not in actual["openai"].options


def test_nobody_named_a_bound_of_open_calls(folder: Folder):
    """No default may pass for a bound that somebody asked for: calls over one of those fail soon."""
    assert {provider.max_concurrent for provider in providers(folder, "").values()} == {0}


def test_a_bound_of_open_calls_is_that_of_the_file_or_of_the_process(folder: Folder):
    actual = providers(folder, "providers: {openai: {max_concurrent: 2}}", {"LOOMLOG_MODEL_CALLS_PER_PROVIDER": "7"})
    assert (actual["openai"].max_concurrent, actual["anthropic"].max_concurrent) == (2, 7)


def test_the_window_of_ollama_is_an_option_of_its_driver(folder: Folder):
    environ = {"LOOMCYCLE_OLLAMA_LOCAL_NUM_CTX": "8192", "LOOMCYCLE_OLLAMA_LOCAL_NUM_GPU": "0"}
    actual = providers(folder, environ=environ)
    assert actual["ollama-local"].options == {"num_ctx": 8192, "num_gpu": 0}
    assert actual["ollama"].options == {}


def test_only_said_capabilities_are_changes(folder: Folder):
    actual = providers(folder, "providers: {openai: {capabilities: {supports_vision: no, max_context_tokens: 4096}}}")
    assert actual["openai"].capabilities == {"supports_vision": False, "max_context_tokens": 4096}
    assert actual["anthropic"].capabilities == {}


@pytest.mark.parametrize("driver", UNSUPPORTED_DRIVERS)
def test_drivers_of_later_versions_are_never_usable(folder: Folder, driver: str):
    actual = providers(folder, f"providers: {{x: {{driver: {driver}}}}}")
    assert "is not in this version" in actual["x"].unusable_reason


def test_a_keyless_ollama_is_usable_as_it_is_and_the_hosted_one_with_its_key(folder: Folder):
    assert providers(folder)["ollama-local"].is_usable
    assert providers(folder)["ollama"].unusable_reason == "OLLAMA_API_KEY is not set"
    assert providers(folder, environ={"OLLAMA_API_KEY": "k"})["ollama"].is_usable


def test_any_ollama_without_a_key_is_a_local_one(folder: Folder):
    text = "providers: {gpu-box: {driver: ollama, base_url: 'http://gpu:11434'}}"
    provider = providers(folder, text, {"LOOMLOG_OLLAMA_LOCAL_NUM_CTX": "16384", "LOOMLOG_OLLAMA_NUM_CTX": "99"})[
        "gpu-box"
    ]
    assert (provider.header_timeout_s, provider.idle_timeout_s, provider.options["num_ctx"]) == (600.0, 600.0, 16384)


def test_a_dialect_that_is_not_said_is_that_of_the_driver(folder: Folder):
    assert providers(folder, "providers: {mine: {driver: openai}}")["mine"].dialect == "openai-chat"


def test_a_driver_can_be_built_from_every_usable_provider(folder: Folder):
    named = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "OLLAMA_API_KEY")
    text = "providers: {openai: {options: {reasoning_models: [x-]}, capabilities: {max_context_tokens: 99}}}"
    actual = providers(folder, text, dict.fromkeys(named, "k") | {"LOOMLOG_MOCK_ENABLED": "1"})
    models = build_models({name: actual[name] for name in usable_provider_ids(actual.values())})
    keyed = {"anthropic", "openai", "deepseek", "gemini", "ollama"}
    assert set(models) == keyed | {"ollama-local", "mock", "mock-stable"}
    assert models["openai"].capabilities.max_context_tokens == 99


def test_every_option_a_driver_documents_is_known_and_others_are_warned_about(folder: Folder):
    text = "providers: {ollama-local: {options: {num_ctx: 8192, num_gpu: 1, vision_models: [x], num_cxt: 1}}}"
    (line,) = folder.warnings(text)
    assert "num_cxt: the driver ollama does not read this option; did you mean num_ctx?" in line
