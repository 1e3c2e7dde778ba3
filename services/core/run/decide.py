"""The events that follow a command on a state. Empty: nothing to do, which makes redelivery safe.

One function per command. A refused command is an event with a reason code. Every decision is complete: its events are
appended in one batch, the result together with the next intent, so that a durable step costs one append.

Before: services/stream passes a command with the folded state. After: the events are appended, then react.
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
from loomlog.schemas.generated.values import ResultDetails
from loomlog.schemas.records import copy_as, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import (
    AnswerInterruptionCommand,
    ApplyWidePauses,
    BudgetExceeded,
    CallAsks,
    CallsUnstarted,
    CallWaits,
    CancelCommand,
    CancelTurnCommand,
    ChildrenRequested,
    ChildReported,
    CloseCommand,
    CompactCommand,
    ForkCommand,
    GiveApprovalCommand,
    ImportCommand,
    InputCommand,
    ModelAnswered,
    ModelFailed,
    PauseCommand,
    QuarantineCommand,
    RecoverCommand,
    ReleaseCommand,
    ResolveCallCommand,
    ResumeCommand,
    RunCommand,
    RunTimerFired,
    StartCommand,
    SummaryCompleted,
    SummaryFailed,
    ToolCompleted,
    ToolReconciled,
    WaitReportCommand,
)
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.interrupts import approvals, interruptions
from loomlog.services.core.run.lifecycle import budget_limits, pause, quarantine, timers
from loomlog.services.core.run.lifecycle.event_import import import_events, is_importing
from loomlog.services.core.run.lifecycle.fork import fork_run
from loomlog.services.core.run.lifecycle.start import start_run
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import (
    OUTCOME_UNKNOWN,
    Absent,
    AwaitingModel,
    AwaitingTools,
    Compacting,
    Ended,
    LiveState,
    Parked,
    Paused,
    Refused,
    State,
    find_open_call,
)
from loomlog.services.core.run.subagents import children
from loomlog.services.core.run.tools import call_questions, hook_events, unknown_outcome, waits
from loomlog.services.core.run.tools.recovery import handle_reconciled, recover_run, release_run
from loomlog.services.core.run.turns import cancel_turn, code_agents
from loomlog.services.core.run.turns.completion import has_iterations, run_cancelled, run_completed, run_failed
from loomlog.services.core.run.turns.model_result import handle_model_answered, handle_model_failed
from loomlog.services.core.run.turns.next_step import after_compaction, after_tools, next_step, with_next_step

ALREADY_APPLIED = "already_applied"
"""Code of the answer to a repeated text that is in the history of its run."""


def decide(state: State, command: RunCommand) -> list[Event]:
    """Return the events that follow; none if the command does not apply to this state (late,
    repeated, already ended).
    """
    return interruptions.close_questions_at_end(state, _decide(state, command))


def _decide(state: State, command: RunCommand) -> list[Event]:
    if is_importing(state) and not isinstance(command, (ImportCommand, CancelCommand)):
        return []  # an import: it is executed elsewhere
    if quarantine.is_quarantined(state) and not isinstance(command, quarantine.ACCEPTED_COMMANDS):
        return []  # quarantined, whatever returns or is requested
    match command:  # the most frequent commands first, as in evolve
        case ModelAnswered():
            return budget_limits.with_notices(state, command.notices, handle_model_answered(state, command))
        case ToolCompleted():
            return _complete_tool_call(state, command)
        case StartCommand():
            return start_run(state, command)
        case ImportCommand():
            return import_events(
                state,
                command,
                lambda state: recover_run(state, RecoverCommand(at_ms=command.at_ms, wide_pauses=command.wide_pauses)),
            )
        case ForkCommand():
            return fork_run(state, command)
        case CancelCommand():
            return _cancel(state, command)
        case CloseCommand():
            return _close(state, command)
        case InputCommand():
            return _receive_input(state, command)
        case CancelTurnCommand():
            return _cancel_turn(state, command)
        case ResolveCallCommand():
            return _resolve(state, command)
        case AnswerInterruptionCommand():
            events = interruptions.answer_interruption(state, command)
            return with_next_step(state, events, command.at_ms) if isinstance(state, AwaitingTools) else events
        case GiveApprovalCommand():
            events = approvals.give_approval(state, command)
            return with_next_step(state, events, command.at_ms) if isinstance(state, AwaitingTools) else events
        case CompactCommand():
            return compaction.compact_run(state, command)
        case PauseCommand():
            return pause.pause_run(state, command)
        case ResumeCommand():
            return pause.resume_run(state, command)
        case ApplyWidePauses():
            return pause.apply_wide_pauses(state, command)
        case QuarantineCommand():
            return quarantine.quarantine_run(state, command)
        case ReleaseCommand():
            return release_run(state, command)
        case ModelFailed():
            return handle_model_failed(state, command)
        case BudgetExceeded():
            return budget_limits.handle_budget_exceeded(state, command)
        case CallAsks():
            return call_questions.ask_about_call(state, command)
        case CallWaits():
            return waits.start_waiting(state, command)
        case WaitReportCommand():
            return waits.record_report(state, command)
        case ChildrenRequested():
            if not isinstance(state, AwaitingTools):
                return []
            return with_next_step(state, children.plan_children(state, command), command.at_ms)
        case ChildReported():
            events = children.handle_child_report(state, command)
            return with_next_step(state, events, command.at_ms) if isinstance(state, AwaitingTools) else events
        case ToolReconciled():
            return handle_reconciled(state, command)
        case SummaryCompleted():
            return after_compaction(state, compaction.complete_compaction(state, command), command.at_ms)
        case SummaryFailed():
            return after_compaction(state, compaction.fail_compaction(state, command), command.at_ms)
        case CallsUnstarted():
            return unknown_outcome.record_unstarted_calls(state, command)
        case RecoverCommand():
            return recover_run(state, command)
        case RunTimerFired():
            return _fire_timer(state, command)
        case _:
            assert_never(command)


def _cancel(state: State, request: CancelCommand) -> list[Event]:
    match state:
        case Absent() | Refused() | Ended():
            return []
        case AwaitingModel() | AwaitingTools() | Parked() | Paused() | Compacting():
            return [run_cancelled(state.facts, request.command.reason, request.cascaded)]
        case _:
            assert_never(state)


def _cancel_turn(state: State, request: CancelTurnCommand) -> list[Event]:
    events = cancel_turn.cancel_turn(state, request)
    if not events or not isinstance(events[-1], TurnCancelled):
        return events
    assert isinstance(state, AwaitingModel | AwaitingTools)
    facts = replace(state.facts, turns=state.turn)
    if not has_iterations(facts, state.turn):
        return [*events, run_completed(facts, "max_iterations", None)]
    if facts.waiting_inputs:
        return [*events, next_step(state, events, state.turn, request.at_ms)]
    return [*events, RunParked(since_turn=state.turn)]


def _close(state: State, request: CloseCommand) -> list[Event]:
    """Complete a resident child that waits; cancel one in the middle of a turn."""
    if not isinstance(state, LiveState):
        return []
    facts = state.facts
    if facts.parent is None or not facts.parent.is_resident:
        return [CommandRefused(code="not_resident", message=f"the run {facts.run_id} is no resident sub-agent")]
    return [
        run_completed(facts, children.CLOSED, None)
        if isinstance(state, Parked)
        else run_cancelled(facts, children.CLOSED)
    ]


_KEY_REUSED = CommandRefused(
    code="idempotency_key_reused",
    message="this Idempotency-Key was used for another input, which was received; use a new key for a new input",
)


def _receive_input(state: State, request: InputCommand) -> list[Event]:
    command = request.command
    received = InputReceived(
        text=command.text,
        source=command.source,
        input_id=command.envelope.command_id,
        text_blob=command.text_blob,
    )
    match state:
        case Absent() | Refused() | Ended():
            return []
        case _ if earlier := state.facts.find_input(received.input_id):
            return _answer_repeated_input(state.facts) if earlier == received.input_id else [_KEY_REUSED]
        case Parked(facts=facts):
            return [received, next_step(state, [received], facts.turns, request.at_ms)]
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


def _answer_repeated_input(facts: RunFacts) -> list[Event]:
    """Answer a client that did not receive the first reply; the owner of a parent run does not wait for one."""
    if facts.parent is not None:
        return []
    return [CommandRefused(code=ALREADY_APPLIED, message="the text is in the history of the run already")]


def _resolve(state: State, request: ResolveCallCommand) -> list[Event]:
    command = request.command
    if isinstance(state, Absent | Refused | Ended):
        return []
    opened = (
        unknown_outcome.find_call_of_turn(state, command.turn, command.index)
        if isinstance(state, AwaitingTools)
        else None
    )
    if opened is None or not opened.awaits_person:
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
    return with_next_step(state, [unknown_outcome.resolve_by_operator(command.turn, opened, command)], request.at_ms)


def _complete_tool_call(state: State, result: ToolCompleted) -> list[Event]:
    if not isinstance(state, AwaitingTools) or state.turn != result.turn:
        return []
    opened = find_open_call(state, result.index)
    if opened is None or opened.attempt != result.attempt or unknown_outcome.waits_for_children(opened):
        return []
    acts = hook_events.hook_events(result.turn, opened, result.hook_acts)
    if result.outcome == OUTCOME_UNKNOWN:
        if opened.awaits_person:
            return []  # a person has been asked already
        return with_next_step(
            state, [*acts, unknown_outcome.report_unknown_outcome(state, opened, result)], result.at_ms
        )
    returned = copy_as(ToolReturned, result, call_id=opened.call.id, details=_details_of(result))
    return [*acts, returned, *after_tools(state, [returned], result.at_ms)]


def _details_of(result: ToolCompleted) -> ResultDetails | None:
    if not (result.asks_compaction or result.positions or result.skill_pin or result.channels or result.leases):
        return None
    return copy_as(ResultDetails, result)


def _fire_timer(state: State, command: RunTimerFired) -> list[Event]:
    """Decide on a timer: nothing if the owner's clock went back, or if the reason of the timer is gone."""
    if isinstance(state, Parked) and 0 < timers.next_timer_at(state) <= command.at_ms:
        return [run_completed(state.facts, children.CLOSED, None)]
    if isinstance(state, AwaitingModel | AwaitingTools | Compacting) and timers.is_past_deadline(state, command.at_ms):
        facts = state.facts
        code = code_agents.timeout_code(facts.definition)
        return [run_failed(facts, code, f"the run took longer than its {facts.options.run_timeout_s} s")]
    if not isinstance(state, AwaitingTools):
        return []
    late = children.poll_overdue_children(state, command.at_ms)
    if late:
        return late
    expired = [
        *interruptions.expire_questions(state, command.at_ms),
        *approvals.expire_approvals(state, command.at_ms),
        *waits.expire_waits(state, command.at_ms),
    ]
    return with_next_step(state, expired, command.at_ms)
