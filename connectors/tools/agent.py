"""Agent: sub-agents. The tool only parses the request; the runtime starts the children as runs of their own.

    spawn            one child; returns its final text
    parallel_spawn   1 to 32 children, a few at a time; results in request order
    open             a resident child: it waits after each answer, for further prompts
    send poll cancel close    for a resident child, by its child_run_id

Parsing has no effect, so a call that is lost before its plan is in the log is parsed again.

Before: registry.py. After: services/core/run/subagents/children.py decides, services/runtime/run/child_runs.py starts
and asks.
"""

import json
from collections.abc import Mapping
from typing import Any

from loomlog.connectors.protocols import ChildrenPlan, EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.schemas.generated.values import Spawn
from loomlog.schemas.records import replace

OPS = ("spawn", "parallel_spawn", "open", "send", "poll", "cancel", "close")
SPAWNS_MAX = 32
"""Maximum children of one call (parity: reference runtime 3.4); services/core/run/limits.py has it as well."""
WAIT_MAX_MS = 10 * 60_000
"""Maximum wait of a poll; a model that needs longer polls again."""
RESIDENTS_MAX = 8
"""Resident children of one run, unless the operator configures otherwise."""
IDLE_TTL_S = 30 * 60
"""Seconds after which an idle resident child is closed, unless `open` or the operator sets another value."""
IDLE_TTL_MAX_S = 24 * 60 * 60
NAME = {"type": "string", "description": "Name of the agent.", "minLength": 1, "maxLength": 128}
PROMPT = {"type": "string", "description": "What the sub-agent is told.", "minLength": 1}
DEF_ID = {"type": "string", "description": "A version of the agent's definition; leave out for the present one."}
COMPACTION = {
    "type": "object",
    "description": "Overrides for the sub-agent's context compaction.",
    "properties": {
        "enabled": {"type": "boolean", "description": "Whether it compacts."},
        "target_percentage": {"type": "integer", "description": "Size after it.", "minimum": 10, "maximum": 50},
        "keep_last_n": {"type": "integer", "description": "Messages kept at the end.", "minimum": 0, "maximum": 100},
        "keep_first": {"type": "boolean", "description": "Keep the first message."},
        "autocompact_at_pct": {"type": "integer", "description": "When to begin.", "minimum": 50, "maximum": 95},
        "model": {"type": "string", "description": "Model that summarises.", "maxLength": 128},
    },
}
SPAWN_PROPERTIES: Mapping[str, Any] = {"name": NAME, "prompt": PROMPT, "def_id": DEF_ID, "compaction": COMPACTION}
CHILD_RUN_ID = {
    "type": "string",
    "description": "child_run_id of a resident sub-agent.",
    "minLength": 1,
    "maxLength": 128,
}
TIMEOUT = {
    "type": "integer",
    "description": "Milliseconds to wait. 0: send waits for the answer, poll looks once.",
    "minimum": 0,
    "maximum": WAIT_MAX_MS,
}
IDLE_TTL = {
    "type": "integer",
    "description": "open: seconds without a text after which the sub-agent is closed.",
    "minimum": 1,
    "maximum": IDLE_TTL_MAX_S,
}
SPAWN_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": SPAWN_PROPERTIES,
    "required": ["name", "prompt"],
    "additionalProperties": False,
}
SPAWNS_SCHEMA = {
    "type": "array",
    "description": "parallel_spawn: the sub-agents to start.",
    "minItems": 1,
    "maxItems": SPAWNS_MAX,
    "items": SPAWN_SCHEMA,
}


def _object_schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    op = {"type": "string", "description": "What to do; spawn without it.", "enum": OPS}
    return {
        "type": "object",
        "properties": {"op": op, **properties},
        "required": list(required),
        "additionalProperties": False,
    }


OP_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "spawn": _object_schema(SPAWN_PROPERTIES, "name", "prompt"),
    "parallel_spawn": _object_schema({"spawns": SPAWNS_SCHEMA}, "spawns"),
    "open": _object_schema({**SPAWN_PROPERTIES, "idle_ttl_seconds": IDLE_TTL}, "name", "prompt"),
    "send": _object_schema(
        {"child_run_id": CHILD_RUN_ID, "prompt": PROMPT, "timeout_ms": TIMEOUT}, "child_run_id", "prompt"
    ),
    "poll": _object_schema({"child_run_id": CHILD_RUN_ID, "timeout_ms": TIMEOUT}, "child_run_id"),
    "cancel": _object_schema({"child_run_id": CHILD_RUN_ID}, "child_run_id"),
    "close": _object_schema({"child_run_id": CHILD_RUN_ID}, "child_run_id"),
}
"""Arguments of each operation; any other is refused, so that a misplaced argument is reported."""


class AgentTool:
    """Implements the protocols Tool and Planner. `residents_max` and `idle_ttl_s` come from the operator."""

    name = "Agent"
    description = (
        "Starts sub-agents and talks to them. op spawn (default) runs one and returns its last words; parallel_spawn "
        "runs up to 32 of them and returns {results:[{index,agent,ok,output,error}]}; open starts a resident one that "
        "waits for further texts, then send, poll, cancel and close address it by its child_run_id."
    )
    side_effect_class = "state"
    usage_hint = "Delegate a part of the work; give the sub-agent everything it needs in the prompt."
    timeout_s: float = 30.0
    """Time limit for parsing the call; children take as long as they take."""
    input_schema: Mapping[str, Any] = _object_schema(
        {
            **SPAWN_PROPERTIES,
            "spawns": SPAWNS_SCHEMA,
            "child_run_id": CHILD_RUN_ID,
            "timeout_ms": TIMEOUT,
            "idle_ttl_seconds": IDLE_TTL,
        }
    )

    def __init__(self, *, residents_max: int = RESIDENTS_MAX, idle_ttl_s: int = IDLE_TTL_S) -> None:
        self._residents_max = residents_max
        self._idle_ttl_s = idle_ttl_s

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.PURE

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        plan = self.plan(arguments)
        if isinstance(plan, ToolResult):
            return plan
        return ToolResult(text="Agent was not called: sub-agents belong to a run.", is_error=True)

    def plan(self, arguments: Mapping[str, Any]) -> ChildrenPlan | ToolResult:
        try:
            plan = _parse_plan(arguments)
        except ToolCallRefused as reason:
            return error_result(reason)
        if plan.op != "open":
            return plan
        return replace(plan, idle_ttl_s=plan.idle_ttl_s or self._idle_ttl_s, residents_max=self._residents_max)


def _parse_plan(arguments: Mapping[str, Any]) -> ChildrenPlan:
    op = arguments.get("op") or "spawn"
    if op not in OPS:
        raise ToolCallRefused(f'Agent was not called: "op" is "{str(op)[:60]}", expected is one of {", ".join(OPS)}.')
    fields = check_arguments("Agent", arguments, OP_SCHEMAS[op])
    if op == "parallel_spawn":
        spawns = tuple(
            _parse_spawn(check_arguments(f"Agent (spawns[{place}])", item, SPAWN_SCHEMA))
            for place, item in enumerate(fields["spawns"])
        )
        return ChildrenPlan(op=op, spawns=spawns)
    if op in ("spawn", "open"):
        return ChildrenPlan(op=op, spawns=(_parse_spawn(fields),), idle_ttl_s=fields.get("idle_ttl_seconds", 0))
    return ChildrenPlan(
        op=op,
        child_run_id=fields["child_run_id"],
        prompt=fields.get("prompt", ""),
        timeout_ms=fields.get("timeout_ms", 0),
    )


def _parse_spawn(arguments: Mapping[str, Any]) -> Spawn:
    compaction = arguments.get("compaction")
    return Spawn(
        agent=arguments["name"],
        prompt=arguments["prompt"],
        def_id=arguments.get("def_id", ""),
        compaction=json.dumps(compaction, sort_keys=True) if compaction else "",
    )
