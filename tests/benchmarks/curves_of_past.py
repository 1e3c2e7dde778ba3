"""Curves of what lies in the log: take-overs against live runs and history, and how fast the log is read again.

A replay here reads events from the broker, from the beginning of each partition on, and folds each run anew, in one
process: once straight through, as an owner that takes over does, and once as `loomlog replay` proves a run, where every
state is also written and read back. A run that drifts is an error.

Before: scaling.py. After: takeover.py, projections.py, services/core/run/history/replay.py.
"""

import asyncio
import time
from dataclasses import asdict, replace

from loomlog.connectors.kafka import KafkaOptions, KafkaRanges
from loomlog.projections.engine.builds import Builds
from loomlog.schemas.codec import local_codec
from loomlog.schemas.reader import TermReader
from loomlog.services.core.run.history.replay import RunFold
from tests.benchmarks import projections, takeover
from tests.benchmarks.curves import Row, Sizes, stack_of
from tests.benchmarks.filling import EVENTS, events_in, fill
from tests.benchmarks.main import Stack

FOLDED, PROVEN = 60_000, 12_000
"""Events after which a replay has shown how fast it is; proving takes a fraction of a millisecond each."""
STATISTICS_S = 11.0
"""After which Postgres's backends have told what they did: an idle one does so within 10 seconds."""
RUN_ID = "r_"
"""What the ids of runs begin with; the topic has aggregates of other kinds too."""


def by_live_runs(sizes: Sizes) -> list[Row]:
    """A partition with a short past and more and more live runs, its only runtime killed."""
    rows: list[Row] = []
    with stack_of(sizes, partitions=1) as (stack, environment):
        there = 0
        for live in sizes.live:
            print(f"  {live} live runs", flush=True)
            kills = asyncio.run(takeover.measure(stack, environment, live, sizes.kills, there=there))
            there = live
            rows.append(
                {"live": live, "events": asyncio.run(events_in(stack)), "kills": [asdict(one) for one in kills]}
            )
    return rows


def by_history(sizes: Sizes) -> list[Row]:
    """A partition with a growing past and always as many live runs, its only runtime killed."""
    rows: list[Row] = []
    with stack_of(replace(sizes, compiler_s=sizes.row_warm_up_s), partitions=1) as (stack, environment):
        there = 0
        for past in sizes.past:
            events = fill(stack, environment, past)
            live = sizes.live_with_past
            print(f"  {events} events", flush=True)
            kills = asyncio.run(takeover.measure(stack, environment, live, 1, there=there))
            there = live
            rows.append({"events": events, "live": live, "kills": [asdict(one) for one in kills]})
    return rows


def by_replay(sizes: Sizes) -> list[Row]:
    """Events a second of a rebuild, of a lost database and of both replays, against the length of the log.

    Raises ValueError when rebuilt tables differ or a run drifts.
    """
    rows: list[Row] = []
    with stack_of(replace(sizes, compiler_s=sizes.row_warm_up_s)) as (stack, environment):
        for length in sizes.replayed:
            events = fill(stack, environment, length)
            asyncio.run(until_projected(stack))
            rebuilt = projections.measure_rebuild(environment)
            lost = asyncio.run(projections.measure_lost(stack))
            if not (rebuilt.equal and lost.equal):
                raise ValueError(f"rebuilt tables differ at {events} events: {rebuilt}, {lost}")
            row: Row = {
                "events": events,
                "rebuild_events_per_s": rebuilt.events_per_s,
                "lost_events_per_s": lost.events_per_s,
                "fold_events_per_s": asyncio.run(replayed(stack, FOLDED, through_bytes=False)),
                "proof_events_per_s": asyncio.run(replayed(stack, PROVEN, through_bytes=True)),
            }
            rows.append(row)
            print(
                f"  {events} events: rebuild {rebuilt.events_per_s:.0f}, lost database {lost.events_per_s:.0f}, "
                f"fold {row['fold_events_per_s']:.0f}, proof {row['proof_events_per_s']:.0f} events/s",
                flush=True,
            )
        time.sleep(STATISTICS_S)
        rows[-1] |= asyncio.run(written(stack))
    return rows


async def until_projected(stack: Stack) -> None:
    """The projector is not still busy with what was filled."""
    total = await projections.ends(stack)
    async with await projections.open_database(stack) as connection, asyncio.timeout(projections.WAIT_S):
        while not await projections.reached(connection, total):
            await asyncio.sleep(takeover.LOOK_S)


async def replayed(stack: Stack, most: int, *, through_bytes: bool) -> float:
    """Events a second of a fold of the runs in the log, of `most` events at least where there are so many.

    Raises ValueError for a run that drifts.
    """
    codec = local_codec()
    ranges = KafkaRanges(KafkaOptions(bootstrap=stack.kafka, client_id="replay-bench"))
    await ranges.start()
    folds: dict[str, RunFold] = {}
    began, events = time.perf_counter(), 0
    try:
        for number in await projections.ends(stack):
            if events >= most:
                break
            reader = TermReader(codec=codec)
            async with await ranges.read(EVENTS, number, 0, await ranges.end_offset(EVENTS, number)) as chunks:
                async for chunk in chunks:
                    for record in chunk:
                        event = reader.read(record.offset, record.value)
                        if event is None or not event.aggregate.startswith(RUN_ID):
                            continue
                        fold = folds.get(event.aggregate)
                        if fold is None:
                            fold = RunFold(event.aggregate, codec=codec, checks_roundtrip=through_bytes)
                            folds[event.aggregate] = fold
                        fold.apply(event)
                        events += 1
                    if events >= most:
                        break
        for run_id, fold in folds.items():
            if drift := fold.result().drift:
                raise ValueError(f"{run_id} drifts: {drift[0]}")
        return events / (time.perf_counter() - began)
    finally:
        await ranges.close()


async def written(stack: Stack) -> Row:
    """What the newest build of the read models takes: rows written, and bytes of each table with its indexes."""
    async with await projections.open_database(stack) as connection:
        builds = Builds(connection, projections.PREFIX)
        schema = builds.build((await builds.live()).number).schema
        await connection.execute("SELECT pg_stat_force_next_flush()")
        result = await projections.rows(
            connection,
            "SELECT relname, n_tup_ins + n_tup_upd, pg_total_relation_size(relid) FROM pg_stat_user_tables "
            f"WHERE schemaname = '{schema}' ORDER BY 3 DESC",
        )
    return {
        "rows_written": {name: int(count) for name, count, _ in result},
        "table_bytes": {name: int(size) for name, _, size in result},
    }
