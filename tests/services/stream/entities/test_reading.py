"""Reads of items wait for the projector, whether their family is replicated or not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, connect, open_reader
from loomlog.projections.engine.builds import Builds
from loomlog.projections.engine.entity_projection import EntityProjection
from loomlog.projections.engine.positions import PositionWatch
from loomlog.projections.entities import plain_seal
from loomlog.projections.entity_items import ItemPage, ItemSums
from loomlog.services.core.families import Reads
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.reading import EntityReader
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.entities.rows import EntityRows
from tests.projections.conftest import connection, options, prefix
from tests.projections.counters import ITEM_FOLDS, ITEMIZED, Counters, counter, records_of
from tests.projections.entity_fixtures import entity_builds, entity_prefix, entity_reader
from tests.services.stream.entities.world import TOPICS

__all__ = ["connection", "entity_builds", "entity_prefix", "entity_reader", "options", "prefix"]


class Written:
    """What this process wrote (as EntityClient says), and replicas that have read nothing."""

    topic, partitions = TOPICS.events, 1

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}

    def last_offsets(self, family: str, tenant: str) -> dict[int, int]:
        return dict(self.offsets) if (family, tenant) == ("counter", "acme") else {}

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        raise AssertionError("items are not read from memory")


class Stage:
    """A reader of items, and the projector that it waits for."""

    def __init__(
        self, projection: EntityProjection, reader: PostgresReader, reads: Reads, positions: PositionWatch | None
    ) -> None:
        self.written = cast(Any, Written())
        families = FamilySet([replace(ITEMIZED, reads=reads)])
        rows = EntityRows(reader, families, events_topic=TOPICS.events, seals=(plain_seal,))
        self.reads = EntityReader(families, self.written, rows, reader, self.written, positions=positions, wait_s=30)
        self._projection = projection
        self._partition = Counters()
        self._partition.claim()
        self._partition.raise_("a", 1, 2, cause_id="c1")

    async def project(self) -> None:
        await self._projection.apply(records_of(self._partition))

    async def answers(self, *positions: str) -> tuple[Any, ...]:
        given: dict[str, Any] = {"positions": positions}
        page = await self.reads.list_items("counter", "acme", "step", key_b="c1", limit=1, **given)
        return (
            await self.reads.load_items("counter", "acme", "step", [f"{counter('a')}#1"], **given),
            page,
            await self.reads.list_items("counter", "acme", "step", limit=1, after=page.next, **given),
            await self.reads.sum_items("counter", "acme", "step", aggregates=[counter("a")], **given),
            await self.reads.sum_items_by_key("counter", "acme", "step", "key_b", **given),
        )


@pytest.fixture(params=[(reads, follows) for reads in Reads for follows in (False, True)], ids=str)
async def it(
    request: Any, connection: Any, options: PostgresOptions, entity_builds: Builds, entity_reader: PostgresReader
) -> AsyncIterator[Stage]:
    """With and without the positions that the process follows."""
    reads, follows = request.param
    projection = EntityProjection(connection, entity_builds.build(1), TOPICS.events, owner="tests", folds=ITEM_FOLDS)
    await projection.claim([0])
    watch = PositionWatch(lambda: connect(options), entity_reader.schema) if follows else None
    following = asyncio.create_task(watch.run()) if watch is not None else None
    yield Stage(projection, entity_reader, reads, watch)
    if following is not None:
        following.cancel()
        await asyncio.wait([following])


SUMS = ItemSums(count=2, mean=0.25, median=0.25, min=0.25, max=0.25, latest=0.25)


@pytest.mark.parametrize("by", ["position", "own write"])
async def test_items_include_the_positions_they_are_asked_for(it: Stage, by: str) -> None:
    positions = [f"{TOPICS.events}/0:2", "loom.run.events/0:99"] if by == "position" else []
    it.written.offsets = {} if by == "position" else {0: 2}
    asked = asyncio.ensure_future(it.answers(*positions))
    await asyncio.sleep(0.1)
    assert not asked.done(), "the projector is not there yet"
    await it.project()
    loaded, first, second, sums, by_key = await asked
    assert [row.seq for row in loaded] == [1]
    assert [row.seq for row in (*first.rows, *second.rows)] == [2, 1]
    assert (first.next != "", second.next) == (True, "")
    assert (sums, by_key) == (SUMS, {"c1": SUMS})


async def test_without_a_position_items_are_read_at_once(it: Stage) -> None:
    it.written.offsets = {}
    assert await it.answers() == ([], ItemPage((), ""), ItemPage((), ""), ItemSums(), {})


READS = [
    lambda reads, **more: reads.load_items("counter", "acme", "step", ["x"], **more),
    lambda reads, **more: reads.list_items("counter", "acme", "step", limit=1, **more),
    lambda reads, **more: reads.newest_items("counter", "acme", "step", "key_a", ["x"], **more),
    lambda reads, **more: reads.sum_items("counter", "acme", "step", **more),
    lambda reads, **more: reads.sum_items_by_key("counter", "acme", "step", "key_a", **more),
]


@pytest.mark.parametrize("read", READS)
async def test_a_position_that_is_not_read_in_time_is_refused(it: Stage, read: Any) -> None:
    it.reads._wait_s = 0.05
    with pytest.raises(PositionNotRead) as refused:
        await read(it.reads, positions=[f"{TOPICS.events}/0:7"])
    assert refused.value.lag == 8


async def test_a_read_may_lack_as_many_records_as_it_allows(it: Stage) -> None:
    it.written.offsets, it.reads._wait_s = {0: 2}, 0.05
    asked: dict[str, Any] = {"family": "counter", "tenant": "acme", "kind": "step", "by": "key_a", "keys": ["x"]}
    with pytest.raises(PositionNotRead):
        await it.reads.newest_items(**asked, lag_max=2)
    assert await it.reads.newest_items(**asked, lag_max=3) == {}


@pytest.fixture
async def empty(options: PostgresOptions, entity_prefix: str) -> AsyncIterator[PostgresReader]:
    """A reader of tables that no projector has made."""
    opened = await open_reader(options, schema=f"{entity_prefix}_none", max_connections=1)
    yield opened
    await opened.close()


@pytest.mark.parametrize("read", READS)
async def test_tables_that_are_not_made_yet_are_unavailable(it: Stage, empty: PostgresReader, read: Any) -> None:
    it.reads._reader = empty
    with pytest.raises(Transient) as refused:
        await read(it.reads)
    assert refused.value.kind == "unavailable"
