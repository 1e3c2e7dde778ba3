"""Records of the namespace loom.stream.records."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheckpoint:
    """What an events partition holds up to an offset, signed; key = the partition. Not a cache: it is evidence and
    is kept for ever.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.AuditCheckpoint"

    topic: str
    """Events topic."""
    partition: int
    """Its partition."""
    first_offset: int
    """First offset covered; where the checkpoint before it ended."""
    next_offset: int
    """Offset after the last one covered."""
    records: int
    """Records covered, stale ones and Claims included; fewer than offsets when the log has holes."""
    start_chain: bytes
    """Running hash before first_offset, 32 bytes; zeros at the beginning of the log."""
    chain: bytes
    """Running hash over every record below next_offset, in order: SHA-256 of (hash before, offset, record hash)."""
    fingerprints: bytes
    """First 8 bytes of the record hash of each offset covered, zeros for a hole: they say which record was
    changed.
    """
    start_term: int
    """Term in force at first_offset, -1 for none."""
    term: int
    """Term in force at next_offset, -1 for none."""
    prev: bytes
    """SHA-256 of the value of the checkpoint before this one, as stored; empty in the first of a partition."""
    previous_key_id: str
    """Key that signed that one; another than key_id = the key was rotated. Empty in the first."""
    at_ms: int
    """When it was signed, UTC milliseconds."""
    key_id: str
    """First 16 hex digits of the SHA-256 of the raw public key."""
    signature: bytes
    """Ed25519 over everything before it as stored, frame included. Always the last field."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "records": self.records,
            "start_chain": self.start_chain,
            "chain": self.chain,
            "fingerprints": self.fingerprints,
            "start_term": self.start_term,
            "term": self.term,
            "prev": self.prev,
            "previous_key_id": self.previous_key_id,
            "at_ms": self.at_ms,
            "key_id": self.key_id,
            "signature": self.signature,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            topic=value["topic"],
            partition=value["partition"],
            first_offset=value["first_offset"],
            next_offset=value["next_offset"],
            records=value["records"],
            start_chain=value["start_chain"],
            chain=value["chain"],
            fingerprints=value["fingerprints"],
            start_term=value["start_term"],
            term=value["term"],
            prev=value["prev"],
            previous_key_id=value["previous_key_id"],
            at_ms=value["at_ms"],
            key_id=value["key_id"],
            signature=value["signature"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A Kafka header."""

    SCHEMA: ClassVar[str] = "loom.stream.records.Header"

    key: str
    """Name."""
    value: bytes
    """Value."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "value": self.value,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            key=value["key"],
            value=value["value"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that could not be handled, with all that is needed to put it back."""

    SCHEMA: ClassVar[str] = "loom.stream.records.DeadLetter"

    topic: str
    """Where it was read."""
    partition: int
    """Its partition."""
    offset: int
    """Its offset."""
    timestamp_ms: int
    """Its timestamp."""
    service: str
    """Who could not handle it."""
    kind: str
    """undecodable, unknown_schema, refused or fold_bug."""
    error: str
    """What went wrong."""
    at_ms: int
    """When."""
    key: bytes | None = None
    """Its key."""
    value: bytes | None = None
    """Its bytes."""
    headers: tuple[Header, ...] = ()
    """Its headers."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "key": self.key,
            "value": self.value,
            "headers": [item.to_avro() for item in self.headers],
            "timestamp_ms": self.timestamp_ms,
            "service": self.service,
            "kind": self.kind,
            "error": self.error,
            "at_ms": self.at_ms,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            topic=value["topic"],
            partition=value["partition"],
            offset=value["offset"],
            key=value["key"],
            value=value["value"],
            headers=tuple(Header.from_avro(item) for item in value["headers"]),
            timestamp_ms=value["timestamp_ms"],
            service=value["service"],
            kind=value["kind"],
            error=value["error"],
            at_ms=value["at_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDelta:
    """Preview of a model turn while it streams; never truth. The whole turn is in ModelReplied."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ModelDelta"

    term: int
    """Term of the writer."""
    run_id: str
    """The run."""
    turn: int
    """Model turn."""
    attempt: int
    """Attempt."""
    start: int
    """Characters of this channel sent before."""
    text: str
    """The next characters."""
    thinking: bool = False
    """Reasoning, not answer."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "term": self.term,
            "run_id": self.run_id,
            "turn": self.turn,
            "attempt": self.attempt,
            "start": self.start,
            "text": self.text,
            "thinking": self.thinking,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            term=value["term"],
            run_id=value["run_id"],
            turn=value["turn"],
            attempt=value["attempt"],
            start=value["start"],
            text=value["text"],
            thinking=value["thinking"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """A snapshot that a checkpoint relies on."""

    SCHEMA: ClassVar[str] = "loom.stream.records.SnapshotRef"

    run_id: str
    """The run."""
    seq: int
    """Its seq."""
    state_sha256: str
    """Its hash."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "state_sha256": self.state_sha256,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            seq=value["seq"],
            state_sha256=value["state_sha256"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoint:
    """Where the fold of a partition may begin; key = checkpoint."""

    SCHEMA: ClassVar[str] = "loom.stream.records.PartitionCheckpoint"

    partition: int
    """The partition."""
    term: int
    """Current term at next_offset."""
    next_offset: int
    """Everything below is in the snapshots named here or belongs to ended runs."""
    command_offset: int
    """Every command below was handled."""
    runs: tuple[SnapshotRef, ...]
    """Every live run at next_offset."""
    at_ms: int
    """When it was made."""
    reducer_version: int
    """Version of the fold."""
    handled_above: tuple[int, ...] = ()
    """Commands at or above command_offset that were handled as well."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "term": self.term,
            "next_offset": self.next_offset,
            "command_offset": self.command_offset,
            "handled_above": self.handled_above,
            "runs": [item.to_avro() for item in self.runs],
            "at_ms": self.at_ms,
            "reducer_version": self.reducer_version,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            partition=value["partition"],
            term=value["term"],
            next_offset=value["next_offset"],
            command_offset=value["command_offset"],
            handled_above=tuple(value["handled_above"]),
            runs=tuple(SnapshotRef.from_avro(item) for item in value["runs"]),
            at_ms=value["at_ms"],
            reducer_version=value["reducer_version"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """Verified cache of one live run; key = run id, a tombstone when the run has ended."""

    SCHEMA: ClassVar[str] = "loom.stream.records.RunSnapshot"

    run_id: str
    """The run."""
    key: bytes
    """Key of the run's records."""
    tenant: str
    """Its tenant."""
    first_offset: int
    """Offset of its first event."""
    last_offset: int
    """Offset of the last event folded in."""
    seq: int
    """Last event folded in."""
    tail_digest: bytes
    """Digest of that event's stored bytes, the prev of the next."""
    reducer_version: int
    """Version of the fold that made it."""
    state_sha256: str
    """Hash of state."""
    state: bytes
    """Canonical encoding of the state."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "key": self.key,
            "tenant": self.tenant,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "seq": self.seq,
            "tail_digest": self.tail_digest,
            "reducer_version": self.reducer_version,
            "state_sha256": self.state_sha256,
            "state": self.state,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            run_id=value["run_id"],
            key=value["key"],
            tenant=value["tenant"],
            first_offset=value["first_offset"],
            last_offset=value["last_offset"],
            seq=value["seq"],
            tail_digest=value["tail_digest"],
            reducer_version=value["reducer_version"],
            state_sha256=value["state_sha256"],
            state=value["state"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTally:
    """Calls of one tool in a run."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ToolTally"

    name: str
    """Tool."""
    calls: int
    """Calls."""
    errors: int
    """Of these with an error result."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "calls": self.calls,
            "errors": self.errors,
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            name=value["name"],
            calls=value["calls"],
            errors=value["errors"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """Thin record for live metrics, one for each run that ended; never truth."""

    SCHEMA: ClassVar[str] = "loom.stream.records.RunTally"

    partition: int
    """Events partition."""
    term: int
    """Term of the writer; lower than the newest seen for the partition = stale."""
    offset: int
    """Offset of the ending event, unique in the partition."""
    run_id: str
    """The run."""
    tenant: str
    """Tenant."""
    agent: str
    """Agent."""
    provider: str
    """Provider."""
    model: str
    """Model."""
    status: str
    """completed, failed or cancelled."""
    started_at_ms: int
    """Start."""
    ended_at_ms: int
    """End."""
    turns: int
    """Model turns."""
    input_tokens: int
    """Sum."""
    output_tokens: int
    """Sum."""
    cost_micros: int
    """Sum."""
    model_errors: int
    """Failed model calls."""
    currency: str = ''
    """Currency."""
    tools: tuple[ToolTally, ...] = ()
    """Tools used."""

    def to_avro(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "term": self.term,
            "offset": self.offset,
            "run_id": self.run_id,
            "tenant": self.tenant,
            "agent": self.agent,
            "provider": self.provider,
            "model": self.model,
            "status": self.status,
            "started_at_ms": self.started_at_ms,
            "ended_at_ms": self.ended_at_ms,
            "turns": self.turns,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_micros": self.cost_micros,
            "currency": self.currency,
            "model_errors": self.model_errors,
            "tools": [item.to_avro() for item in self.tools],
        }

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            partition=value["partition"],
            term=value["term"],
            offset=value["offset"],
            run_id=value["run_id"],
            tenant=value["tenant"],
            agent=value["agent"],
            provider=value["provider"],
            model=value["model"],
            status=value["status"],
            started_at_ms=value["started_at_ms"],
            ended_at_ms=value["ended_at_ms"],
            turns=value["turns"],
            input_tokens=value["input_tokens"],
            output_tokens=value["output_tokens"],
            cost_micros=value["cost_micros"],
            currency=value["currency"],
            model_errors=value["model_errors"],
            tools=tuple(ToolTally.from_avro(item) for item in value["tools"]),
        )


RECORDS = (
    AuditCheckpoint,
    DeadLetter,
    Header,
    ModelDelta,
    PartitionCheckpoint,
    RunSnapshot,
    RunTally,
    SnapshotRef,
    ToolTally,
)
