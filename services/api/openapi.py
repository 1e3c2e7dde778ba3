"""The OpenAPI 3.1 document from the table of routes, and a page of it that needs nothing from anywhere.

Request bodies are the pydantic models; answers are described here, as far as a client relies on them. Every route may
answer with the one error shape. FastAPI's own pages load scripts from a foreign host, so the page is ours: plain HTML,
no script.

Before: routes.py. After: document_endpoints.py serves both; `python -m services.api.main --print-openapi` prints one.
"""

import html
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

from loomlog.services.api.route import Access, QueryParameter, Route
from loomlog.services.api.routes import ROUTES

TITLE = "loomlog"
DESCRIPTION = (
    "Agent runs over an append-only log. Starting a run answers with its events as a stream; every write answers with "
    "X-Loomlog-Position, which reads accept to see at least that write. Everything refused has the shape "
    '{"code", "error"}.'
)
NO_CONTENT = 204
RESUME_DESCRIPTION = (
    "The id of the last frame that had one: the stream goes on after it. Drop the text that came without an id since "
    "then: it was a preview of a turn that was not in the log yet, and comes again. After a retry or provider_fallback "
    "frame the text begins again as well."
)
TEXT = {"type": "string"}
OPTIONAL_TEXT = {"type": ["string", "null"]}
NUMBER = {"type": "integer"}
RESPONSE_SCHEMAS: dict[str, Any] = {
    "Error": {
        "type": "object",
        "required": ["code", "error"],
        "properties": {"code": TEXT, "error": TEXT},
        "additionalProperties": True,
    },
    "Object": {"type": "object"},
    "Text": {"type": "string"},
    "EventStream": {"type": "string", "description": "Server-sent events: event, id (where asked for), data as JSON."},
    "Run": {
        "type": "object",
        "required": ["agent_id", "run_id", "session_id", "agent", "user_id", "status", "started_at", "live", "usage"],
        "properties": {
            "agent_id": TEXT,
            "run_id": TEXT,
            "session_id": TEXT,
            "agent": TEXT,
            "tenant_id": TEXT,
            "user_id": TEXT,
            "parent_agent_id": OPTIONAL_TEXT,
            "status": {"enum": ["running", "completed", "failed", "cancelled"]},
            "started_at": {"type": "string", "format": "date-time"},
            "completed_at": OPTIONAL_TEXT,
            "stop_reason": OPTIONAL_TEXT,
            "error": OPTIONAL_TEXT,
            "usage": {"type": "object"},
            "live": {"type": "boolean"},
            "interactive": {"type": "boolean"},
            "position": TEXT,
        },
    },
    "RunList": {
        "type": "object",
        "required": ["runs", "next"],
        "properties": {"runs": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}}, "next": OPTIONAL_TEXT},
    },
    "AgentList": {
        "type": "object",
        "required": ["agents"],
        "properties": {
            "agents": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}},
            "next": OPTIONAL_TEXT,
        },
    },
    "Transcript": {
        "type": "object",
        "required": ["session", "events"],
        "properties": {
            "session": {"type": "object"},
            "events": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["seq", "run_id", "ts_ns", "type", "event"],
                    "properties": {"seq": NUMBER, "run_id": TEXT, "ts_ns": NUMBER, "type": TEXT},
                },
            },
            "next": OPTIONAL_TEXT,
        },
    },
    "Delivered": {
        "type": "object",
        "required": ["run_id", "delivered"],
        "properties": {"run_id": TEXT, "delivered": {"type": "boolean"}},
    },
    "Compacted": {
        "type": "object",
        "required": ["run_id", "compacted", "applied"],
        "properties": {
            "run_id": TEXT,
            "compacted": {"type": "boolean"},
            "before_tokens": NUMBER,
            "after_tokens": NUMBER,
            "applied": {"enum": ["live", "marker", "noop"]},
        },
    },
    "Copied": {
        "type": "object",
        "required": ["new_session_id", "seed_run_id", "events_copied", "compacted"],
        "properties": {
            "new_session_id": TEXT,
            "seed_run_id": TEXT,
            "events_copied": NUMBER,
            "compacted": {"type": "boolean"},
        },
    },
    "HookMade": {
        "type": "object",
        "required": ["id", "signing_secret"],
        "properties": {"id": TEXT, "signing_secret": OPTIONAL_TEXT},
    },
    "HookList": {
        "type": "object",
        "required": ["hooks"],
        "properties": {
            "hooks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id", "owner", "name", "phase", "agents", "tools", "callback_url", "fail_mode"],
                    "properties": {
                        "id": TEXT,
                        "tenant_id": TEXT,
                        "owner": TEXT,
                        "name": TEXT,
                        "phase": {"enum": ["pre", "post"]},
                        "agents": {"type": "array", "items": TEXT},
                        "tools": {"type": "array", "items": TEXT},
                        "callback_url": TEXT,
                        "fail_mode": {"enum": ["open", "closed"]},
                        "timeout_ms": NUMBER,
                        "registered_at": {"type": "string", "format": "date-time"},
                    },
                },
            }
        },
    },
    "HookRemoved": {"type": "object", "required": ["deleted"], "properties": {"deleted": TEXT}},
    "Resolved": {
        "type": "object",
        "required": ["run_id", "call", "repeated"],
        "properties": {"run_id": TEXT, "call": TEXT, "repeated": {"type": "boolean"}},
    },
    "Batch": {
        "type": "object",
        "required": ["results", "spawned"],
        "properties": {"results": {"type": "array", "items": {"type": "object"}}, "spawned": NUMBER},
    },
    "TurnStopped": {
        "type": "object",
        "required": ["run_id", "stopped", "parked"],
        "properties": {"run_id": TEXT, "stopped": {"type": "boolean"}, "parked": {"type": "boolean"}},
    },
    "InterruptResolved": {
        "type": "object",
        "required": ["interrupt_id", "status", "resolved_at"],
        "properties": {"interrupt_id": TEXT, "status": TEXT, "resolved_at": TEXT},
    },
    "InterruptList": {
        "type": "object",
        "required": ["interrupts", "total", "next"],
        "properties": {
            "interrupts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["interrupt_id", "run_id", "kind", "status", "question", "options", "created_at"],
                    "properties": {
                        "interrupt_id": TEXT,
                        "run_id": TEXT,
                        "kind": TEXT,
                        "status": TEXT,
                        "question": TEXT,
                        "options": {"type": "array", "items": TEXT},
                        "created_at": TEXT,
                    },
                },
            },
            "total": NUMBER,
            "next": OPTIONAL_TEXT,
        },
    },
    "Cancelled": {
        "type": "object",
        "required": ["cancelled", "agent_id", "cascaded", "status", "reason"],
        "properties": {
            "cancelled": {"type": "boolean"},
            "agent_id": TEXT,
            "cascaded": {"type": "array", "items": TEXT},
            "status": TEXT,
            "reason": TEXT,
        },
    },
    "Event": {
        "type": "object",
        "required": ["position", "term", "seq", "run_id", "type", "at", "payload"],
        "properties": {
            "position": TEXT,
            "term": NUMBER,
            "seq": NUMBER,
            "run_id": TEXT,
            "type": TEXT,
            "at": TEXT,
            "stale": {"type": "boolean"},
            "payload": {"type": "object"},
        },
    },
    "EventList": {
        "type": "object",
        "required": ["events", "next"],
        "properties": {
            "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
            "next": OPTIONAL_TEXT,
        },
    },
    "Moment": {
        "type": "object",
        "required": ["run_id", "at", "last_seq", "status", "phase", "messages", "forkable", "state_sha256", "drift"],
        "properties": {
            "run_id": TEXT,
            "at": NUMBER,
            "last_seq": NUMBER,
            "status": TEXT,
            "phase": TEXT,
            "messages": {"type": "array", "items": {"type": "object"}},
            "forkable": {"type": "boolean"},
            "fork_needs_prompt": {"type": "boolean"},
            "state_sha256": TEXT,
            "drift": {"type": "array", "items": TEXT},
        },
    },
    "Proof": {
        "type": "object",
        "required": ["run_id", "seq", "status", "state_sha256", "compared", "drift", "events"],
        "properties": {
            "run_id": TEXT,
            "seq": NUMBER,
            "status": TEXT,
            "state_sha256": TEXT,
            "compared": {"type": "boolean"},
            "not_compared": OPTIONAL_TEXT,
            "drift": {"type": "array", "items": TEXT},
            "first_drift_seq": {"type": ["integer", "null"]},
            "events": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Comparison": {
        "type": "object",
        "required": ["a", "b", "same", "shared_steps", "first", "definition", "outcome", "steps"],
        "properties": {
            "a": {"type": "object"},
            "b": {"type": "object"},
            "same": {"type": "boolean"},
            "shared_steps": NUMBER,
            "first": {"type": ["object", "null"]},
            "definition": {"type": "array", "items": {"type": "object"}},
            "outcome": {"type": "array", "items": {"type": "object"}},
            "steps": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Imported": {
        "type": "object",
        "required": ["run_id", "imported", "runs"],
        "properties": {
            "run_id": TEXT,
            "imported": {"type": "boolean", "description": "false: it was here before."},
            "runs": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Snapshot": {
        "type": "object",
        "required": ["id", "created_at", "label", "schema_version", "byte_size"],
        "properties": {
            "id": TEXT,
            "created_at": {"type": "string", "format": "date-time"},
            "label": TEXT,
            "tenant": OPTIONAL_TEXT,
            "schema_version": NUMBER,
            "byte_size": NUMBER,
            "sha256": TEXT,
            "runs": NUMBER,
            "live_runs": NUMBER,
            "positions": {"type": "array", "items": TEXT},
            "warnings": {"type": "array", "items": TEXT},
            "json_content": {"$ref": "#/components/schemas/State"},
        },
    },
    "SnapshotList": {
        "type": "object",
        "required": ["entries"],
        "properties": {"entries": {"type": "array", "items": {"$ref": "#/components/schemas/Snapshot"}}},
    },
    "State": {
        "type": "object",
        "required": ["format", "schema_version", "created_at", "label", "sections", "counts", "sha256"],
        "properties": {
            "format": TEXT,
            "schema_version": NUMBER,
            "created_at": {"type": "string", "format": "date-time"},
            "label": TEXT,
            "tenant": TEXT,
            "sections": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["version", "entries"],
                    "properties": {"version": NUMBER, "entries": {"type": "array", "items": {"type": "object"}}},
                },
            },
            "counts": {"type": "object"},
            "sha256": TEXT,
        },
    },
    "Restored": {
        "type": "object",
        "required": ["dry_run", "runs_restored", "runs_skipped", "runs_failed", "warnings", "positions"],
        "properties": {
            "dry_run": {"type": "boolean"},
            "runs_restored": NUMBER,
            "runs_continued": NUMBER,
            "runs_skipped": {"type": "integer", "description": "Here already; they are left as they are."},
            "runs_failed": NUMBER,
            "runs_sealed": NUMBER,
            "events_restored": NUMBER,
            "pauses_restored": NUMBER,
            "limits_restored": NUMBER,
            "blobs_restored": NUMBER,
            "warnings": {"type": "array", "items": TEXT},
            "positions": {"type": "array", "items": TEXT},
        },
    },
    "Bundle": {"type": "string", "format": "binary", "description": "gzip; its first line says what is in it."},
}


def build_document(version: str, routes: Sequence[Route] = ROUTES) -> dict[str, Any]:
    """The OpenAPI document."""
    bodies = sorted({route.body for route in routes if route.body is not None}, key=lambda body: body.__name__)
    _, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {**RESPONSE_SCHEMAS, **definitions["$defs"]},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def encode_document(version: str) -> bytes:
    """The document as it is served."""
    return orjson.dumps(build_document(version), option=orjson.OPT_INDENT_2)


def render_page(version: str) -> bytes:
    """The document as a page."""
    rows = "".join(_section(route) for route in ROUTES)
    schemas = "".join(
        f"<h3 id='{html.escape(name)}'>{html.escape(name)}</h3><pre>{_pretty(schema)}</pre>"
        for name, schema in build_document(version)["components"]["schemas"].items()
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>loomlog API</title><style>"
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1f}"
        "code,pre{font:13px/1.45 ui-monospace,monospace}pre{background:#f3f3f6;padding:.8rem;overflow:auto}"
        "h2{font-size:1.05rem;margin:2rem 0 .2rem}td,th{text-align:left;padding:.1rem .8rem .1rem 0;vertical-align:top}"
        "@media(prefers-color-scheme:dark){body{background:#16161a;color:#e6e6ea}pre{background:#222228}a{color:#9db8ff}}"
        f"</style></head><body><h1>loomlog {html.escape(version)}</h1><p>{html.escape(DESCRIPTION)}</p>"
        f"<p>The same for machines: <a href='/v1/openapi.json'>/v1/openapi.json</a></p>{rows}"
        f"<h1>Shapes</h1>{schemas}</body></html>"
    ).encode()


def _operation(route: Route) -> dict[str, Any]:
    media = "text/event-stream" if route.is_stream else route.media_type
    schema = "EventStream" if route.is_stream else route.response_schema
    good: dict[str, Any] = {"description": "It is so."}
    if route.status != NO_CONTENT and route.socket_handler is None:
        good["content"] = {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": route.handler.__name__,
        "parameters": _parameters(route),
        "responses": {
            str(route.status): good,
            "default": {
                "description": "It is refused.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if route.alternative_status:
        operation["responses"][str(route.alternative_status)] = good
    if route.path == "/readyz":
        operation["responses"]["503"] = {
            "description": "Something is missing.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Object"}}},
        }
    if route.access is not Access.PUBLIC:
        operation["security"] = [{"bearer": []}]
        operation["description"] = f"Access: {_access_text(route)}."
    if route.body is not None:
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{route.body.__name__}"}}},
        }
    return operation


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _path_names(route.path)
    ]
    found += [_query_parameter(query) for query in route.query]
    if route.accepts_position:
        found.append(
            _query_parameter(
                QueryParameter(name="position", description="A position token of an earlier write; also as a header.")
            )
        )
        found.append({"name": "X-Loomlog-Position", "in": "header", "required": False, "schema": TEXT})
    if route.accepts_idempotency_key:
        says = "The same key is the same run, also after a crash."
        found.append(
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": TEXT, "description": says}
        )
    if route.path.endswith("/stream"):
        found.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "schema": TEXT,
                "description": RESUME_DESCRIPTION,
            }
        )
    return found


def _query_parameter(query: QueryParameter) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": "query",
        "required": False,
        "schema": query.schema,
        "description": query.description,
    }


def _path_names(path: str) -> list[str]:
    return [part.strip("{}") for part in path.split("/") if part.startswith("{")]


def _access_text(route: Route) -> str:
    return route.access.value if isinstance(route.access, Access) else route.access


def _section(route: Route) -> str:
    parameters = "".join(
        f"<tr><td><code>{html.escape(p['name'])}</code></td><td>{p['in']}</td>"
        f"<td>{html.escape(p.get('description', ''))}</td></tr>"
        for p in _parameters(route)
    )
    body = ""
    if route.body is not None:
        name = html.escape(route.body.__name__)
        body = f"<p>Body: <a href='#{name}'>{name}</a></p>"
    return (
        f"<h2><code>{route.method} {html.escape(route.path)}</code></h2><p>{html.escape(route.summary)} "
        f"<em>{html.escape(_access_text(route))}</em></p>{body}"
        + (f"<table>{parameters}</table>" if parameters else "")
    )


def _pretty(schema: Any) -> str:
    return html.escape(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())
