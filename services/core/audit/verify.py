"""Verification of one partition: compares the records found with the rules of the log and with what was signed.

    checkpoint_chain.py   which checkpoints are trusted, and what they state about the log
    alignment.py          which record is as signed, which one was changed, lost, added
    history.py            terms, dense seqs, the hash chain of each run; explains the rest

Pure, a value driven by its caller, which supplies the records:

    while audit.wants_checkpoint:   audit.checkpoint(next one)   or   audit.checkpoints_end()
    audit.record(next one)          and in between audit.take_references()
    ... audit.end() until it is True, then the remaining checkpoints, then audit.report()

Memory: the live runs, ENDED_MAX ended ones, two checkpoints, and the records held back on a disagreement
(alignment.WINDOWS); it does not grow with the history.

Not chosen: comparing range by range. A record missing in a copy shifts all later offsets, and every later range would
be reported as damaged.

Before: services/application/log/verification.py reads the log. After: services/cli/log/audit.py shows the report.
"""

from collections import Counter, deque

from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import AuditCheckpoint
from loomlog.schemas.records import Value
from loomlog.services.core.audit.alignment import AlignedPair, Aligner, RecordMatch
from loomlog.services.core.audit.checkpoint_chain import ChainBound, CheckpointChain, SignedRange
from loomlog.services.core.audit.checkpoints import Keys
from loomlog.services.core.audit.findings import AuditFinding, FindingKind, FindingLog, PendingFinding
from loomlog.services.core.audit.hashes import START_CHAIN, StoredRecord, extend_chain, hash_record
from loomlog.services.core.audit.history import RunHistory
from loomlog.services.core.audit.references import Reference


class VerificationStart(Value, frozen=True, kw_only=True):
    """Start of a verification: the log's first record, or the state that a trusted checkpoint has
    for its first offset.
    """

    offset: int = 0
    chain: bytes = START_CHAIN
    term: int = -1

    @staticmethod
    def at(checkpoint: AuditCheckpoint) -> "VerificationStart":
        return VerificationStart(
            offset=checkpoint.first_offset, chain=checkpoint.start_chain, term=checkpoint.start_term
        )


class WatchedRun(Value, frozen=True, kw_only=True):
    """The one run that was requested. Offsets are -1 when it was not found."""

    run_id: str
    first_seq: int
    """First seq read: 1, unless reading started after the run's beginning."""
    first_offset: int
    last_offset: int
    seq: int
    ended: bool


class VerificationReport(Value, frozen=True, kw_only=True):
    """Result of verifying a partition."""

    topic: str
    partition: int
    records: int
    signed_records: int
    """Number of records that match a trusted checkpoint."""
    events: int
    claims: int
    stale: int
    live_runs: int
    first_offset: int
    next_offset: int
    """End offset of the log."""
    covered: int
    """Offset up to which trusted checkpoints reach."""
    ranges: tuple[SignedRange, ...]
    newest: AuditCheckpoint | None
    unknown_keys: Counter[str]
    unsigned: int
    """Number of records after the last checkpoint."""
    unsigned_since_ms: int
    findings: tuple[AuditFinding, ...]
    uncounted: int
    """Number of violations beyond those listed."""
    watched: WatchedRun | None
    deleted_before: int = 0
    """Records before this offset are deleted by the topic's retention, and were not verified."""

    @property
    def is_clean(self) -> bool:
        return not self.uncounted and not any(finding.kind.is_violation for finding in self.findings)


class PartitionAudit:
    """Verify one partition. `topic` is the name that was signed, wherever the records are read from."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        keys: Keys,
        codec: Codec,
        checkpoints_topic: str,
        start: VerificationStart | None = None,
        watch: str = "",
        siblings: frozenset[str] = frozenset(),
    ) -> None:
        """`siblings`: the other events topics whose checkpoints are in the same topic."""
        start = start or VerificationStart()
        self._topic, self._partition, self._checkpoints_topic = topic, partition, checkpoints_topic
        self._notebook = FindingLog()
        self._line = CheckpointChain(
            topic=topic,
            partition=partition,
            keys=keys,
            codec=codec,
            notebook=self._notebook,
            covered=start.offset,
            resumed=start.offset > 0,
            siblings=siblings,
        )
        self._aligner = Aligner()
        self._history = RunHistory(codec=codec, notebook=self._notebook, begins_at=start.offset, term=start.term)
        self._history.watched = watch
        self._chain: bytes | None = start.chain
        """The running hash; None after damage, until a checkpoint states it again."""
        self._bounds: deque[ChainBound] = deque()
        self._start = start
        self._closed = self._ended = False
        self._records = self._signed = self._unsigned = 0
        self._unsigned_since = (-1, 0)
        self._next_offset = start.offset
        self._truncated: tuple[int, int] | None = None

    # --- input -------------------------------------------------------------------------------------------------------

    @property
    def wants_checkpoint(self) -> bool:
        """Whether `checkpoint` or `checkpoints_end` has to be called before anything else."""
        return not self._closed and (self._aligner.wants_record or self._ended)

    def checkpoint(self, record: StoredRecord) -> None:
        """Add the next record of the checkpoints' partition."""
        expected, bounds, records = self._line.read(record)
        if self._ended:
            if records:
                first, count = self._truncated or (self._line.covered - records, 0)
                self._truncated = (first, count + records)
            return
        self._aligner.expect(expected)
        self._bounds.extend(bounds)

    def checkpoints_end(self) -> None:
        self._closed = True
        self._aligner.close()

    def record(self, record: StoredRecord) -> None:
        """Add the next record of the partition."""
        self._records += 1
        self._next_offset = record.offset + 1
        for pair in self._aligner.add_record(hash_record(record)):
            self._take(pair)

    def end(self) -> bool:
        """Declare the end of the records. False: checkpoints are needed first, then it has to be called again.

        The remaining checkpoints then show what was truncated.
        """
        rest = self._aligner.end()
        if not self._aligner.is_settled:
            for pair in rest:
                self._take(pair)
            return False
        last = max((place for place, pair in enumerate(rest) if pair.actual is not None), default=-1)
        for place, pair in enumerate(rest):
            if place <= last or pair.match is not RecordMatch.LOST:
                self._take(pair)
        cut = [pair.offset for pair in rest[last + 1 :] if pair.match is RecordMatch.LOST]
        if cut:
            self._truncated = (cut[0], len(cut))
        self._ended = True
        return True

    def take_references(self) -> list[Reference]:
        """Return the blobs that events named since the last call."""
        return self._history.references.take()

    def blob_finding(self, reference: Reference, kind: FindingKind, detail: str) -> None:
        """Add a finding about a blob that the caller has examined."""
        self._notebook.note(
            PendingFinding(
                kind=kind, offset=reference.offset, run_id=reference.run_id, seq=reference.seq, detail=detail
            )
        )

    # --- one record --------------------------------------------------------------------------------------------------

    def _take(self, pair: AlignedPair) -> None:
        match, offset, fingerprint, hashed = pair
        if match is RecordMatch.SIGNED or match is RecordMatch.UNSIGNED:
            assert hashed is not None
            signed = match is RecordMatch.SIGNED
            self._reach(offset)
            if self._chain is not None:
                self._chain = extend_chain(self._chain, offset, hashed.record_hash)
            if signed:
                self._signed += 1
            elif offset >= self._line.covered:
                if not self._unsigned:
                    self._unsigned_since = (offset, hashed.record.timestamp)
                self._unsigned += 1
            self._history.read(hashed, offset, signed=signed)
            return
        if match is RecordMatch.ADDED:
            assert hashed is not None
            suspicion = PendingFinding(
                kind=FindingKind.INSERTED,
                offset=hashed.record.offset,
                come=hashed.fingerprint,
                found_at=hashed.record.offset,
                detail="it is not among what was signed",
            )
            suspicion.run_id, suspicion.seq = suspicion.here = self._history.said_by(hashed)
            self._notebook.note(suspicion)
            return
        self._reach(offset)
        self._chain = None
        changed = match is RecordMatch.CHANGED
        suspicion = PendingFinding(
            kind=FindingKind.EDITED if changed else FindingKind.REMOVED,
            offset=offset,
            lost=fingerprint,
            come=hashed.fingerprint if hashed is not None else b"",
            found_at=hashed.record.offset if hashed is not None else -1,
            detail="it is not the record that was signed" if changed else "it was signed and is not there",
        )
        self._notebook.note(suspicion)
        self._history.record_damaged(suspicion, hashed)

    def _reach(self, offset: int) -> None:
        """Compare the running hash at every checkpointed offset up to this one, before its record is added."""
        while self._bounds and self._bounds[0].offset <= offset:
            bound = self._bounds.popleft()
            if self._chain is not None and self._chain != bound.chain:
                self._notebook.note(
                    PendingFinding(
                        kind=FindingKind.EDITED,
                        offset=bound.since,
                        count=bound.offset - bound.since,
                        detail=f"the running hash at {bound.offset} is another one: a record before it was changed",
                    )
                )
            self._chain = bound.chain

    # --- output ------------------------------------------------------------------------------------------------------

    def report(self, *, now_ms: int = 0, max_unsigned_s: float | None = None) -> VerificationReport:
        """Return the result. Records unsigned for longer than `max_unsigned_s` are a violation."""
        assert self._ended, "end() first"
        assert self._closed, "the rest of the checkpoints first"
        if self._truncated is not None:
            first, count = self._truncated
            self._notebook.note(
                PendingFinding(
                    kind=FindingKind.TRUNCATED,
                    offset=first,
                    count=count,
                    detail=f"records up to offset {self._line.covered - 1} were signed, the log ends before",
                )
            )
        else:
            self._reach(max(self._next_offset, self._line.covered))
        if self._unsigned:
            offset, since_ms = self._unsigned_since
            waits_s = (now_ms - since_ms) / 1000
            late = max_unsigned_s is not None and waits_s > max_unsigned_s
            self._notebook.note(
                PendingFinding(
                    kind=FindingKind.UNSIGNED_TOO_LONG if late else FindingKind.UNSIGNED,
                    offset=offset,
                    count=self._unsigned,
                    detail=f"for {waits_s:.0f} s now, {max_unsigned_s:.0f} s are allowed"
                    if late and max_unsigned_s is not None
                    else "not signed yet: only the hash chains of the runs cover them",
                )
            )
        history = self._history
        watched = history.watched_offsets
        return VerificationReport(
            topic=self._topic,
            partition=self._partition,
            records=self._records,
            signed_records=self._signed,
            events=history.events,
            claims=history.claims,
            stale=self._notebook.stale,
            live_runs=history.live_runs,
            first_offset=self._start.offset,
            next_offset=self._next_offset,
            covered=self._line.covered,
            ranges=self._line.ranges,
            newest=self._line.newest,
            unknown_keys=self._line.unknown_keys,
            unsigned=self._unsigned,
            unsigned_since_ms=self._unsigned_since[1],
            findings=tuple(self._finding(one) for one in self._notebook.resolve()),
            uncounted=self._notebook.uncounted,
            watched=WatchedRun(
                run_id=history.watched,
                first_seq=history.watched_first_seq,
                first_offset=watched[0] if watched else -1,
                last_offset=watched[-1] if watched else -1,
                seq=history.watched_seq,
                ended=history.watched_ended,
            )
            if history.watched
            else None,
        )

    def _finding(self, one: PendingFinding) -> AuditFinding:
        return AuditFinding(
            kind=one.kind,
            topic=self._checkpoints_topic if one.in_checkpoints else self._topic,
            partition=self._partition,
            offset=one.offset,
            count=one.count,
            run_id=one.run_id,
            seq=one.seq,
            detail=one.detail,
        )
