"""The agents that a tenant can run, with what they are defined as.

Before: services/api/process_handlers.py. After: services/families/definition/agents.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableDefinition:
    """An agent that can be run. `source`: bundled (a file), tenant or shared."""

    name: str
    source: str
    content: Mapping[str, Any]


class RunnableAgents(Protocol):
    """Finds them. All methods raise Refused."""

    async def list(self, tenant: str) -> Sequence[RunnableDefinition]:
        """Return all, by name."""
        ...

    async def find(self, tenant: str, name: str) -> RunnableDefinition | None: ...
