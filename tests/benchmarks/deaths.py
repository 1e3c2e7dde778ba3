"""`make bench-deaths`: for how long no run ends when owners are killed one after the other, with two spares.

    python -m tests.benchmarks.deaths [--deaths 12] [--apart 8,3.5]

Four runs are in flight without a pause over HTTP + SSE, each some hundredths of a second long. Every so many seconds
the runtime that works is killed with SIGKILL; the figure of a death is the longest time between two ends of runs until
the next one. Goals: 1 s for a death that is 5 s after the one before, 4 s otherwise.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import psutil

from tests.benchmarks.http_client import HttpClient
from tests.benchmarks.main import loomlog, own_stack
from tests.benchmarks.workload import CONFIGURATION

IN_FLIGHT = 4
SPARES = 2
WARM_UP_S = 20.0
WATCHED_S = 0.8
"""For so long the runtimes are watched to learn which one works."""
FIRST_S = 8.0
"""From the change of the interval to the next death, so that the spares are there again."""


def main() -> int:
    """The exit code: 0 when every death was measured and no run failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--deaths", type=int, default=12)
    parser.add_argument("--apart", default="8,3.5", help="seconds between two deaths")
    options = parser.parse_args()
    with own_stack(CONFIGURATION, spares=SPARES) as (_, environment):
        return asyncio.run(measure(environment, options.deaths, [float(text) for text in options.apart.split(",")]))


async def measure(environment: dict[str, str], deaths: int, intervals: list[float]) -> int:
    """Kill owners at each interval, and print the figures."""
    host, _, port = environment["LOOMLOG_LISTEN_ADDR"].rpartition(":")
    client = HttpClient(host, int(port), "")
    ends: list[float] = []
    failed: list[str] = []

    async def run_on() -> None:
        while True:
            try:
                await client.run_once()
                ends.append(time.monotonic())
            except (OSError, RuntimeError, TimeoutError) as error:
                failed.append(str(error)[:200])
                await asyncio.sleep(0.05)

    running = [asyncio.create_task(run_on()) for _ in range(IN_FLIGHT)]
    await asyncio.sleep(WARM_UP_S)
    for apart_s in intervals:
        kills = [await kill_worker(environment, time.monotonic())]
        for _ in range(deaths - 1):
            kills.append(await kill_worker(environment, kills[-1] + apart_s))
        await asyncio.sleep(apart_s)
        stalls = sorted(longest_stalls(kills, ends, until=time.monotonic()))
        between = [later - earlier for earlier, later in pairwise(kills)]
        listed = " ".join(f"{stall:.2f}" for stall in stalls)
        print(f"  {apart_s:g} s apart ({max(between):.1f} at most): longest {stalls[-1]:.2f} s of {listed}", flush=True)
        await asyncio.sleep(FIRST_S)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    print(f"  {len(ends)} runs ended, {len(failed)} failed", *failed[:3], flush=True)
    return 1 if failed else 0


async def kill_worker(environment: dict[str, str], at: float) -> float:
    """Kill the runtime that works, at that time or as soon as it is known after it; return when."""
    pid = await working_runtime(environment)
    await asyncio.sleep(at - time.monotonic())
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def longest_stalls(kills: Sequence[float], ends: Sequence[float], *, until: float) -> list[float]:
    """Return the longest time without an end of a run after each kill, until the next one; the last until `until`."""
    stalls = []
    for killed, following in pairwise([*kills, until]):
        seen = [killed, *(at for at in ends if killed < at < following), following]
        stalls.append(max(later - earlier for earlier, later in pairwise(seen)))
    return stalls


async def working_runtime(environment: dict[str, str]) -> int:
    """The process id of the runtime that uses the most CPU now."""
    status = json.loads(await asyncio.to_thread(loomlog, "status --json", environment))
    pids = [child["pid"] for child in status["children"] if child["name"].startswith("runtime") and child["pid"]]
    before = {pid: cpu_s(pid) for pid in pids}
    await asyncio.sleep(WATCHED_S)
    return max(pids, key=lambda pid: cpu_s(pid) - before[pid])


def cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.exit(main())
