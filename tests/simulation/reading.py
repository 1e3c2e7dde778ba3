"""What was read once is not read again: a dozen readers in one process decode the same bytes of the same records.

A record lies in the simulated log once, and everybody gets those very bytes. What the codec makes of them is a value
that nobody changes, so the second reader may have the first one's. That the codec reads what it wrote is proved
elsewhere (tests/schemas); the checker decodes every record with a reader of its own (tests/chaos/wire.py).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from loomlog.schemas import codec, reader
from loomlog.services.stream.partition import fold

MOST_REMEMBERED = 20_000
"""Records of some hundred seeds; then it begins anew."""


@contextmanager
def read_once() -> Iterator[None]:
    """While it lasts, the same bytes are decoded, peeked at and asked for their envelope once."""
    quickly = codec.Codec.decode_fast
    decoded: dict[tuple[int, bytes], Any] = {}

    def quickly_once(self: codec.Codec, value: bytes) -> Any:
        key = (id(self), value)
        result = decoded.get(key)
        if result is None:
            result = quickly(self, value)
            if len(decoded) > MOST_REMEMBERED:
                decoded.clear()
            decoded[key] = result
        return result

    with (
        patch.object(codec.Codec, "decode_fast", quickly_once),
        patch.object(reader, "peek", _once(codec.peek)),
        patch.object(fold, "read_envelope", _once(codec.read_envelope)),
    ):
        yield


def _once(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """The same for what needs nothing but the bytes. What cannot be read is read again, and raises again."""
    known: dict[bytes, Any] = {}

    def once(value: bytes) -> Any:
        result = known.get(value)
        if result is None:
            result = read(value)
            if len(known) > MOST_REMEMBERED:
                known.clear()
            known[value] = result
        return result

    return once
