"""The operations on the history of runs: the past state, replay, comparison. Pure.

Before: __init__.py. After: history_handlers.py carries them out.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from loomlog.services.application.operations.fields import QUERY_CHARACTERS_MAX, RunId, http
from loomlog.services.application.operations.runs import RUN
from loomlog.services.application.queries.json_types import RunComparison, RunReplay, RunStateAt
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_READ
from loomlog.services.core.operations import AnyOperation, Effect, Input, Operation, Tag

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


_read = partial(
    Operation, effect=Effect.READ, tag=TAG, access=own_data(RUNS_READ), unavailable_code="projection_unavailable"
)
STATE = _read(
    name="run.state",
    summary="Get a run as it was after one of its events, folded from the log.",
    input=RunState,
    output=RunStateAt,
    http=(http(route=f"GET {RUN}/state", id="get_run_state"),),
)
REPLAY = _read(
    name="run.replay",
    summary="Fold a run again from the log and compare it; differences are in `drift`.",
    input=RunReplayTo,
    output=RunReplay,
    http=(http(route=f"GET {RUN}/replay", id="replay_run"),),
)
COMPARE = _read(
    name="run.compare",
    summary="Compare two runs, and find where they first differ.",
    input=RunCompare,
    output=RunComparison,
    http=(http(route=f"GET {RUN}/diff", id="compare_runs", names={"other": "with"}),),
)
HISTORY_OPERATIONS: tuple[AnyOperation, ...] = (STATE, REPLAY, COMPARE)
