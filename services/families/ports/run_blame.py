"""Which definition a run did what it did by, and who is behind it.

Before: services/application/definition_runs.py. After: services/families/definition/agents.py.
"""

from typing import Literal, Protocol

from typing_extensions import TypedDict

from loomlog.projections.runs import RunRow


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


class RunBlame(Protocol):
    """Tells it. All methods raise Refused."""

    def require_agent(self, def_id: str, tenant: str, *, is_admin: bool) -> None:
        """Refuse an id to which no run can be pinned, and one that the tenant may not see."""
        ...

    async def of_run(self, run: RunRow) -> Blame:
        """Return the version that a run was pinned to, who made it, and who made it active before the run began;
        without the skills.
        """
        ...
