"""Context: what a run may know about itself, its tools and the time.

Field names are those that agents written for loomcycle read. Fields without a source here are omitted, not empty:
absent means "not known here", empty would mean "known to be none".

Side-effect classes come from the tools themselves, so the list is always current; a tool without one (offered by
another server) is shown as unknown.

Before: registry.py. After: nothing; every answer comes from the call's context.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.schemas.client_names import TOOL_NAME_PREFIX as CLIENT_PREFIX

UNKNOWN = "unknown"
COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The running server's description of itself."""

    version: str = ""
    commit: str = ""
    build_time: str = ""
    listen_addr: str = ""
    url: str = ""


class ContextTool:
    """`catalogue` is the live mapping of all tools of this process, this one included."""

    name = "Context"
    description = (
        "Tells a run about itself. op self: identity, model, volumes, reachable hosts, context use. op tools: the "
        "tools it may use. op time: now, when the run started and how long it has been going. op compact: replaces "
        "the older part of the conversation by a summary before the next turn."
    )
    side_effect_class = "pure"
    usage_hint = "op guide is short, op doc explains one tool, op help explains how this server works."
    timeout_s: float = 5.0
    input_schema: Mapping[str, Any]

    def __init__(
        self,
        *,
        server: ServerInfo,
        catalogue: Mapping[str, Tool],
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._server = server
        self._catalogue = catalogue
        self._clock_ms = clock_ms
        self._ops: Mapping[str, Callable[[ToolContext], dict[str, Any]]] = {
            "self": self._describe_run,
            "tools": self._describe_tools,
            "time": self._describe_time,
            COMPACT: self._describe_compaction,
        }
        self.input_schema = {
            "type": "object",
            "properties": {
                "op": {"type": "string", "enum": list(self._ops), "description": "What to tell."},
            },
            "required": ["op"],
            "additionalProperties": False,
        }

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            op = check_arguments(self.name, arguments, self.input_schema)["op"]
        except ToolCallRefused as reason:
            return error_result(reason)
        return ToolResult(text=orjson.dumps(self._ops[op](context)).decode(), asks_compaction=op == COMPACT)

    def _describe_run(self, context: ToolContext) -> dict[str, Any]:
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

    def _describe_tools(self, context: ToolContext) -> dict[str, Any]:
        entries = [
            {
                "name": name,
                "description": self._catalogue[name].description,
                "side_effect_class": getattr(self._catalogue[name], "side_effect_class", UNKNOWN),
                **_describe_operations(self._catalogue[name]),
            }
            for name in context.tools
            if name in self._catalogue
        ]
        entries += [
            {"name": name, "description": "Carried out by a client of yours.", "side_effect_class": UNKNOWN}
            for name in context.tools
            if name.startswith(CLIENT_PREFIX)
        ]
        return {"tools": entries, "count": len(entries)}

    def _describe_compaction(self, context: ToolContext) -> dict[str, Any]:
        fields: dict[str, Any] = {"scheduled": True, "when": "before the next turn"}
        return fields | ({"context": _context_usage(context)} if context.max_tokens > 0 else {})

    def _describe_time(self, context: ToolContext) -> dict[str, Any]:
        now = self._clock_ms()
        return {
            "now_rfc3339": _rfc3339(now),
            "unix_ms": now,
            "run_started_at": _rfc3339(context.started_at_ms),
            "elapsed_ms": max(0, now - context.started_at_ms),
        }


def _describe_operations(tool: Tool) -> dict[str, Any]:
    """Return what each `op` of a tool does, for tools that say so."""
    operations: Mapping[str, str] = getattr(tool, "operations", {})
    return {"ops": dict(operations)} if operations else {}


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
            "bindings": [
                {"name": v.name, "path": v.path, "mode": v.mode, "default": v.is_default} for v in context.volumes
            ],
            "path_convention": "Paths are relative to the volume's root. A call that names no volume uses the default.",
        }
    }


def _rfc3339(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
