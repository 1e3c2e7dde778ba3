"""Context: what a run may know about itself, its tools, its grants, definitions, this server and the time.

Field names are those that agents written for loomcycle read. Fields without a source here are omitted, not empty:
absent means "not known here", empty would mean "known to be none". The ops about definitions exist where the process
has a view of them.

Before: registry.py. After: tool_guide.py, help.py, DefinitionsView; the rest comes from the call's context.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from loomlog.connectors.protocols import DefinitionsView, EffectClass, Tool, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.help import HelpTopics
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.connectors.tools.server_info import ServerInfo
from loomlog.connectors.tools.tool_guide import ToolGuide

COMPACT = "compact"
LOCAL_BACKEND = "inprocess"
"""Where memory is that names no backend."""
LINEAGE_DEPTH, LINEAGE_DEPTH_MAX = 10, 100
CHANNELS_MAX = 200
"""Channels that one answer lists, some 30 KB; `prefix` leads to the others."""
DEF_SCOPES = (
    "agent_def_scopes",
    "volume_def_scopes",
    "schedule_def_scopes",
    "a2a_agent_def_scopes",
    "a2a_server_card_def_scopes",
)
"""Grants to author definitions, which op permissions shows as they are."""
Arguments = Mapping[str, Any]
ChannelRows = Callable[[str, str], Sequence[Mapping[str, Any]]]
"""Returns the channels that a tenant sees whose names begin with a prefix, by name."""
Handler = Callable[[Arguments, ToolContext], Awaitable[Mapping[str, Any]]]
FIELDS: Mapping[str, Mapping[str, Any]] = {
    "name": {"type": "string", "description": "For op doc: the tool.", "minLength": 1, "maxLength": 256},
    "topic": {"type": "string", "description": "For op help: the topic to read.", "minLength": 1, "maxLength": 256},
    "query": {"type": "string", "description": "For op help: words to search for.", "minLength": 1, "maxLength": 400},
    "mode": {
        "type": "string",
        "enum": ["hybrid", "substring"],
        "description": "For op help with query; this server searches by substring.",
    },
    "prefix": {
        "type": "string",
        "description": "For op agents and channels: only names that begin so.",
        "maxLength": 256,
    },
    "def_id": {
        "type": "string",
        "description": "For op lineage and evaluations: the version.",
        "minLength": 1,
        "maxLength": 128,
    },
    "depth": {
        "type": "integer",
        "description": f"For op lineage: generations to follow. Default: {LINEAGE_DEPTH}.",
        "minimum": 1,
        "maximum": LINEAGE_DEPTH_MAX,
    },
    "include_lineage": {"type": "boolean", "description": "For op evaluations: with those of the ancestors."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    """An op: what it returns, the fields it takes, and those that it requires."""

    summary: str
    handler: Handler
    fields: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    schema: Mapping[str, Any] = field(init=False)

    @property
    def field_list(self) -> str:
        """The fields in brackets; empty without any."""
        return f" ({', '.join(self.fields)})" if self.fields else ""

    def __post_init__(self) -> None:
        properties = {
            "op": {"type": "string", "description": "What to tell."},
            **{one: FIELDS[one] for one in self.fields},
        }
        object.__setattr__(self, "schema", {"properties": properties, "required": ["op", *self.required]})


class ContextTool:
    """`catalogue` is the live mapping of all tools of this process, this one included. Without `definitions` and
    `channels` there are no ops about them.
    """

    name = "Context"
    side_effect_class = "pure"
    usage_hint = "op guide is short, op doc explains one tool, op help explains how this server works."
    timeout_s: float = 5.0

    def __init__(
        self,
        *,
        server: ServerInfo,
        catalogue: Mapping[str, Tool],
        help_topics: HelpTopics,
        definitions: DefinitionsView | None = None,
        channels: ChannelRows | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._server = server
        self._guide = ToolGuide(catalogue, server)
        self._help = help_topics
        self._clock_ms = clock_ms
        self._operations = {
            "self": _Operation(
                summary="Identity, model, volumes, reachable hosts, use of the context window.",
                handler=self._describe_run,
            ),
            "tools": _Operation(summary="The tools this run may use.", handler=self._describe_tools),
            "time": _Operation(
                summary="Now, when the run started and how long it has been going.", handler=self._describe_time
            ),
            COMPACT: _Operation(
                summary="Replaces the older part of the conversation by a summary before the next turn.",
                handler=self._describe_compaction,
            ),
            "guide": _Operation(summary="The tools in short, with hints.", handler=self._describe_guide),
            "doc": _Operation(
                summary="Description and input of one tool.",
                handler=self._document_tool,
                fields=("name",),
                required=("name",),
            ),
            "permissions": _Operation(
                summary="Hosts, scopes, channels and skills granted to this run.", handler=self._describe_permissions
            ),
            "capabilities": _Operation(
                summary="Features of this server, and what memory this run has.", handler=self._describe_capabilities
            ),
            "help": _Operation(
                summary="How this server works: without fields the topics; one topic; or a search by query.",
                handler=self._help_with,
                fields=("topic", "query", "mode"),
            ),
        }
        if definitions is not None:
            self._operations |= _definition_operations(definitions)
        if channels is not None:
            self._operations["channels"] = _channels_operation(channels)
        self.operations: Mapping[str, str] = {name: one.summary for name, one in self._operations.items()}
        """What each op returns."""
        self.description = "Tells a run about itself and this server. " + " ".join(
            f"op {name}{one.field_list}: {one.summary}" for name, one in self._operations.items()
        )
        used = {name for one in self._operations.values() for name in one.fields}
        self.input_schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "op": {"type": "string", "enum": list(self._operations), "description": "What to tell."},
                **{name: schema for name, schema in FIELDS.items() if name in used},
            },
            "required": ["op"],
            "additionalProperties": False,
        }

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            operation = self._operations.get(_op_of(arguments))
            if operation is None:
                check_arguments(self.name, arguments, self.input_schema)
                raise AssertionError("an unknown op is refused")
            checked = check_arguments(f"{self.name} op {arguments['op']}", arguments, operation.schema)
            answer = await operation.handler(checked, context)
        except ToolCallRefused as reason:
            return error_result(reason)
        return ToolResult(text=orjson.dumps(answer).decode(), asks_compaction=checked["op"] == COMPACT)

    async def _describe_run(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "agent_name": context.agent,
            "agent_id": context.agent_id,
            "user_id": context.user_id,
            "tenant_id": context.tenant,
            "user_tier": context.user_tier,
            "run_id": context.run_id,
            "session_id": context.session_id,
            "provider": context.provider,
            "model": context.model,
        }
        if context.agent_def_id:
            fields["agent_def_id"] = context.agent_def_id
        if context.sampling is not None:
            fields["sampling"] = _drop_defaults(context.sampling.to_avro())
        if context.compaction is not None:
            fields["compaction"] = _drop_defaults(context.compaction.to_avro())
        if context.max_tokens > 0:
            fields["context"] = _context_usage(context)
        fields |= _describe_volumes(context)
        server = self._server
        fields["network"] = {"allowed_hosts": list(context.allowed_hosts), "source": context.hosts_source}
        fields["principal"] = {"tenant_id": context.tenant, "subject": context.subject}
        fields["loomcycle"] = {"version": server.version, "commit": server.commit, "build_time": server.build_time}
        fields["server"] = {"listen_addr": server.listen_addr, "url": server.url}
        return fields

    async def _describe_tools(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        rows = self._guide.tools(context.tools)
        return {"tools": rows, "count": len(rows)}

    async def _describe_guide(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        rows = self._guide.guide(context.tools)
        return {"tools": rows, "count": len(rows)}

    async def _document_tool(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        name = arguments["name"]
        document = self._guide.document(name) if name in context.tools else None
        if document is None:
            granted = ", ".join(context.tools) or "none"
            raise ToolCallRefused(f'"{name[:60]}" is not a tool of this run; its tools are {granted}.')
        return document

    async def _describe_permissions(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        grants = context.grants
        return {
            "tools": list(context.tools),
            "host_policy": {
                "has_list": bool(context.allowed_hosts) or context.hosts_source == "caller",
                "allowed_hosts": list(context.allowed_hosts),
            },
            "memory": {
                "allowed_scopes": list(grants.get("memory_scopes", ())),
                "quota_bytes": grants.get("memory_quota_bytes", 0),
            },
            "channels": {
                "publish": list(grants.get("channels_publish", ())),
                "subscribe": list(grants.get("channels_subscribe", ())),
            },
            "skills": list(grants.get("skills", ())),
            "evaluation_scopes": list(grants.get("evaluation_scopes", ())),
            **{name: list(grants.get(name, ())) for name in DEF_SCOPES},
        }

    async def _describe_capabilities(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        features = self._guide.capabilities()
        if not features["memory_layer"]["available"]:
            return features
        memory, grants = self._server.memory, context.grants
        return features | {
            "memory": {
                "scopes": list(grants.get("memory_scopes", ())),
                "sql_scopes": list(grants.get("sql_scopes", ())) if memory.sql else [],
                "embedder": memory.embedder,
                "search": "lexical" if memory.embedder is None else "hybrid",
                "backend": grants.get("memory_backend", "") or LOCAL_BACKEND,
                "bands": memory.bands,
            }
        }

    async def _help_with(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        name, query = arguments.get("topic"), arguments.get("query")
        if name and query:
            raise ToolCallRefused('Context op help takes "topic" or "query", not both.')
        if query:
            return self._help.search(query)
        if not name:
            return self._help.index()
        topic = self._help.find(name)
        if topic is None:
            raise ToolCallRefused(f'There is no help topic "{name[:60]}"; topics: {", ".join(self._help.names)}.')
        return {
            "name": topic.name,
            "description": topic.description,
            "content": topic.content,
            "source": topic.source,
        }

    async def _describe_compaction(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        fields: dict[str, Any] = {"scheduled": True, "when": "before the next turn"}
        return fields | ({"context": _context_usage(context)} if context.max_tokens > 0 else {})

    async def _describe_time(self, _: Arguments, context: ToolContext) -> dict[str, Any]:
        now = self._clock_ms()
        return {
            "now_rfc3339": _rfc3339(now),
            "unix_ms": now,
            "run_started_at": _rfc3339(context.started_at_ms),
            "elapsed_ms": max(0, now - context.started_at_ms),
        }


def _op_of(arguments: object) -> str:
    """Return the op of a call; empty when the arguments have none."""
    op = arguments.get("op") if isinstance(arguments, Mapping) else None
    return op if isinstance(op, str) else ""


def _definition_operations(definitions: DefinitionsView) -> dict[str, _Operation]:
    """Return the ops about definitions."""

    async def agents(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        rows = [dict(row) for row in definitions.agents(context.tenant, arguments.get("prefix", ""))]
        return {"agents": rows, "count": len(rows)}

    async def lineage(arguments: Arguments, context: ToolContext) -> Mapping[str, Any]:
        def_id = arguments["def_id"]
        depth = arguments.get("depth", LINEAGE_DEPTH)
        return _require_version(def_id, await definitions.lineage(context.tenant, def_id, depth))

    async def evaluations(arguments: Arguments, context: ToolContext) -> Mapping[str, Any]:
        def_id, with_lineage = arguments["def_id"], arguments.get("include_lineage", False)
        return _require_version(
            def_id, await definitions.evaluations(context.tenant, def_id, with_lineage, context.positions)
        )

    return {
        "agents": _Operation(summary="The agents there are.", handler=agents, fields=("prefix",)),
        "lineage": _Operation(
            summary="Ancestors and descendants of a version of a definition.",
            handler=lineage,
            fields=("def_id", "depth"),
            required=("def_id",),
        ),
        "evaluations": _Operation(
            summary="Summary of the judgements of a version.",
            handler=evaluations,
            fields=("def_id", "include_lineage"),
            required=("def_id",),
        ),
    }


def _channels_operation(channels: ChannelRows) -> _Operation:
    """Return the op about channels."""

    async def describe(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        publish = tuple(context.grants.get("channels_publish", ()))
        subscribe = tuple(context.grants.get("channels_subscribe", ()))
        rows = channels(context.tenant, arguments.get("prefix", ""))
        shown = [
            {**row, "publish": row["name"] in publish, "subscribe": row["name"] in subscribe}
            for row in rows[:CHANNELS_MAX]
        ]
        answer = {
            "channels": shown,
            "count": len(rows),
            "publish_wildcards": [one for one in publish if one.endswith("*")],
            "subscribe_wildcards": [one for one in subscribe if one.endswith("*")],
        }
        return answer | ({"truncated": True} if len(rows) > CHANNELS_MAX else {})

    return _Operation(
        summary="The channels there are, and which of them this run may publish to and read.",
        handler=describe,
        fields=("prefix",),
    )


def _require_version(def_id: str, answer: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if answer is None:
        raise ToolCallRefused(f'The definition "{def_id[:60]}" was not found.')
    return answer


def _context_usage(context: ToolContext) -> dict[str, Any]:
    used_pct = round(100 * context.used_tokens / context.max_tokens, 1)
    return {"used_tokens": context.used_tokens, "max_tokens": context.max_tokens, "used_pct": used_pct}


def _drop_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the options that were set; an absent one has the default."""
    return {name: value for name, value in options.items() if value not in (None, (), [], "")}


def _describe_volumes(context: ToolContext) -> dict[str, Any]:
    if not context.volumes:
        return {"filesystem": "No volume is granted to this run; file tools refuse."}
    return {
        "volumes": {
            # Not their paths: folders of the server are for administrators only.
            "bindings": [{"name": v.name, "mode": v.mode, "default": v.is_default} for v in context.volumes],
            "path_convention": "Paths are relative to the volume's root. A call that names no volume uses the default.",
        }
    }


def _rfc3339(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
