"""Aggregates of the entity topics in state files: written, checked, and restored at other partition counts."""

import asyncio
import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loomlog.schemas.reader import RawEvent
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.resources import TOPICS as ALL_TOPICS
from loomlog.services.application.transfer.restore import RestoreResult
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.core.entity_import import original_event
from loomlog.services.core.refusals import Refused
from loomlog.services.families.registry import all_families
from loomlog.services.stream.archive.state_file import (
    SECTIONS,
    BrokenStateFile,
    StatedAggregate,
    StatedAggregateEvent,
    StateWriter,
)
from loomlog.services.stream.archive.state_reader import StateReader
from loomlog.services.stream.archive.state_validation import validate_state
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from tests.services.application.installation import Installation
from tests.services.application.world import ADMIN_CALLER
from tests.services.stream.entities.counters import FAMILY
from tests.services.stream.entities.test_imports import replayed
from tests.services.stream.entities.world import CODEC, TOPICS, EntityWorld

FAMILIES = EntityFamilies(FamilySet([FAMILY]))
NAMES = tuple(f"n{number}" for number in range(6))


@contextlib.asynccontextmanager
async def installed(folder: Path, partitions: int, *families: Any) -> AsyncIterator[tuple[EntityWorld, Installation]]:
    """An installation with an owner of entities and a command layer that sends to it."""
    world = EntityWorld(partitions=partitions, families=(*all_families(), *(families or (FAMILY,))))
    await world.process()
    async with at_work(folder, world) as made:
        yield world, made


@contextlib.asynccontextmanager
async def at_work(folder: Path, world: EntityWorld) -> AsyncIterator[Installation]:
    """The command layer over a world that has its owners; closes the world."""
    made = Installation(folder, world, entities=await world.sender())  # type: ignore[arg-type]  # the log is what it uses
    await made.layer.publisher.open()
    every = dict.fromkeys(range(world.partitions), 0)
    events, previews = made.log.tail(ALL_TOPICS.events, every), made.log.tail(ALL_TOPICS.previews, every)
    work = asyncio.create_task(made.layer.run(events, previews))
    try:
        yield made
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        await world.close()


async def counted(world: EntityWorld) -> None:
    """Counters of two tenants with some events each."""
    owner = world.processes[0]
    for at, name in enumerate(NAMES):
        for number in range(at + 1):
            world.now += 10
            await world.ask(owner, world.increment(name, f"{name}-{number}", number + 1))
    await world.ask(owner, world.increment("hits", "other", 7, tenant="other"))
    await world.ask(owner, world.increment("n1", "refused", 0))


async def file_of(there: Installation, **wanted: Any) -> bytes:
    manifest = await there.layer.backups.create(ADMIN_CALLER, StateFileRequest(**wanted))
    _, file = await there.layer.backups.open(manifest["id"])
    with closing(file):
        return file.read()


async def restored(here: Installation, data: bytes, *, dry_run: bool = False) -> RestoreResult:
    return await here.layer.state_restore.restore(ADMIN_CALLER, io.BytesIO(data), dry_run=dry_run)


def full(name: str) -> str:
    return f"counter:acme/{name}"


async def test_restored_aggregates_have_the_states_and_seqs_of_there_at_other_partition_counts(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 3) as (there, source):
        await counted(there)
        data = await file_of(source)
        async with installed(tmp_path / "b", 2) as (here, target):
            result = await restored(target, data)
            assert (result.aggregates, result.skipped_aggregates, result.failed_aggregates) == (7, 0, 0)
            assert result.aggregate_events == sum(range(1, 7)) + 2
            assert set(result.positions) <= {f"{TOPICS.events}/0", f"{TOPICS.events}/1"}
            for name in (*map(full, NAMES), "counter:other/hits"):
                before, after = replayed(there, name), replayed(here, name)
                assert (after.drift, after.seq, after.state) == ((), before.seq, before.state), name
            answer = await here.ask(here.processes[0], here.increment("n5", "next", 1))
            assert answer.events[-1].value == 22


async def test_restoring_twice_adds_nothing_and_says_so(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 2) as (there, source):
        await counted(there)
        data = await file_of(source)
    async with installed(tmp_path / "b", 1) as (here, target):
        await restored(target, data)
        length = len(here.log.records[TOPICS.events, 0])
        again = await restored(target, data)
        assert (again.aggregates, again.skipped_aggregates, again.positions) == (0, 7, {})
        assert len(here.log.records[TOPICS.events, 0]) == length


async def test_an_aggregate_that_exists_is_left_and_the_others_are_restored(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 2) as (there, source):
        await counted(there)
        data = await file_of(source)
    async with installed(tmp_path / "b", 2) as (here, target):
        await here.ask(here.processes[0], here.increment("n3", "own", 100))
        result = await restored(target, data)
        assert (result.aggregates, result.skipped_aggregates) == (6, 1)
        assert replayed(here, full("n3")).state.state.value == 100


async def test_a_long_history_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IMPORT_BATCH_BYTES", 1_500)
    async with installed(tmp_path / "a", 1) as (there, source):
        await counted(there)
        data = await file_of(source)
        async with installed(tmp_path / "b", 2) as (here, target):
            await restored(target, data)
            commands = {event.envelope.cause_id for event in replayed(here, full("n5")).entries}
            assert len(commands) > 1
            assert replayed(here, full("n5")).state == replayed(there, full("n5")).state


async def test_a_tenants_file_has_only_its_aggregates(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 2) as (there, source):
        await counted(there)
        heads = list(StateReader(io.BytesIO(await file_of(source, tenant="other"))))
    names = [item.aggregate for item in heads if isinstance(item, StatedAggregate)]
    assert names == ["counter:other/hits"]


async def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 2) as (there, source):
        await counted(there)
        data = await file_of(source)
    async with installed(tmp_path / "b", 1) as (here, target):
        before = len(here.log.records[TOPICS.events, 0])
        result = await restored(target, data, dry_run=True)
        assert (result.aggregates, result.positions) == (7, {})
        assert len(here.log.records[TOPICS.events, 0]) == before


async def test_an_installation_without_the_family_takes_nothing(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 1) as (there, source):
        await counted(there)
        data = await file_of(source)
    async with installed(tmp_path / "b", 1, dataclasses.replace(FAMILY, name="tally", commands=())) as (here, target):
        with pytest.raises(Refused, match=r"is of no family of .*LOOMLOG_FAMILIES adds families"):
            await restored(target, data)
        assert len(here.log.records[TOPICS.events, 0]) == 1, "its owner's Claim"


async def test_an_aggregate_whose_events_cannot_be_folded_here_fails_alone(tmp_path: Path) -> None:
    def evolve(state: Any, event: Any, at_ms: int) -> Any:
        if getattr(event, "value", 0) == 7:
            raise ZeroDivisionError("a bug in evolve")
        return FAMILY.rules.evolve(state, event, at_ms)

    async with installed(tmp_path / "a", 1) as (there, source):
        await counted(there)
        data = await file_of(source)
    broken = dataclasses.replace(FAMILY, rules=dataclasses.replace(FAMILY.rules, evolve=evolve))
    async with installed(tmp_path / "b", 1, broken) as (_, target):
        result = await restored(target, data)
        assert (result.aggregates, result.failed_aggregates) == (6, 1)
        assert "counter:other/hits is not restored: seq 1" in result.warnings[0]


# --- the file ---------------------------------------------------------------------------------------------------------


def rewritten(data: bytes, change: Callable[[list[Any]], list[Any]]) -> bytes:
    """The file with other items in the section of entities, hash and counts made to fit."""
    reader = StateReader(io.BytesIO(data))
    items = change([item for item in reader if isinstance(item, StatedAggregate | StatedAggregateEvent)])
    writer = StateWriter()
    out = writer.begin(reader.header)
    for item in items:
        if isinstance(item, StatedAggregateEvent):
            out += writer.schema(CODEC, item.event.schema_id, item.event.value)
    for item in items:
        is_head = isinstance(item, StatedAggregate)
        out += writer.aggregate(item) if is_head else writer.aggregate_event(item.event.offset, item.event.value)
    return out + writer.end()


def only(name: str, change: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """The head and the events of one aggregate, changed."""

    def chosen(items: list[Any]) -> list[Any]:
        at = next(at for at, item in enumerate(items) if isinstance(item, StatedAggregate) and item.aggregate == name)
        return change(items[at : at + 1 + items[at].events])

    return chosen


def with_head(**fields: Any) -> Callable[[list[Any]], list[Any]]:
    return only(full("n2"), lambda items: [replace(items[0], **fields), *items[1:]])


def edited(items: list[Any]) -> list[Any]:
    event = items[1].event
    changed = RawEvent(
        event.offset, event.schema_id, event.term, event.seq, event.aggregate, event.value[:-1] + b"\x04"
    )
    return [items[0], StatedAggregateEvent(changed), *items[2:]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (only(full("n2"), lambda items: items[:-1]), "n2 has 2 events, not the 3 that its head promises"),
        (only(full("n2"), lambda items: [*items[:2], *items[3:]]), "seq 3 at offset .* does not continue its history"),
        (only(full("n2"), edited), "does not continue its history"),
        (only(full("n2"), lambda items: items[1:]), "an event comes before the first aggregate"),
        (with_head(tail_digest="00" * 16), "not the 3 that its head promises"),
        (with_head(tenant="evil"), "is no id of its tenant"),
        (with_head(aggregate="counter:acme/other"), "of another aggregate or tenant"),
        (with_head(aggregate="gone:acme/n2"), "is of no family of this process"),
    ],
)
async def test_a_file_that_does_not_hold_together_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[list[Any]], list[Any]], problem: str
) -> None:
    async with installed(tmp_path, 1) as (there, source):
        await counted(there)
        data = await file_of(source)
    validate_state(io.BytesIO(rewritten(data, lambda items: items)), families=FAMILIES)
    with pytest.raises(BrokenStateFile, match=problem):
        validate_state(io.BytesIO(rewritten(data, change)), families=FAMILIES)


async def test_a_file_is_checked_without_families_where_it_is_only_kept(tmp_path: Path) -> None:
    async with installed(tmp_path, 2) as (there, source):
        await counted(there)
        data = await file_of(source)
    checked = validate_state(io.BytesIO(data))
    assert (checked.aggregates, checked.aggregate_events) == (7, 23)
    assert checked.header.entity_topic == TOPICS.events
    assert len(checked.header.entity_positions) == 2


async def test_an_incomplete_history_is_left_out_and_reported(tmp_path: Path) -> None:
    async with installed(tmp_path, 1) as (there, source):
        await counted(there)
        records = there.log.records[TOPICS.events, 0]
        at = next(r.offset for r in records if b"counter:acme/n4" in (r.value or b""))
        records[at] = replace(records[at], value=b"garbage")
        manifest = await source.layer.backups.create(ADMIN_CALLER, StateFileRequest())
    assert manifest["aggregates"] == 6
    assert any("counter:acme/n4 is left out: its history is not whole" in warning for warning in manifest["warnings"])


async def test_a_file_of_the_version_before_has_no_section_of_entities(tmp_path: Path) -> None:
    async with installed(tmp_path, 1) as (_, source):
        lines = gzip.decompress(await file_of(source)).splitlines(keepends=True)
    document = json.loads(b"".join(lines))
    assert list(document["sections"]) == list(SECTIONS)
    head = json.loads(lines[0].removesuffix(b',"sections":{\n') + b"}")
    for name in ("entity_topic", "entity_positions"):
        del head[name]
    head["schema_version"] = 2
    old = json.dumps(head)[:-1].encode() + b',"sections":{\n'
    body = b"".join(lines[1:-1])
    body = body[: body.index(b',"entities"')]
    content = old + body
    last = json.dumps({"counts": {}, "sha256": hashlib.sha256(content).hexdigest()}).encode()
    checked = validate_state(io.BytesIO(content + b"}," + last[1:] + b"\n"), families=FAMILIES)
    assert (checked.aggregates, checked.header.entity_topic) == (0, "")


async def test_the_origin_of_a_restored_aggregate_is_in_its_first_event(tmp_path: Path) -> None:
    async with installed(tmp_path / "a", 1) as (there, source):
        await counted(there)
        data = await file_of(source)
        sha256 = validate_state(io.BytesIO(data)).sha256
        tail = replayed(there, full("n2")).tail_digest.hex()
    async with installed(tmp_path / "b", 1) as (here, target):
        await restored(target, data)
        first, *rest = here.events("n2")
    assert (first.origin.bundle_sha256, first.origin.tail_digest, first.origin.restored) == (sha256, tail, True)
    assert [event.origin for event in rest] == [None, None]
    assert [original_event(event)[1].seq for event in (first, *rest)] == [1, 2, 3]
