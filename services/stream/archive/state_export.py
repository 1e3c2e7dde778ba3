"""Export of runs for a state file: one pass over every partition, then the runs one by one, each complete.

In the log the events of many runs are interleaved; in the file each run is contiguous. The accepted records go into a
temporary database on disk that is sorted by run and seq, and memory holds only the last digests of live runs, however
large the log is. A run is numbered by the position of its first event, and every run it continues is before it, so in
the order of the numbers no run comes before one it refers to.

A run with an incomplete history is left out, with all that continue it, and reported. Refused runs are not exported.

Before: loomlog.connectors.protocols.LogRanges. After: state_file.py writes them. Not chosen: reading each run by its
position (a read of the broker for every run, each of which scans what is between).
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from loomlog.connectors.protocols import LogRanges, LogRecord
from loomlog.schemas.codec import Codec, Undecodable, digest, read_envelope
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused, RunStarted
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import RawEvent, TermReader
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from loomlog.services.stream.archive.bundle import blob_refs
from loomlog.services.stream.archive.run_log import WINDOW
from loomlog.services.stream.archive.state_file import StatedRun

TABLES = """
pragma journal_mode = off;
pragma synchronous = off;
create table runs (number integer primary key, run_id text unique, tenant text, partition int, first_offset int,
                   origin text, events int default 0, tail text default '', over int default 0,
                   ended_at_ms int default 0, broken text default '', wanted int default 0);
create table records (number int, seq int, place int, value blob, primary key (number, seq)) without rowid;
create table refs (number int, sha256 text, size_bytes int, media_type text, primary key (number, sha256))
    without rowid;
create index by_origin on runs (origin);
"""
WANTED = "update runs set wanted = 1 where broken = '' and events > 0 and (over = 0 or (? and ended_at_ms >= ?))"
ORIGINS = """update runs set wanted = 1 where wanted = 0 and broken = ''
             and run_id in (select origin from runs where wanted = 1 and origin <> '')"""
ORPHANS = """update runs set wanted = 0, broken = 'it goes on with ' || origin || ', which is not whole'
             where wanted = 1 and origin <> '' and origin not in (select run_id from runs where wanted = 1)"""


@dataclass(slots=True)
class _Open:
    """A run whose end has not been read."""

    number: int
    seq: int = 0
    tail: bytes = field(default_factory=lambda: bytes(16))
    is_broken: bool = False


class StateExport:
    """The runs of a log up to a cut. `tenant` empty: all. Close it to delete its database.

    Iterators over it may be abandoned: cursors are dropped and not closed, because closing one after its database is an
    error.
    """

    def __init__(self, codec: Codec, *, tenant: str = "") -> None:
        self._codec = codec
        self._tenant = tenant
        self._open: dict[str, _Open] = {}
        self.schemas: dict[int, bytes] = {}
        """One record of each schema."""
        self.unreadable = 0
        """Records that cannot be decoded; a run they belong to is incomplete and reported."""
        # An empty name: a private database in a temporary file that is already deleted.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.executescript(TABLES)
        self._database.execute("begin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    async def read(self, ranges: LogRanges, topic: str, partition: int, end: int) -> None:
        """Read a partition below `end`. Partitions are read one after the other. Raises Transient."""
        begins = await ranges.beginning_offset(topic, partition)
        reader = TermReader(codec=self._codec, term=-1, next_offset=begins)
        for start in range(begins, end, WINDOW):
            records: list[LogRecord] = []
            async with await ranges.read(topic, partition, start, min(start + WINDOW, end)) as chunks:
                async for chunk in chunks:
                    records += chunk
            await asyncio.to_thread(self._feed, partition, reader, records)
        self._open.clear()

    def choose(self, *, include_history: bool = True, since_ms: int = 0) -> None:
        """Select runs: the live ones, those that ended since then, and the runs these continue."""
        execute = self._database.execute
        execute(WANTED, (include_history, since_ms))
        while execute(ORIGINS).rowcount:
            pass
        while execute(ORPHANS).rowcount:
            pass

    def runs(self) -> Iterator[StatedRun]:
        """Yield the selected runs, each after the runs it continues."""
        asked = """select run_id, tenant, partition, first_offset, events, tail, over from runs
                   where wanted = 1 order by number"""
        for run_id, tenant, partition, first_offset, events, tail, over in self._database.execute(asked):
            yield StatedRun(
                run_id=run_id,
                tenant=tenant,
                partition=partition,
                first_offset=first_offset,
                events=events,
                tail_digest=tail,
                is_over=bool(over),
            )

    def records(self, run_id: str) -> Iterator[tuple[int, bytes]]:
        """Yield offset and value of each event of a run, in order."""
        asked = """select place, value from records where number = (select number from runs where run_id = ?)
                   order by seq"""
        for event in self._database.execute(asked, (run_id,)):  # noqa: UP028 - it would hand the closing on to the cursor
            yield event

    def blobs(self) -> Iterator[BlobRef]:
        """Yield the payloads that the selected runs refer to, each once."""
        asked = """select sha256, size_bytes, media_type from refs
                   where number in (select number from runs where wanted = 1) group by sha256 order by sha256"""
        for sha256, size_bytes, media_type in self._database.execute(asked):
            yield BlobRef(sha256=sha256, size_bytes=size_bytes, media_type=media_type)

    def omitted_runs(self) -> Iterator[str]:
        """Yield a sentence for each incomplete run."""
        asked = "select run_id, broken from runs where broken <> '' order by number"
        for run_id, broken in self._database.execute(asked):
            yield f"{run_id} is left out: {broken}"

    # --- reading -----------------------------------------------------------------------------------------------------

    def _feed(self, partition: int, reader: TermReader, records: Sequence[LogRecord]) -> None:
        for record in records:
            try:
                event = reader.read(record.offset, record.value)
                if event is not None:
                    self._take(partition, event)
            except Undecodable:
                self.unreadable += 1

    def _take(self, partition: int, event: RawEvent) -> None:
        envelope, _ = read_envelope(event.value)
        if self._tenant and envelope.tenant != self._tenant:
            return
        known = self._open.get(event.aggregate)
        if known is not None and known.is_broken:
            return
        decoded = self._codec.decode(event.value).record
        if known is None:
            if not isinstance(decoded, RunStarted):
                if not isinstance(decoded, RunRefused):
                    self._mark_broken(event, partition, envelope.tenant, f"it does not begin at offset {event.offset}")
                return
            origin = conversation_origin(decoded)
            added = self._database.execute(
                "insert into runs (run_id, tenant, partition, first_offset, origin) values (?, ?, ?, ?, ?)"
                " on conflict do nothing returning number",
                (event.aggregate, envelope.tenant, partition, event.offset, "" if origin is None else origin.run_id),
            ).fetchone()
            if added is None:
                self._mark_broken(event, partition, envelope.tenant, f"it begins again at offset {event.offset}")
                return
            known = self._open[event.aggregate] = _Open(added[0])
        if event.seq != known.seq + 1 or envelope.prev != known.tail:
            self._mark_broken(event, partition, envelope.tenant, f"its history is not whole at offset {event.offset}")
            return
        known.seq, known.tail = event.seq, digest(event.value)
        self.schemas.setdefault(event.schema_id, event.value)
        self._database.execute(
            "insert into records values (?, ?, ?, ?)", (known.number, event.seq, event.offset, event.value)
        )
        for ref in blob_refs(decoded):
            self._database.execute(
                "insert or ignore into refs values (?, ?, ?, ?)",
                (known.number, ref.sha256, ref.size_bytes, ref.media_type),
            )
        is_over = isinstance(decoded, RunCompleted | RunFailed | RunCancelled)
        self._database.execute(
            "update runs set events = ?, tail = ?, over = ?, ended_at_ms = ? where number = ?",
            (known.seq, known.tail.hex(), is_over, envelope.at_ms if is_over else 0, known.number),
        )
        if is_over:
            del self._open[event.aggregate]

    def _mark_broken(self, event: RawEvent, partition: int, tenant: str, why: str) -> None:
        self._database.execute(
            "insert into runs (run_id, tenant, partition, first_offset, origin, broken) values (?, ?, ?, ?, '', ?)"
            " on conflict (run_id) do update set broken = excluded.broken",
            (event.aggregate, tenant, partition, event.offset, why),
        )
        known = self._open.setdefault(event.aggregate, _Open(-1))
        known.is_broken = True
