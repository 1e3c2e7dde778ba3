"""A partition without a broker, and records of a log made by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.generated.values import Envelope
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.run.state import Absent
from loomlog.services.runtime.run.family import RunFamily
from loomlog.services.stream.partition.command_offsets import CommandProgress
from loomlog.services.stream.partition.partition import NO_DIGEST, Aggregate, Decision, Partition
from tests.services.core.run.given import NOW, start

CODEC = local_codec()
FAMILY = RunFamily()
EVENTS = "loom.run.events"


@dataclass(slots=True)
class Watch:
    """A watcher that remembers what it was told."""

    decisions: list[tuple[str, str]] = field(default_factory=list)
    in_log: list[Decision] = field(default_factory=list)
    over: list[tuple[RawEvent, RawEvent]] = field(default_factory=list)
    live: list[str] = field(default_factory=list)

    def to_snapshot_state(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        return events

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        self.decisions.append((aggregate.id, type(event).__name__))

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        self.in_log.append(decision)

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None:
        """Not looked at here."""

    def found_over(self, first: RawEvent, last: RawEvent) -> None:
        self.over.append((first, last))

    def found_live(self, aggregate: Aggregate) -> None:
        self.live.append(aggregate.id)


def partition(watch: Watch | None = None, *, term: int = 0, low: int = 0) -> Partition:
    """A partition that was just claimed at the offset `term`."""
    return Partition(
        number=0,
        term=term,
        next_offset=term + 1,
        family=FAMILY,
        codec=CODEC,
        observer=watch or Watch(),
        progress=CommandProgress(low),
        events_topic=EVENTS,
    )


def aggregate(name: str = "r_x", tenant: str = "t") -> Aggregate:
    return Aggregate(id=name, state=Absent(run_id=name), key=name[2:].encode(), tenant=tenant)


def started(owned: Partition, name: str = "r_x", *, command_offset: int = -1, **fields: Any) -> Aggregate:
    """A run that was decided to start; nothing of it is in the log yet."""
    made = aggregate(name)
    assert owned.submit(made, start(**fields), at_ms=NOW, cause_id=f"c-{name}", command_offset=command_offset)
    return made


def flushed(owned: Partition, log: MemoryLog) -> int:
    """Bring what is pending to the log and acknowledge it; how many batches that took."""
    batches = 0
    while owned.has_pending:
        records = owned.next_batch(900_000)
        if records:
            batches += 1
            owned.acknowledged(log.put(EVENTS, 0, records))
    return batches


def claim_record(owner: str = "o", term: int = -1) -> ProducerRecord:
    envelope = Envelope(term=term, seq=0, aggregate="", tenant="", at_ms=0, prev=NO_DIGEST)
    return ProducerRecord(key=b"claim", value=CODEC.encode_event(envelope, Claim(owner=owner)))


def claimed(log: MemoryLog) -> Partition:
    """Take the partition of a log; a fresh view of it, without what was there before."""
    return partition(term=log.put(EVENTS, 0, [claim_record()]))


def replaced(log: MemoryLog, offset: int, value: bytes | None) -> None:
    """Damage the log: other bytes at an offset."""
    old = log.records[EVENTS, 0][offset]
    log.records[EVENTS, 0][offset] = ConsumerRecord(
        old.topic, old.partition, old.offset, old.timestamp, old.key, value, old.headers
    )


def compact(log: MemoryLog, topic: str, partition: int = 0) -> None:
    """Remove, as compaction does, all but the newest record of each key; offsets stay."""
    records = log.records[topic, partition]
    newest = {record.key: record.offset for record in records}
    for index, old in enumerate(records):
        if newest[old.key] != old.offset or old.value is None:
            records[index] = ConsumerRecord(topic, partition, old.offset, old.timestamp, b"compacted", None, ())
