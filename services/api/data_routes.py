"""The routes of the state as files, of erasure, and of the document of all routes.

Before: routes.py. After: snapshot_endpoints.py, erasure_endpoints.py, document_endpoints.py.
"""

from loomlog.services.api import document_endpoints, erasure_endpoints, snapshot_endpoints
from loomlog.services.api.request_models import ErasureBody, RestoreBody, SnapshotBody
from loomlog.services.api.route import SNAPSHOT, SNAPSHOTS, Access, QueryParameter, Route
from loomlog.services.core.access.scopes import ADMIN

KEEPING_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=SNAPSHOTS,
        access=ADMIN,
        handler=snapshot_endpoints.create_snapshot,
        says="Write the state, or that of a tenant, to one file that another installation can take in.",
        answer="Snapshot",
        status=201,
        body=SnapshotBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=SNAPSHOTS,
        access=ADMIN,
        handler=snapshot_endpoints.list_snapshots,
        says="The state files there are, newest first.",
        answer="SnapshotList",
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOTS}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot_file,
        says="Take in a state file; the body is the file, gzip or JSON. The same file again adds nothing.",
        answer="Restored",
        query=(
            QueryParameter(name="dry_run", says="1: check it and say what would be added."),
            QueryParameter(
                name="sealed", says="1: also take in live runs whose keys are not here; they end as cancelled."
            ),
            QueryParameter(
                name="in_clear", says="1: also take in content in clear where it is encrypted; it stays readable."
            ),
        ),
    ),
    Route(
        method="GET",
        path=SNAPSHOT,
        access=ADMIN,
        handler=snapshot_endpoints.get_snapshot,
        says="A state file with all that is in it.",
        answer="Snapshot",
    ),
    Route(
        method="DELETE",
        path=SNAPSHOT,
        access=ADMIN,
        handler=snapshot_endpoints.remove_snapshot,
        says="Delete a state file; also when there is none.",
        status=204,
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOT}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot,
        says="Take in a state file that is kept here. What is here already is left as it is.",
        answer="Restored",
        body=RestoreBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=f"{SNAPSHOT}/export",
        access=ADMIN,
        handler=snapshot_endpoints.export_snapshot,
        says="A state file as a download.",
        answer="State",
        query=(QueryParameter(name="format", says="gzip: the file as it is kept; else JSON."),),
    ),
    Route(
        method="GET",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.report,
        says="What there is of a subject and what of it can be erased; without a subject those of the tenant.",
        query=(
            QueryParameter(name="tenant", says="Required: the tenant of the subject."),
            QueryParameter(name="subject", says="A user_id, or (tenant) for runs that name no user."),
        ),
    ),
    Route(
        method="POST",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.erase,
        says="Make the content of a subject unreadable, with dry_run false and confirm; otherwise tell what would be.",
        body=ErasureBody,
        query=(QueryParameter(name="tenant", says="Required: the tenant of the subject."),),
    ),
    Route(
        method="POST",
        path="/v1/_erasure/rewrap",
        access=ADMIN,
        handler=erasure_endpoints.rewrap_keys,
        says="Wrap the keys of subjects under the current key-encryption key.",
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        access=Access.PUBLIC,
        handler=document_endpoints.openapi,
        says="This document.",
    ),
    Route(
        method="GET",
        path="/v1/docs",
        access=Access.PUBLIC,
        handler=document_endpoints.docs,
        says="This document for people.",
        answer="Text",
        media_type="text/html",
    ),
)
