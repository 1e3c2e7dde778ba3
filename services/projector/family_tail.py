"""Tail of the events of a family into tables of its own, with cursors of its own, beside the projections.

    session      connect, wait until no other process has the lock, prepare the tables, claim, open the tail, follow it
    follow       poll -> the events of the family -> one transaction: cursors, statements of `handle`, a notification

Records of other families are told apart by their schema id and not decoded. An event that was imported with its
aggregate counts like one that happened here, at the time of the import. A poll without events of the family moves
the cursors at most once in a while. The rows of an event are written exactly once, because they and the cursor are one
transaction (projections/engine/cursors.py), and by one process at a time, because the lock is that of the connection
that writes: numbers from a sequence never appear behind a reader. Commits wait for the disk for the same reason.

A lost broker, a lost Postgres and a fence end the session, never the process; the next one starts after a backoff. Any
other error, also one of `handle`, ends the process.

Before: main.py builds and runs it. After: projections/engine/cursors.py and the handler of the family.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import psycopg
from sqlalchemy import MetaData, Table

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka import count_partitions, open_tail
from loomlog.connectors.process.sessions import run_sessions, wait_for_stop
from loomlog.connectors.protocols import LogRecord, LogTail
from loomlog.connectors.storage.postgres import connect, translate_errors
from loomlog.projections.engine import cursors
from loomlog.projections.engine.batch import Cursor, PositionedEvent
from loomlog.projections.engine.rebuild import Connect
from loomlog.projections.engine.writer import Statement
from loomlog.schemas.codec import FRAME_BYTES, Codec, Undecodable, local_codec
from loomlog.schemas.generated.entity_events import AggregateEventImported
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.reader import TermReader
from loomlog.services.core.entity_import import original_event
from loomlog.services.projector.pace import Pace
from loomlog.services.projector.settings import ProjectorSettings

log = logging.getLogger("loomlog.projector")

Connection = psycopg.AsyncConnection[Any]
Prepare = Callable[[Connection], Awaitable[None]]
"""Creates the schema and its tables, `cursors_table` among them; in autocommit mode. Idempotent."""
Handle = Callable[[Sequence[PositionedEvent]], Awaitable[Sequence[Statement]]]
"""Returns the statements that write what follows from events, which come by partition and in log order."""
Maintain = Callable[[Connection], Awaitable[None]]
"""Other work on the tables, such as retention; in autocommit mode, between two transactions."""

STANDBY_POLL_S = 0.5
"""How often a standby tries the lock: the longest delay of a takeover."""
IDLE_COMMIT_S = 1.0
"""Longest time that the stored cursors are behind when no event of the family comes."""
MAINTAIN_EVERY_S = 30.0
NOTIFY = b"SELECT pg_notify(%s, '')"


def cursors_table(metadata: MetaData) -> Table:
    """Add the table of cursors to the tables of a family; `prepare` creates it with them."""
    return cursors.cursors.to_metadata(metadata)


def commit_channel(schema: str) -> str:
    """Return the NOTIFY channel of the commits into a schema; payloads are empty."""
    return f"{schema}_positions"


class FamilyTail:
    """Follows the entity topic for one family. `connect`, `open_tail` and `count_partitions` raise Transient when
    Postgres or broker is away.
    """

    def __init__(
        self,
        schema: str,
        topic: str,
        events: Iterable[type[Any]],
        *,
        owner: str,
        connect: Connect,
        open_tail: Callable[[Mapping[int, int]], Awaitable[LogTail]],
        count_partitions: Callable[[], Awaitable[int]],
        prepare: Prepare,
        handle: Handle,
        maintain: Maintain | None = None,
        codec: Codec | None = None,
        poll_timeout_s: float = 1.0,
        max_records: int = 5_000,
        rest_s: float = 0.0,
    ) -> None:
        """`schema`: of Postgres, with the table `cursors`. `events`: the record classes that `handle` gets.

        `rest_s`: shortest time between two transactions, whose CPU is taken from the runs on the same machine.
        """
        self.schema, self.topic = schema, topic
        self._owner = owner
        self._connect, self._open_tail, self._count_partitions = connect, open_tail, count_partitions
        self._prepare, self._handle, self._maintain = prepare, handle, maintain
        self._codec = codec or local_codec()
        self._types = frozenset(events)
        names = frozenset(event.SCHEMA for event in self._types) | {Claim.SCHEMA, AggregateEventImported.SCHEMA}
        self._frames = frozenset(number.to_bytes(4, "big") for number in self._codec.schema_ids_of(names))
        self._poll_timeout_s, self._max_records = poll_timeout_s, max_records
        self._rest_s = rest_s
        self._stored: dict[int, Cursor] = {}
        """The cursors as in the table."""
        self._reached: dict[int, Cursor] = {}
        """The cursors behind the records that were read."""
        self._state = "starting"
        self._events = self._problems = self._sessions = self._commits = 0

    @property
    def metrics(self) -> dict[str, int | str]:
        """State and counters of this process."""
        return {
            "state": self._state,
            "events": self._events,
            "problems": self._problems,
            "sessions": self._sessions,
            "commits": self._commits,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Raises Permanent, and any unexpected error."""
        await run_sessions(
            self._session,
            stop,
            log,
            progress=lambda: self._commits,
            failures=(Transient, cursors.Fenced),
            on_failure=self._note_failure,
        )
        self._state = "stopped"

    def _note_failure(self, failure: Exception) -> None:
        self._state = "waiting"

    async def _session(self, stop: asyncio.Event) -> None:
        self._sessions += 1
        async with await self._connect() as connection, translate_errors(f"follow {self.topic} into {self.schema}"):
            if not await self._wait_for_turn(connection, stop):
                return
            await self._prepare(connection)
            partitions = await self._count_partitions()
            if partitions == 0:
                raise Transient(f"topic {self.topic} does not exist yet", kind="unavailable")
            self._stored = await cursors.claim(connection, self.schema, self.topic, range(partitions), self._owner)
            self._reached = dict(self._stored)
            tail = await self._open_tail({number: one.next_offset for number, one in self._stored.items()})
            try:
                await self._follow(connection, tail, stop)
            finally:
                await tail.close()

    async def _wait_for_turn(self, connection: Connection, stop: asyncio.Event) -> bool:
        self._state = "standing by"
        while not stop.is_set():
            result = await connection.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (f"{self.schema}.tail.{self.topic}",)
            )
            row = await result.fetchone()
            if row is not None and row[0]:
                return True
            await wait_for_stop(stop, STANDBY_POLL_S)
        return False

    async def _follow(self, connection: Connection, tail: LogTail, stop: asyncio.Event) -> None:
        self._state = "following"
        clock = time.monotonic
        pace = Pace()
        committed_at = clock()
        maintained_at = -MAINTAIN_EVERY_S
        while not stop.is_set():
            polled = await tail.poll(timeout_s=self._poll_timeout_s, max_records=self._max_records)
            began = clock()
            events = self._read(polled)
            if events or (self._reached != self._stored and began - committed_at >= IDLE_COMMIT_S):
                await self._commit(connection, events)
                committed_at = clock()
                records = sum(map(len, polled.values()))
                if records < self._max_records:
                    await asyncio.sleep(max(self._rest_s, pace.rest_s(records, began, committed_at)))
            if self._maintain is not None and clock() - maintained_at >= MAINTAIN_EVERY_S:
                maintained_at = clock()
                await self._maintain(connection)
        if self._reached != self._stored:
            await self._commit(connection, [])

    def _read(self, polled: Mapping[int, Sequence[LogRecord]]) -> list[PositionedEvent]:
        """Return the accepted events of the family; what cannot be read is logged, counted and left out."""
        events: list[PositionedEvent] = []
        for partition in sorted(polled):
            cursor = self._reached[partition]
            reader = TermReader(codec=self._codec, term=cursor.term, next_offset=cursor.next_offset)
            for record in polled[partition]:
                if record.offset < reader.next_offset:
                    continue
                value = record.value
                if value is None or value[1:FRAME_BYTES] not in self._frames:
                    reader.next_offset = record.offset + 1
                    continue
                try:
                    raw = reader.read(record.offset, value)
                    if raw is None:
                        continue
                    decoded = raw.decode(self._codec)
                    event = decoded.record
                    if isinstance(event, AggregateEventImported):
                        event, _ = original_event(event)
                except Undecodable as error:
                    self._problems += 1
                    log.warning(
                        "%s partition %d offset %d is left out of %s: %s",
                        *(self.topic, partition, record.offset, self.schema, error),
                    )
                    continue
                assert decoded.envelope is not None, "events have envelopes"
                if type(event) in self._types and raw.aggregate.startswith(f"{event.SCHEMA.split('.')[1]}:"):
                    events.append(PositionedEvent(partition, record.offset, decoded.envelope, event, value))
            self._reached[partition] = Cursor(
                partition=partition, next_offset=reader.next_offset, term=reader.term, epoch=cursor.epoch
            )
        return events

    async def _commit(self, connection: Connection, events: Sequence[PositionedEvent]) -> None:
        """Write what follows from the events, and the cursors: two round trips."""
        statements = await self._handle(events) if events else ()
        moves = [(self._stored[number], new) for number, new in self._reached.items() if new != self._stored[number]]
        async with cursors.rollback_on_error(connection):
            async with connection.pipeline():
                await connection.execute(cursors.BEGIN)
                advanced = await cursors.advance(connection, self.schema, self.topic, moves)
            cursors.require_advanced(self.topic, advanced)
            async with connection.pipeline():
                for statement, parameters in statements:
                    await connection.execute(statement, parameters)
                await connection.execute(NOTIFY, (commit_channel(self.schema),))
                await connection.execute(cursors.COMMIT)
        self._stored = dict(self._reached)
        self._events += len(events)
        self._commits += 1


def open_family_tail(
    settings: ProjectorSettings,
    schema: str,
    events: Iterable[type[Any]],
    *,
    prepare: Prepare,
    handle: Handle,
    maintain: Maintain | None = None,
    codec: Codec | None = None,
    rest_s: float = 0.0,
    options: dict[str, Any],
) -> FamilyTail:
    """Return a tail with the broker and the Postgres of the settings. `options`: replace those of FamilyTail, for
    tests.
    """
    defaults: dict[str, Any] = {
        "owner": settings.owner,
        "connect": partial(connect, settings.postgres),
        "open_tail": partial(open_tail, settings.kafka, settings.entity_topic),
        "count_partitions": lambda: count_partitions(settings.kafka, settings.entity_topic),
        "rest_s": rest_s,
    }
    return FamilyTail(
        schema,
        settings.entity_topic,
        events,
        prepare=prepare,
        handle=handle,
        maintain=maintain,
        codec=codec,
        **(defaults | options),
    )
