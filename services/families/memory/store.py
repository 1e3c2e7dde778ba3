"""Entries of this installation: read from the owner's memory, the cache and the rows; written as commands.

    get     of an owner's key: the revision is in memory, the value in the cache of this process (as it is in the log,
            so it is ciphertext when content is encrypted) or in its row
    list    from the rows, after the positions of the caller
    set     one command; `if_revision` makes it fail with revision_conflict when another writer was faster

Before: operations.py. After: services/stream/entities/client.py; reading.py.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import orjson

from loomlog.connectors.errors import ConnectorError
from loomlog.projections.entity_items import OFFSET_MAX, ItemRow
from loomlog.schemas.generated.entity_events import CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.memory_commands import DeleteEntry, DropScope, SetEntry, SupersedeEntry
from loomlog.schemas.generated.memory_events import EntrySet
from loomlog.schemas.generated.values import Provenance
from loomlog.schemas.records import Value, copy_as
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.items import (
    ENTRY_ITEM,
    SCOPE_ITEM,
    VERSION_ITEM,
    entry_document,
    entry_id,
    scope_prefix,
    version_key,
)
from loomlog.services.families.memory.state import MemoryScope
from loomlog.services.families.operation import Decrypt, ask_owner, plaintext
from loomlog.services.stream.entities.answers import Answer, EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

FAMILY_NAME = "memory"
WAIT_S = 50.0
"""Seconds to wait for the owner's answer; within the time of a tool call, so that the outcome is told as unknown."""
ROW_WAIT_S, POLL_S = 5.0, 0.02
"""How long a read waits for a row that is older than the owner's state."""
CACHE_BYTES_MAX = 32 * 1024 * 1024
WRITTEN_MAX = 10_000
"""Scopes whose last change is remembered."""
PAGE = 500
SCANNED_MAX = 5_000
"""Changes of a scope that one search for superseded entries reads."""


class StoredEntry(Value, frozen=True, kw_only=True):
    """A key as it is now."""

    key: str
    text: str
    """JSON text of the value, in plaintext."""
    bytes: int
    revision: int
    created_at_ms: int
    updated_at_ms: int
    expires_at_ms: int = 0
    embed: bool = False
    provenance: Mapping[str, Any] | None = None
    """What it is and where it was learnt; None for a note."""
    source: Mapping[str, Any] = {}
    """The author of the last change (values.MemorySource)."""
    position: str = ""
    """Position token of that change; empty in a backend that has none."""


class Change(Value, frozen=True, kw_only=True):
    """What a key is set to."""

    text: str
    """JSON text of the value, in plaintext."""
    op: str = "set"
    ttl_ms: int = 0
    if_revision: int = -1
    dropped: int = 0
    embed: bool = False
    embed_text: str = ""
    provenance: Provenance | None = None
    quota_bytes: int = 0


class Written(Value, frozen=True, kw_only=True):
    """A key that was set: also the answer to a repetition, whatever has happened since."""

    text: str
    revision: int
    dropped: int
    expires_at_ms: int
    usage: Mapping[str, int]
    """bytes, quota_bytes and keys of the scope after it; empty when another installation does not tell."""
    position: str
    embedding: tuple[bool, str] | None = None
    """Whether the value is embedded, and a warning, as another installation told; None: it is in the index here."""


class Backend(Protocol):
    """Where the entries of an agent are: here, or in another installation.

    All methods raise Refused and Unavailable.
    """

    async def get(self, scope: Scope, key: str, author: Author) -> StoredEntry | None: ...

    async def list(
        self, scope: Scope, author: Author, *, prefix: str = "", after: str = "", limit: int
    ) -> tuple[Sequence[StoredEntry], bool]:
        """Return entries in the order of their keys, and whether there are more."""
        ...

    async def set(self, scope: Scope, key: str, change: Change, author: Author, step: str = "") -> Written: ...

    async def delete(self, scope: Scope, key: str, author: Author) -> tuple[bool, str]:
        """Return whether there was such a key, and the position of the event."""
        ...


class MemoryStore:
    """The entries of this installation (protocol Backend), and their past."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        *,
        clock_ms: Callable[[], int],
        decrypt: Decrypt = plaintext,
        wait_s: float = WAIT_S,
    ) -> None:
        self.topic, self.partitions = reads.topic, reads.partitions
        """Where the changes are."""
        self._commands = commands
        self._reads = reads
        self._clock_ms = clock_ms
        self._decrypt = decrypt
        self._wait_s = wait_s
        self._cache: OrderedDict[tuple[str, str], tuple[int, Mapping[str, Any], int]] = OrderedDict()
        """Documents of entries by full id of the scope and key, with revision and size, as the log has them."""
        self._cached_bytes = 0
        self._written: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Position token of the last change made here, by tenant and scope."""

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, scope: Scope, key: str, author: Author) -> StoredEntry | None:
        """Return a key that has not expired."""
        local = await self._local(scope, author.positions)
        place = (aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate), key)
        revision = 0
        if local is not None:
            entry = local.find(key, self._clock_ms())
            if entry is None:
                return None
            revision, cached = entry.revision, self._cache.get(place)
            if cached is not None and cached[0] == revision:
                self._cache.move_to_end(place)
                return await self._entry(scope, cached[1])
        document = await self._load(scope, key, author.positions, revision)
        if document is None:
            return None
        self._keep(place, document)
        return None if self._is_expired(document) else await self._entry(scope, document)

    async def _load(self, scope: Scope, key: str, positions: Sequence[str], revision: int) -> Mapping[str, Any] | None:
        """Return the document of an entry, once its row has the revision."""
        row_id = entry_id(scope.name, scope.id, key)
        deadline = asyncio.get_running_loop().time() + ROW_WAIT_S
        while True:
            rows = await self._read(
                self._reads.load_items(FAMILY_NAME, scope.tenant, ENTRY_ITEM, [row_id], positions=positions)
            )
            document = self._entry_document(rows[0]) if rows else None
            if revision <= (0 if document is None else document["revision"]):
                return document
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(f"the read models have not read revision {revision} of {key[:80]!r} yet")
            await asyncio.sleep(POLL_S)

    async def _local(self, scope: Scope, positions: Sequence[str]) -> MemoryScope | None:
        """Return the state of a scope whose owner this process is; None otherwise."""
        row = await self._read(self._reads.local(FAMILY_NAME, scope.tenant, scope.aggregate, positions=positions))
        return None if row is None or row.entity.quarantine else row.entity.state

    async def list(
        self, scope: Scope, author: Author, *, prefix: str = "", after: str = "", limit: int
    ) -> tuple[Sequence[StoredEntry], bool]:
        base = scope_prefix(scope.name, scope.id)
        start, entries = base + after if after else "", list[StoredEntry]()
        while True:
            rows = await self._read(
                self._reads.list_items_by_id(
                    FAMILY_NAME,
                    scope.tenant,
                    ENTRY_ITEM,
                    prefix=base + prefix,
                    after=start,
                    limit=min(PAGE, limit + 1 - len(entries)),
                    positions=author.positions,
                )
            )
            documents = [self._entry_document(row) for row in rows]
            entries += [await self._entry(scope, one) for one in documents if not self._is_expired(one)]
            if not rows:
                return entries, False
            if len(entries) > limit:
                return entries[:limit], True
            start = rows[-1].id

    async def usage(self, scope: Scope, positions: Sequence[str] = ()) -> Mapping[str, int]:
        """Return bytes, quota_bytes and keys of a scope."""
        rows = await self._read(
            self._reads.load_items(FAMILY_NAME, scope.tenant, SCOPE_ITEM, [scope.aggregate], positions=positions)
        )
        document = _document(rows[0]) if rows else {}
        return usage_of(document.get("bytes", 0), document.get("quota_bytes", 0), document.get("keys", 0))

    async def scopes(
        self, tenant: str, name: str, *, after: str = "", limit: int, positions: Sequence[str] = ()
    ) -> Sequence[Mapping[str, Any]]:
        """Return scope_id, keys, bytes and updated_at_ms of the scopes of a name that have keys, by id."""
        rows: list[ItemRow] = []
        start = f"{name}/{after}" if after else ""
        while len(rows) < limit:
            page = await self._read(
                self._reads.list_items_by_id(
                    FAMILY_NAME,
                    tenant,
                    SCOPE_ITEM,
                    prefix=f"{name}/",
                    after=start,
                    limit=min(PAGE, limit - len(rows)),
                    positions=positions,
                )
            )
            rows += page
            if not page:
                break
            start = page[-1].id
        return [{"scope_id": row.id.partition("/")[2], **_document(row)} for row in rows]

    async def history(
        self, scope: Scope, key: str, *, limit: int, cursor: str = "", positions: Sequence[str] = ()
    ) -> tuple[Sequence[Mapping[str, Any]], str]:
        """Return the changes of a key, newest first, and the cursor of the next page. Raises InvalidPageToken."""
        page = await self._read(
            self._reads.list_items(
                FAMILY_NAME,
                scope.tenant,
                VERSION_ITEM,
                key_a=version_key(scope.name, scope.id, key),
                limit=limit,
                after=cursor,
                positions=positions,
            )
        )
        return [await self._version(scope, row) for row in page.rows], page.next

    async def at(
        self,
        scope: Scope,
        key: str,
        *,
        at_ms: float = float("inf"),
        offset_max: int = OFFSET_MAX,
        positions: Sequence[str] = (),
    ) -> Mapping[str, Any] | None:
        """Return the last change of a key up to a time or an offset of its partition; None before its first one."""
        named = version_key(scope.name, scope.id, key)
        rows = await self._read(
            self._reads.newest_items(
                FAMILY_NAME,
                scope.tenant,
                VERSION_ITEM,
                "key_a",
                [named],
                number_max=at_ms,
                offset_max=offset_max,
                positions=positions,
            )
        )
        return await self._version(scope, rows[named]) if named in rows else None

    async def _version(self, scope: Scope, row: ItemRow) -> Mapping[str, Any]:
        document: Mapping[str, Any] = await self._plain(scope, _document(row))
        return {
            **document,
            "at_ms": row.at_ms,
            "position": self._position(row),
        }

    async def superseded(
        self, scope: Scope, *, after: int, limit: int, positions: Sequence[str] = ()
    ) -> tuple[Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]], int]:
        """Return the changes behind a revision that superseded an entry, each with the version it ended if that is
        kept; and the revision behind which the next page begins, 0 at the end. Reads at most SCANNED_MAX changes.
        """
        base, superseding = f"{scope.aggregate}#", list[ItemRow]()
        start = f"{base}{after:010d}.~" if after else ""
        following = after
        for _ in range(SCANNED_MAX // PAGE):
            rows = await self._read(
                self._reads.list_items_by_id(
                    FAMILY_NAME, scope.tenant, VERSION_ITEM, prefix=base, after=start, limit=PAGE, positions=positions
                )
            )
            for row in rows:
                document = _document(row)
                # The id of another scope may begin with this one and a number sign.
                is_own = row.id[len(base) :].partition(".")[0] == f"{document['revision']:010d}"
                if is_own and document["op"] == "supersede":
                    superseding.append(row)
                following = document["revision"] if is_own else following
                if len(superseding) == limit:
                    return await self._with_ended(scope, superseding, positions), following
            if len(rows) < PAGE:
                return await self._with_ended(scope, superseding, positions), 0
            start = rows[-1].id
        return await self._with_ended(scope, superseding, positions), following

    async def _with_ended(
        self, scope: Scope, rows: Sequence[ItemRow], positions: Sequence[str]
    ) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
        changes = [await self._version(scope, row) for row in rows]
        ids = [f"{scope.aggregate}#{change['previous_revision']:010d}" for change in changes]
        ended = await self._read(
            self._reads.load_items(FAMILY_NAME, scope.tenant, VERSION_ITEM, ids, positions=positions)
        )
        by_id = {row.id: row for row in ended}
        return [
            (change, await self._version(scope, by_id[one]) if one in by_id else None)
            for change, one in zip(changes, ids, strict=True)
        ]

    def _position(self, row: ItemRow) -> str:
        return f"{self._reads.topic}/{row.partition}:{row.offset}"

    def _entry_document(self, row: ItemRow) -> dict[str, Any]:
        return {**_document(row), "position": self._position(row)}

    def _is_expired(self, document: Mapping[str, Any]) -> bool:
        return 0 < int(document["expires_at_ms"]) <= self._clock_ms()

    async def _entry(self, scope: Scope, document: Mapping[str, Any]) -> StoredEntry:
        plain = await self._plain(scope, document)
        return StoredEntry(
            key=plain["key"],
            text=plain["value"],
            bytes=plain["bytes"],
            revision=plain["revision"],
            created_at_ms=plain["created_at_s"] * 1000,
            updated_at_ms=plain["at_ms"],
            expires_at_ms=plain["expires_at_ms"],
            embed=plain["embed"],
            provenance=plain["provenance"],
            source=plain["source"],
            position=plain["position"],
        )

    async def _plain(self, scope: Scope, value: Any) -> Any:
        try:
            return await self._decrypt(value, scope.tenant)
        except ConnectorError as error:
            raise Unavailable(f"the content cannot be decrypted: {error}") from error

    async def _read(self, reading: Awaitable[Any]) -> Any:
        try:
            return await reading
        except (PositionNotRead, ConnectorError) as error:
            raise Unavailable(f"the entries cannot be read: {error}") from error

    # --- writing -----------------------------------------------------------------------------------------------------

    async def set(self, scope: Scope, key: str, change: Change, author: Author, step: str = "") -> Written:
        """Set a key. Raises Refused(revision_conflict) too."""
        command = copy_as(
            SetEntry,
            change,
            envelope=author.envelope(step),
            scope=scope.name,
            scope_id=scope.id,
            key=key,
            value=change.text,
            value_bytes=len(change.text.encode()),
            source=author.source(),
        )
        answer = await self._ask(command, scope)
        event = answer.events[-1]
        assert isinstance(event, EntrySet)
        self._keep(
            (aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate), key),
            _cached_document(event, self._clock_ms(), answer.position),
        )
        try:
            text = await self._plain(scope, event.value)
        except Unavailable as error:
            raise Unavailable(str(error), is_unknown=True) from error  # it is written
        return Written(
            text=text,
            revision=event.revision,
            dropped=event.dropped,
            expires_at_ms=event.expires_at_ms,
            usage=usage_of(event.usage_bytes, event.quota_bytes, event.usage_keys),
            position=answer.position,
        )

    async def delete(self, scope: Scope, key: str, author: Author) -> tuple[bool, str]:
        command = DeleteEntry(
            envelope=author.envelope(), scope=scope.name, scope_id=scope.id, key=key, source=author.source()
        )
        answer = await self._ask(command, scope)
        return not isinstance(answer.events[-1], CommandHadNoEffect), answer.position

    async def supersede(self, scope: Scope, key: str, by_key: str, reason: str, author: Author) -> str:
        """Archive a key; return the position of the event."""
        command = SupersedeEntry(
            envelope=author.envelope(),
            scope=scope.name,
            scope_id=scope.id,
            key=key,
            by_key=by_key,
            reason=reason,
            source=author.source(),
        )
        return (await self._ask(command, scope)).position

    async def drop(self, scope: Scope, reason: str, author: Author) -> tuple[int, str]:
        """Delete all keys of a scope; return their number, and the position of the last event."""
        command = DropScope(
            envelope=author.envelope(), scope=scope.name, scope_id=scope.id, reason=reason, source=author.source()
        )
        answer = await self._ask(command, scope)
        last = answer.events[-1]
        return (0 if isinstance(last, CommandHadNoEffect) else last.dropped_keys), answer.position

    async def _ask(self, command: Any, scope: Scope) -> Answer:
        """Return the answer of the owner. Raises Refused with the reason of the rules."""
        answer = await ask_owner(self._commands, command, wait_s=self._wait_s)
        last = answer.events[-1]
        if isinstance(last, CommandRefused):
            raise Refused(last.code, await self._plain(scope, last.message))
        self._written[scope.tenant, scope.aggregate] = answer.position
        self._written.move_to_end((scope.tenant, scope.aggregate))
        if len(self._written) > WRITTEN_MAX:
            self._written.popitem(last=False)
        return answer

    def written_positions(self, scopes: Iterable[Scope]) -> tuple[str, ...]:
        """Return the position tokens of the last changes that were made here, for reads in other processes."""
        positions = (self._written.get((scope.tenant, scope.aggregate)) for scope in scopes)
        return tuple(position for position in positions if position is not None)

    def _keep(self, place: tuple[str, str], document: Mapping[str, Any]) -> None:
        revision, size = document["revision"], len(document["value"]) + 500
        known = self._cache.pop(place, None)
        if known is not None:
            self._cached_bytes -= known[2]
            if known[0] > revision:
                revision, document, size = known
        self._cache[place] = (revision, document, size)
        self._cached_bytes += size
        while self._cached_bytes > CACHE_BYTES_MAX:
            self._cached_bytes -= self._cache.popitem(last=False)[1][2]


def usage_of(size: int, quota: int, keys: int) -> Mapping[str, int]:
    """Return what a scope holds; a quota of -1 is none."""
    return {"bytes": size, "quota_bytes": quota or limits.SCOPE_BYTES_DEFAULT, "keys": keys}


def _document(row: ItemRow) -> dict[str, Any]:
    return {**orjson.loads(row.document), "at_ms": row.at_ms}


def _cached_document(event: EntrySet, at_ms: int, position: str) -> Mapping[str, Any]:
    """Return what the row of an event will have; its time is about that of the event."""
    return {**orjson.loads(entry_document(event)), "at_ms": at_ms, "position": position}
