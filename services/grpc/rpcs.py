"""The table: what each RPC that answers once does. Streams are in streams.py.

A row names an operation. Fields of its message are fields of the operation's input and those of its answer fields of
the answer, under the same names save where the row says otherwise; what both messages have and the operation does not
say is repeated. It decides nothing: access, bounds and refusals are the operation's.

An RPC of a tool (AgentDef, Memory, ...) takes the JSON of HTTP and of agents with its `op`. It has the operations that
share the route of its name, and otherwise those of the tool; without any it is not served, until something has them.

Before: front.py. After: services/application/dispatch.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loomlog.services.application.operations import (
    budgets,
    erasure,
    interrupts,
    process,
    product_operations,
    runs,
    sessions,
    state_files,
)
from loomlog.services.core.operations import AnyOperation
from loomlog.services.core.times import format_ns
from loomlog.services.families.registry import operations_by_name
from loomlog.services.grpc import operations as own

Values = Mapping[str, Any]
SESSION, HOOK, SNAPSHOT, CHANNEL = "session", "hook", "snapshot", "channel"
RUN = "run or agent"
OF_FAMILIES = operations_by_name()
PUBLISH = OF_FAMILIES["channel.publish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rpc:
    """A row. All mappings are from names of the message to those of the operation."""

    name: str
    operation: AnyOperation
    names: Mapping[str, str] = field(default_factory=dict)
    takes: Sequence[str] = ()
    """Fields of the message that the operation has; empty: all."""
    fields: Callable[[dict[str, Any]], Values] | None = None
    """Returns the fields of the operation's input, where names are not enough; None: those of the message."""
    own_tenant: bool = False
    """Whether the operation is about the caller's tenant, which is named to it and which the answer repeats."""
    answer: Callable[[Values], Values] | None = None
    """Returns the fields of the answer's message; None: those of the operation's answer."""
    pages: str = ""
    """List of the answer whose pages are joined, because the message has no cursor."""
    missing: str = RUN
    """What it looks for, as its clients call it."""


def _agent(run: Values) -> Values:
    return {**run, "usage": run["usage"] or None}


def _agents(page: Values) -> Values:
    return {"agents": [_agent(run) for run in page["agents"]]}


def _any_status(fields: dict[str, Any]) -> Values:
    return {"status": "all", **fields}


def _frames(page: Values) -> Values:
    session_id = page["session"]["session_id"]
    return {
        "events": [
            {
                **frame,
                "session_id": session_id,
                "ts": format_ns(frame["ts_ns"]),
                "payload": frame.get("payload") or frame["event"],
            }
            for frame in page["events"]
        ]
    }


def _cancelled(done: Values) -> Values:
    return {"cancelled_count": int(done["cancelled"]) + len(done["cascaded"])}


def _published(done: Values) -> Values:
    """Return what the operation answers and what its route shows of it: the message has both."""
    show = PUBLISH.http[0].answer
    assert show is not None, "its route has a form of its own"
    return {**done, **msgspec.to_builtins(show(msgspec.convert(done, PUBLISH.output)))}


def _broadcast(done: Values) -> Values:
    return {**done, "results": [_published(row) if "message_id" in row else row for row in done["results"]]}


def _paused(done: Values) -> Values:
    return {**done, "status": done["state"]}


def _resumed(done: Values) -> Values:
    return {"status": done["state"], "resumed_run_count": done["resumed_runs_count"]}


def _examined(report: Values) -> Values:
    """Our residue counts the scopes, that of the messages names them."""
    return {**report, **{name: {**report[name], "scopes": ()} for name in ("residue", "tier3_residue")}}


def _descriptor(file: Values) -> Values:
    return {
        **file,
        "snapshot_id": file["id"],
        "size_bytes": file["byte_size"],
        "includes_history": file["include_history"],
        "description": file["label"],
        "format_version": str(file["schema_version"]),
    }


def _descriptors(listed: Values) -> Values:
    return {"snapshots": [_descriptor(file) for file in listed["entries"]]}


def _restored(done: Values) -> Values:
    return {
        **done,
        "paused_runs_restored": done["runs_continued"],
        "synthesized_sessions": done["runs_restored"],
        "transcript_events_restored": done["events_restored"],
    }


def _user(row: Values) -> Values:
    return {**row, "subject": row["user_id"]}


def _users(listed: Values) -> Values:
    return {"users": [_user(row) for row in listed["users"]]}


def _inspected(user: Values) -> Values:
    budget = {"soft_limit": user["budget"]["soft"], "hard_limit": user["budget"]["hard"]}
    return {**user, "activity": {**user["activity"], "subject": user["subject"]}, "budget": budget}


def _usage_groups(fields: dict[str, Any]) -> Values:
    return {**fields, "group_by": ",".join(fields.get("group_by") or ())}


def _all_or_live(fields: dict[str, Any]) -> Values:
    """Runs that have ended are left out unless the message asks for the history."""
    return {"include_history": False, **fields}


RPCS: tuple[Rpc, ...] = (
    Rpc(name="SpawnRunBatch", operation=runs.SPAWN_MANY),
    Rpc(name="RunInput", operation=runs.INPUT),
    Rpc(name="CancelTurn", operation=runs.CANCEL_TURN),
    Rpc(name="CompactRun", operation=runs.COMPACT),
    Rpc(name="ResolveInterrupt", operation=interrupts.RESOLVE),
    Rpc(name="CancelAgent", operation=runs.CANCEL, answer=_cancelled),
    Rpc(name="GetAgent", operation=runs.GET_BY_HANDLE, answer=_agent),
    Rpc(name="GetRun", operation=runs.GET, answer=_agent),
    Rpc(name="ListUserAgents", operation=runs.LIST_OF_USER, fields=_any_status, answer=_agents, pages="agents"),
    Rpc(name="GetTranscript", operation=sessions.TRANSCRIPT, answer=_frames, pages="events", missing=SESSION),
    Rpc(name="ReplaySession", operation=sessions.COPY, missing=SESSION),
    Rpc(name="ListChannels", operation=OF_FAMILIES["channel.list"], missing=CHANNEL),
    Rpc(
        name="PublishChannel",
        operation=PUBLISH,
        names={"payload": "value"},
        answer=_published,
        missing=CHANNEL,
    ),
    Rpc(name="SubscribeChannel", operation=OF_FAMILIES["channel.subscribe"], missing=CHANNEL),
    Rpc(name="PeekChannel", operation=OF_FAMILIES["channel.peek"], missing=CHANNEL),
    Rpc(name="AckChannel", operation=OF_FAMILIES["channel.ack"], missing=CHANNEL),
    Rpc(name="AwaitChannels", operation=OF_FAMILIES["channel.await"], missing=CHANNEL),
    Rpc(
        name="BroadcastChannels",
        operation=OF_FAMILIES["channel.broadcast"],
        names={"payload": "value"},
        answer=_broadcast,
        missing=CHANNEL,
    ),
    Rpc(name="RegisterHook", operation=OF_FAMILIES["hook.register"], missing=HOOK),
    Rpc(name="ListHooks", operation=OF_FAMILIES["hook.list"], missing=HOOK),
    Rpc(name="DeleteHook", operation=OF_FAMILIES["hook.remove"], names={"id": "hook_id"}, missing=HOOK),
    Rpc(
        name="UsageReport",
        operation=budgets.REPORT,
        names={"from_time": "since", "to_time": "until"},
        fields=_usage_groups,
    ),
    Rpc(name="ErasureReport", operation=erasure.REPORT, own_tenant=True, answer=_examined),
    Rpc(name="ErasureExecute", operation=erasure.ERASE, own_tenant=True, answer=_examined),
    Rpc(name="DirectoryUsers", operation=OF_FAMILIES["user.list"], own_tenant=True, answer=_users),
    Rpc(name="DirectoryInspect", operation=OF_FAMILIES["user.inspect"], own_tenant=True, answer=_inspected),
    Rpc(name="DirectoryTenants", operation=OF_FAMILIES["tenant.list"]),
    Rpc(name="Health", operation=own.GET_HEALTH),
    Rpc(name="Config", operation=own.SHOW_CONFIGURATION),
    Rpc(name="ResolveProbe", operation=process.PROBE_PROVIDERS),
    Rpc(name="PauseRuntime", operation=OF_FAMILIES["pause.runs"], answer=_paused),
    Rpc(name="ResumeRuntime", operation=OF_FAMILIES["pause.resume"], answer=_resumed),
    Rpc(name="GetRuntimeState", operation=own.GET_RUNTIME_STATE),
    Rpc(
        name="CreateSnapshot",
        operation=state_files.CREATE,
        names={"since_ts": "include_history_since", "description": "label"},
        fields=_all_or_live,
        answer=_descriptor,
        missing=SNAPSHOT,
    ),
    Rpc(name="ListSnapshots", operation=state_files.LIST, answer=_descriptors, missing=SNAPSHOT),
    Rpc(
        name="GetSnapshot",
        operation=own.READ_STATE_FILE,
        answer=lambda file: {**file, "json_content": file["content"]},
        missing=SNAPSHOT,
    ),
    Rpc(
        name="ExportSnapshot",
        operation=own.READ_STATE_FILE,
        answer=lambda file: {**file, "raw_json": file["content"]},
        missing=SNAPSHOT,
    ),
    Rpc(
        name="RestoreSnapshot",
        operation=state_files.RESTORE,
        names={"raw_json": "document"},
        answer=_restored,
        missing=SNAPSHOT,
    ),
    Rpc(name="DeleteSnapshot", operation=state_files.DELETE, answer=lambda done: {"deleted": True}, missing=SNAPSHOT),
)
RPCS_WITH_OP: Mapping[str, Mapping[str, Rpc]] = {
    "TokenLimit": {
        "list": Rpc(name="TokenLimit", operation=budgets.LIST, takes=("tenant",)),
        "set": Rpc(
            name="TokenLimit",
            operation=budgets.SET,
            names={"tenant": "tenant_id"},
            takes=("tenant", "scope", "scope_id", "soft_limit", "hard_limit"),
            answer=lambda limit: {"limits": [limit]},
        ),
        "delete": Rpc(name="TokenLimit", operation=budgets.REMOVE, takes=("tenant", "scope", "scope_id")),
    }
}
"""RPCs that have a row for each value of their field `op`."""
TOOL_RPCS = (
    "AgentDef",
    "SkillDef",
    "MCPServerDef",
    "ScheduleDef",
    "A2AServerCardDef",
    "A2AAgentDef",
    "WebhookDef",
    "MemoryBackendDef",
    "DocumentSourceDef",
    "OperatorTokenDef",
    "VolumeDef",
    "TeamDef",
    "Path",
    "Document",
    "History",
    "Memory",
    "Evaluation",
)
"""RPCs of tools, which have one message for all: JSON in, JSON out."""


@dataclass(frozen=True, slots=True)
class ToolTarget:
    """An operation of a tool, and what is shown of its answer."""

    operation: AnyOperation
    answer: Callable[[Any], Any] | None


def tool_targets(name: str, operations: Sequence[AnyOperation] | None = None) -> Mapping[str, ToolTarget]:
    """Return the operations of an RPC of a tool, by their `op`; empty where nothing has them."""
    route, targets = f"POST /v1/_{name.lower()}", dict[str, ToolTarget]()
    for operation in product_operations() if operations is None else operations:
        for http in operation.http:
            if http.route == route and http.op:
                targets[http.op] = ToolTarget(operation, http.answer)
        if (tool := operation.tool) is not None and tool.tool == name:
            targets.setdefault(tool.op, ToolTarget(operation, tool.answer))
    return targets
