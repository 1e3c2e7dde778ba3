"""What the files of processes say: told once by equal processes, again by different ones, and forgotten."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.definitions import KINDS
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.services.core.check import OK, WARN
from loomlog.services.core.refusals import Unavailable
from loomlog.services.families.definition import FAMILY, observation
from loomlog.services.families.definition.file_checks import check_files
from loomlog.services.families.definition.limits import OBSERVED_AGAIN_MS, OBSERVED_FOR_MS
from loomlog.services.families.definition.observation import FileObserver
from loomlog.services.families.definition.state import StaticContent
from loomlog.services.families.definition.table import SHARED, DefinitionTable, file_definition
from loomlog.services.families.opening import RunningProcess
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.families.contract import loop_checks
from tests.services.families.contract.cases import CASES
from tests.services.families.contract.world import ContractWorld
from tests.services.log_entities import LogEntities

CASE = next(case for case in CASES if case.family is FAMILY)


@dataclass
class Processes:
    """Processes with files of their own over one log."""

    world: ContractWorld
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    entities: list[LogEntities] = field(default_factory=list)

    async def start(self, name: str, **prompts: str) -> FileObserver:
        """A process whose files have agents with these prompts."""
        parts, entities = await self.world.sender(), LogEntities(2)
        entities.attach(self.world.log, parts)
        self.entities.append(entities)
        agent = KINDS["agent"]
        files = {
            ("agent", one): file_definition("agent", one, agent.compose(one, {"model": "m", "system_prompt": prompt}))
            for one, prompt in prompts.items()
        }
        table = DefinitionTable(parts.replicas, files, blobs=self.blobs, reads=entities)
        return FileObserver(name, table, entities, self.blobs, clock_ms=self.world.clock)

    async def observe(self, *observers: FileObserver) -> list[int]:
        """The number of definitions that each tells, after everybody has read what was told before."""
        counts = []
        for observer in observers:
            await self.world.settle()
            counts.append(await observer.observe())
        await self.world.settle()
        return counts

    def static(self, observer: FileObserver, name: str) -> StaticContent:
        line = observer._table.line("agent", SHARED, name)
        assert line is not None
        assert line.static is not None
        return line.static

    def differs(self, observer: FileObserver, name: str) -> bool:
        return self.static(observer, name).differs_since(self.world.now - OBSERVED_FOR_MS)


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[Processes]:
    async with loop_checks.opened(CASE) as world:
        yield Processes(world)


async def test_equal_processes_tell_a_definition_once(here: Processes) -> None:
    one, other = await here.start("one", a="x", b="y"), await here.start("two", a="x", b="y")
    assert await here.observe(one, other, one) == [2, 0, 0]
    assert not here.differs(one, "a")
    assert here.static(other, "a").digest == one._table.files["agent", "a"].digest


async def test_processes_that_differ_are_noticed_until_they_agree(here: Processes) -> None:
    one, other = await here.start("one", a="x"), await here.start("two", a="y")
    assert await here.observe(one, other, one, other) == [1, 1, 0, 0]
    assert here.differs(one, "a")
    again = await here.start("two", a="x")
    assert await here.observe(again, one) == [1, 0]
    assert not here.differs(one, "a")


async def test_a_change_and_its_undoing_are_both_told(here: Processes) -> None:
    for prompt in ("x", "y", "x", "y"):
        assert await here.observe(await here.start("one", a=prompt)) == [1]
    one = await here.start("one", a="y")
    assert here.static(one, "a").digest == one._table.files["agent", "a"].digest
    assert len(here.static(one, "a").observers) == 1


async def test_processes_that_go_on_differing_go_on_telling_and_others_are_forgotten(here: Processes) -> None:
    one, other = await here.start("one", a="x"), await here.start("two", a="y")
    await here.observe(one, other)
    here.world.now += OBSERVED_AGAIN_MS
    assert await here.observe(one, other) == [1, 1]
    here.world.now += OBSERVED_FOR_MS - 1
    assert here.differs(one, "a")
    assert await here.observe(one) == [1]
    here.world.now += 2
    assert not here.differs(one, "a")  # "two" has said nothing for a day


async def test_a_long_definition_lies_in_the_blob_store(here: Processes) -> None:
    one = await here.start("one", a="x" * 20_000)
    assert await here.observe(one) == [1]
    static = here.static(one, "a")
    assert (static.content, static.digest) == ("", one._table.files["agent", "a"].digest)
    assert static.blob is not None
    assert (await here.blobs.get(static.blob)).decode() == one._table.files["agent", "a"].text


async def test_telling_is_tried_again_until_somebody_answers(here: Processes, monkeypatch: Any) -> None:
    monkeypatch.setattr(observation, "EVERY_S", 0)
    one = await here.start("one", a="x")
    here.entities[0].error = CommandUnanswered("no owner")
    with pytest.raises(Unavailable):
        await one.observe()
    running = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    here.entities[0].error = None
    await here.world.until(lambda: one._table.line("agent", SHARED, "a") is not None)
    running.cancel()
    assert here.static(one, "a").observers[0][0] == "one"


async def test_what_files_say_hides_no_run_time_definitions(here: Processes) -> None:
    one = await here.start("one", a="x")
    await here.observe(one)
    assert one._table.resolve("agent", "acme", "a") is not None
    assert list(one._table.lines("agent", SHARED)) == []
    assert not one._table.has_skills("acme")


async def test_doctor_names_what_differs(here: Processes) -> None:
    one, other = await here.start("one", a="x"), await here.start("two", a="y")
    await here.observe(one)
    replicas = one._table._replicas
    assert check_files(replicas, here.world.now).state == OK
    await here.observe(other)
    check = check_files(replicas, here.world.now)
    assert check.state == WARN
    assert "agent a: one has" in (check.remedy or "")
    assert "two has" in (check.remedy or "")
    assert check_files(replicas, here.world.now + OBSERVED_FOR_MS + 1).state == OK


def test_a_process_keeps_its_name() -> None:
    assert RunningProcess.of("api", "api-1").name == "api-1"
    assert RunningProcess.of("api", "") == RunningProcess.of("api", "") != RunningProcess.of("runtime", "")
