"""The operations that read definitions of all kinds: lists, versions, differences, lineage, and the past.

Before: api.py. After: queries.py, history.py.
"""

from functools import partial
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from loomlog.connectors.definitions import KINDS
from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.definitions import PATH, VERSION_PATH, DefinitionId
from loomlog.services.core.operations import Effect, Http, Input, McpTool, Output
from loomlog.services.families.definition.api_fields import Source, Time, operation
from loomlog.services.families.definition.kind_api import DefinitionVersion

PAGE_DEFAULT, PAGE_MAX = 100, 500
DEPTH_DEFAULT, DEPTH_MAX = 10, 100
PARENT, ACTIVE = "", "active"
"""Values of `to` of a difference, besides `file` and a def_id."""
TEXT_CHARACTERS_MAX, CURSOR_CHARACTERS_MAX = 256, 1_024

_Kind = Annotated[str, Meta(description=f"One of {', '.join(KINDS)}.", max_length=64)]
_Name = Annotated[str, Meta(description="Only this name.", max_length=TEXT_CHARACTERS_MAX)]

# --- inputs ----------------------------------------------------------------------------------------------------------


class DefinitionFilter(Input, frozen=True, kw_only=True):
    kind: _Kind = ""
    name: _Name = ""
    prefix: Annotated[
        str, Meta(description="Only names that begin with this text.", max_length=TEXT_CHARACTERS_MAX)
    ] = ""
    active: Annotated[bool | None, Meta(description="Only those with, or without, an active version.")] = None
    retired: Annotated[bool | None, Meta(description="Only those with, or without, a retired version.")] = None
    created_by: Annotated[
        str, Meta(description="Only those that this subject or agent has made.", max_length=TEXT_CHARACTERS_MAX)
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Most entries of one answer.")] = PAGE_DEFAULT
    cursor: Annotated[str, Meta(description="`next` of an earlier answer.", max_length=CURSOR_CHARACTERS_MAX)] = ""


class DefinitionPast(Input, frozen=True, kw_only=True):
    time: Annotated[
        str, Meta(description="RFC 3339; absent: the time of `position`.", max_length=TEXT_CHARACTERS_MAX)
    ] = ""
    position: Annotated[str, Meta(description="Position of a record.", max_length=TEXT_CHARACTERS_MAX)] = ""
    kind: _Kind = ""
    name: _Name = ""


class DefinitionShow(Input, frozen=True, kw_only=True):
    def_id: DefinitionId


class DefinitionCompare(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    to: Annotated[
        str,
        Meta(
            description="Compared with: a def_id, `active` or `file`. Absent: what it changed in its parent.",
            max_length=TEXT_CHARACTERS_MAX,
        ),
    ] = PARENT


class DefinitionLineageOf(Input, frozen=True, kw_only=True):
    def_id: DefinitionId
    depth: Annotated[int, Meta(ge=1, le=DEPTH_MAX, description=f"Steps up and down; {DEPTH_DEFAULT} if absent.")] = (
        DEPTH_DEFAULT
    )


# --- answers ---------------------------------------------------------------------------------------------------------


class JudgementCount(Output, frozen=True, kw_only=True):
    """Number and mean of the judgements of a line."""

    count: int
    mean: float | None


class DefinitionEntry(Output, frozen=True, kw_only=True):
    """What a name means for a tenant: the line with its active version, or a file."""

    kind: str
    name: str
    tenant_id: str
    source: Source
    description: Annotated[
        str | None, Meta(description="Null: the definition has none, or is too long to be kept in memory.")
    ]
    active_def_id: str | None
    active_version: int
    version_count: int
    live_version_count: int
    latest_version: int
    last_updated: str | None
    made_by_agent: str | None
    static_def_id: str | None
    static_differs: bool
    judgements: JudgementCount


class DefinitionList(Output, frozen=True, kw_only=True):
    """A page of definitions by kind and name."""

    definitions: list[DefinitionEntry]
    next: Annotated[str | None, Meta(description="Cursor of the following page.")]


class JudgementSums(JudgementCount, frozen=True, kw_only=True):
    """The judgements of a version."""

    min: float | None
    max: float | None


class Definition(DefinitionVersion, frozen=True, kw_only=True):
    """A version, or the definition of a file, which has no position."""

    kind: str
    tenant_id: str
    created_by: str
    position: str | UnsetType = UNSET
    judgements: JudgementSums


class FieldChange(Output, frozen=True, kw_only=True):
    """A field that differs; `diff` has the lines of a unified diff for long texts."""

    field: str
    before: Any = UNSET
    after: Any = UNSET
    diff: list[str] | UnsetType = UNSET


class OutputChange(Output, frozen=True, kw_only=True):
    """The kind of a change of the output schema of an agent."""

    kind: Annotated[
        Literal["compatible", "breaking"],
        Meta(description="compatible: who reads the records, and ignores members that are new, goes on working."),
    ]
    reasons: Annotated[list[str], Meta(description="Why it is breaking, each with the place in the record.")]


class DefinitionDiff(Output, frozen=True, kw_only=True):
    """What differs between two versions."""

    from_: Annotated[str | None, Meta(description="Null: there is nothing to compare with.")] = field(name="from")
    to: str
    changes: list[FieldChange]
    output_change: OutputChange | UnsetType = UNSET


class LineageRow(Output, frozen=True, kw_only=True):
    def_id: str
    name: str
    version: int
    parent_def_id: str
    retired: bool


class DefinitionLineage(Output, frozen=True, kw_only=True):
    root: LineageRow
    ancestors: Annotated[list[LineageRow], Meta(description="The nearest first.")]
    descendants: list[LineageRow]
    depth: int
    truncated: bool


class ActiveDefinition(Output, frozen=True, kw_only=True):
    """A version that was active."""

    kind: str
    name: str
    tenant_id: str
    active_def_id: str
    version: int
    promoted_at: Time
    promoted_by: str
    why: str
    position: str


class DefinitionsAt(Output, frozen=True, kw_only=True):
    """What was active at a time or a position."""

    definitions: list[ActiveDefinition]
    at: str


# --- operations ------------------------------------------------------------------------------------------------------

_read = partial(operation, access=requires(TENANT), effect=Effect.READ, unavailable_code="projection_unavailable")
LIST = _read(
    name="definition.list",
    summary="List what names of all kinds mean: versions made at run time, and files.",
    input=DefinitionFilter,
    output=DefinitionList,
    http=(Http(route=f"GET {PATH}", id="list_definitions"),),
)
LIST_PAST = _read(
    name="definition.at",
    summary="List what was active at a time, or at the one position that the query names.",
    input=DefinitionPast,
    output=DefinitionsAt,
    http=(Http(route=f"GET {PATH}/at", id="list_definitions_at"),),
)
GET = _read(
    name="definition.get",
    summary="Get a version, or the definition of a file: content, author, judgements.",
    input=DefinitionShow,
    output=Definition,
    http=(Http(route=f"GET {VERSION_PATH}", id="get_definition"),),
)
COMPARE = _read(
    name="definition.diff",
    summary="Compare a version field by field.",
    input=DefinitionCompare,
    output=DefinitionDiff,
    http=(Http(route=f"GET {VERSION_PATH}/diff", id="compare_definitions"),),
)
GET_LINEAGE = _read(
    name="definition.lineage",
    summary="Get the versions that a version was made from, and those made from it.",
    input=DefinitionLineageOf,
    output=DefinitionLineage,
    http=(Http(route=f"GET {VERSION_PATH}/lineage", id="get_lineage"),),
    mcp=(McpTool(tool="context", op="lineage"),),
)
OPERATIONS = (LIST, LIST_PAST, GET, COMPARE, GET_LINEAGE)
