"""The handlers of the operations of a consolidation target: for agents that may consolidate the memory of a scope.

Before: services.py. After: operations.py.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from loomlog.services.core.operations import Answer, AnyOperation, Call, Handler, Handlers
from loomlog.services.core.refusals import Refused
from loomlog.services.families.consolidation import api
from loomlog.services.families.consolidation.operations import ConsolidationOperations
from loomlog.services.families.memory.author import Author, Scope, author_of, resolve_scope, scope_or_default

RequireLocal = Callable[[str, Author], Awaitable[None]]
"""Takes op and author; raises Refused when the author's memory is in another installation."""
Carry = Callable[[Any, Author, Scope], Awaitable[Answer[Any]]]


class ConsolidationHandlers:
    """The handlers. All raise Refused and Unavailable."""

    def __init__(self, operations: ConsolidationOperations, *, require_local: RequireLocal) -> None:
        self._operations = operations
        self._require_local = require_local

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        operations = self._operations
        methods: dict[AnyOperation, Carry] = {
            api.GET_CURSOR: lambda asked, author, scope: operations.get_cursor(author, scope),
            api.SCAN: operations.scan,
            api.LEASE: operations.lease,
            api.ADVANCE: operations.advance,
            api.RELEASE: operations.release,
            api.DRAIN: operations.drain,
            api.ACK: operations.ack,
            api.READ_SESSION: operations.read_session,
        }
        return {operation: self._handler(operation, carry) for operation, carry in methods.items()}

    def _handler(self, operation: AnyOperation, carry: Carry) -> Handler:
        assert operation.tool is not None, "these are operations of agents"
        op = operation.tool.op

        async def handle(call: Call[Any]) -> Answer[Any]:
            author = author_of(call)
            if author.grants is None:
                raise Refused("capability_unsupported", f"{op} is for agents: a lease belongs to a run")
            await self._require_local(op, author)
            scope = resolve_scope(author, scope_or_default(call.input.scope, author.grants.memory_scopes))
            if not author.grants.memory_consolidation:
                text = f"{op}: this agent may not consolidate; it takes memory_consolidation: true"
                raise Refused("capability_unsupported", text)
            return await carry(call.input, author, scope)

        return handle
