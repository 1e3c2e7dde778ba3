"""Reads of entities: from rows in Postgres behind a position, and from the replicas of the process."""

from dataclasses import replace
from typing import Any

import pytest

from docs.examples.counter.counter import FAMILY, Counter
from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import Reads, aggregate_key
from loomlog.services.stream.entities.entity_reads import StoredEntityReads
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.reads import PositionNotRead
from tests.projections.counters import TOPIC, Counters, counter, with_rules

REPLICATED = replace(FAMILY, reads=Reads.REPLICATED)


class Replicated:
    """What a process has read of one partition of the entity events."""

    topic = TOPIC
    partitions = 1

    def __init__(self, next_offset: int = 0, **values: int) -> None:
        self.next_offset = next_offset
        self.waited: list[int] = []
        self._entities = {
            counter(name): Entity(id=counter(name), seq=1, state=Counter(value=value)) for name, value in values.items()
        }

    def entity(self, aggregate: str) -> Entity[Any] | None:
        return self._entities.get(aggregate)

    def entities(self, family: str, tenant: str) -> list[Entity[Any]]:
        return list(self._entities.values()) if (family, tenant) == ("counter", "acme") else []

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        self.waited.append(offset)
        return max(0, offset + 1 - self.next_offset)


def reads_over(reader: Any, family: Any = FAMILY, replicas: Any = None, **more: Any) -> StoredEntityReads:
    return StoredEntityReads(FamilySet([family]), replicas or Replicated(), reader, wait_s=0.0, **more)


@pytest.fixture
def partition() -> Counters:
    partition = Counters()
    partition.claim()
    return partition


async def test_rows_are_shown_with_the_state_of_their_family(partition, project_entities, entity_reader):
    partition.raise_("a/b", 1, 2)
    partition.raise_("a/b", 7, tenant="other")
    await project_entities(partition)
    reads = reads_over(entity_reader)
    row = await reads.show("counter", "acme", "a/b", positions=[f"{TOPIC}/0:2"])
    assert row is not None
    assert (row.name, row.entity.state, row.entity.seq) == ("a/b", Counter(value=2), 2)
    assert row.entity.created_at_ms
    assert await reads.show("counter", "acme", "missing") is None
    assert await reads.show("counter", "nobody", "a/b") is None


async def test_rows_are_listed_by_the_bytes_of_their_names_from_a_name_on(partition, project_entities, entity_reader):
    names = ["a/1", "a/2", "B", "é", "a_3"]
    for name in names:
        partition.raise_(name, 1)
    partition.raise_("a/9", 1, tenant="other")
    await project_entities(partition)
    reads = reads_over(entity_reader)

    async def listed(**criteria: Any) -> list[str]:
        return [row.name for row in await reads.list("counter", "acme", **{"limit": 10, **criteria})]

    assert await listed() == sorted(names, key=str.encode)
    assert await listed(prefix="a/") == ["a/1", "a/2"]
    assert await listed(after="a/1", limit=2) == ["a/2", "a_3"]
    assert await listed(after="é") == []


async def test_a_read_behind_a_position_is_refused_with_what_is_missing(partition, project_entities, entity_reader):
    partition.raise_("a", 1, 2)
    await project_entities(partition)  # up to offset 2
    reads = reads_over(entity_reader)
    for positions in ([f"{TOPIC}/0:5"], [f"{TOPIC}/0:1", f"{TOPIC}/0:5"]):
        with pytest.raises(PositionNotRead) as caught:
            await reads.show("counter", "acme", "a", positions=positions)
        assert caught.value.lag == 3
        with pytest.raises(PositionNotRead):
            await reads.list("counter", "acme", limit=1, positions=positions)
    assert await reads.show("counter", "acme", "a", positions=["loom.run.events/0:99"]) is not None
    with pytest.raises(PositionNotRead, match="nonsense"):
        await reads.show("counter", "acme", "a", positions=["nonsense"])


async def test_a_read_waits_until_the_projector_has_passed_the_position(partition, project_entities, entity_reader):
    partition.raise_("a", 1)
    looks: list[float] = []

    async def project_meanwhile(seconds: float) -> None:
        looks.append(seconds)
        await project_entities(partition)

    reads = StoredEntityReads(FamilySet([FAMILY]), Replicated(), entity_reader, wait_s=30.0, sleep=project_meanwhile)
    row = await reads.show("counter", "acme", "a", positions=[f"{TOPIC}/0:1"])
    assert row is not None
    assert len(looks) == 1


async def test_only_positions_of_its_own_partition_hold_an_aggregate_back(partition, project_entities, entity_reader):
    partition.raise_("a", 1)
    await project_entities(partition)
    replicas = Replicated()
    replicas.partitions = 8
    own = partition_of(aggregate_key(counter("a")), 8)
    reads = reads_over(entity_reader, replicas=replicas)
    other = (own + 1) % 8
    assert await reads.show("counter", "acme", "a", positions=[f"{TOPIC}/{other}:99"]) is not None
    with pytest.raises(PositionNotRead):
        await reads.show("counter", "acme", "a", positions=[f"{TOPIC}/{own}:99"])
    with pytest.raises(PositionNotRead):
        await reads.list("counter", "acme", limit=1, positions=[f"{TOPIC}/{other}:99"])


async def test_a_row_of_another_version_of_the_fold_is_not_shown(partition, project_entities, entity_reader):
    partition.raise_("a", 1)
    await project_entities(partition)
    with pytest.raises(Transient, match="was folded by version 1 of counter, this is 2"):
        await reads_over(entity_reader, with_rules(version=2)).show("counter", "acme", "a")


async def test_replicated_families_are_read_from_memory() -> None:
    replicas = Replicated(5, b=2, a=1, c=3)
    reads = reads_over(None, REPLICATED, replicas)
    row = await reads.show("counter", "acme", "a", positions=[f"{TOPIC}/0:4"])
    assert row is not None
    assert (row.name, row.entity.state, replicas.waited) == ("a", Counter(value=1), [4])
    assert await reads.show("counter", "acme", "missing") is None
    rows = await reads.list("counter", "acme", after="a", limit=1)
    assert [one.name for one in rows] == ["b"]
    assert [one.name for one in await reads.list("counter", "acme", prefix="c", limit=9)] == ["c"]
    with pytest.raises(PositionNotRead) as caught:
        await reads.show("counter", "acme", "a", positions=[f"{TOPIC}/0:6"])
    assert caught.value.lag == 2


async def test_the_barrier_waits_for_replicas_and_rows(partition, project_entities, entity_reader):
    partition.raise_("a", 1, 2)
    await project_entities(partition)
    behind = reads_over(entity_reader, replicas=Replicated(1))
    assert await behind.wait(0, 2, timeout_s=0) == 2
    both = reads_over(entity_reader, replicas=Replicated(9))
    assert await both.wait(0, 2, timeout_s=0) == 0
    assert await both.wait(0, 4, timeout_s=0) == 2
