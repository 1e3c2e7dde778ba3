"""Everything a verdict is made of, as it was found: raw records, promises, ledger lines, rows, strikes.

Read when all is over, by a consumer without a group from the first record to the last. Nothing is decoded or judged
here, so that what the checker says rests on bytes.

Before: campaign.  After: history, checker.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition
from psycopg import sql

COMMANDS, EVENTS, DEAD_LETTERS = "loom.run.commands", "loom.run.events", "loom.dead-letter"
ENTITY_EVENTS, CHANNEL_EVENTS = "loom.entity.events", "loom.channel.events"
READ_TIMEOUT_S = 60.0
"""For a whole topic; a hundred thousand records take a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of a topic, undecoded."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a sender was told. `name` is its command id (topic) or its Idempotency-Key (HTTP).

    Over the topic the broker named a place; over HTTP the api named a run. `at_s` is when, in monotonic seconds.
    """

    sender: str
    name: str
    partition: int = -1
    offset: int = -1
    run_id: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """A promotion, and the run that its author started once it was answered; empty while it has no end."""

    line: str
    key: str
    def_id: str
    is_answered: bool = False
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """A message from one run to another, over a channel of its own. Without runs they had no end in time."""

    channel: str
    publisher: str = ""
    reader: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that was done. `process` is the name it had in that life; `back_s` is when it was up again. Times are
    monotonic seconds."""

    target: str
    process: str
    at_s: float
    back_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """When a reader of the log saw the records of a partition from `first` to `last`. Monotonic seconds."""

    partition: int
    first: int
    last: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A write that was tried while the log could not take any: what the api answered, and after how many seconds.

    `status` 0: no answer at all.
    """

    status: int
    code: str
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the read model says of a run. The names are those of the columns of loom.runs."""

    status: str
    stop_reason: str
    error_code: str
    iterations: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    tool_errors: int
    model_errors: int
    partition: int
    first_offset: int
    last_offset: int
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What was spent in all: answers of models and their tokens."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Records by partition in offset order; `effects` are the lines of the ledger; `spent` is what the read model says
    was spent, None when it has no such table."""

    commands: Mapping[int, Sequence[Record]]
    events: Mapping[int, Sequence[Record]]
    dead_letters: Mapping[int, Sequence[Record]]
    promises: Sequence[Promise]
    effects: Sequence[str]
    rows: Mapping[str, Row]
    spent: Spent | None = None
    strikes: Sequence[Strike] = ()
    probes: Sequence[Probe] = ()
    sightings: Sequence[Sighting] = ()
    entity_events: Mapping[int, Sequence[Record]] = field(default_factory=dict)
    channel_events: Mapping[int, Sequence[Record]] = field(default_factory=dict)
    handoffs: Sequence[Handoff] = ()
    delivered: Sequence[str] = ()
    """Ids of deliveries that a webhook has acknowledged."""
    shipped: Sequence[Shipped] = ()
    notes: Sequence[str] = ()
    """Lines of the file that the MCP server writes."""
    remembered: Mapping[str, Any] | None = None
    """What the api says of the memory of the load, by key; None when it was not asked."""


async def read_topic(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Record]]:
    """Every record of a topic with that many partitions. Raises TimeoutError."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none")
    async with asyncio.timeout(READ_TIMEOUT_S):
        await consumer.start()
        try:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            for place in places:
                consumer.seek(place, 0)
            recordses: dict[int, list[Record]] = {number: [] for number in range(partitions)}
            while any([await consumer.position(place) < ends[place] for place in places]):
                for place, records in (await consumer.getmany(timeout_ms=200, max_records=5_000)).items():
                    recordses[place.partition] += [
                        Record(partition=place.partition, offset=r.offset, key=r.key, value=r.value) for r in records
                    ]
            return recordses
        finally:
            await consumer.stop()


async def read_rows(dsn: str) -> dict[str, Row]:
    """The rows of all runs."""
    names = [field.name for field in fields(Row)]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute(sql.SQL("SELECT run_id, {} FROM loom.runs").format(columns))
        return {run_id: Row(**dict(zip(names, values, strict=True))) for run_id, *values in await cursor.fetchall()}


async def read_spent(dsn: str) -> Spent:
    """The sums over everybody and every day."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("SELECT sum(calls), sum(input_tokens), sum(output_tokens) FROM loom.usage")
        calls, values, written = await cursor.fetchone() or (0, 0, 0)
        return Spent(calls=int(calls or 0), input_tokens=int(values or 0), output_tokens=int(written or 0))


async def read_cursors(dsn: str) -> dict[int, int]:
    """How far each partition is projected; empty before the first projector made its tables."""
    try:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            cursor = await connection.execute(
                "SELECT partition, next_offset FROM loom.cursors WHERE topic = %s", (EVENTS,)
            )
            return dict(await cursor.fetchall())
    except (psycopg.errors.UndefinedTable, psycopg.OperationalError):
        return {}  # not there yet, or just being started again


def read_ledger(path: Path) -> list[str]:
    """The lines of the ledger; a file that was never made has none."""
    return path.read_text().splitlines() if path.exists() else []
