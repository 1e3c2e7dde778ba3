"""What every run that was accepted has, in whatever state: who it is for, its conversation, what it has spent.

The conversation is kept ready for the next model call. The functions here are about facts alone; they change nothing,
they give changed copies.

Before: RunStarted, for most of it. After: state.py, whose live states hold them.
"""

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import InputReceived
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    ImportOrigin,
    ModelChoice,
    ParentCall,
    RunOptions,
    Usage,
)
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.interrupts.questions import ClosedQuestion

NO_USAGE = Usage()


class Pause(Value, frozen=True, kw_only=True):
    """A wish that holds a run. `scope` is run, agent, tenant or all; a run has at most one of each."""

    scope: str
    reason: str
    by: str


class Losses(Value, frozen=True, kw_only=True):
    """Owners that were lost while a tool call of the run was under way, since it began or was released.

    Calls that were lost together are told with one decision, so at one time: they count once.
    """

    count: int = 0
    at_ms: int = -1
    """Of the last one; -1 for none."""


NO_LOSSES = Losses()


class ContextGauge(Value, frozen=True, kw_only=True):
    """How full the context was when it was counted last: tokens of the first `messages` of the conversation.

    0 of both: nobody has counted yet.
    """

    tokens: int = 0
    messages: int = 0


EMPTY_GAUGE = ContextGauge()


class CompactionState(Value, frozen=True, kw_only=True):
    """Compactions of the run, failed ones included. `last_turn` is the turn before which the last one was asked for."""

    count: int = 0
    last_turn: int = -1
    is_requested: bool = False
    """The run itself asked for one before its next turn."""


NO_COMPACTIONS = CompactionState()


class RunFacts(Value, frozen=True, kw_only=True):
    """What every accepted run has. Times in UTC milliseconds, cost in millionths of `currency`."""

    run_id: str
    session_id: str
    agent_id: str
    subject: str
    user_id: str
    options: RunOptions
    definition: AgentDefinition
    system: tuple[str, ...]
    cache_marks: tuple[int, ...]
    """Which of the system's texts a provider may cache up to."""
    messages: tuple[Message, ...]
    idempotency_key: str
    request_sha256: str
    started_at_ms: int
    traceparent: str
    inherited_messages: int = 0
    """How many of the messages came from the run this one goes on with."""
    turns: int = 0
    """Model turns that were answered or cancelled."""
    is_turn_over: bool = False
    """The last of these turns asked for nothing, or was cancelled: nobody goes on with results of its calls."""
    usage: Usage = NO_USAGE
    last_usage: Usage = NO_USAGE
    max_context_tokens: int = 0
    cost_micros: int = 0
    currency: str = ""
    model_errors: int = 0
    waiting_inputs: tuple[str | BlobRef, ...] = ()
    """User texts that join the conversation at the next turn boundary."""
    input_ids: tuple[str, ...] = ()
    """Command ids of the latest texts, newest last, to recognise one that is sent again."""
    quarantine_error: str = ""
    imported_events: int = 0
    """How many of its events happened elsewhere; 0 for a run of this log, and for one that was restored and goes on."""
    imported_as: str = ""
    """While there are such events: `import_identity` of where they come from. Parts of anything else are not of this
    run.
    """
    pauses: tuple[Pause, ...] = ()
    """What holds the run, in the order it was asked for."""
    losses: Losses = NO_LOSSES
    context: ContextGauge = EMPTY_GAUGE
    compactions: CompactionState = NO_COMPACTIONS
    seed: str = ""
    """Not empty: the run only holds a conversation for those that go on with it."""
    reported_limits: tuple[str, ...] = ()
    """Limits on spending that were told, each scope/severity once."""
    choice: ModelChoice | None = None
    """The model it has switched to; None while it is with that of its definition."""
    switches: int = 0
    retries: int = 0
    """Iterations that were used up by retries and switches: they answered no turn."""

    deadline_ms: int = 0
    """When its time is over, if it neither pauses nor waits for people until then; 0 = never."""
    closed_questions: tuple[ClosedQuestion, ...] = ()
    """Its latest questions to people that have ended, newest last."""
    parent: ParentCall | None = None
    """The call it was started by; None for a run of its own."""
    spawned: int = 0
    """Children it has started."""
    residents: tuple[str, ...] = ()
    """Run ids of its resident children that are not over."""

    @property
    def current_model(self) -> ModelChoice:
        """The model the run is with now."""
        if self.choice is not None:
            return self.choice
        definition = self.definition
        return ModelChoice(provider=definition.provider, model=definition.model, effort=definition.effort)


def without_resident(facts: RunFacts, run_id: str) -> RunFacts:
    if run_id not in facts.residents:
        return facts
    return replace(facts, residents=tuple(name for name in facts.residents if name != run_id))


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_creation_input_tokens=one.cache_creation_input_tokens + other.cache_creation_input_tokens,
        cache_read_input_tokens=one.cache_read_input_tokens + other.cache_read_input_tokens,
    )


def import_identity(origin: ImportOrigin) -> str:
    """What parts of one and the same run have in common, in whichever file they came: by whom it is told, how long it
    was and how it ended."""
    return f"{'restored' if origin.restored else 'imported'} {origin.events} {origin.tail_digest}"


def deadline(run_timeout_s: int, at_ms: int) -> int:
    return at_ms + 1000 * run_timeout_s if run_timeout_s else 0


def extend_deadline(facts: RunFacts, since_ms: int, at_ms: int) -> RunFacts:
    """The time of the run stood still since then."""
    if not facts.deadline_ms:
        return facts
    return replace(facts, deadline_ms=facts.deadline_ms + max(0, at_ms - since_ms))


def with_input(facts: RunFacts, event: InputReceived) -> RunFacts:
    ids = (*facts.input_ids, event.input_id)[-limits.INPUT_IDS_KEPT :] if event.input_id else facts.input_ids
    said = event.text if event.text_blob is None else event.text_blob
    return replace(facts, waiting_inputs=(*facts.waiting_inputs, said), input_ids=ids)


def with_compaction_requested(facts: RunFacts, *, is_requested: bool) -> RunFacts:
    return replace(facts, compactions=replace(facts.compactions, is_requested=is_requested))
