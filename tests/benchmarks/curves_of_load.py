"""Curves of what a stack carries: partitions, runs in flight, open streams, parked runs.

Before: scaling.py. After: the clients of topic, HTTP and streams; parked.py.
"""

import asyncio
import tempfile
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.services.cli.stack.ports import pick_port
from tests.benchmarks import parked
from tests.benchmarks.curves import Row, Sizes, stack_of
from tests.benchmarks.event_to_client import of_file
from tests.benchmarks.main import Stack, client, cpu_seconds
from tests.benchmarks.speed import run_client
from tests.benchmarks.speed_workload import CHATTER
from tests.benchmarks.sse_client import allow_streams
from tests.benchmarks.stream_client import spread
from tests.benchmarks.workload import AGENT

TOPIC_IN_FLIGHT = 64
INPUTS_PER_S = 50.0
FLUSHES = "loomlog_flushes_total"
SCRAPE_TIMEOUT_S = 10.0


def by_partitions(sizes: Sizes) -> list[Row]:
    """Runs a second of A3x2 through the topic, the CPU of each process, and the flushes of a lone runtime."""
    rows = []
    for runtimes, partitions in sizes.stacks:
        port = pick_port()
        with stack_of(sizes, partitions=partitions, runtimes=runtimes, LOOMLOG_RUNTIME_METRICS_PORT=str(port)) as (
            stack,
            environment,
        ):
            before, flushed = cpu_seconds(stack), flushes(port) if runtimes == 1 else 0.0
            row = client("topic", stack, environment, TOPIC_IN_FLIGHT, sizes.row_warm_up_s, sizes.seconds)
            after = cpu_seconds(stack)
            # What the client's warm-up ran is in CPU and flushes: they are of all its time.
            runs = row["runs_per_s"] * (row["seconds"] + sizes.row_warm_up_s)
            row["cpu_ms_per_run"] = {name: (after[name] - before[name]) * 1000 / runs for name in before}
            if runtimes == 1:
                row["flushes_per_run"] = (flushes(port) - flushed) / runs
        rows.append({"partitions": partitions, "runtimes": runtimes, **row})
        print(
            f"  {partitions} partitions, {runtimes} runtimes: {row['runs_per_s']:.0f} runs/s, "
            f"p50 {row['p50_ms']:.1f} p99 {row['p99_ms']:.1f} ms, {row['errors']} errors",
            flush=True,
        )
    return rows


def flushes(port: int) -> float:
    """Group commits so far of the runtime whose metrics are at this port of the machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SCRAPE_TIMEOUT_S) as answer:
        text = answer.read().decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == FLUSHES
    )


def by_in_flight(sizes: Sizes) -> list[Row]:
    """A3x2 over HTTP and SSE, first text and end."""
    rows = []
    with stack_of(sizes, warm="http") as (stack, environment):
        for in_flight in sizes.in_flight:
            warm_up_s, seconds = sizes.row_warm_up_s, sizes.seconds
            row = run_client("stream_client", environment, stack.api, AGENT, in_flight, warm_up_s, seconds)
            rows.append(row)
            print(
                f"  {in_flight} in flight: {row['runs_per_s']:.0f} runs/s, p50 {row['end_ms']['p50']} "
                f"p99 {row['end_ms']['p99']} ms, {row['errors']} errors",
                flush=True,
            )
    return rows


def by_streams(sizes: Sizes) -> list[Row]:
    """From the record of an event to its frame at a client, so many streams open at one api process."""
    allow_streams(max(sizes.streams))  # the api is started by us and has our bound
    rows = []
    for streams in sizes.streams:
        with stack_of(sizes, warm="http") as (stack, environment), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "frames"
            empty = parked.memory_of(stack)["api"]
            before = cpu_seconds(stack)
            seconds = 2 * sizes.seconds
            row = run_client("listeners_client", environment, stack.api, CHATTER, streams, INPUTS_PER_S, seconds, file)
            after = cpu_seconds(stack)
            row["event_to_client_ms"] = spread(asyncio.run(of_file(stack.kafka, file)))
            row["api_uss_bytes"] = parked.memory_of(stack)["api"]
            row["api_uss_bytes_before"] = empty
            row["inputs_per_s"] = INPUTS_PER_S
            row["cpu_s"] = {name: after[name] - before[name] for name in before}
        rows.append(row)
        print(
            f"  {streams} streams: event to client p50 {row['event_to_client_ms']['p50']} "
            f"p99 {row['event_to_client_ms']['p99']} ms, {row['frames']} frames, {row['errors']} errors, "
            f"{row['ended_early']} ended early, api {row['api_uss_bytes'] / 1e6:.0f} MB",
            flush=True,
        )
    return rows


def by_parked(sizes: Sizes) -> list[Row]:
    """One stack, more and more runs that wait for a person."""
    with stack_of(sizes) as (stack, _):
        return asyncio.run(_parked(stack, sizes))


async def _parked(stack: Stack, sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    options = KafkaOptions(bootstrap=stack.kafka, client_id="scaling-bench")
    ranges, appender = KafkaRanges(options), KafkaAppender(options)
    await ranges.start()
    await appender.start()
    there = 0
    try:
        partitions = await appender.partitions(parked.COMMANDS)
        for runs in sizes.parked:
            await parked.park(appender, ranges, partitions, runs - there)
            there = runs
            await asyncio.sleep(sizes.settle_s)
            row: Row = {"runs": runs, "uss_bytes": parked.memory_of(stack)}
            row["idle_cpu_percent"] = await parked.idle_cpu(stack, sizes.seconds)
            rows.append(row)
            ours = sum(row["uss_bytes"][name] for name in parked.OURS)
            print(f"  {runs} parked runs: {' and '.join(parked.OURS)} hold {ours / 1e6:.0f} MB", flush=True)
    finally:
        await appender.close()
        await ranges.close()
    return rows
