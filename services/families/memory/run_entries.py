"""Entries that are written in the name of runs that have ended.

Before: services/families/ports/run_ends.py. After: backends.py.
"""

from collections.abc import Callable
from typing import Any, Protocol

from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory.api import MemorySet
from loomlog.services.families.memory.author import AGENT, TENANT, TENANT_SCOPE_ID, USER, Author, Scope, author_of_run
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.run_ends import TRIES_MS, EndedRun


class Entries(Protocol):
    """Operations on entries (backends.py)."""

    async def set(self, asked: MemorySet, author: Author, scope: Scope) -> Any:
        """Set a key. Raises Refused, Unavailable."""
        ...


class RunEntries:
    """Protocol EntryWriter of ports/run_ends.py."""

    def __init__(self, entries: Entries, is_isolated: Isolation, clock_ms: Callable[[], int]) -> None:
        self._entries = entries
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms

    async def set_entry(self, run: EndedRun, scope: str, key: str, value: Any, *, agent: str = "") -> None:
        """Set a key. Raises Refused, Unavailable; a backend of another installation is given up after TRIES_MS."""
        author = author_of_run(
            run.tenant,
            run.facts,
            run.command_id,
            issued_at_ms=run.ended_at_ms,
            is_isolated=self._is_isolated(run.tenant, run.facts.subject),
        )
        try:
            await self._entries.set(MemorySet(key=key, value=value), author, _scope(scope, agent, author))
        except Unavailable as error:
            is_elsewhere = author.grants is not None and bool(author.grants.memory_backend)
            if is_elsewhere and self._clock_ms() > run.ended_at_ms + TRIES_MS:
                raise Refused("memory_unavailable", str(error)) from error
            raise


def _scope(name: str, agent: str, author: Author) -> Scope:
    if author.is_isolated and name != USER:
        raise Refused("scope_denied", f"scope {name}: the subject of this run is confined to its own memory")
    match name:
        case "agent":
            return Scope(author.tenant, AGENT, agent or author.agent)
        case "user":
            if not author.user_id:
                raise Refused("invalid_scope", "scope user: the run has no user_id")
            return Scope(author.tenant, USER, author.user_id)
    return Scope(author.tenant, TENANT, TENANT_SCOPE_ID)
