"""Both topic sets over a broker and Postgres: hosts, outbox, projectors and reads, also after events were deleted."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail, delete_records, open_tail
from loomlog.connectors.storage.postgres import connect, open_reader
from loomlog.projections.engine.carried_rows import EventsDeleted
from loomlog.projections.engine.read_models import EntityModel
from loomlog.projections.entities import plain_seal
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.counter_events import CounterIncremented
from loomlog.schemas.generated.pause_commands import SetPause
from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.access.scopes import ADMIN
from loomlog.services.core.families import CHANNEL_SET, ENTITY_SET, FROM_OUTBOX, Command, Family, Send
from loomlog.services.families.entity_folds import TABLES, entity_folds
from loomlog.services.projector.main import build_projector
from loomlog.services.projector.settings import ProjectorSettings
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.families import FamilySet
from loomlog.services.stream.entities.hosting import HostedEntities, build_entity_parts, join_parts
from loomlog.services.stream.entities.reading import EntityReader
from loomlog.services.stream.entities.routed_reads import RoutedReads
from loomlog.services.stream.entities.rows import EntityRows
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from tests.services.stream.entities.counters import FAMILY, Counter
from tests.services.stream.membership import FixedMembership

CODEC = local_codec()
ANSWER_S = 30.0


def tell_pause(counter: Counter, event: Any) -> Sequence[Send]:
    if isinstance(event, CounterIncremented) and event.also:
        return [Send(to="pause", command=SetPause(envelope=FROM_OUTBOX, scope="agent", agent=event.also))]
    return ()


def tell_echo(pauses: Counter, event: Any) -> Sequence[Send]:
    return [Send(to="counter", command=IncrementCounter(envelope=FROM_OUTBOX, name="echo", by=1))]


COUNTER: Family[Any, Any, Any] = replace(FAMILY, topics=CHANNEL_SET, sends=tell_pause)
"""A counter raised with `also` pauses the agent of that name, which is counted among the entities."""
PAUSE: Family[Any, Any, Any] = replace(
    FAMILY,
    name="pause",
    rules=replace(
        FAMILY.rules,
        decide=lambda pauses, command, at: [PauseSet(scope="agent", agent=command.agent)],
        evolve=lambda pauses, event, at_ms: Counter(pauses.value + 1),
    ),
    commands=(
        Command(record=SetPause, verb="set", summary="Pause.", aggregate=lambda command: command.agent, scope=ADMIN),
    ),
    sends=tell_echo,
)
BOTH = {ENTITY_SET: PAUSE, CHANNEL_SET: COUNTER}


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Site:
    """Topics and tables of a test, with a projector of each topic set."""

    def __init__(self, kafka: str, options, topic_prefix: str, prefix: str) -> None:
        self.kafka, self.postgres, self.topic_prefix = KafkaOptions(bootstrap=kafka), options, topic_prefix
        settings = ProjectorSettings(
            kafka=self.kafka,
            postgres=options,
            owner="tests",
            topic=f"{topic_prefix}.run.events",
            entity_topic=f"{topic_prefix}.entity.events",
            channel_topic=f"{topic_prefix}.channel.events",
            prefix=prefix,
        )
        self.settings = {ENTITY_SET: settings.of_entities, CHANNEL_SET: settings.of_channels}
        self.projectors = {name: self.projector(name) for name in BOTH}

    def projector(self, name: str) -> Any:
        def model() -> EntityModel:
            return EntityModel(entity_folds([BOTH[name]]), plain_seal, TABLES[name])

        return build_projector(self.settings[name], CODEC, make_model=model)

    @contextlib.asynccontextmanager
    async def projecting(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(projector.run(stop)) for projector in self.projectors.values()]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    def topics(self, name: str) -> Topics:
        return Topics.of(name, self.topic_prefix)


class Process:
    """A process that owns all partitions of both topic sets."""

    def __init__(self, site: Site, stack: contextlib.AsyncExitStack, name: str) -> None:
        self.site, self._stack, self._name = site, stack, name
        self.hosted: dict[str, HostedEntities] = {}

    async def open(self) -> None:
        site = self.site
        appender, ranges = KafkaAppender(site.kafka), KafkaRanges(site.kafka)
        self.ranges = ranges
        for client in (appender, ranges):
            await client.start()
            self._stack.push_async_callback(client.close)
        count = await appender.partitions(site.topics(CHANNEL_SET).events)
        opened, reads = [], []
        for name, family in BOTH.items():
            topics, families = site.topics(name), FamilySet([family])
            reader = await open_reader(site.postgres, schema=site.settings[name].prefix, max_connections=2)
            self._stack.push_async_callback(reader.close)
            rows = EntityRows(reader, families, events_topic=topics.events, seals=(plain_seal,))
            parts = build_entity_parts(
                [family], CODEC, appender=appender, ranges=ranges, partitions=count, topics=topics, rows=rows, name=name
            )
            await parts.replicas.open()
            opened.append((parts, rows))
            reads.append(EntityReader(parts.family.families, parts.replicas, rows, reader, parts.client, wait_s=30))
        self.parts = join_parts(*(parts for parts, _ in opened))
        self.reads = RoutedReads(self.parts, *reads)
        for parts, rows in opened:
            commands = await self._tail(parts.topics.commands, dict.fromkeys(range(count), 0))
            commands.pause(range(count))
            self.hosted[parts.family.name] = HostedEntities(
                parts,
                CODEC,
                appender=appender,
                ranges=ranges,
                commands=commands,
                dead_letters=DeadLetters(
                    CODEC, appender, topic=parts.topics.dead_letters, service="test", clock_ms=clock_ms
                ),
                rows=rows,
                run_topics=site.topics("run"),
                clock_ms=clock_ms,
                name=self._name,
            )
            events = await self._tail(parts.topics.events, parts.replicas.next_offsets)
            self._run(parts.replicas.follow(events))
        host = Host(
            *(one.topic_set for one in self.hosted.values()), membership=FixedMembership(frozenset(range(count)))
        )
        for one in self.hosted.values():
            one.attach(host)
        self._run(host.run())

    async def _tail(self, topic: str, starts: Any) -> KafkaTail:
        tail = await open_tail(self.site.kafka, topic, starts)
        self._stack.push_async_callback(tail.close)
        return tail

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        self._stack.push_async_callback(end)

    async def increment(self, name: str, command_id: str, *, also: str = "") -> Any:
        envelope = CommandEnvelope(command_id=command_id, tenant="acme", subject="ada", issued_at_ms=clock_ms())
        return await self.parts.client.ask(
            IncrementCounter(envelope=envelope, name=name, by=1, also=also), wait_s=ANSWER_S
        )

    async def value(self, family: str, name: str) -> int:
        row = await self.reads.show(family, "acme", name)
        return 0 if row is None else row.entity.state.value


@contextlib.asynccontextmanager
async def process(site: Site, name: str) -> AsyncIterator[Process]:
    async with contextlib.AsyncExitStack() as stack:
        made = Process(site, stack, name)
        await made.open()
        yield made


async def holds(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(ANSWER_S):
        while not await condition():
            await asyncio.sleep(0.02)


@pytest.fixture
async def site(kafka, options, topic_prefix, prefix) -> Site:
    await apply(kafka, prefix=topic_prefix, partitions=1)
    return Site(kafka, options, topic_prefix, prefix)


@pytest.mark.integration
async def test_both_sets_work_beside_each_other_and_channels_go_on_without_their_first_events(site: Site) -> None:
    channels = site.topics(CHANNEL_SET)
    async with site.projecting():
        async with process(site, "a") as first:
            answer = await first.increment("q", "c1", also="t")
            assert answer.topic == channels.events

            async def echoed() -> bool:
                return await first.value("pause", "t") == 1 and await first.value("counter", "echo") == 1

            await holds(echoed)
            assert await first.value("counter", "q") == 1
            hosted = first.hosted[CHANNEL_SET]
            owner = hosted.topic_set.owners[0]
            assert await hosted.topic_set.checkpoints.make(owner)
            end = await first.ranges.end_offset(channels.events, 0)
        await delete_records(site.kafka, channels.events, 0, before=end)
        async with process(site, "b") as second:
            again = await second.increment("q", "c2")
            assert again.offset >= end
            assert await second.value("counter", "q") == 2
            assert await second.reads.load_items("pause", "acme", "none", ["x"]) == []
            with pytest.raises(EventsDeleted, match=f"before offset {end} of {channels.events}/0 are deleted"):
                await site.projectors[CHANNEL_SET].rebuild(1)
            report = await site.projectors[ENTITY_SET].rebuild(1)
            assert report.equal
    async with await connect(site.postgres) as connection:
        schema = site.settings[CHANNEL_SET].prefix
        result = await connection.execute(f"SELECT name, quarantine FROM {schema}.entities ORDER BY name")
        assert await result.fetchall() == [("echo", ""), ("q", "")]
