"""A person signs in to the page: authorization code with PKCE (RFC 7636, OpenID Connect Core 3.1).

No process remembers a sign-in: state, nonce and verifier are sealed into a cookie of the browser that began it, so any
process finishes it, and no other browser. What the provider then says is checked as any token is.

Before: services/api/ui_sign_in.py. After: oauth.py, page_sessions.py.
"""

import asyncio
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec
from authlib.common.security import generate_token

from loomlog.connectors.configuration.issuer_check import read_client_secrets
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.identity_providers.documents import discover, endpoint_of
from loomlog.connectors.identity_providers.oauth import authorization_url, code_of, oauth_client
from loomlog.connectors.identity_providers.page_sessions import PageSessions, seal, unseal
from loomlog.connectors.identity_providers.providers import IdentityProvider, IdentityProviders
from loomlog.connectors.identity_providers.tokens import Claims, TokenRefused, is_token, read_token

PURPOSE = "sign-in"
SIGN_IN_WAIT_S = 600
"""Seconds that a person may take at the provider."""
SECRET_CHARACTERS = 43
"""Characters of a state, a nonce and a verifier: 256 bits."""


class PendingSignIn(msgspec.Struct, frozen=True, array_like=True):
    """A sign-in between its beginning and the provider's answer."""

    provider: str
    state: str
    nonce: str
    verifier: str
    return_to: str
    began_at_s: float


class SignIn:
    """Sign-in with the providers that have a `client_id`."""

    def __init__(self, providers: IdentityProviders, key: SecretKey, client_secrets: Mapping[str, str]) -> None:
        """`client_secrets`: by the name of the provider; a public client has none."""
        self._providers = providers
        self._key = key
        self._client_secrets = client_secrets

    async def begin(self, name: str, *, redirect_uri: str, return_to: str) -> tuple[str, str]:
        """Return the address at the provider to which the person goes, and the sealed sign-in for the browser.

        Raises KeyError for an unknown provider, Transient and Permanent.
        """
        provider = self._providers.by_name[name]
        document = await discover(self._providers.fetch, provider.block.issuer)
        state, nonce, verifier = (generate_token(SECRET_CHARACTERS) for _ in range(3))
        url = authorization_url(
            endpoint_of(document, "authorization_endpoint"),
            provider.block.client_id,
            code_verifier=verifier,
            redirect_uri=redirect_uri,
            scope=" ".join(provider.block.login_scopes),
            state=state,
            nonce=nonce,
        )
        pending = PendingSignIn(name, state, nonce, verifier, return_to, self._providers.time_s())
        return url, seal(self._key, pending, PURPOSE)

    async def finish(self, sealed: str, *, answer_url: str, redirect_uri: str) -> tuple[str, str]:
        """Return the token of the session, and where the person wanted to go. `answer_url`: what the provider sent the
        browser to. Raises TokenRefused, ProviderRefused, Transient and Permanent.
        """
        pending = unseal(self._key, sealed, PURPOSE, PendingSignIn)
        now_s = self._providers.time_s()
        if pending is None or not 0 <= now_s - pending.began_at_s < SIGN_IN_WAIT_S:
            raise TokenRefused("the sign-in was not begun in this browser, or too long ago")
        provider = self._providers.by_name.get(pending.provider)
        if provider is None:
            raise TokenRefused("the provider is no longer one of `issuers`")
        code = code_of(answer_url, pending.state)
        document = await discover(self._providers.fetch, provider.block.issuer)
        url = endpoint_of(document, "token_endpoint")
        answer = await asyncio.to_thread(self._exchange, provider, url, code, pending.verifier, redirect_uri)
        claims = await self._claims(provider, answer, nonce=pending.nonce)
        assert self._providers.sessions is not None
        return self._providers.sessions.begin(pending.provider, claims, now_s=now_s), pending.return_to

    def _exchange(
        self, provider: IdentityProvider, url: str, code: str, verifier: str, redirect_uri: str
    ) -> Mapping[str, Any]:
        secret = self._client_secrets.get(provider.name, "")
        with oauth_client(provider.block.client_id, client_secret=secret) as client:
            answer: Mapping[str, Any] = client.fetch_token(
                url, grant_type="authorization_code", code=code, code_verifier=verifier, redirect_uri=redirect_uri
            )
            return answer

    async def _claims(self, provider: IdentityProvider, answer: Mapping[str, Any], *, nonce: str) -> Claims:
        """Return the claims of the ID token, after those of the access token if that is one for this installation:
        some providers have roles in the latter alone. Raises TokenRefused and Transient.
        """
        claims = await self._check(provider, answer.get("id_token"), audience=(provider.block.client_id,))
        of_token = claims.get("nonce")
        if not isinstance(of_token, str) or not hmac.compare_digest(of_token.encode(), nonce.encode()):
            raise TokenRefused("its nonce is not that of the sign-in")
        try:
            further = await self._check(provider, answer.get("access_token"), audience=())
        except TokenRefused:
            return claims
        return {**further, **claims} if further.get("sub") == claims.get("sub") else claims

    async def _check(self, provider: IdentityProvider, text: Any, *, audience: tuple[str, ...]) -> Claims:
        if not isinstance(text, str) or not is_token(text):
            raise TokenRefused("the provider sent no ID token; `login_scopes` has to name openid")
        token = read_token(text)
        await provider.keys.prepare(token.key_id, token.algorithm)
        return provider.check(token, audience=audience)


def open_sign_in(
    configuration: Configuration, environ: Mapping[str, str], key: SecretKey | None
) -> tuple[IdentityProviders, SignIn | None]:
    """Return the providers of a configuration, and sign-in with them if one has a `client_id`. Raises
    ConfigurationError.
    """
    secrets = read_client_secrets(configuration.issuers, environ, has_key=key is not None)
    has_page = any(block.client_id for block in configuration.issuers.values())
    sessions = PageSessions(key, configuration.issuers) if has_page and key is not None else None
    providers = IdentityProviders(configuration.issuers, sessions=sessions)
    return providers, SignIn(providers, key, secrets) if sessions is not None and key is not None else None
