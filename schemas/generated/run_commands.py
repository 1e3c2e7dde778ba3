"""Records of the namespace loom.run.commands."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import Any, ClassVar, Self

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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


class CancelTurn(Record, frozen=True, kw_only=True):
    """Stop the turn of an interactive run; the run itself waits for input then."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CancelTurn"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Why."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


class CloseResident(Record, frozen=True, kw_only=True):
    """Close a resident child."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CloseResident"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The child."""
    reason: str = ''
    """Why."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


class CompactRun(Record, frozen=True, kw_only=True):
    """Replace the conversation of a parked run by a summary and its last messages."""

    SCHEMA: ClassVar[str] = "loom.run.commands.CompactRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Why, for people."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "origin_run_id": self.origin_run_id,
            "at_seq": self.at_seq,
            "run_id": self.run_id,
            "agent_id": self.agent_id,
            "agent": self.agent,
            "definition": self.definition,
            "overrides": None if self.overrides is None else self.overrides.to_avro(),
            "prompt": self.prompt,
            "segments": [item.to_avro() for item in self.segments],
            "interactive": self.interactive,
            "idempotency_key": self.idempotency_key,
            "request_sha256": self.request_sha256,
            "seed": self.seed,
            "credentials": self.credentials,
            "after": self.after,
            "operator_key_restricted": self.operator_key_restricted,
            "user_id": self.user_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            origin_run_id=value["origin_run_id"],
            at_seq=value["at_seq"],
            run_id=value["run_id"],
            agent_id=value["agent_id"],
            agent=value["agent"],
            definition=value["definition"],
            overrides=None if value["overrides"] is None else DefinitionOverrides.from_avro(value["overrides"]),
            prompt=value["prompt"],
            segments=tuple(Segment.from_avro(item) for item in value["segments"]),
            interactive=value["interactive"],
            idempotency_key=value["idempotency_key"],
            request_sha256=value["request_sha256"],
            seed=value["seed"],
            credentials=tuple(value["credentials"]),
            after=tuple(value["after"]),
            operator_key_restricted=value["operator_key_restricted"],
            user_id=value["user_id"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "interrupt_id": self.interrupt_id,
            "is_approved": self.is_approved,
            "reason": self.reason,
            "scopes": self.scopes,
            "surface": self.surface,
            "arguments_sha256": self.arguments_sha256,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            interrupt_id=value["interrupt_id"],
            is_approved=value["is_approved"],
            reason=value["reason"],
            scopes=tuple(value["scopes"]),
            surface=value["surface"],
            arguments_sha256=value["arguments_sha256"],
        )


class HandOverModelReply(Record, frozen=True, kw_only=True):
    """From a former owner to the present one: a model call returned after the partition was gone. Taken if that
    attempt is open.
    """

    SCHEMA: ClassVar[str] = "loom.run.commands.HandOverModelReply"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "turn": self.turn,
            "attempt": self.attempt,
            "text": self.text,
            "text_blob": None if self.text_blob is None else self.text_blob.to_avro(),
            "reasoning": self.reasoning,
            "reasoning_signature": self.reasoning_signature,
            "tool_calls": [item.to_avro() for item in self.tool_calls],
            "effect_classes": self.effect_classes,
            "reconcilable": self.reconcilable,
            "stop_reason": self.stop_reason,
            "usage": self.usage.to_avro(),
            "provider": self.provider,
            "model": self.model,
            "max_context_tokens": self.max_context_tokens,
            "cost_micros": self.cost_micros,
            "currency": self.currency,
            "duration_ms": self.duration_ms,
            "traceparent": self.traceparent,
            "notices": [item.to_avro() for item in self.notices],
            "interruption_requests": [item.to_avro() for item in self.interruption_requests],
            "credential_source": self.credential_source,
            "credential_scope": self.credential_scope,
            "verdicts": [item.to_avro() for item in self.verdicts],
            "output": None if self.output is None else self.output.to_avro(),
            "tool_lists": [item.to_avro() for item in self.tool_lists],
            "cases": [item.to_avro() for item in self.cases],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            turn=value["turn"],
            attempt=value["attempt"],
            text=value["text"],
            text_blob=None if value["text_blob"] is None else BlobRef.from_avro(value["text_blob"]),
            reasoning=value["reasoning"],
            reasoning_signature=value["reasoning_signature"],
            tool_calls=tuple(ToolCall.from_avro(item) for item in value["tool_calls"]),
            effect_classes=tuple(value["effect_classes"]),
            reconcilable=tuple(value["reconcilable"]),
            stop_reason=value["stop_reason"],
            usage=Usage.from_avro(value["usage"]),
            provider=value["provider"],
            model=value["model"],
            max_context_tokens=value["max_context_tokens"],
            cost_micros=value["cost_micros"],
            currency=value["currency"],
            duration_ms=value["duration_ms"],
            traceparent=value["traceparent"],
            notices=tuple(LimitNotice.from_avro(item) for item in value["notices"]),
            interruption_requests=tuple(InterruptionRequest.from_avro(item) for item in value["interruption_requests"]),
            credential_source=value["credential_source"],
            credential_scope=value["credential_scope"],
            verdicts=tuple(CallVerdict.from_avro(item) for item in value["verdicts"]),
            output=None if value["output"] is None else OutputCheck.from_avro(value["output"]),
            tool_lists=tuple(ToolListPin.from_avro(item) for item in value["tool_lists"]),
            cases=tuple(VerdictCase.from_avro(item) for item in value["cases"]),
        )


class HandOverToolResult(Record, frozen=True, kw_only=True):
    """From a former owner to the present one: a tool call returned after the partition was gone. Taken if that
    attempt is open.
    """

    SCHEMA: ClassVar[str] = "loom.run.commands.HandOverToolResult"
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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "turn": self.turn,
            "index": self.index,
            "attempt": self.attempt,
            "text": self.text,
            "text_blob": None if self.text_blob is None else self.text_blob.to_avro(),
            "is_error": self.is_error,
            "outcome": self.outcome,
            "duration_ms": self.duration_ms,
            "asks_compaction": self.asks_compaction,
            "hook_acts": [item.to_avro() for item in self.hook_acts],
            "positions": self.positions,
            "skill_pin": None if self.skill_pin is None else self.skill_pin.to_avro(),
            "channels": [item.to_avro() for item in self.channels],
            "leases": [item.to_avro() for item in self.leases],
            "whole_blob": None if self.whole_blob is None else self.whole_blob.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            turn=value["turn"],
            index=value["index"],
            attempt=value["attempt"],
            text=value["text"],
            text_blob=None if value["text_blob"] is None else BlobRef.from_avro(value["text_blob"]),
            is_error=value["is_error"],
            outcome=value["outcome"],
            duration_ms=value["duration_ms"],
            asks_compaction=value["asks_compaction"],
            hook_acts=tuple(HookAct.from_avro(item) for item in value["hook_acts"]),
            positions=tuple(value["positions"]),
            skill_pin=None if value["skill_pin"] is None else SkillPin.from_avro(value["skill_pin"]),
            channels=tuple(ChannelUse.from_avro(item) for item in value["channels"]),
            leases=tuple(LeaseRef.from_avro(item) for item in value["leases"]),
            whole_blob=None if value["whole_blob"] is None else BlobRef.from_avro(value["whole_blob"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "origin": self.origin.to_avro(),
            "first_seq": self.first_seq,
            "events": self.events,
            "continues": self.continues,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            origin=ImportOrigin.from_avro(value["origin"]),
            first_seq=value["first_seq"],
            events=tuple(value["events"]),
            continues=value["continues"],
        )


class PauseRun(Record, frozen=True, kw_only=True):
    """Stop a run before its next model call until it is resumed."""

    SCHEMA: ClassVar[str] = "loom.run.commands.PauseRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "text": self.text,
            "source": self.source,
            "text_blob": None if self.text_blob is None else self.text_blob.to_avro(),
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            text=value["text"],
            source=value["source"],
            text_blob=None if value["text_blob"] is None else BlobRef.from_avro(value["text_blob"]),
        )


class QuarantineRun(Record, frozen=True, kw_only=True):
    """Park a run until an operator releases it: its calls are stopped and nothing of it goes on."""

    SCHEMA: ClassVar[str] = "loom.run.commands.QuarantineRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


class ReleaseRun(Record, frozen=True, kw_only=True):
    """Fold a quarantined run again from the log and let it go on."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ReleaseRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""
    reason: str = ''
    """Kept in the event."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "reason": self.reason,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            reason=value["reason"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "turn": self.turn,
            "index": self.index,
            "wait_id": self.wait_id,
            "queue": self.queue.to_avro(),
            "lease_id": self.lease_id,
            "positions": self.positions,
            "count": self.count,
            "is_expired": self.is_expired,
            "attempts": self.attempts,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            turn=value["turn"],
            index=value["index"],
            wait_id=value["wait_id"],
            queue=QueueRef.from_avro(value["queue"]),
            lease_id=value["lease_id"],
            positions=tuple(value["positions"]),
            count=value["count"],
            is_expired=value["is_expired"],
            attempts=tuple(value["attempts"]),
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "turn": self.turn,
            "index": self.index,
            "done": self.done,
            "result": self.result,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            turn=value["turn"],
            index=value["index"],
            done=value["done"],
            result=value["result"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
            "interrupt_id": self.interrupt_id,
            "disposition": self.disposition,
            "answer": self.answer,
            "resolved_by": self.resolved_by,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
            interrupt_id=value["interrupt_id"],
            disposition=value["disposition"],
            answer=value["answer"],
            resolved_by=value["resolved_by"],
        )


class ResumeRun(Record, frozen=True, kw_only=True):
    """Let a run go on that was paused by PauseRun."""

    SCHEMA: ClassVar[str] = "loom.run.commands.ResumeRun"

    envelope: CommandEnvelope
    """Who asks, when, under which id."""
    run_id: str
    """The run."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "run_id": self.run_id,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            run_id=value["run_id"],
        )


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

    def to_avro(self) -> dict[str, Any]:
        return {
            "envelope": self.envelope.to_avro(),
            "agent": self.agent,
            "prompt": self.prompt,
            "segments": [item.to_avro() for item in self.segments],
            "run_id": self.run_id,
            "session_id": self.session_id,
            "agent_id": self.agent_id,
            "user_id": self.user_id,
            "options": self.options.to_avro(),
            "tools": None if self.tools is None else list(self.tools),
            "sampling": None if self.sampling is None else self.sampling.to_avro(),
            "idempotency_key": self.idempotency_key,
            "request_sha256": self.request_sha256,
            "continues": None if self.continues is None else self.continues.to_avro(),
            "compaction": None if self.compaction is None else self.compaction.to_avro(),
            "seed": self.seed,
            "after": self.after,
            "output_schema": self.output_schema,
            "output_retries": self.output_retries,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            envelope=CommandEnvelope.from_avro(value["envelope"]),
            agent=value["agent"],
            prompt=value["prompt"],
            segments=tuple(Segment.from_avro(item) for item in value["segments"]),
            run_id=value["run_id"],
            session_id=value["session_id"],
            agent_id=value["agent_id"],
            user_id=value["user_id"],
            options=RunOptions.from_avro(value["options"]),
            tools=None if value["tools"] is None else tuple(value["tools"]),
            sampling=None if value["sampling"] is None else Sampling.from_avro(value["sampling"]),
            idempotency_key=value["idempotency_key"],
            request_sha256=value["request_sha256"],
            continues=None if value["continues"] is None else RunPosition.from_avro(value["continues"]),
            compaction=None if value["compaction"] is None else Compaction.from_avro(value["compaction"]),
            seed=value["seed"],
            after=tuple(value["after"]),
            output_schema=value["output_schema"],
            output_retries=value["output_retries"],
        )


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
