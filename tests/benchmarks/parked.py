"""What runs cost that only wait for a person: `make bench-parked`.

    python -m tests.benchmarks.parked [--runs 10000] [--idle 30] [--json FILE]

A stack of its own, with everything on. So many interactive runs are started over the topic; each has one turn (a prompt
of 1,000 characters and an answer) and parks. Told for each process: memory that is its own (USS) before and after, so
the bytes of a run, and the CPU it uses while nothing happens, without and with the parked runs.

The bound: 100,000 parked runs under 500 MB over runtime, api and projector together, and under 3 % of a core each while
nothing happens. With fewer runs the memory that 100,000 would take is told, from the bytes of a run.
"""

import asyncio
import secrets
import sys
import time
from collections import defaultdict
from typing import Any

import psutil

from loomlog.connectors.kafka import MAX_BATCH_BYTES, KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope, RunOptions
from loomlog.schemas.ids import fresh_token
from tests.benchmarks.main import Stack, cpu_seconds, new_report, options_parser, own_stack, write_report
from tests.benchmarks.workload import CONFIGURATION

EVENTS, COMMANDS, SNAPSHOTS = "loom.run.events", "loom.run.commands", "loom.run.snapshots"
STATE_READS = 200
EVENTS_OF_A_RUN = 4
"""RunStarted, ModelCallRequested, ModelReplied, RunParked."""
CHATTER = """\
  chatter: { provider: mock, model: mock-generic, disable_context: true, system_prompt: "You are waited for." }
"""
PROMPT_CHARACTERS = 1_000
BATCH = 200
SETTLE_S = 45.0
"""After the last run has parked: the checkpoint (every 30 s) and the projector are done by then."""
WAVE = 500
"""Runs that start at once: what thousands need while they work is not what they take when they wait."""
WAIT_S = 900.0
"""For a wave."""
MEMORY_BOUND_BYTES = 500_000_000
IDLE_BOUND_PERCENT = 3.0
BOUND_RUNS = 100_000
OURS = ("runtime", "api", "projector")
"""The processes that know of a parked run."""


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which the idle CPU is measured")
    options = parser.parse_args()
    report = new_report("parked")
    with own_stack(CONFIGURATION + CHATTER) as (stack, _):
        report |= asyncio.run(measure(stack, options.runs, options.idle))
    print_report(report)
    write_report(report, options.json)
    return 0


async def measure(stack: Stack, runs: int, idle_s: float) -> dict[str, Any]:
    """Parks the runs; memory and idle CPU of each process before and after."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="parked-bench")
    ranges = KafkaRanges(options)
    appender = KafkaAppender(options)
    await ranges.start()
    await appender.start()
    try:
        partitions = await appender.partitions(COMMANDS)
        await park(appender, ranges, partitions, BATCH)  # what the first runs load and cache is no run's
        await asyncio.sleep(SETTLE_S)
        before, idle_before = memory_of(stack), await idle_cpu(stack, idle_s)
        began = time.monotonic()
        await park(appender, ranges, partitions, runs)
        took_s = time.monotonic() - began
        print(f"  {runs} runs parked in {took_s:.0f} s", flush=True)
        await asyncio.sleep(SETTLE_S)
        after, idle_after = memory_of(stack), await idle_cpu(stack, idle_s)
        read_ms = await state_reads_ms(ranges, partitions)
    finally:
        await appender.close()
        await ranges.close()
    return {
        "runs": runs,
        "parked_in_s": took_s,
        "state_read_ms": read_ms,
        "uss_bytes": {name: [before[name], after[name]] for name in before},
        "bytes_a_run": {name: (after[name] - before[name]) / runs for name in OURS},
        "idle_cpu_percent": {name: [idle_before[name], idle_after[name]] for name in before},
    }


async def park(appender: KafkaAppender, ranges: KafkaRanges, partitions: int, runs: int) -> None:
    """Starts so many runs and waits until all have parked; in waves, because the queue of starts is bounded."""
    for first in range(0, runs, WAVE):
        await park_wave(appender, ranges, partitions, min(WAVE, runs - first))


async def park_wave(appender: KafkaAppender, ranges: KafkaRanges, partitions: int, runs: int) -> None:
    """Starts so many runs at once and waits until all have parked."""
    ends = [await ranges.end_offset(EVENTS, number) for number in range(partitions)]
    for first in range(0, runs, BATCH):
        records: dict[int, list[ProducerRecord]] = defaultdict(list)
        for _ in range(min(BATCH, runs - first)):
            record = chat()
            records[partition_of(record.key or b"", partitions)].append(record)
        for number, batch in records.items():
            assert sum(len(one.value or b"") for one in batch) < MAX_BATCH_BYTES
            await appender.append(COMMANDS, number, batch)
    async with asyncio.timeout(WAIT_S):
        while True:
            now = [await ranges.end_offset(EVENTS, number) for number in range(partitions)]
            if sum(now) - sum(ends) >= EVENTS_OF_A_RUN * runs:
                return
            await asyncio.sleep(0.25)


async def state_reads_ms(ranges: KafkaRanges, partitions: int) -> list[float]:
    """Milliseconds that it takes to read one record of the snapshots topic, as a run that rests needs it; sorted."""
    times: list[float] = []
    for number in range(STATE_READS):
        partition = number % partitions
        offset = secrets.randbelow(await ranges.end_offset(SNAPSHOTS, partition))
        began = time.monotonic()
        async with await ranges.read(SNAPSHOTS, partition, offset, offset + 1) as chunks:
            async for _ in chunks:
                pass
        times.append(1000 * (time.monotonic() - began))
    return sorted(times)


def chat() -> ProducerRecord:
    """The command that starts a run which parks after one turn."""
    at_ms = time.time_ns() // 1_000_000
    token = fresh_token(at_ms, secrets.token_bytes(10))
    envelope = CommandEnvelope(command_id=f"r_{token}", tenant="default", subject="bench", issued_at_ms=at_ms)
    prompt = secrets.token_hex(PROMPT_CHARACTERS // 2)
    command = StartRun(
        envelope=envelope, agent="chatter", prompt=prompt, run_id=f"r_{token}", options=RunOptions(interactive=True)
    )
    return ProducerRecord(key=token.encode(), value=local_codec().encode(command))


def memory_of(stack: Stack) -> dict[str, int]:
    """Bytes that are a process's own, its children's included."""
    result = {}
    for name, pid in stack.pids.items():
        process = psutil.Process(pid)
        everybody = (process, *process.children(recursive=True))
        result[name] = sum(one.memory_full_info().uss for one in everybody)
    return result


async def idle_cpu(stack: Stack, seconds: float) -> dict[str, float]:
    """Percent of one core while nothing happens."""
    before = cpu_seconds(stack)
    await asyncio.sleep(seconds)
    after = cpu_seconds(stack)
    return {name: 100 * (after[name] - before[name]) / seconds for name in before}


def print_report(report: dict[str, Any]) -> None:
    """The table for people."""
    print(f"\n{report['runs']} parked runs; {report['machine']}, {report['at']}")
    print(f"{'process':12}{'MB before':>11}{'MB after':>11}{'bytes a run':>13}{'idle CPU % before':>19}{'after':>8}")
    for name, (before, after) in report["uss_bytes"].items():
        idle = report["idle_cpu_percent"][name]
        a_run = f"{report['bytes_a_run'][name]:.0f}" if name in report["bytes_a_run"] else ""
        print(f"{name:12}{before / 1e6:>11.1f}{after / 1e6:>11.1f}{a_run:>13}{idle[0]:>19.1f}{idle[1]:>8.1f}")
    read_ms = report["state_read_ms"]
    print(f"a state is read again in {read_ms[len(read_ms) // 2]:.1f} ms (p99 {read_ms[-len(read_ms) // 100]:.1f})")
    ours = sum(report["uss_bytes"][name][1] for name in OURS)
    print(f"{' and '.join(OURS)} hold {ours / 1e6:.0f} MB together")
    more = max(0, BOUND_RUNS - report["runs"])
    expected = ours + more * max(0, report["bytes_a_run"]["runtime"])
    verdict = "within" if expected <= MEMORY_BOUND_BYTES else "OVER"
    print(
        f"{BOUND_RUNS} parked runs: {expected / 1e6:.0f} MB by the runtime's bytes of a run, {verdict} "
        f"{MEMORY_BOUND_BYTES / 1e6:.0f} MB"
    )
    idle = [report["idle_cpu_percent"][name][1] for name in OURS]
    verdict = "within" if max(idle) < IDLE_BOUND_PERCENT else "OVER"
    print(
        f"the busiest takes {max(idle):.1f} % of a core while nothing happens, {verdict} {IDLE_BOUND_PERCENT} %; "
        f"together {sum(idle):.1f} %"
    )


if __name__ == "__main__":
    sys.exit(main())
