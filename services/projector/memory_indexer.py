"""The search index of memory in the projector's process, which has the keys of content locally.

    tail    events of memory -> lexemes, and vectors of texts that were embedded before (family_tail.py)
    loop    entries that wait for a vector -> the embedder (projections/memory_index/embedding.py)

A failing embedder never stops the tail. Two processes are safe: one of them has the lock of each part.

Before: main.py. After: family_tail.py, projections/memory_index.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import psycopg

from loomlog.connectors.crypto.content_encryption import has_tokens, key_ids_in
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.storage.postgres import PostgresReader, open_pool, open_reader
from loomlog.projections.engine.batch import PositionedEvent
from loomlog.projections.engine.builds import ENTITY_SUFFIX
from loomlog.projections.engine.writer import Statement
from loomlog.projections.entity_items import ItemRow, load_items
from loomlog.projections.memory_index.embedding import EmbeddingLoop, EntryEmbedder, LoadEntries
from loomlog.projections.memory_index.entries import RECORDS, Decrypt, changes_of, plaintext, statements_of
from loomlog.projections.memory_index.tables import (
    IndexSchemas,
    connection_of,
    drop_older_versions,
    find_schemas,
    index_schema,
    prepare_index,
)
from loomlog.projections.memory_index.tokens import LexemeHasher, index_key
from loomlog.projections.memory_index.vectors import Embedder, VectorStore
from loomlog.schemas.codec import Codec
from loomlog.services.core.families import name_in_tenant
from loomlog.services.families.memory.items import ENTRY_ITEM, entry_id
from loomlog.services.projector.family_tail import open_family_tail
from loomlog.services.projector.settings import ProjectorSettings
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.rows import tables_may_be_missing

log = logging.getLogger("loomlog.projector")

FAMILY_NAME = "memory"
CONNECTIONS_MAX = 3
REST_S = 0.1
"""Shortest time between two transactions: a search waits for it at most once."""
TABLES_WAIT_S, TABLES_POLL_S = 5.0, 0.1
"""How long a start of the loop waits for the tables."""


def readable_by(keys: SubjectKeys | None) -> Decrypt:
    """Return the function that decrypts entries; what is erased or unreadable is None."""
    if keys is None:
        return plaintext

    async def decrypt(text: str, tenant: str) -> str | None:
        if not has_tokens(text):
            return text
        await keys.wait_for_keys(text)
        if any(map(keys.is_erased, key_ids_in(text))):
            return None
        try:
            return keys.decrypt_for_model(text, tenant)
        except Permanent:
            return None

    return decrypt


def load_from(reader: PostgresReader) -> LoadEntries:
    """Return the function that reads entries from the rows of entities."""

    async def load(tenant: str, places: Sequence[tuple[str, str]]) -> list[ItemRow | None]:
        ids = []
        for scope, key in places:
            name, _, scope_id = name_in_tenant(scope, tenant).partition("/")
            ids.append(entry_id(name, scope_id, key))
        with tables_may_be_missing():
            rows = {row.id: row for row in await load_items(reader, FAMILY_NAME, tenant, ENTRY_ITEM, ids)}
        return [rows.get(one) for one in ids]

    return load


class MemoryIndexer:
    """Fills the index. `embedder` None: entries that wait for a vector stay in the queue."""

    def __init__(
        self,
        settings: ProjectorSettings,
        *,
        codec: Codec | None = None,
        decrypt: Decrypt = plaintext,
        embedder: Embedder | None = None,
        **options: Any,
    ) -> None:
        """`options`: replace those of FamilyTail, for tests."""
        self._settings, self._decrypt, self._embedder = settings, decrypt, embedder
        self._hasher = LexemeHasher(index_key(settings.secret))
        self._schemas: IndexSchemas | None = None
        self.unreadable = 0
        """Entries that were erased, or cannot be decrypted here, since the start."""
        self.tail = open_family_tail(
            settings,
            index_schema(settings.prefix),
            RECORDS,
            prepare=self._prepare,
            handle=self._handle,
            maintain=self._maintain,
            codec=codec,
            rest_s=REST_S,
            options=options,
        )
        self.loop = EmbeddingLoop(settings.postgres, self._make_embedder, self._open_store)
        self._reader: PostgresReader | None = None
        self._store_pool: Any = None

    @property
    def metrics(self) -> dict[str, int | str]:
        """State and counters of this process."""
        return {
            **self.tail.metrics,
            "unreadable": self.unreadable,
            "embedded": self.loop.embedded,
            "embed_failures": self.loop.failures,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Raises Permanent, and any unexpected error."""
        postgres = self._settings.postgres
        self._reader = await open_reader(postgres, schema=self._settings.prefix + ENTITY_SUFFIX, max_connections=2)
        self._store_pool = await open_pool(postgres, max_connections=CONNECTIONS_MAX)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.tail.run(stop))
                if self._embedder is not None:
                    tasks.create_task(self.loop.run(stop))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        finally:
            await self._store_pool.close()
            await self._reader.close()

    async def _prepare(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._schemas = await prepare_index(connection, self._hasher.check, self._settings.prefix)
        if not self._schemas.vector:
            log.warning("this Postgres has no pgvector: memory is searched by words only")

    async def _handle(self, events: Sequence[PositionedEvent]) -> list[Statement]:
        assert self._schemas is not None, "the tail prepares the tables first"
        pairs = [(one.envelope, one.event) for one in events]
        changes = await changes_of(pairs, self._hasher, self._decrypt)
        self.unreadable += changes.unreadable
        if any(row.embed for row in changes.entries):
            # Written a moment later; the loop reads the queue again if it is faster.
            asyncio.get_running_loop().call_later(0.01, self.loop.wake)
        return statements_of(self._schemas, changes)

    async def _maintain(self, connection: psycopg.AsyncConnection[Any]) -> None:
        assert self._schemas is not None, "the tail prepares the tables first"
        for name in await drop_older_versions(connection, self._schemas):
            log.info("dropped the index of an older version, %s", name)

    async def _open_store(self) -> VectorStore:
        """Return the vectors once the tail, here or in another process, has made their tables. Raises Transient."""
        deadline = time.monotonic() + TABLES_WAIT_S
        while True:
            async with connection_of(self._store_pool) as connection:
                schemas = await find_schemas(connection, self._settings.prefix)
                result = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{schemas.schema}.vectors",))
                if schemas.vector and await result.fetchone() == (True,):
                    return VectorStore(self._store_pool, schemas)
            if time.monotonic() > deadline:
                raise Transient("there are no tables of vectors: this Postgres has no pgvector", kind="unavailable")
            await asyncio.sleep(TABLES_POLL_S)

    def _make_embedder(self, store: VectorStore) -> EntryEmbedder:
        assert self._embedder is not None, "the loop runs with an embedder only"
        assert self._reader is not None, "the loop runs within `run`"
        return EntryEmbedder(
            store, self._embedder, load=load_from(self._reader), decrypt=self._decrypt, hasher=self._hasher
        )
