"""Reads the entities off the raw log with code of its own: order, chains and causes, whatever the family is.

    order       terms were claimed; dense seq, unbroken chain, what is written under an old term counts for nothing
    commands    the events of a command are one decision; no event has an unknown cause
    answers     what was answered is in the log, and is all of it; a repeated command has the same answer

Before: entities.py hands over the records and the answers. After: counter_ledger.py and definition_ledger.py follow
the events of their families. Shares no code with services/stream/entities.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from tests.chaos.history import CLAIM, NO_DIGEST
from tests.chaos.wire import Unreadable, decode
from tests.simulation.log import Record

INTRUDER = "intruder"
EVENTS = "loom.entity.events"


@dataclass(slots=True, kw_only=True)
class Order:
    """A change that somebody wants. `issued_at_ms` is of its first giving."""

    name: str
    id: str
    at_s: float
    by_topic: bool
    issued_at_ms: int = 0


@dataclass(slots=True)
class Chain:
    """The events of an aggregate so far."""

    seq: int = 0
    digest: bytes = NO_DIGEST
    cause: str = ""
    """Of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityEvent:
    """An accepted event. `name` is without its namespace."""

    partition: int
    offset: int
    aggregate: str
    seq: int
    cause: str
    at_ms: int
    name: str
    values: Any
    stored_ms: int = 0
    """When the broker got it, by its own clock."""

    @property
    def place(self) -> str:
        return f"{self.name} at {EVENTS}/{self.partition} offset {self.offset}"


class EntityLedger(ABC):
    """See the module. `complain` gets the kind and the text of a violation."""

    def __init__(self, orders: Sequence[Any], complain: Callable[[str, str], None]) -> None:
        self.orders = {order.id: order for order in orders}
        self.complain = complain
        self.terms: dict[int, int] = {}
        self.stale = 0
        self.delivery_count = 0
        """Commands to other aggregates that events in the log send."""
        self.decisions: dict[str, list[EntityEvent]] = {}
        """The events of each command, by its id."""
        self._chains: dict[str, Chain] = {}
        self._claimed: set[tuple[int, int]] = set()
        self._answers: dict[str, tuple[int, int, tuple[Any, ...]]] = {}

    # --- the log -----------------------------------------------------------------------------------------------------

    def landed(self, records: Sequence[Record]) -> None:
        """Records were appended to a topic of entities."""
        for record in records:
            if record.topic == EVENTS and record.writer != INTRUDER:
                self._landed(record)

    def _landed(self, record: Record) -> None:
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
        event = EntityEvent(
            partition=record.partition,
            offset=record.offset,
            aggregate=envelope["aggregate"],
            seq=envelope["seq"],
            cause=envelope["cause_id"],
            at_ms=envelope["at_ms"],
            name=fields.name.rpartition(".")[2],
            values=fields.values,
            stored_ms=record.timestamp,
        )
        if (event.partition, envelope["term"]) not in self._claimed:
            self.complain("illegal writer", f"{event.place}: the term {envelope['term']} was not claimed")
        if envelope["term"] != self.terms.get(event.partition):
            self.stale += 1
            return
        chain = self._chains.setdefault(event.aggregate, Chain())
        if event.seq != chain.seq + 1 or envelope["prev"] != chain.digest:
            self.complain("broken chain", f"{event.place} has seq {event.seq} after {chain.seq}")
        if event.cause:
            known = self.decisions.setdefault(self.decision_of(event), [])
            if known and (chain.cause != event.cause or known[-1].aggregate != event.aggregate):
                self.complain("doubled", f"{event.place} carries out {event.cause} again; {known[-1].place} has")
            known.append(event)
        assert record.value is not None
        chain.seq, chain.digest, chain.cause = event.seq, sha256(record.value).digest()[:16], event.cause
        self.follow(event)

    def decision_of(self, event: EntityEvent) -> str:
        """Return what the events of one decision, and no others, have in common."""
        return event.cause

    @abstractmethod
    def follow(self, event: EntityEvent) -> None:
        """Follow an accepted event."""

    # --- answers -----------------------------------------------------------------------------------------------------

    def is_answered(self, order: Order) -> bool:
        return order.id in self._answers

    def answered_at(self, order: Order) -> str:
        """Return the position token of the answer to an order."""
        partition, offset, _ = self._answers[order.id]
        return f"{EVENTS}/{partition}:{offset}"

    def answered(self, order: Order, answer: Any) -> None:
        """An order was answered, perhaps not for the first time."""
        place = (answer.partition, answer.offset)
        events = self.decisions.get(order.id, [])
        if not events or (events[-1].partition, events[-1].offset) != place:
            known = events[-1].place if events else "nothing"
            self.complain("invented", f"{order.name} is answered with {place}; the log has {known}")
        elif [type(one).__name__ for one in answer.events] != [one.name for one in events]:
            self.complain("invented", f"{order.name} is answered with {answer.events}; the log has {events}")
        before = self._answers.setdefault(order.id, (*place, answer.events))
        if before != (*place, answer.events):
            self.complain("two answers", f"{order.name} is answered with {answer}; before that with {before}")

    # --- the end -----------------------------------------------------------------------------------------------------

    def open_ends(self) -> str:
        """What has not come to its end yet; empty when all has."""
        left = (order for order in self.orders.values() if order.id not in self._answers)
        order = next(left, None)
        return "" if order is None else f"{order.name} is not answered"

    @abstractmethod
    def finish(self) -> None:
        """All has come to its end: is it the right one?"""
