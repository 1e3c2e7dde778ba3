"""Every operation over MCP and gRPC: who may not call it over HTTP may not call it there, and nobody else is refused.

HTTP is in test_requests.py, and what streams over it in services/api/test_access.py. Handlers are replaced, so what
answers is the check before them. Agents have no scopes: their tools are what a definition grants.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import grpc
import httpx
import pytest
import pytest_asyncio

from loomlog.services.api.mcp import event_operations
from loomlog.services.api.mcp import operations as of_mcp
from loomlog.services.api.mcp.messages import CAPABILITIES_KEY, NAMED_BY, REVISION_KEY, STATELESS_REVISIONS, TASKS
from loomlog.services.api.mcp.server import TASK_METHODS
from loomlog.services.api.mcp.tasks import START as START_TASK
from loomlog.services.api.mcp.tools import mcp_rows
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.operations import APPLICATION_OPERATIONS, product_operations
from loomlog.services.application.operations.process import PROCESS_OPERATIONS
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import Access
from loomlog.services.core.access.scopes import ADMIN, TENANT, USER
from loomlog.services.core.operations import Answer, AnyOperation, Call
from loomlog.services.core.refusals import Refused
from loomlog.services.grpc.front import Front
from loomlog.services.grpc.messages import message_class, service_descriptor
from loomlog.services.grpc.rpcs import RPCS, RPCS_WITH_OP, TOOL_RPCS, tool_targets
from loomlog.services.grpc.streams import STREAMS, stream_handler
from tests.services.api.serving import served
from tests.services.application.world import NOW_MS, tokens
from tests.services.operations.cases import GRPC_OPERATIONS, MCP_OPERATIONS, OPERATIONS
from tests.services.operations.test_requests import ScopedCallers

REFUSED = "insufficient_scope"
EVENT_METHODS = {
    "events/poll": event_operations.POLL,
    "events/stream": event_operations.POLL,
    "events/subscribe": event_operations.SUBSCRIBE,
    "events/unsubscribe": event_operations.UNSUBSCRIBE,
}
PATH = "/v1/_mcp"


@dataclass(frozen=True)
class Way:
    """A way to an operation, or to a stream: what is sent, and who may send it."""

    name: str
    access: Access
    fields: Mapping[str, Any]
    op: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.op}".strip()


def of_tools() -> Iterator[Way]:
    for operation in (*product_operations(), *of_mcp.OPERATIONS):
        for row in mcp_rows(operation):
            op = {"op": row.op} if row.op else {}
            yield Way("tools/call", operation.access, {"name": row.tool, "arguments": op}, f"{row.tool} {row.op}")


def of_methods() -> Iterator[Way]:
    for method, operation in TASK_METHODS.items():
        yield Way(method, operation.access, {"taskId": "r_1.0.1"})
    for method, operation in EVENT_METHODS.items():
        yield Way(method, operation.access, {"name": "run.started"})


def of_rpcs() -> Iterator[Way]:
    for row in RPCS:
        yield Way(row.name, row.operation.access, {})
    for name, rows in RPCS_WITH_OP.items():
        for op, row in rows.items():
            yield Way(name, row.operation.access, {"op": op}, op)
    for name in TOOL_RPCS:
        for op, target in tool_targets(name).items():
            if target.operation in OPERATIONS and target.operation.http:
                yield Way(name, target.operation.access, {"input_json": json.dumps({"op": op}).encode()}, op)
    for stream in STREAMS:
        yield Way(stream.name, stream.access, {})


OVER_MCP = [*of_tools(), *of_methods()]
OVER_GRPC = list(of_rpcs())


def refused_callers(access: Access) -> Iterator[tuple[str, ...]]:
    """Return the scopes of callers who may not call what has this access: one scope too few, or confined."""
    if access.scopes:
        yield () if access.is_any else ("providers:operator-key",) if "tenant:read" not in access.scopes else ()
        if not access.is_any:
            yield from (left for left in combinations(access.scopes, len(access.scopes) - 1) if left)
    if not access.takes_isolated and not access.is_public:
        yield (USER, *sorted({*access.scopes} - {TENANT, ADMIN}))


class Here:
    """The app of MCP, and the RPCs, over a dispatch that records."""

    def __init__(self, made: Any) -> None:
        self.calls: list[Call[Any]] = []
        self.service = made.service
        self.service.authenticator = ScopedCallers(tokens())
        layer = made.world.layer
        layer.dispatch = self.service.process_dispatch = self._dispatch(OPERATIONS)
        self._client = made.client(None)
        requests = self.service.mcp_requests
        self.of_mcp = set(requests._own_dispatch().handlers) - set(OPERATIONS)
        requests._application, requests._own = layer, self._dispatch((*OPERATIONS, *MCP_OPERATIONS))
        self.front = Front(self.service)
        self.front._own = self._dispatch(GRPC_OPERATIONS)

    def _dispatch(self, operations: tuple[AnyOperation, ...]) -> Dispatch:
        async def record(call: Call[Any]) -> Answer[Any]:
            self.calls.append(call)
            raise Refused("not_found", "it is recorded")

        return Dispatch(dict.fromkeys(operations, record), clock_ms=lambda: NOW_MS, new_token=lambda: "t")

    async def over_mcp(self, way: Way, *scopes: str) -> str:
        """Return the code with which a message of a caller with these scopes is refused."""
        revision = STATELESS_REVISIONS[0]
        meta = {REVISION_KEY: revision, CAPABILITIES_KEY: {"extensions": {TASKS: {}}}}
        message = {"jsonrpc": "2.0", "id": 7, "method": way.name, "params": {**way.fields, "_meta": meta}}
        headers = {"mcp-protocol-version": revision, "mcp-method": way.name, "authorization": _token(scopes)}
        if (named := NAMED_BY.get(way.name)) is not None:
            headers["mcp-name"] = way.fields[named]
        body = (await self._client.post(PATH, json=message, headers=headers)).json()
        if "error" in body:
            return str(body["error"]["data"]["code"])
        return str(json.loads(body["result"]["content"][0]["text"])["code"])

    async def begin(self) -> str:
        """Return the id of a new session."""
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.post({"id": 0, "method": "initialize", "params": hello})
        return answer.headers["mcp-session-id"]

    async def post(self, message: Mapping[str, Any], *scopes: str, session: str = "") -> httpx.Response:
        """Send a message, of a session if it is named."""
        headers = {"authorization": _token(scopes)} | ({"mcp-session-id": session} if session else {})
        return await self._client.post(PATH, json={"jsonrpc": "2.0", **message}, headers=headers)

    async def over_grpc(self, way: Way, *scopes: str) -> str:
        """Return the code with which an RPC of a caller with these scopes is refused."""
        method = service_descriptor().methods_by_name[way.name]
        stream = next((one for one in STREAMS if one.name == way.name), None)
        of_row = self.front.handler(way.name) if stream is None else stream_handler(self.front, stream)
        answers: Any = of_row.unary_unary or of_row.unary_stream
        context = Context(_token(scopes))
        message = message_class(method.input_type.name)(**way.fields)
        try:
            answer = await answers(message.SerializeToString(), context)
        except grpc.aio.AbortError:
            return context.code
        kind = message_class(method.output_type.name)
        return str(json.loads(kind.FromString(answer).output_json)["code"])


class Context:
    """Context of an RPC that is refused."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.code = ""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", self._token),)

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.code = str(dict(metadata)["loomlog-code"])

    async def abort(self, status: grpc.StatusCode, message: str) -> None:
        assert (status is grpc.StatusCode.PERMISSION_DENIED) is (self.code == REFUSED), message
        raise grpc.aio.AbortError


def _token(scopes: tuple[str, ...]) -> str:
    return f"Bearer {' '.join(('acme', *scopes))}"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Here]:
    async with served(tmp_path_factory.mktemp("transports")) as made:
        yield Here(made)


@pytest.fixture
def here(installation: Here) -> Here:
    installation.calls.clear()
    return installation


@pytest.mark.parametrize("way", OVER_MCP, ids=str)
async def test_mcp_refuses_who_lacks_the_access_of_the_operation_and_nobody_else(here: Here, way: Way) -> None:
    for scopes in refused_callers(way.access):
        assert await here.over_mcp(way, *scopes) == REFUSED, scopes
    assert not here.calls
    assert await here.over_mcp(way, *way.access.scopes) != REFUSED


@pytest.mark.parametrize("way", OVER_GRPC, ids=str)
async def test_grpc_refuses_who_lacks_the_access_of_the_operation_and_nobody_else(here: Here, way: Way) -> None:
    for scopes in refused_callers(way.access):
        assert await here.over_grpc(way, *scopes) == REFUSED, scopes
    assert not here.calls
    assert await here.over_grpc(way, *way.access.scopes) != REFUSED


async def test_every_operation_that_mcp_alone_carries_out_is_asked_for(here: Here) -> None:
    assert here.of_mcp == set(MCP_OPERATIONS)
    methods = {*TASK_METHODS.values(), *EVENT_METHODS.values(), START_TASK}
    assert {one for one in MCP_OPERATIONS if not mcp_rows(one)} == methods


async def test_a_cancel_and_an_answer_that_are_no_calls_are_refused_like_calls(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []

    async def cancel(caller: Caller, run_id: str, reason: str) -> None:
        cancelled.append(run_id)

    monkeypatch.setattr(here.service.application.control, "cancel_run", cancel)
    session = await here.begin()
    cancel_call = {"method": "notifications/cancelled", "params": {"requestId": 1}}
    answer = {"id": "question:r_1:i_1", "result": {"action": "accept", "content": {"answer": "yes"}}}
    for message in (cancel_call, answer):
        assert (await here.post(message, "runs:read", session=session)).status_code == 202
    assert (cancelled, here.calls) == ([], [])
    for message in (cancel_call, answer):
        assert (await here.post(message, "runs:create", session=session)).status_code == 202
    assert len(cancelled) == 1
    assert [(call.input.run_id, call.input.answer) for call in here.calls] == [("r_1", "yes")]


def test_what_asks_for_a_principal_is_no_tool_of_agents() -> None:
    """A run has no scopes, so nothing would decide about its calls of use cases."""
    asking = (*PROCESS_OPERATIONS, *APPLICATION_OPERATIONS, *MCP_OPERATIONS, *GRPC_OPERATIONS)
    assert [one.name for one in asking if one.tool is not None] == []
