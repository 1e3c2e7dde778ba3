"""An index under a prefix of its own, written with events of memory and read as a search reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from loomlog.projections.entity_items import ItemRow
from loomlog.projections.memory_index.embedding import EntryEmbedder
from loomlog.projections.memory_index.entries import changes_of, plaintext, statements_of
from loomlog.projections.memory_index.reads import SESSION, Filter, MemoryIndex
from loomlog.projections.memory_index.tables import prepare_index
from loomlog.projections.memory_index.tokens import LexemeHasher
from loomlog.projections.memory_index.vectors import VectorStore
from loomlog.schemas.generated.memory_events import EntryDeleted, EntrySet
from loomlog.schemas.generated.values import Envelope, MemorySource, Provenance

SCOPE = "memory:acme/user/ann"
AT_MS = 1_780_000_000_000
FACT = Provenance(fact_class="preference", origin="consolidator")


def envelope(scope: str = SCOPE, at_ms: int = AT_MS) -> Envelope:
    tenant = scope.partition(":")[2].partition("/")[0]
    return Envelope(term=0, seq=1, aggregate=scope, tenant=tenant, at_ms=at_ms, prev=bytes(16))


def entry_set(key: str, of: Any, revision: int = 1, /, **more: Any) -> EntrySet:
    """The event that sets a key to JSON; `more`: other fields, also `value` as it is stored."""
    text = orjson.dumps(of).decode()
    fields: dict[str, Any] = {
        "scope": "user",
        "scope_id": "ann",
        "key": key,
        "value": text,
        "value_bytes": len(text),
        "revision": revision,
        "created_at_s": 1,
        "source": MemorySource(origin="operator", principal="op"),
        "usage_bytes": 1,
        "usage_keys": 1,
        "quota_bytes": -1,
    }
    return EntrySet(**(fields | more))


def entry_deleted(key: str, revision: int = 2) -> EntryDeleted:
    return EntryDeleted(
        scope="user",
        scope_id="ann",
        key=key,
        revision=revision,
        previous_revision=1,
        source=MemorySource(origin="operator", principal="op"),
        usage_bytes=0,
        usage_keys=0,
    )


class World:
    """`rows` are the rows of the entries, as the projection of entities has them."""

    def __init__(self, connection, pool, prefix: str, secret: bytes = b"k") -> None:
        self.connection, self.pool, self.prefix = connection, pool, prefix
        self.hasher = LexemeHasher(secret)
        self.index = MemoryIndex(pool, prefix, hasher=self.hasher)
        self.rows: dict[tuple[str, str], ItemRow] = {}
        self.decrypt = plaintext

    async def prepare(self) -> None:
        self.schemas = await prepare_index(self.connection, self.hasher.check, self.prefix)
        self.store = VectorStore(self.pool, self.schemas)

    async def write(self, *events: Any, scope: str = SCOPE, at_ms: int = AT_MS, with_rows: bool = True) -> None:
        pairs = [(envelope(scope, at_ms), event) for event in events]
        changes = await changes_of(pairs, self.hasher, self.decrypt)
        async with self.connection.transaction():
            for statement, parameters in statements_of(self.schemas, changes):
                await self.connection.execute(statement, parameters)
        if with_rows:
            self.project(*events, scope=scope, at_ms=at_ms)

    def project(self, *events: Any, scope: str = SCOPE, at_ms: int = AT_MS) -> None:
        for event in events:
            if not isinstance(event, EntrySet):
                for key in getattr(event, "keys", None) or [event.key]:
                    self.rows.pop((scope, key), None)
                continue
            document = {
                "key": event.key,
                "value": event.value,
                "revision": event.revision,
                "embed_text": event.embed_text,
                "expires_at_ms": event.expires_at_ms,
                "created_at_s": event.created_at_s,
                "provenance": None if event.provenance is None else {"fact_class": event.provenance.fact_class},
            }
            self.rows[scope, event.key] = item_row(scope, event.key, document, at_ms)

    async def load(self, tenant: str, places: Sequence[tuple[str, str]]) -> list[ItemRow | None]:
        return [self.rows.get(place) for place in places]

    def embedder(self, embedder: Any) -> EntryEmbedder:
        return EntryEmbedder(
            self.store, embedder, load=self.load, decrypt=lambda *text: self.decrypt(*text), hasher=self.hasher
        )

    async def embed(self, embedder: Any) -> Any:
        """Embed everything in the queue."""
        work = self.embedder(embedder)
        target = await work.target()
        outcome = await work.embed(await self.store.due(2**62, 1_000), target)
        await self.store.activate(target)
        return outcome

    async def words(self, query: str, scope: str = SCOPE, **more: Any) -> list[str]:
        hits = await self.index.find_words(query, Filter(scope, **({"now_ms": AT_MS} | more)), 51)
        return [hit.key for hit in hits]

    async def count(self, table: str) -> int:
        result = await self.connection.execute(f"SELECT count(*) FROM {table}")
        return (await result.fetchone())[0]


def item_row(scope: str, key: str, document: Mapping[str, Any], at_ms: int) -> ItemRow:
    tenant, _, name = scope.partition(":")[2].partition("/")
    return ItemRow(
        family="memory",
        tenant=tenant,
        aggregate=scope,
        name=name,
        kind="entry",
        id=f"{name}/{key}",
        key_a="",
        key_b="",
        number=None,
        partition=0,
        offset=0,
        seq=1,
        at_ms=at_ms,
        document=orjson.dumps(document).decode(),
    )


__all__ = ["AT_MS", "FACT", "SCOPE", "SESSION", "World", "entry_deleted", "entry_set", "envelope"]
