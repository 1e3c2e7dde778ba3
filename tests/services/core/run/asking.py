"""Runs that ask people, and short ways to answer them."""

import json
from typing import Any

from loomlog.schemas.generated.run_commands import CancelTurn, ResolveInterruption
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.values import AgentDefinition, InterruptionTerms, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import AnswerInterruptionCommand, CancelTurnCommand
from loomlog.services.core.run.interrupts.interruptions import TOOL_NAME, interrupt_id_for, parse_request
from loomlog.services.core.run.state import AwaitingModel, AwaitingTools
from tests.services.core.run.given import DEFINITION, ENVELOPE, NOW, RUN, Run, answered, begun

TERMS = InterruptionTerms(enabled=True, max_pending=3, default_timeout_ms=60_000, max_timeout_ms=600_000)
ASKER = replace(DEFINITION, tools=("Read", TOOL_NAME), interruption=TERMS)
QUESTION = {"op": "ask", "question": "Shall I?", "options": ["yes", "no"]}


def turn(run: Run, *calls: dict[str, Any] | str) -> Run:
    """The model asks for these calls in one turn: arguments of Interruption, or the name of another tool."""
    made = [
        ToolCall(id=f"c{at}", name=TOOL_NAME, input=json.dumps(call))
        if isinstance(call, dict)
        else ToolCall(id=f"c{at}", name=call, input="{}")
        for at, call in enumerate(calls)
    ]
    wishes = tuple(parse_request(at, call.input) for at, call in enumerate(made) if call.name == TOOL_NAME)
    run.give(answered(run.state, "", *made, interruption_requests=wishes))
    return run


def asking(
    *calls: dict[str, Any] | str, definition: AgentDefinition = ASKER, interactive: bool = False, **more: Any
) -> Run:
    """A run that has asked, in its first turn."""
    return turn(begun(definition, interactive=interactive, **more), *(calls or (QUESTION,)))


def question(index: int = 0, at_turn: int = 1) -> str:
    """The id of what that call asks."""
    return interrupt_id_for(RUN, at_turn, index)


def responds(
    answer: str = "yes", *, to: str = "", at_ms: int = NOW, problem: str = "", command_id: str = "a1", **more: Any
) -> AnswerInterruptionCommand:
    """A person's answer; `more` are fields of ResolveInterruption."""
    command = ResolveInterruption(
        envelope=replace(ENVELOPE, command_id=command_id),
        run_id=RUN,
        interrupt_id=to or question(),
        answer=answer,
        **more,
    )
    return AnswerInterruptionCommand(
        at_ms=at_ms, command=command, answer=answer, answer_json=json.dumps(answer), problem=problem
    )


def stops(run: Run, reason: str = "stop talking", text: str = "", **more: Any) -> CancelTurnCommand:
    """A turn cancel, with what the model has said so far."""
    command = CancelTurn(envelope=ENVELOPE, run_id=RUN, reason=reason)
    place = (run.state.turn, run.state.attempt) if isinstance(run.state, AwaitingModel) else (0, 0)
    return CancelTurnCommand(at_ms=NOW, command=command, turn=place[0], attempt=place[1], text=text, **more)


def results(run: Run) -> list[ToolReturned]:
    """Every result so far, in the order they came."""
    return [event for event in run.events if isinstance(event, ToolReturned)]


def waiting(run: Run) -> list[str]:
    """The questions that wait."""
    return [one.interrupt_id for one in run.state.questions] if isinstance(run.state, AwaitingTools) else []
