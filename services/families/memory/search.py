"""Search of a scope by words and by meaning, and recall of its facts.

    wait      until the index has read the caller's positions
    find      4 * top_k entries by words, and as many by the vector of the query, at the same time
    rank      ranking.py; near copies; then the entries are loaded and decrypted until top_k of them are there

The index may be ahead of the rows or behind them, so a hit counts only if its row has the same revision. Whatever keeps
vectors from answering (no embedder, another model, a call that fails) leaves the search by words, and is named in
`rank_note`.

Before: entry_operations.py, prompt_entries.py. After: projections/memory_index.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson
from msgspec import UNSET

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.memory_index.embedding import EmbedderRefused, call_embedder
from loomlog.projections.memory_index.reads import (
    EntryDetails,
    Filter,
    IndexMissing,
    LexicalHit,
    MemoryIndex,
    SemanticHit,
)
from loomlog.projections.memory_index.tables import DOCUMENT, FACT, NOTE
from loomlog.projections.memory_index.vectors import Embedder, EmbeddingSet, is_of, vector_literal
from loomlog.schemas.position import Position
from loomlog.schemas.records import Value
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory.api import (
    MemoryFact,
    MemoryFacts,
    MemoryHit,
    MemoryHits,
    MemoryRecall,
    MemorySearch,
)
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.items import ENTRY_ITEM, entry_id
from loomlog.services.families.memory.ranking import RankedHit, RankFacts, ranked, without_copies
from loomlog.services.families.memory.search_request import (
    HYBRID,
    LEXICAL,
    SEMANTIC,
    SOURCES,
    SearchRequest,
    recall_request,
    search_request,
)
from loomlog.services.families.memory.store import FAMILY_NAME
from loomlog.services.families.memory.values import parse_value
from loomlog.services.families.operation import Decrypt, plaintext
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

FETCH_FACTOR, FETCH_MAX = 4, 51
"""Entries of each ranking: as many times top_k, and at most."""
WAIT_S = 2.0
"""How long a search waits for a position, and a write for its vector."""
QUERY_EMBED_S = 5.0
"""Longest wait for the vector of a query; then words answer."""
FLUSH_S, FLUSH_ACCESSES = 30.0, 512
"""Access counters are written so often, or after so many keys."""
EMBED_POLL_S = 0.03
ResultT = TypeVar("ResultT")
REEMBED = "POST /v1/_memory/reembed"
"""What an operator does about vectors of another model."""
KIND_NAMES = {NOTE: "note", FACT: "fact", DOCUMENT: "document"}


class Hit(Value, frozen=True, kw_only=True):
    """An entry that was found."""

    key: str
    kind: str
    """fact, note or document."""
    text: str
    """JSON text of the value, in plaintext."""
    revision: int
    score: float | None
    """Cosine to the query; None: it has no vector."""
    ranked: RankedHit
    embedded_with: EmbeddingSet | None
    expires_at_ms: int
    updated_at_ms: int
    provenance: Mapping[str, Any] | None
    position: str

    @property
    def value(self) -> Any:
        return parse_value(self.text)


class SearchResult(Value, frozen=True, kw_only=True):
    """Answer of a search."""

    hits: tuple[Hit, ...]
    truncated: bool = False
    """Whether more entries were found."""
    query_embedding_dim: int = 0
    """0: vectors did not take part."""
    dedup_dropped: int | None = None
    """Copies that were left out; None: they were not looked for."""
    rank_note: str = ""


class Vectors(Value, frozen=True, kw_only=True):
    """The vector part of a search: the vector of the query in a set, or why there is none."""

    of: EmbeddingSet | None = None
    vector: str = ""
    note: str = ""


class MemorySearcher:
    """Searches. `embedders`: that of this process first; former ones answer while the vectors of a new one are
    computed. All methods raise Refused and Unavailable.
    """

    def __init__(
        self,
        index: MemoryIndex,
        reads: EntityReads,
        *,
        clock_ms: Callable[[], int],
        decrypt: Decrypt = plaintext,
        embedders: Sequence[Embedder] = (),
    ) -> None:
        self._index, self._reads, self._embedders = index, reads, embedders
        self._clock_ms, self._decrypt = clock_ms, decrypt
        self._accesses = AccessCounter(index, clock_ms)

    async def close(self) -> None:
        """Write the access counters. The index stays open."""
        await self._accesses.close()

    async def search(self, scope: Scope, request: SearchRequest, positions: Sequence[str] = ()) -> SearchResult:
        """Return the best entries of a scope. Raises Refused(search_unavailable); in the mode `semantic` also
        embedder_not_configured, vector_unsupported and dimension_mismatch.
        """
        return await _translated(self._search(scope, request, positions))

    async def wait_embedded(self, scope: Scope, key: str, revision: int, position: str) -> tuple[bool, str]:
        """Return whether an entry has its vector, after at most WAIT_S, and a warning without one: the write itself has
        succeeded.
        """
        if not self._embedders:
            return False, "embedder_not_configured"
        deadline = asyncio.get_running_loop().time() + WAIT_S
        try:
            await self._wait(scope, (position,))
            while (state := await self._state(scope, key, revision)) == "pending":
                if asyncio.get_running_loop().time() >= deadline:
                    return False, "pending"
                await asyncio.sleep(EMBED_POLL_S)
        except (IndexMissing, ConnectorError, Unavailable):
            return False, "pending"
        except Refused as refused:
            return False, refused.code
        # none: there is nothing to embed, or the key was changed again meanwhile.
        return state == "embedded", {"embedded": "", "failed": "embed_failed"}.get(state, "nothing_to_embed")

    async def _state(self, scope: Scope, key: str, revision: int) -> str:
        store = await self._index.vectors()
        if store is None:
            raise Refused("vector_unsupported", "this Postgres has no pgvector")
        return await store.state(_aggregate(scope), key, revision)

    async def _search(self, scope: Scope, request: SearchRequest, positions: Sequence[str]) -> SearchResult:
        now_ms = self._clock_ms()
        where = Filter(_aggregate(scope), request.prefix, {SOURCES[one] for one in request.sources}, now_ms)
        await self._wait(scope, positions)
        fetch = min(FETCH_FACTOR * request.top_k, FETCH_MAX)
        words, (vectors, near) = await asyncio.gather(
            self._words(request, where, fetch), self._near(request, where, fetch)
        )
        lexical, semantic = [hit.key for hit in words], [hit.key for hit in near]
        details = await self._index.details(
            list(dict.fromkeys([*lexical, *semantic])), where, vectors.vector, vectors.of
        )
        ordered = ranked(
            lexical,
            semantic,
            {key: RankFacts(one.at_ms, one.accesses) for key, one in details.items()},
            request.rank,
            rankings=1 if vectors.of is None or request.mode == SEMANTIC else 2,
            now_ms=now_ms,
        )
        dropped = None
        notes = [vectors.note] if vectors.note else []
        if request.dedup.enabled:
            dropped = 0
            if vectors.of is None:
                notes.append("copies are compared by their vectors, and none take part")
            else:
                keys = [hit.key for hit in ordered]
                similar = await self._index.similar_pairs(keys, vectors.of, where.scope, request.dedup.threshold)
                ordered, dropped = without_copies(ordered, similar, request.dedup.mode)
        if request.rank.source_weight:
            notes.append("source_weight has no effect")
        hits, truncated = await self._load(scope, ordered, details, request.top_k, vectors.of)
        self._accesses.add((where.scope, hit.key) for hit in hits)
        return SearchResult(
            hits=tuple(hits),
            truncated=truncated,
            query_embedding_dim=0 if vectors.of is None else vectors.of.dimension,
            dedup_dropped=dropped,
            rank_note="; ".join(notes),
        )

    async def _wait(self, scope: Scope, positions: Sequence[str]) -> None:
        """Wait until the words of the index include the positions of the scope's partition."""
        partition = partition_of(aggregate_key(_aggregate(scope)), self._reads.partitions)
        offset = -1
        for text in positions:
            try:
                position = Position.parse(text)
            except ValueError as error:
                raise Unavailable(str(error)) from error
            if (position.topic, position.partition) == (self._reads.topic, partition):
                offset = max(offset, position.offset)
        if offset >= 0 and (missing := await self._index.wait(self._reads.topic, partition, offset, timeout_s=WAIT_S)):
            raise Unavailable(f"the search index has not read offset {offset} yet, {missing} records are missing")

    async def _words(self, request: SearchRequest, where: Filter, limit: int) -> list[LexicalHit]:
        return [] if request.mode == SEMANTIC else await self._index.find_words(request.query, where, limit)

    async def _near(self, request: SearchRequest, where: Filter, limit: int) -> tuple[Vectors, list[SemanticHit]]:
        if request.mode == LEXICAL:
            return Vectors(), []
        vectors = await self._vectors(request, where)
        if vectors.of is None:
            return vectors, []
        return vectors, await self._index.find_near(vectors.vector, vectors.of, where, limit)

    async def _vectors(self, request: SearchRequest, where: Filter) -> Vectors:
        """Return the vector of the query in the set that answers. Raises Refused in the mode `semantic`."""
        if not self._embedders:
            return _without_vectors(request, "embedder_not_configured", "no embedder is configured")
        if await self._index.vectors() is None:
            return _without_vectors(request, "vector_unsupported", "this Postgres has no pgvector")
        sets = await self._index.sets()
        usable = [(embedder, one) for embedder in self._embedders for one in sets if is_of(one, embedder)]
        usable.sort(key=lambda pair: not pair[1].is_active)
        for embedder, one in usable:
            if not await self._index.has_vectors(where.scope, one):
                continue
            note = "" if one.is_active else f"vectors of {_name(one)} are still being computed"
            return await self._query_vector(request, embedder, one, note)
        for other in sets:
            if await self._index.has_vectors(where.scope, other):
                text = f"the entries are embedded with {_name(other)}, the embedder here is another one: {REEMBED}"
                return _without_vectors(request, "dimension_mismatch", text)
        return Vectors(note="" if request.mode == HYBRID else "no entry of this scope has a vector")

    async def _query_vector(self, request: SearchRequest, embedder: Embedder, of: EmbeddingSet, note: str) -> Vectors:
        try:
            replies = await call_embedder(embedder, [request.query], timeout_s=QUERY_EMBED_S)
        except EmbedderRefused as refused:
            if request.mode == SEMANTIC:
                raise Unavailable(f"the query cannot be embedded: {refused}") from refused
            return Vectors(note=f"found by words only: {refused}")
        vector = vector_literal(replies[0], of.dimension) if len(replies) == 1 else None
        if vector is None:
            text = f"the embedder gave no vector of {of.dimension} numbers"
            return _without_vectors(request, "dimension_mismatch", text)
        return Vectors(of=of, vector=vector, note=note)

    async def _load(
        self,
        scope: Scope,
        ordered: Sequence[RankedHit],
        details: Mapping[str, EntryDetails],
        top_k: int,
        of: EmbeddingSet | None,
    ) -> tuple[list[Hit], bool]:
        """Return the first top_k hits whose entries are there, and whether there are more."""
        hits: list[Hit] = []
        rest = list(ordered)
        while rest and len(hits) <= top_k:
            some, rest = rest[: top_k + 1], rest[top_k + 1 :]
            ids = [entry_id(scope.name, scope.id, hit.key) for hit in some]
            rows = {row.id: row for row in await self._reads.load_items(FAMILY_NAME, scope.tenant, ENTRY_ITEM, ids)}
            for row_id, place in zip(ids, some, strict=True):
                row, detail = rows.get(row_id), details[place.key]
                document = None if row is None else orjson.loads(row.document)
                if row is None or document is None or not self._is_current(document, detail.revision):
                    continue
                hits.append(
                    Hit(
                        key=place.key,
                        kind=KIND_NAMES[detail.kind],
                        text=await self._decrypt(document["value"], scope.tenant),
                        revision=detail.revision,
                        score=detail.score,
                        ranked=place,
                        embedded_with=None if detail.score is None else of,
                        expires_at_ms=document["expires_at_ms"],
                        updated_at_ms=row.at_ms,
                        provenance=document.get("provenance"),
                        position=f"{self._reads.topic}/{row.partition}:{row.offset}",
                    )
                )
        return hits[:top_k], len(hits) > top_k

    def _is_current(self, document: Mapping[str, Any], revision: int) -> bool:
        expires_at_ms = document["expires_at_ms"]
        return document["revision"] == revision and not 0 < expires_at_ms <= self._clock_ms()


class MemoryFinder:
    """The operations search and recall, as answers (protocol Finder of entry_operations.py)."""

    def __init__(self, searcher: MemorySearcher) -> None:
        self._searcher = searcher

    async def search(self, scope: Scope, asked: MemorySearch, author: Author) -> MemoryHits:
        """Return what a search finds."""
        request = search_request(asked)
        return shown_hits(await self._searcher.search(scope, request, author.positions), request)

    async def recall(self, scope: Scope, asked: MemoryRecall, author: Author) -> MemoryFacts:
        """Return the facts that a search finds."""
        result = await self._searcher.search(scope, recall_request(asked), author.positions)
        hits = [hit for hit in result.hits if asked.threshold <= 0 or (hit.score or 0.0) >= asked.threshold]
        return MemoryFacts(facts=[shown_fact(hit) for hit in hits])


class AccessCounter:
    """Counts which entries searches return, and writes the counts in batches; what a lost process had is lost."""

    def __init__(self, index: MemoryIndex, clock_ms: Callable[[], int]) -> None:
        self._index, self._clock_ms = index, clock_ms
        self._counts: dict[tuple[str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, places: Any) -> None:
        """Count an access of each (full id of the scope's aggregate, key)."""
        for place in places:
            self._counts[place] = self._counts.get(place, 0) + 1
        if len(self._counts) >= FLUSH_ACCESSES:
            self._start_writing()
        elif self._counts and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._start_writing)

    async def flush(self) -> None:
        """Write the counts; those that cannot be written are dropped."""
        self._stop_timer()
        counts, self._counts = self._counts, {}
        if not counts:
            return
        try:
            await self._index.count_accesses(counts, self._clock_ms())
        except (ConnectorError, IndexMissing):
            return  # a counter is worth no second try

    async def close(self) -> None:
        """Write what is left."""
        await asyncio.gather(*self._writing)
        await self.flush()

    def _start_writing(self) -> None:
        task = asyncio.ensure_future(self.flush())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def shown_hits(result: SearchResult, request: SearchRequest) -> MemoryHits:
    """Return the answer of a search."""
    return MemoryHits(
        entries=[shown_hit(hit) for hit in result.hits],
        query_embedding_dim=result.query_embedding_dim,
        truncated=result.truncated,
        sources_applied=True if request.sources else UNSET,
        dedup_dropped=UNSET if result.dedup_dropped is None else result.dedup_dropped,
        rank_note=result.rank_note or UNSET,
    )


def shown_hit(hit: Hit) -> MemoryHit:
    """Return a hit as it is shown: a score of 0 without a vector, and the place in each ranking."""
    of = hit.embedded_with
    return MemoryHit(
        key=hit.key,
        kind=hit.kind,
        value=hit.value,
        score=hit.score or 0.0,
        rank_score=hit.ranked.rank_score,
        ranks={"lexical": hit.ranked.lexical_rank or None, "semantic": hit.ranked.semantic_rank or None},
        embedded_with=None if of is None else {"provider": of.provider, "model": of.model},
        expires_at=format_rfc3339(hit.expires_at_ms) if hit.expires_at_ms else None,
        merged=list(hit.ranked.merged) or UNSET,
        duplicate_of=hit.ranked.duplicate_of or UNSET,
    )


def shown_fact(hit: Hit) -> MemoryFact:
    """Return a hit as a fact: its text, and what it is and where it was learnt."""
    value = hit.value
    named = (
        next((value[name] for name in FACT_TEXTS if isinstance(value.get(name), str)), None)
        if isinstance(value, dict)
        else value
    )
    provenance = dict(hit.provenance or {})
    metadata = {"class": provenance.pop("fact_class", ""), **provenance}
    if isinstance(value, dict) and isinstance(value.get("metadata"), dict):
        metadata |= value["metadata"]
    return MemoryFact(
        id=hit.key,
        memory=named if isinstance(named, str) else hit.text,
        score=hit.score or 0.0,
        metadata={name: one for name, one in metadata.items() if one not in ("", None)} or UNSET,
    )


FACT_TEXTS = ("memory", "text", "fact")
"""Fields of a value that have the text of a fact, the first that is there."""


def _aggregate(scope: Scope) -> str:
    return aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate)


def _name(one: EmbeddingSet) -> str:
    return f"{one.provider}/{one.model} ({one.dimension})"


def _without_vectors(request: SearchRequest, code: str, text: str) -> Vectors:
    if request.mode == SEMANTIC:
        raise Refused(code, text)
    return Vectors(note=f"found by words only: {text}")


async def _translated(reading: Awaitable[ResultT]) -> ResultT:
    try:
        return await reading
    except IndexMissing as error:
        raise Refused("search_unavailable", str(error)) from error
    except (PositionNotRead, ConnectorError) as error:
        raise Unavailable(f"memory cannot be searched: {error}") from error
