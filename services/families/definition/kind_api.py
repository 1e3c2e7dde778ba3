"""The operations of the versioned kinds, made from the table of kinds, and of several definitions at once.

The operations of a kind share a route and a tool. A further kind needs no line here.

Before: api.py. After: handlers.py carries them out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from loomlog.connectors.definitions import KINDS, Kind
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT, TENANT_READ
from loomlog.services.core.definitions import DefinitionId
from loomlog.services.core.operations import (
    AnyOperation,
    Effect,
    Http,
    Input,
    NoInput,
    Output,
    Tool,
    ToolOperation,
)
from loomlog.services.families.definition.api_fields import (
    BODY_BYTES_MAX,
    UNKNOWN_OP,
    Description,
    ExpectActive,
    ExpiresAt,
    Name,
    OptionalName,
    Overlay,
    ParentId,
    Promote,
    Time,
    Why,
    operation,
    refusing_operation,
)
from loomlog.services.families.definition.apply import CHANGES_MAX

MERMAID = "mermaid"
APPLY_TOOL = "apply"
"""Name in the refusals of a batch."""
LIBRARY_KINDS: Mapping[str, str] = {"agents": "agent", "skills": "skill", "mcp-servers": "mcpserver"}

Discover = Annotated[
    bool | None, Meta(description="false: do not ask the server for its tools; one that does not answer is kept too.")
]

# --- inputs ----------------------------------------------------------------------------------------------------------


class DefinitionCreate(Input, frozen=True, kw_only=True):
    name: Name
    overlay: Overlay = None
    description: Description = None
    promote: Promote = None
    expect_active: ExpectActive = None
    expires_at: ExpiresAt = None


class DefinitionFork(Input, frozen=True, kw_only=True):
    name: OptionalName = None
    parent_def_id: ParentId = None
    overlay: Overlay = None
    description: Description = None
    promote: Promote = None
    expect_active: ExpectActive = None
    expires_at: ExpiresAt = None


class McpServerCreate(DefinitionCreate, frozen=True, kw_only=True):
    discover: Discover = None


class McpServerFork(DefinitionFork, frozen=True, kw_only=True):
    discover: Discover = None


class DefinitionGet(Input, frozen=True, kw_only=True):
    def_id: DefinitionId


class DefinitionNamed(Input, frozen=True, kw_only=True):
    name: Name


class DefinitionPromote(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    why: Why = None
    expect_active: ExpectActive = None


class DefinitionRollback(Input, frozen=True, kw_only=True):
    name: Name
    why: Why = None
    expect_active: ExpectActive = None


class DefinitionRetire(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    retired: Annotated[bool, Meta(description="True retires the version, false restores it.")]
    why: Why = None


class DefinitionDelete(Input, frozen=True, kw_only=True):
    name: Name
    why: Why = None


class DefinitionVerify(Input, frozen=True, kw_only=True):
    name: Name
    content_sha256: Annotated[str, Meta(description="Content hash to compare with the active version's.")]


class DefinitionDiagram(Input, frozen=True, kw_only=True):
    name: OptionalName = None
    def_id: Annotated[str | None, Meta(description="Id of a version.")] = None
    overlay: Overlay = None
    format: Annotated[
        Literal["", "mermaid"] | None, Meta(description="Form of the drawing; mermaid if absent or empty.")
    ] = None
    highlight_state: Annotated[str | None, Meta(description="State to highlight.")] = None


class DefinitionAddHook(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    hook: Annotated[dict[str, Any], Meta(description="What happens when a run has ended, as in on_complete.")]


class DefinitionRemoveHook(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    hook_index: Annotated[int, Meta(ge=0, description="Place of a hook in on_complete, from 0.")]


class DefinitionBatchChange(Input, frozen=True, kw_only=True):
    kind: Annotated[str, Meta(description="Kind of definition.", extra_json_schema={"enum": list(KINDS)})]
    name: Name
    overlay: Overlay = None
    parent_def_id: ParentId = None
    expect_active: ExpectActive = None


class DefinitionBatch(Input, frozen=True, kw_only=True):
    definitions: Annotated[
        list[DefinitionBatchChange],
        Meta(
            min_length=1,
            description=f"The versions to make, at most {CHANGES_MAX}.",
            extra_json_schema={"maxItems": CHANGES_MAX},
        ),
    ]
    description: Description = None


class LibraryList(Input, frozen=True, kw_only=True):
    shelf: Annotated[str, Meta(description=f"One of {', '.join(LIBRARY_KINDS)}.")]


# --- answers ---------------------------------------------------------------------------------------------------------


class DefinitionVersion(Output, frozen=True, kw_only=True):
    """A version with its content."""

    def_id: str
    name: str
    version: int
    parent_def_id: str
    description: str
    created_at: str
    created_by_agent_id: str
    created_by_run_id: str
    retired: bool
    bootstrapped_from_static: Annotated[bool, Meta(description="It was forked from the definition of a file.")]
    content_sha256: str
    definition: dict[str, Any]
    expires_at: Time | UnsetType = UNSET
    promoted: Annotated[bool, Meta(description="It is the active one.")]
    deduplicated: Annotated[bool, Meta(description="It was there already.")] | UnsetType = UNSET


class DefinitionVersions(Output, frozen=True, kw_only=True):
    name: str
    versions: Annotated[list[DefinitionVersion], Meta(description="The newest first.")]


class DefinitionPromoted(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    version: int
    promoted: bool


class DefinitionRolledBack(DefinitionPromoted, frozen=True, kw_only=True):
    undone_def_id: Annotated[str, Meta(description="Version that was active before.")]


class DefinitionRetired(Output, frozen=True, kw_only=True):
    def_id: str
    retired: bool


class DefinitionDeleted(Output, frozen=True, kw_only=True):
    name: str
    deleted: bool


class DefinitionVerified(Output, frozen=True, kw_only=True):
    """Whether the active version has that hash; without one `deployed` is false and the rest is empty."""

    matches: bool
    current_sha256: str
    current_def_id: str
    version: int
    name: str
    deployed: bool


class DefinitionDrawn(Output, frozen=True, kw_only=True):
    name: str
    def_id: Annotated[str, Meta(description="Empty: no version has this content.")]
    format: str
    diagram: str
    preview: Annotated[bool, Meta(description="An overlay is drawn.")] | UnsetType = UNSET


class DefinitionNamesRow(Output, frozen=True, kw_only=True):
    """A name with its versions; the last two are absent when no version is active."""

    name: str
    tenant_id: str
    version_count: int
    live_version_count: int
    latest_version: int
    last_updated: Time
    active_def_id: str | UnsetType = UNSET
    active_retired: bool | UnsetType = UNSET


class DefinitionNames(Output, frozen=True, kw_only=True):
    names: list[DefinitionNamesRow]


class AppliedDefinition(DefinitionVersion, frozen=True, kw_only=True):
    kind: str


class AppliedDefinitions(Output, frozen=True, kw_only=True):
    """The versions that are active since the batch."""

    batch: str
    status: Literal["applied"]
    definitions: list[AppliedDefinition]


class LibraryEntry(Output, frozen=True, kw_only=True):
    """A definition of the files, its versions, or both."""

    name: str
    source: Literal["both", "dynamic-only", "static-only"]
    in_static: bool
    in_substrate: bool
    version_count: int
    live_version_count: int
    latest_version: int
    active_def_id: str | None
    active_retired: bool
    last_updated: str | None
    static_definition: dict[str, Any] | None


class Library(Output, frozen=True, kw_only=True):
    """Definitions of a kind."""

    entries: list[LibraryEntry]


# --- operations ------------------------------------------------------------------------------------------------------

_OPERATIONS: Mapping[str, tuple[str, type[Input], type[Output], Effect]] = {
    "create": ("Make a version.", DefinitionCreate, DefinitionVersion, Effect.WRITE),
    "fork": ("Make a version from an earlier one.", DefinitionFork, DefinitionVersion, Effect.WRITE),
    "get": ("Get a version.", DefinitionGet, DefinitionVersion, Effect.READ),
    "list": ("List the versions of a name.", DefinitionNamed, DefinitionVersions, Effect.READ),
    "promote": ("Make a version the active one.", DefinitionPromote, DefinitionPromoted, Effect.WRITE),
    "rollback": (
        "Make the version active that was so before.",
        DefinitionRollback,
        DefinitionRolledBack,
        Effect.WRITE,
    ),
    "retire": ("Retire a version, or restore it.", DefinitionRetire, DefinitionRetired, Effect.WRITE),
    "delete": ("Delete a definition.", DefinitionDelete, DefinitionDeleted, Effect.WRITE),
    "verify": (
        "Compare a content hash with the active version's.",
        DefinitionVerify,
        DefinitionVerified,
        Effect.READ,
    ),
    "render_diagram": ("Draw a team.", DefinitionDiagram, DefinitionDrawn, Effect.READ),
    "add_hook": ("Add a hook to a schedule.", DefinitionAddHook, DefinitionVersion, Effect.WRITE),
    "remove_hook": ("Remove a hook of a schedule.", DefinitionRemoveHook, DefinitionVersion, Effect.WRITE),
    "rediscover": (
        "Ask an MCP server for its tools; other ones than before make a version.",
        DefinitionNamed,
        DefinitionVersion,
        Effect.WRITE,
    ),
}
_INPUTS: Mapping[tuple[str, str], type[Input]] = {
    ("mcpserver", "create"): McpServerCreate,
    ("mcpserver", "fork"): McpServerFork,
}
"""Inputs of one kind, in place of those that all have."""
_OF_TEAMS, _OF_SCHEDULES = ("delete", "render_diagram"), ("add_hook", "remove_hook")


def _ops_of(kind: Kind) -> Iterator[str]:
    for op in _OPERATIONS:
        is_left_out = (
            (op == "verify" and not kind.has_verify)
            or (op in _OF_TEAMS and kind.name != "team")
            or (op in _OF_SCHEDULES and kind.name != "schedule")
            or (op == "rediscover" and kind.name != "mcpserver")
        )
        if not is_left_out:
            yield op


def _operations_of(kind: Kind) -> Mapping[str, AnyOperation]:
    declare = refusing_operation(kind.tool)
    route = Http(
        route=f"POST /v1/_{kind.route}",
        id=f"change_{kind.name}_definition",
        summary=f"Create, fork, promote, retire or read a definition of the kind {kind.name}.",
        body_name=f"{kind.tool}Operation",
        body_bytes_max=BODY_BYTES_MAX,
        example={"op": "list", "name": "researcher"},
        refusal_statuses=(409, 422, 503),
    )
    operations = {}
    for op in _ops_of(kind):
        summary, taken, answer, effect = _OPERATIONS[op]
        operations[op] = declare(
            name=f"definition.{kind.name}_{op}",
            summary=summary,
            input=_INPUTS.get((kind.name, op), taken),
            output=answer,
            access=requires(TENANT),
            effect=effect,
            http=(replace(route, op=op),),
            tool=ToolOperation(tool=kind.tool, op=op),
        )
    return operations


def _names_of(kind: Kind) -> AnyOperation:
    return operation(
        name=f"definition.{kind.name}_names",
        summary=f"List the names of the kind {kind.name}, with the number of their versions.",
        input=NoInput,
        output=DefinitionNames,
        access=requires(TENANT_READ),
        effect=Effect.READ,
        http=(Http(route=f"GET /v1/_{kind.route}/names", id=f"list_{kind.name}_definition_names"),),
    )


def _tool_of(kind: Kind) -> Tool:
    return Tool(
        name=kind.tool,
        description=(
            f"Defines what other runs use: versions of a definition of the kind {kind.name}. op create makes one and "
            "promotes it; fork makes one from an earlier version; promote, rollback and retire decide which one new "
            "runs use; get and list read."
        ),
        usage_hint="create, fork and promote versions; runs under way keep theirs",
        is_ordered=False,
        unknown_op_code=UNKNOWN_OP,
    )


KIND_OPERATIONS: Mapping[str, Mapping[str, AnyOperation]] = {kind.name: _operations_of(kind) for kind in KINDS.values()}
"""By kind and `op`."""
LIST_NAMES: Mapping[str, AnyOperation] = {kind.name: _names_of(kind) for kind in KINDS.values()}
"""By kind."""
APPLY = refusing_operation(APPLY_TOOL)(
    name="definition.apply",
    summary="Make versions of several definitions active at once, or none of them.",
    input=DefinitionBatch,
    output=AppliedDefinitions,
    access=requires(TENANT),
    effect=Effect.WRITE,
    http=(
        Http(
            route="POST /v1/_definitions/apply",
            id="apply_definitions",
            body_bytes_max=BODY_BYTES_MAX,
            example={
                "definitions": [
                    {"kind": "skill", "name": "cite", "overlay": {"body": "Name your sources."}},
                    {"kind": "agent", "name": "researcher", "overlay": {"skills": ["cite"]}},
                ],
                "description": "answers name their sources",
            },
            refusal_statuses=(409, 422, 503),
        ),
    ),
)
LIST_LIBRARY = operation(
    name="definition.library",
    summary="List agents, skills or mcp-servers, from files and made at run time.",
    input=LibraryList,
    output=Library,
    access=requires(TENANT_READ),
    effect=Effect.READ,
    http=(Http(route="GET /v1/_library/{shelf}", id="list_library", refusal_statuses=(404,)),),
)
OPERATIONS: tuple[AnyOperation, ...] = (
    *(one for kind in KINDS for one in (*KIND_OPERATIONS[kind].values(), LIST_NAMES[kind])),
    APPLY,
    LIST_LIBRARY,
)
TOOLS = tuple(map(_tool_of, KINDS.values()))
