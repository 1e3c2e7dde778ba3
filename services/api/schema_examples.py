"""Examples of answers, made from their JSON schemas: one for every schema of the OpenAPI document that has none.

An answer is described by the class that its endpoint returns, so its example follows from the same class and cannot
differ from it. A text gets a plausible value by the name of its field, or by the end of the name. A test validates
each example against its schema.

Before: openapi.py. After: the document.
"""

from collections.abc import Mapping
from typing import Any

REFERENCE = "#/components/schemas/"
NESTED_MAX = 12
"""Nested values of an example; deeper lists and objects are empty, because schemas may contain themselves."""
TIME = "2026-01-31T12:00:00Z"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
RUN_ID = "r_01kgbzq3m8x5v2n7c4d6e9f0ha"
TEXTS: Mapping[str, str] = {
    "action": "pause",
    "agent": "assistant",
    "agents": "assistant",
    "aggregate": "budget:/installation",
    "answer": "yes",
    "at": TIME,
    "by": "ada",
    "call": "3.0",
    "channel": "orders",
    "channels": "orders",
    "code": "not_found",
    "columns": "name",
    "currency": "USD",
    "cursor": "cur_18fae27693b40001_msg_18fae27693b4000116b6abc0",
    "description": "What is kept of a user, over all agents.",
    "dialect": "postgres",
    "error": "the provider did not answer",
    "final_text": "Done: the report is in out/report.md.",
    "fired": "orders",
    "format": "json",
    "from": "running",
    "goal": "Summarise the incident of this morning.",
    "group_by": "agent",
    "instant": TIME,
    "key": "preferences",
    "label": "before the upgrade",
    "last_updated": TIME,
    "local": "2026-01-31T13:00:00+01:00",
    "login_origins": "http://127.0.0.1:8787",
    "media_type": "text/plain",
    "mode": "all",
    "model": "large",
    "models": "large",
    "name": "assistant",
    "next": "assistant",
    "next_cursor": "cur_18fae27693b40001_msg_18fae27693b4000116b6abc0",
    "op": "set",
    "overlap": "skip",
    "owner": "runtime-1",
    "period": "2026-01",
    "position": "loom.run.events/3:1042",
    "positions": "loom.run.events/3:1042",
    "provider": "anthropic",
    "publisher": "assistant",
    "question": "May the release be published?",
    "reader": "audit",
    "reason": "maintenance",
    "resolved_by": "ada",
    "scheduled": "next-tick",
    "scope": "user",
    "scope_id": "ada",
    "scopes": "runs:read",
    "semantic": "queue",
    "service": "postgres",
    "source": "runtime",
    "state": "running",
    "status": "completed",
    "stop_reason": "end_turn",
    "subject": "ada",
    "subjects": "ada",
    "tenant": "default",
    "text": "Summarise the incident of this morning.",
    "times": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "to": "completed",
    "tool": "Read",
    "tools": "Read",
    "topic": "loom.run.events",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "url": "https://example.com/mcp",
    "usage_warning": "the scope has 851974 of 1048576 bytes: delete what is not needed",
    "value": "green",
    "value_base64": "aGVsbG8=",
    "value_hex": "68656c6c6f",
    "verdict": "accepted",
    "version": "1.4.0",
    "webhook": "issues",
    "webhook_name": "issues",
    "where": "agent=assistant,status=running",
}
"""Texts by the name of their field."""
ENDINGS: Mapping[str, str] = {
    "run_id": RUN_ID,
    "agent_id": "a_01kgbzq3m8x5v2n7c4d6e9f0ha",
    "session_id": "s_01kgbzq3m8x5v2n7c4d6e9f0ha",
    "tenant_id": "default",
    "user_id": "ada",
    "def_id": "assistant@2",
    "_id": "01kgbzq3m8x5v2n7c4d6e9f0ha",
    "_url": "https://hooks.example.com/approve",
    "_at": TIME,
    "_until": TIME,
    "_by": "ada",
    "_status": "completed",
    "sha256": DIGEST,
    "digest": DIGEST,
    "hash": DIGEST,
    "reason": "maintenance",
    "error": "the provider did not answer",
}
"""Texts by the end of the name of their field; the first that fits."""


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Any], field: str = "", depth: int = 0) -> Any:
    """Return a value that the schema accepts. `schemas` are those that it refers to, by name."""
    if (reference := schema.get("$ref")) is not None:
        return example_of(schemas[reference.removeprefix(REFERENCE)], schemas, field, depth)
    for keyword in ("examples", "enum"):
        if keyword in schema:
            return schema[keyword][0]
    if "const" in schema:
        return schema["const"]
    for options in ("anyOf", "oneOf"):
        if options in schema:
            preferred = [one for one in schema[options] if one.get("type") != "null"]
            return example_of(preferred[0], schemas, field, depth)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            return _object(schema, schemas, field, depth + 1)
        case "array":
            if depth >= NESTED_MAX or schema.get("maxItems") == 0:
                return []
            return [example_of(schema.get("items", {"type": "string"}), schemas, field, depth + 1)]
        case "string":
            return _text(field)
        case "boolean":
            return False
        case "null":
            return None
    return max(1, schema.get("minimum", 1))


def _object(schema: Mapping[str, Any], schemas: Mapping[str, Any], field: str, depth: int) -> dict[str, Any]:
    required = schema.get("required", ())
    value = {
        name: example_of(one, schemas, name, depth)
        for name, one in schema.get("properties", {}).items()
        if name in required or depth < NESTED_MAX
    }
    further = schema.get("additionalProperties")
    if isinstance(further, Mapping) and not value and depth < NESTED_MAX:
        value["name"] = example_of(further, schemas, field, depth)
    return value


def _text(field: str) -> str:
    if field in TEXTS:
        return TEXTS[field]
    return next((text for ending, text in ENDINGS.items() if field.endswith(ending)), field.replace("_", " ") or "text")
