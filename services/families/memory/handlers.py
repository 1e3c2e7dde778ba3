"""The handlers of the operations of memory.

    members of a tenant     all its scopes; administrators name another tenant
    agents                  the scopes that their definition grants, at the backend that it names

Before: services.py. After: backends.py, entry_operations.py; store.py for the past, index_administration.py.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, structs

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.projections.entity_items import OFFSET_MAX
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.memory_index.reads import IndexMissing, MemoryIndex
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.operations import Answer, AnyOperation, Call, Handler, Handlers, NoInput
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.times import parse_time_ms
from loomlog.services.families.memory import api, limits
from loomlog.services.families.memory.answers import (
    entry_details,
    entry_row,
    superseded_row,
    usage_fields,
    version_fields,
    version_rows,
)
from loomlog.services.families.memory.author import SCOPES, Author, Scope, author_of, require_scope_id, scope_of
from loomlog.services.families.memory.backends import Backends
from loomlog.services.families.memory.decide import key_problem
from loomlog.services.families.memory.entry_operations import EntryOperations
from loomlog.services.families.memory.index_administration import IndexAdministration, shown_model
from loomlog.services.families.memory.store import FAMILY_NAME, Change, StoredEntry
from loomlog.services.families.memory.values import parse_value, value_text
from loomlog.services.families.ports.run_sources import FindRun

DESCRIPTIONS: Mapping[str, str] = {
    "agent": "What an agent keeps over all its runs.",
    "user": "What is kept of a user, over all agents.",
    "tenant": "What all agents and users of the tenant share.",
}
SCOPE_IDS_MAX = 10_000
FACT = "fact"
REVISION_DIGITS_MAX = 15
CURSOR_PROBLEM = "cursor: expected `next` of an earlier answer"
Operate = Callable[[EntryOperations, Any, Author, Scope], Awaitable[Answer[Any]]]


class MemoryHandlers:
    """The handlers. All raise Refused and Unavailable."""

    def __init__(
        self,
        entries: EntryOperations,
        backends: Backends,
        *,
        index: MemoryIndex | None = None,
        administration: IndexAdministration | None = None,
        find_run: FindRun,
    ) -> None:
        """`index` None: nothing is found by search."""
        self._entries, self._store, self._backends = entries, entries.store, backends
        self._index, self._administration = index, administration
        self._find_run = find_run

    def by_operation(self) -> Handlers:
        """Return the handlers by their operations."""
        on_entries: dict[AnyOperation, Operate] = {
            api.GET: lambda entries, asked, author, scope: entries.get(asked, author, scope),
            api.SET: lambda entries, asked, author, scope: entries.set(asked, author, scope),
            api.DELETE: lambda entries, asked, author, scope: entries.delete(asked, author, scope),
            api.LIST: lambda entries, asked, author, scope: entries.list(asked, author, scope),
            api.INCR: lambda entries, asked, author, scope: entries.incr(asked, author, scope),
            api.MERGE: lambda entries, asked, author, scope: entries.merge(asked, author, scope),
            api.APPEND_DEDUPE: lambda entries, asked, author, scope: entries.append_dedupe(asked, author, scope),
            api.BOUNDED_LIST: lambda entries, asked, author, scope: entries.bounded_list(asked, author, scope),
            api.ADD: lambda entries, asked, author, scope: entries.add(asked, author, scope),
            api.RECALL: lambda entries, asked, author, scope: entries.recall(asked, author, scope),
        }
        return {
            **{operation: self._on_entries(operate) for operation, operate in on_entries.items()},
            api.SUPERSEDE: self.supersede,
            api.SEARCH: self.search,
            api.LIST_SCOPES: self.scopes,
            api.LIST_SCOPE_IDS: self.scope_ids,
            api.READ: self.read,
            api.PUT: self.put,
            api.LIST_ENTRIES: self.entries,
            api.DROP: self.drop,
            api.LIST_SUPERSEDED: self.superseded,
            api.READ_AT: self.at,
            api.READ_USAGE: self.usage,
            api.EMBED_STATS: self.embed_stats,
            api.REEMBED: self.reembed,
            api.BACKFILL: self.backfill,
            api.PURGE_STALE: self.purge_stale,
        }

    # --- entries, wherever they are ----------------------------------------------------------------------------------

    def _on_entries(self, operate: Operate) -> Handler:
        async def handle(call: Call[Any]) -> Answer[Any]:
            asked, author = call.input, author_of(call)
            scope = scope_of(asked, author)
            return await self._backends.run(lambda entries: operate(entries, asked, author, scope), author)

        return handle

    async def supersede(self, call: Call[api.MemorySupersede]) -> Answer[api.MemorySupersedeDone]:
        """Archive a key."""
        asked, author = call.input, author_of(call)
        await self._backends.require_local("supersede", author)
        return await self._entries.supersede(asked, author, scope_of(asked, author))

    async def search(self, call: Call[api.MemorySearch]) -> Answer[api.MemoryHits]:
        """Find entries by words and meaning."""
        asked, author = call.input, author_of(call)
        if author.grants is None:
            if not asked.query:
                raise Refused("missing_query", "query: expected what is searched for")
            require_scope_id(asked)
        scope = scope_of(asked, author)
        return await self._backends.run(lambda entries: entries.search(asked, author, scope), author)

    # --- entries of this installation --------------------------------------------------------------------------------

    async def scopes(self, call: Call[NoInput]) -> Answer[api.MemoryScopes]:
        """Return the names of scopes."""
        rows = [api.MemoryScopeName(name=name, description=DESCRIPTIONS[name]) for name in SCOPES]
        return Answer(value=api.MemoryScopes(scopes=rows))

    async def scope_ids(self, call: Call[api.MemoryScopesOfName]) -> Answer[api.MemoryScopeIds]:
        """Return the scopes of a name that have keys."""
        name = call.input.scope
        rows = [
            api.MemoryScopeRow(
                scope_id=row["scope_id"],
                key_count=row["keys"],
                bytes=row["bytes"],
                updated_at=format_rfc3339(row["updated_at_ms"]),
            )
            for row in await self._store.scopes(call.caller.tenant, name, limit=SCOPE_IDS_MAX)
        ]
        return Answer(value=api.MemoryScopeIds(scope=name, scope_ids=rows))

    async def entries(self, call: Call[api.MemoryListEntries]) -> Answer[api.MemoryEntries]:
        """Return entries by key, with their details or the models of their vectors."""
        asked, author = call.input, author_of(call)
        scope = scope_of(asked, author)
        entries, truncated = await self._page(asked, author, scope)
        models: Mapping[str, api.MemoryModel] = {}
        if asked.details or asked.include_embedding_metadata:
            models = await self._models(scope, entries)
        rows = [
            entry_row(entry, **entry_details(entry), embedded_with=models.get(entry.key))
            if asked.details
            else entry_row(entry)
            for entry in entries
        ]
        answer = api.MemoryEntries(
            scope=scope.name,
            scope_id=scope.id,
            entries=rows,
            truncated=truncated,
            embedding_metadata=dict(models) if asked.include_embedding_metadata else UNSET,
        )
        return Answer(value=answer)

    async def _page(
        self, asked: api.MemoryListEntries, author: Author, scope: Scope
    ) -> tuple[Sequence[StoredEntry], bool]:
        """Return the entries of the kind that is asked for, and whether there are more."""
        if asked.kind is UNSET:
            return await self._store.list(scope, author, prefix=asked.prefix, after=asked.after, limit=asked.limit)
        entries, truncated, after = list[StoredEntry](), True, asked.after
        while truncated and len(entries) < asked.limit:
            page, truncated = await self._store.list(
                scope, author, prefix=asked.prefix, after=after, limit=limits.LIST_MAX
            )
            after = page[-1].key if page else after
            entries += [entry for entry in page if (entry.provenance is not None) == (asked.kind == FACT)]
        return entries[: asked.limit], truncated or len(entries) > asked.limit

    async def _models(self, scope: Scope, entries: Sequence[StoredEntry]) -> Mapping[str, api.MemoryModel]:
        """Return the models of the vectors of entries as they are now, by key."""
        revisions = {entry.key: entry.revision for entry in entries if entry.embed}
        if self._index is None or not revisions:
            return {}
        try:
            store = await self._index.vectors()
            if store is None:
                return {}
            models = await store.models(aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate), revisions)
        except IndexMissing:
            return {}
        except ConnectorError as error:
            raise Unavailable(f"the vectors cannot be read: {error}") from error
        return {key: shown_model(of) for key, of in models.items()}

    async def read(self, call: Call[api.MemoryRead]) -> Answer[api.MemoryEntry]:
        """Return an entry; or the changes of a key, when that is asked for or /history is behind it and is no key."""
        asked, author = call.input, author_of(call)
        scope, key = scope_of(asked, author), asked.key
        if asked.history:
            return await self._history(asked, scope, key)
        past = key.removesuffix(api.HISTORY)
        is_past = past not in ("", key)
        # With /history behind it, the longest key is too long for one.
        problem = key_problem(key)
        if problem and not is_past:
            raise Refused("bad_request", problem)
        entry = None if problem else await self._store.get(scope, key, author)
        if entry is not None:
            row = entry_row(entry, **entry_details(entry))
            return Answer(value=api.MemoryEntry(scope=scope.name, scope_id=scope.id, entry=row))
        if not is_past:
            raise Refused("not_found", f"there is no key {key[:120]!r} in {scope.name} {scope.id!r}")
        return await self._history(asked, scope, past)

    async def _history(self, asked: api.MemoryRead, scope: Scope, key: str) -> Answer[api.MemoryEntry]:
        """Return the changes of a key, newest first, each with its source. Those of 30 days; older are in the log."""
        try:
            versions, following = await self._store.history(
                scope, _checked(key), limit=asked.limit, cursor=asked.cursor
            )
        except InvalidPageToken as error:
            raise Refused("bad_request", CURSOR_PROBLEM) from error
        answer = api.MemoryEntry(
            scope=scope.name, scope_id=scope.id, key=key, versions=version_rows(versions), next=following or None
        )
        return Answer(value=answer)

    async def put(self, call: Call[api.MemoryPut]) -> api.WrittenAnswer[api.MemoryWritten]:
        """Set a key. The answer has `value` when an earlier request with the same Idempotency-Key wrote another one."""
        asked, author = call.input, author_of(call)
        scope, key = scope_of(asked, author), _checked(asked.key)
        change = Change(
            text=value_text(asked.value, self._entries.limits.value_bytes_max),
            ttl_ms=1000 * asked.ttl_seconds,
            if_revision=asked.if_revision,
            embed=asked.embed,
            quota_bytes=self._entries.limits.scope_bytes_max,
        )
        by = author if change.if_revision < 0 else _by_key_alone(author, call)
        written, is_embedded, warning = await self._entries.set_entry(scope, key, change, by)
        usage = usage_fields(written.usage)
        answer = api.MemoryWritten(
            scope=scope.name,
            scope_id=scope.id,
            key=key,
            embedded=is_embedded,
            value=UNSET if written.text == change.text else parse_value(written.text),
            embed_warning=warning or UNSET,
            **(usage if "usage_warning" in usage else {}),
        )
        return api.WrittenAnswer(
            value=answer,
            positions=(written.position,) if written.position else (),
            revision=written.revision,
            usage=written.usage,
        )

    async def drop(self, call: Call[api.MemoryDrop]) -> Answer[api.MemoryScopeDropped]:
        """Delete all keys of a scope; a dry run counts them."""
        asked, author = call.input, author_of(call)
        scope = scope_of(asked, author)
        usage = await self._store.usage(scope)
        answer = api.MemoryScopeDropped(
            scope=scope.name, scope_id=scope.id, dry_run=asked.dry_run, keys=usage["keys"], bytes=usage["bytes"]
        )
        if asked.dry_run:
            return Answer(value=answer)
        keys, position = await self._store.drop(scope, asked.reason, author)
        return Answer(value=structs.replace(answer, keys=keys, bytes=UNSET), positions=(position,))

    async def usage(self, call: Call[api.MemoryScopeInput]) -> Answer[api.MemoryUsage]:
        """Return what a scope holds, and how much it may."""
        scope = scope_of(call.input, author_of(call))
        usage = usage_fields(await self._store.usage(scope))
        return Answer(value=api.MemoryUsage(scope=scope.name, scope_id=scope.id, **usage, keys_max=limits.KEYS_MAX))

    # --- the past ----------------------------------------------------------------------------------------------------

    async def superseded(self, call: Call[api.MemoryListSuperseded]) -> Answer[api.MemorySuperseded]:
        """Return the entries of a scope that were superseded in the last 30 days, the earliest first, each with the
        value it had. One call reads a bounded part of the changes of the scope, so a page may be short, or empty with
        a `next`.
        """
        scope, cursor = scope_of(call.input, author_of(call)), call.input.cursor
        if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= REVISION_DIGITS_MAX):
            raise Refused("bad_request", CURSOR_PROBLEM)
        changes, following = await self._store.superseded(scope, after=int(cursor or 0), limit=call.input.limit)
        answer = api.MemorySuperseded(
            scope=scope.name,
            scope_id=scope.id,
            superseded=[superseded_row(change, before) for change, before in changes],
            next=str(following) if following else None,
        )
        return Answer(value=answer)

    async def at(self, call: Call[api.MemoryReadAt]) -> Answer[api.MemoryAt]:
        """Return a key as it was at a time, at a position of the log, or when a run started."""
        asked, author = call.input, author_of(call)
        scope = scope_of(asked, author)
        if sum(map(bool, (asked.at, asked.event, asked.before_run))) != 1:
            text = "expected one of at (a time), event (a position) and before_run (a run)"
            raise Refused("bad_request", text)
        at_ms = parse_time_ms("at", asked.at) if asked.at else math.inf
        if asked.before_run:
            at_ms = await self._started_at_ms(author.tenant, asked.before_run) - 1
        offset_max = self._offset(asked.event, scope) if asked.event else OFFSET_MAX
        version = await self._store.at(scope, _checked(asked.key), at_ms=at_ms, offset_max=offset_max)
        shown = {} if version is None else version_fields(version)
        existed = version is not None and "value" in version and not _was_expired(version, at_ms)
        answer = api.MemoryAt(
            scope=scope.name,
            scope_id=scope.id,
            key=asked.key,
            existed=existed,
            value=shown.get("value") if existed else None,
            version=api.MemoryVersion(**shown) if shown else None,
        )
        return Answer(value=answer)

    async def _started_at_ms(self, tenant: str, run_id: str) -> int:
        run = await self._find_run(tenant, run_id)
        if run is None:
            raise Refused("not_found", f"there is no run {run_id[:80]}")
        return run.started_at_ms

    def _offset(self, token: str, scope: Scope) -> int:
        try:
            position = Position.parse(token)
        except ValueError as error:
            raise Refused("bad_request", f"event: {error}") from error
        topic, partitions = self._store.topic, self._store.partitions
        key = aggregate_key(aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate))
        expected = (topic, partition_of(key, partitions))
        if (position.topic, position.partition) != expected:
            text = f"event: the changes of this scope are in {expected[0]}/{expected[1]}, not in {token[:80]}"
            raise Refused("bad_request", text)
        return position.offset

    # --- the index ---------------------------------------------------------------------------------------------------

    async def embed_stats(self, call: Call[NoInput]) -> Answer[api.MemoryEmbedStats]:
        """Return which models have embedded how much of a tenant."""
        return Answer(value=await self._require_index().embed_stats(call.caller.tenant))

    async def reembed(self, call: Call[api.MemoryAdminister]) -> Answer[api.MemoryReembed]:
        """Embed the entries of a scope again; a dry run tells what would be done."""
        scope = scope_of(call.input, author_of(call))
        return Answer(value=await self._require_index().reembed(scope, dry_run=call.input.dry_run))

    async def backfill(self, call: Call[api.MemoryAdminister]) -> Answer[api.MemoryBackfillEmbeddings]:
        """Embed the entries of a scope that have no vector; a dry run tells what would be done."""
        scope = scope_of(call.input, author_of(call))
        return Answer(value=await self._require_index().backfill(scope, dry_run=call.input.dry_run))

    async def purge_stale(self, call: Call[api.MemoryAdminister]) -> Answer[api.MemoryPurgeStaleEmbeddings]:
        """Remove the vectors of a scope that belong to former models; a dry run tells what would be done."""
        scope = scope_of(call.input, author_of(call))
        return Answer(value=await self._require_index().purge_stale(scope, dry_run=call.input.dry_run))

    def _require_index(self) -> IndexAdministration:
        if self._administration is None:
            raise Refused("vector_unsupported", "this process has no index of memory")
        return self._administration


def _was_expired(version: Mapping[str, Any], at_ms: float) -> bool:
    expires_at_ms: int = version.get("expires_at_ms", 0)
    return 0 < expires_at_ms <= (version["at_ms"] if math.isinf(at_ms) else at_ms)


def _by_key_alone(author: Author, call: Call[Any]) -> Author:
    """Return the author of a write on a condition: with an Idempotency-Key it is one write, whatever value it has.

    Its value follows from the one that was read, and a client that repeats it after a crash has read again.
    """
    if not call.request_key:
        return author
    return replace(author, command_id=hashed_token("memory-put", author.tenant, *call.request_key))


def _checked(key: str) -> str:
    if problem := key_problem(key):
        raise Refused("bad_request", problem)
    return key
