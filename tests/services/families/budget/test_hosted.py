"""Budgets on the host of entities: their bound, which is measured seldom and frees itself."""

from typing import Any

import pytest

from loomlog.schemas.records import replace
from loomlog.services.core.canonical import StateCodec
from loomlog.services.families.budget import FAMILY, INSTALLATION
from loomlog.services.families.budget.accounts import BudgetAccounts
from loomlog.services.stream.entities import handler as handler_module
from tests.services.families.budget.given import release, reserve, tenant_limit
from tests.services.stream.entities.world import PATIENCE_S, EntityWorld

BOUND = 60_000


async def test_a_state_is_measured_seldom_and_at_its_bound_a_call_waits_until_another_one_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler_module, "STATE_BYTES_MAX", BOUND)
    world = EntityWorld(families=(FAMILY,))
    measured: list[int] = []
    encode = StateCodec.encode

    def counted(codec: StateCodec, state: Any) -> bytes:
        data = encode(codec, state)
        measured.append(len(data))
        return data

    try:
        process = await world.process()
        parts = process.entities.parts
        numbers = iter(range(10_000))
        accounts = BudgetAccounts(parts, clock_ms=world.clock, fresh_token=lambda: str(next(numbers)), name="runtime")
        await accounts.request(addressed(accounts, tenant_limit(soft_tokens=1)), wait_s=PATIENCE_S)
        monkeypatch.setattr(StateCodec, "encode", counted)
        refused, calls = None, 0
        while refused is None:
            calls += 1
            refused = await accounts.reserve(addressed(accounts, reserve(f"r{calls}:1.1", 5)), wait_s=PATIENCE_S)
        assert (refused.code, refused.may_fit) == ("state_too_large", True)
        assert calls > 300
        assert len(measured) < calls / 5
        for number in (1, 2):  # their ids are remembered, so that one alone may not make room for another call
            await accounts.request(addressed(accounts, release(f"r{number}:1.1")), wait_s=PATIENCE_S)
        again = addressed(accounts, reserve("r0:1.1", 5))
        assert await accounts.reserve(again, wait_s=PATIENCE_S) is None
        entity = parts.replicas.entity(INSTALLATION)
        assert entity is not None
        assert len(encode(StateCodec(FAMILY.rules.state), entity.state)) <= BOUND
    finally:
        await world.close()


def addressed(accounts: BudgetAccounts, command: Any) -> Any:
    return replace(command, envelope=accounts.envelope())
