"""A partition folded as far as its log was read: everything a takeover needs before it decides.

A takeover without a standby makes one from the latest partition snapshot and feeds it the rest of the log at once. A
standby feeds it records as they are appended, so that its takeover only has to feed the rest. Both get the same
(tests/services/stream/partition/test_recovered_state.py cuts the log anywhere).

Before: services/stream/snapshots/snapshots.py gives the start. After: services/stream/ownership/owner.py makes a
Partition of it.
"""

from collections.abc import Sequence

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.snapshots.snapshots import FoldStart


class PartitionFold:
    """Fed with every record from `start` on, in order. `keep_over`: see Fold."""

    def __init__(self, family: Family, codec: Codec, start: FoldStart, *, keep_over: int | None = None) -> None:
        self.fold = Fold(
            family,
            codec,
            term=start.term,
            next_offset=start.next_offset,
            bases=dict(start.bases),
            keep_over=keep_over,
        )
        self.progress = CommandProgress(start.progress.low, start.progress.above)
        self.lifeline = ""
        """Liveness address of the present owner, from its Claim."""
        self.last_ms = 0
        """Time of the last record; 0 before the first one."""
        self._start = start
        self._codec = codec

    @property
    def next_offset(self) -> int:
        return self.fold.reader.next_offset

    @property
    def term(self) -> int:
        return self.fold.reader.term

    @property
    def known_since_ms(self) -> int:
        """Aggregates that ended before this time may be missing; 0 if none is."""
        return max(self._start.known_since_ms, self.fold.forgotten_before_ms)

    @property
    def start_offset(self) -> int:
        """Offset at which the fold began: everything below is in what it started from."""
        return self._start.next_offset

    @property
    def forgotten_until(self) -> int:
        """Aggregates that ended at or after this offset are all known."""
        return max(self.fold.forgotten_until, self._start.next_offset if self._start.known_since_ms else 0)

    def feed(self, records: Sequence[LogRecord]) -> None:
        """Feed the next records, at least one."""
        reader = self.fold.reader
        claims = reader.claims
        self.fold.feed(records)
        for offset in self.fold.commands:
            self.progress.mark_handled(offset)
        self.fold.commands.clear()
        self.last_ms = records[-1].timestamp
        if reader.claims > claims:
            self.note_claim(next(record for record in reversed(records) if record.offset == reader.term))

    def note_claim(self, record: LogRecord) -> None:
        """Note the Claim of the present owner."""
        try:
            claim = self._codec.decode(record.value or b"").record
        except Undecodable:
            claim = None  # its envelope could be read, so it counts; its owner is unknown
        self.lifeline = claim.lifeline if isinstance(claim, Claim) else ""
