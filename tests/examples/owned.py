"""What examples over the log run against: a broker with an owner of the queues or scopes in it, and the program."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges, KafkaTail
from loomlog.redpanda.apply import apply
from loomlog.schemas.codec import local_codec
from loomlog.services.families.registry import Family
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.dead_letters import DeadLetters
from loomlog.services.stream.entities.cold import ColdAggregate, HandledCommand
from loomlog.services.stream.entities.hosting import HostedEntities, build_entity_parts
from loomlog.services.stream.family import Topics
from loomlog.services.stream.host import Host
from tests.services.stream.membership import FixedMembership

PROGRAM_S = 30.0


class NoRows:
    """No aggregate is at rest: all are in the memory of the one owner (protocol ColdRows)."""

    async def next_offset(self, partition: int) -> int:
        return 0

    async def load(self, partition: int, aggregates: Sequence[str]) -> tuple[int, Mapping[str, ColdAggregate]]:
        return 0, {}

    async def find_command(self, partition: int, aggregate: str, command_id: str) -> tuple[int, HandledCommand | None]:
        return 0, None

    async def due_timers(self, partition: int, before_ms: int, limit: int) -> Sequence[tuple[str, int]]:
        return ()


@asynccontextmanager
async def owner(kafka: str, prefix: str, kind: str, family: Family) -> AsyncIterator[tuple[Topics, KafkaAppender]]:
    """Topics of our own whose aggregates have an owner, and what appends to them."""
    await apply(kafka, prefix=prefix)
    topics, options = Topics.of(kind, prefix), KafkaOptions(bootstrap=kafka)
    async with AsyncExitStack() as stack:
        appender, ranges = KafkaAppender(options), KafkaRanges(options)
        for client in (appender, ranges):
            await client.start()
            stack.push_async_callback(client.close)
        partitions = await appender.partitions(topics.commands)
        commands = KafkaTail(options, topics.commands, dict.fromkeys(range(partitions), 0))
        await commands.start()
        stack.push_async_callback(commands.close)
        commands.pause(range(partitions))
        codec, rows = local_codec(), NoRows()
        parts = build_entity_parts(
            (family,), codec, appender=appender, ranges=ranges, partitions=partitions, topics=topics, rows=rows
        )
        entities = HostedEntities(
            parts,
            codec,
            appender=appender,
            ranges=ranges,
            commands=commands,
            dead_letters=DeadLetters(codec, appender, topic=topics.dead_letters, service="test", clock_ms=clock_ms),
            rows=rows,
            run_topics=Topics.of("run", prefix),
            clock_ms=clock_ms,
            name=kind,
        )
        host = Host(entities.topic_set, membership=FixedMembership(frozenset(range(partitions))))
        entities.attach(host)
        owning = asyncio.create_task(host.run())
        try:
            yield topics, appender
        finally:
            owning.cancel()
            await asyncio.wait([owning])


async def printed(program: Path, folder: Path, *arguments: str) -> tuple[str, str]:
    """What a program that stands alone prints, and its errors: it imports the client and nothing of this tree."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
        cwd=folder,
    )
    try:
        async with asyncio.timeout(PROGRAM_S):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    # aiokafka may tell of a retry there: a topic that was just made has no leader for a moment.
    assert process.returncode == 0, errors.decode()
    return out.decode(), errors.decode()
