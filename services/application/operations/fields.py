"""Fields and tags of operations of several areas.

Before: the declarations of each area. After: services/core/operation_input.py reads them.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.core.operations import Http, Tag

PROCESS_TAG = Tag(name="Operations", description="Health, metrics, routing and availability of models.")
CURSOR_CHARACTERS_MAX = 1_024
QUERY_CHARACTERS_MAX = 256
"""Longest parameter of a query that has no bound of its own."""
RunId = Annotated[str, Meta(description="Id of the run.")]
SessionId = Annotated[str, Meta(description="Id of the session.")]
Cursor = Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX, description="`next` of an earlier answer.")]
Limit = Annotated[int, Meta(ge=1, le=limits.LIST_MAX, description="Most entries of one answer.")]
TenantFilter = Annotated[str, Meta(max_length=QUERY_CHARACTERS_MAX, description="Administrators: only this tenant.")]
EndUser = Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX, description="End user.")]
Status = Annotated[
    str,
    Meta(
        max_length=QUERY_CHARACTERS_MAX,
        description="running, completed, failed, cancelled with commas between, or all.",
    ),
]
Reason = Annotated[
    Annotated[str, Meta(max_length=limits.REASON_CHARACTERS_MAX)] | None, Meta(description="Shown with the run.")
]
EXAMPLE_OF_REASON = {"reason": "maintenance"}
http = partial(Http, takes_tenant=False)
"""A route whose requests are about the caller's tenant, or about the installation."""
