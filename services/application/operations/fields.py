"""Fields that operations of several areas take.

Before: the declarations of each area. After: services/core/operation_input.py reads them.
"""

from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.core.operations import PRINTABLE

CURSOR_CHARACTERS_MAX = 1_024
RunId = Annotated[str, Meta(description="Id of the run.")]
Cursor = Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX, description="`next` of an earlier answer.")]
Limit = Annotated[int, Meta(ge=1, le=limits.LIST_MAX, description="Most entries of one answer.")]
TenantFilter = Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX, description="Administrators: only this tenant.")]
EndUser = Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX, pattern=PRINTABLE, description="End user.")]
FreeReason = Annotated[str | None, Meta(description="Why; shown with the run.")]
Reason = Annotated[
    Annotated[str, Meta(max_length=limits.REASON_CHARACTERS_MAX)] | None, Meta(description="Why; shown with the run.")
]
