"""The routes of what has happened: a run as it was, replayed, compared, exported, forked; the log itself.

Before: routes.py. After: history_endpoints.py, event_endpoints.py.
"""

from loomlog.services.api import event_endpoints, history_endpoints, run_endpoints
from loomlog.services.api.request_models import ForkBody
from loomlog.services.api.route import (
    CURSOR_PARAMETER,
    LIMIT_PARAMETER,
    POSITIVE_INTEGER,
    RUN_PATH,
    STATUS_PARAMETER,
    TENANT_PARAMETER,
    QueryParameter,
    Route,
)
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

HISTORY_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=f"{RUN_PATH}/state",
        access=RUNS_READ,
        handler=history_endpoints.state_at,
        summary="A run as it was after one of its events, folded from the log.",
        response_schema="Moment",
        query=(
            QueryParameter(name="at", description="Seq of the event; the newest when absent.", schema=POSITIVE_INTEGER),
        ),
    ),
    Route(
        method="GET",
        path=f"{RUN_PATH}/replay",
        access=RUNS_READ,
        handler=history_endpoints.replay,
        summary="The run folded again from the log and compared; what does not hold is in `drift`.",
        response_schema="Proof",
        query=(
            QueryParameter(name="to", description="Seq to end at; all of it when absent.", schema=POSITIVE_INTEGER),
        ),
    ),
    Route(
        method="GET",
        path=f"{RUN_PATH}/diff",
        access=RUNS_READ,
        handler=history_endpoints.diff,
        summary="Two runs side by side, and where they first differ.",
        response_schema="Comparison",
        query=(
            QueryParameter(name="with", description="The run to compare with."),
            QueryParameter(name="at", description="This run as it was at that seq.", schema=POSITIVE_INTEGER),
            QueryParameter(name="with_at", description="The other run as it was at that seq.", schema=POSITIVE_INTEGER),
        ),
    ),
    Route(
        method="GET",
        path=f"{RUN_PATH}/export",
        access=RUNS_READ,
        handler=history_endpoints.export,
        summary="The run as one file that can be read and replayed without this installation.",
        response_schema="Bundle",
        media_type="application/gzip",
    ),
    Route(
        method="POST",
        path="/v1/runs/import",
        access=TENANT_SCOPE,
        handler=history_endpoints.import_run,
        summary="Take in an exported run; the body is the file. The same file again adds nothing.",
        response_schema="Imported",
        query=(
            QueryParameter(
                name="in_clear",
                description="1: also take in content in clear where it is encrypted; it stays readable.",
            ),
        ),
    ),
    Route(
        method="POST",
        path=f"{RUN_PATH}/fork",
        access=RUNS_CREATE,
        handler=history_endpoints.fork,
        summary="A new run that shares the events up to `at`; the answer is the stream of its events.",
        body=ForkBody,
        is_stream=True,
        accepts_idempotency_key=True,
        accepts_position=True,
        query=(QueryParameter(name="ids", description="1: frames carry their id."),),
    ),
    Route(
        method="GET",
        path="/v1/users/{user_id}/agents",
        access=RUNS_READ,
        handler=run_endpoints.list_user_runs,
        summary="Runs of a user; only live ones unless a status is asked for.",
        response_schema="AgentList",
        query=(STATUS_PARAMETER, TENANT_PARAMETER, LIMIT_PARAMETER, CURSOR_PARAMETER),
    ),
    Route(
        method="GET",
        path="/v1/users/{user_id}/agents/stream",
        access=RUNS_READ,
        handler=run_endpoints.watch_user_runs,
        summary="The states of a user's runs as they change: stream_open, then run_state; closed after 30 minutes.",
        is_stream=True,
        query=(STATUS_PARAMETER, QueryParameter(name="agent", description="Name of the agent."), TENANT_PARAMETER),
    ),
    Route(
        method="GET",
        path="/v1/events",
        access=RUNS_READ,
        handler=event_endpoints.list_events,
        summary="Events as they lie in the log.",
        response_schema="EventList",
        query=(
            QueryParameter(name="run_id", description="Events of this run."),
            QueryParameter(name="type", description="Name of the event, for example RunStarted."),
            QueryParameter(
                name="partition", description="Number of the partition.", schema={"type": "integer", "minimum": 0}
            ),
            QueryParameter(name="from", description="Offset (with partition) or time (RFC 3339), included."),
            QueryParameter(name="to", description="Offset (with partition) or time (RFC 3339), not included."),
            LIMIT_PARAMETER,
            CURSOR_PARAMETER,
        ),
    ),
    Route(
        method="GET",
        path="/v1/events/{topic}/{partition}/{offset}",
        access=RUNS_READ,
        handler=event_endpoints.get_event,
        summary="One record of the log; one of an owner that was fenced says stale.",
        response_schema="Event",
    ),
)
