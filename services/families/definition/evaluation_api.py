"""The operations on judgements of runs.

Before: api.py. After: evaluations.py carries them out.
"""

from dataclasses import replace
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import TENANT
from loomlog.services.core.operations import Effect, Http, Input, Output, Tool, ToolOperation
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.api_fields import UNKNOWN_OP, Time, refusing_operation

LIST_MAX = 100
"""Judgements of one answer: each may have 40 KB, and a model reads them all."""
TOOL = Tool(
    name="Evaluation",
    description=(
        "Judges runs and reads judgements. op submit gives a run a score, with further scores by name (dimensions), a "
        "judgement and a rationale; get, list_for_run and list_for_def read judgements, newest first; aggregate sums "
        "up the scores of a version of a definition, with those of its ancestors if include_lineage is true."
    ),
    usage_hint="submit a score for a run; aggregate compares versions of an agent",
    is_ordered=False,
    unknown_op_code=UNKNOWN_OP,
)

RunId = Annotated[str, Meta(description="Run that is judged.")]
JudgedId = Annotated[str, Meta(description="Version of a definition.")]
Limit = Annotated[
    Annotated[int, Meta(ge=1, le=LIST_MAX)] | None,
    Meta(description=f"Most judgements of one answer, 1 to {LIST_MAX}."),
]
Cursor = Annotated[str | None, Meta(description="`next` of an earlier answer.")]


class EvaluationSubmit(Input, frozen=True, kw_only=True):
    run_id: RunId
    score: Annotated[float, Meta(description="How good the run is, on a scale of your own.")]
    dimensions: Annotated[
        dict[str, float] | None,
        Meta(description="Further scores by name.", extra_json_schema={"maxProperties": limits.DIMENSIONS_MAX}),
    ] = None
    judgement: Annotated[Any, Meta(description="The judgement itself, any JSON.")] = None
    rationale: Annotated[str | None, Meta(description="Why, for people.")] = None


class EvaluationGet(Input, frozen=True, kw_only=True):
    eval_id: Annotated[str, Meta(description="Id of a judgement.")]


class EvaluationListForRun(Input, frozen=True, kw_only=True):
    run_id: RunId
    limit: Limit = None
    cursor: Cursor = None


class EvaluationListForDefinition(Input, frozen=True, kw_only=True):
    def_id: JudgedId
    limit: Limit = None
    cursor: Cursor = None


class EvaluationAggregate(Input, frozen=True, kw_only=True):
    def_id: JudgedId
    include_lineage: Annotated[bool | None, Meta(description="With those of the version's ancestors.")] = None


class EvaluationSubmitted(Output, frozen=True, kw_only=True):
    eval_id: str
    run_id: str
    def_id: str
    score: float
    emitter_role: Annotated[str, Meta(description="external, self, parent, sibling or unrelated.")]
    created_at: Time


class Evaluation(Output, frozen=True, kw_only=True):
    eval_id: str
    run_id: str
    def_id: str
    score: float
    dimensions: dict[str, float]
    judgement: Any
    rationale: str
    emitter_role: str
    emitter_agent_id: str
    emitter_run_id: str
    created_at: Time


class EvaluationsOfRun(Output, frozen=True, kw_only=True):
    run_id: str
    evaluations: list[Evaluation]
    next: str | UnsetType = UNSET


class EvaluationsOfDefinition(Output, frozen=True, kw_only=True):
    def_id: str
    evaluations: list[Evaluation]
    next: str | UnsetType = UNSET


class EvaluationSums(Output, frozen=True, kw_only=True):
    mean: float
    median: float
    min: float
    max: float
    latest: float
    count: int


class EvaluationAggregated(Output, frozen=True, kw_only=True):
    """The sums of a version; all zero without judgements."""

    def_id: str
    count: int
    score: EvaluationSums
    dimensions: dict[str, EvaluationSums] | UnsetType = UNSET
    by_emitter_role: dict[str, EvaluationSums] | UnsetType = UNSET
    lineage_included: bool


_operation = refusing_operation(TOOL.name)
_ROUTE = Http(
    route="POST /v1/_evaluation",
    id="judge_run",
    summary="Judge a run, or read judgements.",
    body_name="EvaluationOperation",
    example={"op": "aggregate", "def_id": "def_00112233aabbccdd"},
    refusal_statuses=(422, 503),
)


def _declare(op: str, summary: str, taken: type[Input], answer: type[Output], effect: Effect = Effect.READ) -> Any:
    return _operation(
        name=f"definition.evaluation_{op}",
        summary=summary,
        input=taken,
        output=answer,
        access=requires(TENANT),
        effect=effect,
        is_act=False,  # a judgement is data of its run
        http=(replace(_ROUTE, op=op),),
        tool=ToolOperation(tool=TOOL.name, op=op),
    )


SUBMIT = _declare("submit", "Judge a run.", EvaluationSubmit, EvaluationSubmitted, Effect.WRITE)
GET = _declare("get", "Get a judgement.", EvaluationGet, Evaluation)
LIST_FOR_RUN = _declare(
    "list_for_run", "List the judgements of a run, newest first.", EvaluationListForRun, EvaluationsOfRun
)
LIST_FOR_DEFINITION = _declare(
    "list_for_def",
    "List the judgements of a version, newest first.",
    EvaluationListForDefinition,
    EvaluationsOfDefinition,
)
AGGREGATE = _declare("aggregate", "Sum up the judgements of a version.", EvaluationAggregate, EvaluationAggregated)
OPERATIONS = (SUBMIT, GET, LIST_FOR_RUN, LIST_FOR_DEFINITION, AGGREGATE)
