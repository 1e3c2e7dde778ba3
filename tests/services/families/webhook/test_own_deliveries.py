"""What this process has taken or refused, until its webhooks have decided it."""

import asyncio
from typing import Any, cast

import pytest

from loomlog.services.families.webhook import own_deliveries
from loomlog.services.families.webhook.own_deliveries import OwnDeliveries
from loomlog.services.families.webhook.waiting import AwaitedAnswers

FEED, OTHER = "webhook:acme/feed", "webhook:acme/other"


class Answers:
    """A delivery whose decision comes when it is told."""

    def __init__(self, position: str = "") -> None:
        self.position = position
        self.is_closed = False
        self.told = asyncio.Event()

    async def decision(self, deadline: float) -> None:
        await self.told.wait()
        self.position = "loom.entity.events/0:7"

    def close(self) -> None:
        self.is_closed = True


def leave(own: OwnDeliveries, aggregate: str, answers: Answers) -> None:
    own.leave(aggregate, cast(AwaitedAnswers, cast(Any, answers)))


async def test_a_list_waits_for_the_decisions_of_its_webhook_alone() -> None:
    own, late, decided = OwnDeliveries(), Answers(), Answers("loom.entity.events/0:3")
    leave(own, FEED, late)
    leave(own, OTHER, decided)
    assert await own.settle(OTHER) == ("loom.entity.events/0:3",)
    settling = asyncio.create_task(own.settle(FEED))
    await asyncio.sleep(0)
    assert not late.is_closed
    late.told.set()
    assert await settling == ("loom.entity.events/0:7",)
    assert late.is_closed


async def test_there_is_room_for_refusals_when_many_decisions_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_deliveries, "LATE_MAX", 1)
    monkeypatch.setattr(own_deliveries, "UNDER_WAY_MAX", 2)
    own, first, second = OwnDeliveries(), Answers(), Answers()
    leave(own, FEED, first)
    leave(own, FEED, second)
    assert (first.is_closed, second.is_closed) == (False, True), "the second one is not waited for"
    assert own.start(FEED, cast(Any, first.told.wait()))
    assert not own.start(FEED, cast(Any, first.told.wait()))
    first.told.set()
    assert await own.settle(FEED) == ("loom.entity.events/0:7",)


async def test_the_webhooks_that_had_deliveries_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_deliveries, "WEBHOOKS_MAX", 1)
    own = OwnDeliveries()
    leave(own, FEED, Answers("loom.entity.events/0:1"))
    leave(own, OTHER, Answers("loom.entity.events/0:2"))
    assert (await own.settle(FEED), await own.settle(OTHER)) == ((), ("loom.entity.events/0:2",))
