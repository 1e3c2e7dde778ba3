"""The author of an operation on definitions.

Before: handlers.py. After: operations.py, authorship.py, composition.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.tools.skill_patterns import parse_patterns
from loomlog.services.core.operations import Call
from loomlog.services.families.definition.table import SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDefinition:
    """What a run may do: the version of its agent that it is pinned to, and what its caller has left of it."""

    def_id: str = ""
    """Empty for an agent of a file."""
    tools: tuple[str, ...] = ()
    """Names and patterns of the tools that the run may use."""
    hosts: tuple[str, ...] = ()
    """Hosts that the run may reach."""
    has_narrowed_hosts: bool = False
    """Its caller chose its hosts."""
    user_tier: str = ""
    user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The author of an operation. Outside a run nothing but the tenant is limited."""

    tenant: str
    subject: str
    command_id: str
    """The same for a repetition."""
    issued_at_ms: int
    is_admin: bool = False
    agent_id: str = ""
    agent: str = ""
    run_id: str = ""
    root_run_id: str = ""
    """Root of the tree of its run."""
    definition: RunDefinition | None = None
    """What its run is pinned to; None outside a run."""
    grants: Mapping[str, Any] | None = None
    """What its agent may author, by key of the agent; None outside a run."""
    allows_skill: Callable[[str], bool] = lambda name: True
    operator_key_restricted: bool = False
    """Its runs, and those of what it writes, may not use the operator's provider keys."""
    is_isolated: bool = False
    """It acts for a user who sees only what is their own; `subject` is the user."""


SHARED_NAME = "_shared"
"""Tenant that administrators name for the definitions of all tenants."""


def definition_tenant(tenant: str, *, is_admin: bool) -> str:
    """Return the tenant whose definitions a request means."""
    return SHARED if is_admin and tenant == SHARED_NAME else tenant


def author_of(call: Call[Any]) -> Author:
    """Return the caller of an operation as an author: a principal, or a run with what its agent may do."""
    caller, run = call.caller, call.caller.run
    if run is None:
        return Author(
            tenant=caller.tenant,
            subject=caller.subject,
            command_id=call.command_id,
            issued_at_ms=call.issued_at_ms,
            is_admin=caller.is_admin,
            is_isolated=caller.is_isolated,
            operator_key_restricted=caller.operator_key_restricted,
            agent_id=f"a_http-{caller.name or caller.subject}"[:64],
        )
    return Author(
        tenant=caller.tenant,
        subject=caller.user_id or caller.subject,
        command_id=call.command_id,
        issued_at_ms=call.issued_at_ms,
        agent_id=run.agent_id,
        agent=run.agent,
        run_id=run.run_id,
        root_run_id=run.root_run_id,
        definition=RunDefinition(
            def_id=run.agent_def_id,
            tools=run.tool_grants,
            hosts=run.allowed_hosts,
            has_narrowed_hosts=run.hosts_source == "caller",
            user_tier=run.user_tier,
            user_id=caller.user_id,
        ),
        grants=run.grants,
        allows_skill=parse_patterns(tuple(run.grants.get("skills") or ())).allows,
        operator_key_restricted=run.operator_key_restricted,
        is_isolated=caller.is_isolated or caller.is_for_isolated,
    )
