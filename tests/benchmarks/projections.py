"""How fast the read models are, on real parts: `make bench-projections`.

    python -m tests.benchmarks.projections [--events 300000] [--rate 100] [--seconds 30] [--json FILE]

A stack of its own is warmed up by real runs (A3x2), and filled by them until the events topic holds that many records.
Three things are told, the lag before the filling:

    rebuild     `loomlog projections rebuild` of all of it while the stack serves: events a second, and whether the
                tables of both builds are equal (hashes at one position)
    lost        the database is dropped and made anew, the projector begins at offset 0: events a second until it has
                caught up, and whether the tables have the hashes they had before
    lag         runs are started at a fixed rate; for every record of the events topic the time from its append (the
                broker's clock) until its partition's cursor has passed it, seen by a client of Postgres that looks
                every LOOK_S. So a look's interval is in the figure, and so is everything else on this machine
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import sql

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaTail, count_partitions, open_tail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.postgres import PostgresOptions, connect
from loomlog.projections.engine.builds import Builds, TableHash
from loomlog.schemas.producer import start_run_record
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.filling import IN_FLIGHT, fill
from tests.benchmarks.main import Stack, client, loomlog, new_report, options_parser, own_stack, write_report
from tests.benchmarks.workload import AGENT, CONFIGURATION, PROMPT

EVENTS, COMMANDS = "loom.run.events", "loom.run.commands"
PREFIX = "loom"
FIRST_LOAD_S = 20.0
LOOK_S = 0.005
WAIT_S = 300.0
CALM_S = 10.0
"""After the first load, which warms the broker up, and before the lag is measured: the rows it left are vacuumed."""
SETTLE_S = 3.0
"""Load before the lag is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """All events projected once."""

    events: int
    seconds: float
    events_per_s: float
    equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """From append to visible, in milliseconds, of `records` records of `runs_per_s` runs a second."""

    runs_per_s: float
    records: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def main() -> int:
    """The exit code: 1 when rebuilt tables were not equal."""
    parser = options_parser(__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rate", type=float, default=100.0, help="runs a second while the lag is measured")
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    report = new_report("projections")
    with own_stack(CONFIGURATION) as (stack, environment):
        client("topic", stack, environment, IN_FLIGHT, 0.0, FIRST_LOAD_S)
        time.sleep(CALM_S)
        lag = asyncio.run(measure_lag(stack, options.rate, options.seconds))
        print(f"  {lag}", flush=True)
        fill(stack, environment, options.events)
        rebuilt = measure_rebuild(environment)
        print(f"  {rebuilt}", flush=True)
        lost = asyncio.run(measure_lost(stack))
        print(f"  {lost}", flush=True)
    report |= {"rebuild": asdict(rebuilt), "lost": asdict(lost), "lag": asdict(lag)}
    print_report(report)
    write_report(report, options.json)
    return 0 if rebuilt.equal and lost.equal else 1


async def ends(stack: Stack) -> dict[int, int]:
    """The end of every partition of the events topic."""
    tail = await open_events(stack)
    try:
        return dict(await tail.end_offsets())
    finally:
        await tail.close()


async def open_events(stack: Stack) -> KafkaTail:
    """A tail of all partitions from their beginning."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="projections-bench")
    return await open_tail(options, EVENTS, dict.fromkeys(range(await count_partitions(options, EVENTS)), 0))


# --- rebuilds ---------------------------------------------------------------------------------------------------------


def measure_rebuild(environment: dict[str, str]) -> Pass:
    """Beside the live build, which goes on serving."""
    values = json.loads(loomlog("projections rebuild --json", environment, timeout_s=WAIT_S))
    return Pass(
        events=values["events"],
        seconds=values["seconds"],
        events_per_s=values["events"] / values["seconds"],
        equal=values["equal"],
    )


async def measure_lost(stack: Stack) -> Pass:
    """Every table gone; the running projector finds out, makes them anew and begins at offset 0."""
    total = await ends(stack)
    before = await hashes(stack)
    async with await open_database(stack) as connection:
        schemas = [row[0] for row in await rows(connection, SCHEMAS)]
        began = time.perf_counter()
        for schema in schemas:
            await connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
        async with asyncio.timeout(WAIT_S):
            while not await reached(connection, total):
                await asyncio.sleep(LOOK_S)
        took = time.perf_counter() - began
    events = sum(total.values())
    return Pass(events=events, seconds=took, events_per_s=events / took, equal=await hashes(stack) == before)


async def hashes(stack: Stack) -> dict[str, TableHash]:
    """The hashes of the live build's tables."""
    async with await open_database(stack) as connection:
        builds = Builds(connection, PREFIX)
        return await builds.table_hashes((await builds.live()).number)


async def reached(connection: psycopg.AsyncConnection[Any], total: dict[int, int]) -> bool:
    """The cursors stand at the ends."""
    try:
        result = dict(await rows(connection, CURSORS))
    except psycopg.errors.UndefinedTable:
        return False  # not made anew yet
    return all(result.get(partition, 0) >= end for partition, end in total.items())


CURSORS = f"SELECT partition, next_offset FROM {PREFIX}.cursors WHERE topic = '{EVENTS}'"
SCHEMAS = f"SELECT nspname FROM pg_namespace WHERE nspname = '{PREFIX}' OR nspname LIKE '{PREFIX}\\_%'"


async def rows(connection: psycopg.AsyncConnection[Any], query: str) -> list[Any]:
    return await (await connection.execute(query.encode())).fetchall()


async def open_database(stack: Stack) -> psycopg.AsyncConnection[Any]:
    return await connect(PostgresOptions(dsn=stack.postgres))


# --- lag --------------------------------------------------------------------------------------------------------------


async def measure_lag(stack: Stack, rate: float, seconds: float) -> Lag:
    """Starts runs at the rate, whatever becomes of them, and joins what two observers saw."""
    tail = await open_events(stack)
    for partition, end in (await tail.end_offsets()).items():
        tail.seek(partition, end)
    appended: dict[int, list[tuple[int, int]]] = {}
    looks: list[tuple[float, dict[int, int]]] = []
    observers = [asyncio.create_task(read(tail, appended)), asyncio.create_task(look(stack, looks))]
    counting_from = (time.time() + SETTLE_S) * 1000
    began = time.perf_counter()
    started = await start_runs(stack, rate, seconds + SETTLE_S)
    took = time.perf_counter() - began
    counting_until = time.time() * 1000
    await asyncio.sleep(SETTLE_S)  # what was appended last becomes visible
    for observer in observers:
        observer.cancel()
    await asyncio.gather(*observers, return_exceptions=True)
    await tail.close()
    result = sorted(lags(appended, looks, counting_from, counting_until))
    return Lag(
        runs_per_s=round(started / took, 1),
        records=len(result),
        p50_ms=round(percentile(result, 0.5), 1),
        p99_ms=round(percentile(result, 0.99), 1),
        max_ms=round(result[-1], 1),
    )


async def start_runs(stack: Stack, rate: float, seconds: float) -> int:
    """An open loop: the next command leaves when it is due."""
    appender = KafkaAppender(KafkaOptions(bootstrap=stack.kafka, client_id="projections-bench"))
    await appender.start()
    partitions = await appender.partitions(COMMANDS)
    began, sent, waiting = time.perf_counter(), 0, set[asyncio.Task[int]]()
    while (due := began + sent / rate) < began + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        record = start_run_record(agent=AGENT, prompt=PROMPT)
        assert record.key is not None
        command = ProducerRecord(key=record.key, value=record.value, headers=record.headers)
        task = asyncio.create_task(appender.append(COMMANDS, partition_of(record.key, partitions), [command]))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        sent += 1
    await asyncio.gather(*waiting)
    await appender.close()
    return sent


async def read(tail: KafkaTail, appended: dict[int, list[tuple[int, int]]]) -> None:
    """Offset and time of append of every record."""
    while True:
        for partition, records in (await tail.poll(timeout_s=0.5)).items():
            appended.setdefault(partition, []).extend((record.offset, record.timestamp) for record in records)


async def look(stack: Stack, looks: list[tuple[float, dict[int, int]]]) -> None:
    """Where the cursors stand, again and again."""
    async with await open_database(stack) as connection:
        while True:
            result = dict(await rows(connection, CURSORS))
            looks.append((time.time() * 1000, result))
            await asyncio.sleep(LOOK_S)


def lags(
    appended: dict[int, list[tuple[int, int]]],
    looks: Sequence[tuple[float, dict[int, int]]],
    counting_from: float,
    counting_until: float,
) -> list[float]:
    """Milliseconds from append to the first look at which the cursor had passed. Raises ValueError for one unseen."""
    result = []
    for partition, records in appended.items():
        seen = iter(looks)
        at_ms, cursors = next(seen)
        for offset, timestamp in records:
            while cursors.get(partition, 0) <= offset:
                try:
                    at_ms, cursors = next(seen)
                except StopIteration:
                    raise ValueError(f"the record at {partition}:{offset} was never projected") from None
            if counting_from <= timestamp < counting_until:
                result.append(max(0.0, at_ms - timestamp))
    return result


def print_report(report: dict[str, Any]) -> None:
    """The table for people."""
    lag = report["lag"]
    print(f"\nRead models; {report['machine']}, {report['at']}")
    for name in ("rebuild", "lost"):
        one = report[name]
        equal = "rows equal" if one["equal"] else "ROWS DIFFER"
        print(
            f"{name:9}{one['events']:>10} events in {one['seconds']:.1f} s: {one['events_per_s']:.0f} events/s, {equal}"
        )
    print(
        f"lag      {lag['records']:>10} records at {lag['runs_per_s']} runs/s: "
        f"p50 {lag['p50_ms']} ms, p99 {lag['p99_ms']} ms, max {lag['max_ms']} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
