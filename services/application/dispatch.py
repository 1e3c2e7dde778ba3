"""Requests for operations, from every transport: the one place that decides access, reads the input and asks a handler.

    access      the scopes of the declaration; a transport that reads a body asks before it does
    tenant      the caller's own, or the one that an administrator names
    act         what operators and administrators change is recorded before and after (services/families/ports/acts.py)
    command id  of the request's key, the operation's family and the tenant: a repetition gives the same command again
    handler     found by the declaration; what it raises becomes a refusal with a code of the error table
    absence     what the handler does not find is looked for again at the end of the log (absence.py)

Before: services/api/operation_routes.py. After: the handlers of a family.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from loomlog.schemas.ids import hashed_token
from loomlog.services.application.authentication import require_access
from loomlog.services.application.errors import run_refusing
from loomlog.services.application.request_context import command_id, command_tokens, current_request
from loomlog.services.core.access.decide import Caller, resolve_tenant
from loomlog.services.core.access.rules import Access
from loomlog.services.core.operation_input import parse_operation
from loomlog.services.core.operation_requests import path_fields
from loomlog.services.core.operations import Answer, AnyOperation, Call, Effect, Handlers, OperationCaller, Origin
from loomlog.services.core.refusals import Refused, request_refusal
from loomlog.services.families.ports.acts import Act, ActRecorder
from loomlog.services.stream.entities.absence import AbsenceCheck

FreshToken = Callable[[], str]
TARGET_FIELDS = ("name", "def_id", "id", "subject", "agent", "scope", "scope_id", "run_id", "tenant_id", "tenant")
"""Fields that name what a request is about, when its path does not."""


class Dispatch:
    """Carries out operations for callers outside of runs."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        clock_ms: Callable[[], int],
        new_token: FreshToken,
        acts: ActRecorder | None = None,
        absence: AbsenceCheck | None = None,
    ) -> None:
        """`new_token` gives the command ids of requests without a key. `acts` None: they are not recorded.

        `absence` None: what is not there is not looked for a second time.
        """
        self.handlers = dict(handlers)
        self.acts = acts
        self._absence = absence or AbsenceCheck()
        self._clock_ms = clock_ms
        self._new_token = new_token
        self._tokens = {operation.family: command_tokens(new_token, operation.family) for operation in self.handlers}

    def with_handlers(self, more: Handlers) -> "Dispatch":
        """Return a dispatch that carries out further operations, such as those of one transport."""
        handlers = {**self.handlers, **more}
        return Dispatch(
            handlers, clock_ms=self._clock_ms, new_token=self._new_token, acts=self.acts, absence=self._absence
        )

    async def request(
        self,
        operation: AnyOperation,
        caller: Caller,
        fields: Mapping[str, Any],
        *,
        tenant: str = "",
        access: Access | None = None,
    ) -> Answer[Any]:
        """Carry out an operation; `fields` is its input, of JSON. Raises Refused.

        `tenant` empty: the caller's. `access` is that of a route of its own; None: that of the operation.
        """
        current_request.get().is_dispatched = True
        try:
            require_access(caller, access or operation.access)
            call = self._call(operation, caller, fields, tenant)
        except Refused as refused:
            if self.acts is not None and operation.records_act:
                self.acts.note_refusal(operation.name, caller, caller.tenant, refused.code, _target(operation, fields))
            raise request_refusal(refused) from refused
        return await run_refusing(
            self._carry_out(operation, call, fields),
            unavailable_code=operation.code_when_unavailable,
            pending_code=operation.pending_code,
        )

    async def _carry_out(self, operation: AnyOperation, call: Call[Any], fields: Mapping[str, Any]) -> Answer[Any]:
        async def handle() -> Answer[Any]:
            with _as_shown(operation):
                return await self._absence.try_twice(lambda: self.handlers[operation](call))

        if self.acts is None or not operation.records_act:
            return await handle()
        act = Act(
            act_id=hashed_token("act", call.command_id),
            operation=operation.name,
            caller=call.principal,
            tenant=call.caller.tenant or call.principal.tenant,
            target=_target(operation, fields),
            request={name: one for name, one in fields.items() if name not in operation.secret_fields},
        )
        return await self.acts.carry_out(act, handle, call.change)

    def _call(self, operation: AnyOperation, caller: Caller, fields: Mapping[str, Any], tenant: str) -> Call[Any]:
        """Return the call of a request. Raises Refused."""
        means_all = operation.spans_tenants and caller.is_admin and not tenant
        owner = "" if means_all else resolve_tenant(caller, tenant)
        with _as_shown(operation):
            asked = parse_operation(operation, fields)
        return self._new_call(operation, caller, asked, owner, is_named=bool(tenant))

    def _new_call(
        self, operation: AnyOperation, caller: Caller, asked: Any, owner: str, *, is_named: bool
    ) -> Call[Any]:
        request = current_request.get()
        return Call(
            input=asked,
            caller=OperationCaller(
                tenant=owner,
                is_tenant_named=is_named,
                subject=caller.subject,
                origin=Origin.REQUEST,
                name=caller.name,
                principal=caller,
                is_admin=caller.is_admin,
                is_isolated=caller.is_isolated,
                acts_for_all=caller.legacy or caller.open_mode,
                operator_key_restricted=caller.operator_key_restricted,
            ),
            command_id="" if operation.effect is Effect.READ else self._command_id(operation, owner),
            # A repetition was issued at a time that only its first sender knows: 0 makes the owner look it up.
            issued_at_ms=0 if request.idempotency_key else self._clock_ms(),
            request_key=(*request.scope, request.idempotency_key) if request.idempotency_key else (),
        )

    def _command_id(self, operation: AnyOperation, tenant: str) -> str:
        # One operation is one draw of its family's tokens: nothing else that a request does moves its ids.
        return command_id("entity", operation.family, tenant, self._tokens[operation.family]())


@contextmanager
def _as_shown(operation: AnyOperation) -> Iterator[None]:
    """Raise the refusals of an operation as its requests see them."""
    try:
        yield
    except Refused as refused:
        if operation.refused is None:
            raise
        raise operation.refused(refused) from refused


def _target(operation: AnyOperation, fields: Mapping[str, Any]) -> str:
    return act_target(fields, path_fields(operation.http[0]) if operation.http else {})


def act_target(fields: Mapping[str, Any], path_names: Mapping[str, str]) -> str:
    """Return what a request is about: the fields of its path, or else those that usually name it."""
    names = tuple(path_names.values()) or TARGET_FIELDS
    return " ".join(str(fields[name]) for name in names if isinstance(fields.get(name), str | int) and fields[name])
