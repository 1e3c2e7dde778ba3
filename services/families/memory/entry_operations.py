"""Operations on entries: get, set, delete, list, the reducers, supersede; and what finds and learns facts.

A reducer reads, computes and writes with the revision it read. When another write was faster it reads again, with the
next command id of the call; a repeated call walks the same ids, so it has its effect once.

Before: handlers.py. After: store.py, or another backend; search.py.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import UNSET, UnsetType, structs, to_builtins

from loomlog.schemas.generated.values import Provenance
from loomlog.schemas.records import Value
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import api, limits
from loomlog.services.families.memory.answers import (
    expires_at,
    fact_origin,
    provenance_of,
    usage_fields,
)
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.decide import key_problem
from loomlog.services.families.memory.store import Backend, Change, MemoryStore, StoredEntry, Written
from loomlog.services.families.memory.values import appended, bounded, incremented, merged, parse_value, value_text
from loomlog.services.stream.encryption.subject_keys import ERASED

CONFLICTS_MAX = 30
"""How often a reducer reads again; calls of one process on one key wait for each other, so it takes many processes."""
NEVER_CURRENT = -2
"""A revision that no key has: the command is only looked up."""
CORE_PREFIX = "core/"

Reducer = Callable[[Any], tuple[Any, int]]
"""Returns the new value, and how many items were dropped."""
ReducerInput = api.MemoryIncr | api.MemoryMerge | api.MemoryAppend | api.MemoryBoundedList


class EntryLimits(Value, frozen=True, kw_only=True):
    """Bounds that the operator sets."""

    value_bytes_max: int = limits.VALUE_BYTES_DEFAULT
    scope_bytes_max: int = limits.SCOPE_BYTES_DEFAULT
    """Bytes of a scope; -1: no bound."""


DEFAULT_ENTRY_LIMITS = EntryLimits()


def entry_limits(value_bytes_max: int, scope_bytes_max: int) -> EntryLimits:
    """Return the bounds of the settings MEMORY_MAX_VALUE_BYTES and MEMORY_MAX_SCOPE_BYTES, of which 0 is none."""
    return EntryLimits(
        value_bytes_max=min(value_bytes_max, limits.VALUE_BYTES_MAX),
        scope_bytes_max=scope_bytes_max or limits.NO_QUOTA,
    )


class Embedding(Protocol):
    """What a write wants of the index."""

    async def wait_embedded(self, scope: Scope, key: str, revision: int, position: str) -> tuple[bool, str]:
        """Return whether the entry has its vector, after at most two seconds, and a warning without one."""
        ...


class Finder(Protocol):
    """Searches entries."""

    async def search(self, scope: Scope, asked: api.MemorySearch, author: Author) -> api.MemoryHits:
        """Return what a search finds. Raises Refused, Unavailable."""
        ...

    async def recall(self, scope: Scope, asked: api.MemoryRecall, author: Author) -> api.MemoryFacts:
        """Return the facts that a search finds. Raises Refused, Unavailable."""
        ...


class Learning(Protocol):
    """What becomes of messages that are to be learnt from, and where facts come from."""

    async def add(self, scope: Scope, asked: api.MemoryAdd, author: Author) -> Answer[api.MemoryAdded]:
        """Learn, or keep a fact. Raises Refused, Unavailable."""
        ...

    async def pending_origin(self, scope: Scope, pending_id: str, author: Author) -> Mapping[str, str]:
        """Return origin, source_session_id and source_run_id of a pending entry. Raises Refused(not_found)."""
        ...

    async def require_lease(self, scope: Scope, author: Author) -> None:
        """Raise Refused(lease_lost) unless the author holds the lease of the scope's target."""
        ...


class EntryOperations:
    """One method for each operation. All raise Refused and Unavailable."""

    def __init__(
        self,
        store: MemoryStore,
        entry_limits: EntryLimits,
        *,
        backend: Callable[[Author], Backend] | None = None,
        embedding: Embedding | None = None,
        finder: Finder | None = None,
    ) -> None:
        """`backend` returns that of the author's agent; None: all use the store. `embedding` None: no embedder."""
        self.store = store
        self.limits = entry_limits
        self._backend = backend or (lambda author: store)
        self._embedding = embedding
        self._finder = finder
        self.learning: Learning | None = None
        """Set later by who needs the operations to build it."""
        self._locks: dict[tuple[Scope, str], tuple[asyncio.Lock, int]] = {}

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(self, asked: api.MemoryGet, author: Author, scope: Scope) -> Answer[api.MemoryValue]:
        """Read a value."""
        entry = await self._backend(author).get(scope, _key(asked), author)
        if entry is None:
            return Answer(value=api.MemoryValue(value=None, expires_at=None))
        shown = api.MemoryValue(
            value=parse_value(entry.text), expires_at=expires_at(entry), revision=_revision(entry.revision)
        )
        if asked.include_provenance:
            shown = structs.replace(shown, provenance=fact_origin(entry), source=dict(entry.source))
        return Answer(value=shown)

    async def list(self, asked: api.MemoryList, author: Author, scope: Scope) -> Answer[api.MemoryListed]:
        """List keys with their values."""
        entries, truncated = await self._backend(author).list(
            scope, author, prefix=asked.prefix, after=asked.after, limit=asked.limit
        )
        rows = [
            api.MemoryListedRow(key=entry.key, value=parse_value(entry.text), expires_at=expires_at(entry))
            for entry in entries
        ]
        return Answer(value=api.MemoryListed(entries=rows, truncated=truncated))

    async def search(self, asked: api.MemorySearch, author: Author, scope: Scope) -> Answer[api.MemoryHits]:
        """Find entries."""
        return Answer(value=await self._require_finder().search(scope, asked, author))

    async def recall(self, asked: api.MemoryRecall, author: Author, scope: Scope) -> Answer[api.MemoryFacts]:
        """Find facts."""
        return Answer(value=await self._require_finder().recall(scope, asked, author))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def set(self, asked: api.MemorySet, author: Author, scope: Scope) -> Answer[api.MemorySetDone]:
        """Set a key."""
        key, text = _key(asked), value_text(asked.value, self.limits.value_bytes_max)
        self._require_writable(scope, key, author, text)
        if len(asked.embed_text.encode()) > self.limits.value_bytes_max:
            raise Refused("memory_value_too_large", f"embed_text: at most {self.limits.value_bytes_max} bytes are kept")
        change = Change(
            text=text,
            ttl_ms=1000 * asked.ttl,
            if_revision=-1 if isinstance(asked.if_revision, UnsetType) else asked.if_revision,
            embed=asked.embed,
            embed_text=asked.embed_text,
            provenance=await self._provenance(asked, author, scope),
            quota_bytes=self._quota(author),
        )
        written, is_embedded, warning = await self.set_entry(scope, key, change, author)
        done = api.MemorySetDone(ok=True, revision=_revision(written.revision), **usage_fields(written.usage))
        if asked.embed:
            done = structs.replace(done, embedded=is_embedded, embed_warning=warning or UNSET)
        return Answer(value=done, positions=_positions(written.position))

    async def set_fact(
        self, scope: Scope, author: Author, key: str, value: Mapping[str, Any], provenance: Provenance
    ) -> tuple[str, ...]:
        """Set a fact; `value` has `memory`, the text by which it is found. Return the position of the event."""
        change = Change(
            text=value_text(value, self.limits.value_bytes_max),
            op="add",
            embed=True,
            embed_text=value["memory"],
            provenance=provenance,
            quota_bytes=self._quota(author),
        )
        return _positions((await self._backend(author).set(scope, key, change, author)).position)

    async def set_entry(self, scope: Scope, key: str, change: Change, author: Author) -> tuple[Written, bool, str]:
        """Set a key; return what was written, whether it is embedded, and a warning."""
        written = await self._backend(author).set(scope, key, change, author)
        is_embedded, warning = await self._wait_embedded(scope, key, change, written)
        return written, is_embedded, warning

    async def delete(self, asked: api.MemoryDelete, author: Author, scope: Scope) -> Answer[api.MemoryDeleted]:
        """Delete a key, if there is one."""
        key = _key(asked)
        self._require_writable(scope, key, author)
        deleted, position = await self._backend(author).delete(scope, key, author)
        return Answer(value=api.MemoryDeleted(deleted=deleted), positions=_positions(position))

    async def supersede(
        self, asked: api.MemorySupersede, author: Author, scope: Scope
    ) -> Answer[api.MemorySupersedeDone]:
        """Archive a key."""
        key = _key(asked)
        self._require_writable(scope, key, author)
        if author.grants is not None:
            await self._require_learning("supersede").require_lease(scope, author)
        position = await self.store.supersede(scope, key, asked.by_key, asked.reason, author)
        return Answer(value=api.MemorySupersedeDone(ok=True), positions=(position,))

    async def add(self, asked: api.MemoryAdd, author: Author, scope: Scope) -> Answer[api.MemoryAdded]:
        """Learn, or keep a fact."""
        return await self._require_learning("add").add(scope, asked, author)

    async def _wait_embedded(self, scope: Scope, key: str, change: Change, written: Written) -> tuple[bool, str]:
        if not change.embed:
            return False, ""
        if written.embedding is not None:
            return written.embedding
        if self._embedding is None:
            return False, "embedder_not_configured"
        return await self._embedding.wait_embedded(scope, key, written.revision, written.position)

    # --- reducers ----------------------------------------------------------------------------------------------------

    async def incr(self, asked: api.MemoryIncr, author: Author, scope: Scope) -> Answer[api.MemoryReduced]:
        """Add to a number."""
        return await self._reduce("incr", lambda old: (incremented(old, asked.delta), 0), asked, author, scope)

    async def merge(self, asked: api.MemoryMerge, author: Author, scope: Scope) -> Answer[api.MemoryReduced]:
        """Merge an object into an object."""
        return await self._reduce(
            "merge", lambda old: (merged(old, asked.value), 0), asked, author, scope, embed=asked.embed
        )

    async def append_dedupe(self, asked: api.MemoryAppend, author: Author, scope: Scope) -> Answer[api.MemoryReduced]:
        """Append an item to a list, unless it has an equal one."""
        return await self._reduce("append_dedupe", lambda old: (appended(old, asked.value)[0], 0), asked, author, scope)

    async def bounded_list(
        self, asked: api.MemoryBoundedList, author: Author, scope: Scope
    ) -> Answer[api.MemoryReduced]:
        """Append an item to a list of at most so many."""
        return await self._reduce(
            "bounded_list", lambda old: bounded(old, asked.value, asked.limit), asked, author, scope
        )

    async def _reduce(
        self, op: str, reduce: Reducer, asked: ReducerInput, author: Author, scope: Scope, *, embed: bool = False
    ) -> Answer[api.MemoryReduced]:
        key = _key(asked)
        async with self._lock(scope, key):
            for number in range(CONFLICTS_MAX):
                step = str(number) if number else ""
                try:
                    written = await self._reduce_once(op, reduce, key, 1000 * asked.ttl, embed, author, scope, step)
                except Refused as refused:
                    if refused.code != "revision_conflict":
                        raise
                    continue
                done = api.MemoryReduced(
                    value=parse_value(written.text),
                    dropped=written.dropped if op == "bounded_list" else UNSET,
                    **usage_fields(written.usage),
                )
                return Answer(value=done, positions=_positions(written.position))
        raise Refused("revision_conflict", f"{op}: others changed {key[:120]!r} {CONFLICTS_MAX} times; try again")

    async def _reduce_once(
        self, op: str, reduce: Reducer, key: str, ttl_ms: int, embed: bool, author: Author, scope: Scope, step: str
    ) -> Written:
        backend = self._backend(author)
        entry = await backend.get(scope, key, author)
        try:
            value, dropped = reduce(_old_value(op, entry))
            text = value_text(value, self.limits.value_bytes_max)
            self._require_writable(scope, key, author, text)
        except Refused as refused:
            if author.issued_at_ms:
                raise
            # An earlier attempt may have had its effect, before others changed the value.
            change = Change(text="null", op=op, if_revision=NEVER_CURRENT)
            try:
                return await backend.set(scope, key, change, author, step)
            except Refused as unknown:
                raise refused from unknown
        change = Change(
            text=text,
            op=op,
            ttl_ms=ttl_ms,
            if_revision=0 if entry is None else entry.revision,
            dropped=dropped,
            embed=embed or (entry is not None and entry.embed),
            provenance=None if entry is None else provenance_of(entry.provenance),
            quota_bytes=self._quota(author),
        )
        return await backend.set(scope, key, change, author, step)

    async def _provenance(self, asked: api.MemorySet, author: Author, scope: Scope) -> Provenance | None:
        named = asked.provenance or api.MemoryProvenance()
        if asked.provenance is None and not asked.from_pending:
            return None
        learnt = {
            "fact_class": named.fact_class or "fact",
            "origin": author.origin,
            "source_session_id": author.session_id,
            "source_run_id": author.run_id,
            "spans": named.spans or (),
        }
        if author.grants is not None and author.grants.memory_consolidation:
            # The consolidator names the chat; all others learn in their own run.
            own = {"source_session_id": named.source_session_id, "source_run_id": named.source_run_id}
            learnt |= {name: value for name, value in own.items() if value is not UNSET}
        if asked.from_pending:
            origin = await self._require_learning("from_pending").pending_origin(scope, asked.from_pending, author)
            learnt |= {**origin, "pending_id": asked.from_pending}
        return provenance_of(to_builtins(learnt))

    def _require_finder(self) -> Finder:
        if self._finder is None:
            raise Refused("search_unavailable", "there is no search index here")
        return self._finder

    def _require_learning(self, op: str) -> Learning:
        if self.learning is None:
            raise Refused("capability_unsupported", f"{op}: there is no consolidation here")
        return self.learning

    def _require_writable(self, scope: Scope, key: str, author: Author, text: str = "") -> None:
        """Refuse a write to a declared core block that is read-only, or too long for it."""
        if author.grants is None or not key.startswith(CORE_PREFIX):
            return
        label = key.removeprefix(CORE_PREFIX)
        for block in author.grants.core_blocks:
            if block.get("label") != label or (block.get("scope") or "agent") != scope.name:
                continue
            if block.get("read_only"):
                raise Refused("bad_request", f"key: the core block {label} is read-only for this agent")
            most = block.get("limit_bytes") or 0
            if most and len(text.encode()) > most:
                raise Refused("memory_value_too_large", f"value: the core block {label} has at most {most} bytes")

    def _quota(self, author: Author) -> int:
        most = self.limits.scope_bytes_max
        return most if author.grants is None else author.grants.quota("memory_quota_bytes", most)

    def _lock(self, scope: Scope, key: str) -> "_KeyLock":
        return _KeyLock(self._locks, (scope, key))


class _KeyLock:
    """A lock for a key that exists while calls wait for it: calls of this process take their turns."""

    def __init__(self, locks: dict[tuple[Scope, str], tuple[asyncio.Lock, int]], key: tuple[Scope, str]) -> None:
        self._locks, self._key = locks, key

    async def __aenter__(self) -> None:
        lock, users = self._locks.get(self._key, (asyncio.Lock(), 0))
        self._locks[self._key] = (lock, users + 1)
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._locks[self._key][0].release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks.pop(self._key)
        if users > 1:
            self._locks[self._key] = (lock, users - 1)


def _old_value(op: str, entry: StoredEntry | None) -> Any:
    """Return what a reducer begins with: nothing when the value was erased, but a number is not counted on from 0."""
    if entry is None:
        return None
    if entry.text != ERASED:  # JSON text of a string has quotes
        return parse_value(entry.text)
    if op == "incr":
        raise Refused("invalid_value", "incr: the value of the key was erased with its writer; set it first")
    return None


def _key(asked: Any) -> str:
    key: str = asked.key
    if problem := key_problem(key):
        raise Refused("bad_request", problem)
    return key


def _revision(revision: int) -> int | UnsetType:
    """Return a revision as it is shown; a backend may have none."""
    return revision if revision > 0 else UNSET


def _positions(position: str) -> tuple[str, ...]:
    return (position,) if position else ()
