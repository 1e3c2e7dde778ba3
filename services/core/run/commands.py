"""Input of `decide`: the commands of the run family, with every fact that a decision needs.

Those of TopicCommand come from the commands topic; the runtime adds the time and what only it can look up (the
definition, live runs, pauses, the partial output of a model call). ApplyWidePauses, CallsUnstarted, RecoverCommand,
RunTimerFired and ChildReported come from the owner, the others from effects. None is stored: an event names the command
that caused it.
"""

from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    CompactRun,
    ForkRun,
    GiveApproval,
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
from loomlog.schemas.generated.run_events import Event, RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    CallVerdict,
    ChannelUse,
    ForkPoint,
    HookAct,
    InterruptionRequest,
    LeaseRef,
    LimitNotice,
    MemoryBanked,
    MemoryContext,
    ModelChoice,
    OutputCheck,
    ParentCall,
    QueueRef,
    RunPosition,
    SkillPin,
    Spawn,
    ToolCall,
    ToolListPin,
    Usage,
    VerdictCase,
)
from loomlog.schemas.records import Value
from loomlog.services.core.approvals.tree_totals import TreeTotals
from loomlog.services.core.run.limits import RESIDENTS_MAX
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import State

CallKey = tuple[str, int, int, int]
"""Key of one attempt of one call of a run: kind (model or tool), turn, index (0 for models), attempt. Kind reconcile is
a question about a tool call, with the number of the question last. Kind compact is a summary call, with the number of
the compaction as its turn.
"""
HAPPENED, DID_NOT_HAPPEN, CANNOT_TELL, FAILED = "happened", "did_not_happen", "cannot_tell", "failed"
"""Answers of a tool that is asked about a lost call; failed: it could not be asked."""


class CommandRefusal(Value, frozen=True, kw_only=True):
    """A refusal: a stable code and a sentence that says what to do."""

    code: str
    message: str
    limit: LimitNotice | None = None
    """The budget limit that forbids it."""
    about: str = ""
    cap: int = 0
    """The limit of the user or provider that is reached."""


class StartCommand(Value, frozen=True, kw_only=True):
    """StartRun with the owner's facts. Exactly one of definition and definition_refusal is set.

    session_live_run / handle_live_run: the live run of the partition that has the session or handle, empty if none.
    session_exists: the session to continue exists for this tenant (true for a new session).
    """

    at_ms: int
    command: StartRun
    session_id: str
    agent_id: str
    definition: AgentDefinition | None
    definition_refusal: CommandRefusal | None = None
    session_exists: bool = True
    session_live_run: str = ""
    handle_live_run: str = ""
    continues: RunPosition | None = None
    previous_facts: RunFacts | None = None
    """Facts of the run it continues."""
    traceparent: str = ""
    pauses: tuple[Pause, ...] = ()
    """Pauses that hold runs like this one now: it starts paused."""
    admission_refusal: CommandRefusal | None = None
    """Refusal by admission control: too many runs are active."""
    exhausted_limit: LimitNotice | None = None
    """The hard limit that is exhausted for this run."""
    memory_context: MemoryContext | None = None
    """Memory in its system prompt."""
    parent: ParentCall | None = None
    """The call that starts it; None if it comes from the commands topic."""


class ForkOrigin(Value, frozen=True, kw_only=True):
    """The origin of a fork, read up to the fork point: its first event, its state there, and the position."""

    started: RunStarted
    state: State
    point: ForkPoint


class ForkCommand(Value, frozen=True, kw_only=True):
    """ForkRun with the owner's facts.

    origin: None if the tenant has no such run or event. `origin_refusal`: why it could not be read although it exists.
    Otherwise exactly one of definition and definition_refusal is set.
    """

    at_ms: int
    command: ForkRun
    session_id: str
    agent_id: str
    origin: ForkOrigin | None
    definition: AgentDefinition | None
    origin_refusal: CommandRefusal | None = None
    definition_refusal: CommandRefusal | None = None
    handle_live_run: str = ""
    traceparent: str = ""
    pauses: tuple[Pause, ...] = ()
    """As in StartCommand."""
    memory_context: MemoryContext | None = None
    """As in StartCommand: that of the origin while the prompt is the same."""


class ImportCommand(Value, frozen=True, kw_only=True):
    """ImportRun with its events decoded: `times` are when they were decided, UTC milliseconds, one for each.

    Where the first event continues another run it names that run's position in this log. `next_seq` is the seq of the
    next event here. `wide_pauses` and `conflicting_run_id` are for a run that is to continue here: the pauses wider
    than it, and the other live run that has its session or handle.
    """

    at_ms: int
    command: ImportRun
    events: tuple[Event, ...]
    times: tuple[int, ...]
    next_seq: int
    wide_pauses: "ApplyWidePauses | None" = None
    conflicting_run_id: str = ""


class CancelCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: CancelRun
    cascaded: tuple[str, ...] = ()
    """Handles of its live descendants, which are cancelled with it."""


class CloseCommand(Value, frozen=True, kw_only=True):
    """CloseResident, also when the parent of a resident child closes it."""

    at_ms: int
    command: CloseResident


class InputCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: PostInput


class ResolveCallCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: ResolveCall


class AnswerInterruptionCommand(Value, frozen=True, kw_only=True):
    """ResolveInterruption with the answer as it is stored in the log, as text and as JSON.

    `problem`: why the answer is not accepted (interruptions.answer_error); empty if it is.
    """

    at_ms: int
    command: ResolveInterruption
    answer: str = ""
    answer_json: str = '""'
    problem: str = ""


class GiveApprovalCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: GiveApproval


class CancelTurnCommand(Value, frozen=True, kw_only=True):
    """CancelTurn with the partial output of the model in that turn and attempt, as far as this owner has it."""

    at_ms: int
    command: CancelTurn
    turn: int = 0
    attempt: int = 0
    text: str = ""
    text_blob: BlobRef | None = None


class CompactCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: CompactRun


class PauseCommand(Value, frozen=True, kw_only=True):
    """PauseRun: pauses one run."""

    at_ms: int
    command: PauseRun


class ResumeCommand(Value, frozen=True, kw_only=True):
    """ResumeRun: lifts the pause of the run itself, nothing wider."""

    at_ms: int
    command: ResumeRun


class ApplyWidePauses(Value, frozen=True, kw_only=True):
    """The pauses wider than a run have changed: `pauses` are those that hold this run now, `by` is who changed them."""

    at_ms: int
    pauses: tuple[Pause, ...]
    by: str = ""


class WaitReportCommand(Value, frozen=True, kw_only=True):
    """ReportWait with a count that does not complete the call."""

    at_ms: int
    command: ReportWait


class OfModelCall(Value, frozen=True, kw_only=True):
    """The outcome of an attempt of a model call."""

    at_ms: int
    turn: int
    attempt: int

    @property
    def key(self) -> CallKey:
        return ("model", self.turn, 0, self.attempt)


class OfToolCall(Value, frozen=True, kw_only=True):
    """The outcome of an attempt of a tool call, and the actions of hooks on it, in the order of the hooks."""

    at_ms: int
    turn: int
    index: int
    attempt: int
    hook_acts: tuple[HookAct, ...] = ()

    @property
    def key(self) -> CallKey:
        return ("tool", self.turn, self.index, self.attempt)


class OfSummaryCall(Value, frozen=True, kw_only=True):
    """The outcome of an attempt of a summary call."""

    at_ms: int
    number: int
    attempt: int

    @property
    def key(self) -> CallKey:
        return ("compact", self.number, 0, self.attempt)


class ModelAnswered(OfModelCall, frozen=True, kw_only=True):
    """A model call returned. `effect_classes` holds one class for each tool call, in order."""

    text: str
    text_blob: BlobRef | None
    reasoning: str
    reasoning_signature: str
    tool_calls: tuple[ToolCall, ...]
    effect_classes: tuple[str, ...]
    stop_reason: str
    usage: Usage
    provider: str
    model: str
    max_context_tokens: int
    cost_micros: int
    currency: str
    duration_ms: int
    traceparent: str = ""
    reconcilable: tuple[bool, ...] = ()
    """For each tool call: whether the tool can be asked about it if it is lost. Empty: none can."""
    interruption_requests: tuple[InterruptionRequest, ...] = ()
    """Requests of its calls of the tool Interruption; such a call is decided and never executed."""
    notices: tuple[LimitNotice, ...] = ()
    """Soft limits that are reached once the call is counted."""
    credential_source: str = ""
    credential_scope: str = ""
    """Owner of the provider key (run, operator; empty: none was needed), and of which run."""
    tool_lists: tuple[ToolListPin, ...] = ()
    """Lists of MCP servers whose tools the model was shown, by server."""
    verdicts: tuple[CallVerdict, ...] = ()
    """What the rules of the run say about its tool calls; a call without one is denied where there are rules."""
    cases: tuple[VerdictCase, ...] = ()
    """What the rules say about calls that have no verdict yet, depending on the totals of the tree."""
    tree: TreeTotals | None = None
    """Totals that the root of the run has at this moment; None: the run is a root, or its root is not live."""
    output: OutputCheck | None = None
    """The answer against the output schema of the run; None: it has none, or the answer requests tool calls."""


class Alternative(Value, frozen=True, kw_only=True):
    """A candidate model of a run that can be called now, with its properties.

    `sibling`: the model to use instead while answers of the conversation lack their reasoning; empty: none is needed.
    """

    choice: ModelChoice
    sees_images: bool
    sibling: str = ""


class ModelFailed(OfModelCall, frozen=True, kw_only=True):
    """A model call failed. `kind` is a kind of loomlog.connectors.errors; `transient` tells which of the two it was.

    retries_rate_limits: this driver's 429s are waited for (the mock's are not, runtime parity 2.9). `alternatives`,
    `leaves_cache` and `cause` are for a fallback: the models that can be called now, best first, whether the provider
    keeps prompts in a cache of its own, and the beginning of the message.
    """

    kind: str
    transient: bool
    message: str
    retry_after_ms: int
    retries_rate_limits: bool
    duration_ms: int
    alternatives: tuple[Alternative, ...] = ()
    leaves_cache: bool = False
    cause: str = ""


class BudgetExceeded(OfModelCall, frozen=True, kw_only=True):
    """A hard limit forbids a model call."""

    notice: LimitNotice


class ToolCompleted(OfToolCall, frozen=True, kw_only=True):
    """A tool call returned; outcome is ok, error, timeout, cancelled, denied (by a hook) or outcome_unknown."""

    text: str
    text_blob: BlobRef | None
    is_error: bool
    outcome: str
    duration_ms: int
    asks_compaction: bool = False
    """The call requested a compaction of the run."""
    positions: tuple[str, ...] = ()
    """Positions of what the call wrote to other aggregates."""
    skill_pin: SkillPin | None = None
    """Version of the skill that the call used."""
    channels: tuple[ChannelUse, ...] = ()
    """Messages that the call published or returned."""
    leases: tuple[LeaseRef, ...] = ()
    """What the call took from queues."""
    whole_blob: BlobRef | None = None
    """The whole result, when `text` is a part of it."""


class CallWaits(OfToolCall, frozen=True, kw_only=True):
    """A tool call waits for channels; the fields are those of CallWaiting."""

    wait_id: str
    until_ms: int
    queues: tuple[QueueRef, ...]
    mode: str
    needed: int = 0


class CallAsks(OfToolCall, frozen=True, kw_only=True):
    """The tool of a call asks a person first; the fields are those of InterruptionOpened."""

    question: str
    context: str
    options: tuple[str, ...]
    call_state: str
    timeout_ms: int
    is_held: bool


class ChildrenRequested(OfToolCall, frozen=True, kw_only=True):
    """A call of the Agent tool was parsed: the fields are those of ChildrenPlanned."""

    op: str
    spawns: tuple[Spawn, ...] = ()
    child_run_id: str = ""
    prompt: str = ""
    timeout_ms: int = 0
    idle_ttl_s: int = 0
    is_sealed: bool = False
    is_looked_at: bool = False
    residents_max: int = RESIDENTS_MAX
    """Limit of resident children of the run."""


class ChildReported(Value, frozen=True, kw_only=True):
    """The status of a child; `status` as in ChildReturned. `received_input_ids` are the ids of
    texts that it received.
    """

    at_ms: int
    child_run_id: str
    status: str
    child_agent_id: str = ""
    agent: str = ""
    text: str = ""
    text_blob: BlobRef | None = None
    received_input_ids: tuple[str, ...] = ()


class ToolReconciled(OfToolCall, frozen=True, kw_only=True):
    """A tool was asked about a lost call. `text`: the result if it has happened, otherwise why not or what failed."""

    ask: int
    verdict: str
    text: str
    text_blob: BlobRef | None = None
    is_error: bool = False
    duration_ms: int = 0
    whole_blob: BlobRef | None = None
    """As in ToolCompleted."""

    @property
    def key(self) -> CallKey:
        return ("reconcile", self.turn, self.index, self.ask)


class SummaryCompleted(OfSummaryCall, frozen=True, kw_only=True):
    """A summary call returned; `summary` is empty if the model gave none, and truncated if it `is_cut`."""

    summary: str
    usage: Usage
    provider: str
    model: str
    cost_micros: int
    currency: str
    duration_ms: int
    is_truncated: bool = False
    credential_source: str = ""
    credential_scope: str = ""
    """As in ModelAnswered."""
    memory_banked: MemoryBanked | None = None
    """What memory keeps of what the summary stands for; None: it was not asked to."""


class SummaryFailed(OfSummaryCall, frozen=True, kw_only=True):
    """A summary call failed. `kind` is a kind of loomlog.connectors.errors."""

    kind: str
    message: str
    duration_ms: int


class RunTimerFired(Value, frozen=True, kw_only=True):
    """The timer of the state has fired (lifecycle/timers.py)."""

    at_ms: int


class CallsUnstarted(Value, frozen=True, kw_only=True):
    """The owner stops as planned and has not started these calls."""

    at_ms: int
    keys: frozenset[CallKey]


class RecoverCommand(Value, frozen=True, kw_only=True):
    """A new owner has folded the run; calls under way with the former owner are lost, except those in `still_running`.

    `still_running` has the `key` of the effects that this very process has in flight.
    """

    at_ms: int
    still_running: frozenset[CallKey] = frozenset()
    wide_pauses: ApplyWidePauses | None = None
    """Pauses wider than the run, applied before anything is repeated; None: they have not changed."""


class QuarantineCommand(Value, frozen=True, kw_only=True):
    """QuarantineRun. `existing_reason`: why the run is quarantined although its state does not say
    so; empty otherwise.
    """

    at_ms: int
    command: QuarantineRun
    existing_reason: str = ""


class ReleaseCommand(Value, frozen=True, kw_only=True):
    """ReleaseRun after the run was folded again from the log; the state is the result.

    `existing_reason` as in QuarantineCommand. `error`: why the run cannot be folded; then the state is the last one
    that could be.
    """

    at_ms: int
    command: ReleaseRun
    existing_reason: str = ""
    error: str = ""
    wide_pauses: ApplyWidePauses | None = None
    """As in RecoverCommand."""


TopicCommand = (
    StartCommand
    | ForkCommand
    | ImportCommand
    | CancelCommand
    | CancelTurnCommand
    | CloseCommand
    | InputCommand
    | ResolveCallCommand
    | AnswerInterruptionCommand
    | GiveApprovalCommand
    | CompactCommand
    | PauseCommand
    | ResumeCommand
    | WaitReportCommand
    | QuarantineCommand
    | ReleaseCommand
)
EffectResult = (
    ModelAnswered
    | ModelFailed
    | BudgetExceeded
    | ToolCompleted
    | CallWaits
    | CallAsks
    | ChildrenRequested
    | ToolReconciled
    | SummaryCompleted
    | SummaryFailed
)
RunCommand = (
    TopicCommand | EffectResult | ChildReported | CallsUnstarted | ApplyWidePauses | RecoverCommand | RunTimerFired
)
