"""Runs and definitions: the runs of a version, and why a run did what it did.

Before: services/application/operations/definition_run_handlers.py. After: the items of
services/families/definition/items.py; the rows of runs.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.runs import RunRow
from loomlog.schemas.position import Position
from loomlog.services.application.definition_json import Blame, FileNow, PinnedSkill
from loomlog.services.application.definitions import Definitions
from loomlog.services.application.dispatch import resolve_tenant
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunList, RunQueries
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run import state as run_states
from loomlog.services.families.definition.author import definition_tenant
from loomlog.services.families.definition.evaluations import definition_of_run
from loomlog.services.families.definition.items import PROMOTION_ITEM
from loomlog.services.families.definition.queries import visible_place
from loomlog.services.families.definition.state import Line, Version
from loomlog.services.families.definition.table import NAME, FileDefinition
from loomlog.services.stream.entities.reads import EntityReads

AGENT = "agent"


class DefinitionRuns:
    """The use cases. All methods raise Refused."""

    def __init__(
        self, definitions: Definitions, queries: RunQueries, histories: RunHistories, reads: EntityReads
    ) -> None:
        self._definitions = definitions
        self._table = definitions.table
        self._queries = queries
        self._histories = histories
        self._reads = reads

    async def runs(
        self,
        caller: Caller,
        def_id: str,
        *,
        statuses: frozenset[str] = frozenset(),
        tenant: str = "",
        limit: int,
        after: str = "",
    ) -> RunList:
        """Return the runs that are pinned to a version of an agent, newest first."""
        owner = definition_tenant(resolve_tenant(caller, tenant), is_admin=caller.is_admin)
        place = visible_place(self._table, def_id, owner, is_admin=caller.is_admin)
        if isinstance(place, FileDefinition):
            raise bad_request(f"{def_id} is of a configuration file, to which no run is pinned: list runs by agent")
        if place[0].kind != AGENT:
            raise bad_request(f"{def_id} is a {place[0].kind}: only agents have runs")
        return await self._queries.runs(
            caller, RunFilter(def_id=def_id, statuses=statuses), tenant=tenant, limit=limit, after=after
        )

    async def blame(self, caller: Caller, run_id: str) -> Blame:
        """Return the version that a run was pinned to, who made it, and who made it active before the run began."""
        row = await self._queries.visible_run(caller, run_id)
        def_id, _ = definition_of_run(self._table, row)
        place = self._table.find(def_id)
        resolved = self._table.resolve(AGENT, row.tenant, row.agent)
        blame: Blame = {
            "run_id": row.run_id,
            "agent": row.agent,
            "def_id": def_id,
            "version": row.def_version,
            "source": None if row.def_id else "file",
            "content_sha256": None,
            "definition_sha256": row.definition_sha256 or None,
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
            "file": self._file_now(row, place),
            "skills": await self._skills(caller, run_id),
        }
        if row.def_id and place is not None:
            await self._add_version(blame, row, *place)
        return blame

    async def _add_version(self, blame: Blame, row: RunRow, line: Line, version: Version) -> None:
        item = await self._definitions.read(self._table.item(line, version))
        reading = self._reads.newest_items(
            NAME, line.tenant, PROMOTION_ITEM, "key_b", [row.def_id], number_max=row.started_at_ms
        )
        promotion = (await self._definitions.read(reading)).get(row.def_id)
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

    def _file_now(self, row: RunRow, place: tuple[Line, Version] | None) -> FileNow | None:
        file = self._table.files.get((AGENT, row.agent))
        if file is None:
            return None
        differs = place[1].digest != file.digest if row.def_id and place is not None else None
        return {"def_id": file.def_id, "differs_from_pin": differs}

    async def _skills(self, caller: Caller, run_id: str) -> list[PinnedSkill] | None:
        """Return the skills that the run keeps to; None when its history is too long, damaged or not readable now."""
        try:
            state = (await self._histories.state_at(caller, run_id, 0)).replayed.state
        except Refused:
            return None
        pins = () if isinstance(state, run_states.Absent | run_states.Refused) else state.facts.skill_pins
        return [
            {"name": pin.name, "def_id": pin.def_id, "version": pin.version, "content_sha256": pin.content_sha256}
            for pin in pins
        ]
