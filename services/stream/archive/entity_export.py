"""Export of the aggregates of families for a state file: one pass over every partition, then one by one.

The families say what becomes of their aggregates (StateFiles). As for runs, the accepted records go into a temporary
database on disk that is sorted by aggregate and seq, so memory does not grow with the log; an aggregate never ends, so
nothing is kept of one between its events. Whether its history is whole shows when it is read out: one that is not is
left out and reported. What is left out is counted by family.

Before: loomlog.connectors.protocols.LogRanges. After: state_file.py writes them.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import DIGEST_BYTES, Codec, Undecodable, digest, read_envelope
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import TermReader
from loomlog.services.core.families import StateFiles
from loomlog.services.stream.archive.bundle import blob_refs
from loomlog.services.stream.archive.run_log import WINDOW
from loomlog.services.stream.archive.state_file import StatedAggregate, StatedOmission
from loomlog.services.stream.entities.log_beginnings import term_before

TABLES = """
pragma journal_mode = off;
pragma synchronous = off;
create table aggregates (number integer primary key, aggregate text unique, tenant text, topic text, partition int,
                         first_offset int, broken text default '');
create table left_out (aggregate text primary key, events int default 0) without rowid;
create table records (number int, seq int, place int, value blob, primary key (number, seq)) without rowid;
"""
DECLARED = "state files do not have this family"
INCOMPLETE = "the log does not have the whole history"
DELETED = "aggregates, if there are any, of which the retention of {topic} has deleted every event"


class EntityExport:
    """The aggregates of a log up to a cut. `tenant` empty: all. Close it to delete its database."""

    def __init__(self, codec: Codec, families: Mapping[str, StateFiles], *, tenant: str = "") -> None:
        """`families` of this process by name; aggregates of others are exported."""
        self._families = families
        self._codec = codec
        self._tenant = tenant
        self.schemas: dict[int, bytes] = {}
        """One record of each schema."""
        self.blobs: dict[str, BlobRef] = {}
        """Payloads that the events refer to, by hash."""
        self.unreadable = 0
        """Records that cannot be decoded; an aggregate they belong to is incomplete and reported."""
        self.omitted: list[str] = []
        """A sentence for each incomplete aggregate that `aggregates` has passed over."""
        self._incomplete: dict[str, tuple[int, int]] = {}
        """Their number and that of their events, by family."""
        self._deleted: dict[str, str] = {}
        """Families whose topic has lost its first events, with that topic."""
        # An empty name: a private database in a temporary file that is already deleted.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(TABLES)
        self._database.execute("begin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    async def read(self, ranges: LogRanges, topic: str, partition: int, end: int, families: Sequence[str] = ()) -> None:
        """Read a partition below `end`; `families` are those of the topic. Raises Transient."""
        begins = await ranges.beginning_offset(topic, partition)
        if begins:
            self._deleted |= dict.fromkeys(families, topic)
        term = await term_before(ranges, self._codec, topic, partition, begins)
        reader = TermReader(codec=self._codec, term=term, next_offset=begins)
        for start in range(begins, end, WINDOW):
            records: list[LogRecord] = []
            async with await ranges.read(topic, partition, start, min(start + WINDOW, end)) as chunks:
                async for chunk in chunks:
                    records += chunk
            await asyncio.to_thread(self._feed, topic, partition, reader, records)

    def aggregates(self) -> Iterator[StatedAggregate]:
        """Yield the aggregates with a whole history, in the order of their first events."""
        query = """select number, aggregate, tenant, topic, partition, first_offset, broken from aggregates
                   order by number"""
        for number, aggregate, tenant, topic, partition, first_offset, broken in self._database.execute(query):
            seq, tail, problem = self._follow_chain(number)
            if broken or problem:
                self.omitted.append(f"{aggregate} is left out: {broken or problem}")
                family = aggregate.partition(":")[0]
                aggregates, events = self._incomplete.get(family, (0, 0))
                (number_of_events,) = self._database.execute(
                    "select count(*) from records where number = ?", (number,)
                ).fetchone()
                self._incomplete[family] = aggregates + 1, events + number_of_events
                continue
            yield StatedAggregate(
                aggregate=aggregate,
                tenant=tenant,
                partition=partition,
                first_offset=first_offset,
                events=seq,
                tail_digest=tail.hex(),
                topic=topic,
            )

    def left_out(self) -> Iterator[StatedOmission]:
        """Yield what the file does not have of each family, once `aggregates` is exhausted."""
        query = """select substr(aggregate, 1, instr(aggregate, ':') - 1) as family, count(*), sum(events) from left_out
                   group by family order by family"""
        for family, aggregates, events in self._database.execute(query):
            yield StatedOmission(family=family, aggregates=aggregates, events=events, reason=DECLARED)
        for family, (aggregates, events) in sorted(self._incomplete.items()):
            yield StatedOmission(family=family, aggregates=aggregates, events=events, reason=INCOMPLETE)
        for family, topic in sorted(self._deleted.items()):
            yield StatedOmission(family=family, aggregates=0, events=0, reason=DELETED.format(topic=topic))

    def records(self, aggregate: str) -> Iterator[tuple[int, bytes]]:
        """Yield offset and value of each event of an aggregate, in order."""
        query = """select place, value from records
                   where number = (select number from aggregates where aggregate = ?) order by seq"""
        for event in self._database.execute(query, (aggregate,)):  # noqa: UP028 - it would hand the closing on to the cursor
            yield event

    def _follow_chain(self, number: int) -> tuple[int, bytes, str]:
        """Return the last seq, its digest, and why the history is not whole."""
        expected, tail = 0, bytes(DIGEST_BYTES)
        query = "select seq, place, value from records where number = ? order by seq"
        for seq, place, value in self._database.execute(query, (number,)):
            expected += 1
            if seq != expected or read_envelope(value)[0].prev != tail:
                return expected, tail, f"its history is not whole at offset {place}"
            tail = digest(value)
        return expected, tail, ""

    # --- reading -----------------------------------------------------------------------------------------------------

    def _feed(self, topic: str, partition: int, reader: TermReader, records: Sequence[LogRecord]) -> None:
        for record in records:
            try:
                event = reader.read(record.offset, record.value)
                if event is None:
                    continue
                envelope, _ = read_envelope(event.value)
                decoded = self._codec.decode(event.value).record
            except Undecodable:
                self.unreadable += 1
                continue
            if self._tenant and envelope.tenant != self._tenant:
                continue
            form = self._families.get(event.aggregate.partition(":")[0], StateFiles.EVENTS)
            if form is StateFiles.LEFT_OUT:
                counted = "insert into left_out values (?, 1) on conflict (aggregate) do update set events = events + 1"
                self._database.execute(counted, (event.aggregate,))
            if form is not StateFiles.EVENTS:
                continue
            self._database.execute(
                """insert or ignore into aggregates (aggregate, tenant, topic, partition, first_offset)
                   values (?, ?, ?, ?, ?)""",
                (event.aggregate, envelope.tenant, topic, partition, event.offset),
            )
            added = self._database.execute(
                "insert or ignore into records select number, ?, ?, ? from aggregates where aggregate = ?",
                (event.seq, event.offset, event.value, event.aggregate),
            )
            if not added.rowcount:
                self._database.execute(
                    "update aggregates set broken = ? where aggregate = ?",
                    (f"it repeats seq {event.seq} at offset {event.offset}", event.aggregate),
                )
            self.schemas.setdefault(event.schema_id, event.value)
            self.blobs.update((ref.sha256, ref) for ref in blob_refs(decoded))
