"""JSON of what runs and definitions have to do with each other.

Before: definition_runs.py. After: services/api/openapi.py derives the schemas.
"""

from typing import Literal

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import Run


class DefinitionRuns(TypedDict):
    """A page of the runs of a version."""

    runs: list[Run]
    next: str | None


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
