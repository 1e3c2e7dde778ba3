"""Final answers of runs with an output schema: a record, a correction by the model, or the failure of the run.

The schema is checked where the model is called, because that needs a library; here is the decision about the outcome
(`ModelAnswered.output`), so a replay needs no schema. An answer that requests tool calls is not final and not checked.

    a record            RunCompleted with it
    no record           OutputRejected: the model is told what is wrong, and answers in a further turn
    one too many        OutputRejected, RunFailed(output_invalid)

Before: model_result.py. After: next_step.py for the further turn.
"""

from loomlog.schemas.generated.run_events import Event, ModelReplied, OutputRejected
from loomlog.schemas.generated.values import AgentDefinition, OutputCheck
from loomlog.services.core.run.commands import ModelAnswered
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.core.run.turns import code_agents
from loomlog.services.core.run.turns.completion import (
    OUTPUT_INVALID,
    has_iterations,
    owes_record,
    run_completed,
    run_failed,
)
from loomlog.services.core.run.turns.next_step import next_step

NOT_CHECKED = OutputCheck(
    path="$", problem="Answer with the record that the output schema describes.", error="$: the answer is no record"
)
"""Outcome for an answer that a process without output schemas has handed over."""


def end_with_answer(state: AwaitingModel, replied: ModelReplied, result: ModelAnswered) -> list[Event]:
    """Return what follows an answer that ends the conversation: the end, or the turn that corrects it."""
    facts, definition = state.facts, state.facts.definition
    if not owes_record(facts):
        return [run_completed(facts, result.stop_reason, result)]
    check = result.output or NOT_CHECKED
    if check.result:
        return [run_completed(facts, result.stop_reason, result, check.result)]
    number = facts.rejected_outputs + 1
    rejected = OutputRejected(turn=result.turn, number=number, path=check.path, problem=check.problem)
    if number <= retries_of(definition) and has_iterations(facts, result.turn):
        return [rejected, next_step(state, [replied, rejected], result.turn, result.at_ms)]
    answers = "answer does" if number == 1 else f"last of {number} answers does"
    error = f"{OUTPUT_INVALID}: the {answers} not meet the output schema: {check.error}"
    return [rejected, run_failed(facts, OUTPUT_INVALID, error, result)]


def retries_of(definition: AgentDefinition) -> int:
    """Return how often the answer may be corrected. A script gives the same answer again, so it has one attempt."""
    return 0 if code_agents.is_code_agent(definition) else definition.output_retries
