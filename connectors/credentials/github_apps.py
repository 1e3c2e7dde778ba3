"""Tokens of installations of a GitHub App: the app's key signs a JWT, which GitHub exchanges for a token of an hour.

The credential is a JSON object:

    {"app_id": "123", "installation_id": "456", "private_key": "-----BEGIN RSA PRIVATE KEY-----...",
     "api_url": "https://github.example.com/api/v3", "repositories": ["one"], "permissions": {"contents": "read"}}

the last three are optional. joserfc signs, as it reads the tokens of identity providers (decision 72).

Before: services/families/identity/credentials.py. After: json_requests.py.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import orjson
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from loomlog.connectors.credentials.json_requests import JsonRequests, refusal
from loomlog.connectors.credentials.short_tokens import ShortToken
from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Secretive

API_URL = "https://api.github.com"
CREATED = 201
AHEAD_S = 300.0
"""Seconds before its end in which a token is not used any more (parity: reference operations 1.3)."""
BACKDATED_S, JWT_S = 60, 540
"""GitHub takes a JWT of at most 10 minutes, and one from the future not at all."""
MEANINGS = {
    401: "GitHub refuses the app: app_id and private_key do not belong together, or the clock is wrong",
    403: "GitHub refuses the app: the installation is suspended, or lacks the permissions",
    404: "GitHub knows no such installation of the app",
    422: "GitHub refuses the repositories or permissions: the installation does not have them",
}


class GithubApp(Secretive, frozen=True, kw_only=True, tag=False):
    """What a credential of the kind github_app says."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"private_key"})

    app_id: str | int
    installation_id: str | int
    private_key: str
    api_url: str = API_URL
    repositories: tuple[str, ...] = ()
    permissions: Mapping[str, str] = msgspec.field(default_factory=dict)


def parse_app(text: str) -> GithubApp:
    """Return the app of a credential. Raises Permanent, which says what is wrong and no value."""
    try:
        app = msgspec.json.decode(text, type=GithubApp)
    except msgspec.DecodeError as error:
        fields = "app_id, installation_id, private_key, and if needed api_url, repositories, permissions"
        raise Permanent(f"expected a JSON object with {fields}", kind="invalid") from error
    if not str(app.installation_id).isdecimal() or not str(app.app_id).strip():
        raise Permanent("app_id and installation_id: expected their ids at GitHub", kind="invalid")
    _key(app)
    return app


async def installation_token(
    requests: JsonRequests, app: GithubApp, *, now_s: Callable[[], float] = time.time
) -> ShortToken:
    """Return a new token. Raises Permanent and Transient."""
    now = int(now_s())
    claims = {"iat": now - BACKDATED_S, "exp": now + JWT_S, "iss": str(app.app_id)}
    chosen: Mapping[str, Any] = {"repositories": app.repositories, "permissions": app.permissions}
    body = {name: value for name, value in chosen.items() if value}
    answer = await requests.send(
        "POST",
        f"{app.api_url.rstrip('/')}/app/installations/{app.installation_id}/access_tokens",
        headers={
            "Authorization": f"Bearer {jwt.encode({'alg': 'RS256', 'typ': 'JWT'}, claims, _key(app))}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "Content-Type": "application/json",
        },
        body=orjson.dumps(body),
    )
    if answer.status != CREATED:
        raise refusal(MEANINGS.get(answer.status, "GitHub gave no token"), answer.status)
    token, ends = answer.fields.get("token"), answer.fields.get("expires_at")
    try:
        ends_s = datetime.fromisoformat(str(ends)).timestamp()
    except ValueError:
        ends_s = 0.0
    if not isinstance(token, str) or not token or not ends_s:
        raise Permanent("the answer has no token, or no expires_at", kind="invalid")
    return ShortToken(value=token, expires_at_s=ends_s)


def _key(app: GithubApp) -> RSAKey:
    try:
        key = RSAKey.import_key(app.private_key)
        is_private = key.is_private
    except (JoseError, ValueError, TypeError) as error:
        raise Permanent("private_key: expected an RSA key in PEM", kind="invalid") from error
    if not is_private:
        raise Permanent("private_key: this is the public key; expected the private one", kind="invalid")
    return key
