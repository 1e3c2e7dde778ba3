"""Vectors of entries: sets of embeddings, the queue of entries that wait for one, and HNSW indexes.

A set is what one provider, model and dimension has made; only vectors of one set are comparable. The embedder of the
process fills the target set. While that has gaps, the active set answers; then it becomes the active one itself.

A scope is scanned whole up to 20,000 vectors, which is exact. A larger one gets a partial HNSW index of its own, so
that a search never leaves the scope.

Before: embedding.py, services/families/memory/index_administration.py. After: Postgres with pgvector.
"""

import math
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from loomlog.projections.memory_index.entries import BY_INDEX, Place
from loomlog.projections.memory_index.tables import GIVEN_UP, IndexSchemas, connection_of

EXACT_MAX = 20_000
"""Vectors of a scope that are compared one by one: 10 ms at 256 dimensions."""
HNSW_OPTIONS = "m = 16, ef_construction = 64"
HNSW_MEMORY = "512MB"
"""Memory of the build of an index: 200,000 vectors of 256 dimensions take 190 MB."""
RETRY_MS = (2_000, 10_000, 60_000, 600_000)
"""Pauses after the failures of one entry; then it is given up until it changes or is embedded again by hand."""
DELAY_MS = 50
"""Pause before an entry whose row is not there yet is read again."""

Pool = AsyncConnectionPool[Any]


class Embedder(Protocol):
    """The part of connectors/embedders/embedder.py that is used here."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class EmbeddingSet(NamedTuple):
    """Vectors of one provider, model and dimension."""

    id: int
    provider: str
    model: str
    dimension: int
    is_active: bool
    """Whether searches use it."""
    is_target: bool
    """Whether entries get their vectors in it."""


class Waiting(NamedTuple):
    """An entry in the queue."""

    scope: str
    key: str
    tenant: str
    revision: int


class NewVector(NamedTuple):
    """A vector of an entry. `text_key`: name of the embedded text in the cache."""

    scope: str
    key: str
    revision: int
    text_key: bytes
    vector: str


def vector_literal(vector: Sequence[float], dimension: int) -> str | None:
    """Return the text form of a vector, with length 1; None if it is none of that dimension: of another length, with a
    number that is not finite, or all zeros.
    """
    try:
        if len(vector) != dimension or not all(map(math.isfinite, vector)):
            return None
        length = math.hypot(*vector)
    except (TypeError, OverflowError):
        return None
    if not length or not math.isfinite(length):
        return None
    return "[" + ",".join(f"{number / length:.7g}" for number in vector) + "]"


class VectorStore:
    """Reads and writes vectors over a pool. All methods raise Transient or Permanent."""

    def __init__(self, pool: Pool, schemas: IndexSchemas) -> None:
        self._pool, self.schemas = pool, schemas

    async def sets(self) -> list[EmbeddingSet]:
        """Return the sets, oldest first."""
        rows = await self._fetch(
            "SELECT id, provider, model, dimension, is_active, is_target FROM {kept}.sets ORDER BY id"
        )
        return [EmbeddingSet._make(row) for row in rows]

    async def make_target(self, provider: str, model: str, dimension: int) -> EmbeddingSet:
        """Make the set of an embedder the one that is filled: entries without a vector in it are queued."""
        async with self._connection() as connection, connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"{self.schemas.kept}.sets",)
            )
            result = await connection.execute(
                self.schemas.statement(
                    "INSERT INTO {kept}.sets AS s (provider, model, dimension, is_active, is_target) "
                    "VALUES (%s, %s, %s, NOT EXISTS (SELECT FROM {kept}.sets WHERE is_active), false) "
                    "ON CONFLICT (provider, model, dimension) DO UPDATE SET model = s.model "
                    "RETURNING id, provider, model, dimension, is_active, is_target"
                ),
                (provider, model, dimension),
            )
            row = await result.fetchone()
            assert row is not None
            target = EmbeddingSet._make(row)
            if not target.is_target:
                await connection.execute(
                    self.schemas.statement("UPDATE {kept}.sets SET is_target = (id = %s)"), (target.id,)
                )
                await connection.execute(self.schemas.statement(FILL_FROM_CACHE), (target.id,))
                await connection.execute(self.schemas.statement(FILL_QUEUE), (target.id,))
        return target._replace(is_target=True)

    async def activate(self, target: EmbeddingSet) -> bool:
        """Let searches use the set if no entry waits for a vector in it; return whether they do."""
        is_waited_for = "SELECT EXISTS (SELECT FROM {schema}.pending WHERE attempts < %s)"
        if (await self._fetch(is_waited_for, GIVEN_UP))[0][0]:
            return False
        # The writer may not have known the target yet when it wrote an entry.
        await self._execute(FILL_QUEUE, target.id)
        if (await self._fetch(is_waited_for, GIVEN_UP))[0][0]:
            return False
        await self._execute("UPDATE {kept}.sets SET is_active = (id = %s)", target.id)
        return True

    # --- the queue -----------------------------------------------------------------------------------------------

    async def due(self, now_ms: int, limit: int) -> list[Waiting]:
        """Return entries of the queue whose time has come, longest due first."""
        rows = await self._fetch(
            "SELECT scope, key, tenant, revision FROM {schema}.pending WHERE attempts < 5 AND retry_at_ms <= %s "
            "ORDER BY retry_at_ms LIMIT %s",
            now_ms,
            limit,
        )
        return [Waiting._make(row) for row in rows]

    async def store(self, target: EmbeddingSet, vectors: Sequence[NewVector]) -> set[Place]:
        """Write the vectors of entries that still have that revision, and cache them; return their places."""
        ordered = sorted(vectors, key=lambda one: (one.scope, one.key))
        columns = [list(column) for column in zip(*ordered, strict=True)]
        if not columns:
            return set()
        async with self._connection() as connection, connection.transaction():
            await connection.execute(BY_INDEX)
            result = await connection.execute(self.schemas.statement(STORE), (*columns, target.id, target.id))
            return {(scope, key) for scope, key in await result.fetchall()}

    async def postpone(self, entries: Sequence[Waiting], now_ms: int) -> None:
        """Count a failed attempt of entries."""
        pauses = list(RETRY_MS)
        await self._execute(
            "UPDATE {schema}.pending t SET attempts = attempts + 1, "
            "retry_at_ms = %s::bigint + (%s::bigint[])[least(attempts + 1, cardinality(%s::bigint[]))] "
            "FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS p(scope, key, revision) "
            "WHERE (t.scope, t.key, t.revision) = (p.scope, p.key, p.revision)",
            now_ms,
            pauses,
            pauses,
            *_places(entries),
            [one.revision for one in entries],
        )

    async def delay(self, entries: Sequence[Waiting], now_ms: int) -> None:
        """Read these entries again in a moment, old ones later: the projector has not written their rows yet."""
        await self._execute(
            "UPDATE {schema}.pending t SET "
            "retry_at_ms = %s::bigint + greatest(%s, least(%s, (%s::bigint - e.at_ms) / 10)) "
            "FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS p(scope, key, revision) "
            "JOIN {schema}.entries e ON (e.scope, e.key) = (p.scope, p.key) "
            "WHERE (t.scope, t.key, t.revision) = (p.scope, p.key, p.revision)",
            now_ms,
            DELAY_MS,
            RETRY_MS[2],
            now_ms,
            *_places(entries),
            [one.revision for one in entries],
        )

    async def rest(self, entries: Sequence[Waiting], until_ms: int) -> None:
        """Leave entries alone until a time; it counts as no attempt."""
        await self._execute(
            "UPDATE {schema}.pending t SET retry_at_ms = %s "
            "FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS p(scope, key, revision) "
            "WHERE (t.scope, t.key, t.revision) = (p.scope, p.key, p.revision)",
            until_ms,
            *_places(entries),
            [one.revision for one in entries],
        )

    async def forget(self, entries: Sequence[Waiting]) -> None:
        """Take entries out of the queue: they have no text, or are no more."""
        await self._execute(
            "DELETE FROM {schema}.pending t "
            "USING unnest(%s::text[], %s::text[], %s::bigint[]) AS p(scope, key, revision) "
            "WHERE (t.scope, t.key, t.revision) = (p.scope, p.key, p.revision)",
            *_places(entries),
            [one.revision for one in entries],
        )

    async def state(self, scope: str, key: str, revision: int) -> str:
        """Return `embedded`, `pending`, `failed`, or `none`: that revision is not to be embedded, or not the current
        one.
        """
        rows = await self._fetch(
            "SELECT EXISTS (SELECT FROM {schema}.vectors v JOIN {kept}.sets s ON s.id = v.set_id AND s.is_target "
            "WHERE v.scope = %s AND v.key = %s AND v.revision = %s), "
            "(SELECT attempts FROM {schema}.pending WHERE scope = %s AND key = %s AND revision = %s)",
            *(scope, key, revision) * 2,
        )
        is_embedded, attempts = rows[0]
        if is_embedded:
            return "embedded"
        return "none" if attempts is None else "failed" if attempts >= GIVEN_UP else "pending"

    async def models(self, scope: str, revisions: Mapping[str, int]) -> dict[str, EmbeddingSet]:
        """Return the set in which each of these keys has a vector of this revision: the one that answers, if it has."""
        rows = await self._fetch(
            "SELECT v.key, s.id, s.provider, s.model, s.dimension, s.is_active, s.is_target "
            "FROM unnest(%s::text[], %s::bigint[]) AS k(key, revision) JOIN {schema}.vectors v "
            "ON v.scope = %s AND v.key = k.key AND v.revision = k.revision JOIN {kept}.sets s ON s.id = v.set_id "
            "ORDER BY s.is_active, s.id",
            list(revisions),
            list(revisions.values()),
            scope,
        )
        return {key: EmbeddingSet._make(of) for key, *of in rows}

    # --- administration ------------------------------------------------------------------------------------------

    async def statistics(self, tenant: str) -> list[tuple[EmbeddingSet, int, int]]:
        """Return the sets with the number of vectors that a tenant has in each, and their bytes."""
        rows = await self._fetch(
            "SELECT s.id, s.provider, s.model, s.dimension, s.is_active, s.is_target, count(*), "
            "sum(pg_column_size(v.embedding))::bigint FROM {schema}.vectors v JOIN {kept}.sets s ON s.id = v.set_id "
            "WHERE v.tenant = %s GROUP BY s.id ORDER BY s.id",
            tenant,
        )
        return [(EmbeddingSet._make(row[:6]), row[6], row[7]) for row in rows]

    async def embeddable(self, scope: str, set_id: int, *, in_no_set: bool, after: str, limit: int) -> list[Waiting]:
        """Return entries of a scope, by key, that are to be embedded and have no vector in the set; with `in_no_set`,
        in any set.
        """
        of_set = sql.SQL("true") if in_no_set else sql.SQL("v.set_id = {}").format(sql.Literal(set_id))
        rows = await self._fetch(
            "SELECT e.scope, e.key, e.tenant, e.revision FROM {schema}.entries e WHERE e.scope = %s AND e.embed "
            "AND e.key > %s AND NOT EXISTS (SELECT FROM {schema}.vectors v WHERE (v.scope, v.key) = (e.scope, e.key) "
            "AND {of_set}) ORDER BY e.key LIMIT %s",
            scope,
            after,
            limit,
            of_set=of_set,
        )
        return [Waiting._make(row) for row in rows]

    async def count_embeddable(self, scope: str) -> int:
        """Return the number of entries of a scope that are to be embedded."""
        return int((await self._fetch("SELECT count(*) FROM {schema}.entries WHERE scope = %s AND embed", scope))[0][0])

    async def stale(self, scope: str, limit: int) -> tuple[int, list[tuple[str, int]]]:
        """Return the number of vectors of a scope, and key and set of those of sets that are neither active nor the
        target; at most `limit`.
        """
        rows = await self._fetch("SELECT count(*) FROM {schema}.vectors WHERE scope = %s", scope)
        stale = await self._fetch(
            "SELECT v.key, v.set_id FROM {schema}.vectors v JOIN {kept}.sets s ON s.id = v.set_id "
            "WHERE v.scope = %s AND NOT s.is_active AND NOT s.is_target ORDER BY v.key, v.set_id LIMIT %s",
            scope,
            limit,
        )
        return int(rows[0][0]), [(key, set_id) for key, set_id in stale]

    async def purge(self, scope: str, stale: Sequence[tuple[str, int]]) -> int:
        """Delete these vectors and the cached embeddings they came from; return their number."""
        rows = await self._fetch(
            "WITH gone AS (DELETE FROM {schema}.vectors v USING unnest(%s::text[], %s::int[]) AS p(key, set_id) "
            "WHERE v.scope = %s AND (v.key, v.set_id) = (p.key, p.set_id) RETURNING v.key, v.set_id), "
            "uncached AS (DELETE FROM {kept}.embeddings c USING gone JOIN {schema}.entries e "
            "ON e.scope = %s AND e.key = gone.key WHERE (c.text_key, c.set_id) = (e.text_key, gone.set_id)) "
            "SELECT count(*) FROM gone",
            [key for key, _ in stale],
            [set_id for _, set_id in stale],
            scope,
            scope,
        )
        return int(rows[0][0])

    async def build_indexes(self) -> list[str]:
        """Give each scope with more than EXACT_MAX vectors in a set an HNSW index, and drop those of scopes that have
        shrunk to half of it; return what was done. A build of 200,000 vectors takes some minutes, and blocks no write.
        """
        large = await self._fetch(
            "SELECT v.set_id, v.scope, count(*), min(s.dimension) FROM {schema}.vectors v "
            "JOIN {kept}.sets s ON s.id = v.set_id GROUP BY 1, 2 HAVING count(*) > %s",
            EXACT_MAX // 2,
        )
        kept = {
            hnsw_name(set_id, scope): (set_id, scope, count, dimension) for set_id, scope, count, dimension in large
        }
        rows = await self._fetch(
            "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND starts_with(c.relname, 'hnsw_')",
            self.schemas.schema,
        )
        existing: dict[str, bool] = dict(rows)
        done = []
        for name, is_valid in existing.items():
            if name not in kept or not is_valid:
                await self._execute("DROP INDEX CONCURRENTLY IF EXISTS {schema}." + name)
                done.append(f"dropped {name}")
        for name, (set_id, scope, count, dimension) in kept.items():
            if count > EXACT_MAX and not existing.get(name):
                await self._build_index(name, set_id, scope, dimension)
                done.append(f"built {name} of {count} vectors")
        return done

    async def _build_index(self, name: str, set_id: int, scope: str, dimension: int) -> None:
        statement = self.schemas.statement(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON {{schema}}.vectors USING hnsw "
            f"((embedding::{{vector}}.halfvec({dimension})) {{vector}}.halfvec_cosine_ops) WITH ({HNSW_OPTIONS}) "
            "WHERE set_id = {set_id} AND scope = {scope}",
            set_id=sql.Literal(set_id),
            scope=sql.Literal(scope),
        )
        async with self._connection() as connection:
            # Without further processes: they would need as much shared memory, of which containers have 64 MB.
            settings = {"maintenance_work_mem": HNSW_MEMORY, "max_parallel_maintenance_workers": "0"}
            for setting, value in settings.items():
                await connection.execute("SELECT set_config(%s, %s, false)", (setting, value))
            try:
                await connection.execute(statement)
            finally:
                for setting in settings:
                    if not connection.closed:
                        await connection.execute(sql.SQL("RESET {}").format(sql.Identifier(setting)))

    async def try_lock(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        """Take the lock of the one process that embeds, held until the connection closes."""
        result = await connection.execute(
            "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"{self.schemas.kept}.embedding",)
        )
        row = await result.fetchone()
        return row is not None and bool(row[0])

    # --- statements ----------------------------------------------------------------------------------------------

    def _connection(self) -> Any:
        return connection_of(self._pool)

    async def _fetch(self, template: str, *parameters: Any, **names: sql.Composable) -> list[tuple[Any, ...]]:
        async with self._connection() as connection:
            result = await connection.execute(self.schemas.statement(template, **names), parameters)
            rows: list[tuple[Any, ...]] = await result.fetchall()
            return rows

    async def _execute(self, template: str, *parameters: Any) -> None:
        async with self._connection() as connection:
            await connection.execute(self.schemas.statement(template), parameters)


FILL_FROM_CACHE = """
    INSERT INTO {schema}.vectors (set_id, scope, key, tenant, revision, kind, embedding)
    SELECT c.set_id, e.scope, e.key, e.tenant, e.revision, e.kind, c.embedding
    FROM {schema}.entries e JOIN {kept}.embeddings c ON c.text_key = e.text_key AND c.set_id = %s
    WHERE e.embed
    ON CONFLICT DO NOTHING"""
FILL_QUEUE = """
    INSERT INTO {schema}.pending AS p (scope, key, tenant, revision, attempts, retry_at_ms)
    SELECT e.scope, e.key, e.tenant, e.revision, 0, 0 FROM {schema}.entries e
    WHERE e.embed AND NOT EXISTS (
        SELECT FROM {schema}.vectors v WHERE (v.scope, v.key) = (e.scope, e.key) AND v.set_id = %s)
    ON CONFLICT DO NOTHING"""
STORE = """
    WITH new AS (
        SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::text[])
            AS n(scope, key, revision, text_key, vector)
    ), alive AS (
        SELECT n.*, e.tenant, e.kind, e.key_id, e.subject FROM new n JOIN {schema}.entries e
        ON (e.scope, e.key, e.revision, e.text_key) = (n.scope, n.key, n.revision, n.text_key)
        FOR SHARE OF e
    ), stored AS (
        INSERT INTO {schema}.vectors AS v (set_id, scope, key, tenant, revision, kind, embedding)
        SELECT %s, scope, key, tenant, revision, kind, vector::{vector}.halfvec FROM alive
        ON CONFLICT (scope, key, set_id) DO UPDATE SET revision = excluded.revision, kind = excluded.kind,
            embedding = excluded.embedding
        RETURNING scope, key
    ), cached AS (
        INSERT INTO {kept}.embeddings (set_id, text_key, tenant, key_id, subject, embedding)
        SELECT DISTINCT ON (text_key) %s::int, text_key, tenant, key_id, subject, vector::{vector}.halfvec FROM alive
        ON CONFLICT DO NOTHING
    ), done AS (
        DELETE FROM {schema}.pending p USING alive a
        WHERE (p.scope, p.key, p.revision) = (a.scope, a.key, a.revision)
    )
    SELECT scope, key FROM stored"""


def is_of(one: EmbeddingSet, embedder: Embedder) -> bool:
    """Whether a set is that of an embedder, which may not know its dimension yet."""
    same_model = (one.provider, one.model) == (embedder.provider, embedder.model)
    return same_model and embedder.dimension in (0, one.dimension)


def now_ms() -> int:
    """Return the time, UTC milliseconds."""
    return time.time_ns() // 1_000_000


def hnsw_name(set_id: int, scope: str) -> str:
    """Return the name of the index of a scope's vectors in a set."""
    return f"hnsw_{set_id}_{sha256(scope.encode()).hexdigest()[:16]}"


def _places(entries: Sequence[Waiting]) -> tuple[list[str], list[str]]:
    return [one.scope for one in entries], [one.key for one in entries]
