"""Hosts in memory, without their pauses: what takes half a second for a broker's sake takes no time here."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors import retries
from loomlog.services.stream.ownership import assignment, leadership, standby
from loomlog.services.stream.partition import lookups
from tests.services.stream.world import World


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "RECLAIM_BACKOFF_S", (0.0,))
    monkeypatch.setattr(lookups, "LOOKUP_RETRY_S", 0.0)
    monkeypatch.setattr(leadership, "HANDOVER_GRACE_S", 0.0)
    monkeypatch.setattr(retries, "RETRY_S", 0.0)
    monkeypatch.setattr(standby, "IDLE_WAIT_S", 0.0)
    monkeypatch.setattr(standby, "POLL_S", 0.001)


@pytest_asyncio.fixture(loop_scope="session")
async def world_of() -> AsyncIterator[Callable[..., World]]:
    """Makes worlds and kills what is left of their hosts."""
    made: list[World] = []

    def make(**fields: Any) -> World:
        made.append(World(**fields))
        return made[-1]

    yield make
    for world in made:
        await world.close()
