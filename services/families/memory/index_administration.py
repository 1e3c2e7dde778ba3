"""What an operator does with the vectors of a tenant: count them, make missing ones, remove those of former models.

All but the count name a scope and change nothing by default (`dry_run`). One call handles at most ENTRIES_MAX entries,
in batches of 64; `more` and `truncated` tell that there are others.

Before: handlers.py. After: projections/memory_index.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, structs

from loomlog.connectors.errors import ConnectorError
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.memory_index.embedding import BATCH, EmbedderRefused, EntryEmbedder, LoadEntries
from loomlog.projections.memory_index.reads import IndexMissing, MemoryIndex
from loomlog.projections.memory_index.vectors import Embedder, EmbeddingSet, VectorStore, Waiting, is_of
from loomlog.services.core.families import aggregate_id, name_in_tenant
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory.api import (
    MemoryBackfillEmbeddings,
    MemoryEmbedStats,
    MemoryModel,
    MemoryModelRow,
    MemoryPurgeStaleEmbeddings,
    MemoryReembed,
)
from loomlog.services.families.memory.author import Scope, scope_of_aggregate
from loomlog.services.families.memory.items import ENTRY_ITEM, entry_id
from loomlog.services.families.memory.store import FAMILY_NAME
from loomlog.services.families.operation import Decrypt, plaintext
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

ENTRIES_MAX = 10_000
"""Entries of one call: those of a whole scope by default."""
SAMPLE_KEYS_MAX = 10
FAILED_KEYS_MAX = 100


def load_by(reads: EntityReads) -> LoadEntries:
    """Return the function that reads the rows of entries."""

    async def load(tenant: str, places: Sequence[tuple[str, str]]) -> list[ItemRow | None]:
        ids = []
        for aggregate, key in places:
            scope = scope_of_aggregate(tenant, name_in_tenant(aggregate, tenant))
            ids.append(entry_id(scope.name, scope.id, key))
        rows = {row.id: row for row in await reads.load_items(FAMILY_NAME, tenant, ENTRY_ITEM, ids)}
        return [rows.get(one) for one in ids]

    return load


@dataclass(slots=True)
class Embedded:
    """What became of entries that were to be embedded."""

    embedded: int = 0
    empty: int = 0
    failed: list[str] = field(default_factory=list)
    """Keys."""


class IndexAdministration:
    """The operations.

    All raise Refused(vector_unsupported, embedder_not_configured) and Unavailable.
    """

    def __init__(
        self, index: MemoryIndex, reads: EntityReads, *, decrypt: Decrypt = plaintext, embedder: Embedder | None = None
    ) -> None:
        self._index, self._load = index, load_by(reads)
        self._decrypt, self._embedder = decrypt, embedder

    async def embed_stats(self, tenant: str) -> MemoryEmbedStats:
        """Return which models have embedded how much of a tenant."""
        store = await self._store()
        try:
            statistics = await store.statistics(tenant)
        except ConnectorError as error:
            raise _unavailable(error) from error
        return MemoryEmbedStats(
            tenant=tenant,
            models=[
                MemoryModelRow(provider=of.provider, model=of.model, dimension=of.dimension, rows=rows, bytes=size)
                for of, rows, size in statistics
            ],
            total_embedding_bytes=sum(size for _, _, size in statistics),
            notes=self._notes([of for of, _, _ in statistics]) or UNSET,
        )

    async def reembed(self, scope: Scope, *, dry_run: bool = True) -> MemoryReembed:
        """Give all entries of a scope that ask for it a vector of the present embedder."""
        try:
            work, target = await self._target(dry_run)
            full = aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate)
            total = await work.store.count_embeddable(full)
            entries = await work.store.embeddable(full, target.id, in_no_set=False, after="", limit=ENTRIES_MAX)
            answer = MemoryReembed(
                scope=scope.name,
                scope_id=scope.id,
                dry_run=dry_run,
                rows_total=total,
                current_embedder=shown_model(target),
            )
            if dry_run:
                keys = [one.key for one in entries[:SAMPLE_KEYS_MAX]]
                return structs.replace(
                    answer,
                    rows_to_reembed=len(entries),
                    sample_keys=keys,
                    sample_keys_capped=len(entries) > len(keys),
                )
            outcome = await self._embed(work, target, entries)
        except (ConnectorError, PositionNotRead, IndexMissing, EmbedderRefused) as error:
            raise _unavailable(error) from error
        return structs.replace(
            answer,
            rows_reembedded=outcome.embedded,
            rows_failed=len(outcome.failed),
            failed_keys=outcome.failed[:FAILED_KEYS_MAX] or UNSET,
        )

    async def backfill(self, scope: Scope, *, dry_run: bool = True) -> MemoryBackfillEmbeddings:
        """Give entries that ask for a vector, and have none of any model, theirs."""
        try:
            work, target = await self._target(dry_run)
            full = aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate)
            entries = await work.store.embeddable(full, target.id, in_no_set=True, after="", limit=ENTRIES_MAX + 1)
            more, entries = len(entries) > ENTRIES_MAX, entries[:ENTRIES_MAX]
            outcome = Embedded() if dry_run else await self._embed(work, target, entries)
        except (ConnectorError, PositionNotRead, IndexMissing, EmbedderRefused) as error:
            raise _unavailable(error) from error
        return MemoryBackfillEmbeddings(
            scope=scope.name,
            scope_id=scope.id,
            dry_run=dry_run,
            candidates=len(entries),
            embedded=outcome.embedded,
            failed=len(outcome.failed),
            skipped_empty=outcome.empty,
            more=more,
        )

    async def purge_stale(self, scope: Scope, *, dry_run: bool = True) -> MemoryPurgeStaleEmbeddings:
        """Remove the vectors of models that neither answer nor are being computed."""
        store = await self._store()
        full = aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate)
        try:
            scanned, stale = await store.stale(full, ENTRIES_MAX + 1)
            truncated, stale = len(stale) > ENTRIES_MAX, stale[:ENTRIES_MAX]
            purged = 0 if dry_run or not stale else await store.purge(full, stale)
        except ConnectorError as error:
            raise _unavailable(error) from error
        return MemoryPurgeStaleEmbeddings(
            scope=scope.name,
            scope_id=scope.id,
            dry_run=dry_run,
            scanned=scanned,
            stale=len(stale),
            purged=purged,
            truncated=truncated,
        )

    async def _store(self) -> VectorStore:
        try:
            store = await self._index.vectors()
        except IndexMissing as error:
            raise Refused("vector_unsupported", str(error)) from error
        except ConnectorError as error:
            raise _unavailable(error) from error
        if store is None:
            raise Refused("vector_unsupported", "this Postgres has no pgvector, so there are no vectors")
        return store

    async def _target(self, dry_run: bool) -> tuple[EntryEmbedder, EmbeddingSet]:
        """Return the set of the embedder; of a dry run it may be one that nothing was written to yet."""
        store = await self._store()
        if self._embedder is None:
            raise Refused(
                "embedder_not_configured", "no embedder is configured: set memory.embedder in the configuration"
            )
        work = EntryEmbedder(
            store, self._embedder, load=self._load, decrypt=self._decrypt_text, hasher=self._index.hasher
        )
        if not dry_run:
            return work, await work.target()
        return work, next((one for one in await store.sets() if is_of(one, self._embedder)), _unwritten(self._embedder))

    async def _embed(self, work: EntryEmbedder, target: EmbeddingSet, entries: Sequence[Waiting]) -> "Embedded":
        done = Embedded()
        for start in range(0, len(entries), BATCH):
            outcome = await work.embed(entries[start : start + BATCH], target)
            done.embedded += len(outcome.embedded)
            done.empty += len(outcome.empty)
            done.failed += [one.key for one in (*outcome.failed, *outcome.later)]
        return done

    async def _decrypt_text(self, text: str, tenant: str) -> str | None:
        return str(await self._decrypt(text, tenant))

    def _notes(self, sets: Sequence[EmbeddingSet]) -> list[str]:
        notes = []
        if len(sets) > 1:
            notes.append("there are vectors of several models; a search uses those of one")
        for of in sets:
            if not of.is_active and not of.is_target:
                notes.append(f"vectors of {of.provider}/{of.model} ({of.dimension}) are stale: purge them")
            elif of.is_target and not of.is_active:
                notes.append(f"vectors of {of.provider}/{of.model} ({of.dimension}) are still being computed")
        return notes


def _unwritten(embedder: Embedder) -> EmbeddingSet:
    return EmbeddingSet(0, embedder.provider, embedder.model, embedder.dimension, False, False)


def shown_model(of: EmbeddingSet) -> MemoryModel:
    """Return a model of vectors as it is shown."""
    return MemoryModel(provider=of.provider, model=of.model, dimension=of.dimension)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"the vectors of memory cannot be read or made: {error}")
