"""Rows of resting aggregates for their owner: the read model `entities`, verified before it is used.

Before: services/stream/entities/handler.py asks. After: projections/entities.py.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections import entities
from loomlog.projections.entities import EntityRow, Seal
from loomlog.schemas.records import replace
from loomlog.services.core.canonical import UnreadableState
from loomlog.services.core.entity import Entity
from loomlog.services.stream.entities.batched_lookups import BatchedLookups
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.families import FamilySet, UnknownFamily

BATCH_MAX = 1_000
"""Most keys of one query."""

TimersKey = tuple[int, int, int]
"""Partition, time before which timers are due, and limit."""


class EntityRows:
    """Protocol loomlog.services.stream.entities.cold.ColdRows over Postgres. All methods raise Transient, also while no
    projector has made the tables yet, or Permanent.

    `seals` are those of the projector: under the key of the installation, and under the previous one.
    """

    def __init__(
        self, reader: PostgresReader, families: FamilySet, *, events_topic: str, seals: Sequence[Seal]
    ) -> None:
        self._reader = reader
        self._families = families
        self._topic = events_topic
        self._seals = seals
        self._offsets = BatchedLookups(self._fetch_offsets, batch_max=BATCH_MAX)
        self._aggregates = BatchedLookups(self._fetch_rows, batch_max=BATCH_MAX)
        self._commands = BatchedLookups(self._fetch_commands, batch_max=BATCH_MAX)
        self._timers = BatchedLookups(self._fetch_timers, batch_max=BATCH_MAX)

    async def next_offset(self, partition: int) -> int:
        return await self._offsets.get(partition) or 0

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, dict[str, ColdAggregate]]:
        below = await self.next_offset(partition)  # first: the rows that are read after it are at least as new
        rows = await asyncio.gather(*map(self._aggregates.get, aggregates))
        return below, {row.aggregate: self.verified(row) for row in rows if row is not None}

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        below = await self.next_offset(partition)
        return below, await self._commands.get((aggregate, command_id))

    async def _fetch_offsets(self, partitions: Sequence[int]) -> Mapping[int, int]:
        with tables_may_be_missing():
            return await entities.next_offsets(self._reader, self._topic, partitions)

    async def _fetch_rows(self, names: Sequence[str]) -> Mapping[str, EntityRow]:
        with tables_may_be_missing():
            return {row.aggregate: row for row in await entities.load_entities(self._reader, names)}

    async def _fetch_commands(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], HandledCommand]:
        with tables_may_be_missing():
            rows = await entities.find_commands(self._reader, [command_id for _, command_id in keys])
        return {
            (row.aggregate, row.command_id): HandledCommand(first_offset=row.first_offset, last_offset=row.last_offset)
            for row in rows
        }

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        return await self._timers.get((partition, before_ms, limit)) or ()

    async def _fetch_timers(self, keys: Sequence[TimersKey]) -> Mapping[TimersKey, Sequence[tuple[str, int]]]:
        timers: dict[TimersKey, Sequence[tuple[str, int]]] = {}
        for before_ms, limit in {key[1:] for key in keys}:
            partitions = [key[0] for key in keys if key[1:] == (before_ms, limit)]
            with tables_may_be_missing():
                due = await entities.due_timers(self._reader, partitions, before_ms, limit)
            timers |= {(number, before_ms, limit): of_partition for number, of_partition in due.items()}
        return timers

    def shown(self, row: EntityRow) -> Entity[Any]:
        """Return what a read shows of a row: a halted aggregate as it was at its last good event, with the reason; one
        whose state cannot be used without it.
        """
        usable = self.verified(row) if row.halted_offset < 0 else self._last_good(row)
        entity: Entity[Any] | None = usable.state
        if entity is None:
            empty: Entity[Any] = self._families.of(row.aggregate).rules.initial(row.aggregate)
            return replace(empty, seq=row.seq, quarantine=usable.problem)
        return replace(entity, quarantine=row.quarantine) if row.halted_offset >= 0 else entity

    def _last_good(self, row: EntityRow) -> ColdAggregate:
        checked = self.verified(row)
        if not entities.verify_seal(row, *self._seals) or row.state == "null":
            return checked
        try:
            return replace(checked, state=self._families.of(row.aggregate).states.decode(row.state.encode()))
        except UnreadableState:
            return checked

    def verified(self, row: EntityRow) -> ColdAggregate:
        """Return the aggregate of a row, without its state when the row cannot be used."""
        state, problem = None, ""
        try:
            family = self._families.of(row.aggregate)
            if not entities.verify_seal(row, *self._seals):
                problem = "its row was edited: the seal does not fit"
            elif row.version != family.rules.version:
                problem = f"its row was made by fold version {row.version}, this is {family.rules.version}"
            elif row.halted_offset >= 0:
                problem = f"it was halted at offset {row.halted_offset}: {row.quarantine}"
            else:
                state = family.states.decode(row.state.encode())
        except (UnknownFamily, UnreadableState) as error:
            problem = f"its state cannot be read: {error}"
        return ColdAggregate(
            aggregate=row.aggregate,
            tenant=row.tenant,
            state=state,
            seq=row.seq,
            digest=row.digest,
            first_offset=row.first_offset,
            last_offset=row.last_offset,
            size_bytes=len(row.state),
            problem=problem,
        )


@contextmanager
def tables_may_be_missing() -> Iterator[None]:
    """Raise Transient for tables that do not exist: a projector that starts later makes them."""
    try:
        yield
    except Permanent as error:
        if error.kind != "not_found":
            raise
        raise Transient(
            f"there are no rows of entities until a projector has made them: {error}", kind="unavailable"
        ) from error
