"""Pages on their way into the log and back: packed, as base64 text, encrypted, and in blobs when they are large.

    pages    one part of at most INLINE_BYTES: a text of the event, which the kit encrypts
    blobs    otherwise: a blob for each part, encrypted here

Before: operations.py has a change. After: connectors/sqlite/pages.py; the blob store.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.sqlite.errors import FileFailed
from loomlog.connectors.sqlite.pages import PageChange, unpack
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value
from loomlog.services.families.database.limits import INLINE_BYTES
from loomlog.services.families.operation import OperationRefused, OperationUnavailable, plain_text, plaintext
from loomlog.services.stream.encryption.subject_keys import ERASED

Decrypt = Callable[[Any, str], Awaitable[Any]]
"""Returns JSON of a tenant in plaintext. Raises ConnectorError."""
Encrypt = Callable[[str, str, str], Awaitable[str]]
"""Encrypts a text for a subject of a tenant; takes text, tenant and subject. Raises ConnectorError."""


class StoredPages(Value, frozen=True):
    """Packed pages as fields of a command."""

    pages: str = ""
    blobs: tuple[BlobRef, ...] = ()
    packed_bytes: int = 0


class PageStore:
    """See the module. All methods raise OperationUnavailable when the blob store or a key does not answer."""

    def __init__(self, blobs: Blobs, *, decrypt: Decrypt = plaintext, encrypt: Encrypt = plain_text) -> None:
        self._blobs = blobs
        self._decrypt = decrypt
        self._encrypt = encrypt

    async def store(self, parts: Sequence[bytes], tenant: str, subject: str) -> StoredPages:
        """Return the fields for a change of these parts; its blobs are durable then."""
        packed_bytes = sum(map(len, parts))
        if len(parts) == 1 and packed_bytes <= INLINE_BYTES:
            return StoredPages(pages=_as_text(parts[0]), packed_bytes=packed_bytes)
        try:
            blobs = [
                await self._blobs.put((await self._encrypt(_as_text(part), tenant, subject)).encode()) for part in parts
            ]
        except ConnectorError as error:
            raise OperationUnavailable(f"the pages of the database cannot be stored: {error}") from error
        return StoredPages(blobs=tuple(blobs), packed_bytes=packed_bytes)

    async def load(self, document: Mapping[str, Any], tenant: str) -> Callable[[], PageChange]:
        """Return what unpacks the change of a row, for a thread; it raises FileFailed.

        Raises OperationRefused when the content was erased.
        """
        texts = [document["pages"]] if document["pages"] else []
        try:
            for blob in document["blobs"]:
                texts.append((await self._blobs.get(BlobRef(**blob))).decode())
            plain = [await self._decrypt(text, tenant) for text in texts]
        except ConnectorError as error:
            raise OperationUnavailable(f"the pages of the database cannot be read: {error}") from error
        if ERASED in plain:
            raise OperationRefused(
                "sqlmem_unavailable", "the content of this database was erased with its user; an operator can drop it"
            )
        return lambda: unpack(_as_bytes(plain))


def _as_text(part: bytes) -> str:
    return base64.b64encode(part).decode()


def _as_bytes(texts: Iterable[str]) -> list[bytes]:
    try:
        return [base64.b64decode(text, validate=True) for text in texts]
    except (binascii.Error, ValueError) as error:
        raise FileFailed(f"the pages of a change are no base64: {error}") from error
