"""Access tokens of OAuth 2.0 for a refresh token (RFC 6749, section 6).

The credential is a JSON object:

    {"token_url": "https://login.example.com/oauth/token", "client_id": "loomlog", "refresh_token": "...",
     "client_secret": "...", "access_token": "...", "expires_at": 1760000000, "scope": "read", "auth": "basic"}

only the first three are needed. `expires_at` is in Unix seconds. `auth`: where the client's secret is sent, in the body
(`post`) or in a header (`basic`).

Not chosen: authlib's client, which needs a session of httpx and follows what the server says beyond this one exchange.

Before: services/families/identity/renewals.py. After: json_requests.py.
"""

import base64
import time
from collections.abc import Callable
from typing import ClassVar, Literal
from urllib.parse import quote, urlencode

import msgspec

from loomlog.connectors.credentials.json_requests import JsonRequests, refusal
from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Secretive, replace

OK = 200
AHEAD_S = 300.0
"""Seconds before its end in which an access token is renewed."""
LIFETIME_S = 3_600.0
"""Lifetime of an access token whose answer says none."""
FIELDS = "token_url, client_id, refresh_token, and if needed client_secret, access_token, expires_at, scope and auth"
MEANINGS = {
    "invalid_grant": "the refresh token is not accepted any more: sign in again, and store the new one",
    "invalid_client": "the client is refused: client_id and client_secret do not belong together",
    "unauthorized_client": "the client may not use refresh tokens",
    "invalid_scope": "the scope is more than what was granted",
}


class OAuthToken(Secretive, frozen=True, kw_only=True, tag=False):
    """What a credential of the kind oauth says."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"client_secret", "refresh_token", "access_token"})

    token_url: str
    client_id: str
    refresh_token: str
    client_secret: str = ""
    access_token: str = ""
    expires_at: float = 0.0
    scope: str = ""
    auth: Literal["post", "basic"] = "post"

    def is_good(self, now_s: float) -> bool:
        """Whether the access token can be used."""
        return bool(self.access_token) and now_s < self.expires_at - AHEAD_S


def parse_token(text: str) -> OAuthToken:
    """Return the tokens of a credential. Raises Permanent, which says no value."""
    try:
        token = msgspec.json.decode(text, type=OAuthToken)
    except msgspec.DecodeError as error:
        raise Permanent(f"expected a JSON object with the fields {FIELDS}", kind="invalid") from error
    if not (token.token_url and token.client_id and token.refresh_token):
        raise Permanent("token_url, client_id and refresh_token: expected texts", kind="invalid")
    return token


def token_text(token: OAuthToken) -> str:
    """Return tokens as `parse_token` reads them."""
    return msgspec.json.encode(token).decode()


async def renewed_token(
    requests: JsonRequests, token: OAuthToken, *, now_s: Callable[[], float] = time.time
) -> OAuthToken:
    """Return the tokens with a new access token. Raises Permanent and Transient."""
    form = {"grant_type": "refresh_token", "refresh_token": token.refresh_token}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if token.auth == "basic":
        pair = f"{quote(token.client_id, safe='')}:{quote(token.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        form["client_id"] = token.client_id
        form |= {"client_secret": token.client_secret} if token.client_secret else {}
    form |= {"scope": token.scope} if token.scope else {}
    asked_at_s = now_s()
    answer = await requests.send("POST", token.token_url, headers=headers, body=urlencode(form).encode())
    if answer.status != OK:
        code = str(answer.fields.get("error", ""))
        raise refusal(MEANINGS.get(code, "the server gave no token"), answer.status)
    access, refresh, lifetime = (answer.fields.get(name) for name in ("access_token", "refresh_token", "expires_in"))
    if not isinstance(access, str) or not access:
        raise Permanent("the answer has no access_token", kind="invalid")
    lifetime_s = float(lifetime) if isinstance(lifetime, int | float) and lifetime > 0 else LIFETIME_S
    return replace(
        token,
        access_token=access,
        refresh_token=refresh if isinstance(refresh, str) and refresh else token.refresh_token,
        expires_at=asked_at_s + lifetime_s,
    )
