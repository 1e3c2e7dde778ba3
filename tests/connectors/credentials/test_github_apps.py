"""Tokens of GitHub Apps: a JWT that GitHub takes, and clear errors without the key."""

import json
from typing import Any

import pytest
from joserfc import jwt

from loomlog.connectors.credentials.github_apps import installation_token, parse_app
from loomlog.connectors.credentials.json_requests import JsonRequests
from loomlog.connectors.errors import Permanent
from tests.connectors.credentials.peer import Answer, Peer, Request
from tests.connectors.identity_providers.provider import KEYS

KEY = KEYS["RS256"][0]
PEM = KEY.as_pem(private=True).decode()
NOW_S = 1_760_000_000.0
REQUESTS = JsonRequests(private_hosts=("127.0.0.1",))


def app_text(url: str = "https://github.example", **changes: Any) -> str:
    given = {"app_id": 17, "installation_id": "42", "private_key": PEM, "api_url": url, **changes}
    return json.dumps({name: value for name, value in given.items() if value is not None})


def answer_token(request: Request) -> Answer:
    return 201, {"token": "ghs_minted", "expires_at": "2025-10-09T09:53:20Z"}


async def test_a_token_of_an_installation() -> None:
    async with Peer(answer_token) as peer:
        app = parse_app(app_text(peer.url, repositories=["one"], permissions={"contents": "read"}))
        token = await installation_token(REQUESTS, app, now_s=lambda: NOW_S)
        (request,) = peer.requests
    assert request.path == "/app/installations/42/access_tokens"
    assert request.json == {"repositories": ["one"], "permissions": {"contents": "read"}}
    decoded = jwt.decode(request.headers["authorization"].removeprefix("Bearer "), KEY, algorithms=["RS256"])
    assert decoded.claims == {"iat": NOW_S - 60, "exp": NOW_S + 540, "iss": "17"}
    assert token.expires_at_s == NOW_S + 3_600
    assert PEM not in repr(app)
    assert "ghs_" not in repr(token)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"app_id": None}, "expected a JSON object with app_id"),
        ({"installation_id": "../1"}, "app_id and installation_id: expected"),
        ({"private_key": "hunter2"}, "private_key: expected an RSA key in PEM"),
        ({"private_key": KEY.as_pem(private=False).decode()}, "this is the public key"),
        ({"secret": "hunter2"}, "expected a JSON object with app_id"),
    ],
)
def test_what_is_no_app(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(Permanent, match=error) as caught:
        parse_app(app_text(**changes))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, {"message": "hunter2"}), "app_id and private_key do not belong together"),
        ((404, {}), "no such installation"),
        ((418, {}), "GitHub gave no token"),
        ((201, {"token": "hunter2"}), "no token, or no expires_at"),
        ((201, {"expires_at": "2025-10-09T09:53:20Z"}), "no token, or no expires_at"),
    ],
)
async def test_what_github_refuses(answer: Answer, error: str) -> None:
    async with Peer(lambda request: answer) as peer:
        with pytest.raises(Permanent, match=error) as caught:
            await installation_token(REQUESTS, parse_app(app_text(peer.url)))
    assert "hunter2" not in str(caught.value)


async def test_an_address_that_no_credential_may_name_is_not_asked() -> None:
    async with Peer(answer_token) as peer:
        for requests, error in (
            (
                JsonRequests(private_hosts=("127.0.0.1",), hosts=("=api.github.com",)),
                "not in .*_ALLOWLIST",
            ),
            (REQUESTS, "expected an address with https"),
        ):
            url = peer.url if "ALLOWLIST" in error else "http://github.example"
            with pytest.raises(Permanent, match=error):
                await installation_token(requests, parse_app(app_text(url)))
        assert peer.requests == []
