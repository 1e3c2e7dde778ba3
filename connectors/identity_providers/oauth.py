"""OAuth requests to a provider: authlib's client over httpx, with bounds of time and size.

authlib's base client has no transport; each request here is one POST of a form to the provider, made on a thread of its
own in services, and directly in the command line.

Before: sign_in.py, device_login.py. After: authlib, httpx.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
from authlib.oauth2.base import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from authlib.oauth2.rfc6749.parameters import parse_authorization_code_response

from loomlog.connectors.errors import Permanent, Transient

ANSWER_BYTES_MAX = 256 * 1024
"""Bytes of an answer of a provider: three tokens of a person in many groups."""
ANSWER_WAIT_S = 10.0
"""Seconds for a whole request."""
FORM = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}


class FormPoster:
    """What authlib's client sends its requests with."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def post(
        self, url: str, *, data: Mapping[str, str], headers: Mapping[str, str] | None = None, auth: Any = None
    ) -> httpx.Response:
        """Send a form and return the answer. Raises Transient and Permanent."""
        body, sent = urlencode(data), {**(headers or {}), **FORM}
        if auth is not None:
            url, sent, body = auth.prepare("POST", url, sent, body)
        deadline, answer = time.monotonic() + ANSWER_WAIT_S, bytearray()
        try:
            with self._client.stream("POST", url, content=body, headers=sent) as response:
                for chunk in response.iter_bytes():
                    answer += chunk
                    if len(answer) > ANSWER_BYTES_MAX or time.monotonic() > deadline:
                        raise Permanent("the provider's answer is too long, or takes too long", kind="invalid")
        except httpx.HTTPError as error:
            raise Transient(f"the provider does not answer ({type(error).__name__})", kind="network") from error
        return httpx.Response(response.status_code, content=bytes(answer), request=response.request)


class ProviderRefused(Exception):
    """The provider answered with an error of OAuth. `code`: that of RFC 6749 5.2 or RFC 8628 3.5."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(f"the provider answered {code[:100]}{f': {description[:300]}' if description else ''}")
        self.code = code


def authorization_url(url: str, client_id: str, *, code_verifier: str, **parameters: str) -> str:
    """Return the address at the provider to which a person goes, with the challenge of the verifier."""
    client = OAuth2Client(None, client_id=client_id, code_challenge_method="S256")
    address: str = client.create_authorization_url(url, code_verifier=code_verifier, **parameters)[0]
    return address


def code_of(answer_url: str, state: str) -> str:
    """Return the code of the address to which the provider sent a browser. Raises ProviderRefused, also for another
    state.
    """
    try:
        return str(parse_authorization_code_response(answer_url, state=state)["code"])
    except OAuth2Error as error:
        answer = dict(parse_qsl(urlsplit(answer_url).query))
        raise ProviderRefused(answer.get("error", error.error), answer.get("error_description", "")) from error


@contextmanager
def oauth_client(client_id: str, *, client_secret: str = "") -> Iterator[OAuth2Client]:
    """Open a client of the provider. Raises ProviderRefused, Transient and Permanent for what is done with it."""
    with httpx.Client(trust_env=False, follow_redirects=False, timeout=ANSWER_WAIT_S) as transport:
        client = OAuth2Client(FormPoster(transport), client_id=client_id, client_secret=client_secret or None)
        try:
            yield client
        except OAuth2Error as error:
            raise ProviderRefused(str(error.error), str(error.description or "")) from error
        except httpx.HTTPStatusError as error:
            raise Transient(f"the provider answered {error.response.status_code}", kind="unavailable") from error
        except ValueError as error:
            raise Permanent("the provider's answer is not what OAuth has", kind="invalid") from error
