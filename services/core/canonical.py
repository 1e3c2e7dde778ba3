"""Canonical encoding of states, the same bytes for the same state: for snapshots and for state hashes.

A state is a tree of Values (schemas/records.py), tuples and plain values. It is written as JSON with the class name in
each object, fields in the order of the class, keys of mappings sorted, bytes in base64. Decoding follows the type hints
of the root, so it creates only types reachable from there. A float that is not finite is written as null and read as
None (decision 30). Not chosen: pickle (runs code from a topic), Avro (a second description of each state), msgpack (a
number above 64 bits raises).
"""

from hashlib import sha256
from typing import Any

from msgspec import DecodeError
from msgspec.json import Decoder, Encoder

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding, for bytes that are not JSON and for JSON that is not a state."""


class UnreadableState(Exception):
    """The bytes are not a state of these classes."""


class StateCodec:
    """Encodes and decodes states of the type `root`: a class of Values, or a union of them."""

    def __init__(self, root: Any) -> None:
        self._encoder = Encoder(order="deterministic")
        self._decoder: Decoder[Any] = Decoder(root)

    def encode(self, state: Any) -> bytes:
        """Encode a state as canonical bytes."""
        return self._encoder.encode(state)

    def decode(self, data: bytes) -> Any:
        """Decode a state. Raises UnreadableState."""
        try:
            return self._decoder.decode(data)
        except UNREADABLE as error:
            raise UnreadableState(f"{type(error).__name__}: {error}") from error

    def digest(self, state: Any) -> str:
        """Return the hex SHA-256 of the canonical bytes: two states are equal when their digests are."""
        return sha256(self.encode(state)).hexdigest()
