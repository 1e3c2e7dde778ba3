"""Agents that were defined at run time, and what they may name: skills and volumes.

Before: services/runtime/models/agent_definitions.py. After: services/families/definition/views.py.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from loomlog.connectors.protocols import VolumeBinding
from loomlog.services.core.run.commands import CommandRefusal


class AgentVersion(Protocol):
    """What the name of an agent means."""

    @property
    def is_of_file(self) -> bool: ...
    @property
    def def_id(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def content(self) -> Mapping[str, Any] | None:
        """None while a long one has not been loaded."""
        ...


class AgentVersions(Protocol):
    """What names of agents mean for tenants now."""

    def find(self, agent: str, tenant: str, def_id: str) -> AgentVersion | CommandRefusal | None:
        """Return what the name means for the tenant, or that version of it; None: it has no such agent."""
        ...

    async def load(self, agent: str, tenant: str, def_id: str) -> None:
        """Load the content of what is found. Raises ConnectorError."""
        ...

    def has_skills(self, tenant: str) -> bool:
        """Whether any skill was defined at run time that the tenant may see."""
        ...

    def has_volumes(self, tenant: str) -> bool:
        """Whether any volume was made at run time that the tenant may see."""
        ...

    def volume(self, tenant: str, name: str) -> VolumeBinding | None:
        """Return a volume that was made at run time."""
        ...
