"""What happens next: a command on a state gives events. Empty = nothing to do, which makes redelivery safe.

One function per command. A refused command is an event with a reason code. Every decision is whole: its events go to
the log in one batch, the result together with the next intent, so that a durable step costs one append.

Before: services/stream hands over a command with the folded state. After: the events are appended, then react.
"""

from typing import assert_never

from schemas.conversation import Message
from schemas.run_commands import StartRun
from schemas.run_events import (
    CommandRefused,
    CompactionFailed,
    CompactionRequested,
    ContextCompacted,
    Event,
    InputReceived,
    InterruptionClosed,
    ModelCallFailed,
    ModelCallRequested,
    ModelReplied,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunRefused,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
    TurnCancelled,
)
from schemas.values import Usage
from services.core.changing import changed
from services.core.run import (
    alarms,
    budgets,
    children,
    code_agents,
    compacting,
    falling_back,
    hooking,
    interrupting,
    limits,
    pausing,
    quarantining,
    stopping,
    unknown,
)
from services.core.run.forking import fork
from services.core.run.importing import is_import, take_in
from services.core.run.orders import (
    Cancel,
    ChildrenAsked,
    ChildTold,
    Close,
    Compact,
    Fork,
    Import,
    Input,
    ModelAnswered,
    ModelErred,
    NotBegun,
    Obey,
    Order,
    OverBudget,
    PauseIt,
    Quarantine,
    Reconciled,
    Recover,
    Refusal,
    Release,
    Resolve,
    Respond,
    ResumeIt,
    Start,
    StopTurn,
    Summarised,
    SummaryFailed,
    ToolDone,
    Woken,
)
from services.core.run.prompt import segments_of, wrong_segments
from services.core.run.state import (
    OUTCOME_UNKNOWN,
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Facts,
    Live,
    Parked,
    Paused,
    Refused,
    State,
    add_usage,
    evolve,
)


def decide(state: State, order: Order) -> list[Event]:
    """The events that follow; none when the order has no place in this state (late, repeated, already over)."""
    return interrupting.with_closings(state, _decided(state, order))


def _decided(state: State, order: Order) -> list[Event]:
    if is_import(state) and not isinstance(order, Import | Cancel):
        return []  # it is told here and done elsewhere
    if quarantining.is_quarantined(state) and not isinstance(order, quarantining.HEARD):
        return []  # it stands still, whatever comes back or is asked for
    match order:
        case Start():
            return _start(state, order)
        case Import():
            return take_in(state, order, lambda told: _recover(told, Recover(at_ms=order.at_ms, obey=order.obey)))
        case Fork():
            return fork(state, order)
        case Cancel():
            return _cancel(state, order)
        case Close():
            return _close(state, order)
        case Input():
            return _input(state, order)
        case StopTurn():
            return _stop_turn(state, order)
        case Resolve():
            return _resolve(state, order)
        case Respond():
            events = interrupting.responded(state, order)
            return _with_what_follows(state, events, order.at_ms) if isinstance(state, AwaitingTools) else events
        case Compact():
            return compacting.compact(state, order)
        case PauseIt():
            return pausing.pause(state, order)
        case ResumeIt():
            return pausing.resume(state, order)
        case Obey():
            return pausing.obey(state, order)
        case Quarantine():
            return quarantining.quarantine(state, order)
        case Release():
            return _release(state, order)
        case ModelAnswered():
            return budgets.with_notices(state, order.notices, _answered(state, order))
        case ModelErred():
            return _erred(state, order)
        case OverBudget():
            return budgets.over_budget(state, order)
        case ToolDone():
            return _tool_done(state, order)
        case ChildrenAsked():
            if not isinstance(state, AwaitingTools):
                return []
            return _with_what_follows(state, children.planned(state, order), order.at_ms)
        case ChildTold():
            events = children.told(state, order)
            return _with_what_follows(state, events, order.at_ms) if isinstance(state, AwaitingTools) else events
        case Reconciled():
            return _reconciled(state, order)
        case Summarised():
            return _after_compaction(state, compacting.summarised(state, order), order.at_ms)
        case SummaryFailed():
            return _after_compaction(state, compacting.not_summarised(state, order), order.at_ms)
        case NotBegun():
            return unknown.not_begun(state, order)
        case Recover():
            return _recover(state, order)
        case Woken():
            return _woken(state, order)
        case _:
            assert_never(order)


def iteration_cap(facts: Facts) -> int:
    """Most model turns of the run, its own retries and fallbacks among them (runtime parity 1.5)."""
    definition = facts.definition
    if definition.unbounded_iterations or (facts.interactive and definition.max_iterations == 0):
        return limits.ITERATIONS_BACKSTOP
    return min(definition.max_iterations or limits.MAX_ITERATIONS_DEFAULT, limits.ITERATIONS_BACKSTOP)


def _has_iterations(facts: Facts, turn: int) -> bool:
    """Whether another call may be made after `turn`, or after a call of it that has failed."""
    return turn + facts.retries < iteration_cap(facts)


# --- start -----------------------------------------------------------------------------------------------------------


def _start(state: State, order: Start) -> list[Event]:
    if not isinstance(state, Absent):
        return []  # the same run again: it already has its events
    refusal = refusal_of(order, state.history)
    command = order.command
    if refusal is not None:
        return [
            RunRefused(
                session_id=order.session_id,
                agent_id=order.agent_id,
                agent=command.agent,
                code=refusal.code,
                message=refusal.message,
                limit=refusal.limit,
                about=refusal.about,
                cap=refusal.cap,
            )
        ]
    assert order.definition is not None
    definition = order.definition
    started: list[Event] = [
        RunStarted(
            session_id=order.session_id,
            agent_id=order.agent_id,
            subject=command.envelope.subject,
            user_id=command.user_id,
            user_tier=command.user_tier,
            definition=definition,
            segments=segments_of(command.segments, command.prompt),
            allowed_hosts=command.allowed_hosts,
            metadata=command.metadata,
            parent_context=command.parent_context,
            interactive=command.interactive,
            idempotency_key=command.idempotency_key,
            request_sha256=command.request_sha256,
            continues=order.continues,
            traceparent=order.traceparent,
            credentials=command.credentials,
            run_timeout_s=command.run_timeout_s or definition.run_timeout_s,
            parent_agent_id=order.parent.agent_id if order.parent is not None else "",
            parent=order.parent,
            web_search_filter=command.web_search_filter,
            payload_metadata=command.payload_metadata,
            seed=command.seed,
        ),
        *map(pausing.requested, order.pauses),
    ]
    if command.seed:
        return [*started, *compacting.first_of_seed(state, started, order.at_ms)]
    return [
        *started,
        pausing.held_back(order.pauses, 1)
        if order.pauses
        else ModelCallRequested(turn=1, attempt=1, provider=definition.provider, model=definition.model),
    ]


def refusal_of(order: Start, history: tuple[Message, ...]) -> Refusal | None:
    """The first thing wrong with the request, in the order of admission (runtime parity 1.2)."""
    if not order.session_found:
        return Refusal(code="not_found", message=f"session {order.session_id} does not exist")
    if order.session_live_run:
        return Refusal(
            code="session_busy",
            message=f"session_busy: session {order.session_id} has the live run {order.session_live_run}; "
            "wait for it or cancel it",
        )
    if order.handle_live_run:
        return Refusal(
            code="agent_id_in_use",
            message=f"agent_id_in_use: the live run {order.handle_live_run} has the handle {order.agent_id}; "
            "choose another or cancel it",
        )
    if order.unresolved is not None:
        return order.unresolved
    if order.command.seed:
        return compacting.wrong_seed(history, order.command, order.definition, order.pauses)
    wrong = _wrong_input(order.command)
    if wrong:
        return Refusal(code="bad_request", message=wrong)
    if order.turned_away is not None:
        return order.turned_away
    return budgets.refusal(order.exhausted) if order.exhausted is not None else None


def _wrong_input(command: StartRun) -> str:
    """What is wrong with the request's own words; empty when nothing is."""
    segments = segments_of(command.segments, command.prompt)
    if not any(segment.role == "user" and segment.content for segment in segments):
        return "the run has no input: give a prompt or a segment with role user"
    return wrong_segments(segments)


# --- from outside ----------------------------------------------------------------------------------------------------


def _cancel(state: State, order: Cancel) -> list[Event]:
    match state:
        case Absent() | Refused() | Ended():
            return []
        case AwaitingModel() | AwaitingTools() | Parked() | Paused() | Compacting():
            return [_cancelled(state.facts, order.command.reason, order.cascaded)]
        case _:
            assert_never(state)


def _stop_turn(state: State, order: StopTurn) -> list[Event]:
    events = stopping.stop(state, order)
    if not events or not isinstance(events[-1], TurnCancelled):
        return events
    assert isinstance(state, AwaitingModel | AwaitingTools)
    facts = changed(state.facts, turns=state.turn)
    if not _has_iterations(facts, state.turn):
        return [*events, _completed(facts, "max_iterations", None)]
    if facts.waiting_inputs:
        return [*events, _next(state, events, state.turn, order.at_ms)]
    return [*events, RunParked(since_turn=state.turn)]


def _close(state: State, order: Close) -> list[Event]:
    """A resident child that stands still is completed; one in the middle of a turn is cancelled."""
    if not isinstance(state, Live):
        return []
    facts = state.facts
    if facts.parent is None or not facts.parent.is_resident:
        return [CommandRefused(code="not_resident", message=f"the run {facts.run_id} is no resident sub-agent")]
    return [
        _completed(facts, children.CLOSED, None) if isinstance(state, Parked) else _cancelled(facts, children.CLOSED)
    ]


def _input(state: State, order: Input) -> list[Event]:
    command = order.command
    received = InputReceived(
        text=command.text,
        source=command.source,
        input_id=command.envelope.command_id,
        text_blob=command.text_blob,
    )
    match state:
        case Absent() | Refused() | Ended():
            return []
        case _ if received.input_id in state.facts.input_ids:
            return []  # its sender did not hear of the first one
        case Parked(facts=facts):
            return [received, _next(state, [received], facts.turns, order.at_ms)]
        case AwaitingModel(facts=facts) | AwaitingTools(facts=facts) | Paused(facts=facts) | Compacting(facts=facts):
            if len(facts.waiting_inputs) >= limits.MAX_WAITING_INPUTS:
                return [
                    CommandRefused(
                        code="queue_full",
                        message=f"{limits.MAX_WAITING_INPUTS} texts wait for the next turn of {facts.run_id}; "
                        "try again after it",
                    )
                ]
            return [received]
        case _:
            assert_never(state)


def _resolve(state: State, order: Resolve) -> list[Event]:
    command = order.command
    if isinstance(state, Absent | Refused | Ended):
        return []
    opened = unknown.open_call(state, command.turn, command.index) if isinstance(state, AwaitingTools) else None
    if opened is None or not opened.is_waiting:
        return [
            CommandRefused(
                code="nothing_to_resolve",
                message=f"the call {command.turn}.{command.index} of {state.facts.run_id} does not wait for anybody: "
                "it is under way, has its result, or was never made",
            )
        ]
    assert isinstance(state, AwaitingTools)
    return _with_what_follows(state, [unknown.resolved(command.turn, opened, command)], order.at_ms)


# --- from effects ----------------------------------------------------------------------------------------------------


def _answered(state: State, order: ModelAnswered) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (order.turn, order.attempt):
        return []  # a late answer changes nothing
    replied = ModelReplied(
        turn=order.turn,
        attempt=order.attempt,
        text=order.text,
        text_blob=order.text_blob,
        reasoning=order.reasoning,
        reasoning_signature=order.reasoning_signature,
        tool_calls=order.tool_calls,
        stop_reason=order.stop_reason,
        usage=order.usage,
        provider=order.provider,
        model=order.model,
        max_context_tokens=order.max_context_tokens,
        cost_micros=order.cost_micros,
        currency=order.currency,
        duration_ms=order.duration_ms,
        traceparent=order.traceparent,
    )
    facts = state.facts
    if order.tool_calls:
        events = [replied, *_tool_intents(facts, order)]
        if unknown.answers(events) < len(order.tool_calls):
            return events
        return [*events, *_after_all(state, events, order.at_ms)]
    if not facts.waiting_inputs and not facts.interactive:
        return [replied, _completed(facts, order.stop_reason, order)]
    if not _has_iterations(facts, order.turn):
        return [replied, _completed(facts, "max_iterations", order)]  # nobody could answer what is said next
    if facts.waiting_inputs:
        return [replied, _next(state, [replied], order.turn, order.at_ms)]
    return [replied, RunParked(since_turn=order.turn)]


def _tool_intents(facts: Facts, order: ModelAnswered) -> list[Event]:
    events: list[Event] = []
    wishes = {wish.index: wish for wish in order.wishes}
    for index, call in enumerate(order.tool_calls):
        if index in wishes and index < limits.MAX_TOOL_CALLS_PER_TURN:
            events += interrupting.begun(facts, order, wishes[index], events)
        elif index < limits.MAX_TOOL_CALLS_PER_TURN:
            events.append(
                ToolCallRequested(
                    turn=order.turn,
                    index=index,
                    call_id=call.id,
                    effect_class=order.effect_classes[index],
                    reconcilable=bool(order.reconcilable) and order.reconcilable[index],
                )
            )
        else:
            events.append(
                ToolReturned(
                    turn=order.turn,
                    index=index,
                    call_id=call.id,
                    text=f"not carried out: a turn may ask for at most {limits.MAX_TOOL_CALLS_PER_TURN} tool calls",
                    is_error=True,
                    outcome="error",
                )
            )
    return events


def _after_all(state: AwaitingModel, events: list[Event], at_ms: int) -> list[Event]:
    """What follows a reply whose calls have their results with it."""
    after: State = state
    for event in events:
        after = evolve(after, event, at_ms)
    assert isinstance(after, AwaitingTools)
    return _after_tools(after, [], at_ms)


def _erred(state: State, order: ModelErred) -> list[Event]:
    if not isinstance(state, AwaitingModel) or (state.turn, state.attempt) != (order.turn, order.attempt):
        return []
    facts = state.facts
    wait_ms = retry_wait_ms(state, order)
    passed_over, switched = falling_back.switch(state, order) if wait_ms is None else ([], None)
    takes_iteration = switched is not None or (wait_ms is not None and not _is_waited_for(order))
    if takes_iteration and not _has_iterations(facts, state.turn):
        wait_ms, passed_over, switched, takes_iteration = None, [], None, False
    failed = ModelCallFailed(
        turn=order.turn,
        attempt=order.attempt,
        kind=order.kind,
        message=order.message[: limits.ERROR_TEXT_MAX],
        retry_after_ms=order.retry_after_ms,
        provider=state.provider,
        model=state.model,
        duration_ms=order.duration_ms,
        failure_class=falling_back.class_of(order.kind),
        takes_iteration=takes_iteration,
    )
    if wait_ms is not None:
        return [failed, _next_attempt(state, order.at_ms + wait_ms, retry=state.failures + state.rate_limits + 1)]
    if switched is not None:
        there = changed(state, provider=switched.provider, model=switched.model)
        return [failed, *passed_over, switched, _next_attempt(there, 0)]
    return [failed, *passed_over, _failed(facts, falling_back.end_code(order.kind), order.message)]


def _is_waited_for(order: ModelErred) -> bool:
    return falling_back.is_waited_for(order.kind, retries_rate_limits=order.retries_rate_limits)


def retry_wait_ms(state: AwaitingModel, order: ModelErred) -> int | None:
    """How long to wait before the next attempt; None when the turn has failed (runtime parity 1.8)."""
    if not order.transient:
        return None
    if _is_waited_for(order):
        if state.rate_limits + 1 >= limits.RATE_LIMIT_ATTEMPTS:
            return None
        wait_ms = order.retry_after_ms or limits.RATE_LIMIT_BACKOFF_MS[state.rate_limits]
        return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None
    allowed = min(state.facts.definition.retry_attempts, limits.RETRY_ATTEMPTS_MAX)
    tried = state.failures + (state.rate_limits if not order.retries_rate_limits else 0)
    if tried >= allowed:
        return None
    wait_ms = max(limits.RETRY_BACKOFF_MS[tried], order.retry_after_ms)
    return wait_ms if state.waited_ms + wait_ms <= limits.RETRY_WAIT_MAX_MS else None


def _tool_done(state: State, order: ToolDone) -> list[Event]:
    if not isinstance(state, AwaitingTools) or state.turn != order.turn:
        return []
    opened = next((call for call in state.open if call.index == order.index), None)
    if opened is None or opened.attempt != order.attempt or unknown.waits_for_children(opened):
        return []
    returned = ToolReturned(
        turn=order.turn,
        index=order.index,
        call_id=opened.call.id,
        attempt=order.attempt,
        text=order.text,
        text_blob=order.text_blob,
        is_error=order.is_error,
        outcome=order.outcome,
        duration_ms=order.duration_ms,
        asks_compaction=order.asks_compaction,
    )
    acts = hooking.acted(order.turn, opened, order.hook_acts)
    return [*acts, returned, *_after_tools(state, [returned], order.at_ms)]


def _after_tools(state: AwaitingTools, told: list[Event], at_ms: int) -> list[Event]:
    """What follows the events, which hold results: the next turn once all calls have one."""
    if len(state.answers) + unknown.answers(told) < len(state.asked):
        return []
    if not _has_iterations(state.facts, state.turn):
        return [_completed(state.facts, "max_iterations", None)]
    return [_next(state, told, state.turn, at_ms)]


# --- compaction ------------------------------------------------------------------------------------------------------


def _next(state: State, told: list[Event], turn: int, at_ms: int) -> Event:
    """What follows `turn` after these events, at a turn boundary: a compaction that is due, or the next turn."""
    assert isinstance(state, AwaitingModel | AwaitingTools | Parked)
    if not state.facts.pauses and (compaction := compacting.due_after(state, told, at_ms)) is not None:
        return compaction
    return _next_turn(state.facts, turn)


def _after_compaction(
    state: State, over: ContextCompacted | CompactionFailed | CompactionRequested | None, at_ms: int
) -> list[Event]:
    """The end of a compaction with what would have come without it."""
    if over is None or isinstance(over, CompactionRequested):
        return [] if over is None else [over]
    after = evolve(state, over, at_ms)
    assert isinstance(after, Compacting)
    facts = after.facts
    if facts.seed:
        return [over, compacting.end_of_seed(facts, over if isinstance(over, CompactionFailed) else None)]
    return [over, compacting.parked_again(facts) if compacting.parks(after) else _next_turn(facts, facts.turns)]


# --- after a take-over -----------------------------------------------------------------------------------------------


def _recover(state: State, order: Recover) -> list[Event]:
    """Calls that were under way with a lost owner: re-run what may be, visibly; never a silent second call."""
    match state:
        case AwaitingModel(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            return [*changes, *_recover_model(changed(state, facts=held), order)]
        case AwaitingTools(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            return [*changes, *_recover_tools(changed(state, facts=held), order)]
        case Compacting(facts=facts):
            changes, held = pausing.changes(facts, order.obey)
            after = changed(state, facts=held)
            return [*changes, *_after_compaction(after, compacting.lost(after, order), order.at_ms)]
        case Parked() | Paused():
            return pausing.obey(state, order.obey) if order.obey is not None else []
        case Absent() | Refused() | Ended():
            return []
        case _:
            assert_never(state)


def _release(state: State, order: Release) -> list[Event]:
    """The run goes on, with what was under way treated as after a take-over."""
    events, after = quarantining.release(state, order)
    return [*events, *(_recover(after, Recover(at_ms=order.at_ms, obey=order.obey)) if after is not None else [])]


def _recover_model(state: AwaitingModel, order: Recover) -> list[Event]:
    if ("model", state.turn, 0, state.attempt) in order.still_running:
        return []
    if state.not_begun:
        return [_next_attempt(state, state.not_before_ms)]
    if state.interruptions >= limits.INTERRUPTIONS_MAX:
        return [_failed(state.facts, "interrupted", f"turn {state.turn} was lost with its owner too often")]
    return [
        ModelCallFailed(
            turn=state.turn,
            attempt=state.attempt,
            kind="interrupted",
            message="the owner of the run was lost before the call returned",
            provider=state.provider,
            model=state.model,
            failure_class=falling_back.class_of("interrupted"),
        ),
        _next_attempt(state, state.not_before_ms),
    ]


def _recover_tools(state: AwaitingTools, order: Recover) -> list[Event]:
    events: list[Event] = []
    losses = state.facts.losses.count
    for opened in state.open:
        asked = ("reconcile", state.turn, opened.index, opened.asks) if opened.is_asking else None
        called = ("tool", state.turn, opened.index, opened.attempt)
        if called not in order.still_running and asked not in order.still_running:
            if losses >= limits.LOSSES_MAX and unknown.was_under_way(opened):
                return [quarantining.lost_too_often(state, opened)]
            events += unknown.lost_call(state, opened)
    return _with_what_follows(state, events, order.at_ms)


def _reconciled(state: State, order: Reconciled) -> list[Event]:
    opened = unknown.open_call(state, order.turn, order.index) if isinstance(state, AwaitingTools) else None
    if opened is None or not opened.is_asking or (opened.attempt, opened.asks) != (order.attempt, order.ask):
        return []
    assert isinstance(state, AwaitingTools)
    acts = hooking.acted(order.turn, opened, order.hook_acts)
    return _with_what_follows(state, [*acts, unknown.reconciled(state, opened, order)], order.at_ms)


def _with_what_follows(state: AwaitingTools, events: list[Event], at_ms: int) -> list[Event]:
    """The events, and the next turn when they answer the last open calls, or the end when the run is not to go on."""
    if unknown.fails_the_run(state, events):
        # Nothing may begin in a run that ends with the same decision.
        told: list[Event] = [event for event in events if isinstance(event, ToolReturned | InterruptionClosed)]
        return [*told, _failed(state.facts, OUTCOME_UNKNOWN, "the outcome of a tool call is not known")]
    return [*events, *(_after_tools(state, events, at_ms) if unknown.answers(events) else [])]


def _woken(state: State, order: Woken) -> list[Event]:
    """Nothing when the clock of the owner went back, or what the alarm was for is done with."""
    if isinstance(state, Parked) and 0 < alarms.wakes_at(state) <= order.at_ms:
        return [_completed(state.facts, children.CLOSED, None)]
    if isinstance(state, AwaitingModel | AwaitingTools | Compacting) and alarms.is_late(state, order.at_ms):
        facts = state.facts
        code = code_agents.timeout_code(facts.definition)
        return [_failed(facts, code, f"the run took longer than its {facts.run_timeout_s} s")]
    if not isinstance(state, AwaitingTools):
        return []
    late = children.late(state, order.at_ms)
    return late or _with_what_follows(state, interrupting.expired(state, order.at_ms), order.at_ms)


# --- ends ------------------------------------------------------------------------------------------------------------


def _next_turn(facts: Facts, turn: int) -> ModelCallRequested | RunPaused:
    """The call after `turn`, or that it is held back."""
    if facts.pauses:
        return pausing.held_back(facts.pauses, turn + 1)
    current = facts.current
    return ModelCallRequested(turn=turn + 1, attempt=1, provider=current.provider, model=current.model)


def _next_attempt(state: AwaitingModel, not_before_ms: int, *, retry: int = 0) -> ModelCallRequested | RunPaused:
    """The call of the same turn after a failed one, or that it is held back."""
    if state.facts.pauses:
        return pausing.held_back(state.facts.pauses, state.turn, not_before_ms)
    return ModelCallRequested(
        turn=state.turn,
        attempt=state.attempt + 1,
        provider=state.provider,
        model=state.model,
        not_before_ms=not_before_ms,
        retry=retry,
    )


def _completed(facts: Facts, stop_reason: str, last: ModelAnswered | None) -> RunCompleted:
    """`last` is the answer that is decided together with the end and not folded in yet."""
    return RunCompleted(
        stop_reason=stop_reason,
        iterations=facts.turns + (1 if last else 0),
        usage=add_usage(facts.usage, last.usage if last else Usage()),
        cost_micros=facts.cost_micros + (last.cost_micros if last else 0),
        currency=(last.currency if last else "") or facts.currency,
    )


def _failed(facts: Facts, code: str, error: str) -> RunFailed:
    return RunFailed(
        code=code,
        error=error[: limits.ERROR_TEXT_MAX],
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )


def _cancelled(facts: Facts, reason: str, cascaded: tuple[str, ...] = ()) -> RunCancelled:
    return RunCancelled(
        cascaded=cascaded,
        reason=reason[: limits.ERROR_TEXT_MAX],
        iterations=facts.turns,
        usage=facts.usage,
        cost_micros=facts.cost_micros,
        currency=facts.currency,
    )
