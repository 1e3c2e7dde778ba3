"""The author of an operation on memory, and the scope it is for: the same for requests and tool calls.

Before: handlers.py of the families memory, database and consolidation. After: entry_operations.py and their neighbours.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET, structs

from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope, CoreBlock, MemorySource
from loomlog.schemas.records import Value, copy_as
from loomlog.services.core.operations import Call
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.run_facts import RunFacts

AGENT, USER, TENANT, RUN = "agent", "user", "tenant", "run"
SCOPES = (AGENT, USER, TENANT)
"""Scopes of entries, in the order in which they are listed. Databases have the scope `run` too."""
SCOPE_ID_CHARACTERS_MAX = 256
TENANT_SCOPE_ID = ""
"""Id of the only scope of a tenant in every answer."""


class Scope(Value, frozen=True):
    """One keyspace: all entries of an agent, a user or a tenant, and the database beside them."""

    tenant: str
    name: str
    """agent, user, tenant or run."""
    id: str = ""
    """Name of the agent, id of the user, id of the root run; empty for the tenant."""

    @property
    def aggregate(self) -> str:
        """Name of the aggregate within the tenant; the same for the families memory, database and consolidation."""
        return aggregate_name(self.name, self.id)


def aggregate_name(scope: str, scope_id: str) -> str:
    """Return the name of the aggregate of a scope within its tenant."""
    return f"{scope}/{scope_id}"


def content_subject(command: Any) -> str:
    """Return whose key encrypts what a command on a scope says: the user of a user scope, else the writer."""
    return str(command.scope_id if command.scope == USER else command.envelope.subject)


def scopes_of_run(tenant: str, agent: str, user_id: str) -> tuple[Scope, ...]:
    """Return the scopes that a run may have."""
    scopes = (Scope(tenant, AGENT, agent), Scope(tenant, USER, user_id), Scope(tenant, TENANT, TENANT_SCOPE_ID))
    return tuple(scope for scope in scopes if scope.name != USER or scope.id)


def scope_of_aggregate(tenant: str, name: str) -> Scope:
    """Return the scope whose aggregate has this name."""
    scope, _, scope_id = name.partition("/")
    return Scope(tenant, scope, scope_id)


class Grants(Value, frozen=True, kw_only=True):
    """What an agent may do with memory."""

    memory_scopes: tuple[str, ...] = ()
    sql_scopes: tuple[str, ...] = ()
    memory_quota_bytes: int = 0
    """Most bytes of a scope; 0: the operator's bound."""
    sql_quota_bytes: int = 0
    memory_backend: str = ""
    memory_consolidation: bool = False
    core_blocks: tuple[Mapping[str, Any], ...] = ()
    """Blocks of the agent: label, scope, limit_bytes, read_only."""
    is_of_file: bool = False
    """The operator has written them, so their quotas may be larger than those of the settings."""

    def quota(self, field: str, operators: int) -> int:
        """Return a quota in bytes: that of the operator, or a smaller one of the definition; 0 and less: no bound."""
        own: int = getattr(self, field)
        if own <= 0:
            return operators
        return own if self.is_of_file or operators <= 0 else min(own, operators)


def grants_of_run(definition: AgentDefinition) -> Grants:
    """Return what the definition that a run is pinned to allows."""
    fields = {} if definition.grants is None else structs.asdict(definition.grants)
    return grants_of(fields, is_of_file=definition.pin is None)


def grants_of(fields: Mapping[str, Any], *, is_of_file: bool) -> Grants:
    """Return what the fields of values.AgentGrants allow. `is_of_file`: a configuration file says so."""
    return Grants(
        memory_scopes=tuple(fields.get("memory_scopes") or ()),
        sql_scopes=tuple(fields.get("sql_scopes") or ()),
        memory_quota_bytes=fields.get("memory_quota_bytes") or 0,
        sql_quota_bytes=fields.get("sql_quota_bytes") or 0,
        memory_backend=fields.get("memory_backend") or "",
        memory_consolidation=bool(fields.get("memory_consolidation")),
        core_blocks=tuple(_block(one) for one in fields.get("core_blocks") or ()),
        is_of_file=is_of_file,
    )


def _block(block: CoreBlock | Mapping[str, Any]) -> Mapping[str, Any]:
    return structs.asdict(block) if isinstance(block, CoreBlock) else block


class Author(Value, frozen=True, kw_only=True):
    """The author of an operation. With `grants` None: an operator or an application, which names scope ids itself."""

    tenant: str
    subject: str
    """Subject of the principal."""
    command_id: str
    """The same for every attempt of a request or a call."""
    issued_at_ms: int
    """0 when an earlier attempt may have been made."""
    user_id: str = ""
    agent: str = ""
    run_id: str = ""
    root_run_id: str = ""
    session_id: str = ""
    turn: int = 0
    call: int = 0
    grants: Grants | None = None
    is_isolated: bool = False
    """Whether it is confined to its own subject: agent and tenant scopes are refused."""
    positions: tuple[str, ...] = ()
    """Position tokens of earlier writes: reads include them."""

    @property
    def origin(self) -> str:
        """Origin of what it writes, as the server knows it."""
        if self.grants is None:
            return "operator"
        return "consolidator" if self.grants.memory_consolidation else "agent_explicit"

    def source(self) -> MemorySource:
        """Return the source of a change."""
        return copy_as(MemorySource, self, origin=self.origin, principal="" if self.run_id else self.subject)

    def envelope(self, step: str = "") -> CommandEnvelope:
        """Return the envelope of a command; `step` tells several commands of one call apart."""
        return CommandEnvelope(
            command_id=f"{self.command_id}.{step}" if step else self.command_id,
            tenant=self.tenant,
            subject=self.user_id or self.subject,
            issued_at_ms=self.issued_at_ms,
        )


def author_of(call: Call[Any]) -> Author:
    """Return the caller of an operation as an author: a principal, or a run with what its agent may do."""
    caller, run = call.caller, call.caller.run
    if run is None:
        return Author(
            tenant=caller.tenant,
            subject=caller.subject,
            command_id=call.command_id,
            issued_at_ms=call.issued_at_ms,
        )
    return Author(
        tenant=caller.tenant,
        subject=caller.subject,
        command_id=call.command_id,
        issued_at_ms=call.issued_at_ms,
        user_id=caller.user_id,
        agent=run.agent,
        run_id=run.run_id,
        root_run_id=run.root_run_id,
        session_id=run.session_id,
        turn=caller.turn,
        call=caller.call,
        grants=grants_of(run.grants, is_of_file=not run.agent_def_id),
        is_isolated=caller.is_isolated,
        positions=caller.positions,
    )


def author_of_run(
    tenant: str, facts: RunFacts, command_id: str, *, issued_at_ms: int, turn: int = 0, is_isolated: bool = False
) -> Author:
    """Return the author of what this process itself does on behalf of a run; `issued_at_ms` 0: an earlier attempt may
    have been made.
    """
    definition = facts.definition
    return Author(
        tenant=tenant,
        subject=facts.subject,
        command_id=command_id,
        issued_at_ms=issued_at_ms,
        user_id=facts.user_id,
        agent=definition.name,
        run_id=facts.run_id,
        root_run_id=facts.run_id if facts.parent is None else facts.parent.root_run_id,
        session_id=facts.session_id,
        turn=turn,
        grants=grants_of_run(definition),
        is_isolated=is_isolated,
        positions=facts.positions,
    )


def scope_of(asked: Any, author: Author) -> Scope:
    """Return the scope of entries that an input names: `scope`, UNSET for the user of a request and for the only scope
    that is granted to an agent, and `scope_id` of requests. Raises Refused(invalid_scope).
    """
    if author.grants is not None:
        return resolve_scope(author, scope_or_default(asked.scope, author.grants.memory_scopes))
    return named_scope(author.tenant, USER if asked.scope is UNSET else asked.scope, asked.scope_id)


def scope_or_default(name: Any, granted: Sequence[str]) -> Any:
    """Return the scope that an agent names; None when it names none and more than one is granted."""
    if name is not UNSET:
        return name
    return granted[0] if len(granted) == 1 else None


def require_scope_id(asked: Any) -> None:
    """Refuse a request for a scope that has an id, without one."""
    name = USER if asked.scope is UNSET else asked.scope
    if name != TENANT and not asked.scope_id:
        raise Refused("missing_scope_id", f"scope_id: scope {name} needs an id")


def resolve_scope(
    author: Author, name: Any, scopes: tuple[str, ...] = SCOPES, *, granted: str = "memory_scopes"
) -> Scope:
    """Return the scope that a call of an agent names. Raises Refused(invalid_scope).

    `granted` is the field of Grants that must list it.
    """
    assert author.grants is not None, "an operator names the scope id"
    allowed: tuple[str, ...] = getattr(author.grants, granted)
    if not isinstance(name, str) or name not in scopes:
        raise Refused("invalid_scope", f"scope: expected one of {', '.join(scopes)}, not {str(name)[:60]!r}")
    if name not in allowed:
        listed = ", ".join(allowed) or "none"
        raise Refused("invalid_scope", f"scope {name}: this agent may use {listed} ({granted})")
    if author.is_isolated and name != USER:
        raise Refused("invalid_scope", f"scope {name}: this caller is confined to its own memory; use user")
    match name:
        case "agent":
            return Scope(author.tenant, AGENT, _consolidated_agent(author) or author.agent)
        case "user":
            if not author.user_id:
                raise Refused("invalid_scope", "scope user: this run has no user_id; start it with one")
            return Scope(author.tenant, USER, author.user_id)
        case "run":
            return Scope(author.tenant, RUN, author.root_run_id)
    return Scope(author.tenant, TENANT, TENANT_SCOPE_ID)


def _consolidated_agent(author: Author) -> str:
    """Return the agent whose memory a run consolidates, when the target of it has started the run; else empty.

    The subject of such a run is the target: families/consolidation, sent by the outbox.
    """
    prefix = f"consolidation:{author.tenant}/{AGENT}/"
    is_consolidator = author.grants is not None and author.grants.memory_consolidation
    return author.subject.removeprefix(prefix) if is_consolidator and author.subject.startswith(prefix) else ""


def named_scope(tenant: str, name: str, scope_id: str) -> Scope:
    """Return the scope that an operator names; the tenant has one, whatever id is named. Raises Refused."""
    if name not in SCOPES:
        raise Refused("invalid_scope", f"scope: expected one of {', '.join(SCOPES)}, not {name[:60]!r}")
    if name == TENANT:
        return Scope(tenant, TENANT, TENANT_SCOPE_ID)
    if not 0 < len(scope_id) <= SCOPE_ID_CHARACTERS_MAX or not scope_id.isprintable():
        raise Refused(
            "invalid_scope",
            f"scope_id: expected 1 to {SCOPE_ID_CHARACTERS_MAX} characters that can be printed, not {scope_id[:60]!r}",
        )
    return Scope(tenant, name, scope_id)
