"""Records of the namespace loom.run.events."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from loomlog.schemas.generated.values import (
    AgentDefinition,
    ApprovalVote,
    BlobRef,
    CallVerdict,
    ForkPoint,
    HookAct,
    ImportOrigin,
    LimitNotice,
    MemoryBanked,
    MemoryContext,
    ParentCall,
    QueueRef,
    ResultDetails,
    RunOptions,
    RunPosition,
    Segment,
    SkillPin,
    Spawn,
    ToolCall,
    ToolListPin,
    TreeTotal,
    Usage,
)
from loomlog.schemas.records import Record


class ApprovalDecided(Record, frozen=True, kw_only=True):
    """The rules of the run have decided about a call, before it is made."""

    SCHEMA: ClassVar[str] = "loom.run.events.ApprovalDecided"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "index", "call_id", "tool", "verdict", "arguments_sha256", "interrupt_id", "effect_class",
        "reconcilable",
    )

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    verdict: CallVerdict
    """What they say."""
    arguments_sha256: str
    """Hash of the call's arguments as the log has them, hex."""
    effect_class: str
    """pure, read, idempotent or unsafe."""
    tool: str = ''
    """Name of the tool that is called."""
    interrupt_id: str = ''
    """Of ask: names the approval in the run; empty otherwise."""
    reconcilable: bool = False
    """The tool can be asked whether a call that was lost has happened."""


class ApprovalEscalated(Record, frozen=True, kw_only=True):
    """The time of a group of approvers is over, and the next one is asked."""

    SCHEMA: ClassVar[str] = "loom.run.events.ApprovalEscalated"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    interrupt_id: str
    """Names the approval in the run."""
    group: int
    """Place of the group that is asked now, from 1."""
    expires_at_ms: int
    """When its time is over, UTC milliseconds."""


class ApprovalGiven(Record, frozen=True, kw_only=True):
    """A person has approved or denied a call that waits for it."""

    SCHEMA: ClassVar[str] = "loom.run.events.ApprovalGiven"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    interrupt_id: str
    """Names the approval in the run."""
    votes: tuple[ApprovalVote, ...]
    """What the people of the present group have said, the newest last."""
    status: str = 'pending'
    """pending: more people are needed; resolved: approved; declined: denied."""


class CallNotBegun(Record, frozen=True, kw_only=True):
    """The owner stopped as planned before it began this call: the next attempt repeats nothing."""

    SCHEMA: ClassVar[str] = "loom.run.events.CallNotBegun"

    kind: str
    """model or tool."""
    turn: int
    """Model turn of the call."""
    index: int
    """Place in that turn; 0 for model calls."""
    attempt: int
    """Attempt that was not begun."""


class CallWaiting(Record, frozen=True, kw_only=True):
    """A tool call waits for channels; nothing of it is under way."""

    SCHEMA: ClassVar[str] = "loom.run.events.CallWaiting"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn."""
    call_id: str
    """Id of the call."""
    attempt: int
    """Attempt that found nothing."""
    wait_id: str
    """Id of the wait: the idempotency key of the call."""
    until_ms: int
    """When it returns in any case, UTC milliseconds."""
    queues: tuple[QueueRef, ...]
    """What it waits for."""
    mode: str
    """subscribe; or of await: any, all, at_least."""
    needed: int = 0
    """Messages that at_least needs."""


class ChildRequested(Record, frozen=True, kw_only=True):
    """A child is due: it is started, or asked, as soon as this is in the log."""

    SCHEMA: ClassVar[str] = "loom.run.events.ChildRequested"

    turn: int
    """Turn of the call."""
    index: int
    """Place of the call in its turn, from 0."""
    call_id: str
    """Id of the call."""
    number: int = 0
    """Place of the child in the call, from 0."""
    child_run_id: str = ''
    """The child."""
    child_agent_id: str = ''
    """Its handle; empty for one that exists."""
    agent: str = ''
    """Its agent; empty for one that exists."""
    only_look: bool = False
    """The time to wait is over: how the child stands now is the answer."""


class ChildReturned(Record, frozen=True, kw_only=True):
    """What became of a child that a call waited for."""

    SCHEMA: ClassVar[str] = "loom.run.events.ChildReturned"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    turn: int
    """Turn of the call."""
    index: int
    """Place of the call in its turn, from 0."""
    call_id: str
    """Id of the call."""
    number: int = 0
    """Place of the child in the call, from 0."""
    child_run_id: str = ''
    """The child."""
    child_agent_id: str = ''
    """Its handle."""
    agent: str = ''
    """Its agent."""
    status: str = 'completed'
    """completed, failed, cancelled or refused; of a resident child also running, awaiting_input, undelivered or
    closed.
    """
    text: str = ''
    """Its last words, or why it has none."""
    text_blob: BlobRef | None = None
    """Instead of a long text."""


class ChildrenPlanned(Record, frozen=True, kw_only=True):
    """A call of the Agent tool was understood: what it wants of which children."""

    SCHEMA: ClassVar[str] = "loom.run.events.ChildrenPlanned"
    CONTENT: ClassVar[Mapping[str, str]] = {"prompt": "text"}

    turn: int
    """Turn of the call."""
    index: int
    """Place of the call in its turn, from 0."""
    call_id: str
    """Id of the call."""
    attempt: int = 1
    """Attempt of the call that gave this."""
    op: str = 'spawn'
    """spawn, parallel_spawn, open, send, poll, cancel or close."""
    spawns: tuple[Spawn, ...] = ()
    """Children to start; empty for what is wanted of one that exists."""
    child_run_id: str = ''
    """The resident child that is meant by send, poll, cancel and close."""
    prompt: str = ''
    """What send says to it."""
    timeout_ms: int = 0
    """How long to wait for a resident child; 0: poll looks once, the others wait until it parks."""
    idle_ttl_s: int = 0
    """Of a child that is opened: seconds parked after which it is closed."""
    is_sealed: bool = False
    """Texts of the children are encrypted."""
    is_looked_at: bool = False
    """Hooks look at the result of the call."""


class CommandRefused(Record, frozen=True, kw_only=True):
    """A command to a run under way was refused."""

    SCHEMA: ClassVar[str] = "loom.run.events.CommandRefused"

    code: str
    """Reason code."""
    message: str
    """What was wrong and what to do."""


class CompactionFailed(Record, frozen=True, kw_only=True):
    """There is no summary; the conversation stays as it is."""

    SCHEMA: ClassVar[str] = "loom.run.events.CompactionFailed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "number", "attempt", "turn", "trigger", "kind", "message", "usage", "provider", "model", "cost_micros",
        "currency", "duration_ms", "credential_source", "credential_scope",
    )

    number: int
    """Place among the compactions of the run, from 1."""
    turn: int
    """Model turn that comes after it."""
    trigger: str
    """manual, auto, self or overflow."""
    kind: str
    """Kind of the failed call, no_gain, empty, cut or interrupted."""
    usage: Usage
    """Tokens of the summary call."""
    provider: str
    """Provider of the summary call."""
    model: str
    """Model of the summary call."""
    attempt: int = 1
    """1, and one more for every owner that was lost during the call."""
    message: str = ''
    """What was wrong."""
    cost_micros: int = 0
    """Cost of the call in millionths of the currency."""
    currency: str = ''
    """Currency of the cost; empty when there is no price."""
    duration_ms: int = 0
    """Length of the call."""
    credential_source: str = ''
    """Whose key the call was made with: run, operator; empty = it needed none."""
    credential_scope: str = ''
    """Of which one: the id of the run the key came with; empty for the operator's."""


class CompactionRequested(Record, frozen=True, kw_only=True):
    """The conversation is to be replaced by a summary and its last messages; the summary call is due."""

    SCHEMA: ClassVar[str] = "loom.run.events.CompactionRequested"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "number", "attempt", "turn", "trigger", "keep_n", "keep_first", "before_tokens", "provider", "model",
    )

    number: int
    """Place among the compactions of the run, from 1."""
    turn: int
    """Model turn that comes after it."""
    trigger: str
    """manual, auto, self or overflow."""
    keep_n: int
    """Messages at the end that stay as they are."""
    keep_first: bool
    """The first user text stays as it is, in front of the summary."""
    before_tokens: int
    """Estimate of the conversation before it."""
    provider: str
    """Provider of the summary call."""
    model: str
    """Model of the summary call."""
    attempt: int = 1
    """1, and one more for every owner that was lost during the call."""


class ContextCompacted(Record, frozen=True, kw_only=True):
    """The conversation is now the first user text with a summary, and its last messages."""

    SCHEMA: ClassVar[str] = "loom.run.events.ContextCompacted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "number", "attempt", "turn", "trigger", "summary", "before_tokens", "after_tokens", "keep_n", "keep_first",
        "usage", "provider", "model", "cost_micros", "currency", "duration_ms", "credential_source", "credential_scope",
        "memory_banked",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"summary": "text"}

    number: int
    """Place among the compactions of the run, from 1."""
    turn: int
    """Model turn that comes after it."""
    trigger: str
    """manual, auto, self or overflow."""
    summary: str
    """What stands for the messages that are left out."""
    before_tokens: int
    """Estimate of the conversation before it."""
    after_tokens: int
    """Estimate of the conversation after it."""
    keep_n: int
    """Messages at the end that stay as they are."""
    keep_first: bool
    """The first user text stays as it is, in front of the summary."""
    usage: Usage
    """Tokens of the summary call."""
    provider: str
    """Provider of the summary call."""
    model: str
    """Model of the summary call."""
    attempt: int = 1
    """1, and one more for every owner that was lost during the call."""
    cost_micros: int = 0
    """Cost of the call in millionths of the currency."""
    currency: str = ''
    """Currency of the cost; empty when there is no price."""
    duration_ms: int = 0
    """Length of the call."""
    credential_source: str = ''
    """Whose key the call was made with: run, operator; empty = it needed none."""
    credential_scope: str = ''
    """Of which one: the id of the run the key came with; empty for the operator's."""
    memory_banked: MemoryBanked | None = None
    """What of the dialogue that is left out went to memory; null: it was not asked for."""


class FallbackSuppressed(Record, frozen=True, kw_only=True):
    """A fallback that was possible was not taken."""

    SCHEMA: ClassVar[str] = "loom.run.events.FallbackSuppressed"

    turn: int
    """Model turn."""
    attempt: int
    """Attempt that failed."""
    code: str
    """pinned_after_success or no_vision."""
    provider: str = ''
    """Provider that was not gone to; empty when none was looked at."""
    model: str = ''
    """Model that was not gone to."""


class HookActed(Record, frozen=True, kw_only=True):
    """A hook changed a tool call, or could not be asked about it. Decided together with the result of the call,
    and before it.
    """

    SCHEMA: ClassVar[str] = "loom.run.events.HookActed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "index", "call_id", "attempt", "act",
    )

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn."""
    call_id: str
    """Id of the call."""
    act: HookAct
    """Which hook, and what it did."""
    attempt: int = 1
    """Attempt it was asked about."""


class InputReceived(Record, frozen=True, kw_only=True):
    """A user text for a run under way."""

    SCHEMA: ClassVar[str] = "loom.run.events.InputReceived"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    text: str
    """User text."""
    source: str = 'api'
    """api or webui."""
    input_id: str = ''
    """Command id of the PostInput, so that the same text sent again is recognised by any owner of the run."""
    text_blob: BlobRef | None = None
    """Where a long text lies; text is empty then."""


class InterruptionClosed(Record, frozen=True, kw_only=True):
    """A question does not wait any more."""

    SCHEMA: ClassVar[str] = "loom.run.events.InterruptionClosed"
    CONTENT: ClassVar[Mapping[str, str]] = {"answer": "text", "resolved_by": "text"}

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    interrupt_id: str
    """Names it in the run."""
    status: str
    """resolved, declined, timed_out or cancelled."""
    answer: str = ''
    """What the person said."""
    resolved_by: str = ''
    """Who said it, as they were named."""
    by: str = ''
    """Subject of the caller who sent it; empty when no caller did."""
    resolution_id: str = ''
    """Command id of the ResolveInterruption, so that the same answer sent again is recognised."""


class InterruptionOpened(Record, frozen=True, kw_only=True):
    """A call asks a person, and waits until it is answered or its time is over."""

    SCHEMA: ClassVar[str] = "loom.run.events.InterruptionOpened"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "index", "call_id", "interrupt_id", "kind", "question", "options", "context", "priority",
        "expires_at_ms", "attempt", "call_state", "is_held",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {
        "question": "text",
        "options": "text",
        "context": "text",
        "call_state": "text",
    }

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    interrupt_id: str
    """Names it in the run."""
    question: str
    """What is asked."""
    expires_at_ms: int
    """When it times out, UTC milliseconds."""
    kind: str = 'question'
    """question."""
    options: tuple[str, ...] = ()
    """The answers to choose from; empty: any."""
    context: str = ''
    """What the person should know."""
    priority: str = 'normal'
    """low, normal or high."""
    attempt: int = 0
    """Of a call whose tool asks: the attempt that asked; 0: the call itself is the question."""
    call_state: str = ''
    """Of a call whose tool asks: what the tool gets back with the answer."""
    is_held: bool = False
    """Of a call whose tool asks: the process that made it holds it open, and it is lost with the process."""


class LimitReached(Record, frozen=True, kw_only=True):
    """A limit on spending was reached; told at most once for each scope and severity."""

    SCHEMA: ClassVar[str] = "loom.run.events.LimitReached"

    notice: LimitNotice
    """Which, and how far."""


class ModelCallFailed(Record, frozen=True, kw_only=True):
    """A model call ended without an answer."""

    SCHEMA: ClassVar[str] = "loom.run.events.ModelCallFailed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "attempt", "kind", "message", "retry_after_ms", "provider", "model", "duration_ms", "failure_class",
        "takes_iteration",
    )

    turn: int
    """Model turn."""
    attempt: int
    """Attempt that failed."""
    kind: str
    """What it was: a kind of connectors/errors.py, or interrupted when the owner was lost."""
    message: str
    """Begins with provider and status where there is one."""
    provider: str
    """Provider called."""
    model: str
    """Model called."""
    retry_after_ms: int = 0
    """Wait the provider asked for; 0 = none."""
    duration_ms: int = 0
    """Time of the call."""
    failure_class: str = ''
    """retryable, permanent, cancelled, deadline_exceeded, deprecated or unknown; empty in older records."""
    takes_iteration: bool = False
    """What follows uses up an iteration of the run: a retry of its own, or a fallback."""


class ModelCallRequested(Record, frozen=True, kw_only=True):
    """Intent: this model call is due."""

    SCHEMA: ClassVar[str] = "loom.run.events.ModelCallRequested"

    turn: int
    """Model turn, from 1."""
    attempt: int
    """Attempt of the turn, from 1."""
    provider: str
    """Provider to call."""
    model: str
    """Model to call."""
    not_before_ms: int = 0
    """Earliest time of the call, UTC milliseconds; 0 = now."""
    retry: int = 0
    """How many calls of this turn to this model have failed before; 0 for the first one, and in older records."""


class ModelReplied(Record, frozen=True, kw_only=True):
    """A whole model turn."""

    SCHEMA: ClassVar[str] = "loom.run.events.ModelReplied"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "attempt", "text", "text_blob", "reasoning", "reasoning_signature", "tool_calls", "stop_reason",
        "usage", "provider", "model", "max_context_tokens", "cost_micros", "currency", "duration_ms", "traceparent",
        "credential_source", "credential_scope", "tool_lists",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text", "reasoning": "text", "reasoning_signature": "text"}

    turn: int
    """Model turn."""
    attempt: int
    """Attempt that succeeded."""
    stop_reason: str
    """end_turn, tool_use, max_tokens or stop_sequence."""
    usage: Usage
    """Tokens of this turn."""
    provider: str
    """Provider that answered."""
    model: str
    """Model that answered."""
    duration_ms: int
    """Time of the call."""
    text: str = ''
    """Text of the answer."""
    text_blob: BlobRef | None = None
    """The text when it is over the inline limit."""
    reasoning: str = ''
    """Reasoning text."""
    reasoning_signature: str = ''
    """Signature the provider wants back with it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls asked for, in order."""
    max_context_tokens: int = 0
    """Context window of the model; 0 = unknown."""
    cost_micros: int = 0
    """Cost in millionths of the currency unit."""
    currency: str = ''
    """Currency of the cost; empty = unpriced."""
    traceparent: str = ''
    """Trace context of the call's span."""
    credential_source: str = ''
    """Whose key the call was made with: run, operator; empty = it needed none."""
    credential_scope: str = ''
    """Of which one: the id of the run the key came with; empty for the operator's."""
    tool_lists: tuple[ToolListPin, ...] = ()
    """Lists of MCP servers whose tools the model was shown; empty: those of the turn before, or none."""


class ModelSwitched(Record, frozen=True, kw_only=True):
    """The run goes to another model, and its conversation is made fit for it."""

    SCHEMA: ClassVar[str] = "loom.run.events.ModelSwitched"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "attempt", "failed_provider", "failed_model", "provider", "model", "effort", "number", "user_tier",
        "reason", "cause", "cache_lost", "reasoning_cleared", "downgraded_from",
    )

    turn: int
    """Model turn."""
    attempt: int
    """Attempt that failed."""
    failed_provider: str
    """Provider that failed."""
    failed_model: str
    """Model that failed."""
    provider: str
    """Provider the run goes to."""
    model: str
    """Model the run goes to."""
    number: int
    """The how many-th switch of the run this is, from 1."""
    reason: str
    """Class of the failure: retryable or deprecated."""
    effort: str = ''
    """Effort it is asked for from now on: low, medium, high or empty."""
    user_tier: str = ''
    """Plan of the user."""
    cause: str = ''
    """The beginning of its text."""
    cache_lost: bool = False
    """The provider that is left keeps prompts in a cache of its own."""
    reasoning_cleared: int = 0
    """Answers of the conversation whose reasoning and signature were taken out."""
    downgraded_from: str = ''
    """The model that was wanted there and needs reasoning which the conversation lacks; empty = none."""


class OutputRejected(Record, frozen=True, kw_only=True):
    """A final answer did not meet the output schema of the run."""

    SCHEMA: ClassVar[str] = "loom.run.events.OutputRejected"
    CONTENT: ClassVar[Mapping[str, str]] = {"path": "text", "problem": "text"}

    turn: int
    """Model turn of the answer."""
    number: int
    """Rejected answers of the run, this one included."""
    path: str = ''
    """Where the first problem is, as a JSON path that begins with $."""
    problem: str = ''
    """What the model is told about it."""


class PersonNotified(Record, frozen=True, kw_only=True):
    """A call tells a person something and does not wait."""

    SCHEMA: ClassVar[str] = "loom.run.events.PersonNotified"
    CONTENT: ClassVar[Mapping[str, str]] = {"message": "text", "context": "text"}

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    interrupt_id: str
    """Names it in the run."""
    message: str
    """What is told."""
    context: str = ''
    """What the person should know."""
    priority: str = 'normal'
    """low, normal or high."""


class ResidentLeft(Record, frozen=True, kw_only=True):
    """A resident child is over, and no call waited for it."""

    SCHEMA: ClassVar[str] = "loom.run.events.ResidentLeft"

    child_run_id: str = ''
    """The child."""
    status: str = 'closed'
    """completed, failed, cancelled or closed."""


class RunCancelled(Record, frozen=True, kw_only=True):
    """The run was ended from outside."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunCancelled"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "reason", "iterations", "usage", "cost_micros", "currency", "cascaded",
    )

    usage: Usage
    """Sum over the turns."""
    reason: str = ''
    """Reason given."""
    iterations: int = 0
    """Model turns done."""
    cost_micros: int = 0
    """Sum over the turns."""
    currency: str = ''
    """Currency of the cost."""
    cascaded: tuple[str, ...] = ()
    """Handles of the descendants that were live, and end with it."""


class RunCompleted(Record, frozen=True, kw_only=True):
    """The run ended by itself."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunCompleted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "stop_reason", "iterations", "usage", "cost_micros", "currency", "result",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"result": "text"}

    stop_reason: str
    """end_turn, max_tokens, stop_sequence or max_iterations."""
    usage: Usage
    """Sum over the turns."""
    iterations: int = 0
    """Model turns done."""
    cost_micros: int = 0
    """Sum over the turns."""
    currency: str = ''
    """Currency of the cost."""
    result: str = ''
    """The record that the run answered with, as JSON text; empty for a run without an output schema."""


class RunFailed(Record, frozen=True, kw_only=True):
    """The run ended with an error."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunFailed"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "code", "error", "iterations", "usage", "cost_micros", "currency",
    )

    code: str
    """Reason code."""
    error: str
    """What a person is told."""
    usage: Usage
    """Sum over the turns."""
    iterations: int = 0
    """Model turns done."""
    cost_micros: int = 0
    """Sum over the turns."""
    currency: str = ''
    """Currency of the cost."""


class RunParked(Record, frozen=True, kw_only=True):
    """An interactive run waits for input."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunParked"

    since_turn: int
    """Turns done so far."""


class RunPauseRequested(Record, frozen=True, kw_only=True):
    """The run is to stop before its next model call."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunPauseRequested"

    scope: str
    """How wide the pause is: run, agent, tenant or all."""
    reason: str = ''
    """Why, as the one who asked said it."""
    by: str = ''
    """Who asked."""


class RunPaused(Record, frozen=True, kw_only=True):
    """The run stands still: the model call that was due next is not made."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunPaused"

    turn: int
    """The turn whose call is held back."""
    reason: str = ''
    """Why, of the pause that came first."""
    not_before_ms: int = 0
    """A retry that is held back is not due before then (UTC milliseconds); 0 = at once."""


class RunQuarantined(Record, frozen=True, kw_only=True):
    """The run is parked: a record of it could not be handled, its calls were lost too often, or an operator said
    so.
    """

    SCHEMA: ClassVar[str] = "loom.run.events.RunQuarantined"

    error: str
    """What went wrong, or the operator's reason."""
    record_offset: int
    """Offset of the record in its topic; -1 when it is not about one."""
    record_topic: str
    """Topic of the record."""
    by: str = ''
    """The operator who ordered it, or whose release failed; empty when the runtime found it out."""


class RunRefused(Record, frozen=True, kw_only=True):
    """The run was not accepted; nothing else of it will follow."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunRefused"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "session_id", "agent_id", "agent", "code", "message", "limit", "about", "cap", "trigger",
    )

    code: str
    """Reason code, for example unknown_agent, session_busy, agent_id_in_use."""
    message: str
    """What was wrong and what to do."""
    session_id: str = ''
    """As asked."""
    agent_id: str = ''
    """As asked."""
    agent: str = ''
    """As asked."""
    limit: LimitNotice | None = None
    """The limit that was reached, with the code token_limit_exceeded."""
    about: str = ''
    """The user or the provider that is full, with the codes of admission."""
    cap: int = 0
    """The bound that was met; 0 when it was none."""
    trigger: str = ''
    """Full id of the aggregate that is told, as in RunOptions."""


class RunReleased(Record, frozen=True, kw_only=True):
    """The run is quarantined no longer: it was folded again from the log and goes on."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunReleased"

    by: str = ''
    """Who asked."""
    reason: str = ''
    """Why, as the one who asked said it."""


class RunRestored(Record, frozen=True, kw_only=True):
    """A run that was under way elsewhere has been told to its end and goes on here; what was open there is lost."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunRestored"

    events: int
    """How many of its events were told, as RunStarted.imported_from says. Another number: it went on somewhere
    before.
    """


class RunResumed(Record, frozen=True, kw_only=True):
    """A pause of the run is over."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunResumed"

    scope: str
    """Which: run, agent, tenant or all."""
    by: str = ''
    """Who asked."""
    remaining: int = 0
    """Pauses that still hold the run; it goes on at 0."""


class RunStarted(Record, frozen=True, kw_only=True):
    """The run was accepted and pinned to a definition."""

    SCHEMA: ClassVar[str] = "loom.run.events.RunStarted"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "session_id", "agent_id", "subject", "user_id", "options", "definition", "segments", "parent_agent_id",
        "idempotency_key", "request_sha256", "continues", "forked_from", "imported_from", "traceparent", "parent",
        "seed", "context_tokens", "max_context_tokens", "skill_pins", "memory_context",
    )

    session_id: str
    """Session the run belongs to."""
    agent_id: str
    """Tracking handle."""
    definition: AgentDefinition
    """Resolved definition the run is pinned to."""
    segments: tuple[Segment, ...]
    """The request."""
    subject: str = ''
    """Subject of the principal that started it."""
    user_id: str = ''
    """End user."""
    options: RunOptions = RunOptions()
    """Options of the run."""
    parent_agent_id: str = ''
    """Handle of the parent run; empty for a run of its own."""
    idempotency_key: str = ''
    """Key of the request."""
    request_sha256: str = ''
    """Hash of the request under that key."""
    continues: RunPosition | None = None
    """The run whose conversation this one goes on with."""
    forked_from: ForkPoint | None = None
    """The run whose prefix this one shares; never set together with continues."""
    imported_from: ImportOrigin | None = None
    """Set when the run happened elsewhere: nothing of it is done here, it is only told."""
    traceparent: str = ''
    """W3C trace context of the run's span."""
    parent: ParentCall | None = None
    """The call of another run that started this one."""
    seed: str = ''
    """Empty for a run that works. copy: it only holds the conversation it goes on with; compact: in a summary."""
    context_tokens: int = 0
    """How full the context of the run it goes on with was, in tokens; 0: it goes on with none."""
    max_context_tokens: int = 0
    """The window of that run's model, when this run begins with the same; 0: not known."""
    skill_pins: tuple[SkillPin, ...] = ()
    """Versions of skills that a fork keeps to, as the run whose prefix it shares."""
    memory_context: MemoryContext | None = None
    """Memory in its system prompt; null when there is none."""


class ToolCallRequested(Record, frozen=True, kw_only=True):
    """Intent: this tool call is due; name and input are in the ModelReplied of the turn."""

    SCHEMA: ClassVar[str] = "loom.run.events.ToolCallRequested"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "turn", "index", "call_id", "attempt", "effect_class", "reconcilable",
    )

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    effect_class: str
    """pure, read, idempotent or unsafe."""
    attempt: int = 1
    """Attempt, from 1."""
    reconcilable: bool = False
    """The tool can be asked whether a call that was lost has happened."""


class ToolOutcomeAsked(Record, frozen=True, kw_only=True):
    """The outcome of a tool call is unknown; the run waits for a decision (ResolveCall)."""

    SCHEMA: ClassVar[str] = "loom.run.events.ToolOutcomeAsked"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    attempt: int
    """Attempt whose outcome is not known."""
    reason: str = ''
    """What is known of it."""


class ToolReconcileRequested(Record, frozen=True, kw_only=True):
    """Intent: the tool is asked whether a lost call has happened."""

    SCHEMA: ClassVar[str] = "loom.run.events.ToolReconcileRequested"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn, from 0."""
    call_id: str
    """Id of the call."""
    attempt: int
    """Attempt whose outcome is not known."""
    ask: int
    """Number of the question, from 1, over all attempts of the call."""
    not_before_ms: int = 0
    """Earliest time to ask, UTC milliseconds; 0 = now."""
    reason: str = ''
    """Why it is asked: the call was lost, or what went wrong with the last question."""


class ToolReturned(Record, frozen=True, kw_only=True):
    """A tool call ended."""

    SCHEMA: ClassVar[str] = "loom.run.events.ToolReturned"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn."""
    call_id: str
    """Id of the call."""
    attempt: int = 1
    """Attempt that ended."""
    text: str = ''
    """Result the model sees."""
    text_blob: BlobRef | None = None
    """The result when it is over the inline limit."""
    is_error: bool = False
    """The model is told that it failed."""
    outcome: str = 'ok'
    """ok, error, timeout, cancelled, denied (by a hook) or outcome_unknown."""
    duration_ms: int = 0
    """Time of the call."""
    settled_by: str = ''
    """Who knew the result when it is not the call's own: reconciler, operator, tool (which says itself that its
    outcome is unknown), or empty.
    """
    details: ResultDetails | None = None
    """What the call means for the run besides its result; null: nothing."""
    whole_blob: BlobRef | None = None
    """The whole result, when the model sees a part of it because it would take too much of its window."""


class TreeCounted(Record, frozen=True, kw_only=True):
    """A run below this root was allowed calls that rules count over the tree, asks for them, or has spent; in the
    log with the decision of that run, or not at all.
    """

    SCHEMA: ClassVar[str] = "loom.run.events.TreeCounted"

    run_id: str
    """The run below."""
    changes: tuple[TreeTotal, ...] = ()
    """What is added to totals; negative where an approval has ended."""
    spent_micros: int = 0
    """What its models have cost since it was counted last, where a rule reads that; millionths of the currency."""


class TurnCancelled(Record, frozen=True, kw_only=True):
    """A turn of an interactive run was stopped from outside. What its model had said by then stays in the
    conversation.
    """

    SCHEMA: ClassVar[str] = "loom.run.events.TurnCancelled"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    turn: int
    """The turn."""
    reason: str = ''
    """Why."""
    by: str = ''
    """Subject of the caller."""
    attempt: int = 0
    """Attempt of the model call that was stopped; 0 when the model had answered."""
    text: str = ''
    """What the model had said by then; empty when its text is in text_blob."""
    text_blob: BlobRef | None = None
    """A text too large to be inline."""
    provider: str = ''
    """Who was asked."""
    model: str = ''
    """Which model was asked."""


class WaitReported(Record, frozen=True, kw_only=True):
    """A queue that a call awaits has messages."""

    SCHEMA: ClassVar[str] = "loom.run.events.WaitReported"

    turn: int
    """Model turn that asked."""
    index: int
    """Place in that turn."""
    wait_id: str
    """Id of the wait."""
    queue: int
    """Which of the queues of CallWaiting."""
    count: int
    """Messages that are there."""


RECORDS = (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalGiven,
    CallNotBegun,
    CallWaiting,
    ChildRequested,
    ChildReturned,
    ChildrenPlanned,
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    FallbackSuppressed,
    HookActed,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    LimitReached,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    ModelSwitched,
    OutputRejected,
    PersonNotified,
    ResidentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPauseRequested,
    RunPaused,
    RunQuarantined,
    RunRefused,
    RunReleased,
    RunRestored,
    RunResumed,
    RunStarted,
    ToolCallRequested,
    ToolOutcomeAsked,
    ToolReconcileRequested,
    ToolReturned,
    TreeCounted,
    TurnCancelled,
    WaitReported,
)
Event = ApprovalDecided | ApprovalEscalated | ApprovalGiven | CallNotBegun | CallWaiting | ChildRequested | ChildReturned | ChildrenPlanned | CommandRefused | CompactionFailed | CompactionRequested | ContextCompacted | FallbackSuppressed | HookActed | InputReceived | InterruptionClosed | InterruptionOpened | LimitReached | ModelCallFailed | ModelCallRequested | ModelReplied | ModelSwitched | OutputRejected | PersonNotified | ResidentLeft | RunCancelled | RunCompleted | RunFailed | RunParked | RunPauseRequested | RunPaused | RunQuarantined | RunRefused | RunReleased | RunRestored | RunResumed | RunStarted | ToolCallRequested | ToolOutcomeAsked | ToolReconcileRequested | ToolReturned | TreeCounted | TurnCancelled | WaitReported
