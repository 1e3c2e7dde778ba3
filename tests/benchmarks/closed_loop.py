"""A closed loop: C workers, each starting its next run when the last one has ended, for a while; and what it took.

The clock of a run starts before its command is made and stops when its end is seen. A row counts the runs that END
while it is counted, wherever they began: a system whose runs take seconds would otherwise lose most of what it did.
Runs tend to end in waves of C, so counting begins where a wave is over, the first at least, and ends where one is,
after WAVES of them at least: a moment cut anywhere else would count one wave or two by chance. Where a wave is over is
when its last run ended, and not when the time was up, which may be nearly a wave later. Runs still open at the end are
waited for and not counted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

WAVES = 2
"""However slow they are."""
WAVE_MOST_S = 60.0
"""Waiting longer for a wave tells of a system that does not answer; its row then has few runs and says so itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row: runs that ended in `seconds` with `in_flight` at once; latencies in milliseconds."""

    in_flight: int
    seconds: float
    runs: int
    runs_per_s: float
    p50_ms: float
    p99_ms: float
    errors: int
    client_cpu_s: float
    """What this process used meanwhile, warm-up included."""
    took_ms: list[float]
    """Every latency, in order: for who puts rows of several processes together."""

    def as_json(self) -> dict[str, float]:
        """Without the single latencies."""
        return {name: value for name, value in asdict(self).items() if name != "took_ms"}


def percentile(ordered: list[float], share: float) -> float:
    """The value below which that share of the ordered values lies; 0 when there are none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def tell(mark: str) -> None:
    """Marks for whoever started this process: it reads its meters when they come (tests/benchmarks/slot.py)."""
    print(mark, flush=True)


async def measure(
    one_run: Callable[[], Awaitable[None]],
    *,
    in_flight: int,
    warm_up_s: float,
    seconds: float,
    mark: Callable[[str], None] = lambda _: None,
) -> Measured:
    """Drive `one_run` from `in_flight` workers for at least `seconds`. An exception is an error and ends nothing.

    `mark` is called with "counting" and "counted" where the counted time begins and ends.
    """
    took_ms: list[float] = []
    ended = errors = 0
    last_end = time.perf_counter()
    counting = over = False
    awaited = 0
    wave = asyncio.Event()
    cpu_before_s = time.process_time()

    async def worker() -> None:
        nonlocal ended, errors, last_end
        while not over:
            start = time.perf_counter()
            try:
                await one_run()
            except (OSError, RuntimeError, TimeoutError):
                errors += 1
                await asyncio.sleep(0)  # one that fails at once must not keep the clock from its turn
                continue
            ended += 1
            last_end = time.perf_counter()
            if counting:
                took_ms.append((last_end - start) * 1000)
            if ended >= awaited:
                wave.set()

    async def wave_is_over(*, since: int, least: int) -> None:
        nonlocal awaited
        awaited = since + in_flight * max(least, -(-(ended - since) // in_flight))
        if ended >= awaited:
            return
        wave.clear()
        try:
            async with asyncio.timeout(WAVE_MOST_S):
                await wave.wait()
        except TimeoutError:
            pass  # the row tells it

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(worker())
        await asyncio.sleep(warm_up_s)
        await wave_is_over(since=0, least=1)
        mark("counting")
        before, began, counting = ended, last_end, True
        await asyncio.sleep(seconds)
        await wave_is_over(since=before, least=WAVES)
        counting, counted_s = False, last_end - began
        mark("counted")
        over = True
    took_ms.sort()
    return Measured(
        in_flight=in_flight,
        seconds=counted_s,
        runs=len(took_ms),
        runs_per_s=len(took_ms) / counted_s if took_ms else 0.0,
        p50_ms=percentile(took_ms, 0.50),
        p99_ms=percentile(took_ms, 0.99),
        errors=errors,
        client_cpu_s=time.process_time() - cpu_before_s,
        took_ms=took_ms,
    )
