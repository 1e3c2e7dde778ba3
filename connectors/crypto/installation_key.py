"""The installation's secret key, and what is derived from it: keys and signing secrets for one purpose each.

`LOOMLOG_SECRET_KEY` is the base64 of 32 random bytes. It is never used directly: HKDF-SHA256 derives a key for every
purpose and tenant, so that what one tenant receives (the secret its callbacks are signed with) reveals nothing about
another's, nor about the encryption keys. During a rotation the previous key is set too: what was encrypted under it can
still be decrypted, and callbacks carry a signature of each.

Not chosen: the key-encryption key of user content (content_encryption.py), which is wrapped, rotated and destroyed by
rules of its own.

Before: settings. After: connectors/storage/run_credentials.py, connectors/http/signed_callbacks.py.
"""

import os
from dataclasses import dataclass, field
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from loomlog.connectors.crypto.content_encryption import parse_key
from loomlog.connectors.errors import Permanent

KEY_BYTES = 32
NONCE_BYTES = 12
NAME_BYTES = 8


class SecretDecryptionError(Exception):
    """The ciphertext was altered, belongs elsewhere, or was made under a key that is not configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """Secret key of the installation. `keys`: the current one first, then a previous one that can still decrypt."""

    keys: tuple[bytes, ...] = field(repr=False)

    def derive_keys(self, purpose: str, *context: str) -> tuple[bytes, ...]:
        """Derive 32 bytes for a purpose and its context from each key."""
        return tuple(_derive_key(key, purpose, *context) for key in self.keys)

    def encrypt(self, data: bytes, purpose: str, *context: str) -> bytes:
        """Encrypt with AES-256-GCM, bound to the purpose and its context."""
        key = self.keys[0]
        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(_derive_key(key, purpose, *context)).encrypt(nonce, data, _associated_data(purpose, *context))
        return _key_name(key) + nonce + sealed

    def decrypt(self, ciphertext: bytes, purpose: str, *context: str) -> bytes:
        """Decrypt. Raises SecretDecryptionError."""
        name, nonce, rest = (
            ciphertext[:NAME_BYTES],
            ciphertext[NAME_BYTES : NAME_BYTES + NONCE_BYTES],
            ciphertext[NAME_BYTES + NONCE_BYTES :],
        )
        key = next((key for key in self.keys if _key_name(key) == name), None)
        if key is None:
            raise SecretDecryptionError(
                "sealed under another LOOMLOG_SECRET_KEY; give it as LOOMLOG_SECRET_KEY_PREVIOUS"
            )
        try:
            return AESGCM(_derive_key(key, purpose, *context)).decrypt(nonce, rest, _associated_data(purpose, *context))
        except (InvalidTag, ValueError) as error:
            raise SecretDecryptionError("altered, or sealed for something else") from error


def parse_secret_key(*, text: str, previous: str) -> SecretKey | None:
    """Return the key of the settings; None when there is none. Raises Permanent."""
    if not text.strip():
        if previous.strip():
            raise Permanent(
                "LOOMLOG_SECRET_KEY_PREVIOUS is set without LOOMLOG_SECRET_KEY: set the key that follows it",
                kind="invalid",
            )
        return None
    keys = [parse_key(text, "LOOMLOG_SECRET_KEY")]
    if previous.strip():
        keys.append(parse_key(previous, "LOOMLOG_SECRET_KEY_PREVIOUS"))
    return SecretKey(keys=tuple(keys))


def _derive_key(key: bytes, purpose: str, *context: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_associated_data(purpose, *context)).derive(key)


def _associated_data(purpose: str, *context: str) -> bytes:
    # Lengths, so that two parts can never be read as two others.
    return b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in ("loomlog", purpose, *context))


def _key_name(key: bytes) -> bytes:
    """Return an id of the key that reveals nothing about it."""
    return sha256(b"loomlog secret key\0" + key).digest()[:NAME_BYTES]
