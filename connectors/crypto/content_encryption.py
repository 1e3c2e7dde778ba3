"""Encryption of user content into opaque tokens: AES-256-GCM, one data key per subject, wrapped by a key-encryption
key.

A token is ordinary text, so it goes wherever the content would have gone (log, rows, snapshots, blobs, files) and may
be in the middle of a longer text:

    lenc1.<key id>.<base64url of nonce, ciphertext and tag>
    lenc1u.<...>                        the same for untrusted text: it is escaped when a model is shown it, because
                                        encrypted text cannot be escaped earlier
                                        (services/core/run/conversation/prompt.py, `fence`)

The nonce is 96 random bits; a key is good for some 2^32 tokens, more than a subject needs. The associated data are the
form, tenant, subject and key id, so that a token cannot be passed off as another subject's or as trusted. Destroying
the data key makes every copy of its tokens unreadable at once, also those in backups.

A key-encryption key is the base64 of 32 bytes, in the environment or in a file. It is named by the first 16 hex digits
of a SHA-256, so that a wrong one is detected before anything is decrypted. Messages never hold key material.

Not chosen: a deterministic cipher (equal texts would be recognisable as equal), encrypting whole records (readers peek
at envelopes, and the fold needs the shape), a key service (it would fit behind `wrap` and `unwrap` when one is needed).

Before: settings; services/stream/encryption/subject_keys.py keeps the data keys. After: every holder of tokens.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from loomlog.connectors.errors import Permanent

TOKEN_PREFIX = "lenc1"
"""Prefix of every token; a text without it contains none."""
TOKEN = re.compile(r"lenc1(u?)\.([0-9a-f]{20})\.([A-Za-z0-9_-]{38,})")
TOKEN_PIECE = re.compile(rb"[A-Za-z0-9_.-]*")
KEY_BYTES = 32
KEY_ID_BYTES = 10
NONCE_BYTES = 12
MAX_FILE_BYTES = 10_000
"""Bytes of a key file; a key is one line, so a larger file was not meant."""

RandomBytes = Callable[[int], bytes]
"""Function that returns that many unpredictable bytes: os.urandom."""


class ContentDecryptionError(Exception):
    """The token or the wrapped key cannot be decrypted with this key: altered, cut, or made by another key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    """Data key of one subject. `subject` is empty for the tenant's own key."""

    key_id: str
    tenant: str
    subject: str
    secret: bytes = field(repr=False)

    def encrypt(self, text: str, random: RandomBytes, *, untrusted: bool = False) -> str:
        """Return the text as a token; about 4/3 of its UTF-8 length and 78 characters more."""
        form = "u" if untrusted else ""
        nonce = random(NONCE_BYTES)
        sealed = nonce + AESGCM(self.secret).encrypt(nonce, text.encode(), self._associated_data(form))
        return f"{TOKEN_PREFIX}{form}.{self.key_id}.{base64.urlsafe_b64encode(sealed).rstrip(b'=').decode()}"

    def decrypt(self, token: str) -> str:
        """Return the text of a token. Raises ContentDecryptionError."""
        match = TOKEN.fullmatch(token)
        if match is None or match[2] != self.key_id:
            raise ContentDecryptionError("not a token of this key")
        try:
            sealed = base64.urlsafe_b64decode(match[3] + "=" * (-len(match[3]) % 4))
            text = AESGCM(self.secret).decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._associated_data(match[1])
            )
            return text.decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise ContentDecryptionError("the token was altered or cut") from error

    def digest(self, digest: str) -> str:
        """Return a digest that cannot be compared with a guess without the key; hex, 64 characters."""
        return hmac.new(self.secret, b"lenc1 digest\0" + digest.encode(), sha256).hexdigest()

    def _associated_data(self, form: str) -> bytes:
        return "\0".join((TOKEN_PREFIX, form, self.tenant, self.subject, self.key_id)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEncryptionKeys:
    """Key-encryption keys: wraps data keys under `current`; unwraps under any of `keys`, by id."""

    current: str
    keys: Mapping[str, bytes] = field(repr=False)

    def wrap(self, key: DataKey, random: RandomBytes) -> bytes:
        """Encrypt the data key under the current key-encryption key."""
        nonce = random(NONCE_BYTES)
        return nonce + AESGCM(self.keys[self.current]).encrypt(nonce, key.secret, _wrapping_associated_data(key))

    def unwrap(self, wrapped: bytes, *, wrapped_by: str, key_id: str, tenant: str, subject: str) -> DataKey:
        """Decrypt a data key. Raises ContentDecryptionError."""
        named = DataKey(key_id=key_id, tenant=tenant, subject=subject, secret=b"")
        if wrapped_by not in self.keys:
            raise ContentDecryptionError(f"the key {key_id} is wrapped by {wrapped_by}, which is not given here")
        try:
            secret = AESGCM(self.keys[wrapped_by]).decrypt(
                wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _wrapping_associated_data(named)
            )
        except (InvalidTag, ValueError) as error:
            raise ContentDecryptionError(f"the record of the key {key_id} was altered") from error
        return DataKey(key_id=key_id, tenant=tenant, subject=subject, secret=secret)


def generate_data_key(tenant: str, subject: str, random: RandomBytes) -> DataKey:
    return DataKey(key_id=random(KEY_ID_BYTES).hex(), tenant=tenant, subject=subject, secret=random(KEY_BYTES))


def has_tokens(text: str) -> bool:
    """Return whether anything in the text has to be decrypted."""
    return TOKEN_PREFIX in text and TOKEN.search(text) is not None


def key_ids_in(text: str) -> set[str]:
    """Return the ids of the keys of all tokens in a text."""
    return {match[2] for match in TOKEN.finditer(text)} if TOKEN_PREFIX in text else set()


def is_token(text: str, *, untrusted: bool | None = None) -> bool:
    """Return whether the text is one token of the given form; None = of either form."""
    match = TOKEN.fullmatch(text) if text.startswith(TOKEN_PREFIX) else None
    return match is not None and untrusted in (None, match[1] == "u")


def is_part_of_token(data: bytes, *, is_first: bool) -> bool:
    """Return whether a piece of a text can be part of a token: the first has its prefix, all use only its alphabet."""
    return (not is_first or data.startswith(TOKEN_PREFIX.encode())) and TOKEN_PIECE.fullmatch(data) is not None


def load_key_encryption_keys(*, text: str, file: Path | None, previous: str) -> KeyEncryptionKeys | None:
    """Return the keys of the settings; None when content is not encrypted. Blocking. Raises Permanent."""
    if file is not None:
        text = _read_key_file(file)
    if not text.strip():
        if previous.strip():
            raise Permanent(
                "LOOMLOG_ENCRYPTION_KEY_PREVIOUS is set without LOOMLOG_ENCRYPTION_KEY: set the key that follows it",
                kind="invalid",
            )
        return None
    current = parse_key(text, f"the file {file}" if file is not None else "LOOMLOG_ENCRYPTION_KEY")
    keys = [current]
    if previous.strip():
        keys.append(parse_key(previous, "LOOMLOG_ENCRYPTION_KEY_PREVIOUS"))
    return KeyEncryptionKeys(
        current=key_encryption_key_id(current), keys={key_encryption_key_id(key): key for key in keys}
    )


def key_encryption_key_id(key: bytes) -> str:
    """Return the id of a key-encryption key; it reveals nothing about the key."""
    return sha256(b"lenc1 key-encryption key\0" + key).hexdigest()[:16]


def parse_key(text: str, source: str) -> bytes:
    """Return the 32 bytes of a base64 key; `source` names its origin in the message. Raises Permanent."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise Permanent(
            f"{source} holds no key: expected the base64 of {KEY_BYTES} random bytes, such as `openssl rand "
            "-base64 32` "
            "prints",
            kind="invalid",
        )
    return key


def _read_key_file(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise Permanent(f"{file} is larger than {MAX_FILE_BYTES} bytes; that is no key", kind="invalid")
        return file.read_text()
    except UnicodeDecodeError:
        # Not chained: the error contains what was read.
        raise Permanent(f"{file} is not a text file; expected base64", kind="invalid") from None
    except OSError as error:
        raise Permanent(f"the key file {file} cannot be read: {error.strerror}", kind="invalid") from error


def _wrapping_associated_data(key: DataKey) -> bytes:
    return "\0".join(("lenc1 data key", key.tenant, key.subject, key.key_id)).encode()
