"""Events of memory become rows of the index, in the transaction that moves the cursors.

The last event of each key decides. Texts are decrypted here only: rows have hashed lexemes, and the name of the cached
embedding. What cannot be decrypted, because it was erased, has no row. An entry that asks for a vector gets it at once
when its text was embedded before, else it waits in the queue.

Before: services/projector/memory_indexer.py. After: tokens.py, vectors.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from loomlog.connectors.crypto.content_encryption import key_ids_in
from loomlog.projections.engine.writer import Statement
from loomlog.projections.entities import UNSTORABLE
from loomlog.projections.memory_index.tables import DOCUMENT, DOCUMENT_PREFIX, FACT, NOTE, IndexSchemas
from loomlog.projections.memory_index.texts import embedded_text, entry_lexemes, value_text
from loomlog.projections.memory_index.tokens import LexemeHasher
from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import Envelope

RECORDS: tuple[type[Any], ...] = (EntrySet, EntryDeleted, EntrySuperseded, EntriesExpired, ScopeDropped)
"""The events that change the index."""
COUNT_MAX = 32_767
SAMPLES = 2**31
"""Samples are below it, and uniform."""
DOCUMENT_ROWS = 250
"""Rows of one statement: some tens of megabytes at most."""
YIELD_EVERY = 50
"""Entries after which others of the process get their turn: about 2 ms."""

Place = tuple[str, str]
"""Full id of the scope's aggregate, and key."""
Decrypt = Callable[[str, str], Awaitable[str | None]]
"""Returns a text of a tenant in plaintext; None: it was erased, or cannot be read here. Raises Transient."""


async def plaintext(text: str, tenant: str) -> str | None:
    """Return the text as it is: content is not encrypted."""
    return text


class IndexedEntry(NamedTuple):
    """A row of `entries`."""

    scope: str
    key: str
    tenant: str
    revision: int
    kind: int
    at_ms: int
    expires_at_ms: int
    sample: int
    length: int
    """Number of lexemes, with repetitions."""
    lexemes: str
    """Array of hashes."""
    counts: str
    """How often each one is in the entry."""
    embed: bool
    key_id: str
    """Id of the key that encrypts the value; empty: it is in plaintext."""
    subject: str
    """The user of a user scope, else the writer as far as the event names it."""
    text_key: bytes
    """Name of the cached embedding; empty: there is nothing to embed."""


class Changes(NamedTuple):
    """What a batch of events does to the index."""

    entries: list[IndexedEntry]
    removed: list[Place]
    """Keys that have no row any more."""
    unreadable: int
    """Entries that were erased, or cannot be decrypted here."""


def is_embedded(event: EntrySet) -> bool:
    """Whether an entry is to be found by its meaning: when it asks for it, and every fact."""
    return event.embed or event.provenance is not None


def text_owner(value: str, tenant: str) -> str:
    """Return whose cached embeddings an entry uses: those under the key that encrypts its value, else the tenant's."""
    return min(key_ids_in(value), default="") or tenant


def kind_of(key: str, *, is_fact: bool) -> int:
    """Return the kind of an entry."""
    return DOCUMENT if key.startswith(DOCUMENT_PREFIX) else FACT if is_fact else NOTE


async def changes_of(
    events: Sequence[tuple[Envelope, Any]], hasher: LexemeHasher, decrypt: Decrypt = plaintext
) -> Changes:
    """Return what events do to the index; `events` in the order of the log. Raises Transient of `decrypt`."""
    last: dict[Place, tuple[Envelope, EntrySet] | None] = {}
    for envelope, event in events:
        if isinstance(event, EntrySet):
            last[envelope.aggregate, event.key] = (envelope, event)
            continue
        for key in event.keys if isinstance(event, EntriesExpired | ScopeDropped) else [event.key]:
            last[envelope.aggregate, key] = None
    entries, removed, unreadable = [], [], 0
    for number, (place, change) in enumerate(sorted(last.items(), key=lambda item: item[0])):
        if any(map(UNSTORABLE.search, place)):
            continue  # the rules of the family refuse such keys
        row = None if change is None else await _row(*change, hasher, decrypt)
        if row is None:
            removed.append(place)
            unreadable += change is not None
        else:
            entries.append(row)
        if number % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
    return Changes(entries, removed, unreadable)


async def _row(envelope: Envelope, event: EntrySet, hasher: LexemeHasher, decrypt: Decrypt) -> IndexedEntry | None:
    value = await decrypt(event.value, envelope.tenant)
    embed_text = await decrypt(event.embed_text, envelope.tenant)
    if value is None or embed_text is None:
        return None
    scope = envelope.aggregate
    text = value_text(value)
    counts = hasher.numbers(scope, entry_lexemes(event.key, text, embed_text))
    embed = is_embedded(event)
    text = embedded_text(text, embed_text) if embed else ""
    source = event.source
    sample = blake2b(f"{scope}\0{event.key}".encode(), digest_size=4).digest()
    return IndexedEntry(
        scope=scope,
        key=event.key,
        tenant=envelope.tenant,
        revision=event.revision,
        kind=kind_of(event.key, is_fact=event.provenance is not None),
        at_ms=envelope.at_ms,
        expires_at_ms=event.expires_at_ms,
        sample=int.from_bytes(sample) % SAMPLES,
        length=sum(counts.values()),
        lexemes=_array(counts),
        counts=_array(min(count, COUNT_MAX) for count in counts.values()),
        embed=bool(text),
        key_id=min(key_ids_in(event.value), default=""),
        subject=event.scope_id if event.scope == "user" else source.user_id or source.principal,
        text_key=hasher.text_key(text_owner(event.value, envelope.tenant), text) if text else b"",
    )


def statements_of(schemas: IndexSchemas, changes: Changes) -> list[Statement]:
    """Return the statements that write the changes."""
    written = [(row.scope, row.key) for row in changes.entries]
    places = _columns(sorted([*written, *changes.removed]))
    statements: list[Statement] = [(BY_INDEX, ())]
    statements += [(schemas.delete_places(table), places) for table in schemas.place_tables]
    if changes.removed:
        statements.append((schemas.delete_places("access"), _columns(sorted(changes.removed))))
    for start in range(0, len(written), DOCUMENT_ROWS):
        rows = changes.entries[start : start + DOCUMENT_ROWS]
        document = [row._asdict() | {"text_key": "\\x" + row.text_key.hex()} for row in rows]
        statements.append((schemas.rendered(INSERT), (orjson.dumps(document).decode(),)))
    if embedded := [(row.scope, row.key) for row in changes.entries if row.embed]:
        if schemas.vector:
            statements.append((schemas.rendered(FROM_CACHE), _columns(embedded)))
        statements.append((schemas.rendered(ENQUEUE if schemas.vector else ENQUEUE_ALL), _columns(embedded)))
    return statements


INSERT = "INSERT INTO {schema}.entries SELECT * FROM json_populate_recordset(NULL::{schema}.entries, %s)"
"""From a document rather than by COPY, which takes three round trips of its own."""
BY_INDEX = (
    b"SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), "
    b"set_config('enable_seqscan', 'off', true)"
)
"""Keys are looked up one by one, however many Postgres takes them to be: a batch never reads a table whole."""
FROM_CACHE = """
    INSERT INTO {schema}.vectors (set_id, scope, key, tenant, revision, kind, embedding)
    SELECT c.set_id, e.scope, e.key, e.tenant, e.revision, e.kind, c.embedding
    FROM unnest(%s::text[], %s::text[]) AS p(scope, key)
    JOIN {schema}.entries e ON (e.scope, e.key) = (p.scope, p.key)
    JOIN {kept}.embeddings c ON c.text_key = e.text_key
    ON CONFLICT DO NOTHING"""
ENQUEUE_ALL = """
    INSERT INTO {schema}.pending (scope, key, tenant, revision, attempts, retry_at_ms)
    SELECT e.scope, e.key, e.tenant, e.revision, 0, 0
    FROM unnest(%s::text[], %s::text[]) AS p(scope, key)
    JOIN {schema}.entries e ON (e.scope, e.key) = (p.scope, p.key)"""
ENQUEUE = (
    ENQUEUE_ALL
    + """
    WHERE NOT EXISTS (
        SELECT FROM {schema}.vectors v JOIN {kept}.sets s ON s.id = v.set_id AND s.is_target
        WHERE (v.scope, v.key) = (e.scope, e.key)
    )"""
)


def _array(numbers: Any) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _columns(places: Sequence[Place]) -> tuple[list[str], list[str]]:
    return [scope for scope, _ in places], [key for _, key in places]
