"""The past of definitions: what was active at a time or a position, and why a run did what it did.

Each change of what is active is a row with its line, its place in the line's history and its time, which all lines of
a batch have in common. So an answer about the past is the newest row of each line up to then, and never shows a part
of a batch.

Before: services/api/definition_query_endpoints.py. After: the items of services/families/definition/items.py.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import orjson

from loomlog.connectors.definitions import KINDS
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogRanges
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.runs import RunRow
from loomlog.schemas.codec import Codec, Undecodable, read_envelope
from loomlog.schemas.position import Position
from loomlog.services.application.authentication import require_member, require_scope
from loomlog.services.application.definition_json import ActiveDefinition, Blame, DefinitionsAt, FileNow, PinnedSkill
from loomlog.services.application.definitions import Definitions, kind_named
from loomlog.services.application.errors import bad_request, unavailable
from loomlog.services.application.queries.log_window import LogWindow
from loomlog.services.application.queries.run_history import RunHistories
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import RUNS_READ, TENANT
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run import state as run_states
from loomlog.services.families.definition.evaluations import definition_of_run, judged_run
from loomlog.services.families.definition.items import PROMOTION_ITEM
from loomlog.services.families.definition.state import Line, Version, line_id
from loomlog.services.families.definition.table import NAME, SHARED, newest_positions
from loomlog.services.stream.entities.reads import EntityReads

AGENT = "agent"
LINES_MAX = 5_000
"""Definitions of one answer about the past: about a megabyte."""
NOW = math.inf


class DefinitionHistory:
    """The use cases. All methods raise Refused."""

    def __init__(
        self,
        definitions: Definitions,
        queries: RunQueries,
        histories: RunHistories,
        reads: EntityReads,
        ranges: LogRanges,
        codec: Codec,
        *,
        run_topic: str,
    ) -> None:
        """`run_topic` is that of the events of runs, whose positions stand for their times."""
        self._definitions = definitions
        self._table = definitions.table
        self._queries = queries
        self._histories = histories
        self._reads = reads
        self._windows = {topic: LogWindow(ranges, codec, topic) for topic in (reads.topic, run_topic)}

    # --- what was active ---------------------------------------------------------------------------------------------

    async def at_time(
        self, caller: Caller, at_ms: int, *, kind: str = "", name: str = "", tenant: str = ""
    ) -> DefinitionsAt:
        """Return what was active at a time (UTC milliseconds), in a tenant and for all of them."""
        lines = self._lines(caller, kind, name, tenant)
        rows = await self._newest(lines, number_max=at_ms)
        return {"definitions": self._active(lines, rows), "at": format_rfc3339(at_ms)}

    async def at_position(
        self, caller: Caller, text: str, *, kind: str = "", name: str = "", tenant: str = ""
    ) -> DefinitionsAt:
        """Return what was active at a position: in its partition up to its offset, elsewhere up to its time."""
        lines = self._lines(caller, kind, name, tenant)
        try:
            position = Position.parse(text)
        except ValueError as error:
            raise bad_request(f"position: {error}") from error
        at_ms = await self._time_of(position)
        rows = dict(await self._newest(lines, number_max=at_ms))
        if position.topic == self._reads.topic:
            beside = [line for line in lines if self._partition_of(line) == position.partition]
            before = await self._newest(beside, offset_max=position.offset)
            for key in map(_key, beside):
                candidates = [row for row in (rows.pop(key, None), before.get(key)) if _is_read(row, position)]
                if candidates:
                    rows[key] = max(candidates, key=lambda row: row.seq)
        return {"definitions": self._active(lines, rows), "at": str(position)}

    def _lines(self, caller: Caller, kind: str, name: str, tenant: str) -> list[Line]:
        require_scope(caller, TENANT)
        require_member(caller)
        owner = self._definitions.tenant(caller, tenant)
        kinds = [kind_named(kind).name] if kind else sorted(KINDS)
        lines = [
            line
            for one in kinds
            for of in dict.fromkeys((owner, SHARED))
            for line in self._table.lines(one, of, with_deleted=True)
            if name in ("", line.name)
        ]
        if len(lines) > LINES_MAX:
            raise bad_request(
                f"there are {len(lines)} definitions, at most {LINES_MAX} are shown: name a kind or a name"
            )
        return lines

    async def _newest(
        self, lines: Sequence[Line], *, number_max: float = NOW, offset_max: int | None = None
    ) -> Mapping[tuple[str, str], ItemRow]:
        """Return the newest change of each line up to a time or an offset, by tenant and key."""
        bounds: dict[str, Any] = {"number_max": number_max} if offset_max is None else {"offset_max": offset_max}
        rows: dict[tuple[str, str], ItemRow] = {}
        for tenant in dict.fromkeys(line.tenant for line in lines):
            own = [line for line in lines if line.tenant == tenant]
            positions = newest_positions(map(self._table.position, own))
            keys = [_key(line)[1] for line in own]
            reading = self._reads.newest_items(
                NAME, tenant, PROMOTION_ITEM, "key_a", keys, positions=positions, **bounds
            )
            rows |= {(tenant, key): row for key, row in (await self._definitions.read(reading)).items()}
        return rows

    def _active(self, lines: Sequence[Line], rows: Mapping[tuple[str, str], ItemRow]) -> list[ActiveDefinition]:
        return [
            self._active_json(line, row) for line in lines if (row := rows.get(_key(line))) is not None and row.key_b
        ]

    def _active_json(self, line: Line, row: ItemRow) -> ActiveDefinition:
        document = _document(row)
        return {
            "kind": line.kind,
            "name": line.name,
            "tenant_id": line.tenant,
            "active_def_id": row.key_b,
            "version": document["version"],
            "promoted_at": format_rfc3339(int(row.number or 0)),
            "promoted_by": document["by"],
            "why": document["why"],
            "position": self._position(row),
        }

    def _position(self, row: ItemRow) -> str:
        return str(Position(topic=self._reads.topic, partition=row.partition, offset=row.offset))

    def _partition_of(self, line: Line) -> int:
        full = aggregate_id(NAME, line.tenant, line_id(line.kind, line.name))
        return partition_of(aggregate_key(full), self._reads.partitions)

    async def _time_of(self, position: Position) -> int:
        window = self._windows.get(position.topic)
        if window is None:
            raise bad_request(f"position is of {position.topic[:80]}: expected {' or '.join(sorted(self._windows))}")
        try:
            record = await window.record_at(position.partition, position.offset)
            return read_envelope(record.value or b"")[0].at_ms if record is not None else _no_record(position)
        except Undecodable as error:
            raise bad_request(f"position {position} is of a record without a time: {error}") from error
        except ConnectorError as error:
            raise unavailable("log", error) from error

    # --- blame -------------------------------------------------------------------------------------------------------

    async def blame(self, caller: Caller, run_id: str) -> Blame:
        """Return the version that a run was pinned to, who made it, and who made it active before the run began."""
        require_scope(caller, RUNS_READ)
        row = await self._queries.visible_run(caller, run_id)
        def_id, _ = definition_of_run(self._table, judged_run(row))
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
            document = _document(promotion)
            blame["promoted_at"] = format_rfc3339(int(promotion.number or 0))
            blame["promoted_by"] = document["by"] or None
            blame["promoted_why"] = document["why"] or None
            blame["promotion_position"] = self._position(promotion)

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


def _key(line: Line) -> tuple[str, str]:
    return line.tenant, line_id(line.kind, line.name)


def _is_read(row: ItemRow | None, position: Position) -> TypeGuard[ItemRow]:
    """Whether a change in the partition of a position counts: a batch does at its time, wherever its lines are."""
    return row is not None and (row.offset <= position.offset or bool(_document(row).get("batch")))


def _document(row: ItemRow) -> Mapping[str, Any]:
    document: Mapping[str, Any] = orjson.loads(row.document)
    return document


def _no_record(position: Position) -> int:
    raise bad_request(f"position {position}: there is no record")
