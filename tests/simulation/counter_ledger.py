"""Follows the counters in the log, and checks them after every append.

    commands    an order, a delivery and a timer are carried out as they were given
    deliveries  each increment that sends another one has it carried out, once
    timers      a counter is set to zero once, not before its time

Before: entity_ledger.py reads the records. After: the world ends with the first violation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulation.entity_ledger import EntityEvent, EntityLedger, Order


@dataclass(slots=True, kw_only=True)
class CounterOrder(Order):
    """An increment."""

    counter: str
    by: int
    also: str
    reset_after_ms: int


@dataclass(slots=True)
class Counter:
    """A counter as the log has it."""

    value: int = 0
    reset_at_ms: int = 0


class CounterLedger(EntityLedger):
    """See the module."""

    def __init__(self, orders: Sequence[CounterOrder], complain: Callable[[str, str], None]) -> None:
        super().__init__(orders, complain)
        self.counters: dict[str, Counter] = {}
        self._deliveries: dict[str, tuple[str, int]] = {}
        """Counter and amount of each delivery, by its id."""

    @property
    def values(self) -> dict[str, int]:
        """The value of each counter."""
        return {name: counter.value for name, counter in self.counters.items()}

    def follow(self, event: EntityEvent) -> None:
        counter = self.counters.setdefault(event.aggregate, Counter())
        values = event.values
        if event.name == "CounterReset":
            is_due = 0 < counter.reset_at_ms <= event.at_ms
            if event.cause or not is_due or values["value"] != counter.value:
                self.complain("timer", f"{event.place} sets {event.aggregate} to zero, due at {counter.reset_at_ms}")
            counter.value, counter.reset_at_ms = 0, 0
            return
        if event.name != "CounterIncremented":
            self.complain("invented", f"{event.place}: no order leads to it")
            return
        if len(self.decisions[event.cause]) > 1:
            self.complain("doubled", f"{event.place} carries out {event.cause} again")
        wanted = self._wanted(event.cause)
        if wanted != (event.aggregate, values["by"]) or values["value"] != counter.value + values["by"]:
            text = f"{event.place}: {event.aggregate} by {values['by']} to {values['value']} for {wanted}"
            self.complain("invented", text)
        counter.value, counter.reset_at_ms = values["value"], values["reset_at_ms"]
        if values["also"]:
            self._deliveries[f"{event.aggregate}:{event.seq}:0"] = (f"counter:t/{values['also']}", values["by"])
            self.delivery_count += 1

    def _wanted(self, cause: str) -> tuple[str, int] | None:
        order = self.orders.get(cause)
        return (f"counter:t/{order.counter}", order.by) if order is not None else self._deliveries.get(cause)

    def answered(self, order: Order, answer: Any) -> None:
        super().answered(order, answer)
        logged = [(event.values["by"], event.values["value"]) for event in self.decisions.get(order.id, ())]
        if [(one.by, one.value) for one in answer.events] != logged:
            self.complain("invented", f"{order.name} is answered with {answer.events}; the log has {logged}")

    def open_ends(self) -> str:
        if left := super().open_ends():
            return left
        for delivery, (counter, _) in self._deliveries.items():
            if delivery not in self.decisions:
                return f"the delivery {delivery} to {counter} is not carried out"
        for name, one in self.counters.items():
            if one.value and one.reset_at_ms:
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
