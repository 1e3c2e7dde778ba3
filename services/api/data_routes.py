"""The routes of the state as files, of erasure, and of the document of all routes.

Before: routes.py. After: snapshot_endpoints.py, erasure_endpoints.py, document_endpoints.py.
"""

from loomlog.services.api import document_endpoints, erasure_endpoints, snapshot_endpoints
from loomlog.services.api.request_models import ErasureBody, RestoreBody, SnapshotBody
from loomlog.services.api.route import SNAPSHOT_PATH, SNAPSHOTS_PATH, Access, QueryParameter, Route
from loomlog.services.core.access.scopes import ADMIN

DATA_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=SNAPSHOTS_PATH,
        access=ADMIN,
        handler=snapshot_endpoints.create_snapshot,
        summary="Write the state, or that of a tenant, to one file that another installation can take in.",
        response_schema="Snapshot",
        status=201,
        body=SnapshotBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=SNAPSHOTS_PATH,
        access=ADMIN,
        handler=snapshot_endpoints.list_snapshots,
        summary="The state files there are, newest first.",
        response_schema="SnapshotList",
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOTS_PATH}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot_file,
        summary="Take in a state file; the body is the file, gzip or JSON. The same file again adds nothing.",
        response_schema="Restored",
        query=(
            QueryParameter(name="dry_run", description="1: check it and say what would be added."),
            QueryParameter(
                name="sealed", description="1: also take in live runs whose keys are not here; they end as cancelled."
            ),
            QueryParameter(
                name="in_clear",
                description="1: also take in content in clear where it is encrypted; it stays readable.",
            ),
        ),
    ),
    Route(
        method="GET",
        path=SNAPSHOT_PATH,
        access=ADMIN,
        handler=snapshot_endpoints.get_snapshot,
        summary="A state file with all that is in it.",
        response_schema="Snapshot",
    ),
    Route(
        method="DELETE",
        path=SNAPSHOT_PATH,
        access=ADMIN,
        handler=snapshot_endpoints.remove_snapshot,
        summary="Delete a state file; also when there is none.",
        status=204,
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOT_PATH}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot,
        summary="Take in a state file that is kept here. What is here already is left as it is.",
        response_schema="Restored",
        body=RestoreBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=f"{SNAPSHOT_PATH}/export",
        access=ADMIN,
        handler=snapshot_endpoints.export_snapshot,
        summary="A state file as a download.",
        response_schema="State",
        query=(QueryParameter(name="format", description="gzip: the file as it is kept; else JSON."),),
    ),
    Route(
        method="GET",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.report,
        summary="What there is of a subject and what of it can be erased; without a subject those of the tenant.",
        query=(
            QueryParameter(name="tenant", description="Required: the tenant of the subject."),
            QueryParameter(name="subject", description="A user_id, or (tenant) for runs that name no user."),
        ),
    ),
    Route(
        method="POST",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.erase,
        summary="Make the content of a subject unreadable, with dry_run false and confirm; else only report it.",
        body=ErasureBody,
        query=(QueryParameter(name="tenant", description="Required: the tenant of the subject."),),
    ),
    Route(
        method="POST",
        path="/v1/_erasure/rewrap",
        access=ADMIN,
        handler=erasure_endpoints.rewrap_keys,
        summary="Wrap the keys of subjects under the current key-encryption key.",
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        access=Access.PUBLIC,
        handler=document_endpoints.openapi,
        summary="This document.",
    ),
    Route(
        method="GET",
        path="/v1/docs",
        access=Access.PUBLIC,
        handler=document_endpoints.docs,
        summary="This document for people.",
        response_schema="Text",
        media_type="text/html",
    ),
)
