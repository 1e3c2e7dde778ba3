"""Methods of MCP: what a message asks for, whichever way it came.

    initialize, ping, notifications/*     the handshake era
    server/discover                       the stateless era
    tools/list, tools/call                both

A tool that fails is a result with `isError`, which a model can act on; a code whose row of the error table says
otherwise, such as a missing scope, is an error of the protocol.

Before: endpoint.py. After: tools.py; services/application/dispatch.py.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import msgspec
import orjson

from loomlog.services.api.mcp.messages import (
    HANDSHAKE_REVISIONS,
    INVALID_PARAMETERS,
    NO_SUCH_METHOD,
    NOT_PERMITTED,
    SERVER_KEY,
    STATELESS_REVISIONS,
    Message,
    RpcError,
    agree_revision,
)
from loomlog.services.api.mcp.operations import OPERATIONS as MCP_OPERATIONS
from loomlog.services.api.mcp.tools import McpTools, Target
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.error_codes import ERRORS
from loomlog.services.core.operations import Answer, AnyOperation
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import all_tools

NAME = "loomlog"
LIST_TTL_MS = 60_000
"""How long a client may keep a list of tools; it changes with a release, or with the scopes of a token."""
INSTRUCTIONS = (
    "Runs of agents over an append-only log: spawn_run starts one and waits for its end, spawn_runs several at once; "
    "memory and channel are what agents keep and send each other; agentdef and its neighbours define agents."
)
RUN_EVENTS = ("loomcycle", "loomlog")
"""Names of the capability of a client that wants the events of the runs that it starts, as `runEvents`."""


class Requests(Protocol):
    """Carries out operations (services/application/dispatch.py)."""

    async def request(self, operation: AnyOperation, caller: Caller, fields: Mapping[str, Any]) -> Answer[Any]: ...


@cache
def mcp_server(version: str) -> "McpServer":
    """Return the server over the operations of this process."""
    operations = (*product_operations(), *MCP_OPERATIONS)
    return McpServer(McpTools(operations, {tool.name.lower(): tool.description for tool in all_tools()}), version)


class McpServer:
    """Answers messages. All methods raise RpcError."""

    def __init__(self, tools: McpTools, version: str) -> None:
        self._tools = tools
        self._server = {"name": NAME, "title": NAME, "version": version}

    def initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outcome of a handshake."""
        return {
            "protocolVersion": agree_revision(params.get("protocolVersion")),
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": self._server,
            "instructions": INSTRUCTIONS,
        }

    def discover(self) -> dict[str, Any]:
        """Return what a client of the stateless era asks first."""
        return {
            **self._complete(cached=True),
            "supportedVersions": [*STATELESS_REVISIONS, *reversed(HANDSHAKE_REVISIONS)],
            "capabilities": {"tools": {}},
            "instructions": INSTRUCTIONS,
        }

    def list_tools(self, caller: Caller, *, is_stateless: bool) -> dict[str, Any]:
        """Return the tools that the caller may call; there is one page."""
        return {"tools": list(self._tools.list(caller)), **(self._complete(cached=True) if is_stateless else {})}

    def find_tool(self, message: Message, caller: Caller) -> Target:
        """Return what a tools/call asks for."""
        name, arguments = message.params.get("name"), message.params.get("arguments")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMETERS, "params.name: expected the name of a tool", request_id=message.id)
        if arguments is not None and not isinstance(arguments, Mapping):
            raise RpcError(INVALID_PARAMETERS, "params.arguments: expected an object", request_id=message.id)
        target = self._tools.find(name, arguments or {}, caller)
        if target is None:
            raise RpcError(INVALID_PARAMETERS, f"there is no tool {name[:60]!r}", request_id=message.id)
        return target

    async def call_tool(
        self, message: Message, caller: Caller, requests: Requests, *, is_stateless: bool
    ) -> dict[str, Any]:
        """Return the result of a tool; one that is refused or fails has `isError`."""
        more = self._complete(cached=False) if is_stateless else {}
        try:
            target = self.find_tool(message, caller)
            answer = await requests.request(target.operation, caller, target.fields)
        except LookupError as error:
            return {**_failure(str(error), {"code": "invalid_request"}), **more}
        except Refused as refused:
            return {**refused_result(refused, message), **more}
        value = answer.value if target.row.answer is None else target.row.answer(answer.value)
        return {**success(value), **more}

    def _complete(self, *, cached: bool) -> dict[str, Any]:
        """Return what every result of the stateless era says."""
        caching = {"ttlMs": LIST_TTL_MS, "cacheScope": "private"} if cached else {}
        return {"resultType": "complete", "_meta": {SERVER_KEY: self._server}, **caching}


def refused_result(refused: Refused, message: Message) -> dict[str, Any]:
    """Return a refusal as the result of a tool. Raises RpcError for a code that is none of the tool's."""
    row = ERRORS.get(refused.code)
    if row is not None and not row.is_tool_error:
        code = NOT_PERMITTED if row.http in (401, 403) else row.jsonrpc
        raise RpcError(code, refused.message, data={"code": refused.code}, request_id=message.id)
    return _failure(refused.message, {**refused.details, "code": refused.code})


def unknown_method(message: Message) -> RpcError:
    """Return the error of a method that is not served."""
    return RpcError(NO_SUCH_METHOD, f"there is no method {message.method[:60]!r}", request_id=message.id)


def success(value: Any) -> dict[str, Any]:
    """Return the answer of an operation as the result of a tool."""
    text = msgspec.json.encode(value).decode()
    structured = orjson.loads(text)
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": False}
    return {**result, "structuredContent": structured} if isinstance(structured, dict) else result


def _failure(text: str, details: Mapping[str, Any]) -> dict[str, Any]:
    body = orjson.dumps({**details, "error": text}, default=str).decode()
    return {"content": [{"type": "text", "text": body}], "isError": True}
