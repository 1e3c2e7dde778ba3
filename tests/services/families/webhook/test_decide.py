from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.generated.webhook_commands import NoteRunEnded, ReceiveDelivery, RejectDelivery
from loomlog.schemas.generated.webhook_events import DeliveryRejected, DeliveryRepeated, EventReceived, HookDispatched
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import STATE_BYTES_MAX, At
from loomlog.services.families.webhook.decide import decide, sends
from loomlog.services.families.webhook.limits import REMEMBERED
from loomlog.services.families.webhook.state import Webhook, delivery_key, evolve, initial, run_id_of

ID = "webhook:acme/issues"
NOW = 1_700_000_000_000


class Given:
    """A webhook, and what it decides."""

    def __init__(self) -> None:
        self.state: Webhook = initial(ID)
        self.number = 0

    def when(self, record: type[Any], *, at_ms: int = NOW, **fields: Any) -> Any:
        self.number += 1
        command_id = f"c{self.number}"
        command = record(envelope=CommandEnvelope(command_id=command_id, tenant="acme"), name="issues", **fields)
        (event,) = decide(self.state, command, At(at_ms, command_id=command_id))
        if not isinstance(event, CommandRefused):
            self.state = evolve(self.state, event, at_ms)
        return event

    def receive(self, delivery_id: str = "d1", **fields: Any) -> Any:
        if fields.get("delivery") != "channel":
            fields.setdefault("agent", "helper")
        return self.when(ReceiveDelivery, delivery_id=delivery_id, **fields)


def test_a_delivery_is_taken_once_and_names_its_run() -> None:
    webhook = Given()
    first = webhook.receive(goal="x")
    assert isinstance(first, EventReceived)
    assert first.run_id == run_id_of(ID, "c1")
    second = webhook.receive(goal="y")
    assert isinstance(second, DeliveryRepeated)
    assert second.run_id == first.run_id
    assert isinstance(webhook.receive("d2"), EventReceived)


def test_a_repeated_message_names_its_channel() -> None:
    webhook = Given()
    assert webhook.receive(delivery="channel", channel="feed").run_id == ""
    repeated = webhook.receive(delivery="channel", channel="feed")
    assert isinstance(repeated, DeliveryRepeated)
    assert (repeated.run_id, repeated.channel) == ("", "feed")


def test_an_id_that_only_the_rows_know_is_repeated() -> None:
    repeated = Given().receive(is_known=True, earlier_run_id="r_old")
    assert isinstance(repeated, DeliveryRepeated)
    assert repeated.run_id == "r_old"


def test_the_run_gets_what_the_delivery_says_as_untrusted_text() -> None:
    webhook = Given()
    event = webhook.receive(
        goal="do it", user_id="ada", user_tier="pro", run_metadata={"a": '"1"'}, metadata={"b": '"2"'},
        credentials=("token",), on_complete=("{}",), operator_key_restricted=True,
    )  # fmt: skip
    (send,) = sends(webhook.state, event)
    start = send.command
    (block,) = start.segments[0].content
    assert (send.to, start.agent, start.user_id, start.run_id) == ("run", "helper", "ada", event.run_id)
    assert (block.type, block.kind, block.text) == ("untrusted-block", "webhook_payload", "do it")
    options = start.options
    assert (options.payload_metadata, options.metadata) == ({"a": '"1"'}, {"b": '"2"'})
    assert (options.user_tier, options.credentials, options.on_complete) == ("pro", ("token",), ("{}",))
    assert options.operator_key_restricted
    assert options.trigger == ID
    assert sends(webhook.state, webhook.receive("c", delivery="channel", channel="feed")) == ()


def test_so_many_are_taken_at_once_and_so_many_a_minute() -> None:
    webhook, limit = Given(), {"requests_per_minute": 60, "burst": 2}
    kinds = [type(webhook.receive(str(n), **limit)) for n in range(3)]
    assert kinds == [EventReceived, EventReceived, DeliveryRejected]
    refused = webhook.receive("x", **limit, at_ms=NOW + 400)
    assert (refused.verdict, refused.retry_after_s) == ("rejected_rate", 1)
    assert isinstance(webhook.receive("x", **limit, at_ms=NOW + 1_000), EventReceived)
    assert isinstance(webhook.receive("y", **limit, at_ms=NOW), DeliveryRejected), "a clock that went back adds nothing"


def test_the_default_is_ten_at_once() -> None:
    webhook = Given()
    kinds = [type(webhook.receive(str(n))) for n in range(11)]
    assert kinds == [EventReceived] * 10 + [DeliveryRejected]


def test_a_changed_limit_applies_at_once() -> None:
    webhook = Given()
    for n in range(5):
        webhook.receive(str(n), requests_per_minute=60, burst=10)
    assert isinstance(webhook.receive("a", requests_per_minute=60, burst=1), EventReceived)
    assert isinstance(webhook.receive("b", requests_per_minute=60, burst=1), DeliveryRejected)
    assert isinstance(webhook.receive("b", requests_per_minute=60_000, burst=9, at_ms=NOW + 1), EventReceived)


def test_a_replay_is_a_delivery_of_its_own_and_free() -> None:
    webhook = Given()
    webhook.receive(requests_per_minute=1, burst=1)
    replays = [webhook.receive(replay_of="d1", requests_per_minute=1, burst=1) for _ in range(2)]
    assert [one.delivery_id for one in replays] == ["replay:d1:2", "replay:d1:3"]
    assert len({one.run_id for one in replays}) == 2


def test_a_delivery_whose_run_was_refused_counts_as_new_again() -> None:
    webhook = Given()
    run_id = webhook.receive().run_id
    noted = webhook.when(NoteRunEnded, run_id=run_id, status="refused", code="unknown_agent")
    assert isinstance(noted, HookDispatched)
    assert noted.delivery_key == delivery_key("d1")
    assert isinstance(webhook.receive(), EventReceived)


def test_a_delivery_whose_run_failed_does_not() -> None:
    webhook = Given()
    webhook.when(NoteRunEnded, run_id=webhook.receive().run_id, status="failed")
    assert isinstance(webhook.receive(), DeliveryRepeated)


def test_refused_requests_are_counted_and_change_nothing() -> None:
    webhook = Given()
    before = webhook.state
    rejected = webhook.when(RejectDelivery, verdict="rejected_sig", count=990, detail="a\0b")
    assert isinstance(rejected, DeliveryRejected)
    assert rejected.count == 990
    assert "\0" not in rejected.detail
    assert webhook.state == before


def test_a_delivery_that_says_nothing_useful_is_refused() -> None:
    for fields in (
        {"delivery_id": ""},
        {"delivery_id": "a\nb"},
        {"agent": ""},
        {"delivery": "pigeon"},
        {"user_id": "a\nb"},
    ):
        assert Given().receive(**fields).code == "bad_delivery"
    assert Given().receive(goal="x" * 500_000).code == "payload_too_large"
    assert Given().when(NoteRunEnded, run_id="../x", status="refused").code == "invalid_run"


def test_the_last_two_thousand_ids_are_known_and_older_ones_are_forgotten() -> None:
    webhook = Given()
    for n in range(REMEMBERED * 2):
        webhook.receive(f"d{n}", requests_per_minute=10**7, burst=10**7)
    known = [webhook.state.find(delivery_key(f"d{n}")) is not None for n in range(REMEMBERED * 2)]
    assert all(known[-REMEMBERED:])
    assert not any(known[: REMEMBERED // 2])
    assert webhook.state.has_forgotten
    codec = StateCodec(Webhook)
    encoded = codec.encode(webhook.state)
    assert len(encoded) < STATE_BYTES_MAX / 4
    again = codec.decode(encoded)
    assert [again.find(delivery_key(f"d{n}")) is not None for n in range(REMEMBERED * 2)] == known


@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(1, 120), st.integers(1, 5))
def test_exactly_as_many_are_taken_as_a_bucket_of_fractions_holds(
    waits_ms: Sequence[int], per_minute: int, burst: int
) -> None:
    webhook, at_ms, level = Given(), NOW, Fraction(burst)
    for number, wait_ms in enumerate(waits_ms):
        at_ms += wait_ms
        level = min(Fraction(burst), level + Fraction(wait_ms * per_minute, 60_000))
        event = webhook.receive(str(number), requests_per_minute=per_minute, burst=burst, at_ms=at_ms)
        assert isinstance(event, EventReceived) == (level >= 1)
        level -= level >= 1
