"""What verifying finds, and the notebook in which findings are kept while later records may still explain them.

A record that is gone shows twice: its fingerprint is missing, and the next event of its run says which seq it was. A
record that moved shows as one that is gone and one too many. So a finding is written down as a `PendingFinding`, may be
completed or withdrawn, and becomes a `ReviewFinding` at the end.

Before: checkpoint_chain.py, alignment.py and history.py note. After: verify.py reports.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from loomlog.schemas.records import Value

PENDING_FINDINGS_MAX = 10_000
"""Kept for one partition; of a log that is broken in more places the rest is only counted."""


class FindingKind(StrEnum):
    """What is wrong, in one word. STALE and UNSIGNED are no violations."""

    EDITED = "edited"
    REMOVED = "removed"
    REORDERED = "reordered"
    INSERTED = "inserted"
    TRUNCATED = "truncated"
    UNREADABLE = "unreadable"
    """Bytes nobody can read, outside of what is signed or already so when it was signed."""
    ILLEGAL = "illegal"
    """Against the rules of the log, although it is what was signed: it was written so."""
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
    """One thing that was found. `offset` is the signed one where the record was signed, else where it lies now."""

    kind: FindingKind
    topic: str
    partition: int
    offset: int
    """-1 when it is not known."""
    count: int = 1
    """Records concerned, from `offset` or `seq` on."""
    run_id: str = ""
    seq: int = -1
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class PendingFinding:
    """A finding that may still change. `lost` and `come` are the fingerprints signed and found at the place."""

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
    """Run and seq of what lies there now, as far as its bytes say; `run_id` and `seq` are of what belongs there."""


class FindingLog:
    """The suspicions about one partition, in the order in which they came up."""

    def __init__(self) -> None:
        self._suspicions: list[PendingFinding] = []
        self.uncounted = 0
        """Violations beyond MAX_SUSPICIONS."""
        self.stale = 0
        self._kept_stale = 0

    def note(self, suspicion: PendingFinding) -> PendingFinding:
        """Keeps it, or only counts it when there are too many."""
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
        """The single event that was missed at this place of the run."""
        for one in reversed(self._suspicions):
            if (one.kind, one.run_id, one.seq, one.count, one.offset) == (FindingKind.REMOVED, run_id, seq, 1, -1):
                return one
        return None

    def resolve(self) -> Iterator[PendingFinding]:
        """What is left at the end: each place once, and records that only moved named as such."""
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
    """The suspicion, or what it is once it is known which records only moved."""
    if one.lost and one.lost in moved:
        there = came[one.lost]
        (run_id, seq), detail = there.here, f"it lies at offset {there.found_at} now"
        yield replace(one, kind=FindingKind.REORDERED, run_id=run_id, seq=seq, detail=detail)
        if one.come and one.come not in moved:
            (run_id, seq), detail = one.here, "it lies where another record was signed"
            yield replace(one, kind=FindingKind.INSERTED, offset=one.found_at, run_id=run_id, seq=seq, detail=detail)
    elif one.come and one.come in moved:
        if one.lost:
            yield replace(one, kind=FindingKind.REMOVED, detail="another record lies in its place")
    else:
        yield one
