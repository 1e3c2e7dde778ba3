"""What a search asks of the index: entries with the words of a query, entries near a vector, and their details.

Before: services/families/memory/search.py. After: scoring.py; Postgres.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from psycopg import sql

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresOptions, open_pool
from loomlog.projections.engine.builds import PREFIX
from loomlog.projections.memory_index.scoring import (
    CANDIDATES_MAX,
    K1,
    TERMS_MAX,
    B,
    ScopeSample,
    rarest,
    select_lexemes,
)
from loomlog.projections.memory_index.tables import IndexSchemas, connection_of, find_schemas
from loomlog.projections.memory_index.tokens import LexemeHasher, count_lexemes
from loomlog.projections.memory_index.vectors import EmbeddingSet, Pool, VectorStore

SAMPLE_ENTRIES = 500
"""Entries of a scope from which frequencies are estimated: of a word in one of ten entries within a fifth."""
SAMPLES_END = float(2**31)
POLL_S = 0.02
NO_VECTORS_KEPT_S = 60.0
"""How long it goes unnoticed that pgvector was installed."""
SETS_KEPT_S = 2.0
"""How long a switch of sets goes unnoticed."""
SESSION = {
    "hnsw.ef_search": "208",
    "hnsw.iterative_scan": "relaxed_order",
    # The planner does not know the frequencies of hashes; a scan of the whole table is never right here.
    "enable_seqscan": "off",
    "jit": "off",
}
"""Parameters of the connections. 208: 4 times the 51 entries that a search fetches at most."""


class LexicalHit(NamedTuple):
    """An entry with words of the query; `score` is its BM25."""

    key: str
    score: float


class SemanticHit(NamedTuple):
    """An entry near the vector of the query; `score` is the cosine."""

    key: str
    score: float


class EntryDetails(NamedTuple):
    """What ranking needs of an entry."""

    key: str
    revision: int
    kind: int
    at_ms: int
    accesses: int
    score: float | None
    """Cosine to the query; None without a vector."""


class Filter(NamedTuple):
    """Which entries of a scope are searched."""

    scope: str
    """Full id of the scope's aggregate."""
    prefix: str = ""
    kinds: Collection[int] = ()
    """Empty: all."""
    now_ms: int = 0


class IndexMissing(Exception):
    """No process has made the index yet."""


class MemoryIndex:
    """The search index. Methods raise Transient or Permanent, and IndexMissing."""

    def __init__(self, pool: Pool, prefix: str = PREFIX, *, hasher: LexemeHasher) -> None:
        self._pool, self._prefix, self.hasher = pool, prefix, hasher
        self._schemas: IndexSchemas | None = None
        self._read_at = 0.0
        self._sets: tuple[float, list[EmbeddingSet]] = (0.0, [])

    async def schemas(self) -> IndexSchemas:
        """Return where the index is."""
        if self._schemas is None or (not self._schemas.vector and time.monotonic() - self._read_at > NO_VECTORS_KEPT_S):
            async with connection_of(self._pool) as connection:
                schemas = await find_schemas(connection, self._prefix)
                result = await connection.execute(
                    "SELECT to_regclass(%s) IS NOT NULL, to_regclass(%s) IS NOT NULL",
                    (f"{schemas.schema}.entries", f"{schemas.schema}.vectors"),
                )
                row = await result.fetchone()
                if row is None or not row[0]:
                    raise IndexMissing("no projector has made the search index of memory yet")
                result = await connection.execute(schemas.statement("SELECT key_check FROM {schema}.state"))
                if await result.fetchone() != (self.hasher.check,):
                    raise IndexMissing(
                        "the search index of memory was made with another LOOMLOG_SECRET_KEY than that of this process"
                    )
            self._schemas, self._read_at = (schemas if row[1] else replace(schemas, vector="")), time.monotonic()
        return self._schemas

    async def vectors(self) -> VectorStore | None:
        """Return the vectors; None without pgvector."""
        schemas = await self.schemas()
        return VectorStore(self._pool, schemas) if schemas.vector else None

    async def sets(self) -> list[EmbeddingSet]:
        """Return the sets of embeddings, oldest first; a moment old."""
        store = await self.vectors()
        if store is None:
            return []
        read_at, sets = self._sets
        if not sets or time.monotonic() - read_at > SETS_KEPT_S:
            self._sets = (time.monotonic(), await store.sets())
        return self._sets[1]

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def wait(self, topic: str, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until lexemes include the event at an offset; return the number of records that are missing."""
        deadline = time.monotonic() + timeout_s
        while True:
            rows = await self._fetch(
                "SELECT next_offset FROM {schema}.cursors WHERE topic = %s AND partition = %s", topic, partition
            )
            missing = offset + 1 - (rows[0][0] if rows else 0)
            if missing <= 0 or time.monotonic() >= deadline:
                return max(0, missing)
            await asyncio.sleep(POLL_S)

    # --- words ---------------------------------------------------------------------------------------------------

    async def find_words(self, query: str, where: Filter, limit: int) -> list[LexicalHit]:
        """Return the entries that have words of the query, the best first."""
        terms = list(self.hasher.numbers(where.scope, dict(list(count_lexemes(query).items())[:TERMS_MAX])))
        if not terms:
            return []
        sample = await self._sample(where.scope, terms)
        if not sample.sampled:
            return []
        selection = select_lexemes(terms, sample)
        hits: list[LexicalHit] = []
        if selection.any_of or selection.pairs:
            hits = await self._score(selection.any_of, selection.pairs, selection.telling, sample, where, limit)
        if not hits and len(selection.any_of) < len(terms):
            hits = await self._score([rarest(selection)], [], selection.telling, sample, where, limit)
        return hits

    async def _sample(self, scope: str, terms: Sequence[int]) -> ScopeSample:
        rows = await self._fetch(SAMPLE, scope, SAMPLE_ENTRIES, list(terms))
        sampled, last, mean_length, hits = rows[0]
        # The sample has the smallest of uniform numbers: the largest of them tells how dense they are.
        entries = sampled if sampled < SAMPLE_ENTRIES else (sampled - 1) * SAMPLES_END / max(last, 1)
        return ScopeSample(entries, sampled, mean_length or 1.0, dict(zip(terms, hits, strict=True)))

    async def _score(
        self,
        any_of: list[int],
        pairs: list[tuple[int, int]],
        weights: Mapping[int, float],
        sample: ScopeSample,
        where: Filter,
        limit: int,
    ) -> list[LexicalHit]:
        conditions = [sql.SQL("lexemes && {}::bigint[]").format(sql.Literal(any_of))] if any_of else []
        conditions += [sql.SQL("lexemes @> {}::bigint[]").format(sql.Literal(list(pair))) for pair in pairs]
        filters, parameters = _filters(where)
        rows = await self._fetch(
            SCORE,
            *parameters,
            where.now_ms,
            CANDIDATES_MAX,
            where.scope,
            limit,
            selected=sql.SQL(" OR ").join(conditions),
            filters=filters,
            damping=sql.SQL("({} * ({} + {} * length))").format(
                sql.Literal(K1), sql.Literal(1 - B), sql.Literal(B / sample.mean_length)
            ),
            score=sql.SQL(" + ").join(
                sql.SQL(ONE_SCORE).format(sql.Literal(weight * (K1 + 1)), sql.Literal(lexeme))
                for lexeme, weight in weights.items()
            ),
        )
        return [LexicalHit(key, score) for key, score in rows]

    # --- vectors -------------------------------------------------------------------------------------------------

    async def find_near(self, vector: str, of: EmbeddingSet, where: Filter, limit: int) -> list[SemanticHit]:
        """Return the entries nearest to a vector (vectors.vector_literal), the nearest first."""
        filters, parameters = _filters(where)
        rows = await self._fetch(NEAR, vector, *parameters, limit, filters=filters, **_vector_names(of, where.scope))
        return sorted((SemanticHit(key, score) for key, score in rows), key=lambda hit: (-hit.score, hit.key))

    async def similar_pairs(
        self, keys: Sequence[str], of: EmbeddingSet, scope: str, threshold: float
    ) -> list[tuple[str, str]]:
        """Return the pairs of these entries whose cosine is at least the threshold."""
        rows = await self._fetch(PAIRS, list(keys), list(keys), threshold, **_vector_names(of, scope))
        return [(first, second) for first, second in rows]

    async def has_vectors(self, scope: str, of: EmbeddingSet) -> bool:
        """Whether a scope has vectors in a set."""
        rows = await self._fetch(
            "SELECT EXISTS (SELECT FROM {schema}.vectors WHERE scope = {scope} AND set_id = {set_id})",
            **_vector_names(of, scope),
        )
        return bool(rows[0][0])

    # --- entries -------------------------------------------------------------------------------------------------

    async def details(
        self, keys: Sequence[str], where: Filter, vector: str = "", of: EmbeddingSet | None = None
    ) -> dict[str, EntryDetails]:
        """Return what ranking needs of those entries that are there and have not expired."""
        more: dict[str, sql.Composable] = {
            "cosine": sql.SQL("NULL::float8")
            if of is None
            else sql.SQL(COSINE).format(sql.Literal(vector), self._type()),
            "joined": sql.SQL("") if of is None else self._joined(of),
        }
        rows = await self._fetch(DETAILS, list(keys), where.scope, where.now_ms, **more)
        return {row[0]: EntryDetails._make(row) for row in rows}

    def _type(self) -> sql.Composable:
        assert self._schemas is not None
        return sql.Identifier(self._schemas.vector)

    def _joined(self, of: EmbeddingSet) -> sql.Composable:
        assert self._schemas is not None
        return self._schemas.statement(
            "LEFT JOIN {schema}.vectors v ON (v.scope, v.key) = (e.scope, e.key) AND v.set_id = {set_id} "
            "AND v.revision = e.revision",
            set_id=sql.Literal(of.id),
        )

    async def count_accesses(self, accesses: Mapping[tuple[str, str], int], at_ms: int) -> None:
        """Add to the access counters of entries, by scope and key."""
        ordered = sorted(accesses.items())
        async with connection_of(self._pool) as connection:
            await connection.execute(
                (await self.schemas()).statement(COUNT_ACCESSES),
                (
                    at_ms,
                    [scope for (scope, _), _ in ordered],
                    [key for (_, key), _ in ordered],
                    [count for _, count in ordered],
                ),
            )

    async def count_subject(self, tenant: str, subject: str, key_ids: Sequence[str] = ()) -> dict[str, int]:
        """Return the numbers of `entries`, `vectors` and `embeddings` that `erase_subject` would delete."""
        has_vectors = bool((await self.schemas()).vector)
        tables = COUNT_OF_SUBJECT if has_vectors else COUNT_OF_SUBJECT[:1]
        of_subject = (tenant, subject, list(key_ids))
        counts = [(await self._fetch(count, *of_subject, of_subject=OF_SUBJECT))[0][0] for count in tables]
        return dict(zip(("entries", "vectors", "embeddings"), [*counts, 0, 0], strict=False))

    async def erase_subject(self, tenant: str, subject: str, key_ids: Sequence[str] = ()) -> dict[str, int]:
        """Delete what the index and the cache have of a subject: by its id, and by the keys of its content. Returns the
        numbers of `entries`, `vectors` and `embeddings`.
        """
        schemas = await self.schemas()
        parameters, names = (tenant, subject, list(key_ids)), {"of_subject": OF_SUBJECT}
        counts = {"entries": 0, "vectors": 0, "embeddings": 0}
        async with connection_of(self._pool) as connection, connection.transaction():
            result = await connection.execute(
                schemas.statement("DELETE FROM {schema}.entries WHERE {of_subject} RETURNING scope, key", **names),
                parameters,
            )
            places = sorted(await result.fetchall())
            counts["entries"] = len(places)
            columns = ([scope for scope, _ in places], [key for _, key in places])
            for table in (*schemas.place_tables[1:], "access"):
                gone = await connection.execute(schemas.delete_places(table), columns)
                if table == "vectors":
                    counts["vectors"] = gone.rowcount
            if schemas.vector:
                gone = await connection.execute(
                    schemas.statement("DELETE FROM {kept}.embeddings WHERE {of_subject}", **names), parameters
                )
                counts["embeddings"] = gone.rowcount
        return counts

    async def _fetch(self, template: str, *parameters: Any, **names: sql.Composable) -> list[tuple[Any, ...]]:
        schemas = await self.schemas()
        try:
            async with connection_of(self._pool) as connection:
                result = await connection.execute(schemas.statement(template, **names), parameters)
                rows: list[tuple[Any, ...]] = await result.fetchall()
                return rows
        except Permanent as error:
            if error.kind != "not_found":
                raise
            self._schemas = None
            raise Transient(f"the search index of memory is being made: {error}", kind="unavailable") from error


async def open_index(
    options: PostgresOptions, secret: bytes, *, prefix: str = PREFIX, max_connections: int = 4
) -> MemoryIndex:
    """Open the index. `secret`: that of the installation, as the indexer has it. An unreachable server fails the reads,
    not this call.
    """
    pool = await open_pool(options, max_connections=max_connections, session=SESSION)
    return MemoryIndex(pool, prefix, hasher=LexemeHasher(secret))


def _filters(where: Filter) -> tuple[sql.Composable, list[Any]]:
    """Return the conditions on keys and kinds, and their parameters."""
    conditions, parameters = [sql.SQL("true")], list[Any]()
    if where.prefix:
        conditions.append(sql.SQL("starts_with(key, %s)"))
        parameters.append(where.prefix)
    if where.kinds:
        conditions.append(sql.SQL("kind = ANY(%s)"))
        parameters.append(sorted(where.kinds))
    return sql.SQL(" AND ").join(conditions), parameters


def _vector_names(of: EmbeddingSet, scope: str) -> dict[str, sql.Composable]:
    """Return the literals by which Postgres recognises the partial index of a scope."""
    # A percent sign in a statement with parameters is doubled.
    text = sql.SQL(sql.Literal(scope).as_string(None).replace("%", "%%"))
    return {"set_id": sql.Literal(of.id), "scope": text, "dimension": sql.SQL(str(int(of.dimension)))}


SAMPLE = """
    WITH sample AS MATERIALIZED (
        SELECT lexemes, length, sample FROM {schema}.entries WHERE scope = %s ORDER BY sample LIMIT %s
    )
    SELECT (SELECT count(*) FROM sample), (SELECT max(sample) FROM sample), (SELECT avg(length)::float8 FROM sample),
        ARRAY(SELECT (SELECT count(*) FROM sample s WHERE s.lexemes @> ARRAY[t.lexeme])
              FROM unnest(%s::bigint[]) WITH ORDINALITY AS t(lexeme, number) ORDER BY number)"""
SCORE = """
    WITH matched AS MATERIALIZED (
        SELECT scope, key, {damping} AS damping, lexemes, counts FROM {schema}.entries
        WHERE ({selected}) AND {filters} AND (expires_at_ms = 0 OR expires_at_ms > %s) LIMIT %s
    )
    SELECT key, {score} AS score FROM matched WHERE scope = %s ORDER BY score DESC, key LIMIT %s"""
"""Lexemes select without the scope, which is in their hashes: so nothing but their index can answer."""
ONE_SCORE = "coalesce({} / (1 + damping / counts[array_position(lexemes, {})]), 0)"
"""BM25 of one lexeme; one expression for all of them is five times as fast as a join."""
NEAR = """
    WITH near AS MATERIALIZED (
        SELECT key, embedding::{vector}.halfvec({dimension}) OPERATOR({vector}.<=>)
            %s::{vector}.halfvec({dimension}) AS distance
        FROM {schema}.vectors WHERE scope = {scope} AND set_id = {set_id} AND {filters} ORDER BY distance LIMIT %s
    )
    SELECT key, 1 - distance FROM near"""
PAIRS = """
    SELECT a.key, b.key FROM {schema}.vectors a JOIN {schema}.vectors b
    ON b.scope = a.scope AND b.set_id = a.set_id AND b.key > a.key
    WHERE a.scope = {scope} AND a.set_id = {set_id} AND a.key = ANY(%s) AND b.key = ANY(%s)
    AND 1 - (a.embedding OPERATOR({vector}.<=>) b.embedding) >= %s"""
COSINE = "1 - (v.embedding OPERATOR({1}.<=>) {0}::{1}.halfvec)"
DETAILS = """
    SELECT e.key, e.revision, e.kind, e.at_ms, coalesce(a.count, 0), {cosine}
    FROM unnest(%s::text[]) AS k(key) JOIN {schema}.entries e ON e.key = k.key
    {joined} LEFT JOIN {kept}.access a ON (a.scope, a.key) = (e.scope, e.key)
    WHERE e.scope = %s AND (e.expires_at_ms = 0 OR e.expires_at_ms > %s)"""
OF_SUBJECT = sql.SQL("((tenant = %s AND subject = %s AND subject <> '') OR (key_id = ANY(%s) AND key_id <> ''))")
COUNT_OF_SUBJECT = (
    "SELECT count(*) FROM {schema}.entries WHERE {of_subject}",
    "SELECT count(*) FROM {schema}.vectors v JOIN "
    "(SELECT scope, key FROM {schema}.entries WHERE {of_subject}) e USING (scope, key)",
    "SELECT count(*) FROM {kept}.embeddings WHERE {of_subject}",
)
COUNT_ACCESSES = """
    INSERT INTO {kept}.access AS a (scope, key, count, at_ms)
    SELECT scope, key, count, %s FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS n(scope, key, count)
    ON CONFLICT (scope, key) DO UPDATE SET count = a.count + excluded.count, at_ms = excluded.at_ms"""
