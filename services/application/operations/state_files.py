"""The operations on stored state files; those that take or give a file are routes by hand. Pure.

Before: services/application/operations/__init__.py. After: state_file_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.state_files import Restored, StateFileList
from loomlog.services.application.operations.fields import http
from loomlog.services.application.queries.json_types import StateFile
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import (
    AnyOperation,
    Effect,
    Input,
    McpTool,
    NoInput,
    NoOutput,
    Operation,
    Tag,
)

TAG = Tag(name="State files", description="Everything of an installation as one file, and its restore.")
BODY_BYTES_MAX = 64 * 1024
STATE_FILES = "/v1/_snapshots"
Name = Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX)]


class StateFileCreate(Input, frozen=True, kw_only=True):
    """Content of a state file; everything if empty."""

    label: Annotated[Name | None, Meta(description="Shown in lists.")] = None
    tenant: Annotated[Name | None, Meta(description="Only of this tenant.")] = None
    include_history: Annotated[
        bool | None, Meta(description="false: only live runs, and the runs they continue. All runs if absent.")
    ] = None
    include_history_since: Annotated[str | None, Meta(description="Leave out runs that ended before (RFC 3339).")] = (
        None
    )
    max_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=limits.STATE_FILE_BYTES_MAX)] | None, Meta(description="Refuse a larger file.")
    ] = None


class StateFileNamed(Input, frozen=True, kw_only=True):
    snapshot_id: Annotated[str, Meta(description="Id of the state file.")]


class StateFileRestore(Input, frozen=True, kw_only=True):
    """A stored state file, or the content of one, and how it is restored."""

    snapshot_id: Annotated[str, Meta(description="Id of the stored state file; empty: the document alone.")] = ""
    document: Annotated[Any, Meta(description="An exported document to restore instead: an object, or its text.")] = (
        None
    )
    include_history: Annotated[bool | None, Meta(description="No effect: everything in the file is restored.")] = None
    dry_run: Annotated[bool | None, Meta(description="Only check it and count what would be added.")] = None
    sealed: Annotated[
        bool | None, Meta(description="Also restore live runs whose keys are missing; they end as cancelled.")
    ] = None
    in_clear: Annotated[
        bool | None, Meta(description="Also restore plaintext content where content is encrypted; it stays readable.")
    ] = None


_write = partial(Operation, effect=Effect.WRITE, tag=TAG, access=requires(ADMIN), unavailable_code="blobs_unavailable")
CREATE = _write(
    name="state_file.create",
    summary="Create a state file: everything, or a tenant, as one file that another installation can restore.",
    input=StateFileCreate,
    output=StateFile,
    http=(
        http(
            route=f"POST {STATE_FILES}",
            id="create_snapshot",
            status=201,
            body_optional=True,
            body_bytes_max=BODY_BYTES_MAX,
            body_name="SnapshotBody",
            example={"label": "before the upgrade"},
        ),
    ),
    mcp=(McpTool(tool="create_snapshot", names={"label": "description", "include_history_since": "since_ts"}),),
)
LIST = Operation(
    name="state_file.list",
    summary="List the stored state files, newest first.",
    input=NoInput,
    output=StateFileList,
    access=requires(ADMIN),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="blobs_unavailable",
    http=(http(route=f"GET {STATE_FILES}", id="list_snapshots"),),
    mcp=(McpTool(tool="list_snapshots"),),
)
DELETE = _write(
    name="state_file.delete",
    summary="Delete a stored state file. Idempotent.",
    input=StateFileNamed,
    output=NoOutput,
    http=(http(route=f"DELETE {STATE_FILES}/{{snapshot_id}}", id="remove_snapshot", status=204),),
    mcp=(McpTool(tool="delete_snapshot"),),
)
RESTORE = Operation(
    name="state_file.restore",
    summary="Restore a stored state file, or one that is given. What exists already is not changed.",
    input=StateFileRestore,
    output=Restored,
    access=requires(ADMIN),
    effect=Effect.WAIT,
    tag=TAG,
    unavailable_code="blobs_unavailable",
    secret_fields=("document",),
    http=(
        http(
            route=f"POST {STATE_FILES}/{{snapshot_id}}/restore",
            id="restore_snapshot",
            names={"document": "json"},
            body_optional=True,
            body_bytes_max=0,
            body_name="RestoreBody",
            example={"dry_run": True},
        ),
    ),
    mcp=(McpTool(tool="restore_snapshot", names={"document": "raw_json"}, without=("dry_run", "sealed", "in_clear")),),
)
STATE_FILE_OPERATIONS: tuple[AnyOperation, ...] = (CREATE, LIST, DELETE, RESTORE)
