"""The past of definitions: what was active at a time or a position.

Each change of what is active is a row with its line, its place in the line's history and its time, which all lines of
a batch have in common. So an answer about the past is the newest row of each line up to then, and never shows a part
of a batch.

Before: handlers.py. After: items.py has the rows.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeGuard

import orjson

from loomlog.connectors.definitions import KINDS
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.position import Position
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.refusals import Refused
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.definition.items import PROMOTION_ITEM
from loomlog.services.families.definition.queries import known_kind
from loomlog.services.families.definition.query_api import ActiveDefinition, DefinitionPast, DefinitionsAt
from loomlog.services.families.definition.state import Line, line_id
from loomlog.services.families.definition.table import NAME, SHARED, DefinitionTable, newest_positions
from loomlog.services.stream.entities.reads import EntityReads

LINES_MAX = 5_000
"""Definitions of one answer about the past: about a megabyte."""
NOW = math.inf
TimeOfRecord = Callable[[Position], Awaitable[int]]
"""Returns the time of the record at a position, UTC milliseconds. Raises Refused."""


class DefinitionHistory:
    """The operation. Raises Refused, ConnectorError and PositionNotRead."""

    def __init__(self, table: DefinitionTable, reads: EntityReads, *, time_of: TimeOfRecord) -> None:
        self._table = table
        self._reads = reads
        self._time_of = time_of

    async def past(self, asked: DefinitionPast, tenant: str) -> DefinitionsAt:
        """Return what was active in a tenant and for all of them, at the time or the position that is asked for."""
        if bool(asked.time) == bool(asked.position):
            raise Refused("bad_request", "expected time or position, and one of them only")
        lines = self._lines(asked, tenant)
        if asked.position:
            return await self._at_position(lines, asked.position)
        at_ms = parse_time_ms("time", asked.time)
        rows = await self._newest(lines, number_max=at_ms)
        return DefinitionsAt(definitions=self._active(lines, rows), at=format_rfc3339(at_ms))

    async def _at_position(self, lines: Sequence[Line], text: str) -> DefinitionsAt:
        """Return what was active at a position: in its partition up to its offset, elsewhere up to its time."""
        try:
            position = Position.parse(text)
        except ValueError as error:
            raise Refused("bad_request", f"position: {error}") from error
        at_ms = await self._time_of(position)
        rows = dict(await self._newest(lines, number_max=at_ms))
        if position.topic == self._reads.topic:
            beside = [line for line in lines if self._partition_of(line) == position.partition]
            before = await self._newest(beside, offset_max=position.offset)
            for key in map(_key, beside):
                candidates = [row for row in (rows.pop(key, None), before.get(key)) if _is_read(row, position)]
                if candidates:
                    rows[key] = max(candidates, key=lambda row: row.seq)
        return DefinitionsAt(definitions=self._active(lines, rows), at=str(position))

    def _lines(self, asked: DefinitionPast, owner: str) -> list[Line]:
        kinds = [known_kind(asked.kind)] if asked.kind else sorted(KINDS)
        lines = [
            line
            for one in kinds
            for of in dict.fromkeys((owner, SHARED))
            for line in self._table.lines(one, of, with_deleted=True)
            if asked.name in ("", line.name)
        ]
        if len(lines) > LINES_MAX:
            text = f"there are {len(lines)} definitions, at most {LINES_MAX} are shown: name a kind or a name"
            raise Refused("bad_request", text)
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
            newest = await self._reads.newest_items(
                NAME, tenant, PROMOTION_ITEM, "key_a", keys, positions=positions, **bounds
            )
            rows |= {(tenant, key): row for key, row in newest.items()}
        return rows

    def _active(self, lines: Sequence[Line], rows: Mapping[tuple[str, str], ItemRow]) -> list[ActiveDefinition]:
        return [
            self._active_json(line, row) for line in lines if (row := rows.get(_key(line))) is not None and row.key_b
        ]

    def _active_json(self, line: Line, row: ItemRow) -> ActiveDefinition:
        document = _document(row)
        return ActiveDefinition(
            kind=line.kind,
            name=line.name,
            tenant_id=line.tenant,
            active_def_id=row.key_b,
            version=document["version"],
            promoted_at=format_rfc3339(int(row.number or 0)),
            promoted_by=document["by"],
            why=document["why"],
            position=str(Position(topic=self._reads.topic, partition=row.partition, offset=row.offset)),
        )

    def _partition_of(self, line: Line) -> int:
        full = aggregate_id(NAME, line.tenant, line_id(line.kind, line.name))
        return partition_of(aggregate_key(full), self._reads.partitions)


def _key(line: Line) -> tuple[str, str]:
    return line.tenant, line_id(line.kind, line.name)


def _is_read(row: ItemRow | None, position: Position) -> TypeGuard[ItemRow]:
    """Whether a change in the partition of a position counts: a batch does at its time, wherever its lines are."""
    return row is not None and (row.offset <= position.offset or bool(_document(row).get("batch")))


def _document(row: ItemRow) -> Mapping[str, Any]:
    document: Mapping[str, Any] = orjson.loads(row.document)
    return document
