"""Every family of the installation is in a state file as it declares, or named as left out; queues come back whole."""

import contextlib
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest

from loomlog.schemas.generated.budget_commands import SetLimit
from loomlog.schemas.generated.channel_commands import AckCursor, PublishMessage, ReadQueue, SettleLease
from loomlog.schemas.generated.channel_events import MessagesLeased
from loomlog.schemas.generated.pause_commands import SetPause
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.transfer.state_files import StateFileRequest
from loomlog.services.core.entity import Entity
from loomlog.services.core.families import CHANNEL_SET, Family, StateFiles
from loomlog.services.core.pauses import WidePause
from loomlog.services.families.entity_folds import entity_folds
from loomlog.services.families.registry import all_families, families_of
from loomlog.services.stream.archive.state_file import StatedAggregate, StatedLimit, StatedOmission, StateWriter
from loomlog.services.stream.archive.state_reader import StateReader
from loomlog.services.stream.archive.state_validation import validate_state
from tests.services.application.installation import Installation
from tests.services.application.transfer.test_entity_restore import at_work, file_of, restored
from tests.services.application.world import ADMIN_CALLER
from tests.services.families.channel.answers import answer_event
from tests.services.families.contract.cases import BY_NAME
from tests.services.stream.entities.two_sets import CHANNELS, SETS, TwoSetProcess, TwoSets
from tests.services.stream.entities.world import CODEC

SECTIONS = {"pause": WidePause, "budget": StatedLimit}
"""What the file has of families with a section of their own form."""
PAUSED: dict[str, Any] = {"scope": "agent", "tenant": "acme", "agent": "helper", "reason": "a test"}


@dataclass
class Everything(TwoSets):
    """Both topic sets with all families of the registry; `left_out` says so of one of them."""

    left_out: str = ""
    owns: TwoSetProcess | None = None

    def declared(self, name: str) -> tuple[Family[Any, Any, Any], ...]:
        return tuple(
            changed(one, lifecycle=changed(one.lifecycle, state_files=StateFiles.LEFT_OUT))
            if one.name == self.left_out
            else one
            for one in families_of(name)
        )

    async def give(self, command: Any, command_id: str) -> Any:
        envelope = replace(command.envelope, command_id=command_id)
        assert self.owns is not None
        return await self.owns.entities.parts.client.ask(replace(command, envelope=envelope), wait_s=30)

    async def states(self, topic_set: str) -> dict[str, Entity[Any]]:
        """The states of all aggregates of a topic set, without what is of this log."""
        found: dict[str, Entity[Any]] = {}
        for number in range(self.partitions):
            below = await self.rows_of[topic_set].next_offset(number)
            folded = await self.rows_of[topic_set]._folded(number, below)
            found |= {name: one.state for name, one in folded.items()}
        return found

    def rows_of_messages(self) -> dict[tuple[str, str], Any]:
        """The items of channels by kind and id, as the projector writes them."""
        fold, rows = entity_folds(families_of(CHANNEL_SET))["channel"], dict[tuple[str, str], Any]()
        for number in range(self.partitions):
            reader, states = TermReader(codec=CODEC), dict[str, Any]()
            for record in self.log.records[CHANNELS.events, number]:
                event = reader.read(record.offset, record.value)
                if event is None:
                    continue
                decoded = event.decode(CODEC)
                assert decoded.envelope is not None
                before = states.get(event.aggregate) or fold.initial(event.aggregate, 1)
                after = states[event.aggregate] = fold.evolve(before, decoded.record, decoded.envelope.at_ms)
                for item in fold.items(after, decoded.record, decoded.envelope):
                    rows[item.kind, item.id] = item
        return {key: item for key, item in rows.items() if item.document}


@contextlib.asynccontextmanager
async def everything(
    folder: Path, partitions: int, left_out: str = ""
) -> AsyncIterator[tuple[Everything, Installation]]:
    world = Everything(partitions=partitions, left_out=left_out)
    world.owns = await world.owner()
    async with at_work(folder, world) as made:
        yield world, made


async def filled(world: Everything) -> None:
    """At least one aggregate of each family, by the examples of the contract; one pause and one limit."""
    for family in all_families():
        envelope = world.envelope("example")
        if family.name == "pause":
            commands: list[Any] = [SetPause(envelope=world.envelope("", ""), **PAUSED)]
        elif family.name == "budget":
            limit: dict[str, Any] = {"scope": "tenant", "tenant": "acme", "scope_id": "acme", "hard_tokens": 9}
            commands = [SetLimit(envelope=world.envelope("", ""), **limit)]
        else:
            commands = BY_NAME[family.name].examples(envelope)
        for number, command in enumerate(commands):
            await world.give(command, f"{family.name}-{number}")


def queue(name: str) -> dict[str, Any]:
    return {"channel": name, "scope": "tenant", "scope_id": ""}


async def published(world: Everything, queues: int, messages: int) -> None:
    """Queues with messages, two readers of the first, one of which has a lease that it has settled in part."""
    for number in range(queues):
        for at in range(messages):
            command = PublishMessage(envelope=world.envelope(""), **queue(f"q{number}"), value=f'"{number}.{at}"')
            await world.give(command, f"p{number}-{at}")
    read = ReadQueue(envelope=world.envelope(""), **queue("q0"), max_messages=3)
    await world.give(read, "read")
    await world.give(SettleLease(envelope=world.envelope(""), **queue("q0"), lease_id="read", taken=2), "settled")
    await world.give(AckCursor(envelope=world.envelope(""), **queue("q1"), reader="audit", cursor="cur_0"), "ack")


async def next_positions(world: Everything, name: str) -> Any:
    command = ReadQueue(envelope=world.envelope(""), **queue(name), max_messages=4)
    event = answer_event((await world.give(command, f"next-{name}")).events)
    assert isinstance(event, MessagesLeased)
    return event.positions


async def test_every_family_is_in_the_file_as_it_declares(tmp_path: Path) -> None:
    async with everything(tmp_path, 2) as (world, made):
        await filled(world)
        items = list(StateReader(io.BytesIO(await file_of(made))))
    whole = {one.aggregate.partition(":")[0] for one in items if isinstance(one, StatedAggregate)}
    named = {one.family for one in items if isinstance(one, StatedOmission)}
    for family in all_families():
        form = family.lifecycle.state_files
        assert (family.name in whole, family.name in named) == (
            form is StateFiles.EVENTS,
            form is StateFiles.LEFT_OUT,
        ), family.name
        if form is StateFiles.SECTION:
            assert any(isinstance(one, SECTIONS[family.name]) for one in items), family.name


async def test_every_family_has_the_states_of_there_after_a_restore(tmp_path: Path) -> None:
    async with everything(tmp_path / "a", 2) as (there, source):
        await filled(there)
        data = await file_of(source)
        async with everything(tmp_path / "b", 3) as (here, target):
            result = await restored(target, data)
            left_out = {one.name for one in all_families() if one.lifecycle.state_files is StateFiles.LEFT_OUT}
            assert result.failed_aggregates == 0, result.warnings
            assert {one.family for one in result.left_out} == left_out
            for topic_set in SETS:
                expected, found = await there.states(topic_set), await here.states(topic_set)
                for name in expected:
                    if name.partition(":")[0] not in {*SECTIONS, *left_out}:
                        assert found[name] == expected[name], name


async def test_queues_come_back_with_messages_cursors_and_what_a_reader_gets_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "IMPORT_BATCH_BYTES", 2_000)
    async with everything(tmp_path / "a", 2) as (there, source):
        await published(there, 3, 8)
        data = await file_of(source)
        async with everything(tmp_path / "b", 1) as (here, target):
            result = await restored(target, data)
            assert (result.aggregates, result.left_out, result.warnings) == (3, [], [])
            assert set(result.positions) == {f"{CHANNELS.events}/0"}
            assert await here.states(CHANNEL_SET) == await there.states(CHANNEL_SET)
            rows = here.rows_of_messages()
            assert rows == there.rows_of_messages()
            assert len(rows) >= 3 * 8
            length = len(here.log.records[CHANNELS.events, 0])
            again = await restored(target, data)
            assert (again.aggregates, again.skipped_aggregates) == (0, 3)
            assert len(here.log.records[CHANNELS.events, 0]) == length
            for name in ("q0", "q1", "q2"):
                assert await next_positions(here, name) == await next_positions(there, name)


async def test_a_family_that_is_left_out_is_named_by_export_and_restore(tmp_path: Path) -> None:
    async with everything(tmp_path / "a", 2, left_out="channel") as (there, source):
        await published(there, 3, 4)
        manifest = await source.layer.backups.create(ADMIN_CALLER, StateFileRequest())
        data = await file_of(source)
    (named,) = manifest["left_out"]
    assert (named["family"], named["aggregates"], named["events"]) == ("channel", 3, 15)
    assert "left out of the family channel: aggregates 3, events 15" in manifest["warnings"][0]
    assert [one.aggregates for one in validate_state(io.BytesIO(data)).left_out] == [3]
    async with everything(tmp_path / "b", 1) as (_, target):
        result = await restored(target, data, dry_run=True)
    assert [(one.family, one.aggregates) for one in result.left_out] == [("channel", 3)]
    assert result.warnings == manifest["warnings"]


async def test_queues_whose_beginning_is_deleted_are_named(tmp_path: Path) -> None:
    async with everything(tmp_path, 1) as (world, made):
        await published(world, 2, 4)
        world.delete_before(5)
        manifest = await made.layer.backups.create(ADMIN_CALLER, StateFileRequest())
    incomplete, deleted = manifest["left_out"]
    assert (incomplete["family"], incomplete["aggregates"]) == ("channel", 1)
    assert (deleted["family"], deleted["aggregates"]) == ("channel", None)
    assert f"retention of {CHANNELS.events}" in deleted["reason"]
    assert manifest["aggregates"] == 1


async def test_a_file_of_a_version_without_channels_says_what_it_lacks(tmp_path: Path) -> None:
    async with everything(tmp_path, 1) as (_, made):
        reader = StateReader(io.BytesIO(await file_of(made)))
        writer = StateWriter()
        data = writer.begin(replace(reader.header, further_positions={})) + writer.end()
        result = await restored(made, data, dry_run=True)
    assert [one.family for one in result.left_out] == ["channel"]
    assert "the file was written by a version that did not read their topic" in result.warnings[0]
