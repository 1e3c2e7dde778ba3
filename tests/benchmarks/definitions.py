"""What definitions cost: `make bench-definitions`.

    python -m tests.benchmarks.definitions [--lines 10000] [--promotions 200] [--seconds 6] [--json FILE]

A stack of its own with two runtimes and so many agents of VERSIONS versions, made through the commands topic.

    bytes       of a run of A3x2 in the log: by an agent of the file, by a version of it, by one with a prompt of 64 KiB
    open        seconds and memory (USS) that a process takes to read its table
    resolve     a name to the definition of a run, in a process that follows the log: warm, and first after a promotion
    promotion   from the request to a run on each of the two runtimes that is pinned to the version, beside 100 runs/s
    changes     new versions over HTTP, at 16 in flight

Goals: a run under 8,192 B, with the long prompt 10,000 B; 2 s and 80 MB; 20 us at p99 warm, 300 us first; 100 ms at
p99; 300 changes/s.
"""

import asyncio
import gc
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

import psutil
import uvloop

from loomlog.connectors.configuration.load import load
from loomlog.connectors.definitions import canonical_json
from loomlog.connectors.kafka import MAX_BATCH_BYTES, KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.connectors.storage.blobs import FileBlobs
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.definition_commands import DefineVersion, PromoteVersion
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import AgentDefinition, CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.services.core.definitions import def_id
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.definition.files import configured_definitions
from loomlog.services.families.definition.state import line_id
from loomlog.services.families.definition.table import DefinitionTable
from loomlog.services.families.definition.views import DefinedAgents
from loomlog.services.families.registry import all_families
from loomlog.services.runtime.models.agent_definitions import AgentDefinitions
from loomlog.services.stream.entities.checkpoints import EntityCheckpoints
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import EntityParts, build_entity_parts
from loomlog.services.stream.entities.reads import EntityReads
from loomlog.services.stream.family import Topics
from tests.benchmarks.closed_loop import measure, percentile
from tests.benchmarks.entities import until_checkpointed, until_projected
from tests.benchmarks.main import Stack, log_bytes, new_report, options_parser, own_stack, write_report
from tests.benchmarks.sse_client import Client
from tests.benchmarks.topic_client import open_client
from tests.benchmarks.workload import CONFIGURATION, PROMPT

TENANT, AGENT = "default", "agent"
ENTITIES, RUNS = Topics.of("entity"), Topics.of("run")
VERSIONS = 5
PROMPT_CHARACTERS = 400
LONG_PROMPT_BYTES = 64 * 1024
MEASURED, LONG, SHIPPED = "measured", "long-prompt", "shipped"
"""Agents of runs: as the file's, one with a long prompt, and the one that is promoted."""
MEASURED_RUNS = 50
RESOLUTIONS = 20_000
FIRSTS = 200
RUNS_PER_S = 100.0
SETTLE_S = 3.0
CHANGES_IN_FLIGHT = 16
WAIT_S = 1_800.0
MB = 1024 * 1024


def main() -> int:
    """The exit code."""
    parser = options_parser(__doc__)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--promotions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--open", metavar="BOOTSTRAP", help="only read the table, and tell what it took")
    parser.add_argument("--load", metavar="BOOTSTRAP", help="only start runs, until killed")
    options = parser.parse_args()
    if options.open or options.load:
        uvloop.run(tell_opening(options.open) if options.open else start_runs(options.load))
        return 0
    report = new_report("definitions") | {"lines": options.lines}
    with own_stack(CONFIGURATION, runtimes=2) as (stack, environment):
        report |= uvloop.run(measure_all(stack, environment, options.lines, options.promotions, options.seconds))
    print_report(report)
    write_report(report, options.json)
    return 0


async def measure_all(
    stack: Stack, environment: dict[str, str], lines: int, promotions: int, seconds: float
) -> dict[str, Any]:
    """Everything, one after the other; what is under load comes last."""
    client = Client(stack.api)
    for name, prompt in ((MEASURED, "You are measured."), (LONG, secrets.token_hex(LONG_PROMPT_BYTES // 2))):
        await change(client, "create", name=name, overlay=content(prompt))
    shipped = [
        (await change(client, "create", name=SHIPPED, overlay=content(f"Ship {number}.")))["def_id"]
        for number in range(2)
    ]
    report: dict[str, Any] = {"bytes": await run_bytes(stack)}
    async with following(stack.kafka) as (parts, appender, ranges):
        began = time.monotonic()
        await fill(appender, ranges, parts.replicas.partitions, lines)
        report["filled_s"] = time.monotonic() - began
        print(f"  {lines} lines after {report['filled_s']:.0f} s", flush=True)
        await until_projected(environment)
        reading = EntityCheckpoints(
            FamilySet(all_families()),
            local_codec(),
            appender=appender,
            ranges=ranges,
            topic=ENTITIES.snapshots,
            events_topic=ENTITIES.events,
        )
        await until_checkpointed(reading, ranges, parts.replicas.partitions)
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.definitions", "--open", stack.kafka],
            stdout=subprocess.PIPE,
            env=environment,
            check=True,
        )
        report["open"] = json.loads(done.stdout)
        print(f"  {report['open']}", flush=True)
    async with following(stack.kafka) as (parts, _, _):
        report["resolve"] = await measure_resolution(parts, environment, lines)
        print(f"  {report['resolve']}", flush=True)
    report["promotion"] = await measure_promotions(stack, environment, client, shipped, promotions)
    print(f"  {report['promotion']}", flush=True)
    report["changes"] = await measure_changes(client, lines, seconds)
    client.close()
    return report


# --- making ----------------------------------------------------------------------------------------------------------


def content(prompt: str) -> dict[str, Any]:
    """The agent of A3x2 with a prompt."""
    return {
        "provider": "mock",
        "model": "mock-a3x2",
        "tools": ["Bench"],
        "disable_context": True,
        "system_prompt": prompt,
    }


def name_of(number: int) -> str:
    return f"agent-{number}"


async def fill(appender: KafkaAppender, ranges: KafkaRanges, partitions: int, lines: int) -> None:
    """Make the lines through the commands topic; returns when all are decided."""
    codec, drawn = local_codec(), random.Random(1)
    ends = [await ranges.end_offset(ENTITIES.events, partition) for partition in range(partitions)]
    goal = sum(ends) + 2 * lines * VERSIONS  # each is created and promoted
    waiting: dict[int, list[ProducerRecord]] = defaultdict(list)
    for number in range(lines):
        key = aggregate_key(aggregate_id("definition", TENANT, line_id(AGENT, name_of(number))))
        outgoing = waiting[partition_of(key, partitions)]
        for version in range(VERSIONS):
            prompt = f"{version} {drawn.randbytes(PROMPT_CHARACTERS // 2).hex()}"
            command = DefineVersion(
                envelope=envelope(f"fill-{number}-{version}"),
                kind=AGENT,
                name=name_of(number),
                content=canonical_json(content(prompt)),
                tools=("Bench",),
            )
            outgoing.append(ProducerRecord(key=key, value=codec.encode(command)))
        if len(outgoing) * 2 * PROMPT_CHARACTERS >= MAX_BATCH_BYTES // 2:
            await appender.append(ENTITIES.commands, partition_of(key, partitions), list(outgoing))
            outgoing.clear()
    for partition, records in waiting.items():
        if records:
            await appender.append(ENTITIES.commands, partition, records)
    async with asyncio.timeout(WAIT_S):
        while sum([await ranges.end_offset(ENTITIES.events, partition) for partition in range(partitions)]) < goal:
            await asyncio.sleep(0.5)


def envelope(command_id: str) -> CommandEnvelope:
    now_ms = time.time_ns() // 1_000_000
    return CommandEnvelope(command_id=command_id, tenant=TENANT, subject="bench", issued_at_ms=now_ms)


async def change(client: Client, op: str, **fields: Any) -> dict[str, Any]:
    """Change a definition over HTTP; the answer. Raises RuntimeError when it is refused."""
    status, body = await client.send(client.message("POST", "/v1/_agentdef", {"op": op, **fields}))
    if status != 200:
        raise RuntimeError(f"{op} {fields.get('name', '')}: {status} {body[:300]!r}")
    answer: dict[str, Any] = json.loads(body)
    return answer


# --- bytes and opening -----------------------------------------------------------------------------------------------


async def run_bytes(stack: Stack) -> dict[str, float]:
    """Bytes of a run in the log, one run at a time."""
    sizes = {}
    async with open_client(stack.kafka) as client:
        for name, agent in (("file", "bench"), ("version", MEASURED), ("long_prompt", LONG)):
            await client.run_once(agent)  # the first one stores its prompt
            before = log_bytes(stack)
            for _ in range(MEASURED_RUNS):
                await client.run_once(agent)
            sizes[name] = (log_bytes(stack) - before) / MEASURED_RUNS
    return sizes


@asynccontextmanager
async def open_parts(bootstrap: str) -> AsyncIterator[tuple[EntityParts, KafkaAppender, KafkaRanges]]:
    """What a process has of entities, before it has read anything."""
    options = KafkaOptions(bootstrap=bootstrap, client_id="definitions-bench")
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    parts = build_entity_parts(
        all_families(),
        local_codec(),
        appender=appender,
        ranges=ranges,
        partitions=await appender.partitions(ENTITIES.commands),
        topics=ENTITIES,
        rows=None,
    )
    try:
        yield parts, appender, ranges
    finally:
        parts.client.close()
        await ranges.close()
        await appender.close()


@asynccontextmanager
async def following(bootstrap: str) -> AsyncIterator[tuple[EntityParts, KafkaAppender, KafkaRanges]]:
    """What a process has of entities, which reads on."""
    async with open_parts(bootstrap) as (parts, appender, ranges):
        await parts.replicas.open()
        tail = await open_tail(KafkaOptions(bootstrap=bootstrap), ENTITIES.events, parts.replicas.next_offsets)
        reading = asyncio.create_task(parts.replicas.follow(tail))
        try:
            yield parts, appender, ranges
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await tail.close()


def table_over(parts: EntityParts) -> DefinitionTable:
    """A table without a read model and a blob store: the contents are short."""
    return DefinitionTable(parts.replicas, {}, blobs=FileBlobs(Path(os.devnull)), reads=cast(EntityReads, None))


async def tell_opening(bootstrap: str) -> None:
    """Read the table in this process; one JSON line tells what it took."""
    async with open_parts(bootstrap) as (parts, _, _):
        gc.collect()
        before, began = memory(), time.perf_counter()
        await parts.replicas.open()
        table = table_over(parts)
        seconds = time.perf_counter() - began
        gc.collect()
        print(json.dumps({"lines": table.count(), "seconds": seconds, "mb": (memory() - before) / MB}), flush=True)


def memory() -> int:
    return int(psutil.Process().memory_full_info().uss)


# --- resolving -------------------------------------------------------------------------------------------------------


async def measure_resolution(parts: EntityParts, environment: dict[str, str], lines: int) -> dict[str, float]:
    """Microseconds of a resolution: of one agent again and again, of all in turn, and after a promotion."""
    folder = Path(environment["LOOMLOG_CONFIG_FILES"]).parent
    configuration = load({}, working_directory=folder, paths=[]).configuration
    definitions = AgentDefinitions(configuration, ["mock"])
    table = DefinitionTable(
        parts.replicas,
        configured_definitions(configuration),
        blobs=FileBlobs(Path(os.devnull)),
        reads=cast(EntityReads, None),
    )
    definitions.versions = DefinedAgents(table)

    def timed(name: str) -> float:
        began = time.perf_counter_ns()
        resolved = definitions.resolve(name, tenant=TENANT, user_tier="")
        took_us = (time.perf_counter_ns() - began) / 1_000
        assert isinstance(resolved, AgentDefinition), resolved
        return took_us

    names = [name_of(number) for number in range(lines)]
    first = sorted(map(timed, names))
    random.Random(2).shuffle(names)
    in_turn = sorted(map(timed, names))
    repeated = sorted(timed(names[0]) for _ in range(RESOLUTIONS))
    promoted: list[float] = []
    for number in range(min(FIRSTS, lines)):
        name = name_of(number)
        chosen = def_id(TENANT, AGENT, name, 1 + number % (VERSIONS - 1))
        command = PromoteVersion(envelope=envelope(f"first-{number}"), kind=AGENT, name=name, def_id=chosen)
        await parts.client.ask(command, wait_s=30.0)
        promoted.append(timed(name))
    promoted.sort()
    figures = {"warm": repeated, "distinct": in_turn, "cold": first, "promoted": promoted}
    return {
        f"{name}_{label}_us": percentile(taken, share)
        for name, taken in figures.items()
        for label, share in (("p50", 0.5), ("p99", 0.99))
    }


# --- promotions ------------------------------------------------------------------------------------------------------


class Pins:
    """The versions that runs are pinned to, read off the log as they start."""

    def __init__(self, tail: KafkaTail) -> None:
        self._tail = tail
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._started_id = local_codec().schema_id_of(RunStarted.SCHEMA)

    def expect(self, run_id: str) -> "asyncio.Future[str]":
        self._waiting[run_id] = asyncio.get_running_loop().create_future()
        return self._waiting[run_id]

    async def read(self) -> None:
        """Read until cancelled."""
        while True:
            for records in (await self._tail.poll(timeout_s=0.5)).values():
                for record in records:
                    header = peek(record.value or b"")
                    if header.schema_id == self._started_id and header.aggregate in self._waiting:
                        started = local_codec().decode(record.value or b"").record
                        assert isinstance(started, RunStarted)
                        pin = started.definition.pin
                        self._waiting.pop(header.aggregate).set_result("" if pin is None else pin.def_id)


async def measure_promotions(
    stack: Stack, environment: dict[str, str], client: Client, versions: list[str], promotions: int
) -> dict[str, float]:
    """Milliseconds from a promotion until a run on each runtime is pinned to it, beside other runs."""
    options = KafkaOptions(bootstrap=stack.kafka, client_id="definitions-bench")
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    partitions = await appender.partitions(RUNS.events)
    owners = {owner: number for number, owner in (await owners_of(ranges, partitions)).items()}
    if len(owners) < 2:
        raise SystemExit(f"one process owns all {partitions} partitions: expected two runtimes")
    ends = {number: await ranges.end_offset(RUNS.events, number) for number in range(partitions)}
    tail = await open_tail(options, RUNS.events, ends)
    pins = Pins(tail)
    reading = asyncio.create_task(pins.read())
    command = [sys.executable, "-m", "tests.benchmarks.definitions", "--load", stack.kafka]
    running = subprocess.Popen(command, env=environment)

    async def pinned(partition: int, wanted: str) -> None:
        while await start_run(appender, pins, partition, partitions) != wanted:
            await asyncio.sleep(0)

    try:
        await asyncio.sleep(SETTLE_S)
        answered: list[float] = []
        took: list[float] = []
        for number in range(promotions):
            wanted = versions[number % 2]
            began = time.perf_counter()
            await change(client, "promote", def_id=wanted)
            answered.append((time.perf_counter() - began) * 1000)
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(*(pinned(partition, wanted) for partition in owners.values()))
            took.append((time.perf_counter() - began) * 1000)
        was_running = running.poll() is None
    finally:
        running.kill()
        running.wait()
        reading.cancel()
        await tail.close()
        await ranges.close()
        await appender.close()
    if not was_running:
        raise SystemExit("the load beside the promotions has ended too early")
    answered.sort()
    took.sort()
    return {
        "answer_p50_ms": percentile(answered, 0.5),
        "pinned_p50_ms": percentile(took, 0.5),
        "pinned_p99_ms": percentile(took, 0.99),
    }


async def owners_of(ranges: KafkaRanges, partitions: int) -> dict[int, str]:
    """The process that has claimed each partition last."""
    owners: dict[int, str] = {}
    codec = local_codec()
    claim = codec.schema_id_of(Claim.SCHEMA)
    for number in range(partitions):
        first = await ranges.beginning_offset(RUNS.events, number)
        end = await ranges.end_offset(RUNS.events, number)
        async with await ranges.read(RUNS.events, number, first, end) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    if peek(record.value or b"").schema_id == claim:
                        taken = codec.decode(record.value or b"").record
                        assert isinstance(taken, Claim)
                        owners[number] = taken.owner
    return owners


async def start_run(appender: KafkaAppender, pins: Pins, partition: int, partitions: int) -> str:
    """Start a run in a partition; the version that it is pinned to."""
    now_ms = time.time_ns() // 1_000_000
    token = next(
        token
        for _ in count()
        if partition_of((token := fresh_token(now_ms, os.urandom(10))).encode(), partitions) == partition
    )
    run_id = f"r_{token}"
    started = pins.expect(run_id)
    command = StartRun(envelope=envelope(token), agent=SHIPPED, prompt=PROMPT, run_id=run_id)
    record = ProducerRecord(key=token.encode(), value=local_codec().encode(command))
    await appender.append(RUNS.commands, partition, [record])
    return await started


async def start_runs(bootstrap: str) -> None:
    """Start RUNS_PER_S runs of A3x2, whether or not others have ended, until killed."""
    async with open_client(bootstrap) as client, asyncio.TaskGroup() as group:
        due_s = time.monotonic()
        while True:
            due_s += 1 / RUNS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(client.run_once())


# --- changes ---------------------------------------------------------------------------------------------------------


async def measure_changes(client: Client, lines: int, seconds: float) -> dict[str, float]:
    """New versions, each of another line than the others at that time."""
    numbers = count()

    async def one_change() -> None:
        number = next(numbers)
        await change(client, "create", name=name_of(number % lines), overlay=content(f"Changed {number}."))

    measured = await measure(one_change, in_flight=CHANGES_IN_FLIGHT, warm_up_s=SETTLE_S, seconds=seconds)
    return {
        "per_s": measured.runs_per_s,
        "p50_ms": measured.p50_ms,
        "p99_ms": measured.p99_ms,
        "errors": measured.errors,
    }


def print_report(report: dict[str, Any]) -> None:
    """The figures for people, with the goals."""
    sizes, opened, resolved = report["bytes"], report["open"], report["resolve"]
    promotion, changes = report["promotion"], report["changes"]
    print(f"\nDefinitions; {report['machine']}, {report['at']}")
    print(
        f"  a run of A3x2: {sizes['file']:.0f} B of the log, by a version {sizes['version']:.0f} B (goal 8,192), with "
        f"a prompt of 64 KiB {sizes['long_prompt']:.0f} B (goal 10,000)"
    )
    print(
        f"  a process opens {opened['lines']} lines of {VERSIONS} versions in {opened['seconds']:.2f} s with "
        f"{opened['mb']:.0f} MB (goal 2 s, 80 MB); made in {report['filled_s']:.0f} s"
    )
    print(
        f"  resolution, warm: one agent p50 {resolved['warm_p50_us']:.1f} us, p99 {resolved['warm_p99_us']:.1f} us; "
        f"all in turn p50 {resolved['distinct_p50_us']:.1f} us, p99 {resolved['distinct_p99_us']:.1f} us (goal 20)"
    )
    print(
        f"  resolution, first after a promotion: p50 {resolved['promoted_p50_us']:.0f} us, p99 "
        f"{resolved['promoted_p99_us']:.0f} us (goal 300); first of all p50 {resolved['cold_p50_us']:.0f} us, p99 "
        f"{resolved['cold_p99_us']:.0f} us"
    )
    print(
        f"  from a promotion to runs of both runtimes with it, beside {RUNS_PER_S:.0f} runs/s: p50 "
        f"{promotion['pinned_p50_ms']:.1f} ms, p99 {promotion['pinned_p99_ms']:.1f} ms (goal 100); its answer p50 "
        f"{promotion['answer_p50_ms']:.1f} ms"
    )
    print(
        f"  changes at {CHANGES_IN_FLIGHT} in flight: {changes['per_s']:.0f} a second (goal 300), p50 "
        f"{changes['p50_ms']:.1f} ms, p99 {changes['p99_ms']:.1f} ms, errors {changes['errors']:.0f}"
    )


if __name__ == "__main__":
    sys.exit(main())
