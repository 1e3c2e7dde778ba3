"""The operations on volumes that are made at run time, and the lists of all volumes.

Before: api.py. After: volumes.py carries them out.
"""

from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT, TENANT_READ
from loomlog.services.core.operations import Effect, Http, Input, NoInput, Output, Tool, ToolOperation
from loomlog.services.families.definition.api_fields import UNKNOWN_OP, Time, Why, operation, refusing_operation

TOOL = Tool(
    name="VolumeDef",
    description=(
        "Makes folders that file tools use as volumes. op create makes one: with ephemeral true for this run and the "
        "runs it starts, at once usable by its name and removed when the top-level run ends; without, it lasts, and "
        "is for agents that list its name under volumes. delete keeps the files of one that lasts; purge removes them."
    ),
    usage_hint="create with ephemeral true gives this run and its sub-agents a folder to share",
    is_ordered=False,
    unknown_op_code=UNKNOWN_OP,
)

VolumeName = Annotated[str, Meta(description="Name of the volume: a-z, 0-9, _ and -.")]
Path = Annotated[str, Meta(description="Folder on the server, for administrators; else empty.")]


class VolumeCreate(Input, frozen=True, kw_only=True):
    name: VolumeName
    mode: Annotated[
        Literal["", "ro", "rw"] | None, Meta(description="What agents may do in it; rw if absent or empty.")
    ] = None
    ephemeral: Annotated[bool | None, Meta(description="It ends with the top-level run that makes it.")] = None
    mount_at: Annotated[str | None, Meta(description="Name for it in the tree of names; /vol/<name> if absent.")] = None


class VolumeNamed(Input, frozen=True, kw_only=True):
    name: VolumeName


class VolumeRemove(Input, frozen=True, kw_only=True):
    name: VolumeName
    why: Why = None


class Volume(Output, frozen=True, kw_only=True):
    """A volume that was made at run time."""

    name: str
    path: Path
    mode: str
    ephemeral: bool | UnsetType = UNSET
    created_at: Time
    updated_at: Annotated[str, Meta(description="Absent for one that ends with its run.")] | UnsetType = UNSET
    mount_warning: str | UnsetType = UNSET


class MadeVolumes(Output, frozen=True, kw_only=True):
    volumes: list[Volume]


class VolumeRemoved(Output, frozen=True, kw_only=True):
    name: str
    deleted: bool
    files_removed: bool


class VolumeEntry(Output, frozen=True, kw_only=True):
    """A volume of the files, or one that was made at run time, which has `created_at`."""

    name: str
    source: Literal["static", "dynamic", "shared"]
    path: Path
    mode: str
    default: bool
    dynamic_root: bool
    created_at: Time | UnsetType = UNSET


class Volumes(Output, frozen=True, kw_only=True):
    entries: list[VolumeEntry]


class EphemeralVolume(Output, frozen=True, kw_only=True):
    name: str
    root_run_id: str
    path: Path
    mode: str
    created_at: Time


class EphemeralVolumes(Output, frozen=True, kw_only=True):
    entries: list[EphemeralVolume]


_operation = refusing_operation(TOOL.name)
_ROUTE = Http(
    route="POST /v1/_volumedef",
    id="change_volume_definition",
    summary="Make, remove or read volumes that are made at run time.",
    body_name="VolumeDefOperation",
    example={"op": "create", "name": "notes", "mode": "rw"},
    refusal_statuses=(409, 422, 503),
)


def _declare(op: str, summary: str, taken: type[Input], answer: type[Output], effect: Effect) -> Any:
    return _operation(
        name=f"definition.volume_{op}",
        summary=summary,
        input=taken,
        output=answer,
        access=requires(TENANT),
        effect=effect,
        http=(replace(_ROUTE, op=op),),
        tool=ToolOperation(tool=TOOL.name, op=op),
    )


CREATE = _declare("create", "Make a volume.", VolumeCreate, Volume, Effect.WRITE)
GET = _declare("get", "Get a volume.", VolumeNamed, Volume, Effect.READ)
LIST = _declare("list", "List the volumes that were made at run time.", NoInput, MadeVolumes, Effect.READ)
DELETE = _declare("delete", "Remove a volume and keep its files.", VolumeRemove, VolumeRemoved, Effect.WRITE)
PURGE = _declare("purge", "Remove a volume with its files.", VolumeRemove, VolumeRemoved, Effect.WRITE)
LIST_ALL = operation(
    name="definition.volumes",
    summary="List the volumes of the files and those made at run time; paths are for administrators.",
    input=NoInput,
    output=Volumes,
    access=requires(TENANT_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_volumes", id="list_volumes"),),
)
LIST_EPHEMERAL = operation(
    name="definition.ephemeral_volumes",
    summary="List the volumes that end with their runs; paths are for administrators.",
    input=NoInput,
    output=EphemeralVolumes,
    access=requires(TENANT_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_volumes/ephemeral", id="list_ephemeral_volumes"),),
)
OPERATIONS = (CREATE, GET, LIST, DELETE, PURGE, LIST_ALL, LIST_EPHEMERAL)
