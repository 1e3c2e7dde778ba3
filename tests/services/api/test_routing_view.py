from dataclasses import replace
from pathlib import Path

from loomlog.schemas.generated.stream_records import ModelMarked, ProviderProbed
from loomlog.services.api.routing_view import aliases_json, provider_json, resolver_json, routing_json
from loomlog.services.core.availability import AvailabilityTable
from tests.services.api.serving import service_of

NOW = 1_780_000_000_000


def test_the_first_that_can_be_used_is_selected(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    view = routing_json(service.configuration, service.providers, AvailabilityTable(), now_ms=NOW, is_admin=False)
    (resilient,) = (plan for plan in view["user_tiers"] if plan["name"] == "resilient")
    cascades = {tier["tier"]: tier["cascade"] for tier in resilient["tiers"]}
    assert [step["selected"] for step in cascades["middle"]] == [True]
    assert "high" not in cascades, "a tier without candidates leads nowhere"


def test_whoever_may_not_use_the_operators_keys_sees_what_is_left(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    keyed = replace(service.providers["mock"], api_key_env="MOCK_API_KEY")
    providers = {**service.providers, "mock": keyed}

    def seen(*, restricted: bool) -> tuple[bool, bool, bool]:
        view = routing_json(
            service.configuration,
            providers,
            AvailabilityTable(),
            now_ms=NOW,
            is_admin=False,
            operator_key_restricted=restricted,
        )
        (mock,) = (provider for provider in view["providers"] if provider["provider"] == "mock")
        (middle,) = (tier for tier in view["user_tiers"][0]["tiers"] if tier["tier"] == "middle")
        return view["operator_key_restricted"], mock["available"], middle["cascade"][0]["available"]

    assert seen(restricted=False) == (False, True, True)
    assert seen(restricted=True) == (True, False, False)
    assert providers["mock"] is keyed


def test_keys_never_show(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    for provider in service.providers.values():
        assert "api_key" not in provider_json(provider, AvailabilityTable(), is_admin=True)


def test_aliases_are_listed(tmp_path: Path) -> None:
    (alias,) = aliases_json(service_of(None, tmp_path).configuration)["models"]
    assert alias == {
        "name": "quick",
        "provider": "mock",
        "model": "mock-generic",
        "model_pattern": None,
        "effort": None,
    }


# --- with what is known of the models --------------------------------------------------------------------------------


def after(*records: ModelMarked | ProviderProbed) -> AvailabilityTable:
    matrix = AvailabilityTable()
    for record in records:
        matrix = matrix.apply(record)
    return matrix


def first_step(folder: Path, matrix: AvailabilityTable, now_ms: int = NOW) -> dict[str, object]:
    service = service_of(None, folder)
    view = routing_json(service.configuration, service.providers, matrix, now_ms=now_ms, is_admin=True)
    (plan,) = (plan for plan in view["user_tiers"] if plan["name"] == "default")
    step: dict[str, object] = plan["tiers"][0]["cascade"][0]
    assert step["provider"] == "mock"
    return step


STALLED = ModelMarked(provider="mock", model="mock-generic", mark="stalled", reason="unavailable", at_ms=NOW)
LIMITED = ModelMarked(provider="mock", model="mock-generic", mark="rate_limited", until_ms=NOW + 10, at_ms=NOW)
AWAY = ProviderProbed(provider="mock", reachable=False, error="refused", at_ms=NOW)
LISTED = ProviderProbed(provider="mock", reachable=True, models=("mock-generic", "other"), at_ms=NOW)


def test_a_cascade_tells_the_two_states_of_a_model_apart(tmp_path: Path) -> None:
    stalled, limited = first_step(tmp_path, after(STALLED)), first_step(tmp_path, after(LIMITED))
    assert (stalled["stalled"], stalled["rate_limited"], stalled["available"]) == (True, False, False)
    assert (limited["stalled"], limited["rate_limited"], limited["available"]) == (False, True, False)
    assert first_step(tmp_path, after(LIMITED), NOW + 10)["available"]


def test_a_provider_that_does_not_answer_is_not_reachable(tmp_path: Path) -> None:
    step = first_step(tmp_path, after(AWAY))
    assert (step["reachable"], step["available"], step["selected"]) == (False, False, False)


def test_a_step_has_the_fields_clients_know(tmp_path: Path) -> None:
    assert set(first_step(tmp_path, AvailabilityTable())) == {
        "provider",
        "model",
        "primary",
        "available",
        "selected",
        "stalled",
        "rate_limited",
        "reachable",
    }


def test_the_matrix_has_every_provider_with_what_was_found_out(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    actual = resolver_json(service.providers, after(LISTED, STALLED), now_ms=NOW)["providers"]
    assert set(actual) == set(service.providers)
    mock = actual["mock"]
    assert {"excluded", "reachable", "models", "last_check", "last_error"} <= set(mock)
    assert (mock["excluded"], mock["reachable"], mock["last_error"]) == (False, True, None)
    assert mock["last_check"] == "2026-05-28T20:26:40.000Z"
    assert mock["models"]["mock-generic"]["stalled"]
    assert mock["models"]["other"] == {
        "listed": True,
        "stalled": False,
        "rate_limited": False,
        "rate_limited_until": None,
        "reason": None,
    }
    assert (actual["anthropic"]["excluded"], actual["anthropic"]["reachable"]) == (True, False)
    assert "ANTHROPIC_API_KEY" in actual["anthropic"]["last_error"]


def test_a_provider_that_is_away_says_why(tmp_path: Path) -> None:
    actual = resolver_json(service_of(None, tmp_path).providers, after(AWAY), now_ms=NOW)["providers"]["mock"]
    assert (actual["reachable"], actual["last_error"], actual["models"]) == (False, "refused", {})
