"""Removal of a subject's databases: that of its scope and those of its runs.

The runs without a user have the shared ones, which are under the tenant's key.

Before: services/families/ports/content_erasure.py. After: decide.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from loomlog.schemas.generated.database_commands import DropDatabase
from loomlog.schemas.generated.database_events import SqlDropped
from loomlog.services.families.database.items import DATABASE_ITEM
from loomlog.services.families.database.state import FAMILY_NAME
from loomlog.services.families.memory.author import AGENT, RUN, TENANT, Scope, scope_of_aggregate
from loomlog.services.families.memory.scope_erasure import ErasureCommands, scope_of_subject
from loomlog.services.families.ports.content_erasure import ContentFindings, ErasedSubject, ErasureRequest
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads

DATABASES, BYTES = "memory_databases", "memory_database_bytes"
CLIENT_NAMES = {"sql_memory_scopes": DATABASES}
PAGE = 500
SHARED_DATABASES_MAX = 10_000
"""Databases of agents and of the tenant that are looked at."""


@dataclass(slots=True, kw_only=True)
class DatabaseFindings(ContentFindings):
    """With the databases that there are."""

    databases: list[Scope] = field(default_factory=list)


class DatabaseErasure:
    """Protocol ContentEraser of ports/content_erasure.py."""

    def __init__(self, commands: EntityCommands, reads: EntityReads, clock_ms: Callable[[], int]) -> None:
        self._commands = ErasureCommands(FAMILY_NAME, commands, clock_ms)
        self._reads = reads

    async def find(self, subject: ErasedSubject) -> DatabaseFindings:
        """Count the databases. Raises PositionNotRead, ConnectorError."""
        tenant, scope, findings = subject.tenant, scope_of_subject(subject), DatabaseFindings()
        scopes = [Scope(tenant, RUN, run_id) for run_id in sorted(subject.root_run_ids)]
        names = [one.aggregate for one in ([scope] if scope is not None else []) + scopes]
        rows = list(await self._reads.load_items(FAMILY_NAME, tenant, DATABASE_ITEM, names))
        if scope is None:
            for shared in (AGENT, TENANT):
                rows += await self._shared(tenant, shared, findings)
        findings.databases = [scope_of_aggregate(tenant, row.id) for row in rows]
        findings.counts[DATABASES] = len(rows)
        findings.counts[BYTES] = sum(orjson.loads(row.document)["bytes"] for row in rows)
        findings.client_names = CLIENT_NAMES
        return findings

    async def _shared(self, tenant: str, name: str, findings: ContentFindings) -> Sequence[Any]:
        rows: list[Any] = []
        while True:
            page = await self._reads.list_items_by_id(
                FAMILY_NAME, tenant, DATABASE_ITEM, prefix=f"{name}/", after=rows[-1].id if rows else "", limit=PAGE
            )
            rows += page
            if not page:
                return rows
            if len(rows) >= SHARED_DATABASES_MAX:
                findings.truncated = True
                return rows

    async def erase(self, subject: ErasedSubject, before: ContentFindings, erasure: ErasureRequest) -> ContentFindings:
        """Drop the database of the scope, whether or not it was found, and those that were."""
        assert isinstance(before, DatabaseFindings)
        findings, scope = ContentFindings(client_names=CLIENT_NAMES), scope_of_subject(subject)
        databases = [] if scope is None else [scope]
        databases += [one for one in before.databases if one != scope]
        dropped: list[SqlDropped] = []
        with findings.noted("the databases of the user were not all deleted"):
            for one in databases:
                events = await self._commands.ask(DropDatabase, one, erasure)
                dropped += [event for event in events if isinstance(event, SqlDropped)]
            findings.counts[DATABASES] = len(dropped)
            findings.counts[BYTES] = sum(event.bytes for event in dropped)
        return findings
