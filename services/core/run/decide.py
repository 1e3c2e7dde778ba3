"""What happens next: a command on a state gives events. Empty = nothing to do, which makes redelivery safe.

One function per command. A refused command is an event with a reason code. Every decision is whole: its events go to
the log in one batch, the result together with the next intent, so that a durable step costs one append.

Before: services/stream hands over a command with the folded state. After: the events are appended, then react.
"""

from typing import assert_never

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    Event,
    InputReceived,
    RunParked,
    ToolReturned,
    TurnCancelled,
)
from loomlog.schemas.making import maker
from loomlog.services.core.changing import changed
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
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
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.interrupts import interruptions
from loomlog.services.core.run.lifecycle import budget_limits, pause, quarantine, timers
from loomlog.services.core.run.lifecycle.event_import import is_import, take_in
from loomlog.services.core.run.lifecycle.fork import fork
from loomlog.services.core.run.lifecycle.start import start
from loomlog.services.core.run.state import (
    OUTCOME_UNKNOWN,
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    Live,
    Parked,
    Paused,
    Refused,
    State,
    open_at,
)
from loomlog.services.core.run.subagents import children
from loomlog.services.core.run.tools import hook_events, unknown_outcome
from loomlog.services.core.run.tools.recovery import reconciled, recover, release
from loomlog.services.core.run.turns import cancel_turn, code_agents
from loomlog.services.core.run.turns.completion import has_iterations, run_cancelled, run_completed, run_failed
from loomlog.services.core.run.turns.model_result import answered, erred
from loomlog.services.core.run.turns.next_step import after_compaction, after_tools, next_step, with_what_follows

_returned = maker(ToolReturned)  # at each call; see schemas/making.py


def decide(state: State, order: Order) -> list[Event]:
    """The events that follow; none when the order has no place in this state (late, repeated, already over)."""
    return interruptions.with_closings(state, _decided(state, order))


def _decided(state: State, order: Order) -> list[Event]:
    if is_import(state) and not isinstance(order, (Import, Cancel)):
        return []  # it is told here and done elsewhere
    if quarantine.is_quarantined(state) and not isinstance(order, quarantine.HEARD):
        return []  # it stands still, whatever comes back or is asked for
    match order:  # the usual orders first, as in evolve
        case ModelAnswered():
            return budget_limits.with_notices(state, order.notices, answered(state, order))
        case ToolDone():
            return _tool_done(state, order)
        case Start():
            return start(state, order)
        case Import():
            return take_in(state, order, lambda told: recover(told, Recover(at_ms=order.at_ms, obey=order.obey)))
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
            events = interruptions.responded(state, order)
            return with_what_follows(state, events, order.at_ms) if isinstance(state, AwaitingTools) else events
        case Compact():
            return compaction.compact(state, order)
        case PauseIt():
            return pause.pause(state, order)
        case ResumeIt():
            return pause.resume(state, order)
        case Obey():
            return pause.obey(state, order)
        case Quarantine():
            return quarantine.quarantine(state, order)
        case Release():
            return release(state, order)
        case ModelErred():
            return erred(state, order)
        case OverBudget():
            return budget_limits.over_budget(state, order)
        case ChildrenAsked():
            if not isinstance(state, AwaitingTools):
                return []
            return with_what_follows(state, children.planned(state, order), order.at_ms)
        case ChildTold():
            events = children.told(state, order)
            return with_what_follows(state, events, order.at_ms) if isinstance(state, AwaitingTools) else events
        case Reconciled():
            return reconciled(state, order)
        case Summarised():
            return after_compaction(state, compaction.summarised(state, order), order.at_ms)
        case SummaryFailed():
            return after_compaction(state, compaction.not_summarised(state, order), order.at_ms)
        case NotBegun():
            return unknown_outcome.not_begun(state, order)
        case Recover():
            return recover(state, order)
        case Woken():
            return _woken(state, order)
        case _:
            assert_never(order)


def _cancel(state: State, order: Cancel) -> list[Event]:
    match state:
        case Absent() | Refused() | Ended():
            return []
        case AwaitingModel() | AwaitingTools() | Parked() | Paused() | Compacting():
            return [run_cancelled(state.facts, order.command.reason, order.cascaded)]
        case _:
            assert_never(state)


def _stop_turn(state: State, order: StopTurn) -> list[Event]:
    events = cancel_turn.stop(state, order)
    if not events or not isinstance(events[-1], TurnCancelled):
        return events
    assert isinstance(state, AwaitingModel | AwaitingTools)
    facts = changed(state.facts, turns=state.turn)
    if not has_iterations(facts, state.turn):
        return [*events, run_completed(facts, "max_iterations", None)]
    if facts.waiting_inputs:
        return [*events, next_step(state, events, state.turn, order.at_ms)]
    return [*events, RunParked(since_turn=state.turn)]


def _close(state: State, order: Close) -> list[Event]:
    """A resident child that stands still is completed; one in the middle of a turn is cancelled."""
    if not isinstance(state, Live):
        return []
    facts = state.facts
    if facts.parent is None or not facts.parent.is_resident:
        return [CommandRefused(code="not_resident", message=f"the run {facts.run_id} is no resident sub-agent")]
    return [
        run_completed(facts, children.CLOSED, None)
        if isinstance(state, Parked)
        else run_cancelled(facts, children.CLOSED)
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
            return [received, next_step(state, [received], facts.turns, order.at_ms)]
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
    opened = unknown_outcome.open_call(state, command.turn, command.index) if isinstance(state, AwaitingTools) else None
    if opened is None or not opened.is_waiting:
        return [
            CommandRefused(
                code="nothing_to_resolve",
                message=f"the call {command.turn}.{command.index} of {state.facts.run_id} does not wait for anybody: "
                "it is under way, has its result, or was never made",
            )
        ]
    assert isinstance(state, AwaitingTools)
    if state.facts.pauses and not command.done:
        return [
            CommandRefused(
                code="run_paused",
                message=f"{state.facts.run_id} is paused, and the call {command.turn}.{command.index} would be made "
                "again: resume it first",
            )
        ]
    return with_what_follows(state, [unknown_outcome.resolved(command.turn, opened, command)], order.at_ms)


def _tool_done(state: State, order: ToolDone) -> list[Event]:
    if not isinstance(state, AwaitingTools) or state.turn != order.turn:
        return []
    opened = open_at(state, order.index)
    if opened is None or opened.attempt != order.attempt or unknown_outcome.waits_for_children(opened):
        return []
    acts = hook_events.acted(order.turn, opened, order.hook_acts)
    if order.outcome == OUTCOME_UNKNOWN:
        if opened.is_waiting:
            return []  # a person is asked already
        return with_what_follows(state, [*acts, unknown_outcome.told_by_the_tool(state, opened, order)], order.at_ms)
    returned = _returned(
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
    return [*acts, returned, *after_tools(state, [returned], order.at_ms)]


def _woken(state: State, order: Woken) -> list[Event]:
    """Nothing when the clock of the owner went back, or what the alarm was for is done with."""
    if isinstance(state, Parked) and 0 < timers.wakes_at(state) <= order.at_ms:
        return [run_completed(state.facts, children.CLOSED, None)]
    if isinstance(state, AwaitingModel | AwaitingTools | Compacting) and timers.is_late(state, order.at_ms):
        facts = state.facts
        code = code_agents.timeout_code(facts.definition)
        return [run_failed(facts, code, f"the run took longer than its {facts.run_timeout_s} s")]
    if not isinstance(state, AwaitingTools):
        return []
    late = children.late(state, order.at_ms)
    return late or with_what_follows(state, interruptions.expired(state, order.at_ms), order.at_ms)
