"""A quarantined aggregate is shown as far as it is known, and stated anew by an event."""

from typing import Any

import pytest

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec, read_envelope
from loomlog.schemas.generated.budget_events import BudgetMonthBegan
from loomlog.schemas.records import replace
from loomlog.services.application.resources import TOPICS
from loomlog.services.core.families import aggregate_key
from loomlog.services.families.budget import INSTALLATION
from loomlog.services.families.ports.spending_limits import LimitRequest
from tests.services.application.owner import PARTITIONS
from tests.services.application.world import ADMIN_CALLER, World, declined, until, world

BUDGETS = partition_of(aggregate_key(INSTALLATION), PARTITIONS)


def forge(made: World) -> None:
    """An event that cannot follow, by somebody who may write the log."""
    records = made.log.records[TOPICS.entities.events, BUDGETS]
    envelope, _ = read_envelope(records[-1].value or b"")
    event = local_codec().encode_event(replace(envelope, seq=envelope.seq + 7), BudgetMonthBegan(month="2026-01"))
    made.log.put(TOPICS.entities.events, BUDGETS, [ProducerRecord(key=records[-1].key, value=event)])


async def limited(made: World, hard_tokens: int) -> None:
    limit = LimitRequest(scope="tenant", tenant="acme", hard_tokens=hard_tokens)
    await made.layer.limits.set(ADMIN_CALLER, limit)


def amounts(state: Any) -> list[Any]:
    return [limit[4] for limit in state["limits"].values()]


@pytest.mark.parametrize("has_other_state", [False, True])
async def test_budgets_that_were_damaged_are_stated_anew_as_they_were_or_otherwise(has_other_state: bool) -> None:
    async with world() as made:
        repairs = made.layer.repairs
        await limited(made, 10)
        forge(made)
        await until(lambda: made.layer.resources.entities.replicas.quarantined())
        shown = await repairs.show(INSTALLATION)
        assert ("offset 3" in shown.quarantine, amounts(shown.state)) == (True, [10])
        [account] = shown.state["limits"]
        other = {**shown.state, "limits": {account: [*shown.state["limits"][account][:4], 77]}}
        position = await repairs.repair(ADMIN_CALLER, INSTALLATION, state=other if has_other_state else None)
        await made.layer.barrier.wait_for([position])
        shown = await repairs.show(INSTALLATION)
        assert (shown.quarantine, amounts(shown.state)) == ("", [77 if has_other_state else 10])
        await limited(made, 20)
        assert [view.hard_tokens for view in await made.layer.limits.limits(ADMIN_CALLER)] == [20]


async def test_what_cannot_be_repaired_is_refused() -> None:
    async with world() as made:
        repairs = made.layer.repairs
        assert (await declined(repairs.show(INSTALLATION))).code == "not_found"
        await limited(made, 10)
        for name in ("budget", "planet:acme/x", ""):
            assert (await declined(repairs.show(name))).code == "bad_request"
            assert (await declined(repairs.repair(ADMIN_CALLER, name))).code == "bad_request"
        wrong = await declined(repairs.repair(ADMIN_CALLER, INSTALLATION, state={"limits": 7}))
        assert (wrong.code, "no state of the family budget" in wrong.message) == ("bad_request", True)


async def test_without_a_runtime_a_repair_is_pending() -> None:
    async with world(entity_owner=False, waits={"control_s": 0.05}) as made:
        assert (await declined(made.layer.repairs.repair(ADMIN_CALLER, INSTALLATION))).code == "repair_pending"
