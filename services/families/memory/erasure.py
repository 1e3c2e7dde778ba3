"""Removal of a subject's memory.

    the scope of the user       its keys are deleted; versions stay as rows and in the log, and read [erased]
    the index                   words, vectors and cached embeddings, also of what it wrote in shared scopes

Hashed words and vectors say something of a text, though its key is destroyed. The index is read after its writer has
passed the end of the log, so nothing is added to it later.

Before: services/families/ports/content_erasure.py. After: decide.py; projections/memory_index/reads.py.
"""

import asyncio
from collections.abc import Callable

import orjson

from loomlog.connectors.crypto.content_encryption import is_token
from loomlog.projections.memory_index.reads import IndexMissing, MemoryIndex
from loomlog.schemas.generated.memory_commands import DropScope
from loomlog.schemas.generated.memory_events import ScopeDropped
from loomlog.services.core.families import aggregate_id
from loomlog.services.families.memory.author import Scope
from loomlog.services.families.memory.items import SCOPE_ITEM, VERSION_ITEM
from loomlog.services.families.memory.scope_erasure import ErasureCommands, scope_of_subject
from loomlog.services.families.memory.store import FAMILY_NAME
from loomlog.services.families.ports.content_erasure import ContentFindings, ErasedSubject, ErasureRequest
from loomlog.services.stream.entities.answers import EntityCommands
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.entities.replicas import Replicas

ENTRIES, VERSIONS = "memory_entries", "memory_versions"
OF_INDEX = {"entries": "memory_index_rows", "vectors": "memory_vectors", "embeddings": "memory_cached_embeddings"}
"""Names of the counts of the index, by those of projections/memory_index/reads.py."""
CLIENT_NAMES = {"memory_rows": ENTRIES}
PAGE = 500
VERSIONS_EXAMINED_MAX = 100_000
INDEX_WAIT_S = 10.0
"""How long the writer of the index is waited for. It is a second behind, unless it is rebuilding."""


class MemoryErasure:
    """Protocol ContentEraser of ports/content_erasure.py."""

    def __init__(
        self,
        commands: EntityCommands,
        reads: EntityReads,
        replicas: Replicas,
        index: MemoryIndex | None,
        clock_ms: Callable[[], int],
    ) -> None:
        """`replicas` knows where the log ends. `index` None: there is none."""
        self._commands = ErasureCommands(FAMILY_NAME, commands, clock_ms)
        self._reads = reads
        self._replicas = replicas
        self._index = index

    async def find(self, subject: ErasedSubject) -> ContentFindings:
        """Count keys, their versions, and what the index has. Raises PositionNotRead, ConnectorError."""
        findings = ContentFindings(client_names=CLIENT_NAMES, unencrypted=tuple(OF_INDEX.values()))
        if (scope := scope_of_subject(subject)) is not None:
            await self._find_in_scope(scope, findings)
        if self._index is not None:
            with findings.noted("the search index of memory could not be examined", IndexMissing):
                counts = await self._index.count_subject(subject.tenant, subject.user, list(subject.key_ids))
                findings.counts |= {OF_INDEX[name]: count for name, count in counts.items()}
        return findings

    async def _find_in_scope(self, scope: Scope, findings: ContentFindings) -> None:
        rows = await self._reads.load_items(FAMILY_NAME, scope.tenant, SCOPE_ITEM, [scope.aggregate])
        findings.counts[ENTRIES] = orjson.loads(rows[0].document)["keys"] if rows else 0
        aggregate, after, versions, in_clear = aggregate_id(FAMILY_NAME, scope.tenant, scope.aggregate), "", 0, 0
        while not findings.truncated:
            page = await self._reads.list_items(
                FAMILY_NAME, scope.tenant, VERSION_ITEM, aggregate=aggregate, limit=PAGE, after=after
            )
            versions += len(page.rows)
            values = [orjson.loads(row.document).get("value", "") for row in page.rows]
            in_clear += sum(bool(value) and not is_token(value) for value in values)
            after = page.next
            if not after:
                break
            findings.truncated = versions >= VERSIONS_EXAMINED_MAX
        findings.counts[VERSIONS], findings.uncovered[VERSIONS] = versions, in_clear
        if versions:
            findings.retained[VERSIONS] = (
                f"{versions} changes of its memory stay as rows for 30 days and in the log, with the names of their "
                "keys; what is encrypted in them cannot be read without its key"
            )
        if in_clear:
            findings.retained["memory_in_clear"] = (
                f"{in_clear} values of its memory are stored in plaintext and stay in its history: no key encrypts "
                "them, so an erasure cannot remove them"
            )

    async def erase(self, subject: ErasedSubject, before: ContentFindings, erasure: ErasureRequest) -> ContentFindings:
        """Delete the keys of the scope, then what the index has."""
        findings = ContentFindings(client_names=CLIENT_NAMES)
        if (scope := scope_of_subject(subject)) is not None:
            with findings.noted("the memory of the user was not deleted"):
                events = await self._commands.ask(DropScope, scope, erasure)
                dropped = [event.dropped_keys for event in events if isinstance(event, ScopeDropped)]
                findings.counts[ENTRIES] = max(dropped, default=0)
            if VERSIONS in before.counts:
                findings.counts[VERSIONS] = before.counts[VERSIONS]
        if self._index is not None:
            with findings.noted("the search index of memory still has what was said", IndexMissing):
                await self._erase_index(self._index, subject, before, findings)
        return findings

    async def _erase_index(
        self, index: MemoryIndex, subject: ErasedSubject, before: ContentFindings, findings: ContentFindings
    ) -> None:
        missing = sum(await asyncio.gather(*(self._missing(index, one) for one in range(self._replicas.partitions))))
        counts = await index.erase_subject(subject.tenant, subject.user, list(subject.key_ids))
        # Its writer has removed rows too, when it read that the scope was dropped.
        for name, count in ((OF_INDEX[one], count) for one, count in counts.items()):
            findings.counts[name] = max(count, before.counts.get(name, 0))
        if missing:
            findings.errors.append(
                f"the search index of memory has not read {missing} records, some of which may be of the subject"
            )

    async def _missing(self, index: MemoryIndex, partition: int) -> int:
        """Return how many records the writer of the index has not read, after a time."""
        end = await self._replicas.end_offset(partition)
        return await index.wait(self._replicas.topic, partition, end - 1, timeout_s=INDEX_WAIT_S) if end else 0
