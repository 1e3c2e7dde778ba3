"""Processes with databases over entities in memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.records import replace
from loomlog.services.core.families import TIMER_FIRED, At
from loomlog.services.core.operations import Answer
from loomlog.services.core.refusals import Refused
from loomlog.services.families.database import FAMILY
from loomlog.services.families.database.files import DatabaseFiles
from loomlog.services.families.database.limits import SqlLimits
from loomlog.services.families.database.operations import DatabaseOperations
from loomlog.services.families.database.state import Database
from loomlog.services.families.memory.author import Author, Grants, Scope
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.memory.calls import on_part

ADA = Scope("acme", "user", "ada")
AUTHOR = Author(
    tenant="acme",
    subject="op",
    command_id="c",
    issued_at_ms=NOW_MS,
    user_id="ada",
    agent="helper",
    run_id="r_1",
    root_run_id="r_1",
    grants=Grants(sql_scopes=("user",)),
)
OTHER = replace(AUTHOR, run_id="r_2", root_run_id="r_2")
LIMITS = SqlLimits(busy_wait_s=0.3, statement_s=2.0)


class Log(MemoryEntities):
    """The log of an installation."""

    def __init__(self) -> None:
        super().__init__(FAMILY)

    def state(self, scope: Scope = ADA) -> Database:
        state: Database = self.entities[scope.tenant, scope.aggregate].state
        return state

    def fire_timer(self, scope: Scope = ADA) -> None:
        """Let the time of an idle transaction come."""
        place = (scope.tenant, scope.aggregate)
        at_ms = self.state(scope).transaction.deadline_ms  # type: ignore[union-attr]  # there is one
        for event in FAMILY.rules.decide(self.state(scope), TIMER_FIRED, At(at_ms)):
            self.entities[place] = self._rules.evolve(self.entities[place], event, at_ms)

    @property
    def refusals(self) -> list[str]:
        return [
            answer.events[-1].code for answer in self.answers.values() if isinstance(answer.events[-1], CommandRefused)
        ]


class Process:
    """A process with databases."""

    def __init__(self, log: Log, folder: Path, blobs: MemoryBlobs, *, limits: SqlLimits = LIMITS, **more: Any) -> None:
        self.log = log
        self.files = DatabaseFiles(folder, limits)
        self.now_ms = NOW_MS
        self.operations = DatabaseOperations(
            log, log, self.files, blobs, clock_ms=lambda: self.now_ms, limits=limits, wait_s=1, **more
        )
        self.number = 0

    async def do(self, op: str, author: Author = AUTHOR, scope: Scope = ADA, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        author = replace(author, command_id=f"{author.command_id}.{id(self)}.{self.number}")
        answer: Mapping[str, Any] = (await self.again(op, author, scope, **fields)).value
        return answer

    async def again(self, op: str, author: Author, scope: Scope = ADA, **fields: Any) -> Answer[Any]:
        """Carry out an op; the value of the answer is JSON."""
        return await on_part(self.operations, op, fields, author, scope)

    async def exec(self, statement: str, *args: Any, **more: Any) -> Mapping[str, Any]:
        return await self.do("sql_exec", statement=statement, args=list(args), **more)

    async def rows(self, statement: str, *args: Any, **more: Any) -> Any:
        return (await self.do("sql_query", statement=statement, args=list(args), **more))["rows"]

    async def refused(self, op: str, author: Author = AUTHOR, **fields: Any) -> tuple[str, str]:
        with pytest.raises(Refused) as caught:
            await self.do(op, author, **fields)
        return caught.value.code, str(caught.value)
