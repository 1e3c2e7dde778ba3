"""Messages of MCP: JSON-RPC 2.0 in both eras of the protocol. Pure.

    handshake    2024-11-05 to 2025-11-25: initialize, a session, then requests that name it
    stateless    2026-07-28: every request carries revision and capabilities in `_meta`, and headers that say the same

Numbers and words are those of the official packages (mcp-types 2.3.0, mcp 2.3.0).

Before: endpoint.py. After: server.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from loomlog.services.core.json_text import JsonInvalid, parse_json

HANDSHAKE_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions with sessions, the oldest first."""
STATELESS_REVISIONS = ("2026-07-28",)
PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMETERS, INTERNAL_ERROR = (
    -32700,
    -32600,
    -32601,
    -32602,
    -32603,
)
NOT_PERMITTED = -32001
"""No such session, or a tool that the caller may not call (parity: reference surfaces 3.1)."""
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_REVISION = -32020, -32021, -32022
HTTP_STATUS: Mapping[int, int] = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMETERS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_REVISION: 400,
    NO_SUCH_METHOD: 404,
}
"""Statuses of errors of the stateless era; the other era answers 200."""
REVISION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
TASKS, EVENTS = "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/events"
"""Extensions of the stateless era."""
NAMED_BY: Mapping[str, str] = {
    "tools/call": "name",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Parameter that the header Mcp-Name repeats, by method."""

RequestId = str | int


class RpcError(Exception):
    """An error answer. `request_id` None: the request has none that can be read. `status` 0: as the code says."""

    def __init__(
        self, code: int, message: str, *, data: Any = None, request_id: RequestId | None = None, status: int = 0
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.request_id, self.status = code, message, data, request_id, status


class Message(NamedTuple):
    """A request; a notification, which has no id; or the client's answer to a request of ours, without a method."""

    id: RequestId | None
    method: str
    params: Mapping[str, Any]
    result: Mapping[str, Any] | None = None
    """The client's answer; None when it could not give one."""

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the protocol itself says in the parameters."""
        meta = self.params.get("_meta")
        return meta if isinstance(meta, Mapping) else {}

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client of a stateless request can do."""
        capabilities = self.meta.get(CAPABILITIES_KEY)
        return capabilities if isinstance(capabilities, Mapping) else {}

    def has_extension(self, name: str) -> bool:
        """Return whether the client of a stateless request knows an extension."""
        extensions = self.capabilities.get("extensions")
        return isinstance(extensions, Mapping) and name in extensions

    def require_extension(self, name: str) -> None:
        """Raise RpcError(MISSING_CAPABILITY) unless the client knows the extension."""
        if not self.has_extension(name):
            data: dict[str, Any] = {"requiredCapabilities": {"extensions": {name: {}}}}
            raise RpcError(MISSING_CAPABILITY, f"the client has not declared {name}", data=data, request_id=self.id)


def parse_message(raw: bytes) -> Message:
    """Return a message. Raises RpcError: PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMETERS."""
    try:
        body = parse_json(raw)
        orjson.dumps(body)  # what is read deeper than it can be written would fail later on
    except JsonInvalid as error:
        raise RpcError(PARSE_ERROR, f"the body {error}") from error
    except TypeError as error:
        raise RpcError(PARSE_ERROR, "the body is nested too deeply") from error
    if isinstance(body, list):
        raise RpcError(INVALID_REQUEST, "a batch: send one message at a time")
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'expected an object with "jsonrpc": "2.0"')
    request_id, method, params = body.get("id"), body.get("method"), body.get("params", {})
    if "id" in body and (isinstance(request_id, bool) or not isinstance(request_id, str | int)):
        raise RpcError(INVALID_REQUEST, "id: expected text or a whole number")
    if method is None and request_id is not None and ("result" in body or "error" in body):
        answer = body.get("result")
        return Message(request_id, "", {}, answer if isinstance(answer, dict) else None)
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "method: expected text", request_id=request_id)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMETERS, "params: expected an object", request_id=request_id)
    return Message(request_id if "id" in body else None, method, params)


def check_stateless(message: Message, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the `_meta` of a request of the stateless era, which headers must repeat. Raises RpcError."""
    meta = message.params.get("_meta")
    if not isinstance(meta, Mapping) or not {REVISION_KEY, CAPABILITIES_KEY} <= meta.keys():
        text = f"params._meta: expected an object with {REVISION_KEY} and {CAPABILITIES_KEY}"
        raise RpcError(INVALID_PARAMETERS, text, request_id=message.id)
    expected = {"mcp-protocol-version": meta[REVISION_KEY], "mcp-method": message.method}
    if (named := NAMED_BY.get(message.method)) is not None and message.params.get(named) is not None:
        expected["mcp-name"] = message.params[named]
    for name, value in expected.items():
        if headers.get(name) != value:
            text = f"the header {name} says {str(headers.get(name))[:60]!r}, and the request {str(value)[:60]!r}"
            raise RpcError(HEADER_MISMATCH, text, request_id=message.id)
    require_revision(meta[REVISION_KEY], request_id=message.id)
    return meta


def require_revision(revision: Any, *, request_id: RequestId | None) -> None:
    """Raise RpcError(UNSUPPORTED_REVISION) for a stateless revision that is not served."""
    if revision not in STATELESS_REVISIONS:
        data = {"supported": [*STATELESS_REVISIONS], "requested": str(revision)[:60]}
        raise RpcError(UNSUPPORTED_REVISION, "this revision is not served", data=data, request_id=request_id)


def agree_revision(offered: Any) -> str:
    """Return the revision of a session: the client's, or the newest one where it offers another."""
    return offered if offered in HANDSHAKE_REVISIONS else HANDSHAKE_REVISIONS[-1]


def result_message(request_id: RequestId | None, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": dict(result)}


def error_message(error: RpcError) -> dict[str, Any]:
    """Return the answer that says what is wrong."""
    shown = {"code": error.code, "message": error.message}
    return {
        "jsonrpc": "2.0",
        "id": error.request_id,
        "error": shown if error.data is None else {**shown, "data": error.data},
    }


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that has no answer."""
    return {"jsonrpc": "2.0", "method": method, "params": dict(params)}
