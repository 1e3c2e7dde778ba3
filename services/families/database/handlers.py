"""The handlers of the operations of databases: agents in the scopes of SQL that they are granted, requests that read.

A request sees what is committed, and none of the open transactions of runs.

Before: services.py. After: operations.py.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, structs

from loomlog.services.core.operations import Answer, AnyOperation, Call, Handler, Handlers
from loomlog.services.core.refusals import Refused
from loomlog.services.families.database import api
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.memory.author import (
    RUN,
    SCOPE_ID_CHARACTERS_MAX,
    SCOPES,
    USER,
    Author,
    Scope,
    author_of,
    named_scope,
    require_scope_id,
    resolve_scope,
    scope_or_default,
)

SQL_SCOPES = (*SCOPES, RUN)
RequireLocal = Callable[[str, Author], Awaitable[None]]
"""Takes op and author; raises Refused when the author's memory is in another installation."""
OpenOperations = Callable[[], Awaitable[DatabaseOperations]]
"""Returns the databases of the process. Raises Refused(sqlmem_unavailable), Unavailable."""
Carry = Callable[[DatabaseOperations, Any, Author, Scope], Awaitable[Answer[Any]]]


class DatabaseHandlers:
    """The handlers. All raise Refused and Unavailable."""

    def __init__(self, open_operations: OpenOperations, *, require_local: RequireLocal) -> None:
        self._open = open_operations
        self._require_local = require_local

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        of_agents: dict[AnyOperation, Carry] = {
            api.EXEC: lambda databases, asked, author, scope: databases.exec(asked, author, scope),
            api.BEGIN: lambda databases, asked, author, scope: databases.begin(author, scope),
            api.COMMIT: lambda databases, asked, author, scope: databases.commit(author, scope),
            api.ROLLBACK: lambda databases, asked, author, scope: databases.roll_back(author, scope),
        }
        handlers = {operation: self._handler(operation, carry) for operation, carry in of_agents.items()}
        query = self._handler(api.QUERY, lambda databases, asked, author, scope: databases.query(asked, author, scope))

        async def read(call: Call[api.DatabaseQuery]) -> Answer[api.MemorySqlRows]:
            return await (self.query(call) if call.caller.run is None else query(call))

        return {**handlers, api.QUERY: read}

    async def query(self, call: Call[api.DatabaseQuery]) -> Answer[api.MemorySqlRows]:
        """Return the rows of a request, with its scope."""
        author, asked = author_of(call), call.input
        scope = _requested_scope(asked, author)
        answer = await (await self._open()).query(asked, author, scope)
        return Answer(value=structs.replace(answer.value, scope=scope.name, scope_id=scope.id))

    def _handler(self, operation: AnyOperation, carry: Carry) -> Handler:
        assert operation.tool is not None, "these are operations of agents"
        op = operation.tool.op

        async def handle(call: Call[Any]) -> Answer[Any]:
            author = author_of(call)
            if author.grants is None:
                raise Refused("capability_unsupported", f"{op} is for agents: what writes belongs to a run")
            await self._require_local(op, author)
            databases = await self._open()
            named = scope_or_default(call.input.scope, author.grants.sql_scopes)
            scope = resolve_scope(author, named, SQL_SCOPES, granted="sql_scopes")
            return await carry(databases, call.input, author, scope)

        return handle


def _requested_scope(asked: api.DatabaseQuery, author: Author) -> Scope:
    require_scope_id(asked)
    name, scope_id = USER if asked.scope is UNSET else asked.scope, asked.scope_id
    if name != RUN:
        return named_scope(author.tenant, str(name), scope_id)
    if len(scope_id) > SCOPE_ID_CHARACTERS_MAX or not scope_id.isprintable():
        raise Refused("invalid_scope", f"scope_id: expected the id of a root run, not {scope_id[:60]!r}")
    return Scope(author.tenant, RUN, scope_id)
