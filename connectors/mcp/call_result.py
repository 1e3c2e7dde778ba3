"""What a tool call returned, as text for a model. Pure.

Text is kept. What a model cannot be shown as text is named with its type, size and hash, so that it knows what there
is and the log can tell two results apart: images, audio and binary resources. Structured content is added as JSON,
unless a text part says the same.

Before: session.py. After: services/families/mcp/tools.py.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from loomlog.connectors.protocols import ToolResult

PARTS_MAX = 200
"""Parts of a result that are read."""
INPUT_REQUIRED = "input_required"


def to_tool_result(result: Mapping[str, Any]) -> ToolResult:
    """Return the result of tools/call."""
    if result.get("resultType") == INPUT_REQUIRED:
        return ToolResult(text=_describe_questions(result), is_error=True)
    parts = list(_parts(result.get("content")))
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and not any(_says_the_same(part, structured) for part in parts):
        parts.append(orjson.dumps(structured).decode())
    return ToolResult(text="\n".join(parts), is_error=result.get("isError") is True)


def describe_question(params: Mapping[str, Any]) -> str:
    """Return what a server asks the user for (elicitation)."""
    message = str(params.get("message") or "it asks for input")[:2_000]
    if params.get("mode") == "url":
        return f"{message} (at {str(params.get('url'))[:500]})"
    schema = params.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return f"{message} ({', '.join(map(str, fields))})" if isinstance(fields, dict) and fields else message


def _describe_questions(result: Mapping[str, Any]) -> str:
    requests = result.get("inputRequests")
    asked = [
        describe_question(request.get("params") or {})
        for request in (requests.values() if isinstance(requests, dict) else ())
        if isinstance(request, dict)
    ]
    return "the server needs input before it goes on, and nothing was done: " + "; ".join(asked[:10])


def _parts(content: object) -> Iterator[str]:
    for part in content[:PARTS_MAX] if isinstance(content, list) else ():
        if isinstance(part, dict):
            yield _describe_part(part)


def _describe_part(part: Mapping[str, Any]) -> str:
    match part.get("type"):
        case "text":
            return str(part.get("text", ""))
        case "image" | "audio" as kind:
            return _describe_data(str(kind), part.get("mimeType"), part.get("data"))
        case "resource_link":
            named = part.get("title") or part.get("name") or ""
            return f"[link {str(part.get('uri'))[:2_000]} {str(named)[:200]}]"
        case "resource":
            return _describe_resource(part.get("resource"))
        case kind:
            return f"[a part of the type {str(kind)[:40]!r}, which cannot be shown]"


def _describe_resource(resource: object) -> str:
    if not isinstance(resource, dict):
        return "[an empty resource]"
    uri = str(resource.get("uri"))[:2_000]
    if isinstance(resource.get("text"), str):
        return f"[resource {uri}]\n{resource['text']}"
    return _describe_data(f"resource {uri}", resource.get("mimeType"), resource.get("blob"))


def _describe_data(kind: str, media_type: object, data: object) -> str:
    try:
        raw = base64.b64decode(str(data or ""), validate=True)
    except binascii.Error:
        return f"[{kind} {str(media_type)[:80]}, which is not valid base64]"
    digest = hashlib.sha256(raw).hexdigest()
    return f"[{kind} {str(media_type)[:80]}, {len(raw)} bytes, sha256 {digest}]"


def _says_the_same(part: str, structured: Mapping[str, Any]) -> bool:
    try:
        return bool(orjson.loads(part) == structured)
    except orjson.JSONDecodeError:
        return False
