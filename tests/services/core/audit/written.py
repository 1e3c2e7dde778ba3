"""An events partition as owners write it, checkpoints as a signer writes them, and ways to verify a copy of both."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.crypto.signatures import PublicKey, SigningKey, generate_key
from loomlog.schemas.codec import digest, local_codec
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.ids import event_id, partition_key
from loomlog.schemas.records import Value, replace
from loomlog.services.core.audit.checkpoints import read_signed, sign
from loomlog.services.core.audit.findings import FindingKind
from loomlog.services.core.audit.ledger import SigningCursor
from loomlog.services.core.audit.references import Reference
from loomlog.services.core.audit.verify import PartitionAudit, VerificationReport, VerificationStart

TOPIC = "loom.run.events"
CHECKPOINTS = "loom.audit.checkpoints"
PARTITION = 3
START_MS = 1_780_000_000_000
KEY = generate_key()


class Record(Value, frozen=True):
    """A stored record (hashes.StoredRecord)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class Log:
    """A partition and its checkpoints, being written."""

    records: list[Record] = field(default_factory=list)
    checkpoints: list[Record] = field(default_factory=list)
    term: int = -1
    seqs: dict[str, int] = field(default_factory=dict)
    digests: dict[str, bytes] = field(default_factory=dict)
    clock_ms: int = START_MS
    ledger: SigningCursor = field(
        default_factory=lambda: SigningCursor(topic=TOPIC, partition=PARTITION, codec=local_codec())
    )

    def put(self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()) -> int:
        self.clock_ms += 3
        offset = len(self.records)
        self.records.append(Record(offset, self.clock_ms, key, value, tuple(headers)))
        return offset

    def claim(self) -> int:
        envelope = Envelope(term=self.term, seq=0, aggregate="", tenant="", at_ms=self.clock_ms, prev=bytes(16))
        self.term = self.put(b"claim", local_codec().encode_event(envelope, Claim(owner="o")))
        return self.term

    def add(self, run_id: str, *events: Any, term: int | None = None) -> list[int]:
        """Events of a run, their offsets; with an older `term` they are a zombie's."""
        offsets = []
        seq, tail = self.seqs.get(run_id, 0), self.digests.get(run_id, bytes(16))
        for event in events:
            seq += 1
            envelope = Envelope(
                term=self.term if term is None else term,
                seq=seq,
                aggregate=run_id,
                tenant="acme",
                at_ms=self.clock_ms,
                cause_id="c_1",
                cause_offset=7,
                prev=tail,
            )
            value = local_codec().encode_event(envelope, event)
            headers = (
                ("ce_specversion", b"1.0"),
                ("ce_id", event_id(run_id, seq).encode()),
                ("ce_type", event.SCHEMA.encode()),
                ("ce_source", b"/loomlog/loom.run.events/3"),
            )
            offsets.append(self.put(partition_key(run_id).encode(), value, headers))
            tail = digest(value)
        if term is None or term == self.term:
            self.seqs[run_id], self.digests[run_id] = seq, tail
        return offsets

    def sign(self, key: SigningKey = KEY) -> None:
        """A checkpoint over everything that is there and not signed."""
        for record in self.records[self.ledger.next_offset :]:
            self.ledger.read(record)
        draft = self.ledger.draft(key_id=key.key_id, at_ms=self.clock_ms)
        assert draft is not None
        offset = len(self.checkpoints)
        value = sign(draft, key.sign, local_codec())
        self.checkpoints.append(Record(offset, self.clock_ms, str(PARTITION).encode(), value))
        self.ledger.adopt(read_signed(value, offset, local_codec()))


def renumbered(records: Sequence[Record]) -> list[Record]:
    """As in a copy that was produced anew: offsets are dense again."""
    return [replace(record, offset=offset) for offset, record in enumerate(records)]


def flipped(data: bytes, at: int, bit: int = 1) -> bytes:
    """The bytes with one bit of one byte turned over."""
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def run_audit(
    records: Sequence[Record],
    checkpoints: Sequence[Record],
    *,
    keys: Sequence[PublicKey] = (KEY.public,),
    start: VerificationStart | None = None,
    watch: str = "",
    now_ms: int = START_MS,
    max_unsigned_s: float | None = None,
) -> tuple[VerificationReport, list[Reference]]:
    """What verifying these records against these checkpoints comes to, and the blobs they name."""
    audit = PartitionAudit(
        topic=TOPIC,
        partition=PARTITION,
        keys={key.key_id: key.verify for key in keys},
        codec=local_codec(),
        checkpoints_topic=CHECKPOINTS,
        start=start,
        watch=watch,
    )
    left = iter(checkpoints)

    def feed() -> None:
        while audit.wants_checkpoint:
            record = next(left, None)
            if record is None:
                audit.checkpoints_end()
            else:
                audit.checkpoint(record)

    references: list[Reference] = []
    for record in records:
        feed()
        audit.record(record)
        references += audit.take_references()
    feed()
    while not audit.end():
        feed()
    feed()
    references += audit.take_references()
    return audit.report(now_ms=now_ms, max_unsigned_s=max_unsigned_s), references


def verify(records: Sequence[Record], checkpoints: Sequence[Record], **more: Any) -> VerificationReport:
    return run_audit(records, checkpoints, **more)[0]


Found = tuple[FindingKind, int, str, int]


def violations(report: VerificationReport) -> list[Found]:
    """(kind, offset, run, seq) of each, in order."""
    return [(f.kind, f.offset, f.run_id, f.seq) for f in report.findings if f.kind.is_violation]
