"""What is true of a run now: the fold of its events.

    Absent -> AwaitingModel <-> AwaitingTools
                 |    ^               |
                 v    |               v
               Parked(interactive)   Ended (completed, failed, cancelled)      Absent -> Refused

At a turn boundary a run may be Compacting: a summary of its conversation is made, and then it goes on as it would have.

A pause stands in `Facts.pauses` from the moment it is asked for. Wherever a model call would be due next the run
becomes Paused instead, and the call is made when the last pause is lifted.

Each state carries only what makes sense in it. `Facts` is what every live run has. The conversation is kept ready for
the next model call; nothing in here is stored, it is made from events every time (and cached in verified snapshots,
REDUCER_VERSION tells which fold made one).

Before: schemas.reader gives accepted events. After: decide and react look at the state.
Not chosen: one class with optional fields (wrong states could be said), mutation (a failed flush drops the state).
"""

from dataclasses import dataclass
from typing import assert_never

from schemas.conversation import Message, TextBlock, ToolResultBlock, ToolUseBlock
from schemas.quick import quick
from schemas.run_events import (
    CallNotBegun,
    ChildrenPlanned,
    ChildRequested,
    ChildReturned,
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
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
    PersonNotified,
    ResidentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
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
    TurnCancelled,
)
from schemas.values import AgentDefinition, BlobRef, ModelChoice, ParentCall, ToolCall, Usage
from services.core.admission import PROVIDER_FULL
from services.core.changing import changed
from services.core.run import code_agents, delegation, limits
from services.core.run.delegation import Delegation
from services.core.run.prompt import first_message
from services.core.run.questions import Question, Settled, question_of
from services.core.run.splitting import Split, compacted, estimate_tokens

REDUCER_VERSION = 8
"""Raise it whenever the same events fold to another state; older snapshots are then ignored."""


NO_USAGE = Usage()
OUTCOME_UNKNOWN = "outcome_unknown"
"""Outcome of a call of which nobody can say what became of it."""
NO_RESULT = "no result: the run ended before this call returned; the call may or may not have had its effect"


class IllegalEvent(Exception):
    """An event that cannot follow: a bug of the fold or a damaged log. Quarantines the run, never the partition."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A wish that holds a run. `scope` is run, agent, tenant or all; a run has at most one of each."""

    scope: str
    reason: str
    by: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Owners that were lost while a tool call of the run was under way, since it began or was released.

    Calls that were lost together are told with one decision, so at one time: they count once.
    """

    count: int = 0
    at_ms: int = -1
    """Of the last one; -1 for none."""


NO_LOSSES = Losses()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class ContextGauge:
    """How full the context was when it was last known: tokens of the first `messages` of the conversation."""

    tokens: int = 0
    messages: int = 0


NOTHING_KNOWN = ContextGauge()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Compactions:
    """Compactions of the run, failed ones included. `last_turn` is the turn before which the last one was asked for."""

    count: int = 0
    last_turn: int = -1
    is_wished: bool = False
    """The run itself asked for one before its next turn."""


NO_COMPACTIONS = Compactions()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every accepted run has. Times in UTC milliseconds, cost in millionths of `currency`."""

    run_id: str
    session_id: str
    agent_id: str
    subject: str
    user_id: str
    user_tier: str
    definition: AgentDefinition
    system: tuple[str, ...]
    messages: tuple[Message, ...]
    allowed_hosts: tuple[str, ...] | None
    interactive: bool
    idempotency_key: str
    request_sha256: str
    started_at_ms: int
    traceparent: str
    metadata: tuple[tuple[str, str], ...] = ()
    credentials: tuple[str, ...] = ()
    """Names of those that came with the request; their values are outside the log."""
    inherited_messages: int = 0
    """How many of the messages came from the run this one goes on with."""
    turns: int = 0
    """Model turns that were answered or cancelled."""
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
    quarantined: str = ""
    imported_events: int = 0
    """How many of its events happened elsewhere; 0 for a run of this log, and for one that was restored and goes on."""
    pauses: tuple[Pause, ...] = ()
    """What holds the run, in the order it was asked for."""
    losses: Losses = NO_LOSSES
    context: ContextGauge = NOTHING_KNOWN
    compactions: Compactions = NO_COMPACTIONS
    web_search_filter: str = ""
    seed: str = ""
    """Not empty: the run only holds a conversation for those that go on with it."""
    limits_told: tuple[str, ...] = ()
    """Limits on spending that were told, each scope/severity once."""
    choice: ModelChoice | None = None
    """The model it has switched to; None while it is with that of its definition."""
    switches: int = 0
    retries: int = 0
    """Iterations that were used up by retries and switches: they answered no turn."""

    run_timeout_s: int = 0
    """Seconds of work the run may take; 0 = no bound."""
    deadline_ms: int = 0
    """When its time is over, if it neither pauses nor waits for people until then; 0 = never."""
    settled: tuple[Settled, ...] = ()
    """Its latest questions to people that have ended, newest last."""
    parent: ParentCall | None = None
    """The call it was started by; None for a run of its own."""
    parent_context: tuple[tuple[str, str], ...] = ()
    spawned: int = 0
    """Children it has started."""
    residents: tuple[str, ...] = ()
    """Run ids of its resident children that are not over."""
    payload_metadata: tuple[tuple[str, str], ...] = ()
    """What came with a trigger's body; not trusted."""

    @property
    def current(self) -> ModelChoice:
        """The model the run is with now."""
        if self.choice is not None:
            return self.choice
        definition = self.definition
        return ModelChoice(provider=definition.provider, model=definition.model, effort=definition.effort)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Nothing has happened yet. `history` is the conversation of the run that this one will continue."""

    run_id: str
    history: tuple[Message, ...] = ()


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The run was not accepted."""

    code: str
    message: str


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitingModel:
    """A model call is due or under way."""

    facts: Facts
    turn: int
    attempt: int
    provider: str
    model: str
    not_before_ms: int
    failures: int = 0
    """Failed attempts of this turn that count against the retries; lost owners do not count."""
    rate_limits: int = 0
    waited_ms: int = 0
    """Waits for rate limits in this turn, together."""
    interruptions: int = 0
    not_begun: bool = False
    """Its owner stopped before it began this attempt."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call that has been asked for and not answered."""

    index: int
    call: ToolCall
    attempt: int
    effect_class: str
    reconcilable: bool = False
    asks: int = 0
    """Questions to the tool about this call so far, over all attempts."""
    is_asking: bool = False
    """The attempt was lost, and the last question has no answer yet."""
    is_waiting: bool = False
    """The attempt was lost, and a person has to say what became of it."""
    not_begun: bool = False
    """Its owner stopped before it began this attempt."""
    delegation: Delegation | None = None
    """What it waits for, when it was understood as a call for children."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a tool call, waiting until all of the turn are in."""

    index: int
    call: ToolCall
    text: str
    blob: BlobRef | None
    is_error: bool


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitingTools:
    """Tool calls of a turn are due or under way."""

    facts: Facts
    turn: int
    asked: tuple[ToolCall, ...]
    """All calls of the turn, by index."""
    open: tuple[OpenCall, ...] = ()
    answers: tuple[Answer, ...] = ()
    questions: tuple[Question, ...] = ()
    """Calls that wait for a person; they are not in `open`."""
    idle_since_ms: int = 0
    """Since when the run waits for nothing but people, and its time stands still; 0 = calls are under way."""


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An interactive run that waits for input, since `since_ms` (UTC milliseconds)."""

    facts: Facts
    since_ms: int = 0


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A model call is due and held back. The fields are those of AwaitingModel, `attempt` the last one made, 0 = none.

    Without pauses only for a moment: the call follows in the same batch.
    """

    facts: Facts
    turn: int
    attempt: int = 0
    not_before_ms: int = 0
    failures: int = 0
    rate_limits: int = 0
    waited_ms: int = 0
    interruptions: int = 0
    since_ms: int = 0


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting:
    """A summary is due or under way; until it is there the conversation stays as it is.

    `attempt` 0: it is there, or there will be none; what follows is in the same batch.
    """

    facts: Facts
    number: int
    attempt: int
    trigger: str
    """manual, auto or self."""
    keep_n: int
    keep_first: bool
    before_tokens: int
    provider: str
    model: str
    losses: int = 0
    """Owners that were lost during the call."""
    not_begun: bool = False
    """Its owner stopped before it began this attempt."""

    @property
    def split(self) -> Split:
        return Split(keep_n=self.keep_n, keep_first=self.keep_first)


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over. `status` is completed, failed or cancelled; `reason` the stop reason, error or cancel reason.

    `answers`: results that were in when the run ended in the middle of a turn's tool calls.
    """

    facts: Facts
    status: str
    reason: str
    answers: tuple[Answer, ...] = ()


Live = AwaitingModel | AwaitingTools | Parked | Paused | Compacting
State = Absent | Refused | Live | Ended


def evolve(state: State, event: Event, at_ms: int) -> State:
    """The state after the event, which was decided at `at_ms`. Raises IllegalEvent when it cannot follow."""
    match event:
        case RunStarted():
            return _started(state, event, at_ms)
        case RunRefused(code=code, message=message):
            if not isinstance(state, Absent):
                raise IllegalEvent(f"RunRefused on a run that is {type(state).__name__}")
            return Refused(code=code, message=message)
        case ModelCallRequested():
            return _model_requested(state, event, at_ms)
        case ModelReplied():
            return _replied(state, event)
        case ModelCallFailed():
            return _model_failed(state, event)
        case ModelSwitched():
            return _switched(state, event)
        case FallbackSuppressed():
            return _failing(state, event)
        case ToolCallRequested():
            return _tool_requested(state, event, at_ms)
        case ToolReturned():
            return _tool_returned(state, event, at_ms)
        case ToolReconcileRequested():
            return _reconcile_requested(state, event, at_ms)
        case ToolOutcomeAsked():
            return _outcome_asked(state, event, at_ms)
        case CallNotBegun():
            return _not_begun(state, event)
        case HookActed():
            return _hook_acted(state, event)
        case InterruptionOpened():
            return _question_opened(state, event, at_ms)
        case InterruptionClosed():
            return _question_closed(state, event, at_ms)
        case TurnCancelled():
            return _turn_cancelled(state, event)
        case ChildrenPlanned() | ChildRequested() | ChildReturned():
            return _delegated(state, event, at_ms)
        case ResidentLeft():
            return _with_facts(state, _without_resident(_facts(state, event), event.child_run_id))
        case RunParked():
            _check_not_compacting(state, event)
            return Parked(facts=_facts(state, event), since_ms=at_ms)
        case RunPauseRequested(scope=scope, reason=reason, by=by):
            return _pause_requested(state, event, Pause(scope=scope, reason=reason, by=by))
        case RunPaused():
            return _paused(state, event, at_ms)
        case RunResumed():
            return _resumed(state, event)
        case CompactionRequested():
            return _compaction_requested(state, event, at_ms)
        case ContextCompacted() | CompactionFailed():
            return _compaction_over(state, event)
        case InputReceived():
            return _with_facts(state, _with_input(_facts(state, event), event))
        case RunCompleted(stop_reason=reason):
            return _ended(state, event, "completed", reason)
        case RunFailed(error=error):
            return _ended(state, event, "failed", error)
        case RunCancelled(reason=reason):
            return _ended(state, event, "cancelled", reason)
        case RunRestored():
            return _restored(state, event, at_ms)
        case RunQuarantined(error=error):
            return _with_facts(state, changed(_facts(state, event), quarantined=error))
        case RunReleased():
            return _with_facts(state, changed(_facts(state, event), quarantined="", losses=NO_LOSSES))
        case PersonNotified():
            return _person_notified(state, event)
        case LimitReached(notice=notice):
            facts = _facts(state, event)
            told = f"{notice.scope}/{notice.severity}"
            return _with_facts(state, changed(facts, limits_told=(*facts.limits_told, told)))
        case CommandRefused():
            return state
        case _:
            assert_never(event)


def conversation(state: State) -> tuple[Message, ...]:
    """The conversation so far, closed so that any provider accepts it: every call has a result.

    A run that ended in the middle of its tool calls leaves calls without results; they get an error result here.
    """
    match state:
        case Absent(history=history):
            return history
        case Refused():
            return ()
        case AwaitingTools(facts=facts, answers=answers):
            return _boundary(changed(facts, messages=_closed(facts.messages, answers))).messages
        case Ended(facts=facts, answers=answers):
            return _closed(facts.messages, answers)
        case AwaitingModel(facts=facts) | Parked(facts=facts) | Paused(facts=facts) | Compacting(facts=facts):
            # Texts that wait for the next turn have been said: only a fork looks at a run that is under way.
            return _boundary(facts).messages
        case _:
            assert_never(state)


def at_boundary(facts: Facts) -> Facts:
    """The facts with what has waited for the next turn in the conversation."""
    return _boundary(facts)


def used_tokens(facts: Facts) -> int:
    """How full the context is: what the provider counted last, and an estimate of what came after."""
    return facts.context.tokens + estimate_tokens(facts.messages[facts.context.messages :])


# --- one function per event ------------------------------------------------------------------------------------------


def _started(state: State, event: RunStarted, at_ms: int) -> AwaitingModel:
    if not isinstance(state, Absent):
        raise IllegalEvent(f"RunStarted on a run that is {type(state).__name__}")
    system, first = first_message(event.definition, event.segments, event.metadata, event.payload_metadata)
    # Another agent's model would refuse reasoning that it did not sign.
    history = tuple(map(_without_reasoning, state.history)) if event.seed and event.forked_from else state.history
    facts = Facts(
        run_id=state.run_id,
        session_id=event.session_id,
        agent_id=event.agent_id,
        subject=event.subject,
        user_id=event.user_id,
        user_tier=event.user_tier,
        definition=event.definition,
        system=system,
        # A fork may say nothing of its own: it answers what its prefix ends with.
        messages=(*history, first) if first.blocks else history,
        allowed_hosts=event.allowed_hosts,
        interactive=event.interactive,
        idempotency_key=event.idempotency_key,
        request_sha256=event.request_sha256,
        started_at_ms=at_ms,
        traceparent=event.traceparent,
        metadata=tuple(sorted(event.metadata.items())),
        payload_metadata=tuple(sorted(event.payload_metadata.items())),
        credentials=event.credentials,
        inherited_messages=len(state.history),
        imported_events=0 if event.imported_from is None else event.imported_from.events,
        run_timeout_s=event.run_timeout_s,
        deadline_ms=_deadline(event.run_timeout_s, at_ms),
        parent=event.parent,
        parent_context=tuple(sorted(event.parent_context.items())),
        web_search_filter=event.web_search_filter,
        seed=event.seed,
    )
    # No call is due yet: the intent follows in the same batch, and until then turn 0 says so.
    return AwaitingModel(
        facts=facts,
        turn=0,
        attempt=0,
        provider=event.definition.provider,
        model=event.definition.model,
        not_before_ms=0,
    )


def _model_requested(state: State, event: ModelCallRequested, at_ms: int) -> AwaitingModel:
    facts = _facts(state, event)
    _check_not_compacting(state, event)
    same_turn = isinstance(state, AwaitingModel) and state.turn == event.turn
    if isinstance(state, AwaitingModel) and same_turn:
        if event.attempt != state.attempt + 1:
            raise IllegalEvent(f"attempt {event.attempt} of turn {event.turn} after attempt {state.attempt}")
        return changed(
            state,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            not_before_ms=event.not_before_ms,
            not_begun=False,
            # A lost owner's wait goes on with the next one: it is the same wait, not a second.
            waited_ms=state.waited_ms + max(0, event.not_before_ms - max(at_ms, state.not_before_ms)),
        )
    if isinstance(state, Paused | Parked):
        facts = _time_went_on(facts, state.since_ms, at_ms)
    if isinstance(state, Paused):
        if facts.pauses:
            raise IllegalEvent(f"a call of turn {event.turn} while the run is paused")
        if (event.turn, event.attempt) != (state.turn, state.attempt + 1):
            raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} after a pause before turn {state.turn}")
        return AwaitingModel(
            facts=_next_to_read(state, facts) if event.attempt == 1 else facts,
            turn=event.turn,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            not_before_ms=event.not_before_ms,
            failures=state.failures,
            rate_limits=state.rate_limits,
            waited_ms=state.waited_ms,
            interruptions=state.interruptions,
        )
    if event.turn != facts.turns + 1 or event.attempt != 1:
        raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} after {facts.turns} turns")
    return AwaitingModel(
        facts=_next_to_read(state, facts),
        turn=event.turn,
        attempt=1,
        provider=event.provider,
        model=event.model,
        not_before_ms=event.not_before_ms,
    )


def _replied(state: State, event: ModelReplied) -> AwaitingTools:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"a reply to turn {event.turn} attempt {event.attempt} that is not awaited")
    blocks = (TextBlock(text=event.text, blob=event.text_blob),) if event.text or event.text_blob else ()
    calls = tuple(ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in event.tool_calls)
    message = Message(
        role="assistant",
        blocks=(*blocks, *calls),
        reasoning=event.reasoning,
        reasoning_signature=event.reasoning_signature,
    )
    # An answer without text and calls would be refused by providers when it is sent back.
    messages = (*state.facts.messages, message) if message.blocks else state.facts.messages
    spent = event.usage
    tokens = spent.input_tokens + spent.output_tokens
    tokens += spent.cache_creation_input_tokens + spent.cache_read_input_tokens
    facts = changed(
        state.facts,
        messages=messages,
        context=ContextGauge(tokens=tokens, messages=len(messages)),
        turns=event.turn,
        usage=add_usage(state.facts.usage, event.usage),
        last_usage=event.usage,
        max_context_tokens=event.max_context_tokens,
        cost_micros=state.facts.cost_micros + event.cost_micros,
        currency=event.currency or state.facts.currency,
    )
    return AwaitingTools(facts=facts, turn=event.turn, asked=event.tool_calls)


def _model_failed(state: State, event: ModelCallFailed) -> AwaitingModel:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"a failure of turn {event.turn} attempt {event.attempt} that is not awaited")
    facts = changed(
        state.facts,
        model_errors=state.facts.model_errors + 1,
        retries=state.facts.retries + event.takes_iteration,
    )
    if event.kind == "interrupted":
        return changed(state, facts=facts, interruptions=state.interruptions + 1)
    if event.kind in ("rate_limited", PROVIDER_FULL):
        return changed(state, facts=facts, rate_limits=state.rate_limits + 1)
    return changed(state, facts=facts, failures=state.failures + 1)


def _failing(state: State, event: ModelSwitched | FallbackSuppressed) -> AwaitingModel:
    """The state in which a call of this attempt has failed."""
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (event.turn, event.attempt):
        raise IllegalEvent(f"{type(event).__name__} after turn {event.turn} attempt {event.attempt}, not awaited")
    return state


def _switched(state: State, event: ModelSwitched) -> AwaitingModel:
    awaiting = _failing(state, event)
    facts = awaiting.facts
    if event.number != facts.switches + 1:
        raise IllegalEvent(f"switch {event.number} of a run that has made {facts.switches}")
    facts = changed(
        facts,
        choice=ModelChoice(provider=event.provider, model=event.model, effort=event.effort),
        switches=event.number,
        messages=tuple(map(_without_reasoning, facts.messages)) if event.reasoning_cleared else facts.messages,
    )
    # Another model has failed at nothing yet, so its retries and its waits are counted anew.
    return changed(
        awaiting,
        facts=facts,
        provider=event.provider,
        model=event.model,
        failures=0,
        rate_limits=0,
        waited_ms=0,
    )


def _tool_requested(state: State, event: ToolCallRequested, at_ms: int) -> AwaitingTools:
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or not 0 <= event.index < len(state.asked):
        raise IllegalEvent(f"a tool call {event.index} of turn {event.turn} that the model did not ask for")
    if any(answer.index == event.index for answer in state.answers):
        raise IllegalEvent(f"tool call {event.index} of turn {event.turn} is asked for again after its result")
    call = state.asked[event.index]
    kept = tuple(item for item in state.open if item.index != event.index)
    before = next((item for item in state.open if item.index == event.index), None)
    if before is not None:
        state = _with_loss(state, event.index, at_ms)
    opened = OpenCall(
        index=event.index,
        call=call,
        attempt=event.attempt,
        effect_class=event.effect_class,
        reconcilable=event.reconcilable,
        asks=before.asks if before is not None else 0,
        delegation=before.delegation if before is not None else None,
    )
    return _looked_at(changed(state, open=(*kept, opened)), at_ms)


def _reconcile_requested(state: State, event: ToolReconcileRequested, at_ms: int) -> AwaitingTools:
    awaiting, opened = _lost(state, event, at_ms)
    if event.ask != opened.asks + 1:
        raise IllegalEvent(f"question {event.ask} about tool call {event.index} after question {opened.asks}")
    return _replaced(awaiting, changed(opened, asks=event.ask, is_asking=True))


def _outcome_asked(state: State, event: ToolOutcomeAsked, at_ms: int) -> AwaitingTools:
    awaiting, opened = _lost(state, event, at_ms)
    return _replaced(awaiting, changed(opened, is_asking=False, is_waiting=True))


def _question_opened(state: State, event: InterruptionOpened, at_ms: int) -> AwaitingTools:
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or not 0 <= event.index < len(state.asked):
        raise IllegalEvent(f"a question {event.turn}.{event.index} that no call of this turn asks")
    begun: tuple[Answer | OpenCall | Question, ...] = (*state.answers, *state.open, *state.questions)
    asked = {question.interrupt_id for question in state.questions}
    if event.interrupt_id in asked or any(item.index == event.index for item in begun):
        raise IllegalEvent(f"the call {event.turn}.{event.index} asks a second time, as {event.interrupt_id}")
    question = question_of(event, state.asked[event.index])
    return _looked_at(changed(state, questions=(*state.questions, question)), at_ms)


def _person_notified(state: State, event: PersonNotified) -> AwaitingTools:
    """Its result follows in the same batch; nothing waits."""
    if isinstance(state, AwaitingTools) and state.turn == event.turn and 0 <= event.index < len(state.asked):
        return state
    raise IllegalEvent(f"a notice {event.turn}.{event.index} of a call that the model did not ask for")


def _question_closed(state: State, event: InterruptionClosed, at_ms: int) -> AwaitingTools:
    """Its result follows in the same batch, or the end of the run."""
    left = state.questions if isinstance(state, AwaitingTools) else ()
    left = tuple(item for item in left if item.interrupt_id != event.interrupt_id)
    if not isinstance(state, AwaitingTools) or len(left) == len(state.questions):
        raise IllegalEvent(f"the question {event.interrupt_id} does not wait")
    settled = Settled(interrupt_id=event.interrupt_id, status=event.status, resolution_id=event.resolution_id)
    facts = changed(state.facts, settled=(*state.facts.settled, settled)[-limits.SETTLED_KEPT :])
    return _looked_at(changed(state, facts=facts, questions=left), at_ms)


def _looked_at(state: AwaitingTools, at_ms: int) -> AwaitingTools:
    """With its time standing still from when nothing but people is waited for until something else is."""
    if state.questions and not state.open:
        return state if state.idle_since_ms else changed(state, idle_since_ms=at_ms)
    if not state.idle_since_ms:
        return state
    return changed(state, facts=_time_went_on(state.facts, state.idle_since_ms, at_ms), idle_since_ms=0)


def _turn_cancelled(state: State, event: TurnCancelled) -> AwaitingTools:
    match state:
        case AwaitingTools(turn=event.turn) if len(state.answers) == len(state.asked) and not event.attempt:
            return state
        case AwaitingModel(turn=event.turn, attempt=event.attempt, facts=facts):
            said = event.text or event.text_blob
            blocks = (TextBlock(text=event.text, blob=event.text_blob),) if said else ()
            messages = (*facts.messages, Message(role="assistant", blocks=blocks)) if blocks else facts.messages
            return AwaitingTools(facts=changed(facts, messages=messages, turns=event.turn), turn=event.turn, asked=())
    raise IllegalEvent(f"turn {event.turn} attempt {event.attempt} is cancelled and not under way")


def _not_begun(state: State, event: CallNotBegun) -> AwaitingModel | AwaitingTools | Compacting:
    match state:
        case Compacting(number=event.turn, attempt=event.attempt) if event.kind == "compact":
            return changed(state, not_begun=True)
        case AwaitingModel(turn=event.turn, attempt=event.attempt) if event.kind == "model":
            return changed(state, not_begun=True)
        case AwaitingTools(turn=event.turn) if event.kind == "tool":
            for opened in state.open:
                if (opened.index, opened.attempt) == (event.index, event.attempt):
                    return _replaced(state, changed(opened, not_begun=True))
    raise IllegalEvent(f"attempt {event.attempt} of {event.kind} call {event.turn}.{event.index} is not open")


def _hook_acted(state: State, event: HookActed) -> AwaitingTools:
    """Nothing changes: the call is kept as the model wrote it, and its result comes after the hooks."""
    if isinstance(state, AwaitingTools) and (event.turn, event.index, event.attempt) in [
        (state.turn, opened.index, opened.attempt) for opened in state.open
    ]:
        return state
    raise IllegalEvent(f"HookActed: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def _delegated(state: State, event: ChildrenPlanned | ChildRequested | ChildReturned, at_ms: int) -> AwaitingTools:
    """A call of the Agent tool goes on."""
    opened = None
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        opened = next((call for call in state.open if call.index == event.index), None)
    if opened is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} is not open")
    assert isinstance(state, AwaitingTools)
    facts = state.facts
    if isinstance(event, ChildrenPlanned):
        if opened.delegation is not None:
            raise IllegalEvent(f"the call {event.turn}.{event.index} is planned twice")
        return _replaced(state, changed(opened, delegation=delegation.planned(event, at_ms)))
    if opened.delegation is None:
        raise IllegalEvent(f"{type(event).__name__}: the call {event.turn}.{event.index} wants no children")
    try:
        if isinstance(event, ChildRequested):
            after = delegation.requested(opened.delegation, event)
        else:
            after = delegation.returned(opened.delegation, event)
    except KeyError as error:
        raise IllegalEvent(f"{type(event).__name__}: child {event.number} of {event.turn}.{event.index}") from error
    if isinstance(event, ChildRequested) and after.op in delegation.STARTING:
        residents = (*facts.residents, event.child_run_id) if after.op == delegation.OPEN else facts.residents
        facts = changed(facts, spawned=facts.spawned + 1, residents=residents)
    elif isinstance(event, ChildReturned) and event.status in delegation.OVER:
        facts = _without_resident(facts, event.child_run_id)
    return _replaced(changed(state, facts=facts), changed(opened, delegation=after))


def _without_resident(facts: Facts, run_id: str) -> Facts:
    if run_id not in facts.residents:
        return facts
    return changed(facts, residents=tuple(name for name in facts.residents if name != run_id))


def _lost(state: State, event: ToolReconcileRequested | ToolOutcomeAsked, at_ms: int) -> tuple[AwaitingTools, OpenCall]:
    """The open call whose attempt was lost, and the state that counts it."""
    if isinstance(state, AwaitingTools) and state.turn == event.turn:
        for opened in state.open:
            if (opened.index, opened.attempt) == (event.index, event.attempt):
                return _with_loss(state, opened.index, at_ms), opened
    raise IllegalEvent(f"{type(event).__name__}: no attempt {event.attempt} of {event.turn}.{event.index} is open")


def _with_loss(state: AwaitingTools, index: int, at_ms: int) -> AwaitingTools:
    """Its owner is counted as lost when that call was under way, and not asked about, waiting or not begun."""
    facts = state.facts
    opened = next((call for call in state.open if call.index == index), None)
    if opened is None or opened.is_asking or opened.is_waiting or opened.not_begun or facts.losses.at_ms == at_ms:
        return state
    return changed(state, facts=changed(facts, losses=Losses(count=facts.losses.count + 1, at_ms=at_ms)))


def _replaced(state: AwaitingTools, opened: OpenCall) -> AwaitingTools:
    return changed(state, open=(*(item for item in state.open if item.index != opened.index), opened))


def _tool_returned(state: State, event: ToolReturned, at_ms: int) -> AwaitingTools:
    if not isinstance(state, AwaitingTools) or state.turn != event.turn or not 0 <= event.index < len(state.asked):
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn} that is not awaited")
    if any(answer.index == event.index for answer in state.answers):
        raise IllegalEvent(f"a second result of tool call {event.index} of turn {event.turn}")
    if any(question.index == event.index for question in state.questions):
        raise IllegalEvent(f"a result of tool call {event.index} of turn {event.turn}, whose question still waits")
    if event.outcome == OUTCOME_UNKNOWN:
        state = _with_loss(state, event.index, at_ms)
    if event.asks_compaction:
        state = changed(state, facts=_wishing(state.facts, is_wished=True))
    answer = Answer(
        index=event.index,
        call=state.asked[event.index],
        text=event.text,
        blob=event.text_blob,
        is_error=event.is_error,
    )
    answers = (*state.answers, answer)
    open_calls = tuple(item for item in state.open if item.index != event.index)
    if len(answers) < len(state.asked):
        return _looked_at(changed(state, open=open_calls, answers=answers), at_ms)
    results = tuple(_result_block(a) for a in sorted(answers, key=lambda a: a.index))
    facts = changed(state.facts, messages=(*state.facts.messages, Message(role="user", blocks=results)))
    return changed(state, facts=facts, open=(), answers=answers)


def _pause_requested(state: State, event: RunPauseRequested, pause: Pause) -> State:
    facts = _facts(state, event)
    if any(held.scope == pause.scope for held in facts.pauses):
        raise IllegalEvent(f"a second pause of scope {pause.scope}")
    return _with_facts(state, changed(facts, pauses=(*facts.pauses, pause)))


def _paused(state: State, event: RunPaused, at_ms: int) -> Paused:
    facts = _facts(state, event)
    _check_not_compacting(state, event)
    if not facts.pauses or isinstance(state, Paused) or event.turn != facts.turns + 1:
        raise IllegalEvent(f"RunPaused before turn {event.turn} of a run that is {type(state).__name__}")
    if isinstance(state, AwaitingModel) and state.turn == event.turn:
        # In the middle of a turn's attempts, so the next attempt goes on counting where this one ended.
        return Paused(
            facts=facts,
            turn=event.turn,
            attempt=state.attempt,
            not_before_ms=event.not_before_ms,
            failures=state.failures,
            rate_limits=state.rate_limits,
            waited_ms=state.waited_ms + max(0, event.not_before_ms - max(at_ms, state.not_before_ms)),
            interruptions=state.interruptions,
            since_ms=at_ms,
        )
    if isinstance(state, Parked):
        facts = _time_went_on(facts, state.since_ms, at_ms)
    return Paused(facts=facts, turn=event.turn, since_ms=at_ms)


def _compaction_requested(state: State, event: CompactionRequested, at_ms: int) -> Compacting:
    facts = _facts(state, event)
    if isinstance(state, Compacting) and event.number == state.number:
        if event.attempt != state.attempt + 1 or state.attempt == 0:
            raise IllegalEvent(f"attempt {event.attempt} of compaction {event.number} after attempt {state.attempt}")
        lost = 0 if state.not_begun else 1
        return changed(
            state,
            attempt=event.attempt,
            provider=event.provider,
            model=event.model,
            losses=state.losses + lost,
            not_begun=False,
        )
    nothing_is_open = (
        isinstance(state, Parked | Paused)
        or (isinstance(state, AwaitingModel) and state.attempt == 0)
        or (isinstance(state, AwaitingTools) and len(state.answers) == len(state.asked))
    )
    if not nothing_is_open or facts.pauses or event.turn != facts.turns + 1:
        raise IllegalEvent(f"a compaction before turn {event.turn} of a run that is {type(state).__name__}")
    if isinstance(state, Parked | Paused):
        facts = _time_went_on(facts, state.since_ms, at_ms)
    facts = _boundary(facts)
    if (event.number, event.attempt) != (facts.compactions.count + 1, 1) or event.keep_n > len(facts.messages):
        raise IllegalEvent(f"compaction {event.number} after {facts.compactions.count} of them")
    begun = Compactions(count=event.number, last_turn=event.turn)
    return Compacting(
        facts=changed(facts, compactions=begun),
        number=event.number,
        attempt=1,
        trigger=event.trigger,
        keep_n=event.keep_n,
        keep_first=event.keep_first,
        before_tokens=event.before_tokens,
        provider=event.provider,
        model=event.model,
    )


def _compaction_over(state: State, event: ContextCompacted | CompactionFailed) -> Compacting:
    if not isinstance(state, Compacting) or (state.number, state.attempt) != (event.number, event.attempt):
        raise IllegalEvent(f"the end of compaction {event.number} attempt {event.attempt} that is not awaited")
    facts = state.facts
    if isinstance(event, ContextCompacted):
        how = Split(keep_n=event.keep_n, keep_first=event.keep_first)
        messages = compacted(facts.messages, event.summary, how)
        made = len(messages) - how.keep_n
        gone = len(facts.messages) - how.keep_n
        # What the provider counts shrinks as the estimate does; its next answer says exactly.
        tokens = used_tokens(facts) * event.after_tokens // max(1, event.before_tokens)
        facts = changed(
            facts,
            messages=messages,
            inherited_messages=made + max(0, facts.inherited_messages - gone),
            context=ContextGauge(tokens=tokens, messages=len(messages)),
        )
    facts = changed(
        facts,
        usage=add_usage(facts.usage, event.usage),
        cost_micros=facts.cost_micros + event.cost_micros,
        currency=event.currency or facts.currency,
    )
    return changed(state, facts=facts, attempt=0)


def _check_not_compacting(state: State, event: object) -> None:
    if isinstance(state, Compacting) and state.attempt:
        raise IllegalEvent(f"{type(event).__name__} during compaction {state.number}")


def _resumed(state: State, event: RunResumed) -> State:
    facts = _facts(state, event)
    pauses = tuple(held for held in facts.pauses if held.scope != event.scope)
    if len(pauses) == len(facts.pauses) or len(pauses) != event.remaining:
        raise IllegalEvent(f"RunResumed of scope {event.scope} with {event.remaining} left, held by {facts.pauses}")
    return _with_facts(state, changed(facts, pauses=pauses))


def _restored(state: State, event: RunRestored, at_ms: int) -> State:
    facts = _facts(state, event)
    if facts.imported_events != event.events:
        return state  # it went on somewhere before, and that is told again here
    # Its time begins anew: how long the file lay somewhere was no work.
    return _with_facts(state, changed(facts, imported_events=0, deadline_ms=_deadline(facts.run_timeout_s, at_ms)))


def _ended(state: State, event: Event, status: str, reason: str) -> Ended:
    facts = _facts(state, event)
    # Once all results of a turn are in they are in the conversation, and nothing is left to be kept.
    if isinstance(state, AwaitingTools) and len(state.answers) < len(state.asked):
        return Ended(facts=facts, status=status, reason=reason, answers=state.answers)
    return Ended(facts=facts, status=status, reason=reason)


# --- shared ----------------------------------------------------------------------------------------------------------


def has_reasoning(message: Message) -> bool:
    """Whether it is an answer with reasoning, or with a signature of it."""
    return message.role == "assistant" and bool(message.reasoning or message.reasoning_signature)


def _without_reasoning(message: Message) -> Message:
    return changed(message, reasoning="", reasoning_signature="") if has_reasoning(message) else message


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_creation_input_tokens=one.cache_creation_input_tokens + other.cache_creation_input_tokens,
        cache_read_input_tokens=one.cache_read_input_tokens + other.cache_read_input_tokens,
    )


def _deadline(run_timeout_s: int, at_ms: int) -> int:
    return at_ms + 1000 * run_timeout_s if run_timeout_s else 0


def _time_went_on(facts: Facts, since_ms: int, at_ms: int) -> Facts:
    """The time of the run stood still since then."""
    if not facts.deadline_ms:
        return facts
    return changed(facts, deadline_ms=facts.deadline_ms + max(0, at_ms - since_ms))


def _with_input(facts: Facts, event: InputReceived) -> Facts:
    ids = (*facts.input_ids, event.input_id)[-limits.INPUT_IDS_KEPT :] if event.input_id else facts.input_ids
    said = event.text if event.text_blob is None else event.text_blob
    return changed(facts, waiting_inputs=(*facts.waiting_inputs, said), input_ids=ids)


def _boundary(facts: Facts) -> Facts:
    """Waiting user texts join the conversation, one message each. What was wished for the boundary has had its time."""
    if facts.compactions.is_wished:
        facts = _wishing(facts, is_wished=False)
    if not facts.waiting_inputs:
        return facts
    texts = tuple(Message(role="user", blocks=(_said(text),)) for text in facts.waiting_inputs)
    return changed(facts, messages=(*facts.messages, *texts), waiting_inputs=())


def _said(text: str | BlobRef) -> TextBlock:
    return TextBlock(text=text) if isinstance(text, str) else TextBlock(text="", blob=text)


def _next_to_read(state: State, facts: Facts) -> Facts:
    """The facts as the next turn reads them. A script has not read to its end: what was said meanwhile waits for it."""
    asked = not isinstance(state, AwaitingTools) or bool(state.asked)
    return facts if asked and code_agents.is_mid_script(facts) else _boundary(facts)


def _wishing(facts: Facts, *, is_wished: bool) -> Facts:
    return changed(facts, compactions=changed(facts.compactions, is_wished=is_wished))


def _facts(state: State, event: object) -> Facts:
    if isinstance(state, (Absent, Refused)):
        raise IllegalEvent(f"{type(event).__name__} on a run that is {type(state).__name__}")
    if isinstance(state, Ended):
        raise IllegalEvent(f"{type(event).__name__} after the run was {state.status}")
    return state.facts


def _with_facts(state: State, facts: Facts) -> State:
    match state:
        case AwaitingModel() | AwaitingTools() | Parked() | Paused() | Compacting() | Ended():
            return changed(state, facts=facts)
        case Absent() | Refused():
            raise IllegalEvent(f"no facts in {type(state).__name__}")
        case _:
            assert_never(state)


def _result_block(answer: Answer) -> ToolResultBlock:
    return ToolResultBlock(
        tool_use_id=answer.call.id,
        name=answer.call.name,
        text=answer.text,
        is_error=answer.is_error,
        blob=answer.blob,
    )


def _closed(messages: tuple[Message, ...], answers: tuple[Answer, ...]) -> tuple[Message, ...]:
    """With a result for every call of the last message: what is in, and for the rest that it is not known."""
    if not messages or messages[-1].role != "assistant":
        return messages
    calls = [block for block in messages[-1].blocks if isinstance(block, ToolUseBlock)]
    if not calls:
        return messages
    found = {answer.index: _result_block(answer) for answer in answers}
    results = tuple(
        found.get(index) or ToolResultBlock(tool_use_id=call.id, name=call.name, text=NO_RESULT, is_error=True)
        for index, call in enumerate(calls)
    )
    return (*messages, Message(role="user", blocks=results))
