"""The routes of runs that stream; the others are operations (services/application/operations).

The busiest rows come first. Before: routes.py joins the tables. After: the endpoints.
"""

from loomlog.services.api import run_endpoints
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import (
    RUN_PATH,
    SESSION_PATH,
    STATUS_PARAMETER,
    TENANT_PARAMETER,
    QueryParameter,
    Route,
)
from loomlog.services.application.bodies.models import (
    MessageBody,
    RunBody,
)
from loomlog.services.application.operations import streams

RUN_ROUTES: tuple[Route, ...] = (
    Route(
        route="POST /v1/runs",
        access=streams.START_RUN,
        handler=run_endpoints.start_run,
        recognises_key=True,
        summary="Start a run; the answer is the stream of its events.",
        body=RunBody,
        is_stream=True,
        takes_instead=Takes.START,
        query=(
            QueryParameter(
                name="ids",
                description="1: frames carry their id, so that Last-Event-ID can resume; previews of text have none.",
            ),
        ),
    ),
    Route(
        route=f"GET {RUN_PATH}/stream",
        access=streams.FOLLOW_RUN,
        handler=run_endpoints.stream_run,
        summary="The events of a run from any position, then as they happen; resumes after Last-Event-ID.",
        is_stream=True,
        query=(QueryParameter(name="from_seq", description="Frames after this id."),),
    ),
    # Before the path of one run, which would match them.
    Route(
        route="GET /v1/runs/stream",
        access=streams.WATCH_RUNS,
        handler=run_endpoints.watch_runs,
        summary="The state changes of all visible runs as they happen: start, end, and what a run waits for.",
        is_stream=True,
        query=(
            STATUS_PARAMETER,
            QueryParameter(name="agent", description="Name of the agent."),
            QueryParameter(name="user_id", description="End user."),
            TENANT_PARAMETER,
        ),
    ),
    Route(
        route=f"POST {SESSION_PATH}/messages",
        access=streams.START_RUN,
        handler=run_endpoints.continue_session,
        recognises_key=True,
        summary="Start the next run of a session; the answer is the stream of its events.",
        body=MessageBody,
        is_stream=True,
        takes_instead=Takes.START,
        query=(QueryParameter(name="ids", description="1: frames carry their id."),),
    ),
)
