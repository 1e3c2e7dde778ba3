"""The device code flow against a provider that is served here."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.identity_providers.device_login import (
    refresh_tokens,
    request_code,
    revoke_token,
    wait_for_tokens,
)
from loomlog.connectors.identity_providers.oauth import ProviderRefused
from loomlog.connectors.identity_providers.tokens import read_token
from tests.identity_server import DEVICE_CLIENT, IdentityServer, serve_identity


@pytest.fixture
def identity() -> Iterator[IdentityServer]:
    with serve_identity() as made:
        yield made


def test_a_person_who_enters_the_code_gets_tokens(identity: IdentityServer) -> None:
    code = request_code(f"{identity.issuer}/device", DEVICE_CLIENT, "openid profile")
    assert code.address_with_code.endswith(code.user_code)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            identity.decide_device(code.user_code)

    tokens = wait_for_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, code, sleep=wait)
    assert read_token(tokens.bearer).claims["sub"] == "ann"
    assert (waits, tokens.lifetime_s) == ([1, 1, 1], 600)
    first = identity.requests[0]
    assert (first["client_id"], first["scope"]) == (DEVICE_CLIENT, "openid profile")


@pytest.mark.parametrize(("answer", "waited"), [("authorization_pending", [1, 1]), ("slow_down", [6, 11])])
def test_the_provider_says_how_often_it_is_asked(identity: IdentityServer, answer: str, waited: list[float]) -> None:
    code = request_code(f"{identity.issuer}/device", DEVICE_CLIENT, "openid")
    identity.decide_device(code.user_code, answer)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            identity.decide_device(code.user_code, "access_denied")

    with pytest.raises(ProviderRefused, match="access_denied"):
        wait_for_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, code, sleep=wait)
    assert waits == waited


def test_a_code_that_nobody_enters_is_over_after_its_time(identity: IdentityServer) -> None:
    code = request_code(f"{identity.issuer}/device", DEVICE_CLIENT, "openid")
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += 30

    with pytest.raises(ProviderRefused, match="not entered in time"):
        wait_for_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, code, sleep=wait, clock=lambda: now[0])
    assert now[0] == 60


def test_a_refresh_token_gives_new_tokens_once(identity: IdentityServer) -> None:
    first = identity.tokens(DEVICE_CLIENT)["refresh_token"]
    tokens = refresh_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, first)
    assert tokens.refresh_token not in ("", first)
    with pytest.raises(ProviderRefused, match="invalid_grant"):
        refresh_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, first)


def test_a_sign_out_ends_the_refresh_token(identity: IdentityServer) -> None:
    refresh = identity.tokens(DEVICE_CLIENT)["refresh_token"]
    revoke_token(f"{identity.issuer}/revoke", DEVICE_CLIENT, refresh)
    assert not identity.refresh_tokens


def test_where_the_access_token_is_opaque_the_id_token_is_sent(identity: IdentityServer) -> None:
    both = identity.tokens(DEVICE_CLIENT)
    identity.answers["/token"] = (200, json.dumps({**both, "access_token": "opaque"}).encode())
    tokens = refresh_tokens(f"{identity.issuer}/token", DEVICE_CLIENT, "x")
    assert tokens.bearer == both["id_token"]


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (200, {}, Permanent),
        (200, {"device_code": "a", "user_code": "b", "verification_uri": "javascript:alert(1)"}, Permanent),
        (200, {"device_code": "a", "user_code": "b\x1b[2J", "verification_uri": "https://x.example"}, Permanent),
        (200, "text", Permanent),
        (400, {"error": "invalid_client"}, ProviderRefused),
        (503, {}, Transient),
        (404, "not here", Transient),
    ],
)
def test_a_provider_that_gives_no_code_is_an_error(
    identity: IdentityServer, status: int, answer: Any, error: type[Exception]
) -> None:
    identity.answers["/device"] = (status, json.dumps(answer).encode())
    with pytest.raises(error):
        request_code(f"{identity.issuer}/device", DEVICE_CLIENT, "openid")


def test_an_answer_without_end_is_not_read(identity: IdentityServer) -> None:
    identity.answers["/device"] = (200, b" " * 300_000)
    with pytest.raises(Permanent, match="too long"):
        request_code(f"{identity.issuer}/device", DEVICE_CLIENT, "openid")
    with pytest.raises(Transient, match="does not answer"):
        request_code("http://127.0.0.1:1/device", DEVICE_CLIENT, "openid")
