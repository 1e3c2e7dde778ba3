"""What the curves of `make bench-scale` share: how big they are, a stack of its own.

Before: scaling.py. After: curves_of_load.py, curves_of_past.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.main import Stack, client, own_stack
from tests.benchmarks.speed_workload import SPEED_CONFIGURATION

Row = dict[str, Any]
WARM_UP_IN_FLIGHT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is measured. Times are seconds; a curve's values are in growing order."""

    seconds: float
    """Counted, for each row of load."""
    compiler_s: float
    """Load of each stack before anything is counted: the broker's compiler takes half a core until it is through."""
    row_warm_up_s: float
    stacks: Sequence[tuple[int, int]]
    """(runtimes, partitions)"""
    in_flight: Sequence[int]
    streams: Sequence[int]
    parked: Sequence[int]
    settle_s: float
    """After the last run has parked: the checkpoint (every 30 s) and the projector are done by then."""
    live: Sequence[int]
    past: Sequence[int]
    """Events of one partition before it is taken over."""
    live_with_past: int
    kills: int
    """At each number of live runs; each waits for a checkpoint, up to 30 seconds. A history gets one."""
    replayed: Sequence[int]
    """Events of all partitions that are read again."""


FULL = Sizes(
    seconds=5.0,
    compiler_s=15.0,
    row_warm_up_s=2.0,
    stacks=((1, 1), (1, 4), (1, 8), (2, 4), (2, 8)),
    in_flight=(1, 4, 16, 64, 256, 1_000),
    streams=(500, 2_000, 5_000),
    parked=(100, 1_000, 10_000),
    settle_s=32.0,
    live=(10, 100, 1_000),
    past=(10_000, 100_000, 400_000),
    live_with_past=100,
    kills=2,
    replayed=(10_000, 50_000, 150_000),
)
SMALL = Sizes(
    seconds=1.0,
    compiler_s=1.0,
    row_warm_up_s=0.5,
    stacks=((1, 1), (1, 2), (2, 2)),
    in_flight=(1, 8, 32),
    streams=(20, 100),
    parked=(10, 50),
    settle_s=1.0,
    live=(2, 10),
    past=(500, 3_000),
    live_with_past=3,
    kills=1,
    replayed=(500, 3_000),
)
"""Shows that every curve works; the figures mean nothing."""


@contextmanager
def stack_of(
    sizes: Sizes,
    *,
    partitions: int | None = None,
    runtimes: int = 1,
    warm: str = "topic",
    configuration: str = SPEED_CONFIGURATION,
    **settings: str,
) -> Iterator[tuple[Stack, dict[str, str]]]:
    """A stack of its own and its environment, warmed up through the topic or http; taken down at the end."""
    if partitions is not None:
        settings["LOOMLOG_PARTITIONS"] = str(partitions)
    with own_stack(configuration, runtimes=runtimes, **settings) as (stack, environment):
        client(warm, stack, environment, WARM_UP_IN_FLIGHT, sizes.compiler_s, 1.0)
        yield stack, environment
