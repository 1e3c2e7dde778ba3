"""How long a partition is without an owner after kill -9, with a long past and many live runs: `make bench-takeover`.

    python -m tests.benchmarks.takeover [--events 1000000] [--live 1000] [--kills 3] [--json FILE]

A stack of its own with one partition is filled by real runs (A3x2) until the events topic holds that many records; then
so many runs are started whose model does not answer for ten minutes. Once a checkpoint covers them the runtime is
killed, first as the only one, and then, after the stack was started again with a spare, beside that. Three times are
told for each kill:

    claimed     kill to the new owner's Claim: the group's session or the supervisor's restart of the process; a spare
                claims when the socket breaks
    serving     Claim to the first record of the new term: reading the checkpoint and the tail, folding, deciding
    recovered   Claim to the last call of a live run asked for again

Times are those of the broker's log (CreateTime of the records: the clock of this machine).
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.stream_records import PartitionCheckpoint
from loomlog.schemas.producer import start_run_record
from tests.benchmarks.filling import fill
from tests.benchmarks.main import Stack, loomlog, new_report, options_parser, own_stack, up, write_report
from tests.benchmarks.workload import CONFIGURATION

EVENTS, COMMANDS, SNAPSHOTS = "loom.run.events", "loom.run.commands", "loom.run.snapshots"
SLOW = """\
  slow: { driver: mock, options: { enabled: true, latency_ms: 600000 } }
"""
SLEEPER = """\
  sleeper: { provider: slow, model: mock-generic, tools: [] }
"""
WITH_SLEEPERS = CONFIGURATION.replace("agents:\n", SLOW + "agents:\n") + SLEEPER
"""The configuration of a stack whose runs can stay open."""
LOOK_S = 0.25
WAIT_S = 180.0
"""For a checkpoint (made every 30 seconds), for a new owner, for the recovery of its live runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One take-over; seconds."""

    claimed_s: float
    serving_s: float
    recovered_s: float


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--live", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    report = new_report("takeover") | {"events": options.events, "live": options.live}
    with own_stack(WITH_SLEEPERS, LOOMLOG_PARTITIONS="1") as (stack, environment):
        fill(stack, environment, options.events)
        kills = asyncio.run(measure(stack, environment, options.live, options.kills))
        loomlog("down", environment)
        stack = up(environment, spares=1)
        with_spare = asyncio.run(measure(stack, environment, options.live, options.kills, there=options.live, spares=1))
    past = f"{options.events} past events and {options.live} live runs"
    print(f"\nTake-over of a partition with {past}; {report['machine']}")
    for title, measured in (("The only runtime:", kills), ("With a spare:", with_spare)):
        print(f"{title}\n{'kill':>6}{'claimed s':>12}{'serving s':>12}{'recovered s':>14}")
        for number, kill in enumerate(measured, start=1):
            print(f"{number:>6}{kill.claimed_s:>12.3f}{kill.serving_s:>12.3f}{kill.recovered_s:>14.3f}")
    report |= {"kills": [asdict(k) for k in kills], "kills_with_spare": [asdict(k) for k in with_spare]}
    write_report(report, options.json)
    return 0


async def measure(
    stack: Stack, environment: dict[str, str], live: int, kills: int, *, there: int = 0, spares: int = 0
) -> list[Kill]:
    """Starts runs until so many are live (`there` are already), kills; each time when so many spares wait."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="takeover-bench")
    ranges = KafkaRanges(options)
    await ranges.start()
    try:
        before = await ranges.end_offset(EVENTS, 0)
        if live > there:
            await start_sleepers(options, live - there)
        await until_end_is(ranges, before, 2 * (live - there))
        result = []
        for _ in range(kills):
            await until_checkpoint(ranges, live)
            await until_spares_wait(environment, spares)
            result.append(await kill(ranges, environment, live))
            print(f"  {result[-1]}", flush=True)
        return result
    finally:
        await ranges.close()


async def start_sleepers(options: KafkaOptions, live: int) -> None:
    """Starts runs that stay open."""
    appender = KafkaAppender(options)
    await appender.start()
    records = [start_run_record(agent="sleeper", prompt="stay") for _ in range(live)]
    await appender.append(COMMANDS, 0, [ProducerRecord(key=r.key, value=r.value, headers=r.headers) for r in records])
    await appender.close()


async def until_end_is(ranges: KafkaRanges, before: int, more: int) -> None:
    """Until `more` records were appended."""
    async with asyncio.timeout(WAIT_S):
        while await ranges.end_offset(EVENTS, 0) < before + more:
            await asyncio.sleep(LOOK_S)


async def until_checkpoint(ranges: KafkaRanges, live: int) -> None:
    """Until a checkpoint stands at the end of the log with all live runs in it."""
    codec = local_codec()
    end = await ranges.end_offset(EVENTS, 0)
    async with asyncio.timeout(WAIT_S):
        while True:
            for record in reversed(await read(ranges, SNAPSHOTS, 0)):
                if record.value is None:
                    continue
                result = codec.decode(record.value).record
                if isinstance(result, PartitionCheckpoint):
                    if result.next_offset >= end and result.live_runs >= live:
                        return
                    break
            await asyncio.sleep(1.0)


async def runtimes(environment: dict[str, str]) -> list[dict[str, Any]]:
    """The runtimes as `loomlog status` shows them."""
    status = json.loads(await asyncio.to_thread(loomlog, "status --json", environment))
    return [child for child in status["children"] if child["name"].startswith("runtime")]


async def until_spares_wait(environment: dict[str, str], spares: int) -> None:
    """Until so many runtimes watch the owner."""
    async with asyncio.timeout(WAIT_S):
        while sum(child["role"] == "spare" for child in await runtimes(environment)) < spares:
            await asyncio.sleep(LOOK_S)


async def kill(ranges: KafkaRanges, environment: dict[str, str], live: int) -> Kill:
    """Kills the runtime and reads off the log how the next one took over."""
    codec = local_codec()
    claims = codec.schema_ids_of(frozenset({Claim.SCHEMA}))
    pid = next(child["pid"] for child in await runtimes(environment) if child["role"] != "spare")
    end = await ranges.end_offset(EVENTS, 0)
    killed_ms = time.time() * 1000
    os.kill(pid, signal.SIGKILL)
    await until_end_is(ranges, end, 1 + 2 * live)
    records = await read(ranges, EVENTS, end)
    claim = next(record for record in records if peek(record.value or b"").schema_id in claims)
    after = [record for record in records if record.offset > claim.offset]
    return Kill(
        claimed_s=(claim.timestamp - killed_ms) / 1000,
        serving_s=(after[0].timestamp - claim.timestamp) / 1000,
        recovered_s=(after[2 * live - 1].timestamp - claim.timestamp) / 1000,
    )


async def read(ranges: KafkaRanges, topic: str, start: int) -> Sequence[LogRecord]:
    """The records from `start` to the end of partition 0."""
    records: list[LogRecord] = []
    beginning = max(start, await ranges.beginning_offset(topic, 0))
    async with await ranges.read(topic, 0, beginning, await ranges.end_offset(topic, 0)) as chunks:
        async for chunk in chunks:
            records += chunk
    return records


if __name__ == "__main__":
    sys.exit(main())
