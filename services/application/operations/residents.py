"""The operations on resident sub-agents. Pure.

Before: __init__.py. After: resident_handlers.py carries them out.
"""

from functools import partial

from loomlog.services.application import limits
from loomlog.services.application.answers.runs import ResidentClosed, ResidentList, ResidentTurnCancelled
from loomlog.services.application.operations.fields import (
    EXAMPLE_OF_REASON,
    Cursor,
    Limit,
    Reason,
    RunId,
    TenantFilter,
    http,
)
from loomlog.services.application.operations.runs import BATCHES
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation

BODY_BYTES_MAX = 64 * 1024
RESIDENTS = "/v1/_resident"


class ResidentListAll(Input, frozen=True, kw_only=True):
    """A page of live resident sub-agents."""

    tenant: TenantFilter = ""
    limit: Limit = limits.LIST_MAX
    cursor: Cursor = ""


class ResidentReason(Input, frozen=True, kw_only=True):
    """A resident sub-agent, and the reason of what is done with it."""

    run_id: RunId
    reason: Reason = None


LIST = Operation(
    name="resident.list",
    summary="List live resident sub-agents.",
    input=ResidentListAll,
    output=ResidentList,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    tag=BATCHES,
    unavailable_code="projection_unavailable",
    http=(http(route=f"GET {RESIDENTS}", id="list_residents"),),
)
_write = partial(
    Operation, effect=Effect.WRITE, tag=BATCHES, access=own_data(RUNS_CREATE), unavailable_code="log_unavailable"
)
CLOSE = _write(
    name="resident.close",
    summary="Close a resident sub-agent; idempotent.",
    input=ResidentReason,
    output=ResidentClosed,
    http=(
        http(
            route=f"POST {RESIDENTS}/{{run_id}}/close",
            id="close_resident",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
            body_bytes_max=BODY_BYTES_MAX,
        ),
    ),
)
CANCEL_TURN = _write(
    name="resident.cancel_turn",
    summary="Cancel the turn of a resident sub-agent; it stays live.",
    input=ResidentReason,
    output=ResidentTurnCancelled,
    http=(
        http(
            route=f"POST {RESIDENTS}/{{run_id}}/cancel",
            id="cancel_resident",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
            body_bytes_max=BODY_BYTES_MAX,
        ),
    ),
)
RESIDENT_OPERATIONS: tuple[AnyOperation, ...] = (LIST, CLOSE, CANCEL_TURN)
