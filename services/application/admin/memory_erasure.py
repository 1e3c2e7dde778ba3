"""What memory has of a subject, and its removal once the keys of its content are destroyed.

    the scope of the user       its keys are deleted; versions stay as rows and in the log, and read [erased]
    its databases               that of its scope and those of its runs; for the runs without a user the shared ones,
                                which are under the tenant's key
    its consolidation target    pending entries, and whatever else would start the consolidator
    the index                   words, vectors and cached embeddings, also of what it wrote in shared scopes

Everything here is unreadable already, except the index: hashed words and vectors say something of a text. The index is
read after its writer has passed the end of the log, so nothing is added to it later. Each step stands alone, and all of
them may be repeated.

Before: erasure.py. After: services/families/memory, database and consolidation; projections/memory_index/reads.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.connectors.errors import ConnectorError
from loomlog.projections.memory_index.reads import IndexMissing, MemoryIndex
from loomlog.schemas.generated.consolidation_commands import DropTarget
from loomlog.schemas.generated.consolidation_events import TargetDropped
from loomlog.schemas.generated.database_commands import DropDatabase
from loomlog.schemas.generated.database_events import SqlDropped
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.memory_commands import DropScope
from loomlog.schemas.generated.memory_events import ScopeDropped
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.schemas.ids import hashed_token
from loomlog.services.application import limits
from loomlog.services.application.errors import unavailable
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.core.families import aggregate_id, name_problem
from loomlog.services.core.refusals import Refused
from loomlog.services.families.consolidation.items import TARGET_ITEM
from loomlog.services.families.consolidation.state import FAMILY_NAME as CONSOLIDATION
from loomlog.services.families.database.items import DATABASE_ITEM
from loomlog.services.families.database.state import FAMILY_NAME as DATABASE
from loomlog.services.families.memory.author import AGENT, RUN, TENANT, USER, Scope, named_scope, scope_of_aggregate
from loomlog.services.families.memory.items import SCOPE_ITEM, VERSION_ITEM
from loomlog.services.families.memory.store import FAMILY_NAME as MEMORY
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered, EntityCommands
from loomlog.services.stream.entities.reads import EntityReads, PositionNotRead

ENTRIES, VERSIONS, PENDING = "memory_entries", "memory_versions", "memory_pending"
DATABASES, DATABASE_BYTES = "memory_databases", "memory_database_bytes"
INDEX_ROWS, VECTORS, CACHED = "memory_index_rows", "memory_vectors", "memory_cached_embeddings"
OF_INDEX = {"entries": INDEX_ROWS, "vectors": VECTORS, "embeddings": CACHED}
"""Names of the counts of the index, by those of projections/memory_index/reads.py."""
REASON = "erased"
PAGE = 500
VERSIONS_EXAMINED_MAX = 100_000
SHARED_DATABASES_MAX = 10_000
"""Databases of agents and of the tenant that are looked at."""
INDEX_WAIT_S = 10.0
"""How long the writer of the index is waited for. It is a second behind, unless it is rebuilding."""


@dataclass(slots=True, kw_only=True)
class MemoryFindings:
    """Counts by name: of what there is, or of what was removed. A count that is missing was not examined."""

    counts: dict[str, int] = field(default_factory=dict)
    in_clear: int = 0
    """Versions that are not encrypted."""
    databases: list[Scope] = field(default_factory=list)
    truncated: bool = False
    errors: list[str] = field(default_factory=list)
    """What could not be examined, or removed."""


class MemoryContent:
    """See the module. `end_offset` takes a partition of the events of entities. `index` None: there is none."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        index: MemoryIndex | None,
        *,
        end_offset: Callable[[int], Awaitable[int]],
        clock_ms: Callable[[], int],
        wait_s: float = limits.CONTROL_WAIT_S,
        index_wait_s: float = INDEX_WAIT_S,
    ) -> None:
        self._commands = commands
        self._reads = reads
        self._index = index
        self._end_offset = end_offset
        self._clock_ms = clock_ms
        self._wait_s = wait_s
        self._index_wait_s = index_wait_s

    # --- what there is -----------------------------------------------------------------------------------------------

    async def find(
        self, tenant: str, user: str, key_ids: Sequence[str], root_run_ids: Collection[str]
    ) -> MemoryFindings:
        """Count what there is of a user; `user` empty: of the runs that name none. `key_ids`: its keys, also erased
        ones. `root_run_ids`: its trees of runs. Raises Refused(not_yet, projection_unavailable).
        """
        findings = MemoryFindings()
        scope = _scope_of(tenant, user)
        try:
            if scope is not None:
                await self._find_in_scope(scope, findings)
            await self._find_databases(tenant, scope, root_run_ids, findings)
        except PositionNotRead as error:
            raise not_yet_error("what memory has of the subject is not known", error.lag) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error
        if self._index is not None:
            with _noted("the search index of memory could not be examined", findings):
                counts = await self._index.count_subject(tenant, user, key_ids)
                findings.counts |= {OF_INDEX[name]: count for name, count in counts.items()}
        return findings

    async def _find_in_scope(self, scope: Scope, findings: MemoryFindings) -> None:
        for name, family, kind, field_name in (
            (ENTRIES, MEMORY, SCOPE_ITEM, "keys"),
            (PENDING, CONSOLIDATION, TARGET_ITEM, "pending"),
        ):
            rows = await self._reads.load_items(family, scope.tenant, kind, [scope.aggregate])
            findings.counts[name] = orjson.loads(rows[0].document)[field_name] if rows else 0
        findings.counts[VERSIONS] = 0
        aggregate, after = aggregate_id(MEMORY, scope.tenant, scope.aggregate), ""
        while True:
            page = await self._reads.list_items(
                MEMORY, scope.tenant, VERSION_ITEM, aggregate=aggregate, limit=PAGE, after=after
            )
            findings.counts[VERSIONS] += len(page.rows)
            values = [orjson.loads(row.document).get("value", "") for row in page.rows]
            findings.in_clear += sum(bool(value) and not is_token(value) for value in values)
            after = page.next
            if not after:
                return
            if findings.counts[VERSIONS] >= VERSIONS_EXAMINED_MAX:
                findings.truncated = True
                return

    async def _find_databases(
        self, tenant: str, scope: Scope | None, root_run_ids: Collection[str], findings: MemoryFindings
    ) -> None:
        scopes = [Scope(tenant, RUN, run_id) for run_id in sorted(root_run_ids)]
        names = [one.aggregate for one in ([scope] if scope is not None else []) + scopes]
        rows = list(await self._reads.load_items(DATABASE, tenant, DATABASE_ITEM, names))
        if scope is None:
            for shared in (AGENT, TENANT):
                rows += await self._shared_databases(tenant, shared, findings)
        findings.databases = [scope_of_aggregate(tenant, row.id) for row in rows]
        findings.counts[DATABASES] = len(rows)
        findings.counts[DATABASE_BYTES] = sum(orjson.loads(row.document)["bytes"] for row in rows)

    async def _shared_databases(self, tenant: str, name: str, findings: MemoryFindings) -> Sequence[Any]:
        rows: list[Any] = []
        while True:
            page = await self._reads.list_items_by_id(
                DATABASE, tenant, DATABASE_ITEM, prefix=f"{name}/", after=rows[-1].id if rows else "", limit=PAGE
            )
            rows += page
            if not page:
                return rows
            if len(rows) >= SHARED_DATABASES_MAX:
                findings.truncated = True
                return rows

    # --- removal -----------------------------------------------------------------------------------------------------

    async def erase(
        self, tenant: str, user: str, key_ids: Sequence[str], before: MemoryFindings, *, erasure_id: str, by: str
    ) -> MemoryFindings:
        """Remove what there is, after the keys were destroyed; return what was removed, and what could not be.

        `before`: what `find` returned. `by`: subject of the caller.
        """
        findings = MemoryFindings()
        scope = _scope_of(tenant, user)
        databases = [one for one in before.databases if one != scope]
        if scope is not None:
            await self._drop_entries(scope, erasure_id, by, findings)
            await self._drop_target(scope, erasure_id, by, findings)
            databases = [scope, *databases]
            if VERSIONS in before.counts:
                findings.counts[VERSIONS] = before.counts[VERSIONS]
        await self._drop_databases(databases, erasure_id, by, findings)
        if self._index is not None:
            await self._erase_index(self._index, tenant, user, key_ids, before, findings)
        return findings

    async def _drop_entries(self, scope: Scope, erasure_id: str, by: str, findings: MemoryFindings) -> None:
        command = DropScope(
            envelope=self._envelope(MEMORY, scope, erasure_id, by),
            scope=scope.name,
            scope_id=scope.id,
            reason=REASON,
            source=_source(by),
        )
        with _noted("the memory of the user was not deleted", findings):
            events = await self._ask(command)
            findings.counts[ENTRIES] = max(
                (event.dropped_keys for event in events if isinstance(event, ScopeDropped)), default=0
            )

    async def _drop_target(self, scope: Scope, erasure_id: str, by: str, findings: MemoryFindings) -> None:
        command = DropTarget(
            envelope=self._envelope(CONSOLIDATION, scope, erasure_id, by), scope=scope.name, scope_id=scope.id
        )
        with _noted("what waits to be learnt of the user was not deleted", findings):
            events = await self._ask(command)
            findings.counts[PENDING] = sum(
                event.dropped_pending for event in events if isinstance(event, TargetDropped)
            )

    async def _drop_databases(
        self, databases: Sequence[Scope], erasure_id: str, by: str, findings: MemoryFindings
    ) -> None:
        dropped: list[SqlDropped] = []
        with _noted("the databases of the user were not all deleted", findings):
            for scope in databases:
                command = DropDatabase(
                    envelope=self._envelope(DATABASE, scope, erasure_id, by),
                    scope=scope.name,
                    scope_id=scope.id,
                    reason=REASON,
                    source=_source(by),
                )
                dropped += [event for event in await self._ask(command) if isinstance(event, SqlDropped)]
            findings.counts[DATABASES] = len(dropped)
            findings.counts[DATABASE_BYTES] = sum(event.bytes for event in dropped)

    async def _erase_index(
        self,
        index: MemoryIndex,
        tenant: str,
        user: str,
        key_ids: Sequence[str],
        before: MemoryFindings,
        findings: MemoryFindings,
    ) -> None:
        with _noted("the search index of memory still has what was said", findings):
            missing = await self._missing_in_index(index)
            counts = await index.erase_subject(tenant, user, key_ids)
            # Its writer has removed rows too, when it read that the scope was dropped.
            findings.counts |= {
                name: max(count, before.counts.get(name, 0))
                for name, count in ((OF_INDEX[one], count) for one, count in counts.items())
            }
            if missing:
                findings.errors.append(
                    f"the search index of memory has not read {missing} records, some of which may be of the subject"
                )

    async def _missing_in_index(self, index: MemoryIndex) -> int:
        """Return how many records the writer of the index has not read, after a time."""

        async def missing(partition: int) -> int:
            end = await self._end_offset(partition)
            topic, wait_s = self._reads.topic, self._index_wait_s
            return await index.wait(topic, partition, end - 1, timeout_s=wait_s) if end else 0

        return sum(await asyncio.gather(*map(missing, range(self._reads.partitions))))

    async def _ask(self, command: Any) -> Sequence[Any]:
        """Return the events of a command.

        Raises Refused, CommandUnanswered, CommandInvalid, ConnectorError.
        """
        events = (await self._commands.ask(command, wait_s=self._wait_s)).events
        if isinstance(last := events[-1], CommandRefused):
            raise Refused(last.code, last.message)
        return events

    def _envelope(self, family: str, scope: Scope, erasure_id: str, by: str) -> CommandEnvelope:
        return CommandEnvelope(
            command_id=hashed_token("erasure", scope.tenant, erasure_id, family, scope.aggregate),
            tenant=scope.tenant,
            subject=by,
            issued_at_ms=self._clock_ms(),
        )


@contextmanager
def _noted(what: str, findings: MemoryFindings) -> Iterator[None]:
    """Note a failure: the other steps go on."""
    try:
        yield
    except (Refused, CommandUnanswered, CommandInvalid, ConnectorError, IndexMissing) as error:
        findings.errors.append(f"{what}: {error}")


def _scope_of(tenant: str, user: str) -> Scope | None:
    """Return the scope of a user; None for one whose name no scope can have."""
    try:
        scope = named_scope(tenant, USER, user)
    except Refused:
        return None
    return None if name_problem(scope.aggregate) else scope


def _source(by: str) -> MemorySource:
    return MemorySource(origin="operator", principal=by)
