"""The author of an operation on definitions, and how an operation is refused.

Before: services/application/definitions.py, services/runtime/tools/definition_tools.py. After: operations.py,
authorship.py, composition.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


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
