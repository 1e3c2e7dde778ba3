"""Ours and the raw Kafka floor in short slices that take turns, from one process: the client of `make bench-smoke`.

For each row the floor is measured for a moment, then ours; in the next turn the other way round, and so on. One
process, so that the two differ in nothing but what they measure. A line of JSON for each pair (smoke_verdict.Pair).

    python -m tests.benchmarks.smoke_client BOOTSTRAP HOST:PORT WARM_UP_S SECONDS SLICE_S [PATH:IN_FLIGHT ...]

BENCH_SMOKE_DELAY_MS holds up every run of ours by so much: to see the gate fail.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import uvloop

from tests.benchmarks.closed_loop import measure
from tests.benchmarks.http_client import HttpClient
from tests.benchmarks.memory_http_client import MemoryClient
from tests.benchmarks.peers.kafka_floor import open_floor
from tests.benchmarks.topic_client import open_client
from tests.benchmarks.workload import WRITER

SLICE_WARM_UP_S = 0.1
"""Before each slice is counted: the runs of the other side are over, and the first of this one are out of step."""
OneRun = Callable[[], Awaitable[None]]


async def main(
    bootstrap: str, api: str, warm_up_s: float, seconds: float, slice_s: float, rows: list[tuple[str, int]]
) -> None:
    """Pairs until `seconds` are over, after a warm-up of both."""
    host, _, port = api.rpartition(":")
    token = os.environ.get("LOOMLOG_AUTH_TOKEN", "")
    async with open_client(bootstrap) as topic, open_floor(bootstrap) as floor:
        paths: Mapping[str, OneRun] = {
            "topic": delayed(topic.run_once),
            "http": delayed(HttpClient(host, int(port), token).run_once),
            "writes": delayed(HttpClient(host, int(port), token, agent=WRITER).run_once),
            "put": delayed(MemoryClient(api).put),
        }
        began = time.monotonic()
        turn = 0
        while (elapsed := time.monotonic() - began) < warm_up_s + seconds:
            for path, in_flight in rows:
                floor_first = turn % 2 == 0
                sides = (floor.run_once, paths[path]) if floor_first else (paths[path], floor.run_once)
                rates = []
                for one_run in sides:
                    measured = await measure(one_run, in_flight=in_flight, warm_up_s=SLICE_WARM_UP_S, seconds=slice_s)
                    rates.append(measured.runs_per_s)
                ours, raw = reversed(rates) if floor_first else rates
                if elapsed >= warm_up_s:
                    values = {"row": f"{path}:{in_flight}", "ours": round(ours, 1), "floor": round(raw, 1)}
                    print(json.dumps(values), flush=True)
            turn += 1


def delayed(one_run: OneRun) -> OneRun:
    """The run, held up by BENCH_SMOKE_DELAY_MS."""
    delay_s = float(os.environ.get("BENCH_SMOKE_DELAY_MS", "0")) / 1000
    if not delay_s:
        return one_run

    async def held_up() -> None:
        await asyncio.sleep(delay_s)
        await one_run()

    return held_up


if __name__ == "__main__":
    wanted = [(path, int(text)) for path, _, text in (one.partition(":") for one in sys.argv[6:])]
    uvloop.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), wanted))
