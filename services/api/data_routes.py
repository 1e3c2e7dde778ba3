"""The routes for state files, erasure, and the OpenAPI document.

Before: routes.py. After: snapshot_endpoints.py, erasure_endpoints.py, document_endpoints.py.
"""

from loomlog.services.api import document_endpoints, erasure_endpoints, snapshot_endpoints
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import SNAPSHOT_PATH, SNAPSHOTS_PATH, QueryParameter, Route
from loomlog.services.application.answers.state_files import State, StateFileContent
from loomlog.services.application.operations import erasure, state_files, streams
from loomlog.services.core.access.rules import PUBLIC

DATA_ROUTES: tuple[Route, ...] = (
    Route(
        route=f"POST {SNAPSHOTS_PATH}/restore",
        access=state_files.RESTORE.access,
        handler=snapshot_endpoints.restore_snapshot_file,
        takes_file=True,
        takes_instead=Takes.WAIT,
        summary="Restore a state file; the body is the file, gzip or JSON. Idempotent.",
        query=(
            QueryParameter(name="dry_run", description="1: only check it and count what would be added."),
            QueryParameter(
                name="sealed", description="1: also restore live runs whose keys are missing; they end as cancelled."
            ),
            QueryParameter(
                name="in_clear",
                description="1: also restore plaintext content where content is encrypted; it stays readable.",
            ),
        ),
    ),
    Route(
        route=f"GET {SNAPSHOT_PATH}",
        access=streams.READ_STATE_FILE,
        handler=snapshot_endpoints.get_snapshot,
        response=StateFileContent,
        summary="Get a stored state file with its content.",
    ),
    Route(
        route=f"GET {SNAPSHOT_PATH}/export",
        access=streams.READ_STATE_FILE,
        handler=snapshot_endpoints.export_snapshot,
        response=State,
        summary="Download a stored state file.",
        query=(QueryParameter(name="format", description="gzip: the file as stored; otherwise JSON."),),
    ),
    Route(
        route="GET /v1/_erasure",
        access=erasure.REPORT.access,
        handler=erasure_endpoints.report_subject,
        summary="Report what an erasure of a subject covers; without a subject list those of the tenant.",
        query=(
            QueryParameter(name="tenant", description="The tenant of the subject; administrators name it."),
            QueryParameter(name="subject", description="A user_id, or (tenant) for runs that name no user."),
        ),
    ),
    Route(
        route="GET /v1/openapi.json",
        access=PUBLIC,
        handler=document_endpoints.get_openapi,
        summary="Get this document.",
    ),
    Route(
        route="GET /v1/openapi.yaml",
        access=PUBLIC,
        handler=document_endpoints.get_openapi_yaml,
        summary="Get this document as YAML.",
        media_type="application/yaml",
    ),
    Route(
        route="GET /v1/docs",
        access=PUBLIC,
        handler=document_endpoints.get_docs,
        summary="Get this page.",
        media_type="text/html",
    ),
)
