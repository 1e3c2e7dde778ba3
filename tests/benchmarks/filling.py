"""A past: real runs (A3x2) through the topic until the log holds so many events."""

import asyncio

from loomlog.connectors.kafka import KafkaOptions, KafkaRanges, count_partitions
from tests.benchmarks.main import Stack, client

EVENTS = "loom.run.events"
EVENTS_OF_A_RUN = 12
IN_FLIGHT = 128
FIRST_S = 2.0
"""The first chunk tells how fast this hour is."""
CHUNK_S = 20.0


def fill(stack: Stack, environment: dict[str, str], events: int) -> int:
    """Runs until the events topic is at least that long; how long it is."""
    seconds = FIRST_S
    while (there := asyncio.run(events_in(stack))) < events:
        row = client("topic", stack, environment, IN_FLIGHT, 0.0, seconds)
        print(f"  {there} of {events} events, {row['runs_per_s']:.0f} runs/s", flush=True)
        seconds = next_chunk_s(events - asyncio.run(events_in(stack)), row["runs_per_s"])
    return there


def next_chunk_s(missing: int, runs_per_s: float) -> float:
    """Seconds of load that bring what is missing, at most CHUNK_S, so that small logs are not overshot."""
    return min(CHUNK_S, max(0.5, missing / EVENTS_OF_A_RUN / max(runs_per_s, 1.0)))


async def events_in(stack: Stack) -> int:
    """Records of all partitions of the events topic."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="filling-bench")
    ranges = KafkaRanges(options)
    await ranges.start()
    try:
        count = await count_partitions(options, EVENTS)
        return sum([await ranges.end_offset(EVENTS, number) for number in range(count)])
    finally:
        await ranges.close()
