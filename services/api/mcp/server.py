"""Methods of MCP: what a message asks for, whichever way it came.

    initialize, ping, notifications/*     the handshake era
    server/discover, tasks/*, events/*    the stateless era
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
from msgspec import UNSET

from loomlog.services.api.mcp.calls import current_call
from loomlog.services.api.mcp.messages import (
    EVENTS,
    HANDSHAKE_REVISIONS,
    INTERNAL_ERROR,
    INVALID_PARAMETERS,
    NO_SUCH_METHOD,
    NOT_PERMITTED,
    SERVER_KEY,
    STATELESS_REVISIONS,
    TASKS,
    Message,
    RpcError,
    agree_revision,
)
from loomlog.services.api.mcp.operations import OPERATIONS as MCP_OPERATIONS
from loomlog.services.api.mcp.operations import SPAWN_RUN
from loomlog.services.api.mcp.questions import input_requests
from loomlog.services.api.mcp.tasks import METHODS as TASK_METHODS
from loomlog.services.api.mcp.tasks import START as START_TASK
from loomlog.services.api.mcp.tasks import TaskView, task_json
from loomlog.services.api.mcp.tools import McpTools, Target
from loomlog.services.application.operations import product_operations
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.error_codes import ERRORS
from loomlog.services.core.operations import Answer, AnyOperation, Effect
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
            **self.complete(is_cached=True),
            "supportedVersions": [*STATELESS_REVISIONS, *reversed(HANDSHAKE_REVISIONS)],
            "capabilities": {"tools": {}, "extensions": {TASKS: {}, EVENTS: {}}},
            "instructions": INSTRUCTIONS,
        }

    def list_tools(self, caller: Caller, *, is_stateless: bool) -> dict[str, Any]:
        """Return the tools that the caller may call; there is one page."""
        return {"tools": list(self._tools.list(caller)), **(self.complete(is_cached=True) if is_stateless else {})}

    def is_run(self, message: Message) -> bool:
        """Return whether a tools/call starts a run and waits for it."""
        return message.params.get("name") == SPAWN_RUN.mcp[0].tool

    def is_long(self, message: Message, caller: Caller) -> bool:
        """Return whether a tools/call may wait for a long time; one that is wrong does not."""
        if self.is_run(message) and message.has_extension(TASKS):
            return False
        try:
            return self.find_tool(message, caller).operation.effect is Effect.WAIT
        except (RpcError, LookupError):
            return False

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
        """Return the result of a tool; one that is refused or fails has `isError`.

        In the stateless era it may be a task, or what the tool needs from the client's user first.
        """
        more = self.complete() if is_stateless else {}
        try:
            target = self.find_tool(message, caller)
            if target.operation == SPAWN_RUN and message.has_extension(TASKS):
                started = await requests.request(START_TASK, caller, target.fields)
                return {**more, **task_json(started.value), "resultType": "task"}
            answer = await requests.request(target.operation, caller, target.fields)
        except LookupError as error:
            return {**_failure(str(error), {"code": "invalid_request"}), **more}
        except Refused as refused:
            return {**refused_result(refused, message), **more}
        under_way = current_call.get()
        if under_way is not None and under_way.is_stopped_by_question:
            questions = {"inputRequests": input_requests(under_way.open_questions), "requestState": under_way.run_id}
            return {**more, **questions, "resultType": "input_required"}
        value = answer.value if target.row.answer is None else target.row.answer(answer.value)
        return {**success(value), **more}

    async def call_task_method(self, message: Message, caller: Caller, requests: Requests) -> dict[str, Any]:
        """Return the answer to tasks/get, tasks/update or tasks/cancel."""
        message.require_extension(TASKS)
        operation = TASK_METHODS[message.method]
        fields = {name: value for name, value in message.params.items() if name != "_meta"}
        try:
            value = (await requests.request(operation, caller, fields)).value
        except Refused as refused:
            raise refused_request(refused, message) from refused
        if not isinstance(value, TaskView):
            return self.complete()
        task = task_json(value)
        return {**self.complete(), **task, **({} if value.outcome is UNSET else {"result": success(value.outcome)})}

    def complete(self, *, is_cached: bool = False) -> dict[str, Any]:
        """Return what every result of the stateless era says."""
        caching = {"ttlMs": LIST_TTL_MS, "cacheScope": "private"} if is_cached else {}
        return {"resultType": "complete", "_meta": {SERVER_KEY: self._server}, **caching}


def refused_result(refused: Refused, message: Message) -> dict[str, Any]:
    """Return a refusal as the result of a tool. Raises RpcError for a code that is none of the tool's."""
    row = ERRORS.get(refused.code)
    if row is not None and not row.is_tool_error:
        code = NOT_PERMITTED if row.http in (401, 403) else row.jsonrpc
        raise RpcError(code, refused.message, data={"code": refused.code}, request_id=message.id)
    return _failure(refused.message, {**refused.details, "code": refused.code})


def refused_request(refused: Refused, message: Message) -> RpcError:
    """Return a refusal as the error of a method that is no tool."""
    row = ERRORS.get(refused.code)
    code = INTERNAL_ERROR if row is None else NOT_PERMITTED if row.http in (401, 403) else row.jsonrpc
    if refused.code in ("not_found", "unknown_agent_id"):
        code = INVALID_PARAMETERS
    return RpcError(code, refused.message, data={**refused.details, "code": refused.code}, request_id=message.id)


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
