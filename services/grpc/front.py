"""What all RPCs share: their caller, their request, their slots, and how they end.

    front.answers(name)   the handler of an RPC: a row of rpcs.py, a tool, or a stream of streams.py

A message is read here, so that one that cannot be read is refused with a sentence. An RPC that the service does not
have is UNIMPLEMENTED with its name, after its caller is known. When a deadline passes or a client leaves, gRPC cancels
the handler, and with it the operation that still waits; what it has written stays, and a repetition under the same
idempotency-key gets its outcome.

    metadata in      authorization, idempotency-key, loomlog-position, traceparent, x-request-id: as the headers of HTTP
    metadata out     loomlog-position, x-request-id; of refusals those of refusals.py

Before: server.py. After: services/application/dispatch.py.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import msgspec
from google.protobuf.message import Message

from loomlog.connectors.errors import Transient
from loomlog.connectors.process.logs import log_fields
from loomlog.services.api.request_shares import NO_SLOTS, RouteSlots, Takes
from loomlog.services.api.service import OF_PROCESS, Service
from loomlog.services.application.authentication import require_access
from loomlog.services.application.dispatch import Dispatch
from loomlog.services.application.errors import bad_request, key_reused, share_refusal, stopping_error, unavailable
from loomlog.services.application.request_context import RequestContext, begin_context
from loomlog.services.application.resources import clock_ms, new_token
from loomlog.services.application.runs.requests import check_idempotency_key
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import PUBLIC, Access
from loomlog.services.core.operation_input import field_schemas, find_operation
from loomlog.services.core.operations import Answer, AnyOperation, Effect
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import ShareExhausted
from loomlog.services.grpc import refusals
from loomlog.services.grpc.messages import message_class, parse, read_json, service_descriptor, to_fields, to_message
from loomlog.services.grpc.operations import GET_HEALTH, GrpcOperations
from loomlog.services.grpc.rpcs import RPCS, RPCS_WITH_OP, TOOL_RPCS, Rpc, ToolTarget, tool_targets
from loomlog.services.stream.entities.answers import CommandReused

log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[bytes, bytes]

ANONYMOUS = Caller(name="", tenant="", subject="", scopes=frozenset())
POSITION = "loomlog-position"
PAGES_MAX = 100
"""Pages that one answer joins; HTTP has all of them, page by page."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """An RPC that may be answered."""

    caller: Caller
    message: Message
    context: Context
    sent: Mapping[str, str]
    """Its metadata that is text."""
    slots: RouteSlots


Work = Callable[[Incoming], Awaitable[bytes | None]]
TENANT_FIELD = "tenant"


class Front:
    """Answers RPCs over the service of a process."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._own = Dispatch(GrpcOperations(service).by_operation(), clock_ms=clock_ms, new_token=new_token)
        self._rows = {row.name: row for row in RPCS}

    def handler(self, name: str) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Return the handler of an RPC that answers once."""
        if (row := self._rows.get(name)) is not None:
            work, access = self._operation(row), row.operation.access
            takes = Takes.WAIT if row.operation.effect is Effect.WAIT else Takes.REQUEST
            if row.operation == GET_HEALTH:
                takes = Takes.NOTHING
            answers = self.answers(name, access, takes, work, missing=row.missing)
        elif (rows := RPCS_WITH_OP.get(name)) is not None:
            answers = self.answers(name, None, Takes.REQUEST, self._by_op(rows))
        elif name in TOOL_RPCS and (targets := tool_targets(name)):
            answers = self.answers(name, None, Takes.REQUEST, self._tool(targets))
        else:
            answers = self.answers(name, None, Takes.NOTHING, self._not_served(name))
        return grpc.unary_unary_rpc_method_handler(answers)

    def answers(
        self, name: str, access: Access | None, takes: Takes, work: Work, *, missing: str = "object"
    ) -> Callable[[bytes, Context], Awaitable[bytes | None]]:
        """Return what answers an RPC with `work`. `access` None: `work` decides it, for callers with a token."""
        method = service_descriptor().methods_by_name.get(name)
        kind = None if method is None else message_class(method.input_type.name)

        async def answer(raw: bytes, context: Context) -> bytes | None:
            request, sent = begin_request(context)
            slots = NO_SLOTS
            try:
                caller = ANONYMOUS
                if access is not PUBLIC:
                    caller = await self.service.authenticator.authenticate(sent.get("authorization"))
                    log_fields.set({**log_fields.get(), "tenant": caller.tenant})
                if access is not None:
                    require_access(caller, access)
                slots = await self.service.shares.enter(takes, caller, path=name)
                message = Message() if kind is None else parse(kind, raw)
                self._use_key(request, caller, name, sent, message)
                if positions := sent.get(POSITION):
                    await self.service.application.barrier.wait_for([one.strip() for one in positions.split(",")])
                return await work(Incoming(caller, message, context, sent, slots))
            except grpc.aio.AbortError:
                raise
            except Exception as error:  # noqa: BLE001 - becomes a status; gRPC would tell the client what it says
                refused = self._refused(error, request)
            finally:
                slots.release()
            await abort(context, refused, request, missing=missing)
            return None

        return answer

    # --- the three kinds of RPCs that answer once --------------------------------------------------------------------

    def _operation(self, row: Rpc) -> Work:
        kind = message_class(service_descriptor().methods_by_name[row.name].output_type.name)
        takes_tenant = TENANT_FIELD in field_schemas(row.operation.input)

        async def work(rpc: Incoming) -> bytes:
            asked, caller = to_fields(rpc.message), rpc.caller
            fields = {row.names.get(name, name): value for name, value in asked.items() if name in (row.takes or asked)}
            tenant = caller.tenant if row.own_tenant else ""
            if tenant:
                asked[TENANT_FIELD] = tenant
            if tenant and takes_tenant:
                fields[TENANT_FIELD] = tenant
            answer = await self.all_pages(row, caller, row.fields(fields) if row.fields else fields, tenant)
            await _send_positions(rpc.context, answer)
            value = _plain(answer.value)
            shown = row.answer(value) if row.answer is not None else value
            return to_message(kind, {**asked, **shown}).SerializeToString()

        return work

    def _by_op(self, rows: Mapping[str, Rpc]) -> Work:
        works = {op: self._operation(row) for op, row in rows.items()}

        async def work(rpc: Incoming) -> bytes | None:
            op = getattr(rpc.message, "op")  # noqa: B009 - mypy knows no fields
            if op not in works:
                raise bad_request(f"op: expected one of {', '.join(sorted(works))}")
            return await works[op](rpc)

        return work

    async def all_pages(self, row: Rpc, caller: Caller, fields: Mapping[str, Any], tenant: str = "") -> Answer[Any]:
        """Return the answer of an operation; of a list all pages, up to PAGES_MAX. Raises Refused."""
        answer = await self.request(row.operation, caller, fields, tenant)
        cursor = answer.value["next"] if row.pages else None
        for _ in range(PAGES_MAX):
            if not cursor:
                break
            page = (await self.request(row.operation, caller, {**fields, "cursor": cursor}, tenant)).value
            answer.value[row.pages].extend(page[row.pages])
            cursor = page["next"]
        return answer

    def _tool(self, targets: Mapping[str, ToolTarget]) -> Work:
        """Return what answers an RPC of a tool; what the tool refuses is an answer too, with is_error."""
        kind = message_class("SubstrateResponse")

        async def work(rpc: Incoming) -> bytes:
            fields = read_json("input_json", getattr(rpc.message, "input_json"))  # noqa: B009 - mypy knows no fields
            if not isinstance(fields, dict):
                raise Refused("bad_request", "input_json: expected an object with op")
            try:
                op = fields.pop("op", None)
                # Some operations of a tool are for agents alone: their handlers are in the runtimes.
                served = {name: one.operation for name, one in targets.items() if self._serves(one.operation)}
                chosen = find_operation(op, served, code="unknown_op")
                answer = await self.request(chosen, rpc.caller, own_scope(fields, rpc.caller))
            except Refused as refused:
                if not refusals.is_tool_refusal(refused):
                    raise
                refusal = {"output_json": refusals.tool_refusal(refused), "is_error": True}
                return to_message(kind, refusal).SerializeToString()
            await _send_positions(rpc.context, answer)
            show = targets[str(op)].answer
            value = show(answer.value) if show is not None else answer.value
            return to_message(kind, {"output_json": msgspec.json.encode(value)}).SerializeToString()

        return work

    def _not_served(self, name: str) -> Work:
        async def work(rpc: Incoming) -> bytes:
            why = "this installation does not have it" if name in service_descriptor().methods_by_name else ""
            raise Refused("route_not_found", f"{name[:80]} is not served: {why or 'there is no such RPC'}")

        return work

    # --- shared ------------------------------------------------------------------------------------------------------

    async def request(
        self, operation: AnyOperation, caller: Caller, fields: Mapping[str, Any], tenant: str = ""
    ) -> Answer[Any]:
        """Carry out an operation; `tenant` where the request names one. Raises Refused."""
        return await self._dispatch(operation).request(operation, caller, fields, tenant=tenant)

    def _serves(self, operation: AnyOperation) -> bool:
        return operation in self._dispatch(operation).handlers

    def _dispatch(self, operation: AnyOperation) -> Dispatch:
        if operation in OF_PROCESS:
            return self.service.process_dispatch
        if operation in self._own.handlers:
            return self._own
        return self.service.application.dispatch

    def _use_key(
        self, request: RequestContext, caller: Caller, name: str, sent: Mapping[str, str], message: Message
    ) -> None:
        """Draw the tokens of the request from its idempotency-key, if it has one."""
        if key := sent.get("idempotency-key", "").strip():
            check_idempotency_key(key)
            request.idempotency_key, request.scope = key, (caller.tenant, caller.subject, "grpc", name)
            request.hash_body(message.SerializeToString(deterministic=True))

    def _refused(self, error: Exception, request: RequestContext) -> Refused:
        match error:
            case Refused():
                return error
            case CommandReused():
                return key_reused()
            case ShareExhausted():
                return share_refusal(error)
            case Transient():
                return unavailable("outside", error)
        if self.service.is_stopping:
            return stopping_error()
        log.error("request %s failed", request.request_id, exc_info=error)
        return Refused("internal", "internal error; its trace is in the log of this process, under the request id")


def begin_request(context: Context) -> tuple[RequestContext, Mapping[str, str]]:
    """Make the request the current one of this task; returns it with its metadata that is text."""
    sent = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    return begin_context(sent.get("x-request-id", ""), "grpc"), sent


async def abort(context: Context, refused: Refused, request: RequestContext, *, missing: str) -> None:
    """End an RPC with a refusal."""
    with suppress(UnicodeEncodeError):
        context.set_trailing_metadata(refusals.metadata_of(refused, request_id=request.request_id))
    await context.abort(refusals.status_of(refused), refusals.message_of(refused, missing=missing))


def own_scope(fields: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """Return the fields of a tool with the caller's own id where they name the scope `user` and no id."""
    if fields.get("scope") == "user" and not fields.get("scope_id"):
        return {**fields, "scope_id": caller.subject}
    return fields


async def _send_positions(context: Context, answer: Answer[Any]) -> None:
    if answer.positions:
        await context.send_initial_metadata(((POSITION, ",".join(answer.positions)),))


def _plain(value: Any) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = (
        value if isinstance(value, Mapping) else msgspec.to_builtins(value, builtin_types=(bytes,))
    )
    return plain
