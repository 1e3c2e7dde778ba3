"""Protocol through which starts, forks and children obtain the definition of an agent.

Before: services/runtime/run/start_handler.py, services/runtime/run/fork_definition.py,
services/runtime/run/child_runs.py. After: agent_definitions.py reads the configuration.
"""

from collections.abc import Collection, Set
from typing import Protocol

from loomlog.schemas.generated.values import AgentDefinition, ApprovalPolicy
from loomlog.services.core.run.commands import CommandRefusal


class DefinitionResolver(Protocol):
    """Resolves an agent by name to the definition that a run is pinned to; `def_id`: to that version of it.

    `credentials`: the names of those that the run brings, which may be keys for its calls. `tools`: the caller's choice
    of tools, for a prompt that describes them; the definition's own list of tools is not narrowed. `is_child`: an agent
    that names no volumes has INHERITED_VOLUMES (services/core/run/subagents/children.py), not the default one.
    """

    def resolve(
        self,
        agent: str,
        *,
        tenant: str,
        user_tier: str,
        user_id: str = "",
        credentials: Collection[str] = (),
        operator_key_restricted: bool = False,
        tools: tuple[str, ...] | None = None,
        def_id: str = "",
        is_child: bool = False,
    ) -> AgentDefinition | CommandRefusal: ...

    def is_loaded(self, agent: str, *, tenant: str, def_id: str = "") -> bool:
        """Whether `resolve` has what it needs; otherwise `load` it first."""
        return True

    async def load(self, agent: str, *, tenant: str, def_id: str = "") -> None:
        """Load the content of a definition that lies elsewhere. Raises ConnectorError."""

    def policies_in_force(self, agent: str, tenant: str) -> tuple[ApprovalPolicy, ...]:
        """Return the rules for tool calls that a run of that agent would be pinned to if it started now."""
        return ()

    def providers(self) -> Set[str]:
        """Return the providers that can be called, some perhaps only with keys that the run brings."""
        ...


def can_start(agents: DefinitionResolver, agent: str, tenant: str) -> bool:
    """Return whether a tenant has an agent, on a model that can be called now; protocol StartableAgents of ports."""
    resolved = agents.resolve(agent, tenant=tenant, user_tier="")
    return isinstance(resolved, AgentDefinition) or resolved.code == "definition_pending"
