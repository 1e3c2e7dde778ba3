from pathlib import Path

from services.api.routing_view import aliases, provider_view, routing
from tests.services.api.serving import service_of


def test_the_first_that_can_be_used_is_selected(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    view = routing(service.configuration, service.providers, is_admin=False)
    (resilient,) = (plan for plan in view["user_tiers"] if plan["name"] == "resilient")
    cascades = {tier["tier"]: tier["cascade"] for tier in resilient["tiers"]}
    assert [step["selected"] for step in cascades["middle"]] == [True]
    assert "high" not in cascades, "a tier without candidates leads nowhere"


def test_keys_never_show(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    for provider in service.providers.values():
        assert "api_key" not in provider_view(provider, is_admin=True)


def test_aliases_are_listed(tmp_path: Path) -> None:
    (alias,) = aliases(service_of(None, tmp_path).configuration)["models"]
    assert alias == {
        "name": "quick",
        "provider": "mock",
        "model": "mock-generic",
        "model_pattern": None,
        "effort": None,
    }
