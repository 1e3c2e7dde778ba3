"""The Evaluation tool: a run judges other runs, and reads what was judged.

A judgement carries the call's idempotency key as its command id, so however often the call is made, there is one.

Before: services/runtime/definition_setup.py. After: services/families/definition/evaluations.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.services.families.definition.evaluations import INPUT_SCHEMA, SUBMIT, TOOL, Evaluations
from loomlog.services.runtime.tools.definition_tools import OPERATION, IsIsolated, author_of, definition_result
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S


class EvaluationTool:
    """Protocol Tool over the judgements of the run's tenant."""

    name = TOOL
    description = (
        "Judges runs and reads judgements. op submit gives a run a score, with further scores by name (dimensions), a "
        "judgement and a rationale; get, list_for_run and list_for_def read judgements, newest first; aggregate sums "
        "up the scores of a version of a definition, with those of its ancestors if include_lineage is true."
    )
    usage_hint = "submit a score for a run; aggregate compares versions of an agent"
    side_effect_class = "state"
    timeout_s: float = TIMEOUT_S
    input_schema: Mapping[str, Any] = {**INPUT_SCHEMA, "additionalProperties": False}

    def __init__(self, evaluations: Evaluations, *, clock_ms: Callable[[], int], is_isolated: IsIsolated) -> None:
        self._evaluations = evaluations
        self._clock_ms = clock_ms
        self._is_isolated = is_isolated

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.IDEMPOTENT if arguments.get(OPERATION) == SUBMIT else EffectClass.READ

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        author = author_of(context, issued_at_ms=self._clock_ms(), is_isolated=self._is_isolated)
        return await definition_result(
            TOOL,
            context,
            lambda: self._evaluations.run(arguments, author, context.positions),
            is_read=arguments.get(OPERATION) != SUBMIT,
        )


def build_evaluation_tool(
    evaluations: Evaluations, *, clock_ms: Callable[[], int], is_isolated: IsIsolated
) -> dict[str, Tool]:
    """Return the tool by its name."""
    return {TOOL: EvaluationTool(evaluations, clock_ms=clock_ms, is_isolated=is_isolated)}
