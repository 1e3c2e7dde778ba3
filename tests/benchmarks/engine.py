"""The engine without a broker: CPU and runs a second of one runtime's loop on A3x2, in this process.

    python -m tests.benchmarks.engine [--in-flight 16] [--partitions 1] [--flush-ms 1.0] [--runs 1500]
                                      [--repetitions 8] [--profile FILE]

Everything from the commands topic to the append is the runtime's own: host, desk, core, calls, mock model, Bench tool,
codec. Only the wire is not: an append is counted and acknowledged after `--flush-ms`, and commands are at hand as soon
as a run has ended. What it prints is CPU time, minimum and median of the repetitions, because the minimum drifts least
with the machine; the client library, the broker and the network are not in it. With `--flush-ms 0` runs a second is
what the loop alone can do. `--profile` writes a cProfile of one more repetition, whose times are inflated.
"""

import argparse
import asyncio
import cProfile
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop

from loomlog.connectors.configuration.load import ProcessConfiguration, load
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.connectors.protocols import ConsumerRecord, LogRecord, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.services.core.run.state import Ended
from loomlog.services.families.hook.runner import HookRunner
from loomlog.services.families.hook.state import HookTable
from loomlog.services.runtime.admission.queue import build_admission_queue
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS
from loomlog.services.runtime.effects import build_effect_handlers
from loomlog.services.runtime.models.previews import Previews
from loomlog.services.runtime.models.routing import Routing
from loomlog.services.runtime.run.context import RunContext
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.run_index import EndedRun
from loomlog.services.runtime.run_host import build_run_host
from loomlog.services.runtime.settings import build_runtime_settings
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.family import Topics
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.partition import Aggregate
from tests.benchmarks.workload import AGENT, CONFIGURATION, ENVIRONMENT, PROMPT
from tests.services.stream.membership import FixedMembership

TOPICS = Topics.of("run")
CODEC = local_codec()


class Wire(MemoryLog):
    """A log that keeps the first record of each partition, the Claim, and counts the others."""

    def __init__(self, topics: Mapping[str, int], flush_s: float) -> None:
        super().__init__(topics)
        self._flush_s = flush_s
        self._next: dict[tuple[str, int], int] = {}

    async def append(self, topic: str, partition: int, records: Sequence[ProducerRecord]) -> int:
        base = self._next.get((topic, partition), 0)
        if base == 0:
            self.put(topic, partition, records[:1])
        self._next[topic, partition] = base + len(records)
        await asyncio.sleep(self._flush_s)
        return base


class Clients:
    """The commands topic (protocol ProjectionTail): the next StartRun lies there as soon as a run has ended."""

    topic = TOPICS.commands

    def __init__(self, partitions: int, in_flight: int) -> None:
        self.ended = 0
        self.over = asyncio.Event()
        self._partitions = partitions
        self._in_flight = in_flight
        self._left = self._room = self._target = 0
        self._more = asyncio.Event()
        self._offsets = [0] * partitions
        self._made: list[tuple[bytes, bytes]] = []

    def make(self, runs: int) -> None:
        """Make commands ahead, so that making them is not measured."""
        for number in range(runs):
            now_ms = clock_ms()
            token = fresh_token(now_ms, number.to_bytes(10, "big"))
            envelope = CommandEnvelope(command_id=token, issued_at_ms=now_ms)
            command = StartRun(envelope=envelope, agent=AGENT, prompt=PROMPT, run_id=f"r_{token}")
            self._made.append((token.encode(), CODEC.encode(command)))

    async def through(self, runs: int) -> None:
        """Until so many more runs have ended."""
        self._left, self._room, self._target = runs, self._in_flight, self.ended + runs
        self.over.clear()
        self._more.set()
        await self.over.wait()

    def run_ended(self) -> None:
        self.ended += 1
        self._room += 1
        self._more.set()
        if self.ended == self._target:
            self.over.set()

    async def poll(self, *, timeout_s: float, max_records: int = 5_000) -> Mapping[int, Sequence[LogRecord]]:
        del timeout_s
        await self._more.wait()
        self._more.clear()
        recordses: dict[int, list[LogRecord]] = {}
        count = min(self._left, self._room, max_records)
        self._left -= count
        self._room -= count
        for _ in range(count):
            key, value = self._made.pop()
            partition = partition_of(key, self._partitions)
            offset = self._offsets[partition]
            self._offsets[partition] = offset + 1
            record = ConsumerRecord(self.topic, partition, offset, 0, key, value, ())
            recordses.setdefault(partition, []).append(record)
        return recordses

    def seek(self, partition: int, offset: int) -> None:
        assert offset == self._offsets[partition], "commands are handed out once"

    def pause(self, partitions: Sequence[int]) -> None:
        """Nobody asks before the host has claimed."""

    def resume(self, partitions: Sequence[int]) -> None:
        """As pause."""

    async def end_offsets(self) -> Mapping[int, int]:
        return dict(enumerate(self._offsets))

    async def close(self) -> None:
        """Nothing is open."""


class ToldTallies(RunSummaries):
    """Tells the clients of each end, besides being sent as usual."""

    clients: Clients

    def add_ended_run(self, aggregate: Aggregate, state: Ended, partition: int) -> None:
        assert state.status == "completed", f"{aggregate.id} {state.status}: {state.reason}"
        super().add_ended_run(aggregate, state, partition)
        self.clients.run_ended()


class NothingBefore:
    """A run index that is never needed: nothing was ever forgotten."""

    async def next_offset(self, partition: int) -> int:
        raise AssertionError("nobody asks")

    async def find_run(self, run_id: str) -> EndedRun | None:
        raise AssertionError("nobody asks")

    async def last_run_of_session(self, session_id: str) -> EndedRun | None:
        raise AssertionError("nobody asks")


class NobodyIsAsked:
    """Callbacks of hooks, of which there are none."""

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes:
        raise AssertionError("nobody asks")


class Engine:
    """One runtime, wired as services/runtime/main.py does it."""

    def __init__(self, loaded: ProcessConfiguration, *, partitions: int, in_flight: int, flush_s: float) -> None:
        settings = build_runtime_settings(loaded.settings)
        family, tracing = RunFamily(), RunMetrics().instrument(NO_TRACING)
        wire = Wire({TOPICS.events: partitions, "tallies": partitions}, flush_s)
        self.clients = Clients(partitions, in_flight)
        self.tallies = ToldTallies(CODEC, wire, topic="tallies", clock_ms=clock_ms)
        self.tallies.clients = self.clients
        routing = Routing(
            loaded, {**ENVIRONMENT}, codec=CODEC, appender=wire, clock_ms=clock_ms, name="bench", topic="providers"
        )
        self.previews = Previews(CODEC, wire, topic="deltas", partitions=partitions, term_of=lambda _: 0)
        work = build_effect_handlers(
            loaded,
            settings,
            codec=CODEC,
            appender=wire,
            tracing=tracing,
            previews=self.previews,
            encryption=ContentEncryption(),
            routing=routing,
            hooks=HookRunner(lambda: HookTable(), NobodyIsAsked(), clock_ms=clock_ms),
            credentials=NO_CREDENTIALS,
        )
        context = RunContext(
            family=family,
            partitions=partitions,
            definitions=routing.definitions,
            index=NothingBefore(),
            ended_runs=EndedAggregates(family, CODEC, wire, TOPICS.events),
            run_summaries=self.tallies,
            clock_ms=clock_ms,
            tracing=tracing,
            interruption_answers=InterruptionAnswers(ContentEncryption(), mask=work.mask),
            read_partial_output=work.partial_outputs.read,
            admission_queue=build_admission_queue(loaded),
        )
        self.host = build_run_host(
            context,
            codec=CODEC,
            topics=TOPICS,
            appender=wire,
            ranges=wire,
            membership=FixedMembership(frozenset(range(partitions))),
            commands=self.clients,
            dead_letters=DeadLetters(CODEC, wire, topic=TOPICS.dead_letters, service="bench", clock_ms=clock_ms),
            run_effect=work.run,
            name="bench",
        )

    async def ready(self) -> None:
        """Every partition is held."""
        while not self.host.owners or any(owner.partition is None for owner in self.host.owners.values()):
            await asyncio.sleep(0.01)


async def measure(options: argparse.Namespace, loaded: ProcessConfiguration) -> None:
    engine = Engine(loaded, partitions=options.partitions, in_flight=options.in_flight, flush_s=options.flush_ms / 1000)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in (engine.host, engine.tallies, engine.previews)]
        await engine.ready()
        engine.clients.make(options.runs)
        await engine.clients.through(options.runs)
        tune_gc()
        cpu_us: list[float] = []
        rates: list[float] = []
        flushes = engine.host.flusher.flushes
        for _ in range(options.repetitions):
            engine.clients.make(options.runs)
            began, cpu = time.perf_counter(), time.process_time()
            await engine.clients.through(options.runs)
            cpu_us.append((time.process_time() - cpu) * 1e6 / options.runs)
            rates.append(options.runs / (time.perf_counter() - began))
        flushes = engine.host.flusher.flushes - flushes
        print(
            f"{options.in_flight} in flight, {options.partitions} partitions, flush {options.flush_ms} ms: "
            f"CPU us/run min {min(cpu_us):.0f} median {statistics.median(cpu_us):.0f}, "
            f"runs/s best {max(rates):.0f}, {flushes / options.runs / options.repetitions:.2f} flushes a run"
        )
        if options.profile:
            engine.clients.make(options.runs)
            profile = cProfile.Profile()
            profile.enable()
            await engine.clients.through(options.runs)
            profile.disable()
            profile.dump_stats(options.profile)
        for task in tasks:
            task.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--flush-ms", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=1_500)
    parser.add_argument("--repetitions", type=int, default=8)
    parser.add_argument("--profile", type=Path, help="write a cProfile here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "loomlog.yaml").write_text(CONFIGURATION)
        environ = {
            **ENVIRONMENT,
            "LOOMLOG_HOME": str(home / "home"),
            "LOOMLOG_CONFIG_FILES": str(home / "loomlog.yaml"),
            "LOOMLOG_KAFKA": "unused:9092",
            "LOOMLOG_POSTGRES": "postgresql://unused/unused",
        }
        uvloop.run(measure(options, load(environ, working_directory=home)))


if __name__ == "__main__":
    main()
