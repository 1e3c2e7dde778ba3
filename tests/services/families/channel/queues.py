"""A queue without a loop: its state, its clock and its timers."""

from collections.abc import Sequence
from typing import Any

from loomlog.schemas.generated.channel_commands import (
    AckCursor,
    PublishMessage,
    PurgeQueue,
    ReadQueue,
    SettleLease,
    WatchQueue,
)
from loomlog.schemas.generated.channel_events import MessagePublished, MessagesLeased
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CallRef, CommandEnvelope, Envelope
from loomlog.services.core.families import TIMER_FIRED, At, Item, Send, aggregate_id
from loomlog.services.families.channel import FAMILY
from loomlog.services.families.channel.caller import queue_name
from loomlog.services.families.channel.state import QueueState
from tests.services.families.channel.answers import answer_event

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def call(number: int) -> CallRef:
    """The call with a number, each of a run of its own."""
    return CallRef(run_id=f"r_{number}", turn=1, index=0)


class QueueWorld:
    """A queue of the tenant acme, with everything that was decided in it."""

    def __init__(self, channel: str = "work", scope: str = "tenant", scope_id: str = "", tenant: str = "acme") -> None:
        self.names: dict[str, Any] = {"channel": channel, "scope": scope, "scope_id": scope_id}
        self.tenant = tenant
        self.id = aggregate_id("channel", tenant, queue_name(channel, scope, scope_id))
        self.state: QueueState = FAMILY.rules.initial(self.id)
        self.now_ms = NOW_MS
        self.events: list[Any] = []
        self.sent: list[Send] = []
        self.rows: dict[tuple[str, str], Item] = {}
        self.commands = 0

    def decide(self, command: Any, command_id: str = "") -> Sequence[Any]:
        """Decide a command and fold its events."""
        self.commands += 1
        at = At(self.now_ms, "ada", command_id or f"c{self.commands}")
        events = FAMILY.rules.decide(self.state, command, at)
        for event in events:
            if isinstance(event, CommandRefused):
                assert len(events) == 1
                continue
            self.state = FAMILY.rules.evolve(self.state, event, self.now_ms)
            self.sent += FAMILY.sends(self.state, event)
            self._keep_rows(event)
        self.events += events
        return events

    def _keep_rows(self, event: Any) -> None:
        envelope = Envelope(term=0, seq=1, aggregate=self.id, tenant=self.tenant, at_ms=self.now_ms, prev=bytes(16))
        for item in FAMILY.items(self.state, event, envelope):
            if item.document:
                self.rows[item.kind, item.id] = item
            else:
                self.rows.pop((item.kind, item.id), None)

    def refusal(self, command: Any) -> tuple[str, str]:
        """Code and message of a command that is refused."""
        (event,) = self.decide(command)
        assert isinstance(event, CommandRefused), event
        return event.code, event.message

    def record(self, record: type[Any], **fields: Any) -> Any:
        """A command to the queue."""
        envelope = CommandEnvelope(command_id="c", tenant=self.tenant, subject="ada")
        return record(envelope=envelope, **(self.names | fields))

    def publish(self, value: str = "1", **fields: Any) -> MessagePublished:
        event = answer_event(self.decide(self.record(PublishMessage, value=value, **fields)))
        assert isinstance(event, MessagePublished), event
        return event

    def read(self, max_messages: int = 10, *, command_id: str = "", **fields: Any) -> MessagesLeased | None:
        """Read; None when there is nothing."""
        event = answer_event(self.decide(self.record(ReadQueue, max_messages=max_messages, **fields), command_id))
        assert event is None or isinstance(event, MessagesLeased), event
        return event

    def wait(self, number: int, *, wait_ms: int = 20_000, max_messages: int = 10, **fields: Any) -> Any:
        """Read for a call that waits; returns the event that answers."""
        until_ms = self.now_ms + wait_ms
        command = self.record(ReadQueue, max_messages=max_messages, call=call(number), wait_until_ms=until_ms, **fields)
        return answer_event(self.decide(command, f"wait{number}"))

    def watch(self, number: int, *, wait_ms: int = 20_000, **fields: Any) -> Any:
        command = self.record(WatchQueue, call=call(number), until_ms=self.now_ms + wait_ms, **fields)
        return answer_event(self.decide(command, f"watch{number}"))

    def settle(self, lease_id: str, taken: int) -> Sequence[Any]:
        return self.decide(self.record(SettleLease, lease_id=lease_id, taken=taken))

    def take(self, max_messages: int = 10, **fields: Any) -> tuple[int, ...]:
        """Read and settle; returns the positions."""
        lease = self.read(max_messages, **fields)
        if lease is None:
            return ()
        self.settle(lease.lease_id, len(lease.positions))
        return lease.positions

    def ack(self, cursor: str, reader: str = "") -> Sequence[Any]:
        return self.decide(self.record(AckCursor, cursor=cursor, reader=reader))

    def purge(self) -> Any:
        return answer_event(self.decide(self.record(PurgeQueue)))

    def pass_ms(self, ms: int) -> None:
        """Let time pass; timers fire at their times."""
        until_ms = self.now_ms + ms
        while 0 < (due_ms := FAMILY.rules.next_timer_ms(self.state)) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            before = len(self.events)
            self.decide(TIMER_FIRED)
            assert len(self.events) > before, "a timer has fired for nothing"
        self.now_ms = until_ms
