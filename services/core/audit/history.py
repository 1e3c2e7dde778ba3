"""The rules of the log: terms, dense seqs, and the hash chain of each run.

A broken chain proves that something was changed; which of two neighbours it was follows from other facts. A record
whose signed fingerprint matches is as written, so the other one is wrong. Among unsigned records, an event that
contradicts both its neighbours was changed itself; one that contradicts only its predecessor leaves both possible, and
then the predecessor is named. The last event of a run has no successor; only a signature covers it, and those of its
fields that are repeated in key and headers.

A term greater than the current one means that its Claim is missing or not recognisable: the term is accepted, or one
damaged Claim would make everything after it look stale.

Memory: one entry per live run, ENDED_MAX ended ones, CLAIMS_MAX terms; not the history. Before: alignment.py. After:
verify.py.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from loomlog.schemas.codec import DIGEST_BYTES, FRAME_BYTES, Codec, Undecodable, peek, read_envelope
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.ids import event_id, partition_key
from loomlog.services.core.audit.approvals import ApprovalOrder
from loomlog.services.core.audit.findings import FindingKind, FindingLog, PendingFinding
from loomlog.services.core.audit.hashes import HashedRecord
from loomlog.services.core.audit.references import References
from loomlog.services.core.families import aggregate_key

ENDINGS = frozenset(record.SCHEMA for record in (RunCompleted, RunFailed, RunCancelled, RunRefused))
ENDED_MAX = 50_000
"""Ended runs whose last seq is remembered, so that an event after the end is recognised; about 15 MB."""
LIVE_MAX = 300_000
"""Runs or aggregates that may go on whose last event is remembered, about 80 MB: aggregates of the entity topics never
end. Of one that is forgotten the next event is not compared with the one before it; its signature still is.
"""
CLAIMS_MAX = 10_000
"""Terms remembered, so that the term of a stale record is known to have existed; grows with
restarts, not with events.
"""
OPEN_RUNS_MAX = 1_000
"""Maximum damaged records that no gap of a run has explained yet."""
NO_DIGEST = bytes(DIGEST_BYTES)


@dataclass(slots=True)
class RunTail:
    """The last event of a run. An empty digest means that it was damaged, so the next event cannot
    be compared with it.
    """

    seq: int
    digest: bytes
    offset: int
    signed: bool
    skipped: "RunTail | None" = None
    """For a damaged event: the tail before it, in case the damaged record was not an event of this run."""
    blamed: PendingFinding | None = None
    """The finding that names the predecessor as changed, because this event contradicts it; this event may yet be the
    changed one.
    """


class ChainStep(NamedTuple):
    """An accepted event of a run, and the run's last event before it."""

    offset: int
    run_id: str
    seq: int
    before: RunTail | None


class RunHistory:
    """Apply the rules to the records of one partition, in order. Findings go to the notebook."""

    def __init__(self, *, codec: Codec, notebook: FindingLog, begins_at: int, term: int) -> None:
        self.references = References(codec)
        self._approvals = ApprovalOrder(codec)
        self.events = self.claims = 0
        self.watched = ""
        """Id of the run whose offsets are reported."""
        self.watched_offsets: list[int] = []
        """Offsets of the watched run's first and last event."""
        self.watched_first_seq = self.watched_seq = 0
        self.watched_ended = False
        self._codec = codec
        self._notebook = notebook
        self._begins_at = begins_at
        self._term = term
        self._claim_ids = codec.schema_ids_of(frozenset({Claim.SCHEMA}))
        self._ending_ids = codec.schema_ids_of(ENDINGS)
        self._live: dict[str, RunTail] = {}
        self._ended: OrderedDict[str, RunTail] = OrderedDict()
        self._knows_all = begins_at == 0
        """Every run is in memory; false for a log read from the middle, or once ended runs are forgotten."""
        self._terms: OrderedDict[int, None] = OrderedDict({term: None} if term >= 0 else {})
        self._open: deque[PendingFinding] = deque(maxlen=OPEN_RUNS_MAX)
        self._damaged: deque[int] = deque(maxlen=OPEN_RUNS_MAX)
        """Offsets of damaged records; any of them may have been a Claim."""
        self._odd: tuple[int, PendingFinding, HashedRecord, int] | None = None
        """(term, finding, record, offset) of the last record whose term names no Claim."""
        self._steps: deque[ChainStep] = deque(maxlen=OPEN_RUNS_MAX)
        """Steps since the last damaged record: if that was a Claim, some of them were stale."""

    @property
    def live_runs(self) -> int:
        return len(self._live)

    # --- records -----------------------------------------------------------------------------------------------------

    def read(self, hashed: HashedRecord, offset: int, *, signed: bool) -> None:
        """Apply a record that is as signed, or unsigned. `offset` is the one it was written at."""
        value = hashed.record.value or b""
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        if schema_id in self._claim_ids and value[:1] == b"\0":
            self._claim(value, offset)
            return
        try:
            envelope, _ = read_envelope(value)
            if not signed or self.references.may_be_in(schema_id):
                self.references.collect(hashed, offset, envelope)
            else:
                self._codec.name_of(value)
        except Undecodable as error:
            self._unreadable(offset, str(error), signed=signed)
            return
        if envelope.term != self._term and not self._takes_over(envelope, hashed, offset, signed=signed):
            return
        self.events += 1
        wrong = "" if signed else find_contradiction(hashed, envelope, self._codec)
        if wrong and envelope.aggregate not in self._live and envelope.aggregate not in self._ended:
            # The changed part may be the run's name.
            self._opened(self._damage(FindingKind.EDITED, offset, envelope, wrong))
            return
        is_right = self._chain(envelope, hashed, offset, schema_id in self._ending_ids, signed=signed)
        if wrong and is_right:
            self._damage(FindingKind.EDITED, offset, envelope, wrong)
        if not is_right:
            self._approvals.forget(envelope.aggregate)
        elif unapproved := self._approvals.read(schema_id, envelope.aggregate, value):
            self._damage(FindingKind.ILLEGAL, offset, envelope, unapproved)

    def record_damaged(self, suspicion: PendingFinding, hashed: HashedRecord | None) -> None:
        """Record that a signed record is changed or missing. Its remaining bytes may still identify it."""
        self._damaged.append(suspicion.offset)
        if hashed is not None:
            suspicion.run_id, suspicion.seq = suspicion.here = self.said_by(hashed)
            self._approvals.forget(suspicion.run_id)
            if self._skip(suspicion.run_id, suspicion.seq, suspicion.offset):
                return
        self._opened(suspicion)

    def said_by(self, hashed: HashedRecord) -> tuple[str, int]:
        """Return run and seq, if the bytes still contain them."""
        try:
            peeked = peek(hashed.record.value or b"")
        except Undecodable:
            return "", -1
        if peeked.schema_id in self._claim_ids or not peeked.aggregate.isprintable():
            return "", -1
        return peeked.aggregate, peeked.seq

    def _unreadable(self, offset: int, error: str, *, signed: bool) -> None:
        why = "signed like this" if signed else "not signed"
        self._opened(
            self._notebook.note(PendingFinding(kind=FindingKind.UNREADABLE, offset=offset, detail=f"{error} ({why})"))
        )

    def _opened(self, suspicion: PendingFinding) -> None:
        self._open.append(suspicion)
        self._damaged.append(suspicion.offset)

    def _skip(self, run_id: str, seq: int, offset: int) -> bool:
        """Advance a run past a damaged event, if it is the run's next one: its digest has no meaning."""
        tail = self._live.get(run_id)
        if tail is None or seq != tail.seq + 1:
            return False
        self._live[run_id] = RunTail(seq, b"", offset, signed=False, skipped=tail)
        return True

    # --- terms -------------------------------------------------------------------------------------------------------

    def _claim(self, value: bytes, offset: int) -> None:
        try:
            seen = peek(value).term
        except Undecodable:
            seen = -1  # it is still a Claim: its offset is the term
        if seen > self._term and seen in self._damaged:
            self._undo_behind(seen)  # its writer saw a Claim that we could not recognise
        self._begin_term(offset)
        self.claims += 1

    def _begin_term(self, term: int) -> None:
        self._term = term
        self._odd = None
        self._steps.clear()
        self._terms[term] = None
        if len(self._terms) > CLAIMS_MAX:
            self._terms.popitem(last=False)

    def _takes_over(self, envelope: Envelope, hashed: HashedRecord, offset: int, *, signed: bool) -> bool:
        """Whether a record of another term is accepted, because the Claim of its term is the damaged record."""
        term = envelope.term
        if term < self._term or not self._begins_at <= term < offset:
            forgotten = 0 <= term < max(self._begins_at, next(iter(self._terms), 0))
            if term in self._terms or term in self._damaged or forgotten:
                self._stale(offset, envelope.aggregate, envelope.seq, f"term {term}, in force is {self._term}")
            else:
                kind = FindingKind.ILLEGAL if signed else FindingKind.EDITED
                self._damage(kind, offset, envelope, f"its term {term} names no Claim, in force is {self._term}")
                self._skip(envelope.aggregate, envelope.seq, offset)
            return False
        if signed or term in self._damaged:
            if term not in self._damaged:
                self._damage(FindingKind.ILLEGAL, offset, envelope, f"there is no Claim at its term {term}")
            self._undo_behind(term)
            self._begin_term(term)
            return True
        if self._odd is not None and self._odd[0] == term:
            # Two records in a row: their terms are right, the Claim is missing.
            _, suspicion, first, first_offset = self._odd
            suspicion.kind, suspicion.offset, suspicion.run_id, suspicion.seq = FindingKind.REMOVED, term, "", -1
            suspicion.detail = "records behind it were written under this term, but there is no Claim"
            self._begin_term(term)
            self.read(first, first_offset, signed=False)
            return True
        suspicion = self._damage(FindingKind.EDITED, offset, envelope, f"its term {term} names no Claim")
        self._odd = (term, suspicion, hashed, offset)
        self._skip(envelope.aggregate, envelope.seq, offset)
        return False

    def _undo_behind(self, term: int) -> None:
        """Undo events accepted since a damaged record that turns out to be the Claim of this term: they were stale."""
        while self._steps and self._steps[-1].offset > term:
            step = self._steps.pop()
            self._ended.pop(step.run_id, None)
            if step.before is None:
                self._live.pop(step.run_id, None)
            else:
                self._live[step.run_id] = step.before
            self.events -= 1
            self._stale(step.offset, step.run_id, step.seq, f"the damaged record at {term} began another term")

    def _stale(self, offset: int, run_id: str, seq: int, detail: str) -> None:
        self._notebook.note(
            PendingFinding(kind=FindingKind.STALE, offset=offset, run_id=run_id, seq=seq, detail=detail)
        )

    # --- runs --------------------------------------------------------------------------------------------------------

    def _chain(self, envelope: Envelope, hashed: HashedRecord, offset: int, ends: bool, *, signed: bool) -> bool:
        """Append the event to its run; return False when a finding about it was noted."""
        run_id, seq = envelope.aggregate, envelope.seq
        is_right = True
        tail = self._live.get(run_id)
        while tail is not None and tail.skipped is not None and seq <= tail.seq:
            tail = tail.skipped  # the damaged record was stale or of another run
        if tail is None and (tail := self._ended.get(run_id)) is not None and seq > tail.seq:
            self._live[run_id] = self._ended.pop(run_id)
        if tail is None:
            tail = RunTail(
                0 if self._knows_all or seq == 1 else seq - 1, NO_DIGEST if seq == 1 else b"", -1, signed=True
            )
        blamed: PendingFinding | None = None
        if seq != tail.seq + 1:
            if not signed and tail.digest and envelope.prev == tail.digest:
                detail = f"it says seq {seq}, but follows seq {tail.seq} by its hash"
                seq = tail.seq + 1
                self._notebook.note(
                    PendingFinding(kind=FindingKind.EDITED, offset=offset, run_id=run_id, seq=seq, detail=detail)
                )
                is_right = False
            elif seq <= tail.seq:
                self._repeated(envelope, offset, signed=signed)
                return False
            else:
                self._gap(envelope, tail, offset, signed=signed)
                self._approvals.forget(run_id)  # the approval may be among what is missing
        elif tail.digest and envelope.prev != tail.digest:
            blamed = self._broken(envelope, tail, offset, signed=signed)
        if self._damaged:
            self._steps.append(ChainStep(offset, run_id, seq, self._live.get(run_id)))
        after = RunTail(seq, hashed.value_hash[:DIGEST_BYTES], offset, signed, blamed=blamed)
        if ends:
            self._live.pop(run_id, None)
            self._ended[run_id] = after
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
                self._knows_all = False
        else:
            self._live.pop(run_id, None)  # the one that was quiet for longest is first
            self._live[run_id] = after
            if len(self._live) > LIVE_MAX:
                del self._live[next(iter(self._live))]
                self._knows_all = False
        if run_id == self.watched:
            self.watched_first_seq = self.watched_first_seq or seq
            self.watched_offsets = [*self.watched_offsets[:1], offset]
            self.watched_seq, self.watched_ended = seq, ends
        return is_right

    def _broken(self, envelope: Envelope, tail: RunTail, offset: int, *, signed: bool) -> PendingFinding | None:
        """Handle an event that names another digest than its predecessor's."""
        if signed:
            self._damage(FindingKind.ILLEGAL, offset, envelope, "it does not name the digest of the event before it")
            return None
        if tail.signed or tail.seq == 0:
            self._damage(FindingKind.EDITED, offset, envelope, "it does not name the digest of the event before it")
            return None
        if tail.blamed is not None:
            # It contradicts both neighbours: it was changed itself, not the event before it.
            tail.blamed.offset, tail.blamed.seq = tail.offset, tail.seq
            tail.blamed.detail = "neither the event before it nor the one after it agrees with it"
            return None
        return self._notebook.note(
            PendingFinding(
                kind=FindingKind.EDITED,
                offset=tail.offset,
                run_id=envelope.aggregate,
                seq=tail.seq,
                detail=f"seq {envelope.seq} at offset {offset} names another digest",
            )
        )

    def _gap(self, envelope: Envelope, tail: RunTail, offset: int, *, signed: bool) -> None:
        """Note missing events of a run, unless damaged records in between explain them."""
        run_id, first, count = envelope.aggregate, tail.seq + 1, envelope.seq - tail.seq - 1
        between = [one for one in self._open if tail.offset < one.offset < offset]
        if len(between) == count:
            for seq, one in enumerate(between, start=first):
                one.run_id, one.seq = run_id, seq
                self._open.remove(one)
        if between:
            return
        kind = FindingKind.ILLEGAL if signed and tail.signed else FindingKind.REMOVED
        self._notebook.note(
            PendingFinding(
                kind=kind,
                offset=-1,
                count=count,
                run_id=run_id,
                seq=first,
                detail=f"the run continues with seq {envelope.seq} at offset {offset}",
            )
        )

    def _repeated(self, envelope: Envelope, offset: int, *, signed: bool) -> None:
        """Handle a seq that the run already had."""
        gap = self._notebook.gap_of(envelope.aggregate, envelope.seq)
        if gap is not None and not signed:
            gap.kind, gap.offset = FindingKind.REORDERED, offset
            gap.detail = "it is stored after events of the run that follow it"
            return
        kind = FindingKind.ILLEGAL if signed else FindingKind.INSERTED
        self._damage(kind, offset, envelope, "the run has an event of this seq already")

    def _damage(self, kind: FindingKind, offset: int, envelope: Envelope, detail: str) -> PendingFinding:
        return self._notebook.note(
            PendingFinding(kind=kind, offset=offset, run_id=envelope.aggregate, seq=envelope.seq, detail=detail)
        )


def find_contradiction(hashed: HashedRecord, envelope: Envelope, codec: Codec) -> str:
    """Describe how key and headers contradict the event; they are not in the run's chain."""
    record = hashed.record
    if record.key != _key_of(envelope.aggregate):
        return "its key is not that of its aggregate"
    headers = dict(record.headers)
    if headers.get("ce_id") != event_id(envelope.aggregate, envelope.seq).encode():
        return "its header ce_id is not that of the event"
    if headers.get("ce_type") != codec.name_of(record.value or b"").encode():
        return "its header ce_type is not that of the event"
    return ""


def _key_of(aggregate: str) -> bytes:
    """Return the key of the records of a run or of an aggregate of the entity topics; only those have a colon."""
    return aggregate_key(aggregate) if ":" in aggregate else partition_key(aggregate).encode()
