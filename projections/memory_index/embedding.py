"""Entries get their vectors: the loop that works off the queue, and the same for some entries by hand.

Texts are read from the rows of the entries, because the index has none. A batch that the embedder refuses for a reason
that passes is repeated after a pause, which grows, and in smaller batches, so that no text holds up all others; no
entry is blamed. After any other failure the entries are tried one by one, and those that fail wait longer each time,
until they are given up. Lexemes never wait for any of it.

The dimension of some embedders is known after their first reply, so the set is made then.

Before: services/projector/memory_indexer.py, services/families/memory/index_administration.py. After: vectors.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import orjson

from loomlog.connectors.errors import Transient
from loomlog.connectors.process.sessions import run_sessions, wait_for_stop
from loomlog.connectors.storage.postgres import PostgresOptions, connect, translate_errors
from loomlog.projections.entity_items import ItemRow
from loomlog.projections.memory_index.entries import Decrypt, text_owner
from loomlog.projections.memory_index.texts import embedded_text, value_text
from loomlog.projections.memory_index.tokens import LexemeHasher
from loomlog.projections.memory_index.vectors import (
    DELAY_MS,
    Embedder,
    EmbeddingSet,
    NewVector,
    VectorStore,
    Waiting,
    now_ms,
    vector_literal,
)

log = logging.getLogger("loomlog.projector")

BATCH = 64
"""Entries of one call of the embedder."""
CALL_S = 120.0
"""Longest call: an embedder bounds its requests itself, one that does not must not stop the queue."""
IDLE_S = 1.0
"""How often the queue is read when no writer of this process has announced an entry."""
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0
REFUSED_REST_S = 5.0
"""How long the entries of a refused batch let others go first."""
DIMENSIONS_MAX = 4_000
"""Dimensions that an index of pgvector takes."""
INDEX_AFTER_VECTORS = 1_000
INDEX_AFTER_S = 600.0
"""Scopes are counted for their indexes after so many new vectors, and so long after others."""
PROBE = "dimension"
"""Text that is embedded to learn how long the vectors are."""

LoadEntries = Callable[[str, Sequence[tuple[str, str]]], Awaitable[Sequence[ItemRow | None]]]
"""Takes a tenant and (full id of the scope's aggregate, key); returns the row of each entry (kind `entry` of the family
memory), None without one, in their order. Raises Transient.
"""


class EmbedderRefused(Exception):
    """The embedder has made no vectors. `is_temporary`: the same call may succeed later, after `retry_after_s`."""

    def __init__(self, message: str, *, is_temporary: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.is_temporary, self.retry_after_s = is_temporary, retry_after_s


class EmbedOutcome(NamedTuple):
    """What became of some entries."""

    embedded: list[Waiting]
    failed: list[Waiting]
    empty: list[Waiting]
    """Entries without a text, or that were changed, removed or erased meanwhile."""
    later: list[Waiting]
    """Entries whose rows are not there yet."""


class EntryEmbedder:
    """Embeds entries of the index with one embedder."""

    def __init__(
        self, store: VectorStore, embedder: Embedder, *, load: LoadEntries, decrypt: Decrypt, hasher: LexemeHasher
    ) -> None:
        self.store, self.embedder = store, embedder
        self._load, self._decrypt, self._hasher = load, decrypt, hasher

    async def target(self) -> EmbeddingSet:
        """Return the set of the embedder, which is filled from now on. Raises EmbedderRefused, Transient."""
        dimension = self.embedder.dimension or len((await self._call([PROBE]))[0])
        if not 0 < dimension <= DIMENSIONS_MAX:
            raise EmbedderRefused(
                f"the embedder {self.embedder.provider}/{self.embedder.model} makes vectors of {dimension} numbers: "
                f"expected at most {DIMENSIONS_MAX}; set memory.embedder.dimensions or another model",
                is_temporary=False,
            )
        return await self.store.make_target(self.embedder.provider, self.embedder.model, dimension)

    async def embed(self, entries: Sequence[Waiting], target: EmbeddingSet) -> EmbedOutcome:
        """Embed entries and store their vectors. Raises EmbedderRefused(is_temporary), Transient."""
        outcome = EmbedOutcome([], [], [], [])
        texts: list[tuple[Waiting, str, bytes]] = []
        for entry, row in zip(entries, await self._rows(entries), strict=True):
            document = None if row is None else orjson.loads(row.document)
            if document is None or document["revision"] < entry.revision:
                outcome.later.append(entry)  # or it is removed: then its event takes it out of the queue
                continue
            text = await self._text(entry, document) if document["revision"] == entry.revision else None
            if not text:
                outcome.empty.append(entry)
                continue
            texts.append((entry, text, self._hasher.text_key(text_owner(document["value"], entry.tenant), text)))
        vectors = await self._vectors([text for _, text, _ in texts], target)
        new = [
            NewVector(entry.scope, entry.key, entry.revision, text_key, vector)
            for (entry, _, text_key), vector in zip(texts, vectors, strict=True)
            if vector is not None
        ]
        stored = await self.store.store(target, new)
        for (entry, _, _), vector in zip(texts, vectors, strict=True):
            if vector is None:
                outcome.failed.append(entry)
            else:
                (outcome.embedded if (entry.scope, entry.key) in stored else outcome.empty).append(entry)
        return outcome

    async def _rows(self, entries: Sequence[Waiting]) -> list[ItemRow | None]:
        rows: dict[Waiting, ItemRow | None] = {}
        for tenant in sorted({entry.tenant for entry in entries}):
            some = [entry for entry in entries if entry.tenant == tenant]
            rows |= zip(some, await self._load(tenant, [(one.scope, one.key) for one in some]), strict=True)
        return [rows[entry] for entry in entries]

    async def _text(self, entry: Waiting, document: dict[str, str]) -> str | None:
        value = await self._decrypt(document["value"], entry.tenant)
        embed_text = await self._decrypt(document.get("embed_text", ""), entry.tenant)
        return None if value is None or embed_text is None else embedded_text(value_text(value), embed_text)

    async def _vectors(self, texts: Sequence[str], target: EmbeddingSet) -> list[str | None]:
        """Return the vectors of texts, None for one that has none."""
        if not texts:
            return []
        try:
            replies = await self._call(texts)
        except EmbedderRefused as refused:
            if refused.is_temporary:
                raise
            if len(texts) == 1:
                log.warning("an entry of memory cannot be embedded: %s", refused)
                return [None]
            replies = []
        if len(replies) == len(texts):
            vectors = [vector_literal(reply, target.dimension) for reply in replies]
            if all(vectors) or len(texts) == 1:
                return vectors
        elif len(texts) == 1:
            return [None]
        # One text may have spoilt the batch.
        return [vector for text in texts for vector in await self._vectors([text], target)]

    async def _call(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return await call_embedder(self.embedder, texts, timeout_s=CALL_S)


async def call_embedder(embedder: Embedder, texts: Sequence[str], *, timeout_s: float) -> Sequence[Sequence[float]]:
    """Return the vectors of texts, unchecked. Raises EmbedderRefused."""
    try:
        async with asyncio.timeout(timeout_s):
            vectors = await embedder.embed(texts)
    except TimeoutError as error:
        raise EmbedderRefused(f"the embedder did not answer in {timeout_s:g} s", is_temporary=True) from error
    except Exception as error:
        # Whatever a driver raises, the queue goes on.
        retryable = getattr(error, "retryable", True)
        raise EmbedderRefused(
            str(error) or type(error).__name__,
            is_temporary=bool(retryable),
            retry_after_s=float(getattr(error, "retry_after_s", None) or 0.0),
        ) from error
    return vectors


class EmbeddingLoop:
    """Works off the queue. One process does at a time; `open_store` is called for each session, once the tables are
    there. `run` waits for a lost Postgres.
    """

    def __init__(
        self,
        options: PostgresOptions,
        make: Callable[[VectorStore], EntryEmbedder],
        open_store: Callable[[], Awaitable[VectorStore]],
    ) -> None:
        self._options, self._make, self._open_store = options, make, open_store
        self._wake = asyncio.Event()
        self._new_vectors, self._indexed_at = INDEX_AFTER_VECTORS, 0.0
        self._batch = BATCH
        self.embedded = self.failures = 0

    def wake(self) -> None:
        """Read the queue soon: an entry was put into it."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`; a call of the embedder is then cancelled."""
        await run_sessions(
            self._session_until,
            stop,
            log,
            progress=lambda: self.embedded,
            failures=(EmbedderRefused, Transient),
            on_failure=self._note_failure,
            first_s=RETRY_FIRST_S,
            max_s=RETRY_MAX_S,
            says="entries of memory wait for their vectors: %s",
        )

    def _note_failure(self, failure: EmbedderRefused | Transient) -> float:
        """Count a failure; return how long the embedder asks to be left alone, in seconds."""
        self.failures += 1
        return failure.retry_after_s if isinstance(failure, EmbedderRefused) else 0.0

    async def _session_until(self, stop: asyncio.Event) -> None:
        session, stopped = asyncio.create_task(self._session(stop)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({session, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            session.cancel()
            await asyncio.wait({session})
        if not session.cancelled():
            session.result()

    async def _session(self, stop: asyncio.Event) -> None:
        store = await self._open_store()
        async with await connect(self._options) as lock, translate_errors("embed entries of memory"):
            while not await store.try_lock(lock):
                if await wait_for_stop(stop, IDLE_S):
                    return
            embedder = self._make(store)
            target = await embedder.target()
            is_active = target.is_active
            while not stop.is_set():
                self._wake.clear()
                if entries := await store.due(now_ms(), self._batch):
                    is_late = await self._work(embedder, entries, target)
                    await lock.execute("SELECT 1")  # raises when the lock was lost with its connection
                    if not is_late:
                        continue
                else:
                    is_late = False
                    is_active = is_active or await store.activate(target)
                    await self._build_indexes(store)
                await self._wait(stop, DELAY_MS / 1_000 if is_late else IDLE_S)

    async def _work(self, embedder: EntryEmbedder, entries: Sequence[Waiting], target: EmbeddingSet) -> bool:
        """Embed entries of the queue; return whether the rows of some are not there yet."""
        store = embedder.store
        try:
            outcome = await embedder.embed(entries, target)
        except EmbedderRefused:
            self._batch = max(1, self._batch // 2)
            await store.rest(entries, now_ms() + int(REFUSED_REST_S * 1_000))
            raise
        self._batch = min(2 * self._batch, BATCH)
        if outcome.empty:
            await store.forget(outcome.empty)
        if outcome.failed:
            await store.postpone(outcome.failed, now_ms())
        if outcome.later:
            await store.delay(outcome.later, now_ms())
        self.embedded += len(outcome.embedded)
        self._new_vectors += len(outcome.embedded)
        self.failures += len(outcome.failed)
        return bool(outcome.later)

    async def _build_indexes(self, store: VectorStore) -> None:
        now = asyncio.get_running_loop().time()
        if self._new_vectors >= INDEX_AFTER_VECTORS or (self._new_vectors and now - self._indexed_at >= INDEX_AFTER_S):
            self._new_vectors, self._indexed_at = 0, now
            for change in await store.build_indexes():
                log.info("index of vectors of memory: %s", change)

    async def _wait(self, stop: asyncio.Event, seconds: float) -> None:
        waits = [asyncio.ensure_future(one.wait()) for one in (stop, self._wake)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
