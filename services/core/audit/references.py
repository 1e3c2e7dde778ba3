"""References to blobs: extracted from any event whose schema can contain one.

Before: history.py passes the events. After: the verifier fetches the blobs and compares.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

from loomlog.schemas.codec import FRAME_BYTES, Codec
from loomlog.schemas.generated.values import BlobRef, Envelope
from loomlog.schemas.records import Record
from loomlog.services.core.audit.hashes import HashedRecord


class Reference(NamedTuple):
    """A blob and the event that names it."""

    blob: BlobRef
    offset: int
    run_id: str
    seq: int


class References:
    """Collects references; `take` returns them."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._ids = codec.schema_ids_of(codec.names_containing("loom.values.BlobRef"))
        self._found: list[Reference] = []

    def may_be_in(self, schema_id: int) -> bool:
        return schema_id in self._ids

    def collect(self, hashed: HashedRecord, offset: int, envelope: Envelope) -> None:
        """Decode the whole event and collect its references. Raises Undecodable."""
        value = hashed.record.value or b""
        record = self._codec.decode(value).record
        if int.from_bytes(value[1:FRAME_BYTES], "big") in self._ids:
            self._found += (Reference(blob, offset, envelope.aggregate, envelope.seq) for blob in _blobs(record))

    def take(self) -> list[Reference]:
        """Return the references collected since the last call."""
        references, self._found = self._found, []
        return references


def _blobs(value: Any) -> Iterator[BlobRef]:
    if isinstance(value, BlobRef):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _blobs(part)
    elif value is not None:
        kind: Any = type(value)  # mypy takes type[Any] for unhashable
        for name in _paths_to_blobs(kind):
            yield from _blobs(getattr(value, name))


@cache
def _paths_to_blobs(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a record that can contain a reference: checking all fields took a fifth of verification
    time.
    """
    return tuple(name for name, hint in get_type_hints(kind).items() if _leads_to_blob(hint))


def _leads_to_blob(hint: Any) -> bool:
    if parts := get_args(hint):
        return any(map(_leads_to_blob, parts))
    kind: Any = hint  # for mypy, as above
    return hint is BlobRef or (isinstance(hint, type) and issubclass(hint, Record) and bool(_paths_to_blobs(kind)))
