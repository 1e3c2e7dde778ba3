"""Definitions as runs see them: their agents, the skills that they load, and what the Context tool tells.

Before: services/runtime/models/agent_definitions.py, the Skill and Context tools. After: table.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import SkillSummary, SkillText
from loomlog.schemas.generated.values import SkillPin
from loomlog.services.core.run.commands import CommandRefusal
from loomlog.services.families.definition.evaluations import Evaluations
from loomlog.services.families.definition.lineage import lineage
from loomlog.services.families.definition.table import FILE, SHARED, TENANT, DefinitionTable, Resolved
from loomlog.services.stream.entities.reads import PositionNotRead

AGENT, SKILL = KINDS["agent"], KINDS["skill"]
SOURCES = {FILE: "static", TENANT: "dynamic"}


class DefinedAgents:
    """Protocol loomlog.services.families.ports.agent_versions.AgentVersions over the table of definitions."""

    def __init__(self, table: DefinitionTable) -> None:
        self._table = table
        self.has_skills = table.has_skills
        self.has_volumes = table.has_volumes
        self.volume = table.volume

    def find(self, agent: str, tenant: str, def_id: str) -> Resolved | CommandRefusal | None:
        table = self._table
        if not def_id:
            return table.resolve(AGENT.name, tenant, agent)
        file = table.find_file(def_id)
        if file is not None and (file.kind, file.name) == (AGENT.name, agent):
            return table.file_version(file)
        line, version = table.find(def_id) or (None, None)
        if line is None or version is None or line.kind != AGENT.name or line.tenant not in (tenant, SHARED):
            return CommandRefusal(code="not_found", message=f"version {def_id[:80]} of {agent} not resolved")
        if line.name != agent:
            return CommandRefusal(code="not_found", message=f"{def_id} is a version of {line.name}, not of {agent}")
        if version.is_retired or line.is_deleted:
            return CommandRefusal(code="not_found", message=f"version {def_id} of {agent} is retired")
        return table.resolved(line, version)

    async def load(self, agent: str, tenant: str, def_id: str) -> None:
        resolved = self.find(agent, tenant, def_id)
        if isinstance(resolved, Resolved):
            await _load(self._table, resolved)


class DefinedSkills:
    """Protocol loomlog.connectors.protocols.SkillShelf over the table of definitions."""

    def __init__(self, table: DefinitionTable) -> None:
        self._table = table

    async def find(self, tenant: str, name: str) -> SkillText | None:
        resolved = self._table.resolve(SKILL.name, tenant, name)
        return None if resolved is None else await self._text(resolved)

    async def version(self, tenant: str, pin: SkillPin) -> SkillText | None:
        place = self._table.find(pin.def_id)
        if place is not None and place[0].kind == SKILL.name and place[0].tenant in (tenant, SHARED):
            return await self._text(self._table.resolved(*place))
        file = self._table.files.get((SKILL.name, pin.name))
        same = file is not None and not pin.def_id and file.content_sha256 == pin.content_sha256
        return await self._text(self._table.file_version(file)) if file is not None and same else None

    async def names(self, tenant: str) -> Sequence[SkillSummary]:
        table = self._table
        names = {name for kind, name in table.files if kind == SKILL.name}
        names |= {line.name for owner in (tenant, SHARED) for line in table.lines(SKILL.name, owner)}
        summaries = []
        for name in sorted(names):
            resolved = table.resolve(SKILL.name, tenant, name)
            if resolved is not None:
                description = str((await _load(self._table, resolved)).get("description", ""))
                source = SOURCES.get(resolved.source, "shared")
                summaries.append(SkillSummary(name=name, description=description, source=source))
        return summaries

    async def _text(self, resolved: Resolved) -> SkillText:
        content = await _load(self._table, resolved)
        return SkillText(
            name=resolved.name,
            description=str(content.get("description", "")),
            body=str(content["body"]),
            tools=tuple(content.get("tools", ())),
            files=content.get("files", {}),
            def_id="" if resolved.source == FILE else resolved.def_id,
            version=resolved.version,
            content_sha256=SKILL.hash(resolved.name, content),
        )


class RunDefinitions:
    """Protocol loomlog.connectors.protocols.DefinitionsView over the table of definitions."""

    def __init__(self, table: DefinitionTable, evaluations: Evaluations) -> None:
        self._table = table
        self._evaluations = evaluations

    def agents(self, tenant: str, prefix: str) -> Sequence[Mapping[str, Any]]:
        table = self._table
        names = {name for kind, name in table.files if kind == AGENT.name}
        names |= {line.name for owner in (tenant, SHARED) for line in table.lines(AGENT.name, owner)}
        resolved = (table.resolve(AGENT.name, tenant, name) for name in sorted(names) if name.startswith(prefix))
        return [_agent_row(one) for one in resolved if one is not None]

    async def lineage(self, tenant: str, def_id: str, depth: int) -> Mapping[str, Any] | None:
        place = self._table.find(def_id)
        if place is None or place[0].tenant not in (tenant, SHARED):
            return None
        view: Mapping[str, Any] = msgspec.to_builtins(lineage(self._table, *place, depth))
        return view

    async def evaluations(
        self, tenant: str, def_id: str, include_lineage: bool, positions: Sequence[str]
    ) -> Mapping[str, Any] | None:
        if self._table.find_file(def_id) is None:
            place = self._table.find(def_id)
            if place is None or place[0].tenant not in (tenant, SHARED):
                return None
        try:
            sums = await self._evaluations.aggregate(
                tenant, def_id, include_lineage=include_lineage, positions=positions
            )
        except PositionNotRead as error:
            raise Transient(str(error), kind="unavailable") from error
        view: Mapping[str, Any] = msgspec.to_builtins(sums)
        return view


async def _load(table: DefinitionTable, resolved: Resolved) -> Mapping[str, Any]:
    try:
        return await table.load(resolved)
    except PositionNotRead as error:
        raise Transient(str(error), kind="unavailable") from error


def _agent_row(resolved: Resolved) -> dict[str, Any]:
    content = resolved.content or {}
    row = {"name": resolved.name, "tools_count": len(content.get("tools", ()))}
    row |= {key: content[key] for key in ("tier", "model", "provider") if content.get(key)}
    return row if resolved.source == FILE else row | {"active_def_id": resolved.def_id}
