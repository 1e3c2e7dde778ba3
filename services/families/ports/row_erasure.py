"""What is deleted of a subject's runs when the subject is erased: rows of the read models, and blobs in plaintext.

Before: services/application/admin/erasure.py. After: services/families/erasure/row_erasure.py.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from loomlog.projections.erasures import ErasureRow
from loomlog.schemas.generated.values import BlobRef


class ErasedRows(Struct, frozen=True, kw_only=True):
    """What was deleted."""

    position: str = ""
    at_ms: int = 0
    are_deleted: bool = False
    blobs_deleted: int = 0
    errors: tuple[str, ...] = ()


class RowErasure(Protocol):
    """Deletes the rows of runs for good, also of read models that are built later."""

    async def erase(
        self,
        tenant: str,
        subject: str,
        run_ids: Sequence[str],
        clear_blobs: Mapping[str, BlobRef],
        *,
        in_clear: bool,
        erasure_id: str,
        by: str,
        reason: str,
    ) -> ErasedRows:
        """Delete the rows of these runs, and blobs; what fails is in `errors`."""
        ...

    async def erasures_of(self, tenant: str, subject: str) -> tuple[ErasureRow, ...]:
        """Return the erasures of a subject whose rows are deleted. Raises Unavailable."""
        ...
