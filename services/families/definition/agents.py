"""Agents as their runs see them from outside: those that can be run, and what a run was pinned to.

Before: services/api/process_handlers.py, services/application/definition_runs.py. After: table.py, items.py.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import orjson

from loomlog.connectors.errors import ConnectorError, describe_unreachable
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.runs import RunRow
from loomlog.schemas.position import Position
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.author import definition_tenant
from loomlog.services.families.definition.evaluations import definition_of_run
from loomlog.services.families.definition.items import PROMOTION_ITEM
from loomlog.services.families.definition.queries import visible_place
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import AGENT, FILE, NAME, SHARED, DefinitionTable, FileDefinition
from loomlog.services.families.ports.run_blame import Blame, FileNow
from loomlog.services.families.ports.runnable_agents import RunnableDefinition
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

RETRY_S = 1
SOURCES = {FILE: "bundled"}
"""Names of sources on the wire, where they are others (parity: reference surfaces 1.4)."""
T = TypeVar("T")


class DefinitionAgents:
    """Protocol loomlog.services.families.ports.runnable_agents.RunnableAgents over the table of definitions."""

    def __init__(self, table: DefinitionTable) -> None:
        self._table = table

    async def list(self, tenant: str) -> list[RunnableDefinition]:
        names = {name for (kind, name) in self._table.files if kind == AGENT}
        names |= {line.name for owner in (SHARED, tenant) for line in self._table.lines(AGENT, owner)}
        agents = [await self.find(tenant, name) for name in sorted(names)]
        return [one for one in agents if one is not None]

    async def find(self, tenant: str, name: str) -> RunnableDefinition | None:
        resolved = self._table.resolve(AGENT, tenant, name)
        if resolved is None:
            return None
        content = await _read(self._table.load(resolved))
        return RunnableDefinition(name=name, source=SOURCES.get(resolved.source, resolved.source), content=content)


class DefinitionBlame:
    """Protocol loomlog.services.families.ports.run_blame.RunBlame over the table and the items of definitions."""

    def __init__(self, table: DefinitionTable, reads: EntityReads) -> None:
        self._table = table
        self._reads = reads

    def require_agent(self, def_id: str, tenant: str, *, is_admin: bool) -> None:
        owner = definition_tenant(tenant, is_admin=is_admin)
        place = visible_place(self._table, def_id, owner, is_admin=is_admin)
        if isinstance(place, FileDefinition):
            text = f"{def_id} is of a configuration file, to which no run is pinned: list runs by agent"
            raise Refused("bad_request", text)
        if place[0].kind != AGENT:
            raise Refused("bad_request", f"{def_id} is a {place[0].kind}: only agents have runs")

    async def of_run(self, run: RunRow) -> Blame:
        def_id, _ = definition_of_run(self._table, run)
        place = self._table.find(def_id)
        resolved = self._table.resolve(AGENT, run.tenant, run.agent)
        blame: Blame = {
            "run_id": run.run_id,
            "agent": run.agent,
            "def_id": def_id,
            "version": run.def_version,
            "source": None if run.def_id else "file",
            "content_sha256": None,
            "definition_sha256": run.definition_sha256 or None,
            "created_at": None,
            "created_by": None,
            "created_by_agent_id": None,
            "created_by_run_id": None,
            "description": None,
            "parent_def_id": None,
            "promoted_at": None,
            "promoted_by": None,
            "promoted_why": None,
            "promotion_position": None,
            "is_active_now": resolved is not None and resolved.def_id == def_id,
            "file": self._file_now(run, place),
            "skills": None,
        }
        if run.def_id and place is not None:
            await self._add_version(blame, run, *place)
        return blame

    async def _add_version(self, blame: Blame, run: RunRow, line: Line, version: Version) -> None:
        item = await _read(self._table.item(line, version))
        reading = self._reads.newest_items(
            NAME, line.tenant, PROMOTION_ITEM, "key_b", [run.def_id], number_max=run.started_at_ms
        )
        promotion = (await _read(reading)).get(run.def_id)
        blame["source"] = "tenant" if line.tenant else "shared"
        blame["content_sha256"] = item["content_sha256"] or None
        blame["created_at"] = format_rfc3339(version.created_at_ms)
        blame["created_by"] = item["by"] or None
        blame["created_by_agent_id"] = item["created_by_agent_id"] or None
        blame["created_by_run_id"] = item["created_by_run_id"] or None
        blame["description"] = item["description"] or None
        blame["parent_def_id"] = item["parent_def_id"] or None
        if promotion is not None:
            document: Mapping[str, Any] = orjson.loads(promotion.document)
            blame["promoted_at"] = format_rfc3339(int(promotion.number or 0))
            blame["promoted_by"] = document["by"] or None
            blame["promoted_why"] = document["why"] or None
            place = Position(topic=self._reads.topic, partition=promotion.partition, offset=promotion.offset)
            blame["promotion_position"] = str(place)

    def _file_now(self, run: RunRow, place: tuple[Line, Version] | None) -> FileNow | None:
        file = self._table.files.get((AGENT, run.agent))
        if file is None:
            return None
        differs = place[1].digest != file.digest if run.def_id and place is not None else None
        return {"def_id": file.def_id, "differs_from_pin": differs}


async def _read(reading: Awaitable[T]) -> T:
    """Return what a read gives; errors of stores become refusals."""
    try:
        return await reading
    except PositionNotRead as error:
        raise Refused("definitions_unavailable", str(error), retry_after_s=RETRY_S) from error
    except ConnectorError as error:
        text = describe_unreachable("the read models", error)
        raise Refused("projection_unavailable", text, retry_after_s=RETRY_S) from error
