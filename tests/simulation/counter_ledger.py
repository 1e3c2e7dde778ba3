"""Reads the counters off the raw log with code of its own, and checks them after every append.

    order       terms were claimed; dense seq, unbroken chain, what is written under an old term counts for nothing
    commands    an order, a delivery and a timer are carried out once, as they were given; no event has another cause
    answers     what was answered is in the log, and is all of it
    deliveries  each increment that sends another one has it carried out, once
    timers      a counter is set to zero once, not before its time

Before: counters.py hands over the records and the answers. Shares no code with services/stream/entities.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.chaos.history import CLAIM, NO_DIGEST
from tests.chaos.wire import Unreadable, decode
from tests.simulation.log import Record

INTRUDER = "intruder"
EVENTS = "loom.entity.events"


@dataclass(slots=True, kw_only=True)
class Order:
    """An increment that somebody wants. `issued_at_ms` is of its first giving."""

    name: str
    id: str
    counter: str
    by: int
    also: str
    reset_after_ms: int
    at_s: float
    by_topic: bool
    issued_at_ms: int = 0


@dataclass(slots=True)
class Counter:
    """A counter as the log has it."""

    seq: int = 0
    digest: bytes = NO_DIGEST
    value: int = 0
    reset_at_ms: int = 0


@dataclass(slots=True)
class CounterLedger:
    """See the module. `complain` gets the kind and the text of a violation."""

    orders: dict[str, Order]
    complain: Callable[[str, str], None]
    terms: dict[int, int] = field(default_factory=dict)
    stale: int = 0
    counters: dict[str, Counter] = field(default_factory=dict)
    _claimed: set[tuple[int, int]] = field(default_factory=set)
    _carried_out: dict[str, tuple[int, int, Any]] = field(default_factory=dict)
    """Partition, offset and values of the event of each command, by its id."""
    _deliveries: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Counter and amount of each delivery, by its id."""
    _answers: dict[str, tuple[int, int, tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, int]:
        """The value of each counter."""
        return {name: counter.value for name, counter in self.counters.items()}

    @property
    def delivery_count(self) -> int:
        return len(self._deliveries)

    # --- the log -----------------------------------------------------------------------------------------------------

    def landed(self, records: Sequence[Record]) -> None:
        """Records were appended to a topic of entities."""
        for record in records:
            if record.topic == EVENTS and record.writer != INTRUDER:
                self._event(record)

    def _event(self, record: Record) -> None:
        try:
            fields = decode(record.value)
        except Unreadable as error:
            self.complain("unreadable", f"{EVENTS}/{record.partition} offset {record.offset}: {error}")
            return
        if fields.name == CLAIM:
            self.terms[record.partition] = record.offset
            self._claimed.add((record.partition, record.offset))
            return
        envelope = fields.values["envelope"]
        place = f"{fields.name.rpartition('.')[2]} at {EVENTS}/{record.partition} offset {record.offset}"
        if (record.partition, envelope["term"]) not in self._claimed:
            self.complain("illegal writer", f"{place}: the term {envelope['term']} was not claimed")
        if envelope["term"] != self.terms.get(record.partition):
            self.stale += 1
            return
        counter = self.counters.setdefault(envelope["aggregate"], Counter())
        if envelope["seq"] != counter.seq + 1 or envelope["prev"] != counter.digest:
            self.complain("broken chain", f"{place} has seq {envelope['seq']} after {counter.seq}")
        assert record.value is not None
        counter.seq, counter.digest = envelope["seq"], sha256(record.value).digest()[:16]
        self._apply(record, place, fields.name.rpartition(".")[2], fields.values, counter)

    def _apply(self, record: Record, place: str, name: str, values: Any, counter: Counter) -> None:
        envelope = values["envelope"]
        cause, aggregate = envelope["cause_id"], envelope["aggregate"]
        if name == "CounterReset":
            is_due = 0 < counter.reset_at_ms <= envelope["at_ms"]
            if cause or not is_due or values["value"] != counter.value:
                self.complain("timer", f"{place} sets {aggregate} to zero, due at {counter.reset_at_ms}")
            counter.value, counter.reset_at_ms = 0, 0
            return
        if name != "CounterIncremented":
            self.complain("invented", f"{place}: no order leads to it")
            return
        if cause in self._carried_out:
            self.complain("doubled", f"{place} carries out {cause} again; {self._carried_out[cause][:2]} has")
        self._carried_out[cause] = (record.partition, record.offset, values)
        wanted = self._wanted(cause)
        if wanted != (aggregate, values["by"]) or values["value"] != counter.value + values["by"]:
            self.complain("invented", f"{place}: {aggregate} by {values['by']} to {values['value']} for {wanted}")
        counter.value, counter.reset_at_ms = values["value"], values["reset_at_ms"]
        if values["also"]:
            self._deliveries[f"{aggregate}:{counter.seq}:0"] = (f"counter:t/{values['also']}", values["by"])

    def _wanted(self, cause: str) -> tuple[str, int] | None:
        order = self.orders.get(cause)
        return (f"counter:t/{order.counter}", order.by) if order is not None else self._deliveries.get(cause)

    # --- answers -----------------------------------------------------------------------------------------------------

    def is_answered(self, order: Order) -> bool:
        return order.id in self._answers

    def answered(self, order: Order, answer: Any) -> None:
        """An order was answered, perhaps not for the first time."""
        place = (answer.partition, answer.offset)
        event = self._carried_out.get(order.id)
        if event is None or event[:2] != place:
            self.complain("invented", f"{order.name} is answered with {place}; the log has {event and event[:2]}")
        elif [(one.by, one.value) for one in answer.events] != [(event[2]["by"], event[2]["value"])]:
            self.complain("invented", f"{order.name} is answered with {answer.events}; the log has {event[2]}")
        before = self._answers.setdefault(order.id, (*place, answer.events))
        if before != (*place, answer.events):
            self.complain("two answers", f"{order.name} is answered with {answer}; before that with {before}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        """What has not come to its end yet; empty when all has."""
        for order in self.orders.values():
            if order.id not in self._answers:
                return f"{order.name} is not answered"
        for delivery, (counter, _) in self._deliveries.items():
            if delivery not in self._carried_out:
                return f"the delivery {delivery} to {counter} is not carried out"
        for name, counter in self.counters.items():
            if counter.value and counter.reset_at_ms:
                return f"{name} is not set to zero"
        return ""

    def finish(self) -> None:
        """All has come to its end: is every sum right?"""
        sums: dict[str, int] = {}
        for order in self.orders.values():
            for name, is_there in ((order.counter, True), (order.also, bool(order.also))):
                if is_there and not order.reset_after_ms:
                    sums[f"counter:t/{name}"] = sums.get(f"counter:t/{name}", 0) + order.by
        for name, total in sums.items():
            if self.counters[name].value != total:
                self.complain("sum", f"{name} is {self.counters[name].value}, {total} was ordered")
