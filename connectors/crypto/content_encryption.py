"""User content as opaque tokens: AES-256-GCM, one data key for each subject, wrapped by a key-encryption key.

A token is ordinary text, so it goes wherever the content would have gone (log, rows, snapshots, blobs, files) and may
stand in the middle of a longer text:

    lenc1.<key id>.<base64url of nonce, ciphertext and tag>
    lenc1u.<...>                        the same for untrusted text: it is escaped when a model is shown it, because
                                        nobody could escape it before (services/core/run/conversation/prompt.py,
                                        `fence`)

The nonce is 96 random bits; a key is good for some 2^32 tokens, more than a subject says in its life. The associated
data are the form, tenant, subject and key id, so that a token cannot be passed off as another subject's or as trusted.
Whoever destroys the data key makes every copy of its tokens unreadable at once, also those in backups.

A key-encryption key is the base64 of 32 bytes, in the environment or in a file. It is named by the first 16 hex digits
of a SHA-256, so that a wrong one is seen before anything is decrypted. Messages never hold key material.

Not chosen: a deterministic cipher (equal texts would be seen to be equal), encrypting whole records (readers peek at
envelopes, and the fold needs the shape), a key service (it would fit behind `wrap` and `unwrap` when one is needed).

Before: settings; services/stream/encryption/subject_keys.py keeps the data keys. After: whoever holds only tokens.
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
"""What every token begins with; a text without it holds none."""
TOKEN = re.compile(r"lenc1(u?)\.([0-9a-f]{20})\.([A-Za-z0-9_-]{38,})")
TOKEN_PIECE = re.compile(rb"[A-Za-z0-9_.-]*")
KEY_BYTES = 32
KEY_ID_BYTES = 10
NONCE_BYTES = 12
MAX_FILE_BYTES = 10_000
"""A file with a key is one line; a larger one is not what was meant."""

RandomBytes = Callable[[int], bytes]
"""So many bytes nobody can guess: os.urandom."""


class ContentDecryptionError(Exception):
    """The token or the wrapped key is not what this key made: altered, cut, or made by another key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataKey:
    """The key of one subject. `subject` is empty for the tenant's own key."""

    key_id: str
    tenant: str
    subject: str
    secret: bytes = field(repr=False)

    def encrypt(self, text: str, random: RandomBytes, *, untrusted: bool = False) -> str:
        """The text as a token; about 4/3 of its UTF-8 length and 78 characters more."""
        form = "u" if untrusted else ""
        nonce = random(NONCE_BYTES)
        sealed = nonce + AESGCM(self.secret).encrypt(nonce, text.encode(), self._associated_data(form))
        return f"{TOKEN_PREFIX}{form}.{self.key_id}.{base64.urlsafe_b64encode(sealed).rstrip(b'=').decode()}"

    def decrypt(self, token: str) -> str:
        """The text of a token. Raises Unsealable."""
        found = TOKEN.fullmatch(token)
        if found is None or found[2] != self.key_id:
            raise ContentDecryptionError("not a token of this key")
        try:
            sealed = base64.urlsafe_b64decode(found[3] + "=" * (-len(found[3]) % 4))
            text = AESGCM(self.secret).decrypt(
                sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], self._associated_data(found[1])
            )
            return text.decode()
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise ContentDecryptionError("the token was altered or cut") from error

    def digest(self, digest: str) -> str:
        """A digest that nobody without the key can compare with a guess; hex, 64 characters."""
        return hmac.new(self.secret, b"lenc1 digest\0" + digest.encode(), sha256).hexdigest()

    def _associated_data(self, form: str) -> bytes:
        return "\0".join((TOKEN_PREFIX, form, self.tenant, self.subject, self.key_id)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEncryptionKeys:
    """Wraps data keys under `current`; unwraps under any of `keys`, by id."""

    current: str
    keys: Mapping[str, bytes] = field(repr=False)

    def wrap(self, key: DataKey, random: RandomBytes) -> bytes:
        """The data key under the current key-encryption key."""
        nonce = random(NONCE_BYTES)
        return nonce + AESGCM(self.keys[self.current]).encrypt(nonce, key.secret, _wrapping_associated_data(key))

    def unwrap(self, wrapped: bytes, *, wrapped_by: str, key_id: str, tenant: str, subject: str) -> DataKey:
        """Raises Unsealable."""
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
    """Whether anything in the text has to be opened."""
    return TOKEN_PREFIX in text and TOKEN.search(text) is not None


def key_ids_in(text: str) -> set[str]:
    """The ids of the keys of all tokens in a text."""
    return {found[2] for found in TOKEN.finditer(text)} if TOKEN_PREFIX in text else set()


def is_token(text: str, *, untrusted: bool | None = None) -> bool:
    """Whether the text is one token, and of that form; None = of whichever."""
    found = TOKEN.fullmatch(text) if text.startswith(TOKEN_PREFIX) else None
    return found is not None and untrusted in (None, found[1] == "u")


def is_part_of_token(data: bytes, *, is_first: bool) -> bool:
    """Whether a piece of a long text can be one of a token: the first has its mark, and all its letters only."""
    return (not is_first or data.startswith(TOKEN_PREFIX.encode())) and TOKEN_PIECE.fullmatch(data) is not None


def load_key_encryption_keys(*, text: str, file: Path | None, previous: str) -> KeyEncryptionKeys | None:
    """The keys of the settings; None when content is not encrypted. Blocking. Raises Permanent."""
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
    given = [current]
    if previous.strip():
        given.append(parse_key(previous, "LOOMLOG_ENCRYPTION_KEY_PREVIOUS"))
    return KeyEncryptionKeys(
        current=key_encryption_key_id(current), keys={key_encryption_key_id(key): key for key in given}
    )


def key_encryption_key_id(key: bytes) -> str:
    """The name of a key-encryption key; says nothing about it."""
    return sha256(b"lenc1 key-encryption key\0" + key).hexdigest()[:16]


def parse_key(text: str, source: str) -> bytes:
    """The 32 bytes of a key in base64; `where` it was given, for the message. Raises Permanent."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise Permanent(
            f"{source} holds no key: expected the base64 of {KEY_BYTES} random bytes, such as `openssl rand "
            "-base64 32` "
            "gives",
            kind="invalid",
        )
    return key


def _read_key_file(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise Permanent(f"{file} is larger than {MAX_FILE_BYTES} bytes; that is no key", kind="invalid")
        return file.read_text()
    except UnicodeDecodeError:
        # Not chained: the error holds what was read.
        raise Permanent(f"{file} is no text; expected base64", kind="invalid") from None
    except OSError as error:
        raise Permanent(f"the key file {file} cannot be read: {error.strerror}", kind="invalid") from error


def _wrapping_associated_data(key: DataKey) -> bytes:
    return "\0".join(("lenc1 data key", key.tenant, key.subject, key.key_id)).encode()
