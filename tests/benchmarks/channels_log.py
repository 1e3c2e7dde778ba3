"""What the other parts of `make bench-channels` do with the log: commands to it, and events read back.

Before: channels_publish.py, channels_schedules.py, channels_parked.py. After: connectors/kafka.
"""

import asyncio
import json
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions, KafkaRanges
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec, peek
from loomlog.schemas.generated.channel_commands import PublishMessage
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import fresh_token
from loomlog.services.core.families import aggregate_id, aggregate_key
from loomlog.services.families.channel.caller import FAMILY_NAME, GLOBAL, SHARED_TENANT, queue_name
from loomlog.services.stream.family import Topics

RUNS, ENTITIES, CHANNELS = Topics.of("run"), Topics.of("entity"), Topics.of("channel")
BATCH = 200
LOOK_S = 0.1
WAIT_S = 600.0


class Seen(NamedTuple):
    """A record as it was read."""

    at_ms: int
    """Its timestamp in the log."""
    key: str
    event: Any


Ends = Mapping[int, int]
Keep = Callable[[Any], bool]


class Log:
    """The topics of a stack."""

    def __init__(self, appender: KafkaAppender, ranges: KafkaRanges) -> None:
        self.appender = appender
        self._ranges = ranges
        self._codec = local_codec()

    async def ends(self, topic: str) -> dict[int, int]:
        """The end of each partition."""
        numbers = range(await self.appender.partitions(topic))
        return {number: await self._ranges.end_offset(topic, number) for number in numbers}

    async def append(self, topic: str, commands: Iterable[tuple[bytes, Any]]) -> None:
        """Append commands, each with its key, in batches."""
        partitions = await self.appender.partitions(topic)
        waiting: dict[int, list[ProducerRecord]] = defaultdict(list)
        for key, command in commands:
            number = partition_of(key, partitions)
            waiting[number].append(ProducerRecord(key=key, value=self._codec.encode(command)))
            if len(waiting[number]) >= BATCH:
                await self.appender.append(topic, number, waiting.pop(number))
        await asyncio.gather(*(self.appender.append(topic, number, records) for number, records in waiting.items()))

    async def read(
        self, topic: str, start: Ends, kind: type[Any], keep: Keep = bool, ends: Ends | None = None
    ) -> list[Seen]:
        """The records of a kind that are kept, between two ends."""
        schema_id, result = self._codec.schema_id_of(kind.SCHEMA), list[Seen]()
        for number, end in (ends or await self.ends(topic)).items():
            if end <= start[number]:
                continue
            async with await self._ranges.read(topic, number, start[number], end) as chunks:
                async for chunk in chunks:
                    for record in chunk:
                        if not record.value or peek(record.value).schema_id != schema_id:
                            continue
                        one = self._codec.decode(record.value).record
                        if keep(one):
                            result.append(Seen(record.timestamp, (record.key or b"").decode(), one))
        return result

    async def until(self, topic: str, start: Ends, count: int, kind: type[Any], keep: Keep = bool) -> list[Seen]:
        """As `read`, once there are so many of them. SystemExit when they do not come."""
        found, next_offsets, until = list[Seen](), dict(start), time.monotonic() + WAIT_S
        while len(found) < count:
            ends = await self.ends(topic)
            if ends != next_offsets:
                found += await self.read(topic, next_offsets, kind, keep, ends)
                next_offsets = ends
            elif time.monotonic() > until:
                raise SystemExit(f"{topic}: {len(found)} of {count} {kind.__name__} after {WAIT_S:.0f} s")
            else:
                await asyncio.sleep(LOOK_S)
        return found


@asynccontextmanager
async def open_log(bootstrap: str) -> AsyncIterator[Log]:
    options = KafkaOptions(bootstrap=bootstrap, client_id="channels-bench")
    appender, ranges = KafkaAppender(options), KafkaRanges(options)
    await appender.start()
    await ranges.start()
    try:
        yield Log(appender, ranges)
    finally:
        await ranges.close()
        await appender.close()


def publish(channel: str, value: Any) -> tuple[bytes, PublishMessage]:
    """The command that publishes to a global channel, with its key."""
    now_ms = time.time_ns() // 1_000_000
    envelope = CommandEnvelope(command_id=fresh_token(now_ms, _random()), tenant=SHARED_TENANT, issued_at_ms=now_ms)
    command = PublishMessage(
        envelope=envelope, channel=channel, scope=GLOBAL, scope_id="", value=json.dumps(value), publisher="_admin"
    )
    return aggregate_key(aggregate_id(FAMILY_NAME, SHARED_TENANT, queue_name(channel, GLOBAL, ""))), command


def subscribers(agent: str, channels: Sequence[str], wait_ms: int) -> list[tuple[bytes, StartRun]]:
    """The commands that start a run for each channel, which waits for one message in each of its two turns."""
    now_ms = time.time_ns() // 1_000_000
    commands = []
    for channel in channels:
        token = fresh_token(now_ms, _random())
        call = {"op": "subscribe", "channel": channel, "wait_ms": wait_ms, "max_messages": 1}
        command = StartRun(
            envelope=CommandEnvelope(command_id=token, tenant="default", subject="bench", issued_at_ms=now_ms),
            agent=agent,
            prompt=json.dumps([["Channel", call]]),
            run_id=f"r_{token}",
        )
        commands.append((token.encode(), command))
    return commands


def _random() -> bytes:
    return secrets.token_bytes(10)
