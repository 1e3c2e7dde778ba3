"""Counters in the simulation: entities that send commands to others, and that have timers.

    plain    an increment
    chain    an increment that sends another one to a counter of another partition: the outbox
    timer    an increment of a counter of its own, which is set to zero a while later

Before: world.py, in the seeds with counters. After: entities.py; counter_ledger.py checks what is in the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from random import Random

from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import Reads
from tests.services.stream.entities.counters import FAMILY
from tests.simulation.counter_ledger import CounterLedger, CounterOrder
from tests.simulation.entities import ORDERS_UNTIL, EntityHost, EntityLoad, plan_acts
from tests.simulation.faults import CALM_S, Faults
from tests.simulation.log import SimulatedLog

COUNTER_SHARE = 0.3
"""Of the seeds: those with counters. They cost about as much again as the runs of a seed."""
MOST_ORDERS = 12
KINDS = ("plain", "chain", "chain", "timer")
NAMES = ("hits", "misses", "far")
TENANT = "t"
RESET_AFTER_MS = 400


def counters_of(faults: Faults) -> "Counters | None":
    """The counters of a seed, if it has any."""
    random = Random(f"{faults.seed}/counters")
    if random.random() >= COUNTER_SHARE:
        return None
    family = FAMILY if random.random() < 0.5 else changed(FAMILY, reads=Reads.REPLICATED)
    orders = []
    for number in range(random.randint(1, MOST_ORDERS)):
        kind = random.choice(KINDS)
        order = CounterOrder(
            name=f"counter {number} ({kind})",
            id=f"o{number}",
            counter=f"timed{number}" if kind == "timer" else random.choice(NAMES),
            by=random.randint(1, 5),
            also=random.choice(NAMES) if kind == "chain" else "",
            reset_after_ms=RESET_AFTER_MS if kind == "timer" else 0,
            at_s=random.uniform(0.0, CALM_S * ORDERS_UNTIL),
            by_topic=random.random() < 0.5,
        )
        if order.name not in faults.without:
            orders.append(order)
    plan_acts(faults, random, "counter")
    return Counters(family, orders)


class Counters(EntityLoad):
    """The counters of a seed. `family` is read from rows in half of the seeds, and from replicas in the others."""

    ledger: CounterLedger

    def make_ledger(self, log: SimulatedLog, complain: Callable[[str, str], None]) -> CounterLedger:
        del log
        return CounterLedger(self.orders, complain)

    def command(self, order: CounterOrder) -> IncrementCounter:
        return IncrementCounter(
            envelope=CommandEnvelope(command_id=order.id, tenant=TENANT, issued_at_ms=order.issued_at_ms),
            name=order.counter,
            by=order.by,
            also=order.also,
            reset_after_ms=order.reset_after_ms,
        )

    def compare(self, hosts: Sequence[EntityHost]) -> None:
        states = {name: row.state for name, row in self.rows.rows.items()}
        for name, value in self.ledger.values.items():
            if f'"value":{value},' not in states.get(name, ""):
                self.ledger.complain("rows", f"{name} is {value}, its row says {states.get(name)}")
            for host in hosts:
                entity = host.parts.replicas.entity(name)
                if self.is_replicated and (entity is None or entity.state.value != value):
                    self.ledger.complain("replica", f"{name} is {value}, a replica says {entity}")
