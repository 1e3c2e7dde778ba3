"""The one table of routes: method, path, who may call it, and what the OpenAPI document says of it.

A route that is not in here does not exist, and a route in here without access is a mistake that does not start: every
row says either a scope, or that any known caller may, or that it is public. Everything else follows from the table: the
registration, the check of the caller, the document; a test compares it with what the application really serves.

Before: app.py. After: the endpoints.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api import (
    batch_endpoints,
    budget_endpoints,
    bulk_endpoints,
    client_endpoints,
    document_endpoints,
    erasure_endpoints,
    event_endpoints,
    history_endpoints,
    hook_endpoints,
    interrupt_endpoints,
    operator_endpoints,
    pause_endpoints,
    run_endpoints,
    snapshot_endpoints,
)
from services.api.bodies import (
    BatchBody,
    Body,
    BulkBody,
    CancelBody,
    ErasureBody,
    ForkBody,
    HookBody,
    InputBody,
    InterruptBody,
    LimitBody,
    MessageBody,
    PauseBody,
    ReasonBody,
    ReplayBody,
    ResolveBody,
    RestoreBody,
    ResumeBody,
    RunBody,
    SnapshotBody,
)
from services.api.service import Service
from services.core.access.decide import Caller
from services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ
from services.core.access.scopes import TENANT as TENANT_SCOPE

Answer = Response | ASGIApp
Handler = Callable[[Service, Caller, Request], Awaitable[Any]]
"""What it gives is a Response or any other ASGI answer."""
SocketHandler = Callable[[Service, Scope, Receive, Send], Awaitable[int]]
"""Serves a WebSocket to its end, and gives the status its handshake was answered with."""


class Access(Enum):
    """Access without a scope."""

    PUBLIC = "public"
    ANY_CALLER = "any caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query parameter in the document."""

    name: str
    says: str
    kind: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A row of the table. `answer` names a schema of documents.py; `streams` marks an event stream."""

    method: str
    path: str
    access: str | Access
    handler: Handler
    says: str
    answer: str = "Object"
    body: type[Body] | None = None
    body_optional: bool = False
    query: Sequence[Query] = ()
    streams: bool = False
    takes_position: bool = False
    takes_key: bool = False
    media_type: str = "application/json"
    status: int = 200
    """Of a good answer; 204 has no content."""
    other_status: int = 0
    """Of a good answer of the same shape; 0: there is none."""
    socket: SocketHandler | None = None
    """The path is a WebSocket; `handler` answers requests that ask for none."""


WHOLE = {"type": "integer", "minimum": 1}
POSITION = Query(name="position", says="A position token of an earlier write; as the header X-Loomlog-Position.")
CURSOR = Query(name="cursor", says="`next` of an earlier answer.")
LIMIT = Query(name="limit", says="Most entries of one answer.", kind=WHOLE)
TENANT = Query(name="tenant", says="Administrators: only this tenant.")
STATUS = Query(name="status", says="running, completed, failed, cancelled with commas between, or all.")
INTERRUPT_STATUS = Query(
    name="status",
    says="pending, resolved, declined, timed_out, cancelled, delivered with commas between, or all.",
)
SESSION = "/v1/sessions/{session_id}"
RUN = "/v1/runs/{run_id}"
AGENT = "/v1/agents/{agent_id}"
SNAPSHOTS = "/v1/_snapshots"
SNAPSHOT = "/v1/_snapshots/{snapshot_id}"

ROUTES: tuple[Route, ...] = (
    # The busiest first: routes are matched in this order.
    Route(
        method="POST",
        path="/v1/runs",
        access=RUNS_CREATE,
        handler=run_endpoints.start,
        says="Start a run; the answer is the stream of its events.",
        body=RunBody,
        streams=True,
        takes_key=True,
        query=(Query(name="ids", says="1: frames carry their id, so that Last-Event-ID can resume."),),
    ),
    Route(
        method="GET",
        path=f"{RUN}/stream",
        access=RUNS_READ,
        handler=run_endpoints.follow,
        says="The events of a run from any place in it, then as they happen. Also takes Last-Event-ID.",
        streams=True,
        takes_position=True,
        query=(Query(name="from_seq", says="Frames after this place."),),
    ),
    Route(
        method="GET",
        path=AGENT,
        access=RUNS_READ,
        handler=run_endpoints.get_agent,
        says="The newest run of a handle.",
        answer="Run",
        takes_position=True,
    ),
    Route(
        method="GET",
        path="/v1/runs",
        access=RUNS_READ,
        handler=run_endpoints.list_runs,
        says="Runs, newest first.",
        answer="RunList",
        query=(
            STATUS,
            Query(name="agent", says="Name of the agent."),
            Query(name="agent_id", says="Handle."),
            Query(name="parent_agent_id", says="Handle of the parent."),
            Query(name="user_id", says="End user."),
            Query(name="session_id", says="Session."),
            Query(name="root_run_id", says="The run a tree began with: the whole tree."),
            Query(name="from", says="Started at or after this time (RFC 3339)."),
            Query(name="to", says="Started before this time (RFC 3339)."),
            TENANT,
            LIMIT,
            CURSOR,
        ),
    ),
    Route(
        method="GET",
        path=RUN,
        access=RUNS_READ,
        handler=run_endpoints.get_run,
        says="One run.",
        answer="Run",
        takes_position=True,
    ),
    Route(
        method="POST",
        path=f"{RUN}/input",
        access=RUNS_CREATE,
        handler=run_endpoints.post_input,
        says="The next user text of a run under way.",
        answer="Delivered",
        body=InputBody,
    ),
    Route(
        method="POST",
        path=f"{RUN}/calls/{{call}}/resolve",
        access=RUNS_CREATE,
        handler=run_endpoints.resolve_call,
        says="What became of a tool call of unknown outcome; the call is TURN.INDEX.",
        answer="Resolved",
        body=ResolveBody,
    ),
    Route(
        method="POST",
        path=f"{AGENT}/cancel",
        access=RUNS_CREATE,
        handler=run_endpoints.cancel,
        says="End a run.",
        answer="Cancelled",
        body=CancelBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{RUN}/cancel",
        access=RUNS_CREATE,
        handler=interrupt_endpoints.cancel_turn,
        says="Stop the turn under way of an interactive run; the run itself waits for input then.",
        answer="TurnStopped",
        body=CancelBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{RUN}/interrupts/{{interrupt_id}}/resolve",
        access=RUNS_CREATE,
        handler=interrupt_endpoints.resolve,
        says="Answer a question of a run, or decline to.",
        answer="InterruptResolved",
        body=InterruptBody,
    ),
    Route(
        method="GET",
        path=f"{RUN}/interrupts",
        access=RUNS_READ,
        handler=interrupt_endpoints.of_run,
        says="Questions of a run to people, newest first; pending ones unless a status is asked for.",
        answer="InterruptList",
        takes_position=True,
        query=(INTERRUPT_STATUS,),
    ),
    Route(
        method="GET",
        path="/v1/users/{user_id}/interrupts",
        access=RUNS_READ,
        handler=interrupt_endpoints.of_user,
        says="Questions of a user's runs, newest first; pending ones unless a status is asked for.",
        answer="InterruptList",
        query=(INTERRUPT_STATUS, LIMIT, CURSOR),
    ),
    Route(
        method="GET",
        path="/v1/interrupts",
        access=RUNS_READ,
        handler=interrupt_endpoints.of_all,
        says="Questions of every run the caller may see, newest first; pending ones unless a status is asked for.",
        answer="InterruptList",
        query=(INTERRUPT_STATUS, Query(name="user_id", says="End user."), LIMIT, CURSOR),
    ),
    Route(
        method="POST",
        path=f"{RUN}/pause",
        access=RUNS_CREATE,
        handler=run_endpoints.pause,
        says="Let a run stand still before its next model call; what is under way is finished.",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{RUN}/resume",
        access=RUNS_CREATE,
        handler=run_endpoints.resume,
        says="Let a paused run go on; what is paused wider than the run still holds it.",
    ),
    Route(
        method="POST",
        path=f"{RUN}/compact",
        access=RUNS_CREATE,
        handler=run_endpoints.compact,
        says="Replace the older part of a conversation by a summary: of a parked run, or of a session that is over.",
        answer="Compacted",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{SESSION}/replay",
        access=RUNS_CREATE,
        handler=run_endpoints.replay_session,
        says="A new session of another agent with the conversation of this one.",
        answer="Copied",
        body=ReplayBody,
    ),
    Route(
        method="POST",
        path=f"{RUN}/quarantine",
        access=ADMIN,
        handler=run_endpoints.quarantine,
        says="Park a run until it is released; its calls are stopped and others go on.",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{RUN}/release",
        access=ADMIN,
        handler=run_endpoints.release,
        says="Fold a quarantined run again from the log and let it go on.",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path="/v1/runs/bulk",
        access=ADMIN,
        handler=bulk_endpoints.order,
        says="One order to the live runs of a filter; only says which unless dry_run is false.",
        body=BulkBody,
    ),
    Route(
        method="POST",
        path="/v1/runs:batch",
        access=RUNS_CREATE,
        handler=batch_endpoints.batch,
        says="Up to 32 runs at once; join waits for them (200), detach answers with their ids (202).",
        answer="Batch",
        other_status=202,
        body=BatchBody,
        takes_key=True,
    ),
    Route(
        method="GET",
        path="/v1/_resident",
        access=RUNS_READ,
        handler=batch_endpoints.list_residents,
        says="Resident sub-agents that are live.",
        query=(TENANT, LIMIT, CURSOR),
    ),
    Route(
        method="POST",
        path="/v1/_resident/{run_id}/close",
        access=RUNS_CREATE,
        handler=batch_endpoints.close_resident,
        says="Close a resident sub-agent; again it changes nothing.",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path="/v1/_resident/{run_id}/cancel",
        access=RUNS_CREATE,
        handler=batch_endpoints.cancel_resident,
        says="Stop the turn of a resident sub-agent; it stays, for further texts.",
        body=ReasonBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=f"{SESSION}/messages",
        access=RUNS_CREATE,
        handler=run_endpoints.continue_session,
        says="A further run of a session; the answer is the stream of its events.",
        body=MessageBody,
        streams=True,
        takes_key=True,
        query=(Query(name="ids", says="1: frames carry their id."),),
    ),
    Route(
        method="GET",
        path=f"{SESSION}/transcript",
        access=RUNS_READ,
        handler=run_endpoints.get_transcript,
        says="The stored frames of a session.",
        answer="Transcript",
        takes_position=True,
        query=(LIMIT, CURSOR),
    ),
    Route(
        method="GET",
        path=f"{RUN}/state",
        access=RUNS_READ,
        handler=history_endpoints.state_at,
        says="A run as it was after one of its events, folded from the log.",
        answer="Moment",
        query=(Query(name="at", says="Seq of the event; the newest when absent.", kind=WHOLE),),
    ),
    Route(
        method="GET",
        path=f"{RUN}/replay",
        access=RUNS_READ,
        handler=history_endpoints.replay,
        says="The run folded again from the log and compared; what does not hold is in `drift`.",
        answer="Proof",
        query=(Query(name="to", says="Seq to end at; all of it when absent.", kind=WHOLE),),
    ),
    Route(
        method="GET",
        path=f"{RUN}/diff",
        access=RUNS_READ,
        handler=history_endpoints.diff,
        says="Two runs side by side, and where they first differ.",
        answer="Comparison",
        query=(
            Query(name="with", says="The run to compare with."),
            Query(name="at", says="This run as it was at that seq.", kind=WHOLE),
            Query(name="with_at", says="The other run as it was at that seq.", kind=WHOLE),
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
        access=RUNS_CREATE,
        handler=history_endpoints.take_in,
        says="Take in an exported run; the body is the file. The same file again adds nothing.",
        answer="Imported",
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
        query=(Query(name="ids", says="1: frames carry their id."),),
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
        query=(STATUS, Query(name="agent", says="Name of the agent."), TENANT),
    ),
    Route(
        method="GET",
        path="/v1/events",
        access=RUNS_READ,
        handler=event_endpoints.list_events,
        says="Events as they lie in the log.",
        answer="EventList",
        query=(
            Query(name="run_id", says="Events of this run."),
            Query(name="type", says="Name of the event, for example RunStarted."),
            Query(name="partition", says="Number of the partition.", kind={"type": "integer", "minimum": 0}),
            Query(name="from", says="Offset (with partition) or time (RFC 3339), included."),
            Query(name="to", says="Offset (with partition) or time (RFC 3339), not included."),
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
    Route(
        method="GET",
        path="/healthz",
        access=Access.PUBLIC,
        handler=operator_endpoints.healthz,
        says="This process is alive.",
    ),
    Route(
        method="GET",
        path="/readyz",
        access=Access.PUBLIC,
        handler=operator_endpoints.readyz,
        says="This process can serve; otherwise 503 and what is missing.",
    ),
    Route(
        method="GET",
        path="/metrics",
        access=ADMIN,
        handler=operator_endpoints.metrics,
        says="Counts in Prometheus' text format.",
        answer="Text",
        media_type="text/plain",
    ),
    Route(
        method="GET",
        path="/v1/_me",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.me,
        says="Who the token belongs to.",
    ),
    Route(
        method="GET",
        path="/v1/_routing",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.routing_view,
        says="Which models the plans and tiers go to.",
    ),
    Route(
        method="GET",
        path="/v1/_models",
        access=Access.ANY_CALLER,
        handler=operator_endpoints.model_aliases,
        says="Names of models in the configuration.",
    ),
    Route(
        method="GET",
        path="/v1/_providers/{provider_id}/models",
        access=ADMIN,
        handler=operator_endpoints.provider_models,
        says="The models a provider lists at this moment.",
    ),
    Route(
        method="GET",
        path="/v1/_resolver",
        access=ADMIN,
        handler=operator_endpoints.resolver,
        says="Providers, their models, and what calls and probes have shown of each.",
    ),
    Route(
        method="POST",
        path="/v1/_resolve/probe",
        access=ADMIN,
        handler=operator_endpoints.probe,
        says="Have every provider probed now; answers as /v1/_resolver.",
    ),
    Route(
        method="GET",
        path="/v1/_concurrency/stats",
        access=ADMIN,
        handler=operator_endpoints.concurrency,
        says="How many runs are under way, by user and provider.",
    ),
    Route(
        method="POST",
        path="/v1/hooks",
        access=TENANT_SCOPE,
        handler=hook_endpoints.register,
        says="Register a hook: it is asked about tool calls before or after they are made.",
        body=HookBody,
        answer="HookMade",
    ),
    Route(
        method="GET",
        path="/v1/hooks",
        access=TENANT_SCOPE,
        handler=hook_endpoints.listed,
        says="The registered hooks, in the order in which they are asked.",
        answer="HookList",
    ),
    Route(
        method="DELETE",
        path="/v1/hooks/{hook_id}",
        access=TENANT_SCOPE,
        handler=hook_endpoints.remove,
        says="Remove a hook; calls under way end with it.",
        answer="HookRemoved",
    ),
    Route(
        method="GET",
        path="/v1/_usage",
        access=RUNS_READ,
        handler=budget_endpoints.usage,
        says="What was used and what it cost, over whole UTC days; rows split by currency.",
        query=(
            Query(name="group_by", says="tenant, user, provider, model, source, agent, day with commas between."),
            Query(name="from", says="From the day of this time on."),
            Query(name="to", says="Before this time; its day counts when it has begun."),
            TENANT,
        ),
    ),
    Route(
        method="GET",
        path="/v1/_limits",
        access=RUNS_READ,
        handler=budget_endpoints.list_limits,
        says="Limits on spending, and what is used of them this month.",
        query=(TENANT,),
    ),
    Route(
        method="PUT",
        path="/v1/_limits",
        access=TENANT_SCOPE,
        handler=budget_endpoints.set_limit,
        says="Limit what the installation, a tenant or a user spends in a month; replaces what was said before.",
        body=LimitBody,
    ),
    Route(
        method="DELETE",
        path="/v1/_limits",
        access=TENANT_SCOPE,
        handler=budget_endpoints.remove_limit,
        says="Take the limits of an account away.",
        query=(
            Query(name="scope", says="operator, tenant or user."),
            Query(name="tenant", says="The caller's without it."),
            Query(name="scope_id", says="The user."),
        ),
        status=204,
    ),
    Route(
        method="GET",
        path="/v1/_state",
        access=ADMIN,
        handler=pause_endpoints.state,
        says="Whether the installation runs or is paused, and what else is.",
    ),
    Route(
        method="POST",
        path="/v1/_pause",
        access=ADMIN,
        handler=pause_endpoints.pause_all,
        says="Let everything, a tenant or an agent stand still; waits until it does, at most timeout_ms.",
        body=PauseBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path="/v1/_resume",
        access=ADMIN,
        handler=pause_endpoints.resume_all,
        says="Let what was paused go on.",
        body=ResumeBody,
        body_optional=True,
    ),
    Route(
        method="POST",
        path=SNAPSHOTS,
        access=ADMIN,
        handler=snapshot_endpoints.create_snapshot,
        says="Write the state, or that of a tenant, to one file that another installation can take in.",
        answer="Snapshot",
        status=201,
        body=SnapshotBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=SNAPSHOTS,
        access=ADMIN,
        handler=snapshot_endpoints.list_snapshots,
        says="The state files there are, newest first.",
        answer="SnapshotList",
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOTS}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot_file,
        says="Take in a state file; the body is the file, gzip or JSON. The same file again adds nothing.",
        answer="Restored",
        query=(Query(name="dry_run", says="1: check it and say what would be added."),),
    ),
    Route(
        method="GET",
        path=SNAPSHOT,
        access=ADMIN,
        handler=snapshot_endpoints.get_snapshot,
        says="A state file with all that is in it.",
        answer="Snapshot",
    ),
    Route(
        method="DELETE",
        path=SNAPSHOT,
        access=ADMIN,
        handler=snapshot_endpoints.remove_snapshot,
        says="Delete a state file; also when there is none.",
        status=204,
    ),
    Route(
        method="POST",
        path=f"{SNAPSHOT}/restore",
        access=ADMIN,
        handler=snapshot_endpoints.restore_snapshot,
        says="Take in a state file that is kept here. What is here already is left as it is.",
        answer="Restored",
        body=RestoreBody,
        body_optional=True,
    ),
    Route(
        method="GET",
        path=f"{SNAPSHOT}/export",
        access=ADMIN,
        handler=snapshot_endpoints.export_snapshot,
        says="A state file as a download.",
        answer="State",
        query=(Query(name="format", says="gzip: the file as it is kept; else JSON."),),
    ),
    Route(
        method="GET",
        path="/v1/client-tools",
        access=RUNS_CREATE,
        handler=client_endpoints.upgrade,
        socket=client_endpoints.connect,
        says="A WebSocket over which a client offers tools and carries out the calls of its own runs.",
        status=101,
    ),
    Route(
        method="GET",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.report,
        says="What there is of a subject and what of it can be erased; without a subject those of the tenant.",
        query=(
            Query(name="tenant", says="Required: the tenant of the subject."),
            Query(name="subject", says="A user_id, or (tenant) for runs that name no user."),
        ),
    ),
    Route(
        method="POST",
        path="/v1/_erasure",
        access=ADMIN,
        handler=erasure_endpoints.erase,
        says="Make the content of a subject unreadable, with dry_run false and confirm; otherwise tell what would be.",
        body=ErasureBody,
        query=(Query(name="tenant", says="Required: the tenant of the subject."),),
    ),
    Route(
        method="POST",
        path="/v1/_erasure/rewrap",
        access=ADMIN,
        handler=erasure_endpoints.wrap_anew,
        says="Wrap the keys of subjects under the current key-encryption key.",
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        access=Access.PUBLIC,
        handler=document_endpoints.openapi,
        says="This document.",
    ),
    Route(
        method="GET",
        path="/v1/docs",
        access=Access.PUBLIC,
        handler=document_endpoints.docs,
        says="This document for people.",
        answer="Text",
        media_type="text/html",
    ),
)
