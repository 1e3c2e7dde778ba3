"""Which process is struck at which run, and how: drawn from a seed, so that a bad round can be done again.

Kills
    runtime               SIGKILL to the owner that has the most live runs
    api, projector        SIGKILL
    broker, postgres      SIGKILL to the server process; of a cluster, to any of its brokers
    successor             SIGKILL to an owner, and to the next one the moment it takes over
    planned               SIGTERM to an owner: it drains, and comes back
    everything            SIGKILL to all of them at once, as when the power fails

Sleeps (SIGSTOP to a process and all it has started, for two sessions, then SIGCONT)
    zombie                an owner, and until the other has taken all it had: it wakes up in the middle of its runs and
                          believes that it still owns them
    asleep-api, asleep-projector, asleep-postgres, asleep-broker (of a cluster, the one that leads most)

Lies
    snapshots             the snapshot store is deleted and made anew, empty, and the busiest owner killed: whoever
                          takes over has nothing but the log
    clock-back            the clocks of the busiest owner and of the api jump back by an hour, until their lives end
    clock-forward         ... forward by a day

Of a cluster of three only
    leader                SIGKILL to the broker that leads most partitions of the events
    controller            SIGKILL to the active controller
    long-loss             one broker down for LONG_LOSS_S; everything goes on with two
    two-lost              two brokers down for TWO_LOST_S: nothing can be written, whoever tries is told so soon, and
                          everything goes on afterwards

A strike happens when so many runs were begun, not at a time of day: the load then is in full swing whatever the machine
does. The runs are divided among the strikes, and each has a random place in its share. A moment later, also random,
because workers that begin runs together do everything together: otherwise every strike would hit a first turn.

Before: campaign.  After: striker carries it out.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

TARGETS = (
    # Three times, because take-overs are what is measured: one gives a figure for each partition that was owned.
    "runtime",
    "runtime",
    "runtime",
    "api",
    "projector",
    "broker",
    "postgres",
    "successor",
    "planned",
    "everything",
    "zombie",
    "asleep-api",
    "asleep-projector",
    "asleep-postgres",
    "asleep-broker",
    "snapshots",
    "clock-back",
    "clock-forward",
)
CLUSTER_TARGETS = ("leader", "controller", "long-loss", "two-lost")
FIRST_SHARE, LAST_SHARE = 0.1, 0.9
"""Of the runs: the first ones warm everything up, the last ones see what the last strike left behind."""
LONGEST_AFTER_S = 1.5
"""About as long as a run takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A strike to come: that long after that many runs were begun. `draw`, from 0 to 1, chooses where there is a
    choice."""

    target: str
    at_run: int
    after_s: float
    draw: float


def targets_of(brokers: int) -> tuple[str, ...]:
    """Everything that can be struck with so many brokers."""
    return TARGETS if brokers == 1 else TARGETS + CLUSTER_TARGETS


def plan(seed: int, runs: int, targets: Sequence[str], *, brokers: int = 1) -> list[Fault]:
    """The faults of one round, every target as often as it is named, in random order."""
    unknown = sorted(set(targets) - set(targets_of(brokers)))
    assert not unknown, f"no such targets: {unknown}; with {brokers} brokers there are {targets_of(brokers)}"
    draw = random.Random(seed)
    order = draw.sample(list(targets), len(targets))
    share = (LAST_SHARE - FIRST_SHARE) * runs / max(1, len(order))
    return [
        Fault(
            target=target,
            at_run=round(FIRST_SHARE * runs + share * (place + draw.random())),
            after_s=draw.uniform(0, LONGEST_AFTER_S),
            draw=draw.random(),
        )
        for place, target in enumerate(order)
    ]
