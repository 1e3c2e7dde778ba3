"""Records of the namespace loom.run.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import (
    BlobRef,
    CallVerdict,
    ChannelUse,
    CommandEnvelope,
    Compaction,
    DefinitionOverrides,
    HookAct,
    ImportOrigin,
    InterruptionRequest,
    LeaseRef,
    LimitNotice,
    OutputCheck,
    QueueRef,
    RunOptions,
    RunPosition,
    Sampling,
    Segment,
    SkillPin,
    ToolCall,
    ToolListPin,
    Usage,
    VerdictCase,
)
from loomlog.schemas.records import Record


class CancelRun(Record, frozen=True, kw_only=True):
    """End a run from outside; a run that has ended stays as it is."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CancelRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""


class CancelTurn(Record, frozen=True, kw_only=True):
    """Stop the turn of an interactive run; the run itself waits for input then."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CancelTurn"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Why."""


class CloseResident(Record, frozen=True, kw_only=True):
    """Close a resident child."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CloseResident"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The child."""
    reason: str = ''
    """Why."""


class CompactRun(Record, frozen=True, kw_only=True):
    """Replace the conversation of a parked run by a summary and its last messages."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CompactRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Why, for people."""


class ForkRun(Record, frozen=True, kw_only=True):
    """Start a run that shares the events 1 to at_seq of another and makes new calls from there."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ForkRun"
    CONTENT: ClassVar[Mapping[str, str]] = {"prompt": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    origin_run_id: str
    """The run to fork; its key is the record's key."""
    at_seq: int
    """Last event that is shared, from 1."""
    run_id: str = ''
    """Chosen id of the fork under the origin's key, see schemas/ids.py; empty: derived from the command id."""
    agent_id: str = ''
    """Handle chosen by the caller; empty: derived from the run id."""
    agent: str = ''
    """Agent whose current definition the fork is pinned to; empty: what `definition` says of the origin's."""
    definition: str = ''
    """Empty: the definition the origin is pinned to. current: that of its agent now. Otherwise the beginning of a
    definition's SHA-256.
    """
    overrides: DefinitionOverrides | None = None
    """Changes of that definition."""
    prompt: str = ''
    """Short for one trusted user text; used when segments is empty."""
    segments: tuple[Segment, ...] = ()
    """What is said at the fork, role user only; needed where the prefix ends with an answer."""
    interactive: bool | None = None
    """Park instead of completing; null: as the origin."""
    idempotency_key: str = ''
    """With it the same key gives the same fork for ever."""
    request_sha256: str = ''
    """Hash of the request under an idempotency key."""
    seed: str = ''
    """Empty for a run that works. copy: it only holds the conversation it goes on with; compact: in a summary."""
    credentials: tuple[str, ...] = ()
    """Names of the credentials that came with the request; their values are kept outside the log, sealed, until
    the run ends.
    """
    after: tuple[str, ...] = ()
    """Positions in loom.entity.events, <topic>/<partition>:<offset>: the owner reads as far before it decides, so
    that it knows what the sender knows (limits).
    """
    operator_key_restricted: bool = False
    """Its principal may not spend the operator's provider keys; neither may the fork."""
    user_id: str = ''
    """End user of a fork of a run that was imported and not restored. Every other fork has the user of its origin."""


class GiveApproval(Record, frozen=True, kw_only=True):
    """Approve or deny a call of a run."""

    SCHEMA: ClassVar[str] = "loom.run.commands.GiveApproval"
    CONTENT: ClassVar[Mapping[str, str]] = {"reason": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    interrupt_id: str
    """Names the approval in the run."""
    is_approved: bool
    """False: denied."""
    reason: str = ''
    """Why."""
    scopes: tuple[str, ...] = ()
    """Scopes of access that the sender holds."""
    surface: str = ''
    """Where it was said, such as http or mcp."""
    arguments_sha256: str = ''
    """Hash of the arguments that the sender was shown; empty: not compared."""


class HandOverModelReply(Record, frozen=True, kw_only=True):
    """From a former owner to the present one: a model call returned after the partition was gone. Taken if that
    attempt is open.
    """

    SCHEMA: ClassVar[str] = "loom.run.commands.HandOverModelReply"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "run_id", "turn", "attempt", "text", "text_blob", "reasoning", "reasoning_signature", "tool_calls",
        "effect_classes", "reconcilable", "stop_reason", "usage", "provider", "model", "max_context_tokens",
        "cost_micros", "currency", "duration_ms", "traceparent", "notices", "interruption_requests",
        "credential_source", "credential_scope", "verdicts", "output", "tool_lists", "cases",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text", "reasoning": "text", "reasoning_signature": "text"}

    envelope: CommandEnvelope
    """The former owner, when, under which id."""
    run_id: str
    """The run."""
    turn: int
    """Model turn, from 1."""
    attempt: int
    """Attempt that returned."""
    stop_reason: str
    """Why the model stopped."""
    usage: Usage
    """Tokens."""
    provider: str
    """Provider that answered."""
    model: str
    """Model that answered."""
    duration_ms: int
    """Time of the call."""
    text: str = ''
    """Answer."""
    text_blob: BlobRef | None = None
    """The answer when it is over the inline limit."""
    reasoning: str = ''
    """Reasoning text."""
    reasoning_signature: str = ''
    """What the provider wants back with it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls the model asks for."""
    effect_classes: tuple[str, ...] = ()
    """Effect class of each call."""
    reconcilable: tuple[bool, ...] = ()
    """For each call: its tool can be asked about it."""
    max_context_tokens: int = 0
    """Context window; 0 = unknown."""
    cost_micros: int = 0
    """Millionths of currency."""
    currency: str = ''
    """Of the cost."""
    traceparent: str = ''
    """Span of the call."""
    notices: tuple[LimitNotice, ...] = ()
    """Soft limits on spending that are reached now that the call is counted."""
    interruption_requests: tuple[InterruptionRequest, ...] = ()
    """What its calls of the tool Interruption ask for."""
    credential_source: str = ''
    """Whose key the call was made with: run, operator; empty = it needed none."""
    credential_scope: str = ''
    """Of which one: the id of the run the key came with; empty for the operator's."""
    verdicts: tuple[CallVerdict, ...] = ()
    """What the rules of the run say about its calls."""
    output: OutputCheck | None = None
    """The answer against the output schema of the run; null: it has none, or the answer is not final."""
    tool_lists: tuple[ToolListPin, ...] = ()
    """Lists of MCP servers whose tools the model was shown; empty: those of the turn before, or none."""
    cases: tuple[VerdictCase, ...] = ()
    """What the rules say about calls that depend on totals of the tree."""


class HandOverToolResult(Record, frozen=True, kw_only=True):
    """From a former owner to the present one: a tool call returned after the partition was gone. Taken if that
    attempt is open.
    """

    SCHEMA: ClassVar[str] = "loom.run.commands.HandOverToolResult"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "envelope", "run_id", "turn", "index", "attempt", "text", "text_blob", "is_error", "outcome", "duration_ms",
        "asks_compaction", "hook_acts", "positions", "skill_pin", "channels", "leases", "whole_blob",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    envelope: CommandEnvelope
    """The former owner, when, under which id."""
    run_id: str
    """The run."""
    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    attempt: int
    """Attempt that returned."""
    outcome: str
    """ok, error, timeout, cancelled or denied."""
    text: str = ''
    """Result the model sees."""
    text_blob: BlobRef | None = None
    """The result when it is over the inline limit."""
    is_error: bool = False
    """The model is told that it failed."""
    duration_ms: int = 0
    """Time of the call."""
    asks_compaction: bool = False
    """The run asked for a compaction with this call; it comes before the next turn."""
    hook_acts: tuple[HookAct, ...] = ()
    """What hooks did about the call."""
    positions: tuple[str, ...] = ()
    """As in ToolReturned."""
    skill_pin: SkillPin | None = None
    """As in ToolReturned."""
    channels: tuple[ChannelUse, ...] = ()
    """As in ToolReturned."""
    leases: tuple[LeaseRef, ...] = ()
    """As in ToolReturned."""
    whole_blob: BlobRef | None = None
    """The whole result, when the model sees a part of it because it would take too much of its window."""


class ImportRun(Record, frozen=True, kw_only=True):
    """Take in a part of a run that happened elsewhere; parts come in order, and one that was taken in before
    changes nothing.
    """

    SCHEMA: ClassVar[str] = "loom.run.commands.ImportRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run, under the id it had."""
    origin: ImportOrigin
    """Where it happened."""
    first_seq: int
    """Seq of the first event of this part, from 1."""
    events: tuple[bytes, ...]
    """The events in order, each a record of schemas/ids.json with the envelope it had."""
    continues: bool = False
    """A run that was still under way goes on here after the last part, as after a take-over; otherwise it ends as
    cancelled.
    """


class PauseRun(Record, frozen=True, kw_only=True):
    """Stop a run before its next model call until it is resumed."""

    SCHEMA: ClassVar[str] = "loom.run.commands.PauseRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""


class PostInput(Record, frozen=True, kw_only=True):
    """Give a parked or working interactive run the next user text."""

    SCHEMA: ClassVar[str] = "loom.run.commands.PostInput"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    text: str
    """User text."""
    source: str = 'api'
    """api or webui."""
    text_blob: BlobRef | None = None
    """Where a long text lies; text is empty then."""


class QuarantineRun(Record, frozen=True, kw_only=True):
    """Park a run until an operator releases it: its calls are stopped and nothing of it goes on."""

    SCHEMA: ClassVar[str] = "loom.run.commands.QuarantineRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""


class ReleaseRun(Record, frozen=True, kw_only=True):
    """Fold a quarantined run again from the log and let it go on."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ReleaseRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""


class ReportWait(Record, frozen=True, kw_only=True):
    """Tell a tool call that waits for channels what has happened in a queue."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ReportWait"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    turn: int
    """Turn of the call."""
    index: int
    """Place in that turn."""
    wait_id: str
    """Id of the wait: the idempotency key of the call."""
    queue: QueueRef
    """The queue that reports."""
    lease_id: str = ''
    """Lease with the messages for the call; empty: none."""
    positions: tuple[int, ...] = ()
    """Places of these messages in the queue."""
    count: int = 0
    """Messages that are there, for a call that awaits several queues."""
    is_expired: bool = False
    """The time of the wait is over."""
    attempts: tuple[int, ...] = ()
    """How often the reader was given each of them, this time included, in the order of positions; empty: all for
    the first time.
    """


class ResolveCall(Record, frozen=True, kw_only=True):
    """Say what became of a tool call that waits for it (ToolOutcomeAsked)."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ResolveCall"
    CONTENT: ClassVar[Mapping[str, str]] = {"result": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    turn: int
    """Model turn of the call."""
    index: int
    """Place in that turn, from 0."""
    done: bool
    """It had its effect; otherwise it had none and is made again."""
    result: str = ''
    """What the model is told when it is done; empty: that it is done."""


class ResolveInterruption(Record, frozen=True, kw_only=True):
    """Answer a question of a run, or decline to."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ResolveInterruption"
    CONTENT: ClassVar[Mapping[str, str]] = {"answer": "text", "resolved_by": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    interrupt_id: str
    """The question."""
    disposition: str = 'answer'
    """answer or declined."""
    answer: str = ''
    """What the person says; one of the options where there are some."""
    resolved_by: str = ''
    """Who says it, as the sender names them; empty: the sender."""


class ResumeRun(Record, frozen=True, kw_only=True):
    """Let a run go on that was paused by PauseRun."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ResumeRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""


class StartRun(Record, frozen=True, kw_only=True):
    """Start a run. Only envelope.command_id, agent and prompt or segments are needed."""

    SCHEMA: ClassVar[str] = "loom.run.commands.StartRun"
    CONTENT: ClassVar[Mapping[str, str]] = {"prompt": "text"}

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    agent: str
    """Name of the agent."""
    prompt: str = ''
    """Short for one trusted user text; used when segments is empty."""
    segments: tuple[Segment, ...] = ()
    """The request in full."""
    run_id: str = ''
    """Chosen run id, see schemas/ids.py; empty: derived from the command id."""
    session_id: str = ''
    """Session to continue; empty: a new one."""
    agent_id: str = ''
    """Handle chosen by the caller; empty: derived from the run id."""
    user_id: str = ''
    """End user on whose behalf the run works."""
    options: RunOptions = RunOptions()
    """Options of the run."""
    tools: tuple[str, ...] | None = None
    """Narrows the agent's tools; null leaves them."""
    sampling: Sampling | None = None
    """Overrides the definition's field by field."""
    idempotency_key: str = ''
    """With it the same key gives the same run for ever; without it a repeated command_id is recognised for a
    while.
    """
    request_sha256: str = ''
    """Hash of the request under an idempotency key, to refuse the key for another request."""
    continues: RunPosition | None = None
    """Hint where the session's last run lies; the owner verifies it."""
    compaction: Compaction | None = None
    """Overrides the definition's field by field."""
    seed: str = ''
    """Empty for a run that works. copy: it only holds the conversation it goes on with; compact: in a summary."""
    after: tuple[str, ...] = ()
    """Positions in loom.entity.events, <topic>/<partition>:<offset>: the owner reads as far before it decides, so
    that it knows what the sender knows (limits).
    """
    output_schema: str = ''
    """JSON Schema of the final answer, as JSON text, instead of the definition's; empty: that of the definition."""
    output_retries: int | None = None
    """How often the model may correct its answer, 0 to 10; null: as the definition says."""


RECORDS = (
    CancelRun,
    CancelTurn,
    CloseResident,
    CompactRun,
    ForkRun,
    GiveApproval,
    HandOverModelReply,
    HandOverToolResult,
    ImportRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ReportWait,
    ResolveCall,
    ResolveInterruption,
    ResumeRun,
    StartRun,
)
Command = CancelRun | CancelTurn | CloseResident | CompactRun | ForkRun | GiveApproval | HandOverModelReply | HandOverToolResult | ImportRun | PauseRun | PostInput | QuarantineRun | ReleaseRun | ReportWait | ResolveCall | ResolveInterruption | ResumeRun | StartRun
