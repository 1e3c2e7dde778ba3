"""The operations of pauses wider than a run. Pure.

Before: __init__.py. After: handlers.py.
"""

from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from loomlog.services.core.access.rules import requires
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.operations import PRINTABLE, Effect, Http, Input, McpTool, NoInput, Operation, Output, Tag
from loomlog.services.families.pause.limits import NAME_BYTES_MAX, REASON_CHARACTERS_MAX, WAIT_MS, WAIT_MS_MAX

TAG = Tag(name="Pauses", description="Pauses of an agent, a tenant or everything.")
BODY_BYTES_MAX = 64 * 1024

Scope = Annotated[Literal["all", "tenant", "agent"] | None, Meta(description="all if absent.")]
Tenant = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
Agent = Annotated[str, Meta(min_length=1, max_length=128, pattern=PRINTABLE)]


class PauseRuns(Input, frozen=True, kw_only=True):
    """Scope of a pause, and how long to wait until its runs have paused."""

    timeout_ms: Annotated[
        Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] | None, Meta(description="Longest wait; 30 s if absent.")
    ] = WAIT_MS
    scope: Scope = None
    tenant: Annotated[Tenant | None, Meta(description="Of scope tenant; of scope agent optional.")] = None
    agent: Annotated[Agent | None, Meta(description="Of scope agent.")] = None
    reason: Annotated[
        Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] | None, Meta(description="Shown with the pause.")
    ] = None


class PauseResume(Input, frozen=True, kw_only=True):
    """Scope of the pause to lift, as it was paused."""

    scope: Scope = None
    tenant: Annotated[Tenant | None, Meta(description="As it was paused.")] = None
    agent: Annotated[Agent | None, Meta(description="As it was paused.")] = None


class PauseApplied(Output, frozen=True, kw_only=True):
    """State of the installation after a pause; `warnings` names runs that have not stopped yet."""

    state: str
    duration_ms: int
    force_cancelled_count: Annotated[int, Meta(description="0: a pause never cancels anything.")] = 0
    paused_runs_count: int
    warnings: list[str]


class PauseLifted(Output, frozen=True, kw_only=True):
    """State of the installation after a pause was lifted."""

    state: str
    resumed_runs_count: int


class PauseEntry(Output, frozen=True, kw_only=True):
    """A pause wider than a run."""

    scope: str
    tenant: str | None
    agent: str | None
    reason: str | None
    by: str
    at: Annotated[str, Meta(description="RFC 3339.")]


class PauseState(Output, frozen=True, kw_only=True):
    """Pauses in force."""

    state: str
    paused_runs_count: int
    pauses: list[PauseEntry]


_operation = partial(Operation, tag=TAG, access=requires(ADMIN))
_http = partial(Http, takes_tenant=False, body_bytes_max=BODY_BYTES_MAX, body_optional=True)

STATE = _operation(
    name="pause.state",
    summary="Get the pauses in force.",
    input=NoInput,
    output=PauseState,
    effect=Effect.READ,
    http=(_http(route="GET /v1/_state", id="get_pause_state"),),
    mcp=(McpTool(tool="get_runtime_state"),),
)
PAUSE = _operation(
    name="pause.runs",
    summary="Pause everything, a tenant or an agent; waits at most timeout_ms until its runs have paused.",
    input=PauseRuns,
    output=PauseApplied,
    effect=Effect.WAIT,
    http=(
        _http(
            route="POST /v1/_pause",
            id="pause_runs",
            body_name="PauseBody",
            example={"scope": "agent", "agent": "assistant", "reason": "maintenance", "timeout_ms": 30_000},
        ),
    ),
    mcp=(McpTool(tool="pause_runtime"),),
)
RESUME = _operation(
    name="pause.resume",
    summary="Lift a pause.",
    input=PauseResume,
    output=PauseLifted,
    effect=Effect.WRITE,
    http=(
        _http(
            route="POST /v1/_resume",
            id="resume_runs",
            body_name="ResumeBody",
            example={"scope": "agent", "agent": "assistant"},
        ),
    ),
    mcp=(McpTool(tool="resume_runtime"),),
)
OPERATIONS = (STATE, PAUSE, RESUME)
