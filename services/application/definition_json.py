"""JSON of the reads of definitions of all kinds.

Before: definition_queries.py, definition_history.py. After: services/api/openapi.py derives the schemas.
"""

from typing import Any, Literal

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import Run


class JudgementCount(TypedDict):
    """Number and mean of the judgements of a line."""

    count: int
    mean: float | None


class DefinitionEntry(TypedDict):
    """What a name means for a tenant: the line with its active version, or a file.

    `description` is that of the definition; null: it has none, or is too long to be kept in memory.
    """

    kind: str
    name: str
    tenant_id: str
    source: Literal["tenant", "file", "shared"]
    description: str | None
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


class DefinitionList(TypedDict):
    """A page of definitions by kind and name; `next` is the cursor of the following page."""

    definitions: list[DefinitionEntry]
    next: str | None


class FieldChange(TypedDict, total=False):
    """A field that differs; `diff` has the lines of a unified diff for long texts."""

    field: str
    before: Any
    after: Any
    diff: list[str]


DefinitionDiff = TypedDict("DefinitionDiff", {"from": str | None, "to": str, "changes": list[FieldChange]})
"""What differs between two versions; `from` is null when there is nothing to compare with."""


class DefinitionRuns(TypedDict):
    """A page of the runs of a version."""

    runs: list[Run]
    next: str | None


class ActiveDefinition(TypedDict):
    """A version that was active."""

    kind: str
    name: str
    tenant_id: str
    active_def_id: str
    version: int
    promoted_at: str
    promoted_by: str
    why: str
    position: str


class DefinitionsAt(TypedDict):
    """What was active at a time or a position."""

    definitions: list[ActiveDefinition]
    at: str


class AppliedDefinitions(TypedDict):
    """The versions that are active since the batch."""

    batch: str
    status: Literal["applied"]
    definitions: list[dict[str, Any]]


class PinnedSkill(TypedDict):
    """A skill that the run used. `def_id` is empty for one from a file."""

    name: str
    def_id: str
    version: int
    content_sha256: str


class FileNow(TypedDict):
    """What the file of this name says now; `differs_from_pin` is null when the run was started by a file."""

    def_id: str
    differs_from_pin: bool | None


class Blame(TypedDict):
    """Why a run did what it did: the version of its agent, who made it, and who made it active. Null: unknown."""

    run_id: str
    agent: str
    def_id: str
    version: int
    source: Literal["tenant", "file", "shared"] | None
    content_sha256: str | None
    definition_sha256: str | None
    created_at: str | None
    created_by: str | None
    created_by_agent_id: str | None
    created_by_run_id: str | None
    description: str | None
    parent_def_id: str | None
    promoted_at: str | None
    promoted_by: str | None
    promoted_why: str | None
    promotion_position: str | None
    is_active_now: bool
    file: FileNow | None
    skills: list[PinnedSkill] | None
