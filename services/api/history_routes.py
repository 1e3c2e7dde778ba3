"""The routes of what has happened: a run as it was, replayed, compared, exported, forked; the log itself.

Before: routes.py. After: history_endpoints.py, event_endpoints.py.
"""

from loomlog.services.api import event_endpoints, history_endpoints, run_endpoints
from loomlog.services.api.request_models import ForkBody
from loomlog.services.api.route import CURSOR, LIMIT, POSITIVE_INTEGER, RUN, STATUS, TENANT, QueryParameter, Route
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.access.scopes import TENANT as TENANT_SCOPE

HISTORY_ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=f"{RUN}/state",
        access=RUNS_READ,
        handler=history_endpoints.state_at,
        says="A run as it was after one of its events, folded from the log.",
        answer="Moment",
        query=(QueryParameter(name="at", says="Seq of the event; the newest when absent.", kind=POSITIVE_INTEGER),),
    ),
    Route(
        method="GET",
        path=f"{RUN}/replay",
        access=RUNS_READ,
        handler=history_endpoints.replay,
        says="The run folded again from the log and compared; what does not hold is in `drift`.",
        answer="Proof",
        query=(QueryParameter(name="to", says="Seq to end at; all of it when absent.", kind=POSITIVE_INTEGER),),
    ),
    Route(
        method="GET",
        path=f"{RUN}/diff",
        access=RUNS_READ,
        handler=history_endpoints.diff,
        says="Two runs side by side, and where they first differ.",
        answer="Comparison",
        query=(
            QueryParameter(name="with", says="The run to compare with."),
            QueryParameter(name="at", says="This run as it was at that seq.", kind=POSITIVE_INTEGER),
            QueryParameter(name="with_at", says="The other run as it was at that seq.", kind=POSITIVE_INTEGER),
        ),
    ),
    Route(
        method="GET",
        path=f"{RUN}/export",
        access=RUNS_READ,
        handler=history_endpoints.export,
        says="The run as one file that can be read and replayed without this installation.",
        answer="Bundle",
        media_type="application/gzip",
    ),
    Route(
        method="POST",
        path="/v1/runs/import",
        access=TENANT_SCOPE,
        handler=history_endpoints.import_run,
        says="Take in an exported run; the body is the file. The same file again adds nothing.",
        answer="Imported",
        query=(
            QueryParameter(
                name="in_clear", says="1: also take in content in clear where it is encrypted; it stays readable."
            ),
        ),
    ),
    Route(
        method="POST",
        path=f"{RUN}/fork",
        access=RUNS_CREATE,
        handler=history_endpoints.fork,
        says="A new run that shares the events up to `at`; the answer is the stream of its events.",
        body=ForkBody,
        streams=True,
        takes_key=True,
        takes_position=True,
        query=(QueryParameter(name="ids", says="1: frames carry their id."),),
    ),
    Route(
        method="GET",
        path="/v1/users/{user_id}/agents",
        access=RUNS_READ,
        handler=run_endpoints.list_user_runs,
        says="Runs of a user; only live ones unless a status is asked for.",
        answer="AgentList",
        query=(STATUS, TENANT, LIMIT, CURSOR),
    ),
    Route(
        method="GET",
        path="/v1/users/{user_id}/agents/stream",
        access=RUNS_READ,
        handler=run_endpoints.watch_user_runs,
        says="The states of a user's runs as they change: stream_open, then run_state; closed after 30 minutes.",
        streams=True,
        query=(STATUS, QueryParameter(name="agent", says="Name of the agent."), TENANT),
    ),
    Route(
        method="GET",
        path="/v1/events",
        access=RUNS_READ,
        handler=event_endpoints.list_events,
        says="Events as they lie in the log.",
        answer="EventList",
        query=(
            QueryParameter(name="run_id", says="Events of this run."),
            QueryParameter(name="type", says="Name of the event, for example RunStarted."),
            QueryParameter(name="partition", says="Number of the partition.", kind={"type": "integer", "minimum": 0}),
            QueryParameter(name="from", says="Offset (with partition) or time (RFC 3339), included."),
            QueryParameter(name="to", says="Offset (with partition) or time (RFC 3339), not included."),
            LIMIT,
            CURSOR,
        ),
    ),
    Route(
        method="GET",
        path="/v1/events/{topic}/{partition}/{offset}",
        access=RUNS_READ,
        handler=event_endpoints.get_event,
        says="One record of the log; one of an owner that was fenced says stale.",
        answer="Event",
    ),
)
