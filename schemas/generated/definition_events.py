"""Records of the namespace loom.definition.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.generated.values import BlobRef, DefinitionChange
from loomlog.schemas.records import Record


class ApplyBegan(Record, frozen=True, kw_only=True):
    """A batch begins: each definition stages its version."""

    SCHEMA: ClassVar[str] = "loom.definition.events.ApplyBegan"
    CONTENT: ClassVar[Mapping[str, str]] = {"description": "text"}

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    changes: tuple[DefinitionChange, ...]
    """What is to be made."""
    description: str = ''
    """Why this version was made."""
    created_by_agent_id: str = ''
    """Handle of the agent that made it; empty for people and services."""
    created_by_agent: str = ''
    """Name of that agent."""
    created_by_run_id: str = ''
    """Run that made it; empty for people and services."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class ApplyRefused(Record, frozen=True, kw_only=True):
    """Nothing of the batch becomes active."""

    SCHEMA: ClassVar[str] = "loom.definition.events.ApplyRefused"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    reason: str
    """Why."""
    message: str = ''
    """Why, for people."""


class DefDeleted(Record, frozen=True, kw_only=True):
    """The definition is deleted: nothing of it is resolved."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefDeleted"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    why: str = ''
    """Reason, for people."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class DefPromoted(Record, frozen=True, kw_only=True):
    """A version is the active one from here on."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefPromoted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "kind", "name", "from_def_id", "to_def_id", "version", "why", "undoes", "by_agent_id", "by", "content", "batch",
        "applied_at_ms",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text"}

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    to_def_id: str
    """Version that is active now."""
    version: int
    """Its number."""
    from_def_id: str = ''
    """Version that was active; empty for none."""
    why: str = ''
    """Reason, for people."""
    undoes: str = ''
    """Version whose promotion a rollback undoes; empty for a promotion."""
    by_agent_id: str = ''
    """Handle of the agent that asked; empty for people and services."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""
    content: str = ''
    """Its content, if the line no longer held it."""
    batch: str = ''
    """Batch that it was promoted with; empty for none."""
    applied_at_ms: int = 0
    """When that batch was applied, UTC milliseconds; 0: no batch."""


class DefRestored(Record, frozen=True, kw_only=True):
    """A retired version may be promoted again. It is not active by that."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefRestored"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    def_id: str
    """The version."""
    version: int
    """Its number."""
    why: str = ''
    """Reason, for people."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class DefRetired(Record, frozen=True, kw_only=True):
    """A version is retired: it is never resolved."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefRetired"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    def_id: str
    """The version."""
    version: int
    """Its number."""
    was_active: bool = False
    """It was the active one; there is none now."""
    why: str = ''
    """Reason, for people."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class DefVersionCreated(Record, frozen=True, kw_only=True):
    """A version of a definition exists. It is not active by that."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefVersionCreated"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text", "description": "text"}

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    version: int
    """Its number, from 1."""
    def_id: str
    """Its id."""
    parent_def_id: str = ''
    """Version that it was made from; empty for a first one."""
    content: str = ''
    """The definition as canonical JSON; empty when it lies in content_blob."""
    content_blob: BlobRef | None = None
    """Where a long definition lies."""
    content_sha256: str = ''
    """Content hash, 'sha256:' and 64 hex digits."""
    description: str = ''
    """Why this version was made."""
    created_by_agent_id: str = ''
    """Handle of the agent that made it; empty for people and services."""
    created_by_agent: str = ''
    """Name of that agent."""
    created_by_run_id: str = ''
    """Run that made it; empty for people and services."""
    tools: tuple[str, ...] | None = None
    """Tools that the content grants; null for kinds without tools."""
    root: int = 0
    """Number of the first version of its lineage in this line."""
    is_bootstrapped: bool = False
    """It is the content of a file."""
    expires_at_ms: int = 0
    """When it is retired by itself, UTC milliseconds; 0: never."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class DefinitionsApplied(Record, frozen=True, kw_only=True):
    """All versions of the batch are active from here on."""

    SCHEMA: ClassVar[str] = "loom.definition.events.DefinitionsApplied"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    def_ids: tuple[str, ...]
    """In the order of the changes."""


class RunJudged(Record, frozen=True, kw_only=True):
    """A run of the definition was judged."""

    SCHEMA: ClassVar[str] = "loom.definition.events.RunJudged"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "kind", "name", "eval_id", "run_id", "def_id", "version", "score", "dimensions", "judgement", "rationale",
        "emitter_role", "emitter_agent_id", "emitter_run_id", "user_id", "by",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"judgement": "text", "rationale": "text"}

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    eval_id: str
    """Id of the judgement."""
    run_id: str
    """Run that is judged."""
    def_id: str
    """Version of the definition that the run is pinned to."""
    score: float
    """Finite."""
    emitter_role: str
    """external, self, parent, sibling or unrelated."""
    version: int = 0
    """Number of that version; 0 for a definition from a file."""
    dimensions: Mapping[str, float] = field(default_factory=dict)
    """Further scores by name."""
    judgement: str = ''
    """JSON of the judgement; user content."""
    rationale: str = ''
    """Why, for people; user content."""
    emitter_agent_id: str = ''
    """Handle of the judge; empty outside a run."""
    emitter_run_id: str = ''
    """Run of the judge; empty outside a run."""
    user_id: str = ''
    """User of the judged run, whose key encrypts the judgement."""
    by: str = ''
    """Subject of the principal or name of the service that asked."""


class StageAnswered(Record, frozen=True, kw_only=True):
    """A definition of the batch has staged its version, or refused."""

    SCHEMA: ClassVar[str] = "loom.definition.events.StageAnswered"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    change: int
    """Number of the change, from 0."""
    def_id: str = ''
    """The staged version; empty: refused."""
    reason: str = ''
    """Why not."""
    message: str = ''
    """Why not, for people."""


class StageSettled(Record, frozen=True, kw_only=True):
    """The stage ended without the version becoming active."""

    SCHEMA: ClassVar[str] = "loom.definition.events.StageSettled"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    batch: str
    """Id of the batch."""
    version: int
    """Its number."""


class StaticObserved(Record, frozen=True, kw_only=True):
    """A configuration file says this of a definition."""

    SCHEMA: ClassVar[str] = "loom.definition.events.StaticObserved"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "kind", "name", "content", "content_blob", "content_sha256", "observer",
    )

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    observer: str
    """Process that has read the file."""
    content: str = ''
    """The definition as canonical JSON; empty when it lies in content_blob."""
    content_blob: BlobRef | None = None
    """Where a long definition lies."""
    content_sha256: str = ''
    """Content hash, 'sha256:' and 64 hex digits."""


class VersionStaged(Record, frozen=True, kw_only=True):
    """A version waits for its batch."""

    SCHEMA: ClassVar[str] = "loom.definition.events.VersionStaged"

    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    batch: str
    """Id of the batch."""
    change: int
    """Number of the change, from 0."""
    def_id: str = ''
    """The version; empty: the stage is refused."""
    version: int = 0
    """Its number."""
    reason: str = ''
    """Why not."""
    message: str = ''
    """Why not, for people."""


RECORDS = (
    ApplyBegan,
    ApplyRefused,
    DefDeleted,
    DefPromoted,
    DefRestored,
    DefRetired,
    DefVersionCreated,
    DefinitionsApplied,
    RunJudged,
    StageAnswered,
    StageSettled,
    StaticObserved,
    VersionStaged,
)
Event = ApplyBegan | ApplyRefused | DefDeleted | DefPromoted | DefRestored | DefRetired | DefVersionCreated | DefinitionsApplied | RunJudged | StageAnswered | StageSettled | StaticObserved | VersionStaged
