"""The operations on the read models: their lag, what they lack, and active runs. Pure.

Before: services/application/operations/__init__.py. After: projection_handlers.py carries them out.
"""

from typing import Annotated

from msgspec import Meta

from loomlog.projections.engine.lag import ProjectionLag
from loomlog.services.application.answers.operators import Concurrency
from loomlog.services.application.log.json_types import ProjectionProblemReport
from loomlog.services.application.log.projection_problems import PROBLEMS_DEFAULT, PROBLEMS_MAX
from loomlog.services.application.operations.fields import PROCESS_TAG
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import AnyOperation, Effect, Http, Input, NoInput, Operation

UNAVAILABLE = "projection_unavailable"


class ProjectionListProblems(Input, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=PROBLEMS_MAX, description="Most entries of one answer.")] = PROBLEMS_DEFAULT


GET_LAG = Operation(
    name="projection.get_lag",
    summary="Get the lag of the read models: cursors, ends of the log, projectors, unprojected records.",
    input=NoInput,
    output=ProjectionLag,
    access=requires(ADMIN),
    effect=Effect.READ,
    tag=PROCESS_TAG,
    unavailable_code=UNAVAILABLE,
    http=(Http(route="GET /v1/_projections", id="get_projections", takes_tenant=False),),
)
LIST_PROBLEMS = Operation(
    name="projection.list_problems",
    summary="List the records that could not be projected, and the aggregates that are quarantined.",
    input=ProjectionListProblems,
    output=ProjectionProblemReport,
    access=requires(ADMIN),
    effect=Effect.READ,
    tag=PROCESS_TAG,
    unavailable_code=UNAVAILABLE,
    http=(Http(route="GET /v1/_projections/problems", id="list_projection_problems", takes_tenant=False),),
)
COUNT_ACTIVE = Operation(
    name="run.count_active",
    summary="Count active runs, by user and provider.",
    input=NoInput,
    output=Concurrency,
    access=requires(ADMIN),
    effect=Effect.READ,
    tag=PROCESS_TAG,
    unavailable_code=UNAVAILABLE,
    http=(Http(route="GET /v1/_concurrency/stats", id="get_concurrency", takes_tenant=False),),
)
PROJECTION_OPERATIONS: tuple[AnyOperation, ...] = (GET_LAG, LIST_PROBLEMS, COUNT_ACTIVE)
