"""The routes of the history: the past state, replay, comparison, export and fork of a run.

Before: routes.py. After: history_endpoints.py.
"""

from loomlog.services.api import history_endpoints, run_endpoints
from loomlog.services.api.request_shares import Takes
from loomlog.services.api.route import (
    RUN_PATH,
    STATUS_PARAMETER,
    TENANT_PARAMETER,
    QueryParameter,
    Route,
)
from loomlog.services.application.bodies.models import ForkBody
from loomlog.services.application.operations import streams

HISTORY_ROUTES: tuple[Route, ...] = (
    Route(
        route=f"GET {RUN_PATH}/export",
        access=streams.EXPORT_RUN,
        handler=history_endpoints.export_run,
        summary="Export a run as one file that can be read and replayed without this installation.",
        media_type="application/gzip",
    ),
    Route(
        route="POST /v1/runs/import",
        access=streams.IMPORT_RUN,
        handler=history_endpoints.import_run,
        takes_file=True,
        takes_instead=Takes.WAIT,
        summary="Import an exported run; the body is the file. Idempotent.",
        query=(
            QueryParameter(
                name="in_clear",
                description="1: also import plaintext content where content is encrypted; it stays readable.",
            ),
        ),
    ),
    Route(
        route=f"POST {RUN_PATH}/fork",
        access=streams.FORK_RUN,
        handler=history_endpoints.fork_run,
        summary="Fork a run: the new run shares the events up to `at`; the answer is the stream of its events.",
        body=ForkBody,
        is_stream=True,
        takes_instead=Takes.START,
        query=(QueryParameter(name="ids", description="1: frames carry their id."),),
    ),
    Route(
        route="GET /v1/users/{user_id}/agents/stream",
        access=streams.WATCH_RUNS,
        handler=run_endpoints.watch_user_runs,
        summary="Follow the states of a user's runs: stream_open, then run_state; closed after 30 minutes.",
        is_stream=True,
        query=(STATUS_PARAMETER, QueryParameter(name="agent", description="Name of the agent."), TENANT_PARAMETER),
    ),
)
