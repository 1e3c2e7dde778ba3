"""The operations that read runs, and those on live ones. Pure.

Before: __init__.py. After: run_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from loomlog.services.application import limits
from loomlog.services.application.answers.runs import (
    AgentList,
    Batch,
    BulkAction,
    CallResolved,
    Cancelled,
    Compacted,
    InputAcknowledged,
    Pausing,
    Quarantined,
    Released,
    Resumed,
    RunCountsView,
    RunList,
    TurnCancelled,
)
from loomlog.services.application.bodies.fields import model_fields
from loomlog.services.application.bodies.models import BatchBody
from loomlog.services.application.operations.fields import (
    EXAMPLE_OF_REASON,
    QUERY_CHARACTERS_MAX,
    Cursor,
    EndUser,
    Limit,
    Reason,
    RunId,
    Status,
    TenantFilter,
    http,
)
from loomlog.services.application.operations.interrupts import TAG as INTERRUPTS
from loomlog.services.application.queries.json_types import Run
from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, McpTool, Operation, Tag

TAG = Tag(name="Runs", description="Start, follow, read, steer and end runs.")
BATCHES = Tag(name="Batches", description="Many runs at once, and resident sub-agents.")
BULK_BYTES_MAX = 64 * 1024
RUN = "/v1/runs/{run_id}"
AGENT = "/v1/agents/{agent_id}"
TIMES = {"since": "from", "until": "to"}
"""Names in the query of fields that cannot have them here."""
IdFilter = Annotated[str, Meta(max_length=QUERY_CHARACTERS_MAX)]
Handle = Annotated[str, Meta(description="Handle of the run.")]
FreeReason = Annotated[str | None, Meta(description="Shown with the run.")]

# --- reads -----------------------------------------------------------------------------------------------------------


class RunGet(Input, frozen=True, kw_only=True):
    """A run by its id."""

    run_id: RunId


class RunGetByHandle(Input, frozen=True, kw_only=True):
    """A run by its handle."""

    agent_id: Handle


class RunFilterFields(Input, frozen=True, kw_only=True):
    """Filters of a list of runs, without their status."""

    agent: Annotated[IdFilter, Meta(description="Name of the agent.")] = ""
    agent_id: Annotated[IdFilter, Meta(description="Handle.")] = ""
    parent_agent_id: Annotated[IdFilter, Meta(description="Handle of the parent.")] = ""
    user_id: EndUser = ""
    session_id: Annotated[IdFilter, Meta(description="Session.")] = ""
    root_run_id: Annotated[IdFilter, Meta(description="Root of a tree: all runs of the tree.")] = ""
    forked_from: Annotated[IdFilter, Meta(description="Forks of this run.")] = ""
    forked_from_root: Annotated[IdFilter, Meta(description="Root of a tree: forks of any run of the tree.")] = ""
    def_id: Annotated[IdFilter, Meta(description="Version of the agent that the run is pinned to.")] = ""
    id_part: Annotated[
        IdFilter,
        Meta(description="Start or end of the id of the run, or of its handle, session or version; any text is taken."),
    ] = ""
    prefix: Annotated[IdFilter, Meta(description="Start of the run's id or of its handle.")] = ""
    since: Annotated[IdFilter, Meta(description="Started at or after this time (RFC 3339).")] = ""
    until: Annotated[IdFilter, Meta(description="Started before this time (RFC 3339).")] = ""
    tenant: TenantFilter = ""


class RunListAll(RunFilterFields, frozen=True, kw_only=True):
    """Filters of a list of runs, and its page."""

    status: Status = ""
    waiting: Annotated[
        IdFilter,
        Meta(description="Only live runs that wait so: awaiting_input, interrupted, pause_requested or quarantined."),
    ] = ""
    limit: Limit = limits.LIST_DEFAULT
    cursor: Cursor = ""


class RunCount(RunFilterFields, frozen=True, kw_only=True):
    """Filters of the runs that are counted."""


class RunListOfUser(Input, frozen=True, kw_only=True):
    """Runs of a user by status."""

    user_id: EndUser
    status: Status = "running"
    tenant: TenantFilter = ""
    limit: Limit = limits.LIST_MAX
    cursor: Cursor = ""


_read = partial(
    Operation, effect=Effect.READ, tag=TAG, access=own_data(RUNS_READ), unavailable_code="projection_unavailable"
)
_write = partial(Operation, effect=Effect.WRITE, tag=TAG, unavailable_code="log_unavailable")
_wait = partial(
    Operation, effect=Effect.WAIT, tag=TAG, access=own_data(RUNS_CREATE), unavailable_code="log_unavailable"
)
GET = _read(
    name="run.get", summary="Get a run.", input=RunGet, output=Run, http=(http(route=f"GET {RUN}", id="get_run"),)
)
GET_BY_HANDLE = _read(
    name="run.get_by_handle",
    summary="Get the newest run of a handle.",
    input=RunGetByHandle,
    output=Run,
    http=(http(route=f"GET {AGENT}", id="get_agent"),),
    mcp=(McpTool(tool="get_run"),),
)
LIST = _read(
    name="run.list",
    summary="List runs, newest first.",
    input=RunListAll,
    output=RunList,
    http=(http(route="GET /v1/runs", id="list_runs", names=TIMES),),
)
COUNT = _read(
    name="run.count",
    summary="Count runs by status, exactly up to 10,000.",
    input=RunCount,
    output=RunCountsView,
    http=(http(route="GET /v1/runs/counts", id="count_runs", names=TIMES),),
)
LIST_OF_USER = _read(
    name="run.list_of_user",
    summary="List the runs of a user; live ones by default.",
    input=RunListOfUser,
    output=AgentList,
    http=(http(route="GET /v1/users/{user_id}/agents", id="list_user_runs"),),
    mcp=(McpTool(tool="list_runs"),),
)

# --- live runs -------------------------------------------------------------------------------------------------------


class RunInput(Input, frozen=True, kw_only=True):
    """The next user text of a run."""

    run_id: RunId
    text: Annotated[str, Meta(description="What the user says.")]
    source: Annotated[Literal["api", "webui"] | None, Meta(description="Where it comes from; api if absent.")] = None


class RunResolveCall(Input, frozen=True, kw_only=True):
    """Outcome of a tool call that waits for it."""

    run_id: RunId
    call: Annotated[str, Meta(description="The call, as TURN.INDEX.")]
    outcome: Annotated[Literal["done", "not_done"], Meta(description="not_done: it had no effect and is repeated.")]
    result: Annotated[str | None, Meta(description="Result for the model, of a call that is done.")] = None


class RunCancel(Input, frozen=True, kw_only=True):
    """Reason of a cancellation, and the run of the handle it is for."""

    agent_id: Handle
    reason: FreeReason = None
    run_id: Annotated[
        Annotated[str, Meta(max_length=128, pattern=r"^[A-Za-z0-9_-]*$")] | None,
        Meta(description="Only this run, in case the handle belongs to a newer one."),
    ] = None


class RunCancelTurn(Input, frozen=True, kw_only=True):
    """Reason of a cancellation."""

    run_id: RunId
    reason: FreeReason = None


class RunReason(Input, frozen=True, kw_only=True):
    """A run, and the reason of what is done with it."""

    run_id: RunId
    reason: Reason = None


class RunHandleReason(Input, frozen=True, kw_only=True):
    """The run of a handle, and the reason of what is done with it."""

    agent_id: Handle
    reason: Reason = None


class RunResume(Input, frozen=True, kw_only=True):
    """A run whose pause is lifted."""

    run_id: RunId


class RunBulkAction(Input, frozen=True, kw_only=True):
    """A command to many runs."""

    action: Annotated[
        Literal["pause", "resume", "cancel", "quarantine", "release"], Meta(description="What each run is told.")
    ]
    where: Annotated[
        str,
        Meta(
            max_length=limits.FILTER_CHARACTERS_MAX, description="Filter of runs: agent=a,status=running,older_than=10m"
        ),
    ]
    reason: Reason = None
    dry_run: Annotated[bool | None, Meta(description="Only list the runs; true if absent.")] = None
    cursor: Annotated[
        Annotated[str, Meta(max_length=1_024)] | None, Meta(description="`next` of an earlier answer.")
    ] = None


INPUT = _write(
    name="run.input",
    summary="Send the next user text to a live run.",
    input=RunInput,
    output=InputAcknowledged,
    access=own_data(RUNS_CREATE),
    http=(
        http(
            route=f"POST {RUN}/input",
            id="post_input",
            body_name="InputBody",
            example={"text": "Look at the second file too."},
        ),
    ),
)
RESOLVE_CALL = _write(
    name="run.resolve_call",
    summary="Resolve a tool call of unknown outcome; the call is TURN.INDEX.",
    input=RunResolveCall,
    output=CallResolved,
    access=own_data(RUNS_CREATE),
    http=(
        http(
            route=f"POST {RUN}/calls/{{call}}/resolve",
            id="resolve_call",
            body_name="ResolveBody",
            example={"outcome": "done", "result": "The mail was sent."},
        ),
    ),
)
CANCEL = _write(
    name="run.cancel",
    summary="Cancel the run of a handle.",
    input=RunCancel,
    output=Cancelled,
    access=own_data(RUNS_CREATE),
    http=(
        http(
            route=f"POST {AGENT}/cancel",
            id="cancel_run",
            body_name="CancelRunBody",
            body_optional=True,
            example={"reason": "no longer needed"},
        ),
    ),
    mcp=(McpTool(tool="cancel_run"),),
)
CANCEL_TURN = _write(
    name="run.cancel_turn",
    summary="Cancel the current turn of an interactive run; the run then waits for input.",
    input=RunCancelTurn,
    output=TurnCancelled,
    access=own_data(RUNS_CREATE),
    tag=INTERRUPTS,
    http=(
        http(
            route=f"POST {RUN}/cancel",
            id="cancel_turn",
            body_name="CancelBody",
            body_optional=True,
            example={"reason": "no longer needed"},
        ),
    ),
)
PAUSE = _write(
    name="run.pause",
    summary="Pause a run before its next model call; calls under way are finished.",
    input=RunReason,
    output=Pausing,
    access=own_data(RUNS_CREATE),
    http=(
        http(
            route=f"POST {RUN}/pause",
            id="pause_run",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
        ),
    ),
)
RESUME = _write(
    name="run.resume",
    summary="Resume a paused run; pauses wider than the run still apply.",
    input=RunResume,
    output=Resumed,
    access=own_data(RUNS_CREATE),
    http=(http(route=f"POST {RUN}/resume", id="resume_run"),),
)
COMPACT = _wait(
    name="run.compact",
    summary="Replace the older part of a conversation by a summary: of a parked run or an idle session.",
    input=RunReason,
    output=Compacted,
    http=(
        http(
            route=f"POST {RUN}/compact",
            id="compact_run",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
            refusal_statuses=(502,),
        ),
    ),
)
COMPACT_BY_HANDLE = _wait(
    name="run.compact_by_handle",
    summary="Replace the older part of the conversation of a handle's newest run by a summary; it must be parked.",
    input=RunHandleReason,
    output=Compacted,
    mcp=(McpTool(tool="compact_run"),),
)
QUARANTINE = _write(
    name="run.quarantine",
    summary="Quarantine a run until it is released; its calls are cancelled, other runs are not affected.",
    input=RunReason,
    output=Quarantined,
    access=requires(ADMIN),
    http=(
        http(
            route=f"POST {RUN}/quarantine",
            id="quarantine_run",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
        ),
    ),
)
RELEASE = _write(
    name="run.release",
    summary="Fold a quarantined run again from the log and continue it.",
    input=RunReason,
    output=Released,
    access=requires(ADMIN),
    http=(
        http(
            route=f"POST {RUN}/release",
            id="release_run",
            body_name="ReasonBody",
            body_optional=True,
            example=EXAMPLE_OF_REASON,
        ),
    ),
)
APPLY_TO_MANY = _write(
    name="run.apply_to_many",
    summary="Apply one command to the live runs of a filter; lists them unless dry_run is false.",
    input=RunBulkAction,
    output=BulkAction,
    access=requires(ADMIN),
    tag=BATCHES,
    http=(
        http(
            route="POST /v1/runs/bulk",
            id="apply_bulk_action",
            body_name="BulkBody",
            example={"action": "pause", "where": "agent=assistant,status=running", "dry_run": True},
            body_bytes_max=BULK_BYTES_MAX,
        ),
    ),
)
SPAWN_MANY = _wait(
    name="run.spawn_many",
    summary=f"Start up to {limits.BATCH_SPAWNS_MAX} runs; join waits for them (200), detach answers with ids (202).",
    input=model_fields(BatchBody),
    output=Batch,
    tag=BATCHES,
    http=(
        http(
            route="POST /v1/runs:batch",
            id="start_batch",
            alternative_status=202,
            takes_alternative=lambda fields: fields.get("mode") == "detach",
            body_bytes_max=limits.BATCH_BYTES_MAX,
            recognises_key=True,
        ),
    ),
    mcp=(McpTool(tool="spawn_runs"),),
)
RUN_OPERATIONS: tuple[AnyOperation, ...] = (
    GET_BY_HANDLE,
    LIST,
    COUNT,
    GET,
    LIST_OF_USER,
    INPUT,
    RESOLVE_CALL,
    CANCEL,
    CANCEL_TURN,
    PAUSE,
    RESUME,
    COMPACT,
    COMPACT_BY_HANDLE,
    QUARANTINE,
    RELEASE,
    APPLY_TO_MANY,
    SPAWN_MANY,
)
