"""A person signs in on the command line: device authorization (RFC 8628), refresh (RFC 6749 6), revocation (RFC 7009).

The person opens an address of the provider anywhere and enters a code; meanwhile the provider is asked for the tokens,
as often as it allows. Each function sends one request, but `wait_for_tokens`.

Before: services/cli/http/stored_tokens.py, services/cli/admin/login.py. After: oauth.py.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE

from loomlog.connectors.errors import Permanent
from loomlog.connectors.identity_providers.documents import Document, endpoint_of
from loomlog.connectors.identity_providers.oauth import ProviderRefused, oauth_client
from loomlog.connectors.identity_providers.tokens import is_token

PENDING, SLOW_DOWN, EXPIRED = "authorization_pending", "slow_down", "expired_token"
INTERVAL_S = 5
"""Seconds between two questions where the provider names none, and by which it slows down (RFC 8628 3.5)."""
WAIT_MAX_S = 1_800
"""Seconds that a code is waited for, whatever the provider allows."""
LIFETIME_S = 3_600
"""Seconds that a token is taken to live where the provider does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCode:
    """What a person enters, and where. `device_code` is the program's half."""

    device_code: str
    user_code: str
    address: str
    address_with_code: str
    """Empty where the provider has none."""
    interval_s: float
    lifetime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Tokens of a person. `bearer` is what the API takes; `refresh_token` is empty without one."""

    bearer: str
    refresh_token: str
    lifetime_s: float


def request_code(url: str, client_id: str, scope: str) -> DeviceCode:
    """Return a code for a person. Raises ProviderRefused, Transient and Permanent."""
    with oauth_client(client_id) as client:
        response = client.session.post(url, data={"client_id": client_id, "scope": scope})
        answer = client.parse_response_token(response)
    code = DeviceCode(
        device_code=_text(answer, "device_code"),
        user_code=_text(answer, "user_code"),
        address=_address(answer, "verification_uri") or _address(answer, "verification_url"),
        address_with_code=_address(answer, "verification_uri_complete"),
        interval_s=_seconds(answer, "interval", INTERVAL_S),
        lifetime_s=min(_seconds(answer, "expires_in", WAIT_MAX_S), WAIT_MAX_S),
    )
    if not (code.device_code and code.user_code and code.address):
        raise Permanent("the provider sent no code for a device", kind="invalid")
    return code


def wait_for_tokens(
    url: str,
    client_id: str,
    code: DeviceCode,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Tokens:
    """Ask until the person has decided. Raises ProviderRefused when it said no or the time is over, Transient and
    Permanent.
    """
    deadline, interval_s = clock() + code.lifetime_s, code.interval_s
    while clock() < deadline:
        try:
            with oauth_client(client_id) as client:
                answer = client.fetch_token(url, grant_type=DEVICE_CODE_GRANT_TYPE, device_code=code.device_code)
                return _tokens(answer)
        except ProviderRefused as refused:
            if refused.code not in (PENDING, SLOW_DOWN):
                raise
            interval_s += INTERVAL_S if refused.code == SLOW_DOWN else 0
        sleep(interval_s)
    raise ProviderRefused(EXPIRED, "the code was not entered in time")


def refresh_tokens(url: str, client_id: str, refresh_token: str) -> Tokens:
    """Return new tokens. Raises ProviderRefused, Transient and Permanent."""
    with oauth_client(client_id) as client:
        return _tokens({"refresh_token": refresh_token, **client.refresh_token(url, refresh_token=refresh_token)})


def revoke_token(url: str, client_id: str, refresh_token: str) -> None:
    """End a refresh token at the provider. Raises Transient and Permanent."""
    with oauth_client(client_id) as client:
        client.revoke_token(url, token=refresh_token, token_type_hint="refresh_token").raise_for_status()


def _tokens(answer: Document) -> Tokens:
    """Return the tokens of an answer: the access token if it is a JWT, otherwise the ID token. Raises Permanent."""
    candidates = (_text(answer, "access_token"), _text(answer, "id_token"))
    bearer = next((text for text in candidates if is_token(text)), "")
    if not bearer:
        raise Permanent("the provider sent no JWT, neither as access token nor as ID token", kind="invalid")
    return Tokens(
        bearer=bearer,
        refresh_token=_text(answer, "refresh_token"),
        lifetime_s=_seconds(answer, "expires_in", LIFETIME_S),
    )


def _text(answer: Document, name: str) -> str:
    value = answer.get(name, "")
    return value if isinstance(value, str) and value.isprintable() else ""


def _address(answer: Document, name: str) -> str:
    """Return an address that a browser may open; empty without one."""
    try:
        return endpoint_of({name: _text(answer, name)}, name)
    except Permanent:
        return ""


def _seconds(answer: Document, name: str, default: float) -> float:
    value = answer.get(name)
    return float(value) if isinstance(value, int | float) and 0 < value < 10**9 else default
