"""Operations on entries: get, set, delete, list, the reducers, supersede; and what finds and learns facts.

A reducer reads, computes and writes with the revision it read. When another write was faster it reads again, with the
next command id of the call; a repeated call walks the same ids, so it has its effect once.

Before: operations.py. After: store.py, or another backend; search.py.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import convert, to_builtins

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.values import Provenance
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.author import Author, Scope
from loomlog.services.families.memory.decide import key_problem
from loomlog.services.families.memory.fields import flag_field, integer_field, refuse, text_field
from loomlog.services.families.memory.store import Backend, Change, MemoryStore, StoredEntry, Written
from loomlog.services.families.memory.values import appended, bounded, incremented, merged, parse_value, value_text
from loomlog.services.families.operation import Reply
from loomlog.services.stream.encryption.subject_keys import ERASED

CONFLICTS_MAX = 30
"""How often a reducer reads again; calls of one process on one key wait for each other, so it takes many processes."""
NEVER_CURRENT = -2
"""A revision that no key has: the command is only looked up."""
CORE_PREFIX = "core/"
FACT_CLASS_CHARACTERS_MAX = 64
TTL_SECONDS_MAX = limits.TTL_MS_MAX // 1000

Reducer = Callable[[Any], tuple[Any, int]]
"""Returns the new value, and how many items were dropped."""


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

    async def search(self, scope: Scope, fields: Mapping[str, Any], author: Author) -> Mapping[str, Any]:
        """Return the answer of op search. Raises Refused, Unavailable."""
        ...

    async def recall(self, scope: Scope, fields: Mapping[str, Any], author: Author) -> Mapping[str, Any]:
        """Return the answer of op recall. Raises Refused, Unavailable."""
        ...


class Learning(Protocol):
    """What becomes of op add, and where facts come from."""

    async def add(self, scope: Scope, fields: Mapping[str, Any], author: Author) -> Reply:
        """Carry out op add. Raises Refused, Unavailable."""
        ...

    async def pending_origin(self, scope: Scope, pending_id: str, author: Author) -> Mapping[str, str]:
        """Return origin, source_session_id and source_run_id of a pending entry. Raises Refused(not_found)."""
        ...

    async def require_lease(self, scope: Scope, author: Author) -> None:
        """Raise Refused(lease_lost) unless the author holds the lease of the scope's target."""
        ...


class EntryOperations:
    """The handler (protocol ScopeOperations). `run` raises Refused, Unavailable."""

    def __init__(
        self,
        store: MemoryStore,
        entry_limits: EntryLimits,
        *,
        backend: Callable[[Author], Backend] | None = None,
        embedding: Embedding | None = None,
        finder: Finder | None = None,
        learning: Learning | None = None,
    ) -> None:
        """`backend` returns that of the author's agent; None: all use the store. `embedding` None: no embedder."""
        self.store = store
        self.limits = entry_limits
        self._backend = backend or (lambda author: store)
        self._embedding = embedding
        self._finder = finder
        self.learning = learning
        """What op add does; set later by who needs the operations to build it."""
        self._locks: dict[tuple[Scope, str], tuple[asyncio.Lock, int]] = {}

    async def run(self, op: str, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        """Carry out an operation."""
        match op:
            case "get":
                return await self._get(fields, author, scope)
            case "set":
                return await self._set(fields, author, scope)
            case "delete":
                key = _key(fields)
                self._require_writable(scope, key, author)
                deleted, position = await self._backend(author).delete(scope, key, author)
                return Reply(fields={"deleted": deleted}, positions=_positions(position))
            case "list":
                return await self._list(fields, author, scope)
            case "incr":
                delta = fields.get("delta", 1)
                return await self._reduce(op, lambda old: (incremented(old, delta), 0), fields, author, scope)
            case "merge":
                new = _value(fields)
                return await self._reduce(op, lambda old: (merged(old, new), 0), fields, author, scope)
            case "append_dedupe":
                item = _value(fields)
                return await self._reduce(op, lambda old: (appended(old, item)[0], 0), fields, author, scope)
            case "bounded_list":
                item = _value(fields)
                most = integer_field(fields, "limit", default=None, least=1, most=limits.BOUNDED_LIST_MAX)
                return await self._reduce(op, lambda old: bounded(old, item, most), fields, author, scope)
            case "supersede":
                return await self._supersede(fields, author, scope)
            case "search" | "recall":
                if self._finder is None:
                    raise Refused("search_unavailable", "there is no search index here")
                find = self._finder.search if op == "search" else self._finder.recall
                return Reply(fields=await find(scope, fields, author))
            case "add":
                return await self._require_learning(op).add(scope, fields, author)
        raise refuse(f"op: {op!r} is none of entries")

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _get(self, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        key = _key(fields)
        entry = await self._backend(author).get(scope, key, author)
        if entry is None:
            return Reply(fields={"value": None, "expires_at": None})
        reply = {**shown_value(entry), "revision": entry.revision}
        if flag_field(fields, "include_provenance", default=False):
            reply |= {"provenance": provenance_json(entry), "source": entry.source}
        return Reply(fields=reply)

    async def _list(self, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        limit = integer_field(fields, "limit", default=limits.LIST_DEFAULT, least=1, most=limits.LIST_MAX)
        entries, truncated = await self._backend(author).list(
            scope,
            author,
            prefix=text_field(fields, "prefix", default=""),
            after=text_field(fields, "after", default=""),
            limit=limit,
        )
        shown = [{"key": entry.key, **shown_value(entry)} for entry in entries]
        return Reply(fields={"entries": shown, "truncated": truncated})

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _set(self, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        key = _key(fields)
        text = value_text(_value(fields), self.limits.value_bytes_max)
        self._require_writable(scope, key, author, text)
        embed = flag_field(fields, "embed", default=False)
        embed_text = text_field(fields, "embed_text", default="")
        if len(embed_text.encode()) > self.limits.value_bytes_max:
            raise Refused("memory_value_too_large", f"embed_text: at most {self.limits.value_bytes_max} bytes are kept")
        if_revision = -1
        if "if_revision" in fields:
            if_revision = integer_field(fields, "if_revision", default=None, least=0, most=2**53)
        change = Change(
            text=text,
            ttl_ms=_ttl_ms(fields),
            if_revision=if_revision,
            embed=embed,
            embed_text=embed_text,
            provenance=await self._provenance(fields, author, scope),
            quota_bytes=self._quota(author),
        )
        return await self._written({"ok": True}, scope, key, change, author)

    async def set_fact(
        self, scope: Scope, author: Author, key: str, value: Mapping[str, Any], provenance: Provenance
    ) -> Reply:
        """Set a fact; `value` has `memory`, the text by which it is found."""
        change = Change(
            text=value_text(value, self.limits.value_bytes_max),
            op="add",
            embed=True,
            embed_text=value["memory"],
            provenance=provenance,
            quota_bytes=self._quota(author),
        )
        written = await self._backend(author).set(scope, key, change, author)
        return Reply(fields={"ok": True}, positions=_positions(written.position))

    async def set_entry(self, scope: Scope, key: str, change: Change, author: Author) -> tuple[Written, bool, str]:
        """Set a key for an operator; return what was written, whether it is embedded, and a warning."""
        if problem := key_problem(key):
            raise refuse(problem)
        written = await self._backend(author).set(scope, key, change, author)
        is_embedded, warning = await self._wait_embedded(scope, key, change, written)
        return written, is_embedded, warning

    async def _written(self, reply: dict[str, Any], scope: Scope, key: str, change: Change, author: Author) -> Reply:
        written, is_embedded, warning = await self.set_entry(scope, key, change, author)
        if change.embed:
            reply |= {"embedded": is_embedded} | ({"embed_warning": warning} if warning else {})
        return Reply(
            fields={**reply, "revision": written.revision, **usage_fields(written.usage)},
            positions=_positions(written.position),
        )

    async def _wait_embedded(self, scope: Scope, key: str, change: Change, written: Written) -> tuple[bool, str]:
        if not change.embed:
            return False, ""
        if written.embedding is not None:
            return written.embedding
        if self._embedding is None:
            return False, "embedder_not_configured"
        return await self._embedding.wait_embedded(scope, key, written.revision, written.position)

    async def _reduce(self, op: str, reduce: Reducer, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        key, ttl_ms = _key(fields), _ttl_ms(fields)
        embed = flag_field(fields, "embed", default=False)
        async with self._lock(scope, key):
            for number in range(CONFLICTS_MAX):
                step = str(number) if number else ""
                try:
                    written = await self._reduce_once(op, reduce, key, ttl_ms, embed, author, scope, step)
                except Refused as refused:
                    if refused.code != "revision_conflict":
                        raise
                    continue
                reply: dict[str, Any] = {"value": parse_value(written.text), **usage_fields(written.usage)}
                if op == "bounded_list":
                    reply["dropped"] = written.dropped
                return Reply(fields=reply, positions=_positions(written.position))
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

    async def _supersede(self, fields: Mapping[str, Any], author: Author, scope: Scope) -> Reply:
        key = _key(fields)
        self._require_writable(scope, key, author)
        if author.grants is not None:
            await self._require_learning("supersede").require_lease(scope, author)
        by_key = text_field(fields, "by_key", default="")
        position = await self.store.supersede(scope, key, by_key, text_field(fields, "reason", default=""), author)
        return Reply(fields={"ok": True}, positions=(position,))

    async def _provenance(self, fields: Mapping[str, Any], author: Author, scope: Scope) -> Provenance | None:
        named = fields.get("provenance")
        pending_id = text_field(fields, "from_pending", default="")
        if named is None and not pending_id:
            return None
        if named is not None and not isinstance(named, Mapping):
            raise refuse('provenance: expected an object such as {"class": "preference"}')
        fact_class = str((named or {}).get("class") or "fact")
        if len(fact_class) > FACT_CLASS_CHARACTERS_MAX or not fact_class.isprintable():
            raise refuse(f"provenance.class: expected at most {FACT_CLASS_CHARACTERS_MAX} characters")
        provenance = provenance_of(
            {
                "fact_class": fact_class,
                "origin": author.origin,
                "source_session_id": _source(named, "source_session_id", author, author.session_id),
                "source_run_id": _source(named, "source_run_id", author, author.run_id),
                "spans": _spans((named or {}).get("spans") or ()),
            }
        )
        assert provenance is not None
        if not pending_id:
            return provenance
        origin = await self._require_learning("from_pending").pending_origin(scope, pending_id, author)
        return provenance_of({**_fields(provenance), **origin, "pending_id": pending_id})

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


# --- how entries are shown ---------------------------------------------------------------------------------------


def shown_value(entry: StoredEntry) -> dict[str, Any]:
    """Return the value of an entry and when it expires."""
    expires_at = format_rfc3339(entry.expires_at_ms) if entry.expires_at_ms else None
    return {"value": parse_value(entry.text), "expires_at": expires_at}


def provenance_json(entry: StoredEntry) -> Mapping[str, Any] | None:
    """Return the provenance of an entry as it is shown; None for a note."""
    if entry.provenance is None:
        return None
    stored = entry.provenance
    return {
        "origin": stored.get("origin", ""),
        "class": stored.get("fact_class", ""),
        "source_session_id": stored.get("source_session_id", ""),
        "source_run_id": stored.get("source_run_id", ""),
        "origin_available": bool(stored.get("source_session_id") or stored.get("source_run_id")),
        "spans": list(stored.get("spans") or ()),
    }


def usage_fields(usage: Mapping[str, int]) -> dict[str, Any]:
    """Return the usage of a scope after a write, and a warning when it is nearly full."""
    if not usage:
        return {}
    quota = usage["quota_bytes"]
    nearly_full = quota > 0 and usage["bytes"] >= quota * limits.USAGE_NOTICE_SHARE
    shown: dict[str, Any] = {"usage": dict(usage)}
    if nearly_full:
        shown["usage_warning"] = f"the scope has {usage['bytes']} of {quota} bytes: delete what is not needed"
    return shown


def provenance_of(fields: Mapping[str, Any] | None) -> Provenance | None:
    """Return a provenance of its stored fields."""
    return None if fields is None else convert({"spans": (), **fields}, Provenance)


def _fields(provenance: Provenance) -> dict[str, Any]:
    return to_builtins(provenance)  # type: ignore[no-any-return]


def _source(named: Mapping[str, Any] | None, field: str, author: Author, own: str) -> str:
    """Return where a fact was learnt: the consolidator names the chat, all others learn in their own run."""
    if author.grants is None or not author.grants.memory_consolidation:
        return own
    return text_field(named or {}, field, default=own)


def _spans(listed: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(listed, list | tuple) or len(listed) > 20:
        raise refuse("provenance.spans: expected at most 20 objects with run_id, seq, start and end")
    spans = []
    for one in listed:
        if not isinstance(one, Mapping) or set(one) - {"run_id", "seq", "start", "end"}:
            raise refuse("provenance.spans: expected objects with run_id, seq, start and end")
        spans.append(
            {
                "run_id": text_field(one, "run_id"),
                "seq": integer_field(one, "seq", default=0, least=0, most=2**53),
                "start": integer_field(one, "start", default=0, least=0, most=2**31 - 1),
                "end": integer_field(one, "end", default=0, least=0, most=2**31 - 1),
            }
        )
    return spans


def _old_value(op: str, entry: StoredEntry | None) -> Any:
    """Return what a reducer begins with: nothing when the value was erased, but a number is not counted on from 0."""
    if entry is None:
        return None
    if entry.text != ERASED:  # JSON text of a string has quotes
        return parse_value(entry.text)
    if op == "incr":
        raise Refused("invalid_value", "incr: the value of the key was erased with its writer; set it first")
    return None


def _key(fields: Mapping[str, Any]) -> str:
    key = text_field(fields, "key")
    if problem := key_problem(key):
        raise refuse(problem)
    return key


def _value(fields: Mapping[str, Any]) -> Any:
    if "value" not in fields:
        raise Refused("missing_value", "value: it is missing; null is a value too")
    return fields["value"]


def _ttl_ms(fields: Mapping[str, Any]) -> int:
    return 1000 * integer_field(fields, "ttl", default=0, least=0, most=TTL_SECONDS_MAX)


def _positions(position: str) -> tuple[str, ...]:
    return (position,) if position else ()
