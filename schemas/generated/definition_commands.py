"""Records of the namespace loom.definition.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, DefinitionChange
from loomlog.schemas.records import Record


class AnswerStage(Record, frozen=True, kw_only=True):
    """Tells a batch whether a line has staged its version."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.AnswerStage"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
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


class ApplyDefinitions(Record, frozen=True, kw_only=True):
    """Makes versions of several definitions active, all at once or none."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.ApplyDefinitions"
    CONTENT: ClassVar[Mapping[str, str]] = {"description": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    changes: tuple[DefinitionChange, ...]
    """At most 32, of different definitions."""
    description: str = ''
    """Why this version was made."""
    created_by_agent_id: str = ''
    """Handle of the agent that made it; empty for people and services."""
    created_by_agent: str = ''
    """Name of that agent."""
    created_by_run_id: str = ''
    """Run that made it; empty for people and services."""


class DefineVersion(Record, frozen=True, kw_only=True):
    """Makes a version of a definition. Content that equals the active version makes none."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.DefineVersion"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text", "description": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
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
    ceiling: tuple[str, ...] | None = None
    """Tools that the author may grant at most; null: any."""
    promote: bool = True
    """Whether the version becomes the active one."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""
    expires_at_ms: int = 0
    """When the version is retired by itself, UTC milliseconds; 0: never."""


class DeleteLine(Record, frozen=True, kw_only=True):
    """Deletes a definition with all its versions."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.DeleteLine"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    why: str = ''
    """Reason, for people."""
    expect_sha256: str = ''
    """Refuse unless the active content has this SHA-256, in hex; empty: whatever it is."""


class ForkVersion(Record, frozen=True, kw_only=True):
    """Makes a version from an earlier one; the content is already merged."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.ForkVersion"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text", "description": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
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
    ceiling: tuple[str, ...] | None = None
    """Tools that the author may grant at most; null: any."""
    promote: bool = True
    """Whether the version becomes the active one."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""
    expires_at_ms: int = 0
    """When the version is retired by itself, UTC milliseconds; 0: never."""
    parent_def_id: str = ''
    """Version that it is made from; empty: the content of the file, which becomes version 1 first."""
    base_content: str = ''
    """Content of the file, when parent_def_id is empty."""
    base_blob: BlobRef | None = None
    """Where that content lies, if it is long."""
    base_sha256: str = ''
    """Content hash of the file's definition."""
    root_tools: tuple[str, ...] | None = None
    """Tools of the root of the lineage, when the parent is of another line or from the file; null: any."""


class ObserveStatic(Record, frozen=True, kw_only=True):
    """Tells what a configuration file says of a definition."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.ObserveStatic"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "kind", "name", "content", "content_blob", "content_sha256", "observer",
    )

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
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


class PromoteVersion(Record, frozen=True, kw_only=True):
    """Makes a version the active one."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.PromoteVersion"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    def_id: str
    """The version."""
    why: str = ''
    """Reason, for people."""
    by_agent_id: str = ''
    """Handle of the agent that asked; empty for people and services."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""
    content: str = ''
    """Content of the version, if the line no longer holds it."""


class RetireVersion(Record, frozen=True, kw_only=True):
    """Retires a version, or restores a retired one."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.RetireVersion"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    def_id: str
    """The version."""
    retired: bool = True
    """True retires it, false restores it."""
    why: str = ''
    """Reason, for people."""


class RollBack(Record, frozen=True, kw_only=True):
    """Makes the version active that was so before the active one."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.RollBack"
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    why: str = ''
    """Reason, for people."""
    by_agent_id: str = ''
    """Handle of the agent that asked; empty for people and services."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""
    content: str = ''
    """Content of the version, if the line no longer holds it."""


class SettleStage(Record, frozen=True, kw_only=True):
    """Ends a stage: the version is active, or is none."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.SettleStage"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    batch: str
    """Id of the batch."""
    is_applied: bool
    """Whether it is active now."""
    by: str = ''
    """Subject of the principal or name of the service that asked for the batch."""
    why: str = ''
    """Reason of the batch, for people."""


class StageVersion(Record, frozen=True, kw_only=True):
    """Makes a version that is active once its batch is applied."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.StageVersion"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "kind", "name", "batch", "content", "content_blob", "content_sha256", "tools", "root_tools",
        "parent_def_id", "base_content", "base_blob", "base_sha256", "expect_active", "description",
        "created_by_agent_id", "created_by_agent", "created_by_run_id", "change", "by",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"content": "text", "description": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    kind: str
    """Kind of definition: agent, skill, team, ..."""
    name: str
    """Name of the definition within its tenant and kind."""
    batch: str
    """Id of the batch."""
    change: int
    """Number of the change, from 0."""
    content: str = ''
    """The definition as canonical JSON; empty when it lies in content_blob."""
    content_blob: BlobRef | None = None
    """Where a long definition lies."""
    content_sha256: str = ''
    """Content hash, 'sha256:' and 64 hex digits."""
    tools: tuple[str, ...] | None = None
    """Tools that the content grants; null for kinds without tools."""
    root_tools: tuple[str, ...] | None = None
    """Tools of the root of the lineage; null: any."""
    parent_def_id: str = ''
    """Version that it was made from; empty for a first one."""
    base_content: str = ''
    """What the configuration files say, if it is made from that; canonical JSON."""
    base_blob: BlobRef | None = None
    """Where that lies when it is long."""
    base_sha256: str = ''
    """Content hash of that."""
    expect_active: str | None = None
    """Refuse unless this is the id of the active version, empty for none; null: whatever it is."""
    description: str = ''
    """Why this version was made."""
    created_by_agent_id: str = ''
    """Handle of the agent that made it; empty for people and services."""
    created_by_agent: str = ''
    """Name of that agent."""
    created_by_run_id: str = ''
    """Run that made it; empty for people and services."""
    by: str = ''
    """Subject of the principal or name of the service that asked for the batch."""


class SubmitJudgement(Record, frozen=True, kw_only=True):
    """Judges a run of a definition."""

    SCHEMA: ClassVar[str] = "loom.definition.commands.SubmitJudgement"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "kind", "name", "eval_id", "run_id", "def_id", "version", "score", "dimensions", "judgement",
        "rationale", "emitter_role", "emitter_agent_id", "emitter_run_id", "user_id",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"judgement": "text", "rationale": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
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


RECORDS = (
    AnswerStage,
    ApplyDefinitions,
    DefineVersion,
    DeleteLine,
    ForkVersion,
    ObserveStatic,
    PromoteVersion,
    RetireVersion,
    RollBack,
    SettleStage,
    StageVersion,
    SubmitJudgement,
)
Command = AnswerStage | ApplyDefinitions | DefineVersion | DeleteLine | ForkVersion | ObserveStatic | PromoteVersion | RetireVersion | RollBack | SettleStage | StageVersion | SubmitJudgement
