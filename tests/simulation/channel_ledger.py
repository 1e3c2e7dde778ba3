"""Follows queues in the log, and the calls of the runs that use them, and checks them after every append.

    numbers     of messages and positions are dense; what is delayed surfaces at its time, in order
    causes      every message is of a call or an order that asks for it, has its value, and is published once
    leases      have the oldest messages that the reader may have: none is skipped, in two leases, or was taken before
    results     what a call returned is what its lease has; no message is in the results of two calls of a reader
    settling    says what the run has recorded, neither before nor otherwise; what is not taken is visible again
    waits       nothing waits while there is something for it
    the end     every lease is settled, every wait is over, every message is taken once or still visible

Before: entity_ledger.py reads the records, the checker the runs. After: the world ends with the first violation.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.history import Event
from tests.simulation.entity_ledger import EntityEvent, EntityLedger, Order

CALL = re.compile(r"(r_\w+):(\d+)\.(\d+)")
"""Id of the command of a call."""
STEP = re.compile(r"(o_\w+)(?:\.\d+)?")
"""Id of the command of an order, or of a step of it."""
PUBLISH, SUBSCRIBE, AWAIT = "publish", "subscribe", "await"
NS_PER_MS = 1_000_000
CallPlace = tuple[str, int, int]
"""Run, turn and index."""


@dataclass(slots=True, kw_only=True)
class ChannelOrder(Order):
    """A request to publish or to subscribe, with the input of the operation."""

    fields: Mapping[str, Any]

    @property
    def op(self) -> str:
        return str(self.fields["op"])


@dataclass(slots=True, kw_only=True)
class ChannelRun(Order):
    """A run that calls Channel. `id` is its run id; `turns` has the inputs of the calls of each turn."""

    turns: Sequence[Sequence[Mapping[str, Any]]]
    cancel_at_s: float = 0.0
    """When it is cancelled, after its start; 0: never."""


@dataclass(slots=True, kw_only=True)
class Message:
    """A message as the log has it. `position` 0: it is not visible."""

    id: str
    number: int
    position: int
    visible_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Messages that a reader took. `call` None: a request's."""

    queue: str
    reader: str
    positions: tuple[int, ...]
    call: CallPlace | None


@dataclass(slots=True)
class StoredReader:
    """What a reader has of a queue."""

    held: dict[int, str] = field(default_factory=dict)
    """Positions of open leases, with the lease."""
    taken: set[int] = field(default_factory=set)


@dataclass(slots=True)
class StoredQueue:
    """A queue as the log has it."""

    messages: dict[int, Message] = field(default_factory=dict)
    """By number."""
    visible: list[Message] = field(default_factory=list)
    """By position, from 1 on."""
    readers: dict[str, StoredReader] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    """The open ones."""
    waits: dict[str, tuple[str, int, CallPlace]] = field(default_factory=dict)
    """Reader, end and call of those that wait."""
    cause: str = ""
    """Of the last event."""

    def reader(self, name: str) -> StoredReader:
        return self.readers.setdefault(name, StoredReader())

    def free(self, name: str) -> list[int]:
        """Return the positions that a reader may have next."""
        reader = self.reader(name)
        return [
            message.position
            for message in self.visible
            if message.position not in reader.held and message.position not in reader.taken
        ]


class ChannelLedger(EntityLedger):
    """See the module."""

    def __init__(
        self, orders: Sequence[ChannelOrder], runs: Sequence[ChannelRun], complain: Callable[[str, str], None]
    ) -> None:
        super().__init__(orders, complain)
        self.runs = {run.id: run for run in runs}
        self.queues: dict[str, StoredQueue] = {}
        self.is_damaged: Callable[[str], bool] = lambda run_id: False
        self.accepted = 0
        """Messages in results of calls."""
        self.returned = 0
        """Messages that went back."""
        self._intents: set[CallPlace] = set()
        self._published: dict[CallPlace | str, str] = {}
        """What published, with its message."""
        self._results: dict[CallPlace, str] = {}
        """Outcome of each call that has a result."""
        self._leases: dict[str, Lease] = {}
        """All that there were."""
        self._recorded: dict[str, int] = {}
        """How much runs took of leases."""
        self._settled: dict[str, int] = {}
        self._delivered: dict[tuple[str, str, int], CallPlace] = {}
        """Queue, reader and position of each message in a result, with the call."""
        self._read: set[str] = set()
        """Orders that read, and were answered."""

    def decision_of(self, event: EntityEvent) -> str:
        """A call that awaits several queues has one command for each, all with its id."""
        return event.cause if event.cause in self.orders else f"{event.cause} {event.aggregate}"

    # --- queues ------------------------------------------------------------------------------------------------------

    def follow(self, event: EntityEvent) -> None:
        queue = self.queues.setdefault(event.aggregate, StoredQueue())
        if queue.cause != event.cause:
            self._is_awake(event.aggregate, queue)
        queue.cause = event.cause
        values = event.values
        match event.name:
            case "MessagePublished":
                self._publish(queue, event)
            case "MessagesSurfaced":
                for one in values["messages"]:
                    self._surface(queue, event, one)
            case "MessagesLeased":
                self._lease(queue, event)
            case "LeaseSettled":
                self._settle(queue, event)
            case "ReaderWaiting":
                queue.waits[values["wait_id"]] = (values["reader"], values["until_ms"], _place(values["call"]))
            case "WaitExpired":
                self.delivery_count += 1
                wait = queue.waits.pop(values["wait_id"], None)
                if wait is None or wait[1] > event.at_ms:
                    self.complain("wait", f"{event.place} ends {wait} at {event.at_ms}")
            case "LeaseReminded":
                self.delivery_count += 1
                if values["lease_id"] not in queue.leases:
                    self.complain("invented", f"{event.place} asks for {values['lease_id']}, which is not open")
            case "WatchReported":
                self.delivery_count += 1
            case "CommandRefused":
                self.complain("refused", f"{event.place}: {values['code']}: {values['message']}")

    def _is_awake(self, name: str, queue: StoredQueue) -> None:
        for wait_id, (reader, _, _) in queue.waits.items():
            if free := queue.free(reader):
                self.complain("asleep", f"{wait_id} waits in {name} for {reader!r}, which may have {free}")

    def _publish(self, queue: StoredQueue, event: EntityEvent) -> None:
        values = event.values
        self.delivery_count += 1  # the process that wrote it may die now: who published does not know
        cause, asked = self._asked(event.cause)
        if asked is None or asked["op"] != PUBLISH:
            self.complain("invented", f"{event.place}: nothing leads to it ({event.cause!r})")
            return
        if cause in self._published:
            self.complain("doubled", f"{event.place} publishes {event.cause} again, as {self._published[cause]} before")
        if isinstance(cause, tuple) and self._results.get(cause) == "error":
            self.complain("invented", f"{event.place}: the call {cause} has failed before")
        if json.loads(values["value"]) != asked["value"]:
            self.complain("invented", f"{event.place} has {values['value']}; {asked} was asked for")
        self._published[cause] = values["message_id"]
        if values["number"] != len(queue.messages) + 1:
            self.complain("number", f"{event.place} has number {values['number']} after {len(queue.messages)}")
        message = Message(
            id=values["message_id"],
            number=values["number"],
            position=values["position"],
            visible_ms=values["visible_ns"] // NS_PER_MS,
        )
        queue.messages[message.number] = message
        if message.position:
            self._show(queue, event, message)
        elif message.visible_ms <= event.at_ms:
            self.complain("order", f"{event.place} delays {message} at {event.at_ms}")

    def _asked(self, cause: str) -> tuple[CallPlace | str, Mapping[str, Any] | None]:
        """Return what a command is of, and the input of that."""
        if match := CALL.fullmatch(cause):
            place = (match[1], int(match[2]), int(match[3]))
            return place, self.call(place) if place in self._intents else None
        match = STEP.fullmatch(cause)
        order = None if match is None else self.orders.get(match[1])
        return cause, None if order is None else order.fields

    def call(self, place: CallPlace) -> Mapping[str, Any]:
        """Return the input of a call."""
        run_id, turn, index = place
        return self.runs[run_id].turns[turn - 1][index]

    def _surface(self, queue: StoredQueue, event: EntityEvent, one: Mapping[str, Any]) -> None:
        message = queue.messages.get(one["number"])
        if message is None or message.position:
            self.complain("invented", f"{event.place} makes {one} visible, which is {message}")
            return
        waiting = (other for other in queue.messages.values() if not other.position)
        first = min(waiting, key=lambda other: (other.visible_ms, other.number))
        if message is not first or message.visible_ms > event.at_ms:
            self.complain("order", f"{event.place} makes {message} visible at {event.at_ms}; {first} is the next one")
        message.position = one["position"]
        self._show(queue, event, message)

    def _show(self, queue: StoredQueue, event: EntityEvent, message: Message) -> None:
        queue.visible.append(message)
        if message.position != len(queue.visible):
            self.complain("number", f"{event.place} has position {message.position}, not {len(queue.visible)}")

    # --- leases ------------------------------------------------------------------------------------------------------

    def _lease(self, queue: StoredQueue, event: EntityEvent) -> None:
        values = event.values
        self.delivery_count += 1
        lease_id, name, positions = values["lease_id"], values["reader"], tuple(values["positions"])
        call = None if values["call"] is None else _place(values["call"])
        if lease_id in self._leases:
            self.complain("doubled", f"{event.place} leases {positions} as {lease_id} again: {self._leases[lease_id]}")
        wait = queue.waits.pop(lease_id, None)
        if values["is_wait_over"] != (wait is not None):
            self.complain("wait", f"{event.place} ends the wait {wait} of {lease_id}")
        if call is not None and call not in self._intents:
            self.complain("invented", f"{event.place}: {call} has not asked")
        expected = tuple(queue.free(name)[: len(positions)])
        if positions != expected or not positions:
            self.complain("delivered", f"{event.place} leases {positions} to {name!r}; the next ones are {expected}")
        lease = Lease(queue=event.aggregate, reader=name, positions=positions, call=call)
        queue.leases[lease_id] = self._leases[lease_id] = lease
        queue.reader(name).held |= dict.fromkeys(positions, lease_id)

    def _settle(self, queue: StoredQueue, event: EntityEvent) -> None:
        values = event.values
        lease_id, taken, returned = values["lease_id"], values["taken"], tuple(values["returned"])
        queue.waits.pop(lease_id, None)
        lease = queue.leases.pop(lease_id, None)
        if lease is None:
            if taken or returned:
                self.complain("invented", f"{event.place} settles {lease_id}, which is not open: {values}")
            return
        if lease.positions[taken:] != returned:
            self.complain("lost", f"{event.place}: of {lease.positions} {taken} are taken, and {returned} return")
        recorded = self._recorded.get(lease_id)
        if lease.call is not None and taken != (recorded or 0):
            kind = "lost" if taken > (recorded or 0) else "doubled"
            self.complain(kind, f"{event.place} settles {lease_id} with {taken}; its run has recorded {recorded}")
        self._settled[lease_id] = taken
        self.returned += len(returned)
        reader = queue.reader(lease.reader)
        for position in lease.positions:
            reader.held.pop(position, None)
        reader.taken.update(lease.positions[:taken])

    # --- runs --------------------------------------------------------------------------------------------------------

    def of_run(self, event: Event) -> None:
        """Follow an accepted event of any run."""
        if event.run_id not in self.runs or event.name not in ("ToolCallRequested", "ToolReturned"):
            return
        place = (event.run_id, event.values["turn"], event.values["index"])
        if event.name == "ToolCallRequested":
            self._intents.add(place)
            return
        outcome = event.values["outcome"]
        self._results[place] = outcome
        details = event.values["details"]
        leases = () if details is None else details["leases"]
        messages = json.loads(event.values["text"]).get("messages", []) if outcome == "ok" else []
        if self.call(place)["op"] == AWAIT:
            return
        for lease in leases:
            self._record(event, place, lease, [message["id"] for message in messages])
        if messages and not leases:
            self.complain("invented", f"{event.place}: {place} returns {messages}, and has no lease")
        if outcome == "error" and place in self._published:
            self.complain("invented", f"{event.place}: {place} has failed; {self._published[place]} is published")
        if outcome == "ok" and self.call(place)["op"] == PUBLISH and place not in self._published:
            self.complain("lost", f"{event.place}: {place} has succeeded; nothing is published")

    def _record(self, event: Event, place: CallPlace, ref: Mapping[str, Any], ids: Sequence[str]) -> None:
        self.delivery_count += 1
        lease_id, taken = ref["lease_id"], ref["taken"]
        lease = self._leases.get(lease_id)
        if lease is None or lease.call != place:
            self.complain("invented", f"{event.place}: {place} returns messages of {lease_id}, which is {lease}")
            return
        if self._settled.get(lease_id, taken) != taken:
            self.complain(
                "doubled", f"{event.place}: {place} returns {taken} of {lease_id}, settled as {self._settled[lease_id]}"
            )
        visible = self.queues[lease.queue].visible
        expected = [visible[position - 1].id for position in lease.positions[:taken]]
        if list(ids) != expected:
            self.complain("invented", f"{event.place}: {place} returns {ids}; the lease has {expected}")
        self._recorded[lease_id] = taken
        for position in lease.positions[:taken]:
            key = (lease.queue, lease.reader, position)
            if key in self._delivered:
                self.complain("doubled", f"{event.place}: {place} returns {key} again, as {self._delivered[key]} did")
            self._delivered[key] = place
            self.accepted += 1

    # --- requests ----------------------------------------------------------------------------------------------------

    def is_answered(self, order: Order) -> bool:
        return order.id in self._read or super().is_answered(order)

    def read(self, order: ChannelOrder, ids: Sequence[str]) -> None:
        """A request to subscribe was answered, perhaps not for the first time."""
        self._read.add(order.id)
        leases = [lease for name, lease in self._leases.items() if name.rpartition(".")[0] == order.id]
        batches = [
            [self.queues[lease.queue].visible[position - 1].id for position in lease.positions] for lease in leases
        ]
        if ids and not any(batch[: len(ids)] == list(ids) for batch in batches):
            self.complain("invented", f"{order.name} is answered with {ids}; its leases have {batches}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        for order in self.orders.values():
            if not self.is_answered(order):
                return f"{order.name} is not answered"
        for name, queue in self.queues.items():
            for message in queue.messages.values():
                if not message.position:
                    return f"{message} of {name} is not visible"
            for lease_id, lease in queue.leases.items():
                if lease.call is None or not self.is_damaged(lease.call[0]):
                    return f"the lease {lease_id} of {name} is not settled: {lease}"
            for wait_id, (_, _, call) in queue.waits.items():
                if not self.is_damaged(call[0]):
                    return f"{wait_id} waits in {name} for ever"
        return ""

    def finish(self) -> None:
        """All has come to its end: what runs have recorded is what was taken, and the rest is visible."""
        for name, queue in self.queues.items():
            self._is_awake(name, queue)
        for lease_id, taken in self._recorded.items():
            lease = self._leases[lease_id]
            assert lease.call is not None, "only runs record"
            if self._settled.get(lease_id) != taken and not self.is_damaged(lease.call[0]):
                self.complain("doubled", f"{lease.call} has {taken} of {lease_id}: {self._settled.get(lease_id)}")
        for order in self.orders.values():
            if order.op == PUBLISH and order.id not in self._published:
                self.complain("lost", f"{order.name} was answered; nothing is published")


def _place(call: Mapping[str, Any]) -> CallPlace:
    return (call["run_id"], call["turn"], call["index"])
