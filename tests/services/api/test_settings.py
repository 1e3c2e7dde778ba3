from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.settings import Settings
from loomlog.services.api.settings import api_settings
from loomlog.services.core.refusals import StartProblem


def settings(**more: Any) -> Settings:
    return Settings(**{"kafka": "b:9092", "postgres": "postgresql://u:secret@h/d", "home": Path("/home/x"), **more})


def test_the_address_is_taken_apart() -> None:
    for addr, host, port in (
        ("127.0.0.1:8787", "127.0.0.1", 8787),
        ("[::1]:80", "::1", 80),
        (":8080", "", 8080),
        ("localhost:1", "localhost", 1),
    ):
        actual = api_settings(settings(listen_addr=addr))
        assert (actual.host, actual.port) == (host, port)


@pytest.mark.parametrize(("field", "name"), [("kafka", "LOOMLOG_KAFKA"), ("postgres", "LOOMLOG_POSTGRES")])
def test_what_is_missing_is_named(field: str, name: str) -> None:
    with pytest.raises(StartProblem, match=name):
        api_settings(settings(**{field: ""}))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://127.0.0.1:18901"),
        ({"insights_port": 5}, "http://127.0.0.1:5"),
        ({"insights_port": 0}, ""),
        ({"insights_url": "http://beside:1"}, "http://beside:1"),
        ({"insights_url": "http://beside:1", "insights_enabled": False}, ""),
    ],
)
def test_insights_is_asked_on_its_port_unless_its_address_is_set(given: dict[str, Any], url: str) -> None:
    assert api_settings(settings(**given)).insights_url == url


def test_the_rest_is_passed_on() -> None:
    actual = api_settings(settings(sse_keepalive_ms=3_000, replica_id="one", postgres_max_connections=7))
    assert (actual.keepalive_s, actual.replica_id, actual.endpoints.postgres_connections) == (3.0, "one", 7)
    assert actual.max_request_bytes == 16 * 1024 * 1024
    assert "secret" not in repr(actual)


def test_the_hosts_of_the_configured_addresses_are_its_own() -> None:
    actual = api_settings(settings(public_url="https://Loom.example/base", listen_addr="[::1]:80"))
    assert actual.own_hosts == {"loom.example", "[::1]:80", "::1"}
