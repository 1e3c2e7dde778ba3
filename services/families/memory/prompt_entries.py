"""Entries that a prompt shows: which they are, in which scopes, and how their values are written.

A declared core block needs no other grant; everything else is of the scopes in memory_scopes. A scope that the run does
not have (no user, a caller confined to its own memory) gives nothing. What can never be read is shown as unreadable.

Before: prompt_memory.py. After: store.py, or another backend; prompt.py.
"""

import json
from collections.abc import Sequence
from typing import Any

from loomlog.connectors.errors import Permanent
from loomlog.schemas.generated.values import AgentGrants, CoreBlock
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory import limits
from loomlog.services.families.memory.api import MemorySearch
from loomlog.services.families.memory.author import SCOPES, TENANT, TENANT_SCOPE_ID, Author, Scope, resolve_scope
from loomlog.services.families.memory.entry_operations import CORE_PREFIX, Finder
from loomlog.services.families.memory.prompt import (
    FORCE,
    INDEX_KEY,
    INFO_PREFIX,
    ONTOLOGY_KEY,
    SUPPRESS,
    PromptEntry,
)
from loomlog.services.families.memory.store import Backend, StoredEntry
from loomlog.services.families.memory.values import parse_value

SEARCH_HITS = 10
UNREADABLE = StoredEntry(key="", text='"(it cannot be read)"', bytes=0, revision=0, created_at_ms=0, updated_at_ms=0)
"""Stands for an entry that no later attempt can read."""


class PromptEntries:
    """Reads the entries of one prompt. All methods raise Unavailable."""

    def __init__(self, backend: Backend, author: Author, grants: AgentGrants) -> None:
        """`author` has the grants of the agent, in the form of calls; `grants` are the same as declared."""
        self._backend = backend
        self._author = author
        self._grants = grants
        self._newest: dict[tuple[str, int], Position] = {}

    @property
    def positions(self) -> tuple[str, ...]:
        """Position tokens of what was read, the newest of each partition."""
        return tuple(str(position) for _, position in sorted(self._newest.items()))

    async def core_blocks(self) -> Sequence[PromptEntry]:
        """Return the declared blocks, also those that are empty, with what the agent must know to change them."""
        assert self._author.grants is not None
        author = replace(self._author, grants=replace(self._author.grants, memory_scopes=SCOPES))
        blocks = [(block, scope) for block in self._grants.core_blocks if (scope := _scope(author, block.scope))]
        return [await self._core_block(block, scope) for block, scope in blocks]

    async def _core_block(self, block: CoreBlock, scope: Scope) -> PromptEntry:
        key = CORE_PREFIX + block.label
        bound = f"at most {block.limit_bytes} bytes" if block.limit_bytes else ""
        note = "read-only" if block.read_only else bound
        return PromptEntry(key=key, scope=scope.name, text=await self._text(scope, key), note=note)

    async def info(self, name: str) -> Sequence[PromptEntry]:
        """Return the entries under info/ of a scope."""
        scope = _scope(self._author, name)
        if scope is None:
            return ()
        entries = await self._list(scope, INFO_PREFIX)
        return [PromptEntry(key=entry.key, scope=name, text=value_as_text(entry.text)) for entry in entries]

    async def ontology(self) -> str:
        """Return the ontology of the tenant; empty when there is none, or when a run was the last to write it.

        It is not fenced as data, so only operators and applications may write it.
        """
        entry = await self._get(Scope(self._author.tenant, TENANT, TENANT_SCOPE_ID), ONTOLOGY_KEY)
        return "" if entry is None or entry.source.get("run_id") else value_as_text(entry.text)

    async def indexes(self) -> Sequence[PromptEntry]:
        """Return the indexes of the scopes that have one, or as memory_roots says."""
        entries: list[PromptEntry] = []
        scopes = () if self._grants.memory_roots == SUPPRESS else self._granted()
        for scope in scopes:
            text = await self._text(scope, INDEX_KEY)
            if not text and self._grants.memory_roots == FORCE:
                text = "\n".join(entry.key for entry in await self._list(scope, ""))
            if text:
                entries.append(PromptEntry(key=INDEX_KEY, scope=scope.name, text=text))
        return entries

    async def search(self, finder: Finder, query: str) -> Sequence[PromptEntry]:
        """Return what a search of each scope finds. Raises Refused too."""
        entries: list[PromptEntry] = []
        for scope in self._granted():
            hits = await finder.search(scope, MemorySearch(query=query, top_k=SEARCH_HITS), self._author)
            entries += [PromptEntry(key=hit.key, scope=scope.name, text=_written(hit.value)) for hit in hits.entries]
        return entries

    def _granted(self) -> Sequence[Scope]:
        scopes = [_scope(self._author, name) for name in self._grants.memory_scopes]
        return [scope for scope in scopes if scope is not None]

    async def _text(self, scope: Scope, key: str) -> str:
        entry = await self._get(scope, key)
        return "" if entry is None else value_as_text(entry.text)

    async def _get(self, scope: Scope, key: str) -> StoredEntry | None:
        try:
            entry = await self._backend.get(scope, key, self._author)
        except (Refused, Unavailable) as error:
            return _unreadable(key, error)
        return None if entry is None else self._noted(entry)

    async def _list(self, scope: Scope, prefix: str) -> Sequence[StoredEntry]:
        try:
            entries, _ = await self._backend.list(scope, self._author, prefix=prefix, limit=limits.LIST_MAX)
        except (Refused, Unavailable) as error:
            return [_unreadable(f"{prefix}*", error)]
        return list(map(self._noted, entries))

    def _noted(self, entry: StoredEntry) -> StoredEntry:
        if entry.position:
            position = Position.parse(entry.position)
            place = (position.topic, position.partition)
            if place not in self._newest or self._newest[place].offset < position.offset:
                self._newest[place] = position
        return entry


def value_as_text(json_text: str) -> str:
    """Return a value as a prompt shows it: a text as it is, everything else as JSON."""
    return _written(parse_value(json_text))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _scope(author: Author, name: str) -> Scope | None:
    try:
        return resolve_scope(author, name)
    except Refused:
        return None


def _unreadable(key: str, error: Refused | Unavailable) -> StoredEntry:
    """Return what stands for entries that no later attempt can read; raise the error of one that may."""
    if isinstance(error, Unavailable) and not isinstance(error.__cause__, Permanent):
        raise error
    return replace(UNREADABLE, key=key)
