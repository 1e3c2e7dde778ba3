"""Commands of the run family as the core sees them: what was asked, with every fact the decision needs.

Those of TopicCommand come from the commands topic; the shell adds the time and what only it can look up (the
definition, what else is live, what is paused, what a model has said so far). Obey, CallsUnstarted, Recover, Woken and
ChildReported come from the owner, the others from effects inside it. None is stored: a command that had an effect is
named by the event it caused.
"""

from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    CompactRun,
    ForkRun,
    ImportRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResolveInterruption,
    ResumeRun,
    StartRun,
)
from loomlog.schemas.generated.run_events import Event, RunStarted
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    ForkPoint,
    HookAct,
    InterruptionRequest,
    LimitNotice,
    ModelChoice,
    ParentCall,
    RunPosition,
    Spawn,
    ToolCall,
    Usage,
)
from loomlog.schemas.records import Value
from loomlog.services.core.run.limits import RESIDENTS_MAX
from loomlog.services.core.run.run_facts import Pause, RunFacts
from loomlog.services.core.run.state import State

CallKey = tuple[str, int, int, int]
"""Names one attempt of one call of a run: kind (model or tool), turn, index (0 for models), attempt. The kind reconcile
names a question about a tool call; its last number is that of the question. The kind compact names a summary call; its
turn is the number of the compaction."""
HAPPENED, DID_NOT_HAPPEN, CANNOT_TELL, FAILED = "happened", "did_not_happen", "cannot_tell", "failed"
"""What a tool says when it is asked about a lost call; failed: it could not be asked."""


class CommandRefusal(Value, frozen=True, kw_only=True):
    """Why something was refused: a stable code and a sentence that says what to do."""

    code: str
    message: str
    limit: LimitNotice | None = None
    """The limit on spending that forbids it."""
    about: str = ""
    cap: int = 0
    """The user or provider that is full, and the bound."""


class StartCommand(Value, frozen=True, kw_only=True):
    """StartRun with what the owner found out. Exactly one of definition and unresolved is set.

    session_live_run / handle_live_run: the live run of the partition that has the session or handle, empty when none.
    session_found: the session to continue exists for this tenant (true for a new session).
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
    """Of the run it goes on with."""
    traceparent: str = ""
    pauses: tuple[Pause, ...] = ()
    """What holds runs like this one now: it begins paused."""
    admission_refusal: CommandRefusal | None = None
    """Why it may not begin now, although nothing is wrong with it: too much is under way."""
    exhausted_limit: LimitNotice | None = None
    """A hard limit under which nothing is left for this run."""
    parent: ParentCall | None = None
    """The call that starts it; None when it comes from the commands topic."""


class ForkOrigin(Value, frozen=True, kw_only=True):
    """A run that is forked, read up to the point: its first event, its state there, and where that lies."""

    started: RunStarted
    state: State
    point: ForkPoint


class ForkCommand(Value, frozen=True, kw_only=True):
    """ForkRun with what the owner found out.

    origin: None when there is no such event of such a run of this tenant. `unreadable`: why it could not be read
    although it is there. Otherwise exactly one of definition and unresolved is set.
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
    """As in Start."""


class ImportCommand(Value, frozen=True, kw_only=True):
    """ImportRun with its events decoded: `times` are when they were decided, UTC milliseconds, one for each.

    Where the first event goes on with another run it names that one's place in this log. `next_seq` is the seq the
    next event of the run gets here. `obey` and `occupied` are for a run that is to go on here: the pauses wider than
    it, and the other live run that has its session or its handle.
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
    """Handles of its live descendants, which end with it."""


class CloseCommand(Value, frozen=True, kw_only=True):
    """CloseResident, or the parent of a resident child wants it closed."""

    at_ms: int
    command: CloseResident


class InputCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: PostInput


class ResolveCallCommand(Value, frozen=True, kw_only=True):
    at_ms: int
    command: ResolveCall


class AnswerInterruptionCommand(Value, frozen=True, kw_only=True):
    """ResolveInterruption with the answer as the log may hold it, as text and as JSON.

    `problem`: why the answer cannot be taken (interrupting.problem_of_answer); empty when it can.
    """

    at_ms: int
    command: ResolveInterruption
    answer: str = ""
    answer_json: str = '""'
    problem: str = ""


class CancelTurnCommand(Value, frozen=True, kw_only=True):
    """CancelTurn with what the model had said by then, as far as this owner knows, in that turn and attempt."""

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
    """PauseRun: the width of one run."""

    at_ms: int
    command: PauseRun


class ResumeCommand(Value, frozen=True, kw_only=True):
    """ResumeRun: lifts what PauseCommand asked for, nothing wider."""

    at_ms: int
    command: ResumeRun


class ApplyWidePauses(Value, frozen=True, kw_only=True):
    """The pauses wider than a run have changed: `wanted` are those that hold this run now, `by` who changed them."""

    at_ms: int
    pauses: tuple[Pause, ...]
    by: str = ""


class ModelAnswered(Value, frozen=True, kw_only=True):
    """A model call returned. `effect_classes` holds one class for each tool call, in order."""

    at_ms: int
    turn: int
    attempt: int
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
    """For each tool call: the tool can be asked about it should it be lost. Empty = none can."""
    interruption_requests: tuple[InterruptionRequest, ...] = ()
    """What its calls of the tool Interruption ask for; such a call is decided and never carried out."""
    notices: tuple[LimitNotice, ...] = ()
    """Soft limits that are reached now that the call is counted."""
    credential_source: str = ""
    credential_scope: str = ""
    """Whose key it was made with (run, operator; empty = it needed none), and of which run."""

    @property
    def key(self) -> CallKey:
        return ("model", self.turn, 0, self.attempt)


class Alternative(Value, frozen=True, kw_only=True):
    """A candidate of a run that can be called now, and what its model is like.

    `sibling`: the model to ask instead while answers of the conversation lack their reasoning; empty = it needs none.
    """

    choice: ModelChoice
    sees_images: bool
    sibling: str = ""


class ModelFailed(Value, frozen=True, kw_only=True):
    """A model call failed. `kind` is a kind of loomlog.connectors.errors; `transient` says which of the two it was.

    retries_rate_limits: this driver's 429s are waited for (the mock's are not, runtime parity 2.9).
    `alternatives`, `leaves_cache` and `cause` are for a fallback: what else can be called now, best first, whether the
    provider keeps prompts in a cache of its own, and the beginning of the message.
    """

    at_ms: int
    turn: int
    attempt: int
    kind: str
    transient: bool
    message: str
    retry_after_ms: int
    retries_rate_limits: bool
    duration_ms: int
    alternatives: tuple[Alternative, ...] = ()
    leaves_cache: bool = False
    cause: str = ""

    @property
    def key(self) -> CallKey:
        return ("model", self.turn, 0, self.attempt)


class BudgetExceeded(Value, frozen=True, kw_only=True):
    """A model call may not be made: a hard limit forbids it."""

    at_ms: int
    turn: int
    attempt: int
    notice: LimitNotice

    @property
    def key(self) -> CallKey:
        return ("model", self.turn, 0, self.attempt)


class ToolCompleted(Value, frozen=True, kw_only=True):
    """A tool call returned; outcome is ok, error, timeout, cancelled, denied (by a hook) or outcome_unknown."""

    at_ms: int
    turn: int
    index: int
    attempt: int
    text: str
    text_blob: BlobRef | None
    is_error: bool
    outcome: str
    duration_ms: int
    asks_compaction: bool = False
    """The run asked for a compaction with this call."""
    hook_acts: tuple[HookAct, ...] = ()
    """What hooks did about the call, in the order they were asked."""

    @property
    def key(self) -> CallKey:
        return ("tool", self.turn, self.index, self.attempt)


class ChildrenRequested(Value, frozen=True, kw_only=True):
    """A call of the Agent tool was understood: the fields are those of ChildrenPlanned. `hook_acts` as in
    ToolCompleted.
    """

    at_ms: int
    turn: int
    index: int
    attempt: int
    op: str
    spawns: tuple[Spawn, ...] = ()
    child_run_id: str = ""
    prompt: str = ""
    timeout_ms: int = 0
    idle_ttl_s: int = 0
    is_sealed: bool = False
    is_looked_at: bool = False
    hook_acts: tuple[HookAct, ...] = ()
    residents_max: int = RESIDENTS_MAX
    """Resident children the run may have."""

    @property
    def key(self) -> CallKey:
        return ("tool", self.turn, self.index, self.attempt)


class ChildReported(Value, frozen=True, kw_only=True):
    """How a child of the run stands; `status` as in ChildReturned. `heard` are the ids of texts that it was sent."""

    at_ms: int
    child_run_id: str
    status: str
    child_agent_id: str = ""
    agent: str = ""
    text: str = ""
    text_blob: BlobRef | None = None
    received_input_ids: tuple[str, ...] = ()


class ToolReconciled(Value, frozen=True, kw_only=True):
    """A tool was asked about a lost call. `text`: the result when it has happened, otherwise why not or what failed."""

    at_ms: int
    turn: int
    index: int
    attempt: int
    ask: int
    verdict: str
    text: str
    text_blob: BlobRef | None = None
    is_error: bool = False
    duration_ms: int = 0
    hook_acts: tuple[HookAct, ...] = ()
    """As in ToolCompleted; only with a result."""

    @property
    def key(self) -> CallKey:
        return ("reconcile", self.turn, self.index, self.ask)


class SummaryCompleted(Value, frozen=True, kw_only=True):
    """A summary call returned; `summary` is empty when the model gave none, and without its end when it `is_cut`."""

    at_ms: int
    number: int
    attempt: int
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

    @property
    def key(self) -> CallKey:
        return ("compact", self.number, 0, self.attempt)


class SummaryFailed(Value, frozen=True, kw_only=True):
    """A summary call failed. `kind` is a kind of loomlog.connectors.errors."""

    at_ms: int
    number: int
    attempt: int
    kind: str
    message: str
    duration_ms: int

    @property
    def key(self) -> CallKey:
        return ("compact", self.number, 0, self.attempt)


class RunTimerFired(Value, frozen=True, kw_only=True):
    """The time has come that alarms.wakes_at named for the state."""

    at_ms: int


class CallsUnstarted(Value, frozen=True, kw_only=True):
    """The owner stops as planned; these calls are due and it has not begun them."""

    at_ms: int
    keys: frozenset[CallKey]


class RecoverCommand(Value, frozen=True, kw_only=True):
    """A new owner has folded the run; calls under way with the old owner are lost, except those in `still_running`.

    `still_running` names open calls that this very process has in flight, by the `key` of their effect.
    """

    at_ms: int
    still_running: frozenset[CallKey] = frozenset()
    wide_pauses: ApplyWidePauses | None = None
    """Pauses wider than the run, obeyed before anything is made again; None = they are as they were."""


class QuarantineCommand(Value, frozen=True, kw_only=True):
    """QuarantineRun. `was`: why the run stands still already although its state does not say so; empty otherwise."""

    at_ms: int
    command: QuarantineRun
    existing_reason: str = ""


class ReleaseCommand(Value, frozen=True, kw_only=True):
    """ReleaseRun after the run was folded again from the log; the state is the one that came out.

    `was` as in Quarantine. `error`: why the run cannot be folded; then the state is the last one that could be.
    """

    at_ms: int
    command: ReleaseRun
    existing_reason: str = ""
    error: str = ""
    wide_pauses: ApplyWidePauses | None = None
    """As in Recover."""


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
    | CompactCommand
    | PauseCommand
    | ResumeCommand
    | QuarantineCommand
    | ReleaseCommand
)
EffectResult = (
    ModelAnswered
    | ModelFailed
    | BudgetExceeded
    | ToolCompleted
    | ChildrenRequested
    | ToolReconciled
    | SummaryCompleted
    | SummaryFailed
)
RunCommand = (
    TopicCommand | EffectResult | ChildReported | CallsUnstarted | ApplyWidePauses | RecoverCommand | RunTimerFired
)
