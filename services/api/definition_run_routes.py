"""The routes between definitions and runs: the runs of a version, and blame.

Before: routes.py. After: definition_run_endpoints.py.
"""

from loomlog.services.api import definition_run_endpoints as endpoints
from loomlog.services.api.operation_routes import TENANT
from loomlog.services.api.route import CURSOR_PARAMETER, LIMIT_PARAMETER, RUN_PATH, STATUS_PARAMETER, Route, Tag
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE
from loomlog.services.families.definition import api_fields
from loomlog.services.families.definition.query_api import VERSION_PATH

TAG = Tag(name=api_fields.TAG.name, description=api_fields.TAG.description)

DEFINITION_RUN_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=f"{VERSION_PATH}/runs",
        access=requires(TENANT_SCOPE),
        handler=endpoints.list_definition_runs,
        tag=TAG,
        summary="List the runs that are pinned to a version of an agent, newest first.",
        query=(STATUS_PARAMETER, LIMIT_PARAMETER, CURSOR_PARAMETER, TENANT),
    ),
    Route(
        method="GET",
        path=f"{RUN_PATH}/blame",
        access=own_data(RUNS_READ),
        handler=endpoints.get_blame,
        tag=TAG,
        summary="Say which definition a run was pinned to, who made it and why, and who made it active and why.",
    ),
)
