"""What a run that rests costs its owner, in one process and without a broker.

    python -m tests.benchmarks.resting [--runs 100000] [--traced]        (part of `make bench-parked`)

Takes over the partitions of one runtime with so many parked runs, from a snapshots topic that is made while it is read.
Printed: how long that takes, and the bytes of a run, by the process's own memory. `--traced` prints the lines that
allocated what is left (tracemalloc, which makes it ten times as slow).
"""

import argparse
import asyncio
import gc
import secrets
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psutil

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, LogRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import PartitionCheckpoint, RunSnapshot
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.records import replace
from loomlog.services.core.run.state import Parked
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.partition.resting import StateLoader, is_resting, snapshot_token
from loomlog.services.stream.snapshots.snapshots import CHECKPOINT_KEY, ConsistentCut, Snapshots
from tests.services.core.run.given import answered, begun
from tests.services.stream.outside import TOPICS, Definitions, Index

PARTITIONS = 8
PROMPT_CHARACTERS = 1_000
CHUNK_RECORDS = 500
NOW_MS = 1_700_000_000_000
CODEC = local_codec()
FAMILY = RunFamily()


class MadeTopic:
    """A snapshots topic of parked runs, made anew whenever it is read (protocol LogRanges, as far as `load` needs)."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        run = begun(interactive=True, prompt="x" * PROMPT_CHARACTERS)
        run.give(answered(run.state, "y" * 100))
        assert isinstance(run.state, Parked)
        self._state = run.state

    async def beginning_offset(self, topic: str, partition: int) -> int:
        return 0

    async def end_offset(self, topic: str, partition: int) -> int:
        return self._runs + 1

    async def read(self, topic: str, partition: int, start: int, end: int) -> Any:
        @asynccontextmanager
        async def opened() -> AsyncIterator[AsyncIterator[Sequence[LogRecord]]]:
            yield self._chunks(topic, partition)

        return opened()

    async def _chunks(self, topic: str, partition: int) -> AsyncIterator[Sequence[LogRecord]]:
        total = 0
        chunk: list[LogRecord] = []
        record = partial(ConsumerRecord, topic, partition)
        for offset in range(self._runs):
            snapshot = self._snapshot(offset)
            token = snapshot_token(snapshot.run_id, snapshot.seq, snapshot.state_sha256)
            total += int.from_bytes(token)
            chunk.append(record(offset, 0, snapshot.run_id.encode(), CODEC.encode(snapshot), ()))
            if len(chunk) == CHUNK_RECORDS:
                yield chunk
                chunk = []
        checkpoint = PartitionCheckpoint(
            partition=partition,
            term=0,
            next_offset=10 * self._runs,
            command_offset=self._runs,
            live_runs=self._runs,
            tokens_sum=(total % (1 << 128)).to_bytes(16),
            at_ms=NOW_MS,
            reducer_version=FAMILY.reducer_version,
        )
        chunk.append(record(self._runs, 0, CHECKPOINT_KEY, CODEC.encode(checkpoint), ()))
        yield chunk

    def _snapshot(self, number: int) -> RunSnapshot:
        token = fresh_token(NOW_MS + number, secrets.token_bytes(10))
        facts = replace(
            self._state.facts, run_id=f"r_{token}", session_id=f"s_{token}", agent_id=f"a_{token}", traceparent=token
        )
        data = FAMILY.states.encode(replace(self._state, facts=facts))
        return RunSnapshot(
            run_id=f"r_{token}",
            key=token.encode(),
            tenant="default",
            first_offset=1_000_000 + 4 * number,
            last_offset=1_000_003 + 4 * number,
            seq=4,
            tail_digest=secrets.token_bytes(16),
            reducer_version=FAMILY.reducer_version,
            state_sha256=secrets.token_hex(32),
            state=data,
            rests=True,
            agent=facts.definition.name,
        )


async def take_over(runs: int) -> list[Any]:
    """What the owner of the partitions has of the runs, as PartitionOwner.claim leaves it."""
    log = MemoryLog({})
    context = RunContext(
        family=FAMILY,
        partitions=PARTITIONS,
        definitions=Definitions(),
        index=Index(log, PARTITIONS),
        ended_runs=EndedAggregates(FAMILY, CODEC, log, TOPICS.events),
        run_summaries=RunSummaries(CODEC, log, topic="summaries", clock_ms=lambda: NOW_MS),
        clock_ms=lambda: NOW_MS,
    )
    topic: Any = MadeTopic(runs // PARTITIONS)
    snapshots = Snapshots(FAMILY, CODEC, appender=log, ranges=topic, topic=TOPICS.snapshots)
    kept: list[Any] = [snapshots]
    for number in range(PARTITIONS):
        folded = PartitionFold(FAMILY, CODEC, await snapshots.load(number, 0))
        handler = RunCommandHandler(context, number=number, known_since_ms=NOW_MS, forgotten_until=1)
        loader = StateLoader(number, FAMILY, snapshots, handler.refold)
        aggregates: dict[str, Aggregate] = {}
        for aggregate in await handler.live(folded.fold, loader.load):
            assert is_resting(aggregate)
            aggregates[aggregate.id] = aggregate
            handler.live_found(aggregate)
        assert len(aggregates) == runs // PARTITIONS
        kept += [handler, aggregates]
    return kept


def own_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_full_info().uss)


async def measure(runs: int, *, traced: bool) -> None:
    """Take over twice: the first time, with few runs, fills what is no run's."""
    first = await take_over(PARTITIONS)
    before = own_bytes()
    if traced:
        tracemalloc.start()
    began = time.monotonic()
    kept = await take_over(runs)
    took_s = time.monotonic() - began
    after = own_bytes()
    print(f"{runs} runs that rest: {(after - before) / runs:.0f} bytes each, taken over in {took_s:.1f} s")
    if traced:
        gc.collect()
        for line in tracemalloc.take_snapshot().statistics("lineno")[:16]:
            place = line.traceback[0]
            print(f"{line.size / runs:8.0f} bytes {place.filename.rpartition('/loomlog/')[2]}:{place.lineno}")
    began = time.monotonic()
    for aggregates in kept[2::2]:
        ConsistentCut.of(aggregates)
    print(f"a cut through all of them: {1000 * (time.monotonic() - began):.0f} ms")
    assert first


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--traced", action="store_true", help="print which lines have allocated it")
    options = parser.parse_args()
    asyncio.run(measure(options.runs, traced=options.traced))
    return 0


if __name__ == "__main__":
    sys.exit(main())
