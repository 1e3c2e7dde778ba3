"""The operations on aggregates that are quarantined. Pure.

Before: services/application/operations/__init__.py. After: aggregate_handlers.py carries them out.
"""

from typing import Annotated, Any

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.policies import AggregateRepaired, FoldedAggregate
from loomlog.services.application.operations.fields import Reason, http
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation, Tag

TAG = Tag(name="Repair", description="Aggregates that are quarantined.")
BODY_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of a request: a state has at most STATE_BYTES_MAX, and twice as many when it is indented."""
Name = Annotated[str, Meta(max_length=2 * limits.NAME_BYTES_MAX, description="Its full id: <family>:<tenant>/<name>.")]


class LoggedAggregateNamed(Input, frozen=True, kw_only=True):
    aggregate: Name = ""


class AggregateRepair(Input, frozen=True, kw_only=True):
    aggregate: Name
    state: Annotated[
        dict[str, Any] | None,
        Meta(description="The state, in the form of GET /v1/_repair; the last one that could be folded if absent."),
    ] = None
    reason: Annotated[Reason, Meta(description="Kept in the event.")] = None


SHOW = Operation(
    name="aggregate.show",
    summary="Show an aggregate as far as it can be folded, and why it is quarantined.",
    input=LoggedAggregateNamed,
    output=FoldedAggregate,
    access=requires(ADMIN),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="projection_unavailable",
    http=(http(route="GET /v1/_repair", id="show_aggregate", refusal_statuses=(404,)),),
)
REPAIR = Operation(
    name="aggregate.repair",
    summary="Restate an aggregate, which ends its quarantine.",
    input=AggregateRepair,
    output=AggregateRepaired,
    access=requires(ADMIN),
    effect=Effect.WRITE,
    tag=TAG,
    unavailable_code="log_unavailable",
    http=(
        http(
            route="POST /v1/_repair",
            id="repair_aggregate",
            body_bytes_max=BODY_BYTES_MAX,
            body_name="RepairBody",
            example={"aggregate": "budget:/installation", "reason": "an event was damaged"},
        ),
    ),
)
AGGREGATE_OPERATIONS: tuple[AnyOperation, ...] = (SHOW, REPAIR)
