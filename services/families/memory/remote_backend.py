"""Entries of another installation, over its memory routes (protocols Backend and Finder of this folder).

    write     PUT with an Idempotency-Key made of the command id, so a call that is made again is one write
    reducer   GET, then PUT with the revision that was read; the key of such a PUT counts whatever value it has, and the
              answer to a repetition has the value that was written first. A peer that tells no revisions gets the PUT
              without, and a repetition of incr or bounded_list is refused, because it might count twice
    read      waits at the peer for the last write that this process made in the scope

Tenants are told apart by the key or by a prefix of the scope ids (in the scope of a tenant: of the keys). Scope ids are
sent with % and / escaped, so that none is the path of another.

What the peer answers is checked like the input of a stranger, and of its errors only the code is used.

Before: backends.py, entry_operations.py. After: connectors/memory_peer/client.py.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from msgspec import UNSET, structs, to_builtins

from loomlog.connectors.errors import ConnectorError, Permanent, UnknownOutcome
from loomlog.connectors.memory_peer.client import PeerAnswer
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.api import MemoryFacts, MemoryHit, MemoryHits, MemoryRecall, MemorySearch
from loomlog.services.families.memory.author import TENANT, Author, Scope
from loomlog.services.families.memory.decide import key_problem
from loomlog.services.families.memory.store import Change, StoredEntry, Written
from loomlog.services.families.memory.values import value_text

POSITION_HEADER, USAGE_HEADER = "x-loomlog-position", "x-loomlog-memory-usage"
POSITIONS_MAX = 10_000
"""Scopes whose last write is remembered."""
REVISION_MAX = 2**53
NO_REVISION = -1
CONFLICT_PAUSE_S = 0.02
"""Pause before a reducer reads again: the peer's read models follow its log by some milliseconds."""
COUNTING = frozenset({"incr", "bounded_list"})
"""Reducers that have another effect when they are applied twice."""
SEARCH_FIELDS = ("query", "top_k", "prefix", "sources", "rank", "dedup")
SOURCES = {"fact": "facts", "note": "notes"}
"""Sources by the kind of a hit; any other kind is the class of a document."""
HITS_MAX = 50
HIT_FIELDS = ("kind", "score", "rank_score", "embedded_with", "expires_at", "chunk_id", "document", "title", "ranks")
ANSWER_FIELDS = ("query_embedding_dim", "truncated", "dedup_dropped", "rank_note")
NOT_DONE = frozenset({"starting", "memory_unavailable"})
"""Codes of a status of 500 or more after which nothing was done and nothing will be."""
REFUSALS: Mapping[str, str] = {
    "revision_conflict": "the key has another revision; read again",
    "memory_value_too_large": "the value is larger than it keeps",
    "memory_quota_exceeded": "the scope is full; delete keys that are not needed",
    "invalid_scope": "it does not take this scope",
    "invalid_value": "it does not take this value",
    "invalid_sources": "it does not take these sources",
    "search_unavailable": "it has no search index",
    "vector_unsupported": "it has no index of vectors",
    "embedder_not_configured": "it has no embedder",
    "embedder_not_implemented": "it has no embedder",
    "dimension_mismatch": "its vectors are of another model than its embedder",
    "capability_unsupported": "it cannot do this",
}
"""What a refusal of the peer means, by its code."""


class PeerDown(Unavailable):
    """The peer does not answer, or has no room: it is the same for every caller."""


class Peer(Protocol):
    """Sends requests to another installation (connectors/memory_peer/client.py)."""

    async def send(
        self,
        method: str,
        path: Sequence[str],
        *,
        key: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PeerAnswer: ...

    async def close(self) -> None: ...


class RemoteBackend:
    """A backend of that name. `key_of` returns the key of a tenant and raises Refused; empty: none is sent.

    `prefix_of` returns the prefix of a tenant. All methods raise Refused and Unavailable.
    """

    def __init__(
        self,
        name: str,
        peer: Peer,
        *,
        key_of: Callable[[str], str],
        prefix_of: Callable[[str], str] = lambda tenant: "",
    ) -> None:
        self.name = name
        self._peer = peer
        self._key_of = key_of
        self._prefix_of = prefix_of
        self._has_revisions: bool | None = None
        """None until an answer has shown it."""
        self._positions: OrderedDict[Scope, str] = OrderedDict()

    async def close(self) -> None:
        await self._peer.close()

    async def is_alive(self, tenant: str) -> bool:
        """Return whether the peer answers requests."""
        try:
            await self._send("GET", ["scopes"], Scope(tenant, TENANT))
        except PeerDown:
            return False
        except (Refused, Unavailable):
            pass  # it answers, and calls tell what is wrong
        return True

    # --- entries -----------------------------------------------------------------------------------------------------

    async def get(self, scope: Scope, key: str, author: Author) -> StoredEntry | None:
        """Return a key that has not expired."""
        answer = await self._send("GET", self._path(scope, key), scope, missing_ok=True)
        # The past of `a` is at `a/history`, where the key of that name would be.
        if answer is None or ("entry" not in answer.fields and "versions" in answer.fields):
            return None
        return self._entry(answer.fields.get("entry"), self._stored_key(scope, key))

    async def list(
        self, scope: Scope, author: Author, *, prefix: str = "", after: str = "", limit: int
    ) -> tuple[Sequence[StoredEntry], bool]:
        """Return entries in the order of their keys, and whether there are more."""
        own, query = self._key_prefix(scope), dict[str, str | int](limit=limit)
        if own or prefix:
            query["prefix"] = own + prefix
        if after:
            query["after"] = own + after
        answer = await self._send("GET", self._path(scope), scope, query=query)
        assert answer is not None
        rows = answer.fields.get("entries")
        if not isinstance(rows, list):
            raise self._garbage("a list of keys without entries")
        entries = [self._entry(row, None) for row in rows]
        if any(not entry.key.startswith(own + prefix) for entry in entries):
            raise self._garbage("keys that were not asked for")
        shown = [
            replace(entry, key=entry.key[len(own) :])
            for entry in sorted(entries, key=lambda entry: entry.key)
            if entry.key > own + after or not after
        ]
        is_truncated = answer.fields.get("truncated") is True
        if is_truncated and rows and not shown:
            raise Refused("capability_unsupported", self._text("it cannot list `after` a key; use a prefix"))
        return shown[:limit], is_truncated or len(shown) > limit

    async def set(self, scope: Scope, key: str, change: Change, author: Author, step: str = "") -> Written:
        """Set a key. Raises Refused(revision_conflict) too."""
        if change.provenance is not None:
            text = "it keeps no facts with their provenance; set a note, without provenance, at another key"
            raise Refused("capability_unsupported", self._text(text))
        if change.embed_text:
            raise Refused("capability_unsupported", self._text("it takes no embed_text; leave it out"))
        body: dict[str, Any] = {"value": json.loads(change.text)}
        if change.embed:
            body["embed"] = True
        if change.ttl_ms:
            body["ttl_seconds"] = change.ttl_ms // 1000
        body |= self._condition(change, author)
        try:
            answer = await self._send("PUT", self._path(scope, key), scope, body=body, author=author, step=step)
        except Refused as refused:
            if refused.code == "revision_conflict" and change.op != "set":
                await asyncio.sleep(CONFLICT_PAUSE_S)
            raise
        assert answer is not None
        fields = answer.fields
        revision = self._revision(_revision_of(answer.headers.get("etag", "")))
        text = self._value_text(fields["value"]) if "value" in fields else change.text
        warning = fields.get("embed_warning")
        return Written(
            text=text,
            revision=revision,
            dropped=change.dropped,
            expires_at_ms=0,
            usage=_usage(answer.headers.get(USAGE_HEADER, "")),
            position="",  # one of the peer's log, where no read of this installation waits
            embedding=(fields.get("embedded") is True, warning[:200] if isinstance(warning, str) else ""),
        )

    async def delete(self, scope: Scope, key: str, author: Author) -> tuple[bool, str]:
        """Return whether there was such a key when it was looked for just before, and no position."""
        existed = await self.get(scope, key, author) is not None
        await self._send("DELETE", self._path(scope, key), scope, author=author)
        return existed, ""

    # --- search ------------------------------------------------------------------------------------------------------

    async def search(self, scope: Scope, asked: MemorySearch, author: Author) -> MemoryHits:
        """Return what the peer finds; `sources_applied` is false unless every hit is of these sources."""
        own = self._key_prefix(scope)
        fields = to_builtins(asked)
        body = {name: fields[name] for name in SEARCH_FIELDS if fields[name] is not None}
        if own:
            body["prefix"] = own + (asked.prefix or "")
        body |= {"scope": scope.name, "scope_id": self._scope_id(scope)}
        answer = await self._send("POST", ["search"], scope, body=body)
        assert answer is not None
        rows = answer.fields.get("entries")
        if not isinstance(rows, list):
            raise self._garbage("hits without entries")
        hits = [self._hit(row, own) for row in rows[:HITS_MAX]]
        facts: dict[str, Any] = {name: _scalar(answer.fields.get(name)) for name in ANSWER_FIELDS}
        shown = MemoryHits(entries=hits, **{name: one for name, one in facts.items() if one is not None})
        if not asked.sources:
            return shown
        is_applied = answer.fields.get("sources_applied") is not False
        is_applied = is_applied and all(_is_of(hit, asked.sources) for hit in hits)
        note = self._text("it did not search these sources alone; `kind` tells what a hit is")
        return structs.replace(shown, sources_applied=is_applied, note=UNSET if is_applied else note)

    async def recall(self, scope: Scope, asked: MemoryRecall, author: Author) -> MemoryFacts:
        """Refuse: the peer's route finds facts and notes, not facts alone."""
        raise Refused("capability_unsupported", self._text("it cannot recall facts; use op search"))

    def _hit(self, row: Any, own: str) -> MemoryHit:
        if not isinstance(row, Mapping):
            raise self._garbage("a hit that is no object")
        key = row.get("key")
        if not isinstance(key, str) or key_problem(key) or not key.startswith(own):
            raise self._garbage("a hit that was not asked for")
        shown: dict[str, Any] = {}
        for name in HIT_FIELDS:
            value = row.get(name)
            if isinstance(value, Mapping):
                shown[name] = {str(part)[:60]: _scalar(item) for part, item in list(value.items())[:10]}
            elif name in row:
                shown[name] = _scalar(value)
        return MemoryHit(key=key[len(own) :], value=json.loads(self._value_text(row.get("value"))), **shown)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _send(
        self,
        method: str,
        path: Sequence[str],
        scope: Scope,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        author: Author | None = None,
        step: str = "",
        missing_ok: bool = False,
    ) -> PeerAnswer | None:
        """Return a successful answer; with `missing_ok`, None for a key that is not there. Writes have an author."""
        headers: dict[str, str] = {}
        if author is not None:
            headers["Idempotency-Key"] = hashed_token("memory-peer", author.tenant, author.command_id, step)
        elif position := self._positions.get(scope):
            headers[POSITION_HEADER] = position
        try:
            answer = await self._peer.send(
                method, path, key=self._key_of(scope.tenant), query=query, body=body, headers=headers
            )
        except UnknownOutcome as error:
            raise PeerDown(self._text(f"{error}; the write may have been carried out"), is_unknown=True) from error
        except Permanent as error:
            raise Unavailable(self._text(str(error))) from error
        except ConnectorError as error:
            raise PeerDown(self._text(str(error))) from error
        if 200 <= answer.status < 300:
            self._note_position(scope, answer)
            return answer
        if missing_ok and answer.status == 404 and answer.code == "not_found":
            return None
        if answer.status >= 500:
            self._positions.pop(scope, None)  # it may be of a log that the peer no longer has
        raise self._failure(answer, is_write=author is not None)

    def _failure(self, answer: PeerAnswer, *, is_write: bool) -> Refused | Unavailable:
        status, code = answer.status, answer.code
        if status in (401, 403):
            return Unavailable(self._text(f"it does not accept the key ({status}); see api_key_env"))
        if status in (408, 429) or status >= 500:
            is_unknown = is_write and status >= 500 and code not in NOT_DONE
            note = "; the write may have been carried out" if is_unknown else ""
            return PeerDown(self._text(f"it answered {status}{note}"), is_unknown=is_unknown)
        if status < 400:
            return Unavailable(self._text(f"it answered {status}: redirects are not followed"))
        if code in REFUSALS:
            return Refused(code, self._text(REFUSALS[code]))
        match status:
            case 404 | 405:
                text = f"it has no such route ({status}); see base_url and api_version"
                return Refused("capability_unsupported", self._text(text))
            case 413:
                return Refused("memory_value_too_large", self._text(REFUSALS["memory_value_too_large"]))
        return Refused("bad_request", self._text(f"it refuses the request ({status})"))

    def _note_position(self, scope: Scope, answer: PeerAnswer) -> None:
        text = answer.headers.get(POSITION_HEADER, "")
        try:
            Position.parse(text)
        except ValueError:
            return
        self._positions[scope] = text
        self._positions.move_to_end(scope)
        if len(self._positions) > POSITIONS_MAX:
            self._positions.popitem(last=False)

    def _condition(self, change: Change, author: Author) -> dict[str, int]:
        """Return the condition of a write. Raises Refused for one that the peer cannot keep."""
        if change.if_revision == NO_REVISION:
            if change.op in COUNTING and not author.issued_at_ms:
                text = f"it tells no revisions, and an earlier attempt of this {change.op} may have had its effect; "
                raise Refused("capability_unsupported", self._text(text + "read the key first"))
            return {}
        if change.if_revision < 0:  # the write is only looked up
            if not self._has_revisions:
                raise Refused("revision_conflict", self._text("it cannot tell what became of an earlier attempt"))
            return {"if_revision": REVISION_MAX}
        if change.if_revision and self._has_revisions is False:
            raise Refused("capability_unsupported", self._text("it tells no revisions; leave if_revision out"))
        return {} if self._has_revisions is False else {"if_revision": change.if_revision}

    # --- names -------------------------------------------------------------------------------------------------------

    def _path(self, scope: Scope, key: str | None = None) -> Sequence[str]:
        path = ["scopes", scope.name, self._scope_id(scope) or "-", "keys"]
        return path if key is None else [*path, self._stored_key(scope, key)]

    def _scope_id(self, scope: Scope) -> str:
        if scope.name == TENANT:
            return ""
        return self._prefix_of(scope.tenant) + scope.id.replace("%", "%25").replace("/", "%2F")

    def _key_prefix(self, scope: Scope) -> str:
        return self._prefix_of(scope.tenant) if scope.name == TENANT else ""

    def _stored_key(self, scope: Scope, key: str) -> str:
        stored = self._key_prefix(scope) + key
        if len(stored) > limits.KEY_CHARACTERS_MAX:
            most = limits.KEY_CHARACTERS_MAX - len(stored) + len(key)
            raise Refused("bad_request", self._text(f"key: it has {len(key)} characters, at most {most} fit"))
        return stored

    # --- answers -----------------------------------------------------------------------------------------------------

    def _entry(self, row: Any, expected_key: str | None) -> StoredEntry:
        """Return an entry with the key that the peer has for it."""
        if not isinstance(row, Mapping) or "value" not in row:
            raise self._garbage("no entry with a value")
        key = row.get("key", expected_key)
        if not isinstance(key, str) or key_problem(key) or key != (expected_key or key):
            raise self._garbage("an entry of another key")
        text, source = self._value_text(row["value"]), row.get("source")
        return StoredEntry(
            key=key,
            text=text,
            bytes=len(text.encode()),
            revision=self._revision(row.get("revision")) if expected_key else NO_REVISION,
            created_at_ms=_time_ms(row.get("created_at")),
            updated_at_ms=_time_ms(row.get("updated_at")),
            expires_at_ms=_time_ms(row.get("expires_at")),
            embed=row.get("embed") is True,
            provenance=_provenance(row.get("provenance")),
            source={str(name)[:60]: _scalar(value) for name, value in list(source.items())[:20]}
            if isinstance(source, Mapping)
            else {},
        )

    def _revision(self, revision: Any) -> int:
        """Return the revision of an answer; NO_REVISION when the peer tells none."""
        self._has_revisions = revision is not None
        if revision is None:
            return NO_REVISION
        if type(revision) is not int or not 0 < revision < REVISION_MAX:
            raise self._garbage("a revision that is none")
        return revision

    def _value_text(self, value: Any) -> str:
        try:
            return value_text(value, limits.VALUE_BYTES_MAX)
        except Refused as refused:
            raise self._garbage("a value that cannot be kept") from refused

    def _garbage(self, what: str) -> Unavailable:
        return Unavailable(self._text(f"it answered with {what}"))

    def _text(self, problem: str) -> str:
        return f"the memory backend {self.name}: {problem}"


def _is_of(hit: MemoryHit, sources: Collection[str]) -> bool:
    """Return whether a hit is of one of the sources; one that does not tell its kind is of none."""
    return bool(hit.kind) and SOURCES.get(str(hit.kind), "documents") in sources


def _scalar(value: Any) -> str | int | float | bool | None:
    """Return a text, a number or a flag as it is, bounded; None for anything else."""
    if isinstance(value, str):
        return value[:1_000].encode(errors="replace").decode()
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < REVISION_MAX):
        return value
    return None


def _provenance(value: Any) -> Mapping[str, Any] | None:
    """Return the stored fields of a provenance as it is shown (answers.py); None for a note."""
    if not isinstance(value, Mapping):
        return None
    names = ("origin", "source_session_id", "source_run_id")
    shown = {name: text for name in names if isinstance(text := _scalar(value.get(name)), str)}
    return {**shown, "fact_class": str(_scalar(value.get("class")) or "fact")}


def _revision_of(etag: str) -> int | None:
    """Return the revision in an ETag of the answer to a PUT; None without one."""
    number = etag.removeprefix("W/").strip('"')
    return int(number) if number.isdecimal() and len(number) < 16 else None


def _usage(header: str) -> Mapping[str, int]:
    """Return the usage of the scope; empty when the peer does not tell it."""
    usage: dict[str, int] = {}
    for part in header.split(","):
        name, _, number = part.strip().partition("=")
        if name in ("bytes", "quota_bytes", "keys") and number.lstrip("-").isdecimal() and len(number) < 16:
            usage[name] = int(number)
    return usage if len(usage) == 3 else {}


def _time_ms(value: Any) -> int:
    """Return a time of RFC 3339 in UTC milliseconds; 0 without one."""
    try:
        time = datetime.fromisoformat(value)
        return max(0, int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000))
    except (TypeError, ValueError, OverflowError):
        return 0
