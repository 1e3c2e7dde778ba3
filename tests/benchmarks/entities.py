"""What entities cost: `make bench-entities`.

    python -m tests.benchmarks.entities [--aggregates 1000000] [--seconds 6] [--repetitions 3] [--json FILE]

A stack of its own with the counters of docs/examples/counter.

    turns       A3x2 beside A3x2 with one entity write a turn (an increment beside each Bench call), at 16 in flight
    writes      what a write from a tool costs, from the call to its acknowledged event: the runtime's own histogram
    rest        so many aggregates of about 1 KB: memory of the runtime (USS), and again after kill -9 and a restart
    take-over   from the Claim to the first answer of an aggregate at rest, after kill -9 without a standby or spare
    cold        from a command in the topic to its answer, for aggregates at rest, one at a time; and the load alone

Goals (docs/FAMILIES.md): 80 % of A3x2's runs/s; a write under 4 ms at p50; a million aggregates under 500 MB; the first
answer within 1 s of the claim; a load under 5 ms at p50.
"""

import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

from loomlog.connectors.kafka import MAX_BATCH_BYTES, KafkaAppender, KafkaOptions, KafkaRanges, open_tail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.cli.stack.liveness import read_responses
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.registry import all_families
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import build_entity_parts
from loomlog.services.stream.family import Topics
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.main import Stack, loomlog, new_report, one_row, options_parser, own_stack, write_report
from tests.benchmarks.workload import CONFIGURATION

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "counter"
COUNTING = """\
  counting:
    provider: mock
    model: mock-a3x2-counter
    tools: [Bench, Counter]
    disable_context: true
    system_prompt: "You are measured."
"""
IN_FLIGHT = 16
TOPICS = Topics.of("entity")
TENANT = "default"
NAME_CHARACTERS = 480
"""With its id, the times and the number of its events the encoded state has about a kilobyte."""
BATCH = 500
COLD_READS = 200
WAIT_S = 1_800.0
MB = 1024 * 1024


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--aggregates", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    settings = {
        "LOOMLOG_FAMILIES": "counter",
        "PYTHONPATH": f"{EXAMPLE}:{os.environ.get('PYTHONPATH', '')}",
        "LOOMLOG_RUNTIME_METRICS_PORT": "0",
    }
    sys.path.insert(0, str(EXAMPLE))
    os.environ["LOOMLOG_FAMILIES"] = "counter"
    report = new_report("entities")
    with own_stack(CONFIGURATION + COUNTING, **settings) as (stack, environment):
        report["turns"] = measure_turns(stack, environment, options.seconds, options.repetitions)
        report["writes"] = tool_write_ms(stack)
        if options.aggregates:
            report["rest"] = asyncio.run(measure_rest(stack, environment, options.aggregates))
    print_report(report)
    write_report(report, options.json)
    return 0


# --- turns -----------------------------------------------------------------------------------------------------------


def measure_turns(stack: Stack, environment: dict[str, str], seconds: float, repetitions: int) -> dict[str, Any]:
    """A3x2 and A3x2 with entity writes, in turn; the medians of runs/s and of the ratio of the pairs."""
    rows: dict[str, list[float]] = {"bench": [], "counting": []}
    for agent in rows:
        one_row("topic", stack, environment | {"BENCH_AGENT": agent}, IN_FLIGHT, 20.0)  # the broker's compiler
    for repetition in range(repetitions):
        for agent, taken in rows.items():
            row = one_row("topic", stack, environment | {"BENCH_AGENT": agent}, IN_FLIGHT, seconds)
            taken.append(row["runs_per_s"])
            print(
                f"  {repetition + 1}/{repetitions} {agent:9} {row['runs_per_s']:7.0f} runs/s  p50 {row['p50_ms']:6.1f} "
                f"ms  errors {row['errors']:.0f}",
                flush=True,
            )
    ratios = [with_writes / plain for plain, with_writes in zip(rows["bench"], rows["counting"], strict=True)]
    return {
        "in_flight": IN_FLIGHT,
        "plain_runs_per_s": statistics.median(rows["bench"]),
        "with_writes_runs_per_s": statistics.median(rows["counting"]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def tool_write_ms(stack: Stack) -> dict[str, float]:
    """The runtime's histogram of calls of the Counter: mean, and the bound below which half of them were."""
    pages = asyncio.run(read_responses(stack.pids["runtime"]))
    lines = b"\n".join(pages).decode().splitlines()
    prefix = "loomlog_tool_call_seconds"
    figures = [line for line in lines if line.startswith(prefix) and 'tool="Counter"' in line]
    count = sum(float(line.rsplit(" ", 1)[1]) for line in figures if line.startswith(f"{prefix}_count"))
    total = sum(float(line.rsplit(" ", 1)[1]) for line in figures if line.startswith(f"{prefix}_sum"))
    buckets = [
        (float(line.split('le="')[1].split('"')[0].replace("+Inf", "inf")), float(line.rsplit(" ", 1)[1]))
        for line in figures
        if line.startswith(f"{prefix}_bucket")
    ]
    half = next((bound for bound, below in sorted(buckets) if count and below >= count / 2), 0.0)
    return {"calls": count, "mean_ms": total / count * 1000 if count else 0.0, "p50_at_most_ms": half * 1000}


# --- aggregates at rest ----------------------------------------------------------------------------------------------


async def measure_rest(stack: Stack, environment: dict[str, str], aggregates: int) -> dict[str, Any]:
    """So many aggregates; memory, a kill -9 and cold loads."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="entities-bench")
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    partitions = await appender.partitions(TOPICS.commands)
    before = uss(stack.pids["runtime"])
    began = time.monotonic()
    await fill(appender, ranges, partitions, aggregates)
    filled_s = time.monotonic() - began
    await until_projected(environment)
    parts = build_entity_parts(
        all_families(),
        local_codec(),
        appender=appender,
        ranges=ranges,
        partitions=partitions,
        topics=TOPICS,
        rows=None,
    )
    checkpoints = EntityCheckpoints(
        FamilySet(all_families()),
        local_codec(),
        appender=appender,
        ranges=ranges,
        topic=TOPICS.snapshots,
        events_topic=TOPICS.events,
    )
    await until_checkpointed(checkpoints, ranges, partitions)
    resting = uss(stack.pids["runtime"])
    await parts.replicas.open()
    tail = await open_tail(options, TOPICS.events, parts.replicas.next_offsets)
    following = asyncio.create_task(parts.replicas.follow(tail))
    cold = [await timed(parts, name_of(number), f"cold-{number}") for number in some(aggregates, seed=1)]
    psutil.Process(stack.pids["runtime"]).kill()
    killed = time.monotonic()
    first = await timed(parts, name_of(aggregates // 2), "after-the-kill")
    first_after_kill_s = time.monotonic() - killed
    pids = {child["name"]: child["pid"] for child in json.loads(loomlog("status --json", environment))["children"]}
    after = [await timed(parts, name_of(number), f"again-{number}") for number in some(aggregates, seed=2)]
    again = uss(pids["runtime"])
    following.cancel()
    await tail.close()
    await ranges.close()
    await appender.close()
    return {
        "aggregates": aggregates,
        "filled_s": filled_s,
        "runtime_before_mb": before / MB,
        "runtime_mb": resting / MB,
        "runtime_after_take_over_mb": again / MB,
        "first_answer_after_kill_s": first_after_kill_s,
        "first_answer_ms": first * 1000,
        "claim_to_first_answer": take_over_of(environment),
        "cold_p50_ms": percentile(sorted(cold), 0.5) * 1000,
        "cold_p99_ms": percentile(sorted(cold), 0.99) * 1000,
        "cold_after_take_over_p50_ms": percentile(sorted(after), 0.5) * 1000,
    }


def name_of(number: int) -> str:
    """A name of NAME_CHARACTERS, in no order."""
    return f"{random.Random(number).getrandbits(64):016x}-{number}-".ljust(NAME_CHARACTERS, "x")


def some(aggregates: int, *, seed: int) -> list[int]:
    return random.Random(seed).sample(range(aggregates), min(COLD_READS, aggregates))


def increment(name: str, command_id: str) -> IncrementCounter:
    envelope = CommandEnvelope(
        command_id=command_id, tenant=TENANT, subject="bench", issued_at_ms=int(time.time() * 1000)
    )
    return IncrementCounter(envelope=envelope, name=name, by=1)


async def fill(appender: KafkaAppender, ranges: KafkaRanges, partitions: int, aggregates: int) -> None:
    """One increment of each aggregate, through the commands topic; returns when all of them are decided."""
    codec = local_codec()
    ends = [await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)]
    goal = sum(ends) + aggregates
    waiting: dict[int, list[ProducerRecord]] = defaultdict(list)
    for number in range(aggregates):
        name = name_of(number)
        key = aggregate_key(aggregate_id("counter", TENANT, name))
        partition = partition_of(key, partitions)
        waiting[partition].append(ProducerRecord(key=key, value=codec.encode(increment(name, f"fill-{number}"))))
        if len(waiting[partition]) >= min(BATCH, MAX_BATCH_BYTES // 2_000):
            await appender.append(TOPICS.commands, partition, waiting.pop(partition))
        if number % 100_000 == 0 and number:
            print(f"  {number} aggregates sent", flush=True)
    for partition, records in waiting.items():
        await appender.append(TOPICS.commands, partition, records)
    async with asyncio.timeout(WAIT_S):
        while sum([await ranges.end_offset(TOPICS.events, partition) for partition in range(partitions)]) < goal:
            await asyncio.sleep(1.0)


async def until_projected(environment: dict[str, str]) -> None:
    """Wait until the rows have everything."""
    async with asyncio.timeout(WAIT_S):
        while json.loads(loomlog("projections lag --topic entities --json", environment))["lag"]:
            await asyncio.sleep(2.0)


async def until_checkpointed(checkpoints: EntityCheckpoints, ranges: KafkaRanges, partitions: int) -> None:
    """Wait until each partition has a checkpoint at the end of its events; one is made every 30 s."""
    async with asyncio.timeout(WAIT_S):
        for partition in range(partitions):
            end = await ranges.end_offset(TOPICS.events, partition)
            while (await checkpoints.load(partition, 0)).next_offset < end:
                await asyncio.sleep(2.0)


async def timed(parts: Any, name: str, command_id: str) -> float:
    """Seconds from a command to its answer."""
    began = time.perf_counter()
    await parts.client.ask(increment(name, command_id), wait_s=60.0)
    return time.perf_counter() - began


def uss(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().uss)


def take_over_of(environment: dict[str, str]) -> str:
    """The line of the runtime's log about the last take-over of an entity partition."""
    lines = (Path(environment["LOOMLOG_HOME"]) / "logs" / "runtime.log").read_text(errors="replace").splitlines()
    return next((line for line in reversed(lines) if "entity partition" in line and "taken" in line), "")


def print_report(report: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    turns, writes, rest = report["turns"], report["writes"], report.get("rest")
    print(f"\nEntities; {report['machine']}, {report['at']}")
    print(
        f"  A3x2 at {turns['in_flight']} in flight: {turns['plain_runs_per_s']:.0f} runs/s, with one write a turn "
        f"{turns['with_writes_runs_per_s']:.0f}: {turns['ratio']:.2f} (goal 0.80)"
    )
    if writes:
        print(
            f"  a write from a tool: mean {writes['mean_ms']:.2f} ms, p50 at most {writes['p50_at_most_ms']:.1f} ms "
            f"of {writes['calls']:.0f} (goal 4 ms)"
        )
    if rest is None:
        return
    print(
        f"  {rest['aggregates']} aggregates, made in {rest['filled_s']:.0f} s: runtime {rest['runtime_mb']:.0f} MB "
        f"(before {rest['runtime_before_mb']:.0f}, after a take-over {rest['runtime_after_take_over_mb']:.0f}; "
        "goal 500)"
    )
    print(
        f"  kill -9 without spare: first answer after {rest['first_answer_after_kill_s']:.1f} s, the start of a "
        f"process included; {rest['claim_to_first_answer']}"
    )
    print(
        f"  cold, through the topic: p50 {rest['cold_p50_ms']:.1f} ms, p99 {rest['cold_p99_ms']:.1f} ms, after the "
        f"take-over p50 {rest['cold_after_take_over_p50_ms']:.1f} ms (goal of the load alone 5 ms)"
    )


if __name__ == "__main__":
    sys.exit(main())
