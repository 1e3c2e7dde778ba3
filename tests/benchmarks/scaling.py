"""`make bench-scale`: how the figures change when there is more of something. Each curve is a file in docs/figures.

    python -m tests.benchmarks.scaling [--curves partitions,in_flight,streams,parked] [--seconds 6] [--folder FOLDER]

    partitions    runs/s through the topic against partitions (1, 2, 4, 8) and runtime processes (1, 2)
    in_flight     latency and runs/s over HTTP against runs in flight, 1 to 1,000
    streams       5,000 open streams of one api process: from an event to its frame, against streams (500, 2,000, 5,000)
    parked        memory and idle CPU against parked runs (100, 1,000, 10,000)

Every curve has stacks of its own, warmed up until the broker's compiler has done its work. The pictures are drawn by
`python -m tests.benchmarks.plots`. Take-overs, rebuilds and replay have commands of their own (`make figures`).
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from tests.benchmarks import parked
from tests.benchmarks.event_to_client import of_file
from tests.benchmarks.machine import machine
from tests.benchmarks.main import Stack, client, cpu_seconds, environment_in, loomlog, up, warm_up
from tests.benchmarks.speed import run_client
from tests.benchmarks.speed_workload import CHATTER, SPEED_CONFIGURATION
from tests.benchmarks.sse_client import allow_streams
from tests.benchmarks.stream_client import spread
from tests.benchmarks.workload import AGENT

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
PARTITIONS = (1, 2, 4, 8)
RUNTIMES = (1, 2)
IN_FLIGHT = (1, 4, 16, 64, 256, 1_000)
TOPIC_IN_FLIGHT = 64
STREAMS = (500, 2_000, 5_000)
PARKED = (100, 1_000, 10_000)
INPUTS_PER_S = 50.0
WARM_UP_S = 2.0

Row = dict[str, Any]


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--curves", default=",".join(CURVES))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--folder", type=Path, default=FIGURES)
    options = parser.parse_args()
    allow_streams(max(STREAMS))  # the api is started by us and has our bound
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.curves.split(","):
        print(f"\n{name}", flush=True)
        facts = machine(options.folder)
        rows = CURVES[name](options.seconds)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        report = {"kind": f"scaling {name}", "at": at, "machine": facts, "rows": rows}
        (options.folder / f"scaling-{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


@contextmanager
def stack_of(*, partitions: int | None = None, runtimes: int = 1, warm: str = "topic") -> Iterator[Any]:
    """A stack of its own and its environment, warmed up through the topic or http; taken down at the end."""
    folder = Path(tempfile.mkdtemp(prefix="loomlog-scaling-"))
    environment = environment_in(folder, SPEED_CONFIGURATION)
    if partitions is not None:
        environment["LOOMLOG_PARTITIONS"] = str(partitions)
    try:
        stack = up(environment, runtimes=runtimes)
        warm_up(stack, environment, [warm])
        yield stack, environment
    finally:
        loomlog("down", environment)
        shutil.rmtree(folder, ignore_errors=True)


def by_partitions(seconds: float) -> list[Row]:
    """Runs a second of A3x2 through the topic, and the CPU of all processes together."""
    rows = []
    for runtimes in RUNTIMES:
        for partitions in PARTITIONS:
            with stack_of(partitions=partitions, runtimes=runtimes) as (stack, environment):
                before = cpu_seconds(stack)
                row = client("topic", stack, environment, TOPIC_IN_FLIGHT, WARM_UP_S, seconds)
                after = cpu_seconds(stack)
            used = {name: after[name] - before[name] for name in before}
            rows.append({"partitions": partitions, "runtimes": runtimes, **row, "cpu_s": used})
            print(
                f"  {partitions} partitions, {runtimes} runtimes: {row['runs_per_s']:.0f} runs/s, "
                f"p50 {row['p50_ms']:.1f} p99 {row['p99_ms']:.1f} ms",
                flush=True,
            )
    return rows


def by_in_flight(seconds: float) -> list[Row]:
    """A3x2 over HTTP and SSE, first text and end."""
    rows = []
    with stack_of(warm="http") as (stack, environment):
        for in_flight in IN_FLIGHT:
            row = run_client("stream_client", environment, stack.api, AGENT, in_flight, WARM_UP_S, seconds)
            rows.append(row)
            print(
                f"  {in_flight} in flight: {row['runs_per_s']:.0f} runs/s, p50 {row['end_ms']['p50']} "
                f"p99 {row['end_ms']['p99']} ms, {row['errors']} errors",
                flush=True,
            )
    return rows


def by_streams(seconds: float) -> list[Row]:
    """From the record of an event to its frame at a client, so many streams open."""
    rows = []
    for streams in STREAMS:
        with stack_of(warm="http") as (stack, environment), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "frames"
            before = cpu_seconds(stack)
            row = run_client(
                "listeners_client", environment, stack.api, CHATTER, streams, INPUTS_PER_S, 2 * seconds, file
            )
            after = cpu_seconds(stack)
            row["event_to_client_ms"] = spread(asyncio.run(of_file(stack.kafka, file)))
            row["api_uss_bytes"] = parked.memory_of(stack)["api"]
            row["cpu_s"] = {name: after[name] - before[name] for name in before}
        rows.append(row)
        print(
            f"  {streams} streams: event to client p50 {row['event_to_client_ms']['p50']} "
            f"p99 {row['event_to_client_ms']['p99']} ms, {row['frames']} frames, {row['errors']} errors, "
            f"{row['ended_early']} ended early, api {row['api_uss_bytes'] / 1e6:.0f} MB",
            flush=True,
        )
    return rows


def by_parked(seconds: float) -> list[Row]:
    """One stack, more and more runs that wait for a person."""
    with stack_of() as (stack, _):
        return asyncio.run(_parked(stack, seconds))


async def _parked(stack: Stack, seconds: float) -> list[Row]:
    rows: list[Row] = []
    options = KafkaOptions(bootstrap=stack.kafka, client_id="scaling-bench")
    ranges, appender = KafkaRanges(options), KafkaAppender(options)
    await ranges.start()
    await appender.start()
    there = 0
    try:
        partitions = await appender.partitions(parked.COMMANDS)
        for runs in PARKED:
            await parked.park(appender, ranges, partitions, runs - there)
            there = runs
            await asyncio.sleep(parked.SETTLE_S)
            row: Row = {"runs": runs, "uss_bytes": parked.memory_of(stack)}
            row["idle_cpu_percent"] = await parked.idle_cpu(stack, seconds)
            rows.append(row)
            ours = sum(row["uss_bytes"][name] for name in parked.OURS)
            print(f"  {runs} parked runs: {' and '.join(parked.OURS)} hold {ours / 1e6:.0f} MB", flush=True)
    finally:
        await appender.close()
        await ranges.close()
    return rows


CURVES: dict[str, Callable[[float], list[Row]]] = {
    "partitions": by_partitions,
    "in_flight": by_in_flight,
    "streams": by_streams,
    "parked": by_parked,
}


if __name__ == "__main__":
    sys.exit(main())
