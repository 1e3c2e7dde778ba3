"""Pages on their way into the log and back: packed, as base64 text, encrypted, and in blobs when they are large.

    pages    one part of at most INLINE_BYTES: a text of the event, which the kit encrypts
    blobs    otherwise: a blob for each part, encrypted here

Before: operations.py has a change. After: connectors/sqlite/pages.py; the blob store.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import Blobs
from loomlog.connectors.sqlite.pages import base64_bytes
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.database.limits import INLINE_BYTES
from loomlog.services.families.operation import Decrypt, Encrypt, plain_text, plaintext
from loomlog.services.stream.encryption.subject_keys import ERASED


class StoredPages(Value, frozen=True):
    """Packed pages as fields of a command."""

    pages: str = ""
    blobs: tuple[BlobRef, ...] = ()
    packed_bytes: int = 0


class PageStore:
    """See the module. All methods raise Unavailable when the blob store or a key does not answer."""

    def __init__(self, blobs: Blobs, *, decrypt: Decrypt = plaintext, encrypt: Encrypt = plain_text) -> None:
        self._blobs = blobs
        self._decrypt = decrypt
        self._encrypt = encrypt

    async def store(self, parts: Sequence[str], tenant: str, subject: str) -> StoredPages:
        """Return the fields for a change of these parts, as base64; its blobs are durable then."""
        packed_bytes = sum(map(base64_bytes, parts))
        if len(parts) == 1 and packed_bytes <= INLINE_BYTES:
            return StoredPages(pages=parts[0], packed_bytes=packed_bytes)
        try:
            blobs = [await self._blobs.put((await self._encrypt(part, tenant, subject)).encode()) for part in parts]
        except ConnectorError as error:
            raise Unavailable(f"the pages of the database cannot be stored: {error}") from error
        return StoredPages(blobs=tuple(blobs), packed_bytes=packed_bytes)

    async def load(self, document: Mapping[str, Any], tenant: str) -> tuple[str, ...]:
        """Return the parts of the change of a row, as base64. Raises Refused when the content was erased."""
        texts = [document["pages"]] if document["pages"] else []
        try:
            for blob in document["blobs"]:
                texts.append((await self._blobs.get(BlobRef(**blob))).decode())
            plain = tuple([await self._decrypt(text, tenant) for text in texts])
        except ConnectorError as error:
            raise Unavailable(f"the pages of the database cannot be read: {error}") from error
        if ERASED in plain:
            raise Refused(
                "sqlmem_unavailable", "the content of this database was erased with its user; an operator can drop it"
            )
        return plain
