"""The operations on the history of runs: the past state, replay, comparison. Pure.

Before: __init__.py. After: history_handlers.py carries them out.
"""

from typing import Annotated

from msgspec import Meta

from loomlog.services.application.operations.fields import QUERY_CHARACTERS_MAX, RunId
from loomlog.services.application.operations.runs import RUN
from loomlog.services.application.queries.json_types import RunComparison, RunReplay, RunStateAt
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Http, Input, Operation, Tag

TAG = Tag(name="History", description="Runs as the log has them: state, replay, comparison, fork, export, import.")
SEQ_MAX = 10**12
Seq = Annotated[int, Meta(ge=1, le=SEQ_MAX)]


class RunState(Input, frozen=True, kw_only=True):
    """A run at one of its events."""

    run_id: RunId
    at: Annotated[Seq | None, Meta(description="Seq of the event; the newest when absent.")] = None


class RunReplayTo(Input, frozen=True, kw_only=True):
    """A run, and where its replay ends."""

    run_id: RunId
    to: Annotated[Seq | None, Meta(description="Seq to end at; all of it when absent.")] = None


class RunCompare(Input, frozen=True, kw_only=True):
    """Two runs, each at one of its events."""

    run_id: RunId
    other: Annotated[str, Meta(max_length=QUERY_CHARACTERS_MAX, description="The run to compare with.")]
    at: Annotated[Seq | None, Meta(description="This run at that seq.")] = None
    with_at: Annotated[Seq | None, Meta(description="The other run at that seq.")] = None


STATE = Operation(
    name="run.state",
    summary="Get a run as it was after one of its events, folded from the log.",
    input=RunState,
    output=RunStateAt,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="projection_unavailable",
    http=(
        Http(
            route=f"GET {RUN}/state",
            id="get_run_state",
            takes_tenant=False,
        ),
    ),
)
REPLAY = Operation(
    name="run.replay",
    summary="Fold a run again from the log and compare it; differences are in `drift`.",
    input=RunReplayTo,
    output=RunReplay,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="projection_unavailable",
    http=(
        Http(
            route=f"GET {RUN}/replay",
            id="replay_run",
            takes_tenant=False,
        ),
    ),
)
COMPARE = Operation(
    name="run.compare",
    summary="Compare two runs, and find where they first differ.",
    input=RunCompare,
    output=RunComparison,
    access=own_data(RUNS_READ),
    effect=Effect.READ,
    tag=TAG,
    unavailable_code="projection_unavailable",
    http=(
        Http(
            route=f"GET {RUN}/diff",
            id="compare_runs",
            takes_tenant=False,
            names={"other": "with"},
        ),
    ),
)
HISTORY_OPERATIONS: tuple[AnyOperation, ...] = (STATE, REPLAY, COMPARE)
