"""Memory for callers outside of runs: scopes, keys, their past, search, and what operators do with the index.

Any member of a tenant reads and writes its memory; administrators name another tenant.

Before: services/api/memory_endpoints.py. After: services/families/memory, which the Memory tool shares.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from loomlog.connectors.embedders.health import ABSENT
from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.projections.entity_items import OFFSET_MAX
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.memory_index.reads import IndexMissing
from loomlog.projections.tables import InvalidPageToken
from loomlog.schemas.ids import hashed_token
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.application.authentication import require_member
from loomlog.services.application.dispatch import resolve_tenant
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, run_refusing
from loomlog.services.application.queries.read_models import ReadModels
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.core.refusals import Refused
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.author import SCOPES, Author, Scope, named_scope, scopes_of_run
from loomlog.services.families.memory.decide import key_problem
from loomlog.services.families.memory.entry_operations import provenance_json, usage_fields
from loomlog.services.families.memory.fields import flag_field, integer_field
from loomlog.services.families.memory.index_administration import IndexAdministration
from loomlog.services.families.memory.store import FAMILY_NAME, Change, StoredEntry, Written
from loomlog.services.families.memory.values import parse_value, value_text
from loomlog.services.families.memory.wiring import MemoryServices

ValueT = TypeVar("ValueT")
DESCRIPTIONS: Mapping[str, str] = {
    "agent": "What an agent keeps over all its runs.",
    "user": "What is kept of a user, over all agents.",
    "tenant": "What all agents and users of the tenant share.",
}
SCOPE_IDS_MAX = 10_000
FACT, NOTE = "fact", "note"
KINDS = (FACT, NOTE)
REVISION_DIGITS_MAX = 15
LIST_DEFAULT, LIST_MAX = 200, 1_000
HISTORY_MAX = 100


class Memory:
    """The use cases. All methods raise Refused; `tenant` empty is the caller's."""

    def __init__(
        self,
        services: MemoryServices,
        read_models: ReadModels,
        *,
        clock_ms: Callable[[], int],
        new_token: Callable[[], str],
    ) -> None:
        self._services = services
        self._entries, self._store = services.entries, services.store
        self._read_models = read_models
        self._clock_ms = clock_ms
        self._new_token = new_token

    def written_positions(self, tenant: str, agent: str, user_id: str) -> tuple[str, ...]:
        """Return what a run of the agent must read so that its prompt has what was written here."""
        return self._store.written_positions(scopes_of_run(tenant, agent, user_id))

    # --- reading -----------------------------------------------------------------------------------------------------

    def list_scopes(self, caller: Caller) -> dict[str, Any]:
        """Return the names of scopes."""
        require_member(caller)
        return {"scopes": [{"name": name, "description": DESCRIPTIONS[name]} for name in SCOPES]}

    async def list_scope_ids(self, caller: Caller, name: str, *, tenant: str = "", after: str = "") -> dict[str, Any]:
        """Return the scopes of a name that have keys."""
        author = self._author(caller, tenant)
        if name not in SCOPES:
            raise Refused("invalid_scope", f"scope: expected one of {', '.join(SCOPES)}, not {name[:60]!r}")
        rows = await self._run(self._store.scopes(author.tenant, name, after=after, limit=SCOPE_IDS_MAX))
        shown = [
            {
                "scope_id": row["scope_id"],
                "key_count": row["keys"],
                "bytes": row["bytes"],
                "updated_at": format_rfc3339(row["updated_at_ms"]),
            }
            for row in rows
        ]
        return {"scope": name, "scope_ids": shown}

    async def list_keys(
        self,
        caller: Caller,
        name: str,
        scope_id: str,
        *,
        tenant: str = "",
        prefix: str = "",
        after: str = "",
        limit: int = LIST_DEFAULT,
        kind: str = "",
        with_details: bool = False,
        with_models: bool = False,
    ) -> dict[str, Any]:
        """Return entries by key; `kind` fact or note: only those. Details are revision, size, source, provenance and
        the model of the vector; `with_models` names that by key.
        """
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        if kind not in ("", *KINDS):
            raise bad_request(f"kind: expected one of {', '.join(KINDS)}, not {kind[:60]!r}")
        entries, truncated = list[StoredEntry](), True
        while truncated and len(entries) < limit:
            page, truncated = await self._run(
                self._store.list(scope, author, prefix=prefix, after=after, limit=LIST_MAX if kind else limit)
            )
            after = page[-1].key if page else after
            entries += [entry for entry in page if not kind or (entry.provenance is not None) == (kind == FACT)]
        if len(entries) > limit:
            entries, truncated = entries[:limit], True
        models = await self._models(scope, entries) if with_details or with_models else {}
        shown = [
            {**entry_json(entry), **(_details(entry, models.get(entry.key)) if with_details else {})}
            for entry in entries
        ]
        answer = {"scope": scope.name, "scope_id": scope.id, "entries": shown, "truncated": truncated}
        return answer | ({"embedding_metadata": models} if with_models else {})

    async def _models(self, scope: Scope, entries: Sequence[StoredEntry]) -> Mapping[str, Mapping[str, Any]]:
        """Return the models of the vectors of entries as they are now, by key."""
        index = self._services.index
        revisions = {entry.key: entry.revision for entry in entries if entry.embed}
        if index is None or not revisions:
            return {}
        try:
            store = await index.vectors()
            if store is None:
                return {}
            models = await store.models(aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate), revisions)
        except IndexMissing:
            return {}
        except ConnectorError as error:
            text = f"the vectors cannot be read: {error}"
            raise Refused("memory_unavailable", text, retry_after_s=RETRY_SOON_S) from error
        return {
            key: {"provider": of.provider, "model": of.model, "dimension": of.dimension} for key, of in models.items()
        }

    async def list_superseded(
        self,
        caller: Caller,
        name: str,
        scope_id: str,
        *,
        tenant: str = "",
        limit: int = HISTORY_MAX,
        cursor: str = "",
    ) -> dict[str, Any]:
        """Return the entries of a scope that were superseded in the last 30 days, the earliest first, each with the
        value it had. One call reads a bounded part of the changes of the scope, so a page may be short, or empty with
        a `next`.
        """
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= REVISION_DIGITS_MAX):
            raise bad_request("cursor: expected `next` of an earlier answer")
        changes, following = await self._run(self._store.superseded(scope, after=int(cursor or 0), limit=limit))
        shown = [superseded_json(change, before) for change, before in changes]
        return {
            "scope": scope.name,
            "scope_id": scope.id,
            "superseded": shown,
            "next": str(following) if following else None,
        }

    async def get(self, caller: Caller, name: str, scope_id: str, key: str, *, tenant: str = "") -> dict[str, Any]:
        """Return an entry with its source."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        entry = await self._run(self._store.get(scope, _key(key), author))
        if entry is None:
            raise Refused("not_found", f"there is no key {key[:120]!r} in {scope.name} {scope.id!r}")
        source = {"revision": entry.revision, "bytes": entry.bytes, "embed": entry.embed, "source": entry.source}
        shown = {**entry_json(entry), **source, "provenance": provenance_json(entry)}
        return {"scope": scope.name, "scope_id": scope.id, "entry": shown}

    async def history(
        self,
        caller: Caller,
        name: str,
        scope_id: str,
        key: str,
        *,
        tenant: str = "",
        limit: int = HISTORY_MAX,
        cursor: str = "",
    ) -> dict[str, Any]:
        """Return the changes of a key, newest first, each with its source. Those of 30 days; older are in the log."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        try:
            versions, following = await self._run(self._store.history(scope, _key(key), limit=limit, cursor=cursor))
        except InvalidPageToken as error:
            raise bad_request("cursor: expected `next` of an earlier answer") from error
        shown = [version_json(version) for version in versions]
        return {"scope": scope.name, "scope_id": scope.id, "key": key, "versions": shown, "next": following or None}

    async def at(
        self,
        caller: Caller,
        name: str,
        scope_id: str,
        key: str,
        *,
        tenant: str = "",
        at_ms: int | None = None,
        position: str = "",
        before_run: str = "",
    ) -> dict[str, Any]:
        """Return a key as it was at a time, at a position of the log, or when a run started."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        if sum((at_ms is not None, bool(position), bool(before_run))) != 1:
            raise bad_request("expected one of at (a time), event (a position) and before_run (a run)")
        bounds: dict[str, Any] = {"at_ms": math.inf if at_ms is None else at_ms, "offset_max": OFFSET_MAX}
        if position:
            bounds["offset_max"] = self._offset(position, scope)
        if before_run:
            row = await self._read_models.run(author.tenant, before_run)
            if row is None:
                raise Refused("not_found", f"there is no run {before_run[:80]}")
            bounds["at_ms"] = row.started_at_ms - 1
        version = await self._run(self._store.at(scope, _key(key), **bounds))
        answer: dict[str, Any] = {"scope": scope.name, "scope_id": scope.id, "key": key}
        if version is None:
            return {**answer, "existed": False, "value": None, "version": None}
        existed = "value" in version and not _was_expired(version, bounds["at_ms"])
        shown = version_json(version)
        return {**answer, "existed": existed, "value": shown.get("value") if existed else None, "version": shown}

    def _offset(self, token: str, scope: Scope) -> int:
        try:
            position = Position.parse(token)
        except ValueError as error:
            raise bad_request(f"event: {error}") from error
        topic, partitions = self._store.topic, self._store.partitions
        key = aggregate_key(aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate))
        expected = (topic, partition_of(key, partitions))
        if (position.topic, position.partition) != expected:
            raise bad_request(
                f"event: the changes of this scope are in {expected[0]}/{expected[1]}, not in {token[:80]}"
            )
        return position.offset

    async def usage(self, caller: Caller, name: str, scope_id: str, *, tenant: str = "") -> dict[str, Any]:
        """Return what a scope holds, and how much it may."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        usage = await self._run(self._store.usage(scope))
        return {"scope": scope.name, "scope_id": scope.id, **usage_fields(usage), "keys_max": limits.KEYS_MAX}

    # --- writing -----------------------------------------------------------------------------------------------------

    async def put(
        self, caller: Caller, name: str, scope_id: str, key: str, body: Any, *, tenant: str = ""
    ) -> tuple[dict[str, Any], Written]:
        """Set a key; return the answer, and what was written.

        The answer has `value` when an earlier request with the same Idempotency-Key wrote another one.
        """
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        if not isinstance(body, Mapping):
            raise Refused("invalid_value", 'the body must be an object such as {"value": 1}')
        known = {"value", "embed", "ttl_seconds", "if_revision"}
        if unknown := sorted(set(body) - known):
            raise bad_request(f"{unknown[0][:60]!r} is unknown, expected are {', '.join(sorted(known))}")
        if "value" not in body:
            raise Refused("missing_value", "value: it is missing; null is a value too")

        async def written() -> tuple[dict[str, Any], Written]:
            change = Change(
                text=value_text(body["value"], self._entries.limits.value_bytes_max),
                ttl_ms=1000 * integer_field(body, "ttl_seconds", default=0, least=0, most=limits.TTL_MS_MAX // 1000),
                if_revision=integer_field(body, "if_revision", default=-1, least=-1, most=2**53),
                embed=flag_field(body, "embed", default=False),
                quota_bytes=self._entries.limits.scope_bytes_max,
            )
            by = author if change.if_revision < 0 else _by_key_alone(author)
            done, is_embedded, warning = await self._entries.set_entry(scope, key, change, by)
            answer: dict[str, Any] = {"scope": scope.name, "scope_id": scope.id, "key": key, "embedded": is_embedded}
            if done.text != change.text:
                answer["value"] = parse_value(done.text)
            if warning:
                answer["embed_warning"] = warning
            shown = usage_fields(done.usage)
            return answer | ({} if "usage_warning" not in shown else shown), done

        return await self._run(written())

    async def delete(self, caller: Caller, name: str, scope_id: str, key: str, *, tenant: str = "") -> str:
        """Delete a key, if there is one; return the position of the event."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        _, position = await self._run(self._store.delete(scope, _key(key), author))
        return position

    async def drop(
        self, caller: Caller, name: str, scope_id: str, *, reason: str = "", dry_run: bool, tenant: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Delete all keys of a scope; return how many, and the position of the event."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        usage = await self._run(self._store.usage(scope))
        answer = {"scope": scope.name, "scope_id": scope.id, "dry_run": dry_run}
        if dry_run:
            return {**answer, "keys": usage["keys"], "bytes": usage["bytes"]}, ""
        keys, position = await self._run(self._store.drop(scope, reason, author))
        return {**answer, "keys": keys}, position

    # --- search ------------------------------------------------------------------------------------------------------

    async def search(self, caller: Caller, body: Any, *, tenant: str = "") -> dict[str, Any]:
        """Search a scope; `body` has scope and scope_id, and the fields of op search."""
        author = self._author(caller, tenant)
        if not isinstance(body, Mapping):
            raise bad_request('the body must be an object such as {"query": "tea", "scope": "user", "scope_id": "ada"}')
        if not body.get("query"):
            raise Refused("missing_query", "query: expected what is searched for")
        name = body.get("scope", "user")
        if name != "tenant" and not body.get("scope_id"):
            raise Refused("missing_scope_id", f"scope_id: scope {str(name)[:60]} needs an id")
        scope = named_scope(author.tenant, str(name), str(body.get("scope_id") or ""))
        fields = {key: value for key, value in body.items() if key not in ("scope", "scope_id") and value is not None}
        reply = await self._run(self._entries.run("search", fields, author, scope))
        return dict(reply.fields)

    # --- the index ---------------------------------------------------------------------------------------------------

    def embedder_state(self) -> Mapping[str, Any]:
        """Return the state of the embedder of this process: no texts, no addresses."""
        embedder = self._services.options.embedder
        health = ABSENT if embedder is None else embedder.health
        failed_at_ms = health.last_failure_at_ms
        shown = {"state": health.state, "successes": health.successes, "failures": health.failures}
        if failed_at_ms is None:
            return shown
        return {
            **shown,
            "last_failure_kind": health.last_failure_kind,
            "last_failure_at": format_rfc3339(failed_at_ms),
        }

    async def embed_stats(self, caller: Caller, *, tenant: str = "") -> dict[str, Any]:
        """Return which models have embedded how much of a tenant."""
        author = self._author(caller, tenant)
        return await self._run(self._administration().embed_stats(author.tenant))

    async def administer(
        self, caller: Caller, op: str, name: str, scope_id: str, *, dry_run: bool, tenant: str = ""
    ) -> dict[str, Any]:
        """Do `reembed`, `backfill` or `purge_stale` in a scope; a dry run tells what would be done."""
        author = self._author(caller, tenant)
        scope = named_scope(author.tenant, name, scope_id)
        return await self._run(getattr(self._administration(), op)(scope, dry_run=dry_run))

    def _administration(self) -> IndexAdministration:
        if self._services.administration is None:
            raise Refused("vector_unsupported", "this process has no index of memory")
        return self._services.administration

    # --- common ------------------------------------------------------------------------------------------------------

    def _author(self, caller: Caller, tenant: str) -> Author:
        require_member(caller)
        owner = resolve_tenant(caller, tenant)
        return Author(
            tenant=owner,
            subject=caller.subject,
            command_id=make_command_id("entity", "memory", owner, self._new_token()),
            # A repetition was issued at a time that only its first sender knows: 0 makes the owner look it up.
            issued_at_ms=0 if current_request.get().idempotency_key else self._clock_ms(),
        )

    async def _run(self, operation: Awaitable[ValueT]) -> ValueT:
        return await run_refusing(operation, unavailable_code="memory_unavailable")


def entry_json(entry: StoredEntry) -> dict[str, Any]:
    """Return an entry as lists show it."""
    shown = {
        "key": entry.key,
        "value": parse_value(entry.text),
        "created_at": format_rfc3339(entry.created_at_ms),
        "updated_at": format_rfc3339(max(entry.updated_at_ms, entry.created_at_ms)),
    }
    return shown | ({"expires_at": format_rfc3339(entry.expires_at_ms)} if entry.expires_at_ms else {})


def _details(entry: StoredEntry, model: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "revision": entry.revision,
        "bytes": entry.bytes,
        "embed": entry.embed,
        "embedded_with": model,
        "source": entry.source,
        "provenance": provenance_json(entry),
    }


def superseded_json(change: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a superseded entry as it is shown: the change, and the version that it ended, if that is still kept."""
    shown = {"key": change["key"], **version_json(change)}
    if before is None:
        return shown
    was = version_json(before)
    return {**shown, "value": was.get("value"), "provenance": was.get("provenance"), "valid_from": was["at"]}


def version_json(version: Mapping[str, Any]) -> dict[str, Any]:
    """Return a change of a key as it is shown."""
    hidden = ("value", "key", "at_ms", "created_at_s", "expires_at_ms", "embed", "previous_revision")
    shown = {name: value for name, value in version.items() if name not in hidden and value != ""}
    shown["at"] = format_rfc3339(version["at_ms"])
    if version.get("previous_revision"):
        shown["previous_revision"] = version["previous_revision"]
    if "value" in version:
        shown["value"] = parse_value(version["value"])
    if version.get("expires_at_ms"):
        shown["expires_at"] = format_rfc3339(version["expires_at_ms"])
    return shown


def _was_expired(version: Mapping[str, Any], at_ms: float) -> bool:
    expires_at_ms: int = version.get("expires_at_ms", 0)
    return 0 < expires_at_ms <= (version["at_ms"] if math.isinf(at_ms) else at_ms)


def _by_key_alone(author: Author) -> Author:
    """Return the author of a write on a condition: with an Idempotency-Key it is one write, whatever value it has.

    Its value follows from the one that was read, and a client that repeats it after a crash has read again.
    """
    request = current_request.get()
    if not request.idempotency_key:
        return author
    return replace(
        author, command_id=hashed_token("memory-put", author.tenant, *request.scope, request.idempotency_key)
    )


def _key(key: str) -> str:
    if problem := key_problem(key):
        raise bad_request(problem)
    return key
