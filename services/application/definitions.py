"""Definitions for callers outside of runs: operations, lists, differences, lineage, and which definition a run used.

Before: services/api/definition_endpoints.py. After: services/families/definition/operations.py, which the tools of
agents share.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from loomlog.connectors.definitions import KINDS, Kind
from loomlog.connectors.errors import ConnectorError
from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, run_refusing, unavailable
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.error_codes import STATUS_BY_CODE
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.answers import format_time
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.batches import DefinitionBatches
from loomlog.services.families.definition.decide import CONFLICT
from loomlog.services.families.definition.operations import DefinitionOperations, Reply
from loomlog.services.families.definition.table import FILE, SHARED, DefinitionTable
from loomlog.services.stream.entities.reads import PositionNotRead

ValueT = TypeVar("ValueT")
SHARED_NAME = "_shared"
"""Value of `tenant` for the definitions that all tenants share."""
AGENT = "agent"
SOURCES = {FILE: "bundled"}
"""Names of sources on the wire, where they are others (parity: reference surfaces 1.4)."""
LIBRARY_KINDS: Mapping[str, str] = {"agents": "agent", "skills": "skill", "mcp-servers": "mcpserver"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableDefinition:
    """An agent that can be run. `source`: bundled (a file), tenant or shared."""

    name: str
    source: str
    content: Mapping[str, Any]


class Definitions:
    """The use cases. All methods raise Refused."""

    def __init__(
        self,
        operations: DefinitionOperations,
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        self.operations = operations
        self.table: DefinitionTable = operations.table
        self._clock_ms = clock_ms
        self._new_token = new_token

    async def operate(self, caller: Caller, kind: Kind, body: Any, *, tenant: str = "") -> Reply:
        """Carry out an operation; `body` is that of the tool. Refusals have the code tool_refused, with a reason."""
        require_scope(caller, TENANT)
        require_member(caller)
        author = self.author(caller, kind.name, tenant)
        reply: Reply = await self.refusing(kind.tool, self.operations.run(kind, body, author))
        return reply

    async def apply(self, caller: Caller, body: Any, *, tenant: str = "") -> Reply:
        """Make several definitions active at once, or none. Refusals as `operate`."""
        require_scope(caller, TENANT)
        require_member(caller)
        author = self.author(caller, "apply", tenant)
        reply: Reply = await self.refusing("apply", DefinitionBatches(self.operations).apply(body, author))
        return reply

    def author(self, caller: Caller, kind: str, tenant: str) -> Author:
        """Return the caller as an author. Each call has a command id of its own."""
        owner = self.tenant(caller, tenant)
        return Author(
            tenant=owner,
            subject=caller.subject,
            command_id=make_command_id("entity", "definition", kind, owner, self._new_token()),
            issued_at_ms=0 if current_request.get().idempotency_key else self._clock_ms(),
            is_admin=caller.is_admin,
            is_isolated=caller.is_isolated,
            operator_key_restricted=caller.operator_key_restricted,
            agent_id=f"a_http-{caller.name or caller.subject}"[:64],
        )

    async def refusing(self, tool: str, operation: Any) -> Any:
        """Return what an operation gives; its refusals become those of requests."""
        return await run_refusing(
            _with_reason(tool, operation), unavailable_code="definitions_unavailable", pending_code="definition_pending"
        )

    def tenant(self, caller: Caller, named: str) -> str:
        """Return the tenant of a request; administrators may name another one, or the shared definitions."""
        if not named or named == caller.tenant:
            return caller.tenant
        if not caller.is_admin:
            text = f"the tenant {named[:80]} is not yours"
            raise Refused("insufficient_scope", text, details={"scope": "substrate:admin"})
        return SHARED if named == SHARED_NAME else named

    def names(self, caller: Caller, kind: Kind, *, tenant: str = "") -> dict[str, Any]:
        """Return the names of a kind: of the caller's tenant, for an administrator of all."""
        require_member(caller)
        everywhere = caller.is_admin and not tenant
        return self.operations.names(kind, None if everywhere else self.tenant(caller, tenant))

    def library(self, caller: Caller, shelf: str, *, tenant: str = "") -> Any:
        """Return what there is of a kind, from files and made at run time. Raises not_found."""
        require_member(caller)
        kind = LIBRARY_KINDS.get(shelf)
        if kind is None:
            raise Refused("not_found", f"there is no library {shelf[:60]}: {', '.join(LIBRARY_KINDS)}")
        owner = self.tenant(caller, tenant)
        lines = {line.name: line for line in self.table.lines(kind, owner)}
        files = {name: file for (of, name), file in self.table.files.items() if of == kind}
        entries = []
        for name in sorted(lines.keys() | files.keys()):
            line, file = lines.get(name), files.get(name)
            active = line.version(self.table.active_number(line)) if line is not None else None
            source = (
                "both" if line is not None and file is not None else "dynamic-only" if file is None else "static-only"
            )
            entries.append(
                {
                    "name": name,
                    "source": source,
                    "in_static": file is not None,
                    "in_substrate": line is not None,
                    "version_count": len(line.versions) if line is not None else 0,
                    "live_version_count": sum(not one.is_retired for one in line.versions) if line is not None else 0,
                    "latest_version": len(line.versions) if line is not None else 0,
                    "active_def_id": line.id_of(active.number) if active is not None and line is not None else None,
                    "active_retired": active is not None and active.is_retired,
                    "last_updated": format_time(line.versions[-1].created_at_ms) if line is not None else None,
                    "static_definition": file.content if file is not None else None,
                }
            )
        return {"entries": entries}

    async def runnable_agents(self, caller: Caller) -> list["RunnableDefinition"]:
        """Return the agents that the caller's tenant can run, by name."""
        require_scope(caller, RUNS_READ)
        names = {name for (kind, name) in self.table.files if kind == AGENT}
        names |= {line.name for owner in (SHARED, caller.tenant) for line in self.table.lines(AGENT, owner)}
        resolved = [await self._runnable(caller.tenant, name) for name in sorted(names)]
        return [one for one in resolved if one is not None]

    async def runnable_agent(self, caller: Caller, name: str) -> "RunnableDefinition | None":
        """Return an agent that the caller's tenant can run."""
        require_member(caller)
        return await self._runnable(caller.tenant, name)

    async def _runnable(self, tenant: str, name: str) -> "RunnableDefinition | None":
        resolved = self.table.resolve(AGENT, tenant, name)
        if resolved is None:
            return None
        content = await self.read(self.table.load(resolved))
        return RunnableDefinition(name=name, source=SOURCES.get(resolved.source, resolved.source), content=content)

    def read_positions(self, tenant: str, agent: str) -> Sequence[str]:
        """Return the positions that a start of the agent must include, as far as this process has read."""
        lines = (self.table.line("agent", owner, agent) for owner in dict.fromkeys((tenant, SHARED)))
        now_ms = self._clock_ms()
        tokens = (self.table.positions(line, now_ms=now_ms) for line in lines if line is not None)
        return [token for group in tokens for token in group]

    async def read(self, reading: Any) -> Any:
        """Return what a read gives; errors of stores become refusals."""
        try:
            return await reading
        except PositionNotRead as error:
            raise Refused("definitions_unavailable", str(error), retry_after_s=RETRY_SOON_S) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error


def kind_named(name: str) -> Kind:
    """Return a kind by its name. Raises Refused(bad_request)."""
    if (kind := KINDS.get(name)) is None:
        raise bad_request(f"kind is {name[:60]!r}: expected {', '.join(sorted(KINDS))}")
    return kind


async def _with_reason(tool: str, operation: Awaitable[ValueT]) -> ValueT:
    """Return what an operation gives; its refusal becomes that of its tool, with the code as the reason."""
    try:
        return await operation
    except Refused as refused:
        if STATUS_BY_CODE.get(refused.code) == 503:  # the keys of content do not answer: nothing is wrong with the call
            raise
        code = CONFLICT if refused.code == CONFLICT else "tool_refused"
        raise Refused(code, refused.message, details={"tool": tool, "reason": refused.code}) from refused
