"""The agents that a tenant can run.

Before: services/api/process_handlers.py, application.py. After: services/families/definition/table.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.services.application.errors import RETRY_SOON_S, unavailable
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.table import AGENT, FILE, SHARED, DefinitionTable
from loomlog.services.stream.entities.reads import PositionNotRead

SOURCES = {FILE: "bundled"}
"""Names of sources on the wire, where they are others (parity: reference surfaces 1.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableDefinition:
    """An agent that can be run. `source`: bundled (a file), tenant or shared."""

    name: str
    source: str
    content: Mapping[str, Any]


class Definitions:
    """The use cases. All methods raise Refused."""

    def __init__(self, table: DefinitionTable) -> None:
        self.table = table

    async def runnable_agents(self, caller: Caller) -> list["RunnableDefinition"]:
        """Return the agents that the caller's tenant can run, by name."""
        names = {name for (kind, name) in self.table.files if kind == AGENT}
        names |= {line.name for owner in (SHARED, caller.tenant) for line in self.table.lines(AGENT, owner)}
        resolved = [await self._runnable(caller.tenant, name) for name in sorted(names)]
        return [one for one in resolved if one is not None]

    async def runnable_agent(self, caller: Caller, name: str) -> "RunnableDefinition | None":
        """Return an agent that the caller's tenant can run."""
        return await self._runnable(caller.tenant, name)

    async def _runnable(self, tenant: str, name: str) -> "RunnableDefinition | None":
        resolved = self.table.resolve(AGENT, tenant, name)
        if resolved is None:
            return None
        content = await self.read(self.table.load(resolved))
        return RunnableDefinition(name=name, source=SOURCES.get(resolved.source, resolved.source), content=content)

    async def read(self, reading: Any) -> Any:
        """Return what a read gives; errors of stores become refusals."""
        try:
            return await reading
        except PositionNotRead as error:
            raise Refused("definitions_unavailable", str(error), retry_after_s=RETRY_SOON_S) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error
