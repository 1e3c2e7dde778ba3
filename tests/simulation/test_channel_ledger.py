"""What the ledger of channels sees: a log as it should be, and every way to spoil it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.chaos.history import Event
from tests.simulation.channel_ledger import ChannelLedger, ChannelRun
from tests.simulation.entity_ledger import EntityEvent

RUN, QUEUE = "r_channel0", "channel:t/jobs/tenant/"
PUBLISH, READ, MORE = range(3)
LEASE = f"{RUN}:1.{READ}"
AT_MS = 1_000


class Story:
    """Events of a run with three calls in its only turn, and of the queue that it uses."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.offset = 0
        calls = [
            {"op": "publish", "channel": "jobs", "value": "one"},
            {"op": "subscribe", "channel": "jobs"},
            {"op": "subscribe", "channel": "jobs"},
        ]
        run = ChannelRun(name=RUN, id=RUN, at_s=0.0, by_topic=True, turns=[calls])
        self.ledger = ChannelLedger([], [run], lambda kind, text: self.kinds.append(kind))
        for index in range(len(calls)):
            self.of_run("ToolCallRequested", index)

    def of_run(self, name: str, index: int, **values: Any) -> None:
        self.ledger.of_run(
            Event(
                partition=0,
                offset=0,
                name=name,
                term=0,
                seq=1,
                run_id=RUN,
                key=None,
                cause_offset=-1,
                prev=b"",
                digest=b"",
                values={"turn": 1, "index": index, "attempt": 1, **values},
            )
        )

    def returned(self, index: int, ids: Sequence[str] = (), *, lease: str = "", outcome: str = "ok") -> None:
        text = json.dumps({"messages": [{"id": one} for one in ids]})
        leases = [{"queue": {}, "lease_id": lease, "taken": len(ids)}] if lease else []
        self.of_run("ToolReturned", index, outcome=outcome, text=text, details={"leases": leases})

    def decided(self, name: str, cause: str = "", **values: Any) -> None:
        self.offset += 1
        event = EntityEvent(
            partition=0,
            offset=self.offset,
            aggregate=QUEUE,
            seq=self.offset,
            cause=cause,
            at_ms=AT_MS,
            name=name,
            values=values,
        )
        self.ledger.follow(event)

    def published(
        self, number: int = 1, *, position: int | None = None, visible_ms: int = AT_MS, **values: Any
    ) -> None:
        fields = {
            "message_id": f"msg_{number}",
            "number": number,
            "position": number if position is None else position,
            "visible_ns": visible_ms * 1_000_000,
            "value": '"one"',
        }
        self.decided("MessagePublished", f"{RUN}:1.{PUBLISH}", **(fields | values))

    def leased(self, *positions: int, index: int = READ, is_wait_over: bool = False) -> None:
        call = {"run_id": RUN, "turn": 1, "index": index}
        fields = {"reader": "", "positions": list(positions), "call": call, "is_wait_over": is_wait_over}
        self.decided("MessagesLeased", f"{RUN}:1.{index}", lease_id=f"{RUN}:1.{index}", **fields)

    def settled(self, taken: int, *returned: int, lease: str = LEASE) -> None:
        self.decided("LeaseSettled", f"{lease}.settle", lease_id=lease, taken=taken, returned=list(returned))

    def delivered(self) -> None:
        """A message from its publisher to the call that reads it."""
        self.published()
        self.returned(PUBLISH)
        self.leased(1)
        self.returned(READ, ["msg_1"], lease=LEASE)
        self.settled(1)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_log_as_it_should_be(story: Story) -> None:
    story.delivered()
    story.ledger.finish()
    assert (story.kinds, story.ledger.open_ends(), story.ledger.accepted) == ([], "", 1)


def test_what_was_not_taken_may_be_delivered_again(story: Story) -> None:
    story.published()
    story.leased(1)
    story.returned(READ, outcome="outcome_unknown")
    assert "is not settled" in story.ledger.open_ends()
    story.settled(0, 1)
    story.leased(1, index=MORE)
    assert (story.kinds, story.ledger.returned) == ([], 1)


def test_what_is_delayed_has_to_become_visible(story: Story) -> None:
    story.published(position=0, visible_ms=AT_MS + 1)
    assert "is not visible" in story.ledger.open_ends()
    story.decided("MessagesSurfaced", messages=[{"number": 1, "position": 1, "visible_ns": 0}])
    assert story.kinds == ["order"]


def wait(story: Story) -> None:
    call = {"run_id": RUN, "turn": 1, "index": MORE}
    story.decided("ReaderWaiting", LEASE, wait_id=f"{RUN}:1.{MORE}", reader="", until_ms=AT_MS + 1, call=call)


def end_a_wait_too_early(story: Story) -> None:
    wait(story)
    story.decided("WaitExpired", wait_id=f"{RUN}:1.{MORE}")


SPOILED: dict[str, tuple[Callable[[Story], None], str]] = {
    "a message again": (lambda story: story.published(2), "doubled"),
    "a number that is left out": (lambda story: story.published(3), "doubled"),
    "a message that no call has asked for": (
        lambda story: story.decided("MessagePublished", "r_other:1.0"),
        "invented",
    ),
    "what was taken": (lambda story: story.leased(1, index=MORE), "delivered"),
    "what is not there": (lambda story: story.leased(2, index=MORE), "delivered"),
    "a result without a lease": (lambda story: story.returned(MORE, ["msg_1"]), "invented"),
    "a result with the lease of another call": (
        lambda story: story.returned(MORE, ["msg_1"], lease=LEASE),
        "invented",
    ),
    "a settlement of nothing": (lambda story: story.settled(1, lease="other"), "invented"),
    "a wait that ends too early": (end_a_wait_too_early, "wait"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_found(story: Story, name: str) -> None:
    spoil, kind = SPOILED[name]
    story.delivered()
    spoil(story)
    assert story.kinds[:1] == [kind]


def test_a_wait_beside_a_message_is_found(story: Story) -> None:
    wait(story)
    story.published()
    assert story.kinds == []
    story.settled(0, lease="other")
    assert story.kinds == ["asleep"]


@pytest.mark.parametrize(("taken", "returned"), [(1, ()), (0, (1,))])
def test_a_settlement_that_is_not_what_the_run_has_recorded_is_found(
    story: Story, taken: int, returned: tuple[int, ...]
) -> None:
    story.published()
    story.leased(1)
    if taken == 0:
        story.returned(READ, ["msg_1"], lease=LEASE)
    story.settled(taken, *returned)
    assert story.kinds == ["lost" if taken else "doubled"]


def test_a_result_of_what_went_back_is_found(story: Story) -> None:
    story.published()
    story.leased(1)
    story.settled(0, 1)
    story.returned(READ, ["msg_1"], lease=LEASE)
    assert story.kinds == ["doubled"]


def test_messages_that_neither_return_nor_are_taken_are_found(story: Story) -> None:
    story.published()
    story.leased(1)
    story.settled(0)
    assert story.kinds == ["lost"]
