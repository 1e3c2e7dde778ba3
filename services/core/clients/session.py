"""The protocol of one client connection, without a socket (reference surfaces 1.10).

    client -> hello {client?, tools}       server -> hello_ok {connection_id, accepted, refused}
    server -> invoke {call_id, ...}        client -> result {call_id, ok, output? | error?}
    either -> ping                         the other -> pong
    server -> error {code, message}        for an invalid frame; the connection stays open, unless it continues

A ClientSession is the state of a connection; each function takes one and returns the next with the actions to execute,
in order. The shell (services/application/clients/connections.py) executes them and makes no decisions.

The effect of a client's tool can be neither undone nor looked up, so a call is sent at most once, even if its request
is received twice, and one that was sent and not answered has an unknown outcome. One that was not sent has certainly
not begun.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import field

from loomlog.schemas.client_names import TOOL_NAME_PREFIX
from loomlog.schemas.generated.stream_records import ClientTool, RemoteToolRequest
from loomlog.schemas.records import Value, replace
from loomlog.services.core.clients import limits

SUBPROTOCOL = "loomcycle.client-tools.v1"
UNKNOWN, NOT_BEGUN = "unknown", "not_begun"
"""Values of RemoteToolResult.outcome."""
POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013
"""Close codes of RFC 6455."""
NAME = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
DEFAULT_SCHEMA = '{"type":"object"}'


class SendFrame(Value, frozen=True, kw_only=True):
    """Send a frame to the client."""

    frame: Mapping[str, Any]


class RegisterTools(Value, frozen=True, kw_only=True):
    """Register these as the client's tools, replacing earlier ones. To be executed before the actions after it."""

    client: str
    tools: tuple[ClientTool, ...]


class CompleteCall(Value, frozen=True, kw_only=True):
    """Complete a call with its result; `outcome` is empty, UNKNOWN or NOT_BEGUN."""

    request: RemoteToolRequest
    text: str
    is_error: bool
    outcome: str = ""


class CloseConnection(Value, frozen=True, kw_only=True):
    """Close the connection; nothing is sent after it."""

    code: int
    reason: str


SessionAction = SendFrame | RegisterTools | CompleteCall | CloseConnection


class ClientSession(Value, frozen=True, kw_only=True):
    """State of one connection. `hello_by_ms` and all other times are UTC milliseconds."""

    connection_id: str
    frame_bytes_max: int
    hello_by_ms: int
    has_received_hello: bool = False
    tool_names: frozenset[str] = frozenset()
    open_calls: Mapping[str, RemoteToolRequest] = field(default_factory=dict)
    """Calls that were sent to the client and are not answered, by id."""
    seen_until_ms: Mapping[str, int] = field(default_factory=dict)
    """Time until which each call that was sent is remembered, open or not: somewhat later than its deadline."""
    protocol_errors: int = 0


SessionTransition = tuple[ClientSession, tuple[SessionAction, ...]]


def receive(session: ClientSession, text: str, now_ms: int) -> SessionTransition:
    """Handle a text frame of the client."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return _report_protocol_error(session, "bad_frame", "the frame is not JSON")
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        return _report_protocol_error(session, "bad_frame", "expected a JSON object with a type")
    match frame["type"]:
        case "hello":
            return _receive_hello(session, frame)
        case "ping":
            return session, (SendFrame(frame={"type": "pong"}),)
        case "pong":
            return session, ()
        case "result" if session.has_received_hello:
            return _receive_result(session, frame)
        case _ if not session.has_received_hello:
            return _close_with_error(session, "hello_expected", "the first frame has to be a hello")
        case other:
            return _report_protocol_error(
                session, "unknown_type", f"there is no frame {other[: limits.ERROR_CHARACTERS_MAX]!r}"
            )


def receive_bytes(session: ClientSession) -> SessionTransition:
    """Handle a binary frame of the client."""
    return _report_protocol_error(session, "bad_frame", "expected text, got a binary frame")


def send_request(session: ClientSession, request: RemoteToolRequest, now_ms: int) -> SessionTransition:
    """Send a call to this client. A repeated request changes nothing: the result is reported once."""
    session = _forget_expired(session, now_ms)
    if request.request_id in session.seen_until_ms:
        return session, ()
    name = request.tool.removeprefix(TOOL_NAME_PREFIX)
    if request.deadline_ms <= now_ms:
        return session, (_unstarted_call(request, "its deadline passed before it could be sent to the client"),)
    if name not in session.tool_names:
        return session, (_unstarted_call(request, "the client does not offer it any more"),)
    if len(session.open_calls) >= limits.CALLS_MAX or len(session.seen_until_ms) >= limits.SEEN_CALLS_MAX:
        return session, (_unstarted_call(request, f"the client has {len(session.open_calls)} calls open already"),)
    try:
        arguments = json.loads(request.input)
    except (ValueError, RecursionError):
        return session, (_unstarted_call(request, "its arguments are not JSON"),)
    frame = {
        "type": "invoke",
        "call_id": request.request_id,
        "run_id": request.run_id,
        "agent_id": request.agent_id,
        "tool": name,
        "input": arguments,
        "agent": request.agent,
        "deadline_ms": request.deadline_ms,
    }
    size = len(encode_frame(frame).encode())
    if size > session.frame_bytes_max:
        text = f"the call has {size} bytes; a client is sent at most {session.frame_bytes_max}"
        return session, (_unstarted_call(request, text),)
    after = replace(
        session,
        open_calls={**session.open_calls, request.request_id: request},
        seen_until_ms={**session.seen_until_ms, request.request_id: request.deadline_ms + limits.SEEN_CALL_TTL_MS},
    )
    return after, (SendFrame(frame=frame),)


def on_timeout(session: ClientSession, now_ms: int) -> SessionTransition:
    """Handle the deadlines that have passed."""
    if not session.has_received_hello:
        if now_ms < session.hello_by_ms:
            return session, ()
        return _close_with_error(session, "hello_expected", "no hello came in time")
    late = [request for request in session.open_calls.values() if request.deadline_ms <= now_ms]
    answers = tuple([_unknown_outcome(request, "the client did not answer in time") for request in late])
    kept = {call_id: request for call_id, request in session.open_calls.items() if request.deadline_ms > now_ms}
    return _forget_expired(replace(session, open_calls=kept), now_ms), answers


def disconnect(session: ClientSession) -> SessionTransition:
    """Handle the end of the connection, whichever side closed it."""
    text = "the client disconnected during the call"
    answers = tuple([_unknown_outcome(request, text) for request in session.open_calls.values()])
    return replace(session, open_calls={}, tool_names=frozenset()), answers


def next_timeout_ms(session: ClientSession) -> int | None:
    """Return the time at which `on_timeout` is due; None when nothing waits."""
    if not session.has_received_hello:
        return session.hello_by_ms
    return min((request.deadline_ms for request in session.open_calls.values()), default=None)


def encode_frame(frame: Mapping[str, Any]) -> str:
    """Encode a frame as JSON text."""
    return json.dumps(frame, separators=(",", ":"))


def _receive_hello(session: ClientSession, frame: Mapping[str, Any]) -> SessionTransition:
    client, offered = frame.get("client", ""), frame.get("tools")
    if not isinstance(offered, list) or len(offered) > limits.TOOLS_MAX:
        return _reject_hello(session, f"tools: expected a list of at most {limits.TOOLS_MAX}")
    tools: dict[str, ClientTool] = {}
    refused: list[dict[str, str]] = []
    for entry in offered:
        parsed = _parse_tool(entry)
        if isinstance(parsed, str) or parsed.name in tools:
            name = entry.get("name") if isinstance(entry, dict) else None
            reason = parsed if isinstance(parsed, str) else "duplicate name"
            refused.append({"name": str(name)[: limits.ERROR_CHARACTERS_MAX], "reason": reason})
        else:
            tools[parsed.name] = parsed
    size = sum(len(t.name) + len(t.description.encode()) + len(t.input_schema) for t in tools.values())
    if size > limits.OFFER_BYTES_MAX:
        return _reject_hello(session, f"the tools have {size} bytes together; at most {limits.OFFER_BYTES_MAX}")
    after = replace(session, has_received_hello=True, tool_names=frozenset(tools))
    reply = {
        "type": "hello_ok",
        "connection_id": session.connection_id,
        "accepted": list(tools),
        "refused": refused,
    }
    called = replace_surrogates(client)[: limits.CLIENT_CHARACTERS_MAX] if isinstance(client, str) else ""
    return after, (RegisterTools(client=called, tools=tuple(tools.values())), SendFrame(frame=reply))


def _parse_tool(entry: Any) -> ClientTool | str:
    """Return a tool of a hello, or the reason why it is invalid."""
    if not isinstance(entry, dict):
        return "expected an object"
    name, description = entry.get("name"), entry.get("description", "")
    schema = entry.get("input_schema")
    if not isinstance(name, str) or len(name) > limits.NAME_CHARACTERS_MAX or not NAME.fullmatch(name):
        return f"name: expected 1 to {limits.NAME_CHARACTERS_MAX} of A-Z, a-z, 0-9, _ and -"
    if description is None:
        description = ""
    if not isinstance(description, str) or len(description) > limits.DESCRIPTION_CHARACTERS_MAX:
        return f"description: expected text of at most {limits.DESCRIPTION_CHARACTERS_MAX} characters"
    if schema is not None and not (isinstance(schema, dict) and schema.get("type", "object") == "object"):
        return "input_schema: expected a JSON schema with type: object"
    text = json.dumps({"type": "object", **schema}, separators=(",", ":")) if schema else DEFAULT_SCHEMA
    if len(text) > limits.SCHEMA_BYTES_MAX:
        return f"input_schema: {len(text)} bytes, at most {limits.SCHEMA_BYTES_MAX}"
    return ClientTool(name=name, description=replace_surrogates(description), input_schema=text)


def _receive_result(session: ClientSession, frame: Mapping[str, Any]) -> SessionTransition:
    call_id, ok = frame.get("call_id"), frame.get("ok")
    if not isinstance(call_id, str) or not isinstance(ok, bool):
        return _report_protocol_error(session, "bad_frame", "result: expected call_id, text, and ok, true or false")
    request = session.open_calls.get(call_id)
    if request is None:
        # Not a protocol error: the call's deadline may just have passed.
        return session, (
            _error_frame("unknown_call", f"no call {call_id[: limits.ERROR_CHARACTERS_MAX]} is open here"),
        )
    text = (
        _result_text(frame.get("output")) if ok else _result_text(frame.get("error")) or "the client reports a failure"
    )
    after = replace(session, open_calls={key: value for key, value in session.open_calls.items() if key != call_id})
    return after, (CompleteCall(request=request, text=_truncate(text), is_error=not ok),)


def _result_text(value: Any) -> str:
    if value is None:
        return ""
    return replace_surrogates(
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )


def replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which JSON can contain and UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def _truncate(text: str) -> str:
    data = text.encode()
    if len(data) <= limits.TEXT_BYTES_MAX:
        return text
    return data[: limits.TEXT_BYTES_MAX].decode(errors="ignore") + f"\n[cut after {limits.TEXT_BYTES_MAX} bytes]"


def _forget_expired(session: ClientSession, now_ms: int) -> ClientSession:
    if all(until_ms > now_ms for until_ms in session.seen_until_ms.values()):
        return session
    return replace(
        session, seen_until_ms={key: value for key, value in session.seen_until_ms.items() if value > now_ms}
    )


def _reject_hello(session: ClientSession, message: str) -> SessionTransition:
    """Reject a hello. Tools offered earlier stay registered; without them the connection is closed."""
    if session.has_received_hello:
        return _report_protocol_error(session, "bad_hello", message)
    return _close_with_error(session, "bad_hello", message)


def _report_protocol_error(session: ClientSession, code: str, message: str) -> SessionTransition:
    after = replace(session, protocol_errors=session.protocol_errors + 1)
    frame = _error_frame(code, message)
    if after.protocol_errors < limits.PROTOCOL_ERRORS_MAX:
        return after, (frame,)
    return after, (frame, CloseConnection(code=POLICY_VIOLATION, reason="too many invalid frames"))


def _close_with_error(session: ClientSession, code: str, message: str) -> SessionTransition:
    return session, (_error_frame(code, message), CloseConnection(code=POLICY_VIOLATION, reason=message))


def _error_frame(code: str, message: str) -> SendFrame:
    return SendFrame(frame={"type": "error", "code": code, "message": message})


def _unknown_outcome(request: RemoteToolRequest, reason: str) -> CompleteCall:
    return CompleteCall(request=request, text=reason, is_error=True, outcome=UNKNOWN)


def unstarted_call(request: RemoteToolRequest, reason: str) -> CompleteCall:
    """Complete a call that was sent to no client."""
    return CompleteCall(request=request, text=reason, is_error=True, outcome=NOT_BEGUN)


_unstarted_call = unstarted_call


def reject_connection(message: str) -> Sequence[SessionAction]:
    """Return the actions that reject a connection over the limit."""
    return (_error_frame("too_many_connections", message), CloseConnection(code=TRY_AGAIN_LATER, reason=message))
