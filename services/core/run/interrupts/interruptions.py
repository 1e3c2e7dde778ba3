"""Interruptions: a run asks a person, notifies a person, or cancels a question. Pure decisions; effects are elsewhere.

    the model calls Interruption --> ask      InterruptionOpened, and the call waits in the state
                                     notify   PersonNotified and the result, at once
                                     cancel   the question is closed, and both calls have their results
    a question ends by               ResolveInterruption   resolved; declined, which is no error for the model
                                     its timer             timed_out
                                     cancel, the end of the run or of its turn   cancelled

Each end is one decision with the call's result and what follows. An open question holds no task, slot or connection, so
it survives its owner like anything else in the log.

The arguments of a call are parsed before they are encrypted (`parse_request`), and so is the answer, with the check
whether it was offered (services/runtime/run/interrupt_responses.py): the core only sees tokens after that.

Before: services/core/run/decide.py. After: questions.py has the state of a question;
services/core/run/lifecycle/timers.py has the time of its timer. Not chosen: a tool that blocks (it would hold a task
for a day and die with its process).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomlog.schemas.generated.run_events import (
    CommandRefused,
    Event,
    InterruptionClosed,
    InterruptionOpened,
    PersonNotified,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ToolReturned,
)
from loomlog.schemas.generated.values import InterruptionRequest, InterruptionTerms, ToolCall
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import AnswerInterruptionCommand, ModelAnswered
from loomlog.services.core.run.interrupts.questions import (
    APPROVAL,
    CALL_QUESTION,
    CANCELLED,
    DECLINED,
    QUESTION,
    RESOLVED,
    TIMED_OUT,
    Question,
)
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, LiveState, State
from loomlog.services.core.run.tools import call_questions

TOOL_NAME = "Interruption"
ASK, NOTIFY, CANCEL = "ask", "notify", "cancel"
PRIORITIES = ("low", "normal", "high")
ANSWER = "answer"
"""Disposition of an answer; the other one is DECLINED."""
DECLINED_NOTE = "The person declined to answer. Do not ask the same again; go on without the answer."
END_EVENTS = (RunCompleted, RunFailed, RunCancelled)
NAME_MAX = 128
"""Characters read of a kind or an id; no valid one is longer."""
LONGEST_MS = 1 << 53
"""Exclusive upper bound of milliseconds: what any JSON reader holds exactly; the terms of the run allow far less."""
FIELDS: Mapping[str, frozenset[str]] = {
    ASK: frozenset({"op", "kind", "question", "options", "context", "timeout_ms", "priority"}),
    NOTIFY: frozenset({"op", "question", "message", "context", "priority"}),
    CANCEL: frozenset({"op", "interrupt_id"}),
}
"""Arguments allowed for each operation."""


# --- arguments of a call ---------------------------------------------------------------------------------------------


def parse_request(index: int, arguments: str) -> InterruptionRequest:
    """Parse the arguments of the call at that index of its turn; `problem` describes what is wrong with them."""
    try:
        payload = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return InterruptionRequest(index=index, problem="the arguments are not JSON")
    if not isinstance(payload, dict):
        return InterruptionRequest(index=index, problem="expected the arguments as an object")
    # Several providers send every argument; null means that it is not set.
    payload = {name: value for name, value in payload.items() if value is not None}
    op = payload.get("op")
    if op not in (ASK, NOTIFY, CANCEL):
        return InterruptionRequest(
            index=index, problem='"op" is missing or unknown, expected is one of ask, notify, cancel'
        )
    problem = _argument_error(op, payload)
    if problem:
        return InterruptionRequest(index=index, op=op, problem=f"{op}: {problem}")
    return InterruptionRequest(
        index=index,
        op=op,
        kind=(payload.get("kind") or QUESTION)[:NAME_MAX],
        question=payload.get("question") or payload.get("message") or "",
        options=tuple(payload.get("options") or ()),
        context=payload.get("context") or "",
        priority=payload.get("priority") or "normal",
        timeout_ms=int(payload.get("timeout_ms") or 0),
        interrupt_id=(payload.get("interrupt_id") or "")[:NAME_MAX],
    )


def _argument_error(op: str, arguments: Mapping[str, Any]) -> str:
    """Return the first problem of the arguments; empty if there is none."""
    for name, value in arguments.items():
        if name not in FIELDS[op]:
            return f'"{name[:60]}" is unknown, expected are {", ".join(sorted(FIELDS[op]))}'
        if name not in ("options", "timeout_ms") and not isinstance(value, str):
            return f'"{name}" is no text'
    if op == CANCEL:
        return "" if arguments.get("interrupt_id") else '"interrupt_id" is missing, expected is the id that ask gave'
    question = arguments.get("question") or arguments.get("message") or ""
    if not question.strip():
        return '"question" is missing, expected is what the person is asked or told'
    if len(question) > limits.QUESTION_CHARACTERS_MAX:
        return f'"question" has {len(question)} characters, expected are at most {limits.QUESTION_CHARACTERS_MAX}'
    if len(arguments.get("context") or "") > limits.CONTEXT_CHARACTERS_MAX:
        return f'"context" has more than {limits.CONTEXT_CHARACTERS_MAX} characters'
    if (arguments.get("priority") or "normal") not in PRIORITIES:
        return f'"priority" is unknown, expected is one of {", ".join(PRIORITIES)}'
    if not _is_whole(arguments.get("timeout_ms") or 0):
        return '"timeout_ms" is wrong, expected is a whole number of milliseconds'
    return _problem_of_options(arguments.get("options") or [])


def _is_whole(number: object) -> bool:
    """Whether this is a number of milliseconds that Avro can hold. 3.0 is one, as in JSON Schema; true is not."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return False
    return 0 <= number < LONGEST_MS and float(number).is_integer()


def _problem_of_options(options: object) -> str:
    if not isinstance(options, list) or not all(isinstance(one, str) and one.strip() for one in options):
        return '"options" is wrong, expected is a list of texts'
    if len(options) > limits.OPTIONS_MAX:
        return f'"options" has {len(options)} entries, expected are at most {limits.OPTIONS_MAX}'
    if len(set(options)) < len(options):
        return '"options" has an entry twice'
    if any(len(one) > limits.OPTION_CHARACTERS_MAX for one in options):
        return f'"options" has an entry of more than {limits.OPTION_CHARACTERS_MAX} characters'
    return ""


# --- start of a turn -------------------------------------------------------------------------------------------------


def open_interruption(
    facts: RunFacts, result: ModelAnswered, request: InterruptionRequest, earlier_events: Sequence[Event]
) -> list[Event]:
    """Return the events that follow from a call of the model; `earlier_events` are those of the
    same decision so far.
    """
    call = result.tool_calls[request.index]
    problem = request.problem or _policy_error(facts.definition.interruption, request, _count_open(earlier_events))
    if problem:
        return [
            _returned(result.turn, request.index, call, f"{TOOL_NAME} was not carried out: {problem}", is_error=True)
        ]
    if request.op == CANCEL:
        return _cancel_own_question(facts, result, request, call, earlier_events)
    interrupt_id = interrupt_id_for(facts.run_id, result.turn, request.index)
    if request.op == NOTIFY:
        event = PersonNotified(
            turn=result.turn,
            index=request.index,
            call_id=call.id,
            interrupt_id=interrupt_id,
            message=request.question,
            context=request.context,
            priority=request.priority,
        )
        text = json.dumps({"interrupt_id": interrupt_id, "status": "delivered"})
        return [event, _returned(result.turn, request.index, call, text)]
    terms = facts.definition.interruption
    assert terms is not None
    return [
        InterruptionOpened(
            turn=result.turn,
            index=request.index,
            call_id=call.id,
            interrupt_id=interrupt_id,
            kind=request.kind,
            question=request.question,
            options=request.options,
            context=request.context,
            priority=request.priority,
            expires_at_ms=result.at_ms + (request.timeout_ms or terms.default_timeout_ms),
        )
    ]


def interrupt_id_for(run_id: str, turn: int, index: int) -> str:
    """Return the id of the interruption opened by that call: deterministic, and in the form clients know."""
    return f"intr_{hashlib.sha256(f'{run_id}:{turn}.{index}'.encode()).hexdigest()[:24]}"


def _policy_error(terms: InterruptionTerms | None, request: InterruptionRequest, open_count: int) -> str:
    """Return why the run may not make that request; empty if it may."""
    if terms is None or not terms.enabled:
        return "this agent may not interrupt people"
    if request.op != ASK:
        return ""
    kinds = terms.kinds or (QUESTION,)
    if request.kind not in kinds or request.kind != QUESTION:
        return f'"kind" is not allowed, expected is {" or ".join(kinds)}'
    if request.timeout_ms > terms.max_timeout_ms:
        return f'"timeout_ms" is {request.timeout_ms}, expected is at most {terms.max_timeout_ms}'
    if open_count >= terms.max_pending:
        return f"{open_count} questions of this run wait already, and no more may"
    return ""


def _count_open(events: Sequence[Event]) -> int:
    opened = sum(isinstance(event, InterruptionOpened) for event in events)
    return opened - sum(isinstance(event, InterruptionClosed) for event in events)


def _cancel_own_question(
    facts: RunFacts,
    result: ModelAnswered,
    request: InterruptionRequest,
    call: ToolCall,
    earlier_events: Sequence[Event],
) -> list[Event]:
    """Cancel a question of this run; a question of any other run is neither changed nor reported."""
    closed = {event.interrupt_id: event.status for event in earlier_events if isinstance(event, InterruptionClosed)}
    closed |= {one.interrupt_id: one.status for one in facts.closed_questions}
    asked = next(
        (e for e in earlier_events if isinstance(e, InterruptionOpened) and e.interrupt_id == request.interrupt_id),
        None,
    )
    events: list[Event] = []
    if asked is not None and request.interrupt_id not in closed:
        asking = result.tool_calls[asked.index]
        events = [
            _question_closed(asked, asked.turn, CANCELLED),
            _returned(result.turn, asked.index, asking, _cancelled_text(request.interrupt_id), is_error=True),
        ]
        status, was_pending = CANCELLED, True
    elif request.interrupt_id in closed:
        status, was_pending = closed[request.interrupt_id], False
    else:
        text = f"{TOOL_NAME} was not carried out: this run has no such question"
        return [_returned(result.turn, request.index, call, text, is_error=True)]
    text = json.dumps({"interrupt_id": request.interrupt_id, "was_pending": was_pending, "status": status})
    return [*events, _returned(result.turn, request.index, call, text)]


# --- end of a question -----------------------------------------------------------------------------------------------


def answer_interruption(state: State, request: AnswerInterruptionCommand) -> list[Event]:
    """Return the events of a person's answer, without what follows in the turn; a refusal if it has no effect."""
    if not isinstance(state, LiveState):
        return []
    facts, command = state.facts, request.command
    for one in facts.closed_questions:
        if one.interrupt_id == command.interrupt_id:
            if one.resolution_id and one.resolution_id == command.envelope.command_id:
                return []  # a retry: its sender did not receive the first reply
            code = "interrupt_expired" if one.status == TIMED_OUT else "interrupt_closed"
            return [CommandRefused(code=code, message=f"the question {one.interrupt_id} is {one.status} already")]
    question = next((q for q in open_questions(state) if q.interrupt_id == command.interrupt_id), None)
    if question is None:
        message = f"{facts.run_id} has no question {command.interrupt_id[:80]}"
        return [CommandRefused(code="not_found", message=message)]
    assert isinstance(state, AwaitingTools)
    if question.kind == APPROVAL:
        message = f"{question.interrupt_id} waits for an approval: approve or deny it (POST /v1/_approvals)"
        return [CommandRefused(code="approval_needed", message=message)]
    if question.kind == CALL_QUESTION and facts.pauses:
        return [CommandRefused(code="run_paused", message=f"{facts.run_id} is paused: resume it first")]
    if request.at_ms >= question.expires_at_ms:
        return _timed_out(state.turn, question)
    if command.disposition == DECLINED:
        return _resolve_question(state.turn, question, request, DECLINED)
    if request.problem:
        return [CommandRefused(code="invalid_answer", message=f"{question.interrupt_id}: {request.problem}")]
    return _resolve_question(state.turn, question, request, RESOLVED)


def answer_error(answer: str, options: Sequence[str]) -> str:
    """Return why that plaintext answer is not accepted for these options; empty if it is."""
    if not answer:
        return "the answer is empty"
    if len(answer) > limits.ANSWER_CHARACTERS_MAX:
        return f"the answer has {len(answer)} characters, at most {limits.ANSWER_CHARACTERS_MAX} are taken"
    return "" if not options or answer in options else "the answer is none of those that are offered"


def expire_questions(state: State, at_ms: int) -> list[Event]:
    """Time out the questions that have expired, each with the result of its call."""
    return [
        event
        for question in open_questions(state)
        if question.expires_at_ms <= at_ms and question.kind != APPROVAL
        for event in _timed_out(getattr(state, "turn", 0), question)
    ]


def close_questions_at_end(state: State, events: list[Event]) -> list[Event]:
    """Return the events of a decision; if they end the run, its open questions are closed first."""
    waiting = open_questions(state)
    if not waiting or not any(isinstance(event, END_EVENTS) for event in events):
        return events
    done = {event.interrupt_id for event in events if isinstance(event, InterruptionClosed)}
    turn = getattr(state, "turn", 0)
    closings = [
        _question_closed(question, turn, CANCELLED) for question in waiting if question.interrupt_id not in done
    ]
    end = next(at for at, event in enumerate(events) if isinstance(event, END_EVENTS))
    return [*events[:end], *closings, *events[end:]]


def cancel_questions(state: AwaitingTools, text: str) -> list[Event]:
    """Cancel all questions of the turn, each with that text as the result of its call."""
    events: list[Event] = []
    for question in state.questions:
        doubt = "; the call may or may not have had its effect" if question.is_held else ""
        events.append(_question_closed(question, state.turn, CANCELLED))
        events.append(
            _returned(state.turn, question.index, question.call, text + doubt, is_error=True, outcome=CANCELLED)
        )
    return events


def open_questions(state: State) -> tuple[Question, ...]:
    """Return the open questions of the run."""
    return state.questions if isinstance(state, AwaitingTools) else ()


def _resolve_question(turn: int, question: Question, request: AnswerInterruptionCommand, status: str) -> list[Event]:
    command = request.command
    by = (command.resolved_by or command.envelope.subject)[: limits.RESOLVED_BY_MAX]
    named = {"interrupt_id": question.interrupt_id, "resolved_by": by}
    if status == DECLINED:
        text = json.dumps({"declined": True, "note": DECLINED_NOTE, **named}, ensure_ascii=False)
    else:
        rest = json.dumps({"resolved_at": _format_time(request.at_ms), **named}, ensure_ascii=False)
        # The answer may be a token, so it is inserted as the JSON it will be after decryption.
        text = f'{{"answer": {request.answer_json}, {rest[1:]}'
    closed = InterruptionClosed(
        turn=turn,
        index=question.index,
        call_id=question.call.id,
        interrupt_id=question.interrupt_id,
        status=status,
        answer=request.answer if status == RESOLVED else "",
        resolved_by=by,
        by=command.envelope.subject,
        resolution_id=command.envelope.command_id,
    )
    if question.kind == CALL_QUESTION:
        return [closed, call_questions.call_again(turn, question)]
    return [closed, _returned(turn, question.index, question.call, text)]


def _timed_out(turn: int, question: Question) -> list[Event]:
    if question.kind == CALL_QUESTION:
        return [_question_closed(question, turn, TIMED_OUT), call_questions.call_again(turn, question)]
    text = f"{TOOL_NAME} timed out: {question.interrupt_id} was not answered in time"
    return [
        _question_closed(question, turn, TIMED_OUT),
        _returned(turn, question.index, question.call, text, is_error=True, outcome="timeout"),
    ]


def _cancelled_text(interrupt_id: str) -> str:
    return f"{TOOL_NAME} was cancelled: {interrupt_id} was taken back before anybody answered"


def _question_closed(question: Question | InterruptionOpened, turn: int, status: str) -> InterruptionClosed:
    call_id = question.call.id if isinstance(question, Question) else question.call_id
    return InterruptionClosed(
        turn=turn, index=question.index, call_id=call_id, interrupt_id=question.interrupt_id, status=status
    )


def _returned(
    turn: int, index: int, call: ToolCall, text: str, *, is_error: bool = False, outcome: str = ""
) -> ToolReturned:
    return ToolReturned(
        turn=turn,
        index=index,
        call_id=call.id,
        text=text,
        is_error=is_error,
        outcome=outcome or ("error" if is_error else "ok"),
    )


def _format_time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
