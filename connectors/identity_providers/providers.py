"""All identity providers of a configuration: a token to its principal.

A token that was checked is remembered by its hash, so that only the first request with it costs a signature; it is
checked again once the keys of its provider have changed, and never outlives its expiry. What is refused is logged with
its reason, one of a kind a minute, and answered like any unknown token.

Before: services/application/authentication.py. After: tokens.py, signing_keys.py, claims.py.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.configuration.principals import Principal
from loomlog.connectors.errors import Transient
from loomlog.connectors.identity_providers.claims import principal_of
from loomlog.connectors.identity_providers.documents import DocumentClient, Fetch
from loomlog.connectors.identity_providers.page_sessions import PREFIX, PageSessions
from loomlog.connectors.identity_providers.signing_keys import SigningKeys
from loomlog.connectors.identity_providers.tokens import (
    LEEWAY_S,
    Claims,
    TokenRefused,
    UncheckedToken,
    check_token,
    is_token,
    read_token,
)

log = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
"""Tokens of a provider that need not be checked again; each takes some 600 bytes."""
EXPIRY_MAX_S = 366 * 24 * 3_600
"""Seconds that an expiry may lie ahead; one that lies further is treated as this one."""
REASON_EVERY_S = 60.0
"""Seconds between two log lines with the same reason: tokens are made up freely."""


class IdentityProvider:
    """One provider. `clock` counts seconds and never jumps, `time_s` is the time of day."""

    def __init__(
        self, name: str, block: IssuerBlock, fetch: Fetch, *, clock: Callable[[], float], time_s: Callable[[], float]
    ) -> None:
        self.name = name
        self.block = block
        self.keys = SigningKeys(name, block, fetch, clock=clock)
        self._time_s = time_s
        self._remembered: OrderedDict[bytes, Principal] = OrderedDict()
        self._generation = 0

    def recall(self, digest: bytes) -> Principal | None:
        """Return the principal of a token that was checked with the present keys and has not expired."""
        if self._generation != self.keys.generation:
            self._generation = self.keys.generation
            self._remembered.clear()
        principal = self._remembered.get(digest)
        if principal is None or principal.expires_at_s is None or self._time_s() >= principal.expires_at_s:
            return None
        return principal

    def check(self, token: UncheckedToken, *, audience: tuple[str, ...] = ()) -> Claims:
        """Return the claims of a token, checked; `audience`: another one than of the block. Raises TokenRefused, and
        Transient while no key of the provider is known.
        """
        if token.algorithm not in self.block.algorithms:
            raise TokenRefused("its algorithm is not one of `algorithms`")
        if not self.keys.are_known:
            raise Transient(
                f"the provider {self.name} has not answered yet",
                kind="unavailable",
                retry_after_s=self.keys.retry_after_s,
            )
        key = self.keys.find(token.key_id, token.algorithm)
        if key is None:
            raise TokenRefused("its key is none of the provider's")
        expected = audience or self.block.audience
        check_token(token, key, issuer=self.block.issuer, audience=expected, now_s=int(self._time_s()))
        return token.claims

    def identify(self, token: UncheckedToken, digest: bytes) -> Principal:
        """Return the principal of a token and remember it. Raises TokenRefused and Transient."""
        claims = self.check(token)
        expires_at_s = int(min(claims["exp"] + LEEWAY_S, self._time_s() + EXPIRY_MAX_S))
        principal = principal_of(self.name, self.block, claims, expires_at_s=expires_at_s)
        self._remembered[digest] = principal
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return principal


class IdentityProviders:
    """The providers of a configuration."""

    def __init__(
        self,
        blocks: Mapping[str, IssuerBlock],
        fetch: Fetch | None = None,
        *,
        sessions: PageSessions | None = None,
        clock: Callable[[], float] = time.monotonic,
        time_s: Callable[[], float] = time.time,
    ) -> None:
        self.sessions = sessions
        self.time_s = time_s
        self._client = DocumentClient()
        self.fetch = fetch or self._client.fetch
        self.by_name = {
            name: IdentityProvider(name, block, self.fetch, clock=clock, time_s=time_s)
            for name, block in blocks.items()
        }
        self._by_issuer = {provider.block.issuer: provider for provider in self.by_name.values()}
        self._clock = clock
        self._logged_at: dict[tuple[str, str], float] = {}

    async def prepare(self, text: str) -> None:
        """Fetch the keys that a token needs, if it is time; otherwise do nothing."""
        if not is_token(text) or self._recall(text) is not None:
            return
        try:
            token = read_token(text)
        except TokenRefused:
            return
        provider = self._by_issuer.get(token.issuer)
        if provider is not None and token.algorithm in provider.block.algorithms:
            await provider.keys.prepare(token.key_id, token.algorithm)

    def find_principal(self, text: str) -> Principal | None:
        """Return the principal of a token; None for one that is refused. Raises Transient while the keys of its
        provider are not known yet.
        """
        if text.startswith(PREFIX) and self.sessions is not None:
            return self._find_session(self.sessions, text)
        if not is_token(text):
            return None
        if (principal := self._recall(text)) is not None:
            return principal
        name = "unknown"
        try:
            token = read_token(text)
            provider = self._by_issuer.get(token.issuer)
            if provider is None:
                raise TokenRefused("its issuer is not one of `issuers`")
            name = provider.name
            return provider.identify(token, _digest(text))
        except TokenRefused as refused:
            self.log_refusal(name, str(refused))
            return None

    def _find_session(self, sessions: PageSessions, text: str) -> Principal | None:
        try:
            return sessions.find_principal(text, now_s=self.time_s())
        except TokenRefused as refused:
            self.log_refusal("page", str(refused))
            return None

    def log_refusal(self, name: str, reason: str) -> None:
        """Log why a token was refused, unless the same was logged within the last minute."""
        now = self._clock()
        if now - self._logged_at.get((name, reason), -REASON_EVERY_S) >= REASON_EVERY_S:
            self._logged_at[name, reason] = now
            log.warning("a token of the issuer %s was refused: %s", name, reason)

    async def close(self) -> None:
        """End what is being fetched and close the connections."""
        for provider in self.by_name.values():
            await provider.keys.close()
        await self._client.close()

    def _recall(self, text: str) -> Principal | None:
        digest = _digest(text)
        return next((one for provider in self.by_name.values() if (one := provider.recall(digest)) is not None), None)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
