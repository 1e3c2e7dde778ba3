"""What memory does when the root run of a tree has ended, beside the path of the run.

    the database of the tree      is dropped
    a chat of a person            is noted in the targets that learn from it, if there is a consolidator to start

A busy target is noted every NOTE_INTERVAL_MS, so that runs do not cost a command each. What a process has not done when
it dies is left: a database to its own timer, a chat to the next one of its target.

Before: services.py. After: operations.py; services/families/database/operations.py.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from loomlog.connectors.process.logs import about
from loomlog.schemas.records import Value, replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.system_agents import CONSOLIDATOR
from loomlog.services.families.consolidation.learning import is_internal, learning_scopes
from loomlog.services.families.memory.author import RUN, Author, Scope, author_of_run
from loomlog.services.families.memory.prompt import NO_GRANTS
from loomlog.services.families.ports.isolation import Isolation
from loomlog.services.families.ports.startable_agents import StartableAgents

log = logging.getLogger(__name__)

NOTE_INTERVAL_MS = 10_000
"""Time between two notes for a target; far less than limits.START_DELAY_MS, so a pass misses no chat by it."""
RETRY_MS = 10_000
RESOLVED_MS = 10_000
"""How long it is remembered whether a tenant has a consolidator."""
TOGETHER = 16
"""Tasks under way at once."""
TASKS_MAX = 10_000
"""Tasks that wait. A log that does not answer ends no runs, so more than that is not expected."""


class SettledChats(Protocol):
    """Targets of consolidation (services/families/consolidation/operations.py)."""

    def run_ended(self, run_id: str) -> None:
        """Let another pass take the place of a run that has ended."""
        ...

    async def note_settled_chat(self, scope: Scope, author: Author) -> None:
        """Say that a chat has settled. Raises Refused, Unavailable."""
        ...


class RunDatabases(Protocol):
    """Databases (services/families/database/operations.py)."""

    def has_files(self, scope: Scope) -> bool: ...

    async def exists(self, scope: Scope, positions: Sequence[str]) -> bool:
        """Return whether there is something to drop. Raises Unavailable."""
        ...

    async def drop(self, scope: Scope, author: Author, reason: str = "") -> bool:
        """Delete a database; return whether there was one. Raises Refused, Unavailable."""
        ...


class Task(Value, frozen=True, kw_only=True):
    """A command that is due: a drop for the scope `run`, else a note."""

    scope: Scope
    author: Author
    due_ms: int


class RunEndMemory:
    """See the module."""

    def __init__(
        self,
        chats: SettledChats,
        databases: RunDatabases | None,
        *,
        can_start: StartableAgents,
        internal_agents: Collection[str] = (),
        require_local: Callable[[str, Author], Awaitable[None]],
        is_isolated: Isolation = lambda tenant, subject: False,
        clock_ms: Callable[[], int],
    ) -> None:
        """`require_local` raises Refused when the author's memory is in another installation."""
        self._chats = chats
        self._databases = databases
        self._can_start = can_start
        self._internal_agents = frozenset(internal_agents)
        self._require_local = require_local
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms
        self._tasks: dict[Scope, Task] = {}
        self._noted_ms: dict[Scope, int] = {}
        self._resolved: dict[str, tuple[int, bool]] = {}
        """By tenant: until when it is valid, and whether there is a consolidator."""
        self._wakeup = asyncio.Event()

    def on_run_ended(self, tenant: str, facts: RunFacts) -> None:
        """Schedule what the end of a run leads to; its end is in the log."""
        self._chats.run_ended(facts.run_id)
        if facts.parent is not None:
            return
        grants = facts.definition.grants or NO_GRANTS
        own = Scope(tenant, RUN, facts.run_id)
        if self._databases is not None and (RUN in grants.sql_scopes or self._databases.has_files(own)):
            self._add(own, self._author(tenant, facts, "drop"))
        if not grants.memory_scopes or facts.seed or is_internal(facts.definition.name, self._internal_agents):
            return
        if self._can_consolidate(tenant):
            author = self._author(tenant, facts, "settled")
            for scope in learning_scopes(author):
                self._add(scope, replace(author, command_id=f"{author.command_id}.{scope.name}"))

    def _author(self, tenant: str, facts: RunFacts, what: str) -> Author:
        return author_of_run(
            tenant,
            facts,
            f"{facts.run_id}:{what}",
            issued_at_ms=self._clock_ms(),
            is_isolated=self._is_isolated(tenant, facts.subject),
        )

    def _can_consolidate(self, tenant: str) -> bool:
        now_ms = self._clock_ms()
        until_ms, is_there = self._resolved.get(tenant, (0, False))
        if until_ms <= now_ms:
            is_there = self._can_start(CONSOLIDATOR, tenant)
            self._resolved[tenant] = (now_ms + RESOLVED_MS, is_there)
        return is_there

    def _add(self, scope: Scope, author: Author, delay_ms: int = 0) -> None:
        if scope in self._tasks or len(self._tasks) >= TASKS_MAX:
            return
        due_ms = max(self._clock_ms() + delay_ms, self._noted_ms.get(scope, 0) + NOTE_INTERVAL_MS)
        self._tasks[scope] = Task(scope=scope, author=author, due_ms=due_ms)
        self._wakeup.set()

    async def run(self) -> None:
        """Carry out what is due, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._wakeup.wait()
            self._wakeup.clear()
            await self.carry_out()

    def _wait_s(self) -> float | None:
        if not self._tasks:
            return None
        return max(0, min(task.due_ms for task in self._tasks.values()) - self._clock_ms()) / 1000

    async def carry_out(self) -> None:
        """Carry out what is due now."""
        now_ms = self._clock_ms()
        self._noted_ms = {one: at_ms for one, at_ms in self._noted_ms.items() if at_ms + NOTE_INTERVAL_MS > now_ms}
        due = [task for task in self._tasks.values() if task.due_ms <= now_ms]
        for task in due:
            del self._tasks[task.scope]
            if task.scope.name != RUN:
                self._noted_ms[task.scope] = now_ms
        for start in range(0, len(due), TOGETHER):
            await asyncio.gather(*map(self._carry_out, due[start : start + TOGETHER]))

    async def _carry_out(self, task: Task) -> None:
        scope, author = task.scope, task.author
        try:
            if scope.name != RUN:
                await self._require_local("consolidation", author)
                await self._chats.note_settled_chat(scope, author)
            elif self._databases is not None and await self._databases.exists(scope, author.positions):
                await self._databases.drop(scope, author, "the run has ended")
        except Unavailable as error:
            log.warning(
                "the end of %s is not in the memory of %s yet: %s",
                author.run_id,
                scope.aggregate,
                error,
                extra=about(author.run_id, author.tenant),
            )
            self._add(scope, replace(author, issued_at_ms=0), RETRY_MS)
        except Refused as refused:
            log.info(
                "the end of %s changes nothing in %s: %s",
                author.run_id,
                scope.aggregate,
                refused,
                extra=about(author.run_id, author.tenant),
            )
