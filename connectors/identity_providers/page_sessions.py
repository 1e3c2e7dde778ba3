"""Sessions of the page: a token of our own that has the state of the session itself, sealed.

It has the claims from which the principal follows, and no token of the provider. Any process of the installation opens
it with the installation's key, and maps the claims with its configuration, so that a provider or a group that is
removed there ends the session.

Before: providers.py, sign_in.py. After: claims.py.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from loomlog.connectors.configuration.issuer_block import IssuerBlock
from loomlog.connectors.configuration.principals import Principal
from loomlog.connectors.crypto.installation_key import SecretDecryptionError, SecretKey
from loomlog.connectors.identity_providers.claims import principal_of, relevant_claims
from loomlog.connectors.identity_providers.tokens import Claims, TokenRefused

PREFIX = "lps_"
PURPOSE = "page session"
TOKEN_CHARACTERS_MAX = 8_192
"""Characters of a session that are looked at; a browser keeps half of that."""
ValueT = TypeVar("ValueT", bound=msgspec.Struct)


class PageSession(msgspec.Struct, frozen=True, array_like=True):
    """A person who is signed in."""

    provider: str
    claims: dict[str, Any]
    expires_at_s: int
    nonce: str


class PageSessions:
    """Seals and opens sessions."""

    def __init__(self, key: SecretKey, blocks: Mapping[str, IssuerBlock]) -> None:
        self._key = key
        self._blocks = blocks

    def begin(self, provider: str, claims: Claims, *, now_s: float) -> str:
        """Return the token of a new session. Raises TokenRefused when the claims give no access."""
        block = self._blocks[provider]
        expires_at_s = int(now_s) + block.session_minutes * 60
        principal_of(provider, block, claims, expires_at_s=expires_at_s)
        session = PageSession(provider, relevant_claims(block, claims), expires_at_s, os.urandom(9).hex())
        return PREFIX + seal(self._key, session, PURPOSE)

    def find_principal(self, text: str, *, now_s: float) -> Principal:
        """Return the principal of a session. Raises TokenRefused."""
        session = unseal(self._key, text.removeprefix(PREFIX), PURPOSE, PageSession)
        block = self._blocks.get(session.provider) if session is not None else None
        if session is None or block is None:
            raise TokenRefused("the session cannot be opened, or its provider is no longer one of `issuers`")
        if now_s >= session.expires_at_s:
            raise TokenRefused("the session is over")
        return principal_of(session.provider, block, session.claims, expires_at_s=session.expires_at_s)


def seal(key: SecretKey, value: msgspec.Struct, purpose: str) -> str:
    """Return a value as text that only this installation reads or makes."""
    return base64.urlsafe_b64encode(key.encrypt(msgspec.msgpack.encode(value), purpose)).decode().rstrip("=")


def unseal(key: SecretKey, text: str, purpose: str, kind: type[ValueT]) -> ValueT | None:
    """Return a sealed value; None when it was not sealed here for this purpose."""
    if not text.isascii() or len(text) > TOKEN_CHARACTERS_MAX:
        return None
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(key.decrypt(sealed, purpose), type=kind)
    except (binascii.Error, SecretDecryptionError, msgspec.MsgspecError, ValueError):
        return None
