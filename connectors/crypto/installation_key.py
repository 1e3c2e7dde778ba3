"""The installation's secret key, and what is derived from it: keys and signing secrets for one purpose each.

`LOOMLOG_SECRET_KEY` is the base64 of 32 random bytes. Nothing uses it as it is: HKDF-SHA256 makes a key of its own for
every purpose and tenant, so that what one tenant is told (the secret its callbacks are signed with) says nothing about
another's, nor about the keys that seal. While it is rotated the earlier one is given too: what was sealed under it can
be opened, and callbacks carry a signature of each.

Not chosen: the key-encryption key of user content (sealing.py), which is wrapped, rotated and destroyed by rules of its
own.

Before: settings. After: run_credentials.py, callbacks.py.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from loomlog.connectors.crypto.content_encryption import parsed_key
from loomlog.connectors.errors import Permanent

KEY_BYTES = 32
NONCE_BYTES = 12
NAME_BYTES = 8


class Unopenable(Exception):
    """What is sealed was altered, belongs elsewhere, or was sealed under a key that is not given here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """`keys`: the current one first, then an earlier one that still opens."""

    keys: tuple[bytes, ...] = field(repr=False)

    def derived(self, purpose: str, *of: str) -> tuple[bytes, ...]:
        """32 bytes for a purpose and whatever it is for, from each key."""
        return tuple(_derived(key, purpose, *of) for key in self.keys)

    def seal(self, data: bytes, purpose: str, *of: str, random: Callable[[int], bytes] = os.urandom) -> bytes:
        """AES-256-GCM, bound to the purpose and to what it is for."""
        key = self.keys[0]
        nonce = random(NONCE_BYTES)
        sealed = AESGCM(_derived(key, purpose, *of)).encrypt(nonce, data, _bound(purpose, *of))
        return _name(key) + nonce + sealed

    def open(self, sealed: bytes, purpose: str, *of: str) -> bytes:
        """Raises Unopenable."""
        name, nonce, rest = (
            sealed[:NAME_BYTES],
            sealed[NAME_BYTES : NAME_BYTES + NONCE_BYTES],
            sealed[NAME_BYTES + NONCE_BYTES :],
        )
        key = next((key for key in self.keys if _name(key) == name), None)
        if key is None:
            raise Unopenable("sealed under another LOOMLOG_SECRET_KEY; give it as LOOMLOG_SECRET_KEY_PREVIOUS")
        try:
            return AESGCM(_derived(key, purpose, *of)).decrypt(nonce, rest, _bound(purpose, *of))
        except (InvalidTag, ValueError) as error:
            raise Unopenable("altered, or sealed for something else") from error


def secret_key(*, text: str, previous: str) -> SecretKey | None:
    """The key of the settings; None when there is none. Raises Permanent."""
    if not text.strip():
        if previous.strip():
            raise Permanent(
                "LOOMLOG_SECRET_KEY_PREVIOUS is set without LOOMLOG_SECRET_KEY: set the key that follows it",
                kind="invalid",
            )
        return None
    keys = [parsed_key(text, "LOOMLOG_SECRET_KEY")]
    if previous.strip():
        keys.append(parsed_key(previous, "LOOMLOG_SECRET_KEY_PREVIOUS"))
    return SecretKey(keys=tuple(keys))


def _derived(key: bytes, purpose: str, *of: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_bound(purpose, *of)).derive(key)


def _bound(purpose: str, *of: str) -> bytes:
    # Lengths, so that two parts can never be read as other two.
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in ("loomlog", purpose, *of))


def _name(key: bytes) -> bytes:
    """Says which key it was and nothing about it."""
    return sha256(b"loomlog secret key\0" + key).digest()[:NAME_BYTES]
