"""JSON of runs, questions, records of the log and runs as they were: the types that the shaping functions return.

mypy checks the shaping functions against these classes, and the OpenAPI document is derived from them, so neither can
drift (services/api/openapi.py). Times are RFC 3339, money is in millionths of `currency`. A value that is not known is
null; a key is absent only where it is `NotRequired`.

Before: run_json.py and history_json.py return them. After: every transport.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from loomlog.projections.runs import RunStatus
from loomlog.schemas.generated.values import AgentDefinition, BlobRef, ForkPoint, LimitNotice, Usage
from loomlog.services.application.queries.record_json import RecordJson

AwaitedState = Literal["interrupted", "awaiting_input"]
"""Waits of a run: for an answer to its question, or parked for further input."""
ResidentState = Literal["running", "awaiting_input", "completed", "failed", "cancelled", "closed"]
Json = Any
"""Any JSON value."""
JsonObject = Mapping[str, Any]
BlobJson = Annotated[JsonObject, RecordJson(BlobRef)]
DefinitionJson = Annotated[JsonObject, RecordJson(AgentDefinition)]
ForkPointJson = Annotated[JsonObject, RecordJson(ForkPoint)]
LimitNoticeJson = Annotated[JsonObject, RecordJson(LimitNotice)]
UsageJson = Annotated[JsonObject, RecordJson(Usage)]


class RunUsage(TypedDict):
    """Tokens of a run so far."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    model: str
    provider: str
    max_context_tokens: int


class FinalUsage(TypedDict):
    """Tokens of a run that has ended, as its `done` frame has them."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: NotRequired[int]
    cache_read_input_tokens: NotRequired[int]
    model: NotRequired[str]
    provider: NotRequired[str]


class UsageDimensions(TypedDict, total=False):
    """The dimensions by which a row of a usage report is grouped; one without a value is absent."""

    tenant_id: str
    user_id: str
    provider: str
    model: str
    source: str
    agent: str
    day: str


class UsageCurrency(TypedDict, total=False):
    """The currency of a cost; absent where nothing has a price."""

    currency: str


class UsageRow(UsageDimensions, UsageCurrency):
    """Tokens and cost of a group. `cost` is for people, `cost_micros` is exact."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    cost: float
    cost_micros: int
    call_count: int
    unpriced_calls: int


class ContextFill(TypedDict):
    """Fill of the context window at the last answer of the model."""

    used_tokens: int
    max_tokens: int
    used_pct: float


class ForkedFrom(TypedDict):
    """The last event that a fork shares."""

    run_id: str
    seq: int


class RunOutput(TypedDict, total=False):
    """What a run with an output schema has besides."""

    output_schema_sha256: str
    result: Json
    """The record that the run answered with; null until it is completed."""


class Run(RunOutput):
    """A run."""

    agent_id: str
    run_id: str
    session_id: str
    agent: str
    tenant_id: str
    user_id: str
    user_tier: str | None
    parent_agent_id: str | None
    status: RunStatus
    started_at: str
    completed_at: str | None
    last_event_at: str
    stop_reason: str | None
    error: str | None
    error_code: str | None
    usage: RunUsage
    cost_micros: int
    currency: str | None
    iterations: int
    tool_calls: int
    tool_errors: int
    model_errors: int
    provider: str
    model: str
    context: ContextFill | None
    compactions: int
    live: bool
    interactive: bool
    parked: bool
    paused: bool
    pause_requested: bool
    pause_reason: str | None
    under_way: list[str]
    quarantined: bool
    quarantine_error: str | None
    last_heartbeat_at: None
    replica_id: None
    awaited_state: AwaitedState | None
    awaited_on: str | None
    resident: bool
    resident_state: ResidentState | None
    parent_run_id: str | None
    root_run_id: str
    depth: int
    children: int
    failed_children: int
    parent_context: Mapping[str, str] | None
    metadata: JsonObject | None
    continues_run_id: str | None
    forked_from: ForkedFrom | None
    imported_from: str | None
    definition_sha256: str | None
    def_id: str | None
    def_version: int | None
    traceparent: str | None
    position: str


class Resident(TypedDict):
    """A resident sub-agent."""

    child_run_id: str
    agent_id: str
    agent: str
    parent_agent_id: str
    tenant_id: str
    state: ResidentState
    idle_ttl_seconds: int
    last_used_at: str


class TranscriptFrame(TypedDict):
    """A stored frame of a transcript. `seq` rises over all runs of the session; as `from_seq` of a run's stream it
    means the frame's place in its run. `event` is what a stream sends of it, `payload` the segments of a user's input
    or of a system prompt.
    """

    seq: int
    run_id: str
    ts_ns: int
    type: str
    event: JsonObject
    payload: NotRequired[list[JsonObject]]


class Interrupt(TypedDict):
    """A question to a person, or a notice."""

    interrupt_id: str
    run_id: str
    session_id: str | None
    agent_id: str | None
    agent: str | None
    tenant_id: str | None
    user_id: str | None
    tool_use_id: str | None
    kind: str | None
    status: str | None
    question: str | None
    options: list[str]
    context: str | None
    priority: str | None
    created_at: str | None
    expires_at: str | None
    resolved_at: str | None
    answer: str | None
    resolved_by: str | None
    seq: int
    """Seq of the event of the run that asked it."""


class SessionSummary(TypedDict):
    """A session, described by its newest run."""

    id: str
    session_id: str
    tenant_id: str
    user_id: str
    user_tier: str | None
    agent: str
    last_run_id: str
    last_agent_id: str
    status: RunStatus
    last_event_at: str


class EventRecord(TypedDict):
    """A record of the log. `stale`: its writer was fenced, and readers ignore it."""

    position: str
    topic: str
    partition: int
    offset: int
    term: int
    seq: int
    run_id: str
    tenant_id: str
    type: str
    at: str
    cause_id: str | None
    cause_offset: int | None
    stale: bool
    payload: JsonObject


class TimelineEvent(TypedDict):
    """An event of one run."""

    seq: int
    offset: int
    term: int
    at: str
    type: str
    cause_id: str | None
    payload: JsonObject


class MessageBlock(TypedDict):
    """A block of a message."""

    type: Literal["text", "image", "tool_use", "tool_result"]
    text: NotRequired[str]
    media_type: NotRequired[str]
    id: NotRequired[str]
    name: NotRequired[str]
    input: NotRequired[str]
    tool_use_id: NotRequired[str]
    is_error: NotRequired[bool]
    blob: NotRequired[BlobJson]


class BlobText(TypedDict):
    """A text in the blob store."""

    blob: BlobJson


class ConversationMessage(TypedDict):
    """A message as a model receives it; payloads in the blob store are named."""

    role: Literal["user", "assistant"]
    content: list[MessageBlock]
    reasoning: NotRequired[str]


class OpenToolCall(TypedDict):
    """A tool call without a result; one with `channels` waits for these, and nothing of it is under way."""

    index: int
    id: str
    name: str
    attempt: int
    channels: NotRequired[list[str]]


class RunPhase(TypedDict):
    """What the run waits for."""

    phase: Literal["awaiting_model", "awaiting_tools", "parked", "paused", "compacting", "ended", "refused", "absent"]
    turn: int
    attempt: int | None
    open_calls: list[OpenToolCall]


class RunCounters(TypedDict, total=False):
    """Sums and pinned values of a run that was accepted."""

    reason: str | None
    turns: int
    usage: UsageJson
    cost_micros: int
    currency: str | None
    model_errors: int
    definition: DefinitionJson
    system: list[str | BlobText]
    inherited_messages: int
    waiting_inputs: list[str | BlobText]
    interactive: bool
    quarantined: str | None


class RunStateAt(RunPhase, RunCounters):
    """A run as it was after one of its events, folded from the log. `drift`: what does not fit, empty if all does."""

    run_id: str
    session_id: str
    at: int
    last_seq: int
    event: TimelineEvent | None
    status: str
    messages: list[ConversationMessage]
    forked_from: ForkPointJson | None
    forkable: bool
    not_forkable: str | None
    fork_needs_prompt: bool
    state_sha256: str
    tail_digest: str
    drift: list[str]


class RunReplay(TypedDict):
    """A run folded again from the log and compared with the read models."""

    run_id: str
    partition: int
    first_offset: int | None
    last_offset: int
    seq: int
    status: str
    state_sha256: str
    tail_digest: str
    stale: int
    continues: int
    compared: bool
    not_compared: str | None
    drift: list[str]
    first_drift_seq: int | None
    events: list[TimelineEvent]


class SharedEvent(TypedDict):
    """The last event that two runs share: of a fork and its origin, or of two forks of one origin."""

    run_id: str
    seq: int


class ComparedRun(TypedDict):
    """One side of a comparison. Turns, tokens and cost are counted from the event that both share, if there is one."""

    run_id: str
    at: int
    status: str
    stop_reason: str | None
    failed_children: int
    agent: str | None
    definition_sha256: str | None
    turns: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    currency: str | None
    forked_from: ForkPointJson | None
    state_sha256: str


class ComparedCall(TypedDict):
    """A tool call of a step."""

    name: str
    text: str
    is_error: bool


class ComparedStep(TypedDict):
    """A message of a conversation with what it cost."""

    who: str
    turn: int | None
    seq: int | None
    text: str
    calls: list[ComparedCall]
    model: str | None
    stop_reason: str | None
    input_tokens: int
    output_tokens: int
    cost_micros: int


class StepPair(TypedDict):
    """The steps of both runs at one place; `differs` names the fields."""

    place: int
    differs: list[str]
    a: ComparedStep | None
    b: ComparedStep | None


class ValueDifference(TypedDict):
    """A field that differs."""

    name: str
    a: Json
    b: Json


class RunComparison(TypedDict):
    """Two runs side by side; `first` is the first step that differs."""

    a: ComparedRun
    b: ComparedRun
    common: SharedEvent | None
    same: bool
    shared_steps: int
    first: StepPair | None
    definition: list[ValueDifference]
    system: list[ValueDifference]
    outcome: list[ValueDifference]
    steps: list[StepPair]


class LeftOut(TypedDict):
    """What a state file does not have of a family. `aggregates` null: how many is not known."""

    family: str
    aggregates: int | None
    events: int
    reason: str


class StateFile(TypedDict):
    """A stored state file: everything of an installation, or of a tenant."""

    id: str
    created_at: str
    created_by: str
    label: str
    tenant: str | None
    schema_version: int
    byte_size: int
    sha256: str
    include_history: bool
    runs: int
    live_runs: int
    events: int
    blobs: int
    pauses: int
    limits: int
    aggregates: int
    aggregate_events: int
    left_out: list[LeftOut]
    positions: list[str]
    warnings: list[str]
