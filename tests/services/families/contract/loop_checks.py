"""The promises of the kit that the loop keeps for every family. Each check raises AssertionError when one is broken."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as changed
from typing import Any

from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.schemas.generated.entity_commands import RepairAggregate
from loomlog.schemas.records import Record, replace
from loomlog.services.core.families import STATE_BYTES_MAX, At, Item, aggregate_key
from loomlog.services.stream.encryption.subject_keys import ERASED, SubjectKeys
from loomlog.services.stream.entities.answers import CommandInvalid
from loomlog.services.stream.entities.families import EntityCommand, EntityFamilies, FamilySet
from tests.services.families.contract.cases import Case
from tests.services.families.contract.commands import with_content, with_texts
from tests.services.families.contract.world import (
    OTHER,
    TENANT,
    ContractWorld,
    Fault,
    ProjectedRows,
    encrypt_with,
    impatient,
    script,
    subject_keys,
    world_of,
)
from tests.services.stream.entities.world import TOPICS

__all__ = ["ContractWorld", "ProjectedRows"]
CANARY = "a text that only its writer may read"
LARGE_CHARACTERS = 20_000
LARGE_COMMANDS = 60
"""Twice as many bytes as a state may have."""
SHARED = (frozenset({0}), frozenset({1}))


@asynccontextmanager
async def opened(case: Case, **more: Any) -> AsyncIterator[ContractWorld]:
    world = world_of(case, **more)
    with impatient():
        try:
            await world.open()
            yield world
        finally:
            await world.close()


async def repeated_commands_have_one_decision(case: Case) -> None:
    """In memory, by the topic, after a take-over, and after a checkpoint, when only the index knows them."""
    async with opened(case) as world:
        commands = script(case, world)
        first = [await world.answer(command) for command in commands]
        assert all(answer.events for answer in first), "a command was answered with nothing"
        for by_topic in (False, True):
            world.by_topic = by_topic
            assert [await world.answer(command) for command in commands] == first
        await world.settle()
        await world.take_over()
        assert [await world.answer(command) for command in commands] == first
        await world.settle()
        await world.checkpoint()
        world.now += 3_600_000  # what was issued before the checkpoint is looked up
        await world.take_over()
        assert [await world.answer(command) for command in commands] == first
        for command, answer in zip(commands, first, strict=True):
            events = world.decisions(world.full_id(command), command.envelope.command_id)
            assert tuple(event for _, event in events) == answer.events, f"{command} has two decisions"


async def another_tenant_has_its_own_aggregates(case: Case) -> None:
    """The same ids of aggregates and commands, given by another tenant, meet nothing of the first one."""
    async with opened(case) as alone:
        # In another order, so that a reply of the first tenant would be seen.
        expected = [(await alone.answer(command)).events for command in reversed(script(case, alone, OTHER))]
        await alone.settle()
        states = {name: state for name, state in alone.folded().items() if f":{OTHER}/" in name}
        assert states, "the aggregates of the tenant are not where its name is"
    async with opened(case) as world:
        for command in script(case, world):
            await world.answer(command)
        answers = [await world.answer(command) for command in reversed(script(case, world, OTHER))]
        assert [answer.events for answer in answers] == expected
        await world.settle()
        folded = world.folded()
        assert {name: state for name, state in folded.items() if f":{OTHER}/" in name} == states
        assert all(f":{_tenant_of(world, name)}/" in name for name in folded)
        replicas = world.owners[0].entities.parts.replicas
        await world.until(lambda: _replicas_are_equal(case, world))
        for tenant in (TENANT, OTHER):
            assert all(f":{tenant}/" in one.id for one in replicas.entities(case.family.name, tenant))
        name = world.full_id(script(case, world)[0])
        stolen = RepairAggregate(envelope=replace(world.envelope("steal"), tenant=OTHER), aggregate=name)
        await _is_invalid(world, stolen)
        # Its full id would be that of an aggregate of the first tenant.
        within = replace(script(case, world)[0], envelope=replace(world.envelope("within"), tenant=f"{TENANT}/x"))
        await _is_invalid(world, within)


def _tenant_of(world: ContractWorld, name: str) -> str:
    return next(
        decoded.envelope.tenant
        for _, decoded in world.accepted()
        if decoded.envelope is not None and decoded.envelope.aggregate == name
    )


def _replicas_are_equal(case: Case, world: ContractWorld) -> bool:
    replicas = world.owners[0].entities.parts.replicas
    return all(
        replicas.entity(name) == state
        for name, state in world.folded().items()
        if name.partition(":")[0] in FamilySet(world.families).replicated
    )


async def _is_invalid(world: ContractWorld, command: Any) -> None:
    try:
        answer = await world.answer(command)
    except CommandInvalid:
        return
    raise AssertionError(f"{command} was answered with {answer.events}")


async def misplaced_commands_are_dead_letters(case: Case) -> None:
    """A wrong key, a wrong partition, a wrong tenant and no id change nothing, and stop nothing behind them."""
    async with opened(case) as world:
        command = script(case, world)[0]
        key, number = aggregate_key(world.full_id(command)), world.partition_of(command)
        world.put_command(command, key=key + b"x")
        world.put_command(command, key=key, partition=1 - number)
        world.put_command(replace(command, envelope=replace(command.envelope, command_id="")))
        foreign = replace(command, envelope=replace(command.envelope, tenant=OTHER))
        world.put_command(foreign, key=key)
        letters = world.log.records[TOPICS.dead_letters, 0]
        await world.until(lambda: len(letters) == 4)
        assert world.accepted() == []
        world.by_topic = True
        assert (await world.answer(command)).events
        assert len(letters) == 4


async def rows_and_snapshots_continue_as_the_full_fold(case: Case) -> None:
    """Wherever a checkpoint and a take-over cut the script, the states are those of the fold from the first event."""
    async with opened(case) as world:
        expected = [(await world.answer(command)).events for command in script(case, world)]
        await world.settle()
        states = world.encoded()
    for cut in range(len(expected) + 1):
        async with opened(case) as world:
            answers = []
            for number, command in enumerate(script(case, world)):
                if number == cut:
                    await world.checkpoint()
                    await world.take_over()
                answers.append((await world.answer(command)).events)
                await world.settle()
            assert answers == expected
            assert world.encoded() == states, f"after a cut before command {cut}"
            await _rows_say_the_same(world, states)
            await world.until(lambda world=world: _replicas_are_equal(case, world))


async def _rows_say_the_same(world: ContractWorld, states: dict[str, bytes]) -> None:
    for number in range(world.partitions):
        await world.rows.next_offset(number)
    rows = {name: row.state.encode() for name, row in world.rows.rows.items()}
    assert rows == states


async def items_are_those_of_the_full_fold(case: Case) -> None:
    """Items are the same wherever the projector stood still, began again or was replaced, and in a lost database."""
    cuts = len(script(case, world_of(case))) + 1
    for cut in range(cuts):
        async with opened(case) as world:
            for number, command in enumerate(script(case, world)):
                if number == cut:
                    await world.checkpoint()
                    await world.take_over()
                    world.rows.restart()
                await world.answer(command)
                await world.settle()
                await _items_are_folded(world)
            families = FamilySet(world.families)
            world.now = max(families.of(name).rules.next_timer_ms(state) for name, state in world.folded().items())
            await world.fire_timers()
            await _items_are_folded(world)
            world.rows.rebuild()
            await _items_are_folded(world)


async def _items_are_folded(world: ContractWorld) -> None:
    for number in range(world.partitions):
        await world.rows.next_offset(number)
    rows = {
        key: (
            Item(
                kind=row.kind,
                id=row.id,
                key_a=row.key_a,
                key_b=row.key_b,
                number=row.number,
                document=row.document,
                kept_ms=row.expires_at_ms - row.at_ms if row.expires_at_ms else 0,
            ),
            row.partition,
            row.offset,
            row.seq,
        )
        for key, row in world.rows.items.items()
    }
    assert rows == world.folded_items()


async def played(case: Case, fault: Fault, *, shared: bool = False, by_topic: bool = False) -> ContractWorld:
    """Play the script with a checkpoint in its middle, and with that fault; the world is closed."""
    shares = SHARED if shared else (frozenset({0, 1}),)
    async with opened(case, fault=fault, shares=shares, by_topic=by_topic) as world:
        commands = script(case, world)
        for number, command in enumerate(commands):
            answer = await world.answer(command)
            events = world.decisions(world.full_id(command), command.envelope.command_id)
            assert tuple(event for _, event in events) == answer.events, f"{command} was answered with {answer.events}"
            assert answer.offset == events[-1][0]
            if number == len(commands) // 2:
                await world.checkpoint()
            await world.settle()
        await world.take_over()
        await world.settle()
        await _every_send_is_carried_out_once(world)
    return world


async def _every_send_is_carried_out_once(world: ContractWorld) -> None:
    families, states = FamilySet(world.families), dict[str, Any]()
    accepted = [decoded for _, decoded in world.accepted()]
    for decoded in accepted:
        envelope = decoded.envelope
        assert envelope is not None
        family = families.of(envelope.aggregate)
        before = states.get(envelope.aggregate) or family.rules.initial(envelope.aggregate)
        after = states[envelope.aggregate] = family.rules.evolve(before, decoded.record, envelope.at_ms)
        sends = family.declaration.sends(after.state, decoded.record) if family.sends else ()
        for number, send in enumerate(sends):
            if send.to == "run" or not isinstance(send.command, Record):
                continue  # for a receiver in the owner's process: no event follows from it by itself
            name = f"{envelope.aggregate}:{after.seq}:{number}"
            carried_out = {
                (one.envelope.aggregate, one.envelope.seq)
                for one in accepted
                if one.envelope is not None and one.envelope.cause_id == name
            }
            seqs = sorted(seq for _, seq in carried_out)
            assert seqs, f"the delivery {name} was lost"
            assert len({aggregate for aggregate, _ in carried_out}) == 1
            assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), f"the delivery {name} was carried out twice"


async def any_fault_leaves_the_same(
    case: Case, *kinds: str, shared: bool = False, by_topic: bool = False, at: range | None = None
) -> None:
    """Each append meets each fault, one at a time; everything ends as if nothing had happened."""
    whole = Fault()
    expected = (await played(case, whole, shared=shared, by_topic=by_topic)).encoded()
    for number in at or range(1, whole.appends + 1):
        for kind in kinds:
            fault = Fault(at=number, kind=kind)
            world = await played(case, fault, shared=shared, by_topic=by_topic)
            assert fault.happened, f"append {number} was not reached"
            assert world.encoded() == expected, f"the sender of append {number} {kind}"


async def any_death_leaves_the_same(case: Case) -> None:
    """The owner dies before and after every append."""
    await any_fault_leaves_the_same(case, "dies before", "dies after")


async def lost_acknowledgements_change_nothing(case: Case) -> None:
    """Every batch, one at a time, lands without its sender hearing of it."""
    await any_fault_leaves_the_same(case, "unacknowledged")


async def content_is_never_in_clear(case: Case, *, by_topic: bool = False) -> None:
    """With encryption no declared content is in the log, by whichever way it came; erased, it reads `[erased]`."""
    world = world_of(case, by_topic=by_topic)
    keys = subject_keys(world)
    world.encrypt = encrypt_with(keys)
    with impatient():
        try:
            await world.open()
            subjects = set[str]()
            for number, command in enumerate(script(case, world)):
                if with_content(case.family, command, CANARY) != command:
                    subjects.add(str(case.family.content_subject(command)))
                await world.answer(with_content(case.family, command, f"{CANARY} {number}"))
                await world.settle()
            await world.checkpoint()
            await world.settle()
            assert CANARY.encode() not in world.all_bytes(), "content is in the log"
            if subjects:
                _content_is_readable(world, keys)
                for subject in sorted(subjects):
                    await keys.erase(TENANT, subject, erasure_id=f"e{subject}", reason="asked", by="op")
                texts = "".join(_kept_texts(world).values())
                assert CANARY not in keys.decrypt(texts, TENANT)
                assert ERASED in keys.decrypt(texts, TENANT)
        finally:
            await world.close()


def _content_is_readable(world: ContractWorld, keys: SubjectKeys) -> None:
    """What states and items hold is decrypted in one pass, for its tenant only, also where the outbox copied it."""
    kept = _kept_texts(world)
    for name, text in kept.items():
        assert not has_tokens(keys.decrypt(text, TENANT)), f"{name} has content that was encrypted twice"
        assert CANARY not in keys.decrypt(text, OTHER)
    assert any(CANARY in keys.decrypt(text, TENANT) for text in kept.values())


def _kept_texts(world: ContractWorld) -> dict[str, str]:
    states = {name: data.decode() for name, data in world.encoded().items()}
    items = {" ".join(map(str, key)): item.document for key, (item, *_) in world.folded_items().items()}
    return states | items


async def content_is_never_in_clear_in_the_commands_topic(case: Case) -> None:
    """As `content_is_never_in_clear`, for commands that are sent by the topic."""
    await content_is_never_in_clear(case, by_topic=True)


async def states_are_bounded(case: Case) -> None:
    """Commands with large texts, between take-overs, never lead to a state that does not fit a record."""
    async with opened(case) as world:
        examples = script(case, world)
        for number in range(LARGE_COMMANDS):
            command = examples[number % len(examples)]
            envelope = replace(command.envelope, command_id=f"large{number}")
            large = with_texts(case.family, replace(command, envelope=envelope), "x" * LARGE_CHARACTERS)
            try:
                assert (await world.answer(large)).events
            except CommandInvalid:
                continue
            if number % 4 == 3:
                await world.checkpoint()
            if number % 8 == 7:
                await world.take_over()
        largest = max(len(data) for data in world.encoded().values())
        assert largest <= STATE_BYTES_MAX, f"a state has {largest} bytes"


async def a_newer_fold_ignores_older_states(case: Case) -> None:
    """Snapshots and rows of another version of the fold are not used: everything is folded from the log again."""
    async with opened(case) as world:
        commands = script(case, world)
        for command in commands[:-1]:
            await world.answer(command)
        await world.settle()
        await world.checkpoint()
        rules = changed(case.family.rules, version=case.family.rules.version + 1)
        newer = changed(case.family, rules=rules)
        world.families = tuple(newer if one is case.family else one for one in world.families)
        rows, families = world.rows, FamilySet(world.families)
        rows._families = families  # the rows stay as the older version has made them
        await world.take_over()
        before = sum(process.entities.handlers.loaded for process in world.owners)
        expected = world.folded()
        last = await world.answer(commands[-1])
        await world.settle()
        name = world.full_id(commands[-1])
        assert last.events == _by_rules(world, expected.get(name), commands[-1])
        if name in expected and not families.of(name).is_replicated:
            assert sum(process.entities.handlers.loaded for process in world.owners) == before
            assert sum(process.entities.handlers.refolded for process in world.owners) >= 1


async def an_edited_row_is_not_used(case: Case) -> None:
    """A row that was changed by another writer than the projector is folded again from the log."""
    async with opened(case) as world:
        commands = script(case, world)
        for command in commands:
            await world.answer(command)
        await world.settle()
        await world.checkpoint()
        name = world.full_id(commands[-1])
        expected = world.folded()
        for other, row in list(world.rows.rows.items()):
            family = FamilySet(world.families).of(other)
            blank = replace(family.rules.initial(other), seq=row.seq)
            edited = family.states.encode(blank).decode()
            world.rows.rows[other] = row._replace(state=edited)
        again = replace(commands[-1], envelope=replace(commands[-1].envelope, command_id="again"))
        answer = await world.answer(again)
        assert answer.events == _by_rules(world, expected[name], again)


async def checkpoints_wait_for_the_projector(case: Case) -> None:
    """While the projector stands still, checkpoints do; nothing is lost, and they go on after it."""
    async with opened(case) as world:
        world.rows.behind = dict.fromkeys(range(world.partitions), 0)
        for command in script(case, world):
            await world.answer(command)
        await world.settle()
        made = world.log.records[TOPICS.snapshots, 0], world.log.records[TOPICS.snapshots, 1]
        await world.checkpoint()
        assert not any(made), "a checkpoint was made past the projector"
        expected = world.encoded()
        await world.take_over()
        await world.settle()
        assert world.encoded() == expected
        world.rows.behind = {}
        await world.checkpoint()
        assert any(made)


async def a_timer_fires_once_and_not_before_its_time(case: Case) -> None:
    """After the script, timers change nothing before their time; at it each fires once, whoever owns it."""
    async with opened(case) as world:
        for command in script(case, world):
            await world.answer(command)
        await world.settle()
        families = FamilySet(world.families)
        due = [at for name, state in world.folded().items() if (at := families.of(name).rules.next_timer_ms(state))]
        before = world.encoded()
        if due:
            world.now = min(due) - 1
        await world.fire_timers()
        await world.take_over()
        await world.fire_timers()
        assert world.encoded() == before, "a timer has fired before its time"
        if not due:
            return
        world.now = max(due)
        await world.fire_timers()
        once = world.encoded()
        assert once != before, "the timer did not fire"
        await world.fire_timers()
        await world.take_over()
        await world.fire_timers()
        assert world.encoded() == once, "a timer has fired twice"


def _by_rules(world: ContractWorld, state: Any, command: Any) -> tuple[Any, ...]:
    """What the rules alone decide."""
    family = EntityFamilies(FamilySet(world.families))
    envelope = command.envelope
    at = At(world.now, envelope.subject, envelope.command_id)
    return tuple(family.decide(state or family.absent(world.full_id(command)), EntityCommand(command, at)))
