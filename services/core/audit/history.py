"""The rules of the log itself: terms, dense seqs, and the hash chain of each run.

A chain says that something was changed; which of two neighbours it was follows from what else is known. A record whose
signed fingerprint agrees is as it was written, so the fault is with the other. Outside of what is signed, an event that
contradicts both its neighbours was changed itself, one that contradicts only its predecessor may have been either, and
then the predecessor is named. The last event of a run has no successor; only a signature covers it, and what its key
and headers repeat of it.

A term greater than the one in force means that its Claim is gone or cannot be recognised: it is taken over, or one
damaged Claim would make everything behind it look stale.

Memory: one entry a live run, MAX_ENDED ended ones, MAX_CLAIMS terms; not the history.
Before: alignment.py. After: verify.py.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from loomlog.schemas.codec import DIGEST_BYTES, FRAME_BYTES, Codec, Undecodable, peek, read_envelope
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.ids import event_id, partition_key
from loomlog.services.core.audit.findings import FindingKind, FindingLog, PendingFinding
from loomlog.services.core.audit.hashes import HashedRecord
from loomlog.services.core.audit.references import References

ENDINGS = frozenset(record.SCHEMA for record in (RunCompleted, RunFailed, RunCancelled, RunRefused))
ENDED_MAX = 50_000
"""Ended runs whose last seq is remembered, so that an event behind the end is recognised; about 15 MB."""
CLAIMS_MAX = 10_000
"""Terms remembered, so that a stale record's is known to have existed: restarts, not events."""
OPEN_RUNS_MAX = 1_000
"""Damaged records that no gap of a run has explained yet."""
NO_DIGEST = bytes(DIGEST_BYTES)


@dataclass(slots=True)
class RunTail:
    """The last event of a run. An empty digest: it was damaged, so the next one cannot be compared with it."""

    seq: int
    digest: bytes
    offset: int
    signed: bool
    skipped: "RunTail | None" = None
    """Of a damaged one: the one before it, in case that it was no event of this run after all."""
    blamed: PendingFinding | None = None
    """It was named as changed because the next event contradicts it; that one may yet turn out to be the one."""


class ChainStep(NamedTuple):
    """An event of a run that was accepted, and the run's last one before it."""

    offset: int
    run_id: str
    seq: int
    before: RunTail | None


class RunHistory:
    """The rules applied to the records of one partition, in order. What is found goes to the notebook."""

    def __init__(self, *, codec: Codec, notebook: FindingLog, begins_at: int, term: int) -> None:
        self.references = References(codec)
        self.events = self.claims = 0
        self.watched = ""
        """A run whose place is to be told."""
        self.watched_offsets: list[int] = []
        """Offsets of its first and its last event."""
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
        """Every run that began is in memory; not so in a log read from the middle or once ended ones are forgotten."""
        self._terms: OrderedDict[int, None] = OrderedDict({term: None} if term >= 0 else {})
        self._open: deque[PendingFinding] = deque(maxlen=OPEN_RUNS_MAX)
        self._damaged: deque[int] = deque(maxlen=OPEN_RUNS_MAX)
        """Where they lie; any of them may have been a Claim."""
        self._odd: tuple[int, PendingFinding, HashedRecord, int] | None = None
        """(term, suspicion, record, offset) of the last record whose term names no Claim."""
        self._steps: deque[ChainStep] = deque(maxlen=OPEN_RUNS_MAX)
        """Since the last damaged record: if that was a Claim, some of them were stale."""

    @property
    def live_runs(self) -> int:
        return len(self._live)

    # --- records -----------------------------------------------------------------------------------------------------

    def read(self, found: HashedRecord, offset: int, *, signed: bool) -> None:
        """A record that is as it was signed, or that nobody signed. `offset` is the one it was written at."""
        value = found.record.value or b""
        schema_id = int.from_bytes(value[1:FRAME_BYTES], "big")
        if schema_id in self._claim_ids and value[:1] == b"\0":
            self._claim(value, offset)
            return
        try:
            envelope, _ = read_envelope(value)
            if not signed or self.references.may_be_in(schema_id):
                self.references.collect(found, offset, envelope)
            else:
                self._codec.name_of(value)
        except Undecodable as error:
            self._unreadable(offset, str(error), signed=signed)
            return
        if envelope.term != self._term and not self._takes_over(envelope, found, offset, signed=signed):
            return
        self.events += 1
        wrong = "" if signed else find_contradiction(found, envelope, self._codec)
        if wrong and envelope.aggregate not in self._live and envelope.aggregate not in self._ended:
            # It may be the name of the run that was changed.
            self._opened(self._damage(FindingKind.EDITED, offset, envelope, wrong))
            return
        is_right = self._chain(envelope, found, offset, schema_id in self._ending_ids, signed=signed)
        if wrong and is_right:
            self._damage(FindingKind.EDITED, offset, envelope, wrong)

    def record_damaged(self, suspicion: PendingFinding, found: HashedRecord | None) -> None:
        """A signed record that is changed or gone. What is left of it may still say which one it was."""
        self._damaged.append(suspicion.offset)
        if found is not None:
            suspicion.run_id, suspicion.seq = suspicion.here = self.said_by(found)
            if self._skip(suspicion.run_id, suspicion.seq, suspicion.offset):
                return
        self._opened(suspicion)

    def said_by(self, found: HashedRecord) -> tuple[str, int]:
        """Run and seq, if the bytes still say them."""
        try:
            peeked = peek(found.record.value or b"")
        except Undecodable:
            return "", -1
        if peeked.schema_id in self._claim_ids or not peeked.aggregate.isprintable():
            return "", -1
        return peeked.aggregate, peeked.seq

    def _unreadable(self, offset: int, error: str, *, signed: bool) -> None:
        why = "it was signed like this" if signed else "nobody signed it"
        self._opened(
            self._notebook.note(PendingFinding(kind=FindingKind.UNREADABLE, offset=offset, detail=f"{error} ({why})"))
        )

    def _opened(self, suspicion: PendingFinding) -> None:
        self._open.append(suspicion)
        self._damaged.append(suspicion.offset)

    def _skip(self, run_id: str, seq: int, offset: int) -> bool:
        """Goes on behind a damaged event, if it is the next one of a run: its digest says nothing."""
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
            seen = -1  # it is a Claim all the same: its offset is the term
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

    def _takes_over(self, envelope: Envelope, found: HashedRecord, offset: int, *, signed: bool) -> bool:
        """Whether a record of another term counts all the same, because the Claim of its term is what is damaged."""
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
            # Two records in a row: not their terms are wrong, the Claim is not there.
            _, suspicion, first, first_offset = self._odd
            suspicion.kind, suspicion.offset, suspicion.run_id, suspicion.seq = FindingKind.REMOVED, term, "", -1
            suspicion.detail = "records behind it were written under this term, but there is no Claim"
            self._begin_term(term)
            self.read(first, first_offset, signed=False)
            return True
        suspicion = self._damage(FindingKind.EDITED, offset, envelope, f"its term {term} names no Claim")
        self._odd = (term, suspicion, found, offset)
        self._skip(envelope.aggregate, envelope.seq, offset)
        return False

    def _undo_behind(self, term: int) -> None:
        """A damaged record turns out to have been the Claim of this term: events accepted since then were stale."""
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

    def _chain(self, envelope: Envelope, found: HashedRecord, offset: int, ends: bool, *, signed: bool) -> bool:
        """Puts the event behind the last one of its run; False when something is said about it."""
        run_id, seq = envelope.aggregate, envelope.seq
        is_right = True
        tail = self._live.get(run_id)
        while tail is not None and tail.skipped is not None and seq <= tail.seq:
            tail = tail.skipped  # the damaged one was stale or somebody else's
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
        elif tail.digest and envelope.prev != tail.digest:
            blamed = self._broken(envelope, tail, offset, signed=signed)
        if self._damaged:
            self._steps.append(ChainStep(offset, run_id, seq, self._live.get(run_id)))
        after = RunTail(seq, found.value_hash[:DIGEST_BYTES], offset, signed, blamed=blamed)
        if ends:
            self._live.pop(run_id, None)
            self._ended[run_id] = after
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
                self._knows_all = False
        else:
            self._live[run_id] = after
        if run_id == self.watched:
            self.watched_first_seq = self.watched_first_seq or seq
            self.watched_offsets = [*self.watched_offsets[:1], offset]
            self.watched_seq, self.watched_ended = seq, ends
        return is_right

    def _broken(self, envelope: Envelope, tail: RunTail, offset: int, *, signed: bool) -> PendingFinding | None:
        """The event names another digest than its predecessor has."""
        if signed:
            self._damage(FindingKind.ILLEGAL, offset, envelope, "it does not name the digest of the event before it")
            return None
        if tail.signed or tail.seq == 0:
            self._damage(FindingKind.EDITED, offset, envelope, "it does not name the digest of the event before it")
            return None
        if tail.blamed is not None:
            # It contradicts both neighbours: it was changed itself, and not the one before it.
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
        """Events of the run are missing. What is damaged in between explains it."""
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
                detail=f"the run goes on with seq {envelope.seq} at offset {offset}",
            )
        )

    def _repeated(self, envelope: Envelope, offset: int, *, signed: bool) -> None:
        """A seq the run has had already."""
        gap = self._notebook.gap_of(envelope.aggregate, envelope.seq)
        if gap is not None and not signed:
            gap.kind, gap.offset = FindingKind.REORDERED, offset
            gap.detail = "it lies behind events of the run that follow it"
            return
        kind = FindingKind.ILLEGAL if signed else FindingKind.INSERTED
        self._damage(kind, offset, envelope, "the run has an event of this seq already")

    def _damage(self, kind: FindingKind, offset: int, envelope: Envelope, detail: str) -> PendingFinding:
        return self._notebook.note(
            PendingFinding(kind=kind, offset=offset, run_id=envelope.aggregate, seq=envelope.seq, detail=detail)
        )


def find_contradiction(found: HashedRecord, envelope: Envelope, codec: Codec) -> str:
    """What key and headers say otherwise than the event; they are not in the run's chain."""
    record = found.record
    if record.key != partition_key(envelope.aggregate).encode():
        return "its key is not that of its run"
    headers = dict(record.headers)
    if headers.get("ce_id") != event_id(envelope.aggregate, envelope.seq).encode():
        return "its header ce_id is not that of the event"
    if headers.get("ce_type") != codec.name_of(record.value or b"").encode():
        return "its header ce_type is not that of the event"
    return ""
