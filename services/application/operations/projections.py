"""The operations on the read models: their lag, what they lack, and active runs. Pure.

Before: services/application/operations/__init__.py. After: projection_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.projections.engine.lag import ProjectionLag
from loomlog.services.application.answers.operators import Concurrency
from loomlog.services.application.log.json_types import ProjectionProblemReport
from loomlog.services.application.log.projection_problems import PROBLEMS_DEFAULT, PROBLEMS_MAX
from loomlog.services.application.operations.fields import PROCESS_TAG, http
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import AnyOperation, Effect, Input, NoInput, Operation

UNAVAILABLE = "projection_unavailable"


class ProjectionListProblems(Input, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=PROBLEMS_MAX, description="Most entries of one answer.")] = PROBLEMS_DEFAULT


_read = partial(Operation, effect=Effect.READ, tag=PROCESS_TAG, access=requires(ADMIN), unavailable_code=UNAVAILABLE)
GET_LAG = _read(
    name="projection.get_lag",
    summary="Get the lag of the read models: cursors, ends of the log, projectors, unprojected records.",
    input=NoInput,
    output=ProjectionLag,
    http=(http(route="GET /v1/_projections", id="get_projections"),),
)
LIST_PROBLEMS = _read(
    name="projection.list_problems",
    summary="List the records that could not be projected, and the aggregates that are quarantined.",
    input=ProjectionListProblems,
    output=ProjectionProblemReport,
    http=(http(route="GET /v1/_projections/problems", id="list_projection_problems"),),
)
COUNT_ACTIVE = _read(
    name="run.count_active",
    summary="Count active runs, by user and provider.",
    input=NoInput,
    output=Concurrency,
    http=(http(route="GET /v1/_concurrency/stats", id="get_concurrency"),),
)
PROJECTION_OPERATIONS: tuple[AnyOperation, ...] = (GET_LAG, LIST_PROBLEMS, COUNT_ACTIVE)
