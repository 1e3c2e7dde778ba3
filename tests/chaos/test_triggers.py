"""The part of the checker that judges channels, schedules and webhooks: a log as it should be, and ways to spoil it."""

import json
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest

from loomlog.schemas.generated.channel_events import LeaseSettled, MessagePublished, MessagesLeased
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.schedule_events import FireSettled, ScheduleFired
from loomlog.schemas.generated.values import LeaseRef, QueueRef, ResultDetails, ScheduledRun
from loomlog.schemas.generated.webhook_events import EventReceived
from tests.chaos.evidence import Evidence, Handoff
from tests.chaos.history import accepted
from tests.chaos.story_book import RUN, Log, begin, completed
from tests.chaos.trigger_blocks import FIRST
from tests.chaos.triggers import TriggerFigures, triggered_once

CHANNEL, SCHEDULE, WEBHOOK = f"{FIRST}/c0", "schedule:default/ticker", "webhook:default/knocks"
QUEUE = QueueRef(tenant="default", channel=CHANNEL, scope="tenant", scope_id="")
PLACE: dict[str, Any] = {"channel": CHANNEL, "scope": "tenant", "scope_id": ""}


class Book:
    """A run that reads the message of a channel, and was started by a schedule and a webhook too."""

    def __init__(self) -> None:
        self.runs, self.entities, self.channels = Log(), Log(), Log()
        for log in (self.runs, self.entities, self.channels):
            log.claim()
        begin(self.runs)
        self.handoffs = [Handoff(channel=CHANNEL, publisher="r_other", reader=RUN)]
        self.delivered: list[str] = []

    def publish(self, message: str = "msg_1", number: int = 1) -> None:
        event = MessagePublished(
            **PLACE, message_id=message, number=number, position=number, visible_ns=1, published_ns=1, value="1"
        )
        self.channels.event(event, run_id="channel:default/q")

    def lease(self, lease_id: str = "l1") -> None:
        event = MessagesLeased(**PLACE, lease_id=lease_id, positions=(1,), until_ms=0)
        self.channels.event(event, run_id="channel:default/q")

    def settle(self, taken: int, lease_id: str = "l1") -> None:
        self.channels.event(LeaseSettled(**PLACE, lease_id=lease_id, taken=taken), run_id="channel:default/q")

    def receive(self, message: str = "msg_1", index: int = 0) -> None:
        details = ResultDetails(leases=(LeaseRef(queue=QUEUE, lease_id="l1", taken=1),))
        text = json.dumps({"messages": [{"id": message}]})
        self.runs.event(ToolReturned(turn=1, index=index, call_id="c", attempt=1, text=text, details=details))

    def fire(self, instant_ms: int = 1_000, run_id: str = RUN) -> None:
        run = ScheduledRun(agent="a")
        event = ScheduleFired(def_id="d", number=1, instant_ms=instant_ms, run_id=run_id, run=run)
        self.entities.event(event, run_id=SCHEDULE)

    def told(self) -> None:
        event = FireSettled(number=1, instant_ms=1_000, fired_ms=1_000, status="completed", run_id=RUN)
        self.entities.event(event, run_id=SCHEDULE)

    def deliver(self, delivery: str = "d1", run_id: str = RUN) -> None:
        event = EventReceived(name="knocks", delivery_id=delivery, number=1, level=0, run_id=run_id)
        self.entities.event(event, run_id=WEBHOOK)

    def hand_on(self) -> None:
        self.publish()
        self.lease()
        self.receive()
        self.settle(1)
        self.runs.event(completed())

    def verdict(self) -> tuple[TriggerFigures, list[str]]:
        evidence = changed(
            self.runs.evidence(),
            entity_events={0: self.entities.events},
            channel_events={0: self.channels.events},
            handoffs=self.handoffs,
            delivered=self.delivered,
        )
        assert isinstance(evidence, Evidence)
        figures, violations = triggered_once(evidence, {0: accepted(0, self.runs.events)})
        return figures, [violation.kind for violation in violations]


@pytest.fixture
def book() -> Book:
    made = Book()
    made.hand_on()
    return made


def test_a_message_that_was_handed_on(book: Book) -> None:
    assert book.verdict() == (TriggerFigures(messages=1, delivered=1), [])


def test_a_fire_with_its_run(book: Book) -> None:
    book.fire()
    book.told()
    assert book.verdict() == (TriggerFigures(messages=1, delivered=1, fires=1), [])


def test_a_delivery_with_its_run(book: Book) -> None:
    book.deliver()
    book.delivered.append("d1")
    assert book.verdict() == (TriggerFigures(messages=1, delivered=1, deliveries=1), [])


def fire_twice(book: Book) -> None:
    book.fire()
    book.fire(run_id="r_two")


def deliver_twice(book: Book) -> None:
    book.delivered.append("d1")
    book.deliver()
    book.deliver(run_id="r_two")


SPOILED: dict[str, tuple[Callable[[Book], None], str]] = {
    "a message of the channel again": (lambda book: book.publish("msg_2", 2), "doubled"),
    "a message in two results": (lambda book: book.receive(index=1), "doubled"),
    "a lease that is open": (lambda book: book.lease("l2"), "stuck"),
    "a message that is taken and in no result": (lambda book: book.settle(1, "l2"), "lost"),
    "an instant again": (fire_twice, "doubled"),
    "a fire without a run": (lambda book: book.fire(run_id="r_two"), "lost"),
    "a fire whose end is not told": (lambda book: book.fire(), "stuck"),
    "a delivery again": (deliver_twice, "doubled"),
    "a delivery that was answered and is not there": (lambda book: book.delivered.append("d9"), "lost"),
    "a pair without an end": (lambda book: book.handoffs.append(Handoff(channel="research-done/c1")), "stuck"),
    "a pair without a message": (
        lambda book: book.handoffs.append(Handoff(channel="research-done/c1", publisher="a", reader="b")),
        "lost",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(book: Book, name: str) -> None:
    spoil, kind = SPOILED[name]
    spoil(book)
    assert kind in book.verdict()[1]
