"""JSON of the answers about state files, and the document in one: services/stream/archive/state_file.py writes it.

Before: snapshot_endpoints.py. After: openapi.py.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from loomlog.services.application.queries.json_types import JsonObject, LeftOut, StateFile


class StateFileList(TypedDict):
    """Stored state files, newest first."""

    entries: list[StateFile]


class StatePause(TypedDict):
    """A pause wider than a run."""

    scope: str
    tenant: str
    agent: str
    reason: str
    by: str
    at_ms: int
    paused: Literal[True]


class StateLimit(TypedDict):
    """A budget limit, with what was spent under it in `month`."""

    scope: str
    tenant: str
    scope_id: str
    soft_tokens: int | None
    hard_tokens: int | None
    soft_micros: int | None
    hard_micros: int | None
    strict: bool
    currency: str
    month: str
    used_tokens: int
    used_micros: int


class StateSchema(TypedDict):
    """The Avro schema of a record."""

    id: int
    name: str
    version: int
    schema: JsonObject


class StateBlobPart(TypedDict):
    """A part of a payload that events refer to; `data` is base64."""

    sha256: str
    size_bytes: int
    media_type: str
    last: bool
    data: str


class StateRun(TypedDict):
    """The head of a run; its events follow."""

    kind: Literal["run"]
    run_id: str
    tenant: str
    partition: int
    first_offset: int
    events: int
    tail_digest: str
    is_over: bool


class StateAggregate(TypedDict):
    """The head of an aggregate of another family; its events follow."""

    kind: Literal["aggregate"]
    aggregate: str
    tenant: str
    partition: int
    first_offset: int
    events: int
    tail_digest: str
    topic: NotRequired[str]


class StateEvent(TypedDict):
    """An event of the run or aggregate whose head came last; `value` is base64."""

    kind: Literal["event"]
    offset: int
    value: str


class StateOmission(TypedDict):
    """Aggregates of a family that are not in the file. `aggregates` 0: how many is not known."""

    family: str
    aggregates: int
    events: int
    reason: str


class StateSection(TypedDict):
    """A section of a state file: its version, then its entries."""

    version: int


class StatePauses(StateSection):
    """Pauses."""

    entries: list[StatePause]


class StateLimits(StateSection):
    """Budget limits."""

    entries: list[StateLimit]


class StateSchemas(StateSection):
    """Schemas of the records."""

    entries: list[StateSchema]


class StateBlobs(StateSection):
    """Payloads, in parts."""

    entries: list[StateBlobPart]


class StateRuns(StateSection):
    """Runs: of each its head, then its events."""

    entries: list[StateRun | StateEvent]


class StateEntities(StateSection):
    """Aggregates of other families: of each its head, then its events."""

    entries: list[StateAggregate | StateEvent]


class StateOmissions(StateSection):
    """What is not in the file."""

    entries: list[StateOmission]


class StateSections(TypedDict):
    """The sections of a state file; those that its format version does not have are absent."""

    pauses: StatePauses
    limits: NotRequired[StateLimits]
    schemas: StateSchemas
    blobs: StateBlobs
    runs: StateRuns
    entities: NotRequired[StateEntities]
    left_out: NotRequired[StateOmissions]


class State(TypedDict):
    """The content of a state file. Positions are by partition: it covers all records below these offsets."""

    format: str
    schema_version: int
    created_at: str
    label: str
    tenant: str
    topic: str
    reducer_version: int
    include_history: bool
    positions: Mapping[str, int]
    entity_topic: NotRequired[str]
    entity_positions: NotRequired[Mapping[str, int]]
    further_positions: NotRequired[Mapping[str, Mapping[str, int]]]
    sections: StateSections
    counts: Mapping[str, int]
    sha256: str


class StateFileContent(StateFile):
    """A stored state file with its content."""

    json_content: State


class Restored(TypedDict):
    """Counts of a restore; `runs_skipped` and `aggregates_skipped` were here before and are unchanged."""

    dry_run: bool
    runs_restored: int
    runs_continued: int
    runs_skipped: int
    runs_failed: int
    runs_sealed: int
    events_restored: int
    pauses_restored: int
    limits_restored: int
    blobs_restored: int
    aggregates_restored: int
    aggregates_skipped: int
    aggregates_failed: int
    aggregate_events_restored: int
    memory_restored: int
    """Keys of memory that were brought back."""
    left_out: list[LeftOut]
    """What the file does not have."""
    warnings: list[str]
    positions: list[str]
