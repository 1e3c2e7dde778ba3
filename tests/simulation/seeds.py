"""One seed from beginning to end.

    with simulated():
        outcome = simulate(7)              # the violation, if any, and the faults that happened
        simulate(7, without=frozenset({"act 2 (crash)"}), tell=print)

Before: main.py and shrink.py. After: world.py.
"""

import asyncio
import logging
import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import get_ident
from unittest.mock import patch

from loomlog.projections.engine import rebuild as rebuilding
from loomlog.projections.engine import run_projection
from loomlog.projections.engine.writer import make_writer
from loomlog.services.families.channel import limits as channel_limits
from loomlog.services.projector import loop as projecting
from loomlog.services.stream.entities import hosting as entity_hosting
from tests.simulation.books import limit_of
from tests.simulation.builds import SimulatedBuilds
from tests.simulation.checker import Violation
from tests.simulation.clients import TENANT, wishes
from tests.simulation.faults import CALM_S, Faults
from tests.simulation.loop import Nap, VirtualLoop, ordered_groups
from tests.simulation.reading import read_once
from tests.simulation.world import Tell, World

STAND_BY_S = 1.5
"""How often the second projector looks whether it is its turn: seldom enough not to be a tenth of all that happens."""
READ_AHEAD_S = 0.2
"""How often a new owner of entities looks for what the last one has left: before the faults are over."""
REMIND_MS, REQUEST_LEASE_MS = 1_500, 1_000
"""When a queue asks again about a lease, and when one of a request ends: before the faults are over."""
LIMIT = "limit"
"""Among the wishes: that the tenant has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a seed went. `fired` names the faults that happened, `wishes` the load."""

    seed: int
    violation: Violation | None
    fired: tuple[str, ...]
    wishes: tuple[str, ...]
    events: int
    virtual_s: float


@contextmanager
def simulated() -> Iterator[None]:
    """Clock, randomness and Postgres of this process are simulated ones while it lasts; nothing is logged.

    The code under test asks `time.monotonic` and the module-wide `random`; giving both here spares it a parameter.
    """
    state, monotonic = random.getstate(), time.monotonic

    ours, this_thread = get_ident(), get_ident

    def virtual() -> float:
        loop = VirtualLoop.running
        return monotonic() if loop is None or this_thread() != ours else loop.now  # the time of other threads goes on

    logging.disable(logging.CRITICAL)
    with (
        patch.object(time, "monotonic", virtual),
        patch.object(asyncio, "sleep", Nap),
        ordered_groups(),
        read_once(),
        patch.object(projecting, "Builds", SimulatedBuilds),
        patch.object(projecting, "STANDBY_POLL_S", STAND_BY_S),
        patch.object(entity_hosting, "HOT_AGGREGATES_MAX", 0),  # what rests is loaded again
        patch.object(entity_hosting, "TIMERS_EVERY_S", READ_AHEAD_S),
        patch.object(channel_limits, "REMIND_MS", REMIND_MS),
        patch.object(channel_limits, "REQUEST_LEASE_MS", REQUEST_LEASE_MS),
        patch.object(rebuilding, "Builds", SimulatedBuilds),
        patch.object(run_projection, "make_writer", cache(make_writer)),
        warnings.catch_warnings(),
    ):
        # A crash leaves coroutines behind that were made and never begun.
        warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
        try:
            yield
        finally:
            random.setstate(state)
            logging.disable(logging.NOTSET)


def simulate(seed: int, *, without: frozenset[str] = frozenset(), tell: Tell | None = None) -> Outcome:
    """One seed, inside `simulated()`. `without` leaves faults and wishes out by name; `tell` gets the story."""
    random.seed(seed)
    faults = Faults(seed, without)
    load = wishes(seed, without, CALM_S / 2)
    limit = limit_of(seed, TENANT)
    world = World(faults, load, limit if LIMIT not in without else None, tell)
    try:
        world.run()
        return Outcome(
            seed=seed,
            violation=world.checker.violation,
            fired=tuple(faults.fired),
            wishes=(
                *(wish.name for wish in load),
                *([LIMIT] if world.limit is not None else []),
                *(order.name for order in (world.entities.orders if world.entities is not None else ())),
            ),
            events=world.checker.events,
            virtual_s=world.loop.now,
        )
    finally:
        world.loop.close()
