"""A closed loop: C workers, each starting its next run when the last one has ended, for a while; and what it took.

The clock of a run starts before its command is made and stops when its end is seen. Runs that began during the warm-up
count for nothing; runs still open at the end of the time are waited for and not counted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row: runs in `seconds` with `in_flight` at once; latencies in milliseconds."""

    in_flight: int
    seconds: float
    runs: int
    runs_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    client_cpu_s: float
    """What this process used meanwhile, warm-up included."""

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def percentile(ordered: list[float], share: float) -> float:
    """The value below which that share of the ordered values lies; 0 when there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


async def measure(
    one_run: Callable[[], Awaitable[None]], *, in_flight: int, warm_up_s: float, seconds: float
) -> Measured:
    """Drive `one_run` from `in_flight` workers. An exception counts as an error and ends nothing."""
    took_ms: list[float] = []
    errors = 0
    began, cpu_before_s = time.perf_counter(), time.process_time()
    counting_from, until = began + warm_up_s, began + warm_up_s + seconds

    async def worker() -> None:
        nonlocal errors
        while (start := time.perf_counter()) < until:
            try:
                await one_run()
            except (OSError, RuntimeError, TimeoutError):
                errors += 1
                continue
            end = time.perf_counter()
            if start >= counting_from and end <= until:
                took_ms.append((end - start) * 1000)

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    took_ms.sort()
    return Measured(
        in_flight=in_flight,
        seconds=seconds,
        runs=len(took_ms),
        runs_per_s=len(took_ms) / seconds,
        p50_ms=percentile(took_ms, 0.50),
        p99_ms=percentile(took_ms, 0.99),
        errors=errors,
        client_cpu_s=time.process_time() - cpu_before_s,
    )
