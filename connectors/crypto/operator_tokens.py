"""Texts of tokens, and what is kept of them: an HMAC-SHA256 under the pepper of the installation.

The pepper is LOOMLOG_OPERATOR_TOKEN_PEPPER, or derived from LOOMLOG_SECRET_KEY. Derived ones change with that key: the
texts hashed under the previous one are found as long as it is set too. Without either no token can be made.

Before: services/families/identity/handlers.py makes a text. After: services/families/identity/directory.py finds the
token of a text.
"""

import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from loomlog.connectors.crypto.installation_key import SecretKey

PREFIX = "lct_"
RANDOM_BYTES = 32
ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Base58: no character is mistaken for another, and a double click selects all of it."""
PURPOSE = "operator tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peppers:
    """The pepper that new texts are hashed under, then earlier ones."""

    keys: tuple[bytes, ...] = field(repr=False)

    def hashed(self, text: str) -> str:
        """Return what is kept of a new text, hexadecimal."""
        return next(iter(self.all_hashes(text))).hex()

    def all_hashes(self, text: str) -> list[bytes]:
        """Return the hashes of a text under each pepper."""
        data = text.encode("utf-8", "surrogateescape")
        return [hmac.digest(key, data, "sha256") for key in self.keys]


def peppers_of(pepper: str, secret: SecretKey | None) -> Peppers | None:
    """Return the peppers of an installation; None when no token can be made."""
    if pepper.strip():
        return Peppers(keys=(pepper.strip().encode(),))
    return None if secret is None else Peppers(keys=secret.derive_keys(PURPOSE))


def new_text(random: Callable[[int], bytes] = os.urandom) -> str:
    """Return the text of a new token."""
    return PREFIX + _base58(random(RANDOM_BYTES))


def _base58(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, len(ALPHABET))
        text = ALPHABET[digit] + text
    zeros = len(data) - len(data.lstrip(b"\0"))
    return ALPHABET[0] * zeros + text
