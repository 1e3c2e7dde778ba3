"""What the ledger of schedules and webhooks sees: a log as it should be, and every way to spoil it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.history import Event
from tests.simulation.entity_ledger import EntityEvent
from tests.simulation.trigger_ledger import Delivery, TriggerLedger

SCHEDULE, WEBHOOK = "schedule:t/nightly", "webhook:t/issues"


class Story:
    """Events of a schedule that fires every second, of a webhook, and of the runs that they start."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.number = 0
        delivery = Delivery(name="d", webhook="issues", id="d1", at_s=0.0, commands=("api0.d1", "api1.d1"))
        self.ledger = TriggerLedger([], [delivery], lambda kind, text: self.kinds.append(kind))
        self.ledger.unsent = 0

    def decided(self, aggregate: str, name: str, at_ms: int, cause: str = "", /, **values: Any) -> None:
        event = EntityEvent(
            partition=0,
            offset=0,
            aggregate=aggregate,
            seq=1,
            cause=cause,
            at_ms=at_ms,
            name=name,
            values=values,
        )
        self.ledger.follow(event)

    def armed(self, at_ms: int = 1_000, next_ms: int = 2_000, overlap: str = "skip") -> None:
        spec = {"times": "@every 1s", "overlap": overlap}
        self.decided(SCHEDULE, "ScheduleArmed", at_ms, armed_ms=at_ms, next_ms=next_ms, spec=spec)

    def fired(self, instant_ms: int, *, at_ms: int = 0, run_id: str = "", **values: Any) -> str:
        self.number += 1
        fields = {"number": self.number, "run_id": run_id or f"r_{self.number}", "is_manual": False}
        fields |= {"instant_ms": instant_ms, "cancels": [], "queued": [], **values}
        self.decided(SCHEDULE, "ScheduleFired", at_ms or instant_ms, **fields)
        return str(fields["run_id"])

    def skipped(self, first_ms: int, last_ms: int, count: int, *queued: int) -> None:
        fields = {"first_ms": first_ms, "last_ms": last_ms, "count": count, "is_at_least": False}
        self.decided(SCHEDULE, "InstantsSkipped", last_ms, queued=list(queued), **fields)

    def ended(self, run_id: str, name: str = "RunCompleted") -> None:
        event = Event(
            partition=0,
            offset=0,
            name=name,
            term=0,
            seq=1,
            run_id=run_id,
            key=None,
            cause_offset=-1,
            prev=b"",
            digest=b"",
            values={},
        )
        self.ledger.of_run(event)

    def settled(self, run_id: str, status: str = "completed", number: int = 0) -> None:
        fields = {"run_id": run_id, "status": status, "number": number or self.number, "queued": []}
        self.decided(SCHEDULE, "FireSettled", 9_000, **fields)

    def published(self, cause: str) -> None:
        self.decided("channel:t/done/tenant/", "MessagePublished", 9_000, cause)

    def taken(self, delivery: str = "d1", cause: str = "api0.d1", run_id: str = "r_hook") -> None:
        self.decided(WEBHOOK, "EventReceived", 9_000, cause, delivery_id=delivery, name="issues", run_id=run_id)

    def told(self, status: str = "completed") -> None:
        self.decided(WEBHOOK, "HookDispatched", 9_000, run_id="r_hook", status=status)

    def whole(self) -> None:
        """A fire and a delivery from the beginning to the end."""
        self.armed()
        run_id = self.fired(2_000)
        self.ended(run_id)
        self.published(f"{run_id}:end:0")
        self.settled(run_id)
        self.taken()
        self.decided(WEBHOOK, "DeliveryRepeated", 9_000, "api1.d1", delivery_id="d1", run_id="r_hook")
        self.ended("r_hook")
        self.told()


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_log_as_it_should_be(story: Story) -> None:
    story.whole()
    story.skipped(3_000, 5_000, 2)
    story.fired(5_000)
    story.ended("r_2")
    story.published("r_2:end:0")
    story.settled("r_2")
    story.decided(SCHEDULE, "ScheduleDisarmed", 6_500)
    story.ledger.finish()
    assert (story.kinds, story.ledger.open_ends()) == ([], "")


def skip_and_leave_out(story: Story) -> None:
    story.skipped(3_000, 5_000, 2)
    story.skipped(6_000, 7_000, 2)


def settle_what_works(story: Story) -> None:
    story.settled(story.fired(3_000))


SPOILED: dict[str, tuple[Callable[[Story], Any], str]] = {
    "an instant again": (lambda story: story.fired(2_000), "doubled"),
    "an instant that is left out": (lambda story: story.fired(4_000), "instant"),
    "an instant before its time": (lambda story: story.fired(3_000, at_ms=2_999), "instant"),
    "a run again": (lambda story: story.fired(3_000, run_id="r_1"), "doubled"),
    "a fire beside another": (lambda story: [story.fired(instant) for instant in (3_000, 4_000)], "overlap"),
    "instants that were skipped are skipped again": (lambda story: story.skipped(2_000, 3_000, 2), "instant"),
    "an instant that is neither skipped nor fired": (skip_and_leave_out, "lost"),
    "an end that is not there": (settle_what_works, "invented"),
    "an end again": (lambda story: story.settled("r_1", number=1), "doubled"),
    "a schedule that is armed in the past": (lambda story: story.armed(500, 1_500), "instant"),
    "a schedule that sleeps": (lambda story: story.decided(SCHEDULE, "ScheduleDisarmed", 8_000), "late"),
    "a delivery again": (lambda story: story.taken(cause="api1.d1"), "doubled"),
    "a delivery that was never sent": (lambda story: story.taken("d2"), "invented"),
    "a repetition that names another run": (
        lambda story: story.decided(WEBHOOK, "DeliveryRepeated", 9_000, delivery_id="d1", run_id="r_1"),
        "invented",
    ),
    "an end that is told again": (lambda story: story.told(), "invented"),
    "a message again": (lambda story: story.published("r_1:end:0"), "doubled"),
    "a message of nothing": (lambda story: story.published("r_9:end:0"), "invented"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(story: Story, name: str) -> None:
    spoil, kind = SPOILED[name]
    story.whole()
    spoil(story)
    assert story.kinds[:1] == [kind]


def test_what_is_missing_is_an_open_end(story: Story) -> None:
    assert "is not taken" in story.ledger.open_ends()
    story.taken()
    assert "has not begun" in story.ledger.open_ends()
    story.ended("r_hook")
    assert "is not told" in story.ledger.open_ends()
    story.told()
    assert story.ledger.open_ends() == ""
    story.armed()
    run_id = story.fired(2_000)
    story.ended(run_id)
    assert "is not published" in story.ledger.open_ends()
    story.published(f"{run_id}:end:0")
    assert "are not told" in story.ledger.open_ends()
    story.settled(run_id)
    assert (story.ledger.open_ends(), story.kinds) == ("", [])
