"""Projection of entities: their tables, how a stored state is read back, and which folds made the rows.

The families' folds and the seal are handed in: projections know no family. A row that is read back is verified: one
that was edited, or whose state this fold cannot read, halts its aggregate at its next event.

A claim records the folds of all families as the ones that make the rows from here on. So rows that another version
made, or under another key of the seals, are folded again before it (family_folds.py).

Before: projection.py reads the records. After: entity_fold.py; Postgres.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import psycopg
from psycopg import sql

from loomlog.projections import entities, entity_items, problems
from loomlog.projections.engine.batch import ENTITY_EVENTS, ProjectionBatch
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.entity_fold import EntityFold, EntityState, FoldFailed, fold_entities
from loomlog.projections.engine.family_folds import record_folds
from loomlog.projections.engine.projection import FoldedBatch, Projection
from loomlog.projections.engine.state_cache import StateCache
from loomlog.projections.engine.writer import make_remover, make_writer, render_statement
from loomlog.projections.entities import EntityRow, Seal, plain_seal, verify_seal
from loomlog.schemas.codec import Codec
from loomlog.schemas.records import replace

KNOWN_ENTITIES_MAX = 20_000
KNOWN_BYTES_MAX = 64_000_000
"""Cached states in encoded bytes, several times as much in memory; an uncached state costs a read at its next event."""


class EntityProjection(Projection[EntityState]):
    """Writes one build of the projection of entities; with `families`, the rows of these alone."""

    events = ENTITY_EVENTS

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        build: Build,
        topic: str,
        *,
        owner: str,
        folds: Mapping[str, EntityFold],
        codec: Codec | None = None,
        seal: Seal = plain_seal,
        families: frozenset[str] | None = None,
    ) -> None:
        schema = build.schema
        super().__init__(
            connection,
            build,
            topic,
            owner=owner,
            codec=codec,
            writers=(
                make_writer(schema, entities.entities, "replace"),
                make_writer(
                    schema, entities.entity_commands, "cover", keep=frozenset({"partition", "first_offset", "at_ms"})
                ),
                make_writer(schema, entity_items.entity_items, "replace"),
                make_remover(schema, entity_items.entity_items),
                make_writer(schema, problems.entity_problems, "insert"),
            ),
            read=_read_statement(schema),
            cache=StateCache(
                entries_max=KNOWN_ENTITIES_MAX,
                bytes_max=KNOWN_BYTES_MAX,
                size_bytes=lambda state: len(state.row.state) if state.row is not None else 0,
            ),
        )
        self._folds, self._seal = folds, seal
        if families is not None:
            self.kinds = dataclasses.replace(self.events, selects=lambda name: name.partition(":")[0] in families)

    async def claim(self, partitions: Iterable[int]) -> dict[int, int]:
        """Claims the partitions, records the folds of this process, and returns the offsets to read from."""
        positions = await super().claim(partitions)
        await record_folds(self._connection, self._build.schema, self._folds, self._seal)
        return positions

    def _fold(self, batch: ProjectionBatch, states: Mapping[str, EntityState]) -> FoldedBatch[EntityState]:
        changes = fold_entities(self.topic, batch, states, folds=self._folds, seal=self._seal)
        return FoldedBatch(
            rows=(changes.entities, changes.commands, changes.items, changes.removed_items, changes.problems),
            problems=changes.problems,
            states=changes.states,
        )

    async def _read_states(self, rows: Sequence[tuple[Any, ...]]) -> dict[str, EntityState]:
        return {row.aggregate: self._stored_state(row) for row in map(EntityRow._make, rows)}

    def _stored_state(self, row: EntityRow) -> EntityState:
        state = EntityState(row=row)
        if not verify_seal(row, self._seal):
            problem = "its row in the read model was changed by another writer than the projector; rebuild its family"
            return replace(state, problem=problem)
        fold = self._folds.get(row.family)
        if row.halted_offset >= 0 or fold is None:
            return state
        try:
            return replace(state, state=fold.decode(row.state.encode()))
        except FoldFailed as error:
            return replace(state, problem=f"the state in its row cannot be read: {error}; rebuild its family")


@cache
def _read_statement(schema: str) -> bytes:
    """SELECT of the rows of aggregates."""
    return render_statement(
        sql.SQL("SELECT * FROM {} WHERE aggregate = ANY(%s)").format(sql.Identifier(schema, entities.entities.name))
    )
