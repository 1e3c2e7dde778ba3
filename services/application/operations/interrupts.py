"""The operations on questions of runs to people. Pure.

Before: __init__.py. After: interrupt_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.runs import InterruptList, InterruptResolved
from loomlog.services.application.operations.fields import Cursor, EndUser, Limit, RunId, http
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, McpTool, Operation, Tag

TAG = Tag(name="Interrupts", description="Questions of runs to people.")
Status = Annotated[
    str, Meta(description="pending, resolved, declined, timed_out, cancelled, delivered with commas between, or all.")
]
ResolvedBy = Annotated[
    Annotated[str, Meta(max_length=limits.NAME_BYTES_MAX)] | None, Meta(description="Name of the person.")
]


class InterruptResolve(Input, frozen=True, kw_only=True):
    """A person's answer to a question of a run."""

    run_id: RunId
    interrupt_id: Annotated[str, Meta(description="Id of the question.")]
    kind: Annotated[str | None, Meta(description="question (default).")] = None
    answer: Annotated[str | None, Meta(description="One of the options where there are some.")] = None
    resolved_by: ResolvedBy = None
    disposition: Annotated[str | None, Meta(description="answer (default), or declined, which has no answer.")] = None


class InterruptListOfRun(Input, frozen=True, kw_only=True):
    """Questions of a run by status."""

    run_id: RunId
    status: Status = ""


class InterruptListAll(Input, frozen=True, kw_only=True):
    """Questions of visible runs by status and user."""

    status: Status = ""
    user_id: EndUser = ""
    limit: Limit = limits.LIST_MAX
    cursor: Cursor = ""


RESOLVE = Operation(
    name="interrupt.resolve",
    summary="Answer or decline a question of a run.",
    input=InterruptResolve,
    output=InterruptResolved,
    access=own_data(RUNS_CREATE),
    effect=Effect.WRITE,
    tag=TAG,
    unavailable_code="log_unavailable",
    http=(
        http(
            route="POST /v1/runs/{run_id}/interrupts/{interrupt_id}/resolve",
            id="resolve_interrupt",
            body_name="InterruptBody",
            example={"answer": "yes", "resolved_by": "ada"},
        ),
    ),
    mcp=(McpTool(tool="interruption_resolve"),),
)
_read = partial(
    Operation, effect=Effect.READ, tag=TAG, access=own_data(RUNS_READ), unavailable_code="projection_unavailable"
)
LIST_OF_RUN = _read(
    name="interrupt.list_of_run",
    summary="List the questions of a run, newest first; pending ones by default.",
    input=InterruptListOfRun,
    output=InterruptList,
    http=(http(route="GET /v1/runs/{run_id}/interrupts", id="list_run_interrupts"),),
)
LIST = _read(
    name="interrupt.list",
    summary="List the questions of all visible runs, newest first; pending ones by default.",
    input=InterruptListAll,
    output=InterruptList,
    http=(
        http(route="GET /v1/interrupts", id="list_interrupts"),
        http(
            route="GET /v1/users/{user_id}/interrupts",
            id="list_user_interrupts",
            summary="List the questions of a user's runs, newest first; pending ones by default.",
        ),
    ),
)
INTERRUPT_OPERATIONS: tuple[AnyOperation, ...] = (RESOLVE, LIST_OF_RUN, LIST)
