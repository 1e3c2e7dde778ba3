"""Messages of MCP as a client writes and reads them: JSON-RPC 2.0 in both eras of the protocol. Pure.

    handshake    2024-11-05 to 2025-11-25: initialize first, then requests in its session
    stateless    2026-07-28: every request says revision, client and capabilities in `_meta`

Numbers and words are those of the official package mcp-types 2.3.0.

Before: peer.py. After: the transports.
"""

from collections.abc import Mapping
from typing import Any

import orjson
from msgspec import field

from loomlog.connectors.errors import Permanent
from loomlog.schemas.records import Value

HANDSHAKE_REVISIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Revisions with a handshake, the newest first: the one that is offered."""
STATELESS_REVISION = "2026-07-28"
NO_SUCH_METHOD = -32601
UNSUPPORTED_REVISION = -32022
VISIT_REQUIRED = -32042
"""The user has to visit an address first (2025-11-25): `data` of the error has it, and nothing was done."""
FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of one message: what our own server takes too."""
ERROR_CHARACTERS_MAX = 2_000
"""Characters of a server's error message that are kept."""
CLIENT = {"name": "loomlog", "version": "1"}
CAPABILITIES: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
REVISION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
STATELESS_META: Mapping[str, Any] = {
    REVISION_KEY: STATELESS_REVISION,
    CLIENT_KEY: CLIENT,
    CAPABILITIES_KEY: CAPABILITIES,
}

Params = Mapping[str, Any]


class ServerRefused(Permanent):
    """A server answered a request with an error. `code` and `data` are those of JSON-RPC."""

    def __init__(self, message: str, code: int, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, kind="refused")
        self.code = code
        self.data: Mapping[str, Any] = data or {}


class Answer(Value, frozen=True, kw_only=True):
    """Answer to one of our requests: its result, or an error. An id that is not ours answers nothing."""

    id: int | str | None
    result: dict[str, Any] | None = None
    code: int = 0
    message: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Details of an error."""

    def require_result(self, method: str) -> dict[str, Any]:
        """Return the result. Raises ServerRefused, Permanent(invalid)."""
        if self.code or self.message:
            text = f"the server refused {method}: {self.message or 'no reason'} ({self.code})"
            raise ServerRefused(text, self.code, self.data)
        if self.result is None:
            raise Permanent(f"the server answered {method} without a result", kind="invalid")
        return self.result


class Incoming(Value, frozen=True, kw_only=True):
    """A request of the server to us, or a notification, which has no id."""

    id: int | str | None
    method: str
    params: dict[str, Any]


def encode_request(request_id: int, method: str, params: Params) -> bytes:
    """Return a request. Raises Permanent(invalid) for values that JSON does not have."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_notification(method: str, params: Params) -> bytes:
    """Return a notification."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})


def encode_answer(request_id: int | str, result: Params) -> bytes:
    """Return the answer to a request of the server."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_unknown_method(request_id: int | str, method: str) -> bytes:
    """Return the answer to a request of the server that this client does not carry out."""
    error = {"code": NO_SUCH_METHOD, "message": f"this client does not support {method[:80]}"}
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def parse_frame(data: bytes) -> Answer | Incoming:
    """Return a message of a server. Raises Permanent(invalid)."""
    if len(data) > FRAME_BYTES_MAX:
        raise Permanent(f"the server sent a message of more than {FRAME_BYTES_MAX} bytes", kind="invalid")
    try:
        frame = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Permanent(f"the server sent a message that is not JSON: {error}", kind="invalid") from error
    if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
        raise Permanent('the server sent a message without "jsonrpc": "2.0"', kind="invalid")
    request_id = frame.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, int | str | None):
        raise Permanent("the server sent a message whose id is neither text nor a whole number", kind="invalid")
    if isinstance(frame.get("method"), str):
        params = frame.get("params")
        return Incoming(id=request_id, method=frame["method"], params=params if isinstance(params, dict) else {})
    return _parse_answer(request_id, frame)


def _parse_answer(request_id: int | str | None, frame: Mapping[str, Any]) -> Answer:
    error, result = frame.get("error"), frame.get("result")
    if isinstance(error, dict):
        code, message, data = error.get("code"), error.get("message"), error.get("data")
        return Answer(
            id=request_id,
            code=code if isinstance(code, int) else 0,
            message=str(message or "no reason")[:ERROR_CHARACTERS_MAX],
            data=data if isinstance(data, dict) else {},
        )
    if not isinstance(result, dict):
        raise Permanent("the server sent an answer with neither a result nor an error", kind="invalid")
    return Answer(id=request_id, result=result)


def _encode(frame: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(frame)
    except orjson.JSONEncodeError as error:
        raise Permanent(f"a message that JSON cannot hold: {error}", kind="invalid") from error
