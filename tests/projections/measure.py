"""Speed of the projection of runs: events per second in large polls, and the lag of small ones.

    python -m tests.projections.measure DSN

Prints and asserts nothing. The workload is A3x2 (12 events per run, texts of 1,000 characters). Creates and drops the
schemas measure and measure_1.
"""

import asyncio
import sys
import time
from collections.abc import Sequence

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.projections.engine.builds import Builds
from loomlog.projections.engine.run_projection import RunProjection
from tests.projections.stories import TOPIC, Partition, many_runs

POLL_EVENTS = 5_000
RUNS = 4_000
EVENTS_PER_SECOND = 1_200
LAG_SECONDS = 10


async def main(dsn: str) -> None:
    connection = await connect(PostgresOptions(dsn=dsn))
    for partitions in (1, 4):
        await fresh(connection)
        await throughput(connection, partitions)
    await fresh(connection)
    await lag(connection)
    await drop(connection)
    await connection.close()


async def drop(connection) -> None:  # type: ignore[no-untyped-def]  # a script
    for schema in ("measure", "measure_1"):
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


async def fresh(connection) -> None:  # type: ignore[no-untyped-def]  # a script
    await drop(connection)
    await Builds(connection, "measure").prepare()


def filled(partitions: int, runs: int) -> list[Partition]:
    filled_partitions = []
    for number in range(partitions):
        partition = Partition()
        partition.claim()
        many_runs(partition, [f"r_01jd{number:04d}{run:018d}" for run in range(runs // partitions)], at_once=50)
        filled_partitions.append(partition)
    return filled_partitions


async def throughput(connection, partitions: int) -> None:  # type: ignore[no-untyped-def]  # a script
    log = MemoryLog({TOPIC: partitions})
    for number, partition in enumerate(filled(partitions, RUNS)):
        log.put(TOPIC, number, partition.outgoing())
    projection = RunProjection(connection, Builds(connection, "measure").build(1), TOPIC, owner="measure")
    tail = log.tail(TOPIC, await projection.claim(range(partitions)))
    events, began, used = 0, time.perf_counter(), time.process_time()
    while polled := await tail.poll(timeout_s=0.01, max_records=POLL_EVENTS // partitions):
        events += (await projection.apply(polled)).events
    took = time.perf_counter() - began
    print(
        f"{partitions} partition(s): {events} events in polls of {POLL_EVENTS}: {events / took:,.0f} events/s; "
        f"this process used {(time.process_time() - used) / took:.0%} of a core"
    )


async def lag(connection) -> None:  # type: ignore[no-untyped-def]  # a script
    source = filled(1, EVENTS_PER_SECOND * LAG_SECONDS // 12)[0].outgoing()
    log = MemoryLog({TOPIC: 1})
    projection = RunProjection(connection, Builds(connection, "measure").build(1), TOPIC, owner="measure")
    tail = log.tail(TOPIC, await projection.claim([0]))
    times: list[float] = []
    lags: list[float] = []

    async def produce() -> None:
        began = time.perf_counter()
        for sent in range(0, len(source), 12):
            await asyncio.sleep(max(0.0, began + sent / EVENTS_PER_SECOND - time.perf_counter()))
            times.extend([time.perf_counter()] * len(source[sent : sent + 12]))
            log.put(TOPIC, 0, source[sent : sent + 12])

    producer = asyncio.create_task(produce())
    done = polls = 0
    used = time.process_time()
    while done < len(source):
        polled = await tail.poll(timeout_s=1)
        if polled:
            await projection.apply(polled)
            now = time.perf_counter()
            lags += [now - at for at in times[done : done + len(polled[0])]]
            done += len(polled[0])
            polls += 1
    await producer
    print(
        f"{EVENTS_PER_SECOND} events/s for {LAG_SECONDS} s in {polls} polls: lag p50 {quantile(lags, 0.5):.1f} ms, "
        f"p99 {quantile(lags, 0.99):.1f} ms, max {max(lags) * 1000:.1f} ms; "
        f"this process used {(time.process_time() - used) / LAG_SECONDS:.0%} of a core"
    )


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)] * 1000


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
