"""JSON of the log as operators see it: topics, records, dead letters, verifications, checkpoints and checks.

The command line and the API show the same; the OpenAPI document is derived from these classes. Times are RFC 3339. A
value that is not known is null.

Before: records.py, browser.py, dead_letters.py, audits.py and checks.py return them. After: services/api, services/cli.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

SignatureVerdict = Literal["valid", "invalid", "unknown_key"]


class LoggedRecord(TypedDict):
    """A record of any topic. `kind` is how the reading rule classifies it: `legal` is an event in force, `claim` begins
    a term, `stale` was written by a replaced owner and is ignored, `plain` is of a topic without terms, `unreadable`
    cannot be decoded: `error` says why, and `value_base64` has its first bytes. `run_id` is the id of the run or of the
    aggregate, `prev_hash` that of the aggregate's previous record.
    """

    position: str
    topic: str
    partition: int
    offset: int
    kind: str
    stale: bool
    term: int | None
    term_in_force: int | None
    seq: int | None
    run_id: str | None
    tenant_id: str | None
    type: str | None
    at: str
    cause_id: str | None
    cause_offset: int | None
    key: str | None
    headers: Mapping[str, str]
    prev_hash: str | None
    size_bytes: int
    error: str | None
    value_base64: str | None
    payload: Mapping[str, Any]


class LogPartition(TypedDict):
    """Offsets of a partition: it holds `beginning_offset` up to but not including `next_offset`. `offsets` is the
    difference; a compacted topic holds fewer records than that.
    """

    partition: int
    beginning_offset: int
    next_offset: int
    offsets: int


class LogTopic(TypedDict):
    """A topic of the installation; one that the broker does not have has no partitions. `retention_ms` and
    `retention_bytes` are null when nothing is deleted for that reason.
    """

    name: str
    kind: str
    about: str
    has_terms: bool
    is_compacted: bool
    retention_ms: int | None
    retention_bytes: int | None
    replicas: int
    offsets: int
    partitions: list[LogPartition]


class LogTopicList(TypedDict):
    """The topics of the installation."""

    topics: list[LogTopic]


class LogPage(TypedDict):
    """Records of a partition in the order of their offsets. `next` is the cursor of the following page, null at the
    end; `next_offset` is where records that come later begin. `scanned` records were read for it.
    """

    topic: str
    partition: int
    beginning_offset: int
    end_offset: int
    records: list[LoggedRecord]
    scanned: int
    next: str | None
    next_offset: int


class DeadLetterAcknowledgement(TypedDict):
    """The note that nothing more is needed of a dead letter: when, by whom and why."""

    at: str
    by: str
    reason: str


DeadLetterSummary = TypedDict(
    "DeadLetterSummary",
    {
        "offset": int,
        "at": str,
        "kind": str,
        "service": str,
        "error": str,
        "from": str,
        "replayed": list[str],
        "not_replayable": str | None,
        "acknowledged": DeadLetterAcknowledgement | None,
    },
)
"""A record that could not be handled: when, why and by which service; `from` is its position, `replayed` are the
positions where it was appended again, `not_replayable` says why it cannot be. It is open until it is replayed or
acknowledged.
"""


class DeadLetterList(TypedDict):
    """A page of dead letters, the newest first; `next` is the cursor of the older ones."""

    letters: list[DeadLetterSummary]
    next: str | None


class DeadLetterOriginal(TypedDict):
    """The record that could not be handled. `unreadable` says why it is not decoded."""

    key: str
    headers: Mapping[str, str]
    timestamp: str
    value_hex: str | None
    type: str | None
    payload: NotRequired[Mapping[str, Any]]
    unreadable: NotRequired[str]


class DeadLetterDetail(DeadLetterSummary):
    """A dead letter with its original."""

    original: DeadLetterOriginal


class DeadLetterReplay(TypedDict):
    """Where the original of a dead letter is now. `repeated`: this request had been answered before."""

    offset: int
    position: str
    repeated: bool


class SignedCheckpointJson(TypedDict):
    """A signed checkpoint of a partition: it covers `first_offset` up to but not including `next_offset`. `chain` is
    the running hash over everything before `next_offset`; `unsigned` are the offsets after it. `signature` is judged
    with the public keys that this process trusts.
    """

    topic: str
    partition: int
    position: str
    first_offset: int
    next_offset: int
    records: int
    term: int | None
    at: str
    key_id: str
    chain: str
    signature: SignatureVerdict
    unsigned: int


class CheckpointList(TypedDict):
    """Signed checkpoints, the newest first."""

    checkpoints: list[SignedCheckpointJson]


class SignedRangeJson(TypedDict):
    """Offsets that a key has signed."""

    key_id: str
    first_offset: int
    next_offset: int
    checkpoints: int


class NewestCheckpoint(TypedDict):
    """The newest checkpoint of a verified partition."""

    next_offset: int
    chain: str
    at_ms: int


class VerifiedRun(TypedDict):
    """The run or aggregate that was asked for."""

    run_id: str
    first_seq: int
    first_offset: int
    last_offset: int
    seq: int
    ended: bool


class VerificationFinding(TypedDict):
    """Something that a verification noticed. `violation`: it contradicts what was signed or how a log is written."""

    kind: str
    violation: bool
    topic: str
    partition: int
    offset: int
    count: int
    run_id: str
    seq: int
    detail: str


class VerifiedPartition(TypedDict):
    """The verification of a partition. `uncounted` are violations beyond those in `findings`."""

    topic: str
    partition: int
    clean: bool
    first_offset: int
    deleted_before: int
    next_offset: int
    records: int
    events: int
    claims: int
    stale: int
    live_runs: int
    signed_records: int
    unsigned: int
    covered: int
    keys: list[SignedRangeJson]
    unknown_keys: Mapping[str, int]
    newest_checkpoint: NewestCheckpoint | None
    run: VerifiedRun | None
    uncounted: int
    findings: list[VerificationFinding]


class Verification(TypedDict):
    """A whole verification."""

    clean: bool
    records: int
    seconds: float
    records_per_s: int
    violations: int
    partitions: list[VerifiedPartition]


class ProjectionProblemJson(TypedDict):
    """A record that could not be projected to the read models; `run_id` is the run or aggregate that it halts."""

    topic: str
    partition: int
    offset: int
    at: str
    run_id: str | None
    kind: str
    error: str


class QuarantinedAggregate(TypedDict):
    """An aggregate in which nothing is decided: its state is that of `seq`. `halted_offset` is that of the record that
    could not be folded, null when its owner has quarantined it.
    """

    aggregate: str
    tenant_id: str | None
    seq: int
    reason: str
    halted_offset: int | None


class ProjectionProblemReport(TypedDict):
    """The first problems of the read models and the first quarantined aggregates, and how many there are."""

    count: int
    problems: list[ProjectionProblemJson]
    quarantined_count: int
    quarantined: list[QuarantinedAggregate]


class HealthCheck(TypedDict):
    """A finding about a part of the installation; `remedy` is empty when there is no problem."""

    name: str
    state: str
    text: str
    remedy: str


class HealthReport(TypedDict):
    """Findings about the parts of the installation; `ok`: none of them fails."""

    ok: bool
    checks: list[HealthCheck]
