"""The start of the consolidator over the real loop: a target's timer sends it, and its run has the target's memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loomlog.schemas.generated.consolidation_commands import BankPending
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.families.consolidation import FAMILY, limits
from loomlog.services.families.memory.author import AGENT, Author, Grants, Scope, resolve_scope
from tests.services.stream.entities.world import CODEC, RUNS, EntityWorld, Process

CONSOLIDATES = Grants(memory_scopes=("agent", "user"), memory_consolidation=True)


@pytest.fixture
async def world() -> AsyncIterator[EntityWorld]:
    made = EntityWorld(families=(FAMILY,))
    yield made
    await made.close()


async def bank(world: EntityWorld, process: Process, scope: str, scope_id: str) -> None:
    envelope = CommandEnvelope(command_id=f"{scope}-{scope_id}", tenant="acme", subject="op", issued_at_ms=world.now)
    command = BankPending(
        envelope=envelope, scope=scope, scope_id=scope_id, payload="{}", payload_bytes=2, origin="operator"
    )
    await process.entities.parts.client.ask(command, wait_s=30)


def starts(world: EntityWorld) -> list[StartRun]:
    records = [record for number in range(world.partitions) for record in world.log.records[RUNS.commands, number]]
    commands: list[Any] = [CODEC.decode(record.value or b"").record for record in records]
    return commands


async def test_a_target_starts_the_consolidator_for_itself(world: EntityWorld) -> None:
    process = await world.process()
    await bank(world, process, "agent", "team/helper")
    world.now += limits.START_DELAY_MS
    process.host.fire_due_timers()
    await world.until(lambda: starts(world))
    (start,) = starts(world)
    assert (start.agent, start.envelope.tenant, start.user_id) == ("memory/consolidator", "acme", "")
    author = Author(
        tenant="acme",
        subject=start.envelope.subject,
        command_id="c",
        issued_at_ms=world.now,
        agent=start.agent,
        run_id=start.run_id,
        grants=CONSOLIDATES,
    )
    assert resolve_scope(author, "agent") == Scope("acme", AGENT, "team/helper")


async def test_a_start_of_a_user_is_a_run_of_the_user_and_every_start_is_another_run(world: EntityWorld) -> None:
    process = await world.process()
    await bank(world, process, "user", "ada:1")
    for number in (1, 2):
        world.now += limits.START_DELAY_MS << number
        process.host.fire_due_timers()
        await world.until(lambda count=number: len(starts(world)) == count)
    first, second = starts(world)
    assert first.user_id == second.user_id == "ada:1"
    assert first.envelope.subject == second.envelope.subject == "consolidation:acme/user/ada:1"
    assert first.run_id != second.run_id


@pytest.mark.parametrize(
    ("subject", "grants"),
    [
        ("consolidation:acme/agent/other", Grants(memory_scopes=("agent",))),
        ("consolidation:umbrella/agent/other", CONSOLIDATES),
        ("consolidation:acme/user/other", CONSOLIDATES),
        ("ada", CONSOLIDATES),
    ],
)
def test_no_other_run_has_the_memory_of_another_agent(subject: str, grants: Grants) -> None:
    author = Author(
        tenant="acme", subject=subject, command_id="c", issued_at_ms=0, agent="helper", run_id="r_1", grants=grants
    )
    assert resolve_scope(author, "agent") == Scope("acme", AGENT, "helper")
