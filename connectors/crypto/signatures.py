"""Ed25519 keys from files and settings: the one place that knows the format of keys.

A private key is PEM (PKCS 8, without a password) or the base64 of its 32 raw bytes. A file of public keys holds any
number of PEM blocks and lines with the base64 of 32 raw bytes; the rest of a line after `#` is a comment. Several keys
in it allow rotation: the old ones stay, so that what they signed can still be verified.

A key is named by the first 16 hex digits of the SHA-256 of its raw public half. Messages never hold key material.

Not chosen: signing through a key service. It would fit behind `SigningKey.sign` when it is needed.

Before: settings. After: services/auditor signs, services/cli verifies.
"""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent

KEY_BYTES = 32
KEY_ID_CHARACTERS = 16
MAX_FILE_BYTES = 1_000_000
"""Bytes of a file of public keys; it is some lines, so a larger one was not meant."""
PEM_BLOCK = re.compile(r"-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Public key; verifies signatures."""

    key: Ed25519PublicKey = field(repr=False)

    @property
    def raw(self) -> bytes:
        return self.key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    @property
    def key_id(self) -> str:
        return sha256(self.raw).hexdigest()[:KEY_ID_CHARACTERS]

    @property
    def text(self) -> str:
        """Line of the key in a file of public keys."""
        return f"{base64.b64encode(self.raw).decode()}  # {self.key_id}"

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether the signature is of this message by this key; about 0.1 ms."""
        try:
            self.key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Private key; signs messages. Never shown."""

    key: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key())

    @property
    def key_id(self) -> str:
        return self.public.key_id

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self.key.sign(message)


def generate_key() -> SigningKey:
    return SigningKey(Ed25519PrivateKey.generate())


def derived_signing_key(secret: SecretKey, purpose: str) -> SigningKey:
    """Return the key that signs for a purpose of the installation: the same in each process that has its secret key."""
    return SigningKey(Ed25519PrivateKey.from_private_bytes(secret.derive_keys(purpose)[0]))


def load_signing_key(*, file: Path | None, text: str) -> SigningKey | None:
    """Return the private key of the settings; None when there is none. Blocking. Raises Permanent."""
    if file is not None:
        return parse_signing_key(_read_key_file(file), f"the file {file}")
    return parse_signing_key(text, "LOOMLOG_AUDIT_KEY") if text else None


def parse_signing_key(text: str, source: str) -> SigningKey:
    """Return the private key in a text. Raises Permanent, which names the source but not the content."""
    try:
        if "-----BEGIN" in text:
            # An environment variable may hold the lines of a PEM with \n written out.
            private_key = serialization.load_pem_private_key(text.replace("\\n", "\n").encode(), password=None)
        else:
            raw = base64.b64decode(text.strip(), validate=True)
            private_key = Ed25519PrivateKey.from_private_bytes(raw)
    except (ValueError, TypeError, binascii.Error, UnsupportedAlgorithm):
        private_key = None
    if not isinstance(private_key, Ed25519PrivateKey):
        raise Permanent(
            f"{source} holds no Ed25519 private key: expected PEM without a password, or base64 of 32 bytes; "
            "`loomlog audit keygen FILE` makes one",
            kind="invalid",
        )
    return SigningKey(private_key)


def load_public_keys(file: Path | None) -> dict[str, PublicKey]:
    """Return the keys of a file by their ids; none without a file. Blocking. Raises Permanent."""
    return {} if file is None else parse_public_keys(_read_key_file(file), f"the file {file}")


def parse_public_keys(text: str, source: str) -> dict[str, PublicKey]:
    """Return every public key in a text, by id. Raises Permanent, naming the line."""
    public_keys = [_parse_public_pem(block, source) for block in PEM_BLOCK.findall(text)]
    rest = PEM_BLOCK.sub(lambda block: "\n" * block.group().count("\n"), text)
    for number, line in enumerate(rest.splitlines(), start=1):
        written = line.partition("#")[0].strip()
        if not written:
            continue
        try:
            public_keys.append(PublicKey(Ed25519PublicKey.from_public_bytes(base64.b64decode(written, validate=True))))
        except (ValueError, binascii.Error) as error:
            raise Permanent(
                f"{source}, line {number}: expected the base64 of an Ed25519 public key, 32 bytes", kind="invalid"
            ) from error
    if not public_keys:
        raise Permanent(f"{source} holds no public key", kind="invalid")
    return {key.key_id: key for key in public_keys}


def write_new_key(file: Path) -> tuple[SigningKey, Path]:
    """Write a new key to a new file only its owner can read, and its public half to FILE.pub. Raises Permanent."""
    key = generate_key()
    pem = key.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public_file = file.with_name(f"{file.name}.pub")
    try:
        _create_file(file, pem, 0o600)
        _create_file(public_file, f"{key.public.text}\n".encode(), 0o644)
    except FileExistsError as error:
        raise Permanent(f"{error.filename} is there already; a key is never written over", kind="invalid") from error
    except OSError as error:
        raise Permanent(f"the key cannot be written to {file}: {error.strerror}", kind="forbidden") from error
    return key, public_file


def verification_keys(keys: Mapping[str, PublicKey], own: SigningKey | None) -> dict[str, PublicKey]:
    """Return the listed keys and the public half of the own one, which needs no listing."""
    return dict(keys) if own is None else {own.key_id: own.public, **keys}


def _parse_public_pem(block: str, source: str) -> PublicKey:
    try:
        public_key = serialization.load_pem_public_key(block.encode())
    except (ValueError, UnsupportedAlgorithm):
        public_key = None
    if not isinstance(public_key, Ed25519PublicKey):
        raise Permanent(f"{source}: a PEM block is no Ed25519 public key", kind="invalid")
    return PublicKey(public_key)


def _read_key_file(file: Path) -> str:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise Permanent(f"{file} is larger than {MAX_FILE_BYTES} bytes; that is no file of keys", kind="invalid")
        return file.read_text()
    except UnicodeDecodeError:
        # Not chained: the error contains what was read.
        raise Permanent(f"{file} is not a text file; expected PEM or base64", kind="invalid") from None
    except OSError as error:
        raise Permanent(f"the key file {file} cannot be read: {error.strerror}", kind="invalid") from error


def _create_file(file: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
