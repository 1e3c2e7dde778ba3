"""A process with volumes that are made at run time: the rules in memory, folders on the disk."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.families import aggregate_id
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.operations import DefinitionOperations
from loomlog.services.families.definition.state import VOLUME, line_id
from loomlog.services.families.definition.table import DefinitionTable, FileDefinition, file_definition
from loomlog.services.families.definition.volume_table import VolumeTable
from loomlog.services.families.definition.volumes import VolumeOperations
from loomlog.services.families.ports.made_volumes import MadeVolumes
from loomlog.services.stream.entities.answers import Answer
from tests.services.entities import NOW_MS, TOPIC, MemoryEntities
from tests.services.families.definition.opened import Opened, fields_of

OPERATOR = Author(tenant="acme", subject="op", command_id="c", issued_at_ms=NOW_MS, agent_id="a_http-op", is_admin=True)
AGENT = replace(
    OPERATOR,
    is_admin=False,
    agent_id="a_1",
    agent="helper",
    run_id="r_child",
    root_run_id="r_root",
    grants={"volume_def_scopes": ("any",)},
)


class Replicas:
    """The lines of MemoryEntities, as replicas of a process show them once they have read them."""

    def __init__(self, entities: MemoryEntities) -> None:
        self.entities = entities
        self.listeners: list[Callable[[str], None]] = []

    def on_fold(self, family: str, folded: Callable[[str], None]) -> None:
        self.listeners.append(folded)

    def state(self, aggregate: str) -> Any:
        tenant, _, name = aggregate.partition(":")[2].partition("/")
        return self.entities.entities[tenant, name].state

    def position(self, aggregate: str) -> str:
        return f"{TOPIC}/1:1"

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return 0


class Process:
    """A process over entities that others may use as well."""

    def __init__(
        self, entities: MemoryEntities, pool: Path | None, more: Mapping[tuple[str, str], FileDefinition] = {}
    ) -> None:
        self.replicas = Replicas(entities)
        contents = {"work": {"path": "/srv/work", "mode": "rw", "default": True, "dynamic_root": False}}
        if pool is not None:
            contents["pool"] = {"path": str(pool), "mode": "rw", "default": False, "dynamic_root": True}
        files = {(VOLUME, name): file_definition(VOLUME, name, content) for name, content in contents.items()} | {
            **more
        }
        self.opened = Opened(self.replicas, self, entities, files=files)
        self.definitions: DefinitionTable = self.opened.get(DefinitionTable)
        self.table: VolumeTable = self.opened.get(MadeVolumes)
        self.operations = VolumeOperations(self.opened.get(DefinitionOperations), self.table)
        self.entities = entities
        self.number = 0

    async def ask(self, command: Any, *, wait_s: float) -> Answer:
        answer = await self.entities.ask(command, wait_s=wait_s)
        if not isinstance(answer.events[-1], CommandRefused):
            self.read(aggregate_id("definition", command.envelope.tenant, line_id(command.kind, command.name)))
        return answer

    def read(self, *aggregates: str) -> None:
        for aggregate in aggregates or [aggregate_id("definition", *place) for place in self.entities.entities]:
            for listener in self.replicas.listeners:
                listener(aggregate)

    async def do(self, op: str, author: Author = OPERATOR, **fields: Any) -> Mapping[str, Any]:
        self.number += 1
        author = replace(author, command_id=f"{author.command_id}.{id(self)}.{self.number}")
        return fields_of(await self.opened.ask("VolumeDef", op, author, **fields))

    async def refused(self, op: str, author: Author = OPERATOR, **fields: Any) -> tuple[str, str]:
        with pytest.raises(Refused) as caught:
            await self.do(op, author, **fields)
        return caught.value.code, caught.value.message

    async def names(self, author: Author = OPERATOR) -> list[str]:
        return [one["name"] for one in (await self.do("list", author))["volumes"]]


def of_run(root: str) -> Author:
    return replace(AGENT, root_run_id=root, run_id=root)
