"""The operations between definitions and runs: the runs of a version, and blame. Pure.

Before: __init__.py. After: definition_run_handlers.py carries them out.
"""

from functools import partial

from typing_extensions import TypedDict

from loomlog.services.application import limits
from loomlog.services.application.operations.fields import Cursor, Limit, RunId, Status, TenantFilter, http
from loomlog.services.application.queries.json_types import Run
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.definitions import TAG, VERSION_PATH, DefinitionId
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation
from loomlog.services.families.ports.run_blame import Blame


class DefinitionRuns(TypedDict):
    """A page of the runs of a version."""

    runs: list[Run]
    next: str | None


class RunsOfVersion(Input, frozen=True, kw_only=True):
    """A page of the runs of a version."""

    def_id: DefinitionId
    status: Status = "all"
    limit: Limit = limits.LIST_DEFAULT
    cursor: Cursor = ""
    tenant: TenantFilter = ""


class BlamedRun(Input, frozen=True, kw_only=True):
    """The run that is asked about."""

    run_id: RunId


_read = partial(Operation, effect=Effect.READ, tag=TAG, unavailable_code="projection_unavailable")
LIST = _read(
    name="definition.list_runs",
    summary="List the runs that are pinned to a version of an agent, newest first.",
    input=RunsOfVersion,
    output=DefinitionRuns,
    access=requires(TENANT),
    http=(http(route=f"GET {VERSION_PATH}/runs", id="list_definition_runs"),),
)
BLAME = _read(
    name="run.blame",
    summary="Say which definition a run was pinned to, who made it and why, and who made it active and why.",
    input=BlamedRun,
    output=Blame,
    access=own_data(RUNS_READ),
    http=(http(route="GET /v1/runs/{run_id}/blame", id="get_blame"),),
)
DEFINITION_RUN_OPERATIONS: tuple[AnyOperation, ...] = (LIST, BLAME)
