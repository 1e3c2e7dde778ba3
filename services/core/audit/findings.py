"""Findings of a verification, and the log of pending findings that later records may still explain.

A missing record is visible twice: its fingerprint is missing, and the next event of its run has the following seq. A
moved record shows as one missing and one extra. Therefore a finding is first kept as a `PendingFinding`, may be
completed or withdrawn, and becomes an `AuditFinding` at the end.

Before: checkpoint_chain.py, alignment.py and history.py note. After: verify.py reports.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from loomlog.schemas.records import Value

PENDING_FINDINGS_MAX = 10_000
"""Maximum findings kept for one partition; further ones are only counted."""


class FindingKind(StrEnum):
    """The kind of a finding. STALE and UNSIGNED are not violations."""

    EDITED = "edited"
    REMOVED = "removed"
    REORDERED = "reordered"
    INSERTED = "inserted"
    TRUNCATED = "truncated"
    UNREADABLE = "unreadable"
    """Undecodable bytes, unsigned or already undecodable when signed."""
    ILLEGAL = "illegal"
    """A record that violates the rules of the log but is as signed: it was written like this."""
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    MISSING_BLOB = "missing_blob"
    DAMAGED_BLOB = "damaged_blob"
    UNSIGNED_TOO_LONG = "unsigned_too_long"
    STALE = "stale"
    UNSIGNED = "unsigned"

    @property
    def is_violation(self) -> bool:
        return self not in (FindingKind.STALE, FindingKind.UNSIGNED)


class AuditFinding(Value, frozen=True, kw_only=True):
    """One finding. `offset` is the signed one if the record was signed, else the current one."""

    kind: FindingKind
    topic: str
    partition: int
    offset: int
    """Offset of the finding; -1 when unknown."""
    count: int = 1
    """Number of affected records, starting at `offset` or `seq`."""
    run_id: str = ""
    seq: int = -1
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class PendingFinding:
    """A finding that may still change. `lost` and `come` are the signed and the found fingerprint at the offset."""

    kind: FindingKind
    offset: int
    count: int = 1
    run_id: str = ""
    seq: int = -1
    detail: str = ""
    lost: bytes = b""
    come: bytes = b""
    found_at: int = -1
    in_checkpoints: bool = False
    here: tuple[str, int] = ("", -1)
    """Run and seq of the record found there, as far as readable; `run_id` and `seq` are those of
    the expected record.
    """


class FindingLog:
    """The pending findings of one partition, in order of discovery."""

    def __init__(self) -> None:
        self._suspicions: list[PendingFinding] = []
        self.uncounted = 0
        """Violations beyond PENDING_FINDINGS_MAX."""
        self.stale = 0
        self._kept_stale = 0

    def note(self, suspicion: PendingFinding) -> PendingFinding:
        """Keep a finding, or only count it when there are too many."""
        if suspicion.kind is FindingKind.STALE:
            self.stale += 1
            self._kept_stale += 1
            if self._kept_stale > PENDING_FINDINGS_MAX:
                return suspicion
        elif len(self._suspicions) - self._kept_stale >= PENDING_FINDINGS_MAX:
            self.uncounted += suspicion.kind.is_violation
            return suspicion
        self._suspicions.append(suspicion)
        return suspicion

    def gap_of(self, run_id: str, seq: int) -> PendingFinding | None:
        """Return the finding of a single missing event at this seq of the run."""
        for one in reversed(self._suspicions):
            if (one.kind, one.run_id, one.seq, one.count, one.offset) == (FindingKind.REMOVED, run_id, seq, 1, -1):
                return one
        return None

    def resolve(self) -> Iterator[PendingFinding]:
        """Yield the final findings: each place once, and records that only moved as such."""
        came = {one.come: one for one in self._suspicions if one.come}
        moved = {one.lost for one in self._suspicions if one.lost and one.lost in came}
        seen: set[tuple[FindingKind, int, bool]] = set()
        for one in self._suspicions:
            for left in _resolved(one, came, moved):
                place = (left.kind, left.offset, left.in_checkpoints)
                if left.offset < 0 or place not in seen:
                    seen.add(place)
                    yield left


def _resolved(one: PendingFinding, came: Mapping[bytes, PendingFinding], moved: Set[bytes]) -> Iterator[PendingFinding]:
    """Yield the finding, corrected with the knowledge which records only moved."""
    if one.lost and one.lost in moved:
        there = came[one.lost]
        (run_id, seq), detail = there.here, f"it is at offset {there.found_at} now"
        yield replace(one, kind=FindingKind.REORDERED, run_id=run_id, seq=seq, detail=detail)
        if one.come and one.come not in moved:
            (run_id, seq), detail = one.here, "it is where another record was signed"
            yield replace(one, kind=FindingKind.INSERTED, offset=one.found_at, run_id=run_id, seq=seq, detail=detail)
    elif one.come and one.come in moved:
        if one.lost:
            yield replace(one, kind=FindingKind.REMOVED, detail="another record is in its place")
    else:
        yield one
