"""Records of the namespace loom.stream.records."""

# Written by schemas/generate.py from schemas/avro. Edit the .avsc files, then run `make schemas`.

from collections.abc import Mapping
from typing import ClassVar

from msgspec import field

from loomlog.schemas.records import Record


class AgentTally(Record, frozen=True, kw_only=True):
    """Runs of one agent."""

    SCHEMA: ClassVar[str] = "loom.stream.records.AgentTally"

    tenant: str
    """Tenant."""
    agent: str
    """Agent."""
    runs: int
    """Runs."""
    failed: int
    """Of these failed."""


class AuditCheckpoint(Record, frozen=True, kw_only=True):
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


class ClientHostAlive(Record, frozen=True, kw_only=True):
    """A process holds connections of clients and is alive. Its registrations count only as long as it says so."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ClientHostAlive"

    host: str
    """The process."""
    at_ms: int
    """UTC milliseconds."""


class ClientLeft(Record, frozen=True, kw_only=True):
    """A connection is over; nothing can be asked of it any more."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ClientLeft"

    connection_id: str
    """The connection."""
    host: str
    """The process that held it."""
    at_ms: int
    """UTC milliseconds."""


class ClientTool(Record, frozen=True, kw_only=True):
    """A tool that a client carries out."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ClientTool"

    name: str
    """As the client calls it; an agent sees it as client__<name>."""
    description: str
    """What the model is told of it."""
    input_schema: str
    """JSON Schema of its arguments, an object as text."""


class ClientRegistered(Record, frozen=True, kw_only=True):
    """A client is connected and offers tools to the runs of its principal; said again from time to time while it
    is so.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.ClientRegistered"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "connection_id", "host", "tenant", "subject", "client", "tools", "registered_at_ms", "at_ms",
    )

    connection_id: str
    """Its connection; begins with the host and a dot."""
    host: str
    """The process that holds the connection."""
    tenant: str
    """Tenant of the principal."""
    subject: str
    """Subject of the principal: only runs that it started see the tools."""
    tools: tuple[ClientTool, ...]
    """All that it offers; what an earlier record of the connection says is over."""
    registered_at_ms: int
    """When it said so, UTC milliseconds; of two that offer a tool the later one is asked."""
    at_ms: int
    """When this record was made, UTC milliseconds."""
    client: str = ''
    """What the client calls itself; may be empty."""


class CostTally(Record, frozen=True, kw_only=True):
    """Cost in one currency."""

    SCHEMA: ClassVar[str] = "loom.stream.records.CostTally"

    currency: str
    """Currency."""
    micros: int
    """Millionths."""


class Header(Record, frozen=True, kw_only=True):
    """A Kafka header."""

    SCHEMA: ClassVar[str] = "loom.stream.records.Header"

    key: str
    """Name."""
    value: bytes
    """Value."""


class DeadLetter(Record, frozen=True, kw_only=True):
    """A record that could not be handled, with all that is needed to put it back."""

    SCHEMA: ClassVar[str] = "loom.stream.records.DeadLetter"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "topic", "partition", "offset", "key", "value", "headers", "timestamp_ms", "service", "kind", "error", "at_ms",
    )

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


class DeadLetterAcknowledged(Record, frozen=True, kw_only=True):
    """A person has looked at a dead letter and needs nothing more of it. Lies on the topic of dead letters, after
    the letter.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.DeadLetterAcknowledged"

    letter_offset: int
    """Offset of the letter."""
    at_ms: int
    """When."""
    by: str = ''
    """Who."""
    reason: str = ''
    """Why, as they said it."""
    request_token: str = ''
    """Token of the request that asked for it; a repetition of the request has the same. Empty: none."""


class DeadLetterReplayed(Record, frozen=True, kw_only=True):
    """A dead letter was put back where it came from. Lies on the topic of dead letters, after the letter."""

    SCHEMA: ClassVar[str] = "loom.stream.records.DeadLetterReplayed"

    letter_offset: int
    """Offset of the letter."""
    topic: str
    """Where the original was put."""
    partition: int
    """Its partition."""
    offset: int
    """Its new offset."""
    at_ms: int
    """When."""
    request_token: str = ''
    """Token of the request that asked for it; a repetition of the request has the same. Empty: none."""


class EntityCheckpoint(Record, frozen=True, kw_only=True):
    """Where the fold of an entity partition may begin; key = checkpoint. It names no aggregates: those below
    next_offset rest in their rows, replicated ones in their snapshots.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.EntityCheckpoint"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "partition", "term", "next_offset", "command_offset", "handled_above", "at_ms", "issued_until_ms", "versions",
        "replicated", "replicated_sha256",
    )

    partition: int
    """The partition."""
    term: int
    """Current term at next_offset."""
    next_offset: int
    """The projector has passed it, and every snapshot of a replicated aggregate below it is in this topic."""
    command_offset: int
    """Every command below was handled."""
    at_ms: int
    """When it was made, UTC milliseconds; no command with an event below next_offset was decided later."""
    issued_until_ms: int
    """No command with an event below next_offset is known to have been issued after this."""
    replicated: int
    """Number of replicated aggregates."""
    replicated_sha256: str
    """Sum modulo 2^256 of the SHA-256 of `id seq state_sha256` of each of them, hex."""
    handled_above: tuple[int, ...] = ()
    """Commands at or above command_offset that were handled as well."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Version of the fold of each family."""


class EntitySnapshot(Record, frozen=True, kw_only=True):
    """Verified copy of a replicated aggregate; key = its id."""

    SCHEMA: ClassVar[str] = "loom.stream.records.EntitySnapshot"

    aggregate: str
    """Its id."""
    key: bytes
    """Key of its records."""
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
    version: int
    """Version of the family's fold."""
    state_sha256: str
    """Hash of state."""
    state: bytes
    """Canonical encoding of the state."""


class ModelDelta(Record, frozen=True, kw_only=True):
    """Preview of a model turn while it streams; never truth. The whole turn is in ModelReplied."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ModelDelta"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

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


class ModelMarked(Record, frozen=True, kw_only=True):
    """What calls have shown of a model."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ModelMarked"

    provider: str
    """Provider id."""
    model: str
    """Model name at the provider."""
    mark: str
    """rate_limited, stalled or recovered."""
    until_ms: int = 0
    """End of the rate limit, UTC milliseconds; 0 for the other marks."""
    reason: str = ''
    """Kind of the failure, as in connectors/errors.py."""
    by: str = ''
    """Process that saw it."""
    at_ms: int = 0
    """When it saw it, UTC milliseconds."""


class ModelTally(Record, frozen=True, kw_only=True):
    """Calls of one model."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ModelTally"

    provider: str
    """Provider."""
    model: str
    """Model."""
    calls: int
    """Calls."""
    errors: int
    """Of these failed."""


class ModelTimes(Record, frozen=True, kw_only=True):
    """How long calls of one model took."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ModelTimes"

    provider: str
    """Provider."""
    model: str
    """Model."""
    durations_ms: tuple[int, ...]
    """One for each call, at least one."""


class PartitionCheckpoint(Record, frozen=True, kw_only=True):
    """Where the fold of a partition may begin; key = checkpoint."""

    SCHEMA: ClassVar[str] = "loom.stream.records.PartitionCheckpoint"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "partition", "term", "next_offset", "command_offset", "handled_above", "live_runs", "tokens_sum", "at_ms",
        "reducer_version", "issued_until_ms",
    )

    partition: int
    """The partition."""
    term: int
    """Current term at next_offset."""
    next_offset: int
    """Everything below is in the snapshots named here or belongs to ended runs."""
    command_offset: int
    """Every command below was handled."""
    live_runs: int
    """Number of runs that were live at next_offset."""
    tokens_sum: bytes
    """Sum of the tokens of their snapshots, modulo 2^128, big-endian."""
    at_ms: int
    """When it was made."""
    reducer_version: int
    """Version of the fold."""
    handled_above: tuple[int, ...] = ()
    """Commands at or above command_offset that were handled as well."""
    issued_until_ms: int = 0
    """No start of a run that was over by then is known to have been issued after this; 0: nothing is known."""


class ProbeRequested(Record, frozen=True, kw_only=True):
    """An administrator wants every provider probed now."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ProbeRequested"

    request_id: str
    """Names the request."""
    by: str = ''
    """Who asked."""
    at_ms: int = 0
    """When it was asked for, UTC milliseconds."""


class ProviderProbed(Record, frozen=True, kw_only=True):
    """A provider was asked whether it is there and what it has."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ProviderProbed"

    provider: str
    """Provider id."""
    reachable: bool
    """Whether it answered."""
    models: tuple[str, ...] = ()
    """Models it lists; empty when it lists none, or was not reached."""
    error: str = ''
    """Why it was not reached, or why it listed nothing."""
    request_id: str = ''
    """Of the ProbeRequested this answers; empty for a probe in turn."""
    by: str = ''
    """Process that asked it."""
    at_ms: int = 0
    """When it answered, UTC milliseconds."""
    key_refused: bool = False
    """It is there, but not for the key it was asked with: refused, at its limit, or without money."""


class RemoteToolRequest(Record, frozen=True, kw_only=True):
    """A call of a tool that another process serves. Keyed by its idempotency key."""

    SCHEMA: ClassVar[str] = "loom.stream.records.RemoteToolRequest"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "request_id", "idempotency_key", "run_id", "tenant", "user_id", "subject", "agent", "agent_id", "tool", "input",
        "attempt", "issued_at_ms", "deadline_ms", "connection_id",
    )
    CONTENT: ClassVar[Mapping[str, str]] = {"input": "text"}

    request_id: str
    """Of this attempt of the call; unique."""
    idempotency_key: str
    """The same for all attempts of the call: answer again what was done, do nothing twice."""
    run_id: str
    """The run."""
    tenant: str
    """Tenant of the run."""
    agent: str
    """Name of the agent."""
    agent_id: str
    """Tracking handle of the run."""
    tool: str
    """Name of the tool."""
    input: str
    """Arguments, a JSON object as text. Written by a model: check them."""
    attempt: int
    """From 1."""
    issued_at_ms: int
    """UTC milliseconds."""
    deadline_ms: int
    """UTC milliseconds. The result is not waited for after it, so an older request must not be begun."""
    user_id: str = ''
    """End user of the run; may be empty."""
    subject: str = ''
    """Subject of the principal that started the run."""
    connection_id: str = ''
    """The connection of the client that is to carry it out; empty: any service of the tool."""


class RemoteToolResult(Record, frozen=True, kw_only=True):
    """What became of a call. Keyed as its request was."""

    SCHEMA: ClassVar[str] = "loom.stream.records.RemoteToolResult"
    CONTENT: ClassVar[Mapping[str, str]] = {"text": "text"}

    idempotency_key: str
    """Of the request."""
    request_id: str
    """Of the request."""
    run_id: str
    """Of the request."""
    tenant: str
    """Of the request."""
    text: str
    """What the model is told."""
    is_error: bool = False
    """The call failed, and the text says why."""
    outcome: str = ''
    """Only the tools of clients say it. Empty: the call was carried out, or failed as is_error says. unknown: it
    cannot be known whether it had its effect. not_begun: it certainly had none.
    """


class RunSnapshot(Record, frozen=True, kw_only=True):
    """Verified cache of one live run; key = run id, a tombstone some time after the run has ended."""

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
    """Hash of state; empty with it."""
    state: bytes
    """Canonical encoding of the state; empty if it is too large, then the run is folded from its events."""
    replaces: bytes = b''
    """Token of the run's snapshot in the partition snapshot before; empty: it had none."""
    next_offset: int = 0
    """That of the partition snapshot it was written for: what replaces counts for those before this offset only."""
    ended: bool = False
    """The run has ended: what it replaces was no part of later partition snapshots."""
    rests: bool = False
    """The run waits for people only: an owner need not load its state before something happens in it."""
    session_id: str = ''
    """Session of a run that rests; empty: that of its own id."""
    agent_id: str = ''
    """Handle of a run that rests; empty: that of its own id."""
    agent: str = ''
    """Agent of a run that rests."""
    wide_pauses: tuple[str, ...] = ()
    """Scopes of the pauses wider than the run that hold a run that rests."""
    timer_at_ms: int = 0
    """Time of the timer of a run that rests; 0: none."""


class StatusTally(Record, frozen=True, kw_only=True):
    """Runs that ended in the same way."""

    SCHEMA: ClassVar[str] = "loom.stream.records.StatusTally"

    status: str
    """completed, failed or cancelled."""
    runs: int
    """Runs."""


class ToolTally(Record, frozen=True, kw_only=True):
    """Calls of one tool."""

    SCHEMA: ClassVar[str] = "loom.stream.records.ToolTally"

    name: str
    """Tool."""
    calls: int
    """Calls."""
    errors: int
    """Of these with an error result."""


class RunTally(Record, frozen=True, kw_only=True):
    """What the runs add up to that ended in one partition, under one term, in one minute; thin, for live metrics,
    never truth.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.RunTally"

    partition: int
    """Events partition."""
    term: int
    """Term of the writer; lower than the newest seen for the partition = stale."""
    offset: int
    """Offset of the last of their ending events; no other tally of the partition has it."""
    ended_at_ms: int
    """When the last of them ended; all ended in the same minute (UTC)."""
    durations_ms: tuple[int, ...]
    """How long each took; their number is the number of runs, at least one."""
    statuses: tuple[StatusTally, ...]
    """Every run counts once."""
    agents: tuple[AgentTally, ...]
    """Every run counts once."""
    models: tuple[ModelTally, ...]
    """Models called."""
    tools: tuple[ToolTally, ...]
    """Tools used."""
    input_tokens: int
    """Sum."""
    output_tokens: int
    """Sum."""
    costs: tuple[CostTally, ...]
    """By currency."""
    model_times: tuple[ModelTimes, ...] = ()
    """Model calls of the whole process that were answered since its last tally, also of runs that go on; a sample
    of them when there are very many.
    """


class SubjectErased(Record, frozen=True, kw_only=True):
    """The data keys of a subject are destroyed, for ever: a record of one of them that comes later is ignored."""

    SCHEMA: ClassVar[str] = "loom.stream.records.SubjectErased"
    SCHEMA_ORDER: ClassVar[tuple[str, ...]] = (
        "erasure_id", "tenant", "subject", "key_ids", "reason", "by", "at_ms",
    )

    erasure_id: str
    """Id of the erasure; also the record's key, so that it is never compacted away."""
    tenant: str
    """Tenant of the subject."""
    subject: str
    """The subject; empty for the tenant's own key."""
    key_ids: tuple[str, ...]
    """Every data key it had."""
    by: str
    """Who asked."""
    at_ms: int
    """When, UTC milliseconds."""
    reason: str = ''
    """Why, as the one who asked said it."""


class SubjectKeyMade(Record, frozen=True, kw_only=True):
    """A data key of a subject, wrapped. The first that is not erased is the subject's; the same id again is the
    same key wrapped again.
    """

    SCHEMA: ClassVar[str] = "loom.stream.records.SubjectKeyMade"

    tenant: str
    """Tenant of the subject."""
    subject: str
    """The user_id of its runs; empty for runs of the tenant that have none."""
    key_id: str
    """Id of the data key, hex; also the record's key."""
    wrapped: bytes
    """Nonce, ciphertext and tag of the data key."""
    wrapped_by: str
    """Name of the key-encryption key, hex."""
    at_ms: int
    """When the data key was made, UTC milliseconds."""


RECORDS = (
    AgentTally,
    AuditCheckpoint,
    ClientHostAlive,
    ClientLeft,
    ClientRegistered,
    ClientTool,
    CostTally,
    DeadLetter,
    DeadLetterAcknowledged,
    DeadLetterReplayed,
    EntityCheckpoint,
    EntitySnapshot,
    Header,
    ModelDelta,
    ModelMarked,
    ModelTally,
    ModelTimes,
    PartitionCheckpoint,
    ProbeRequested,
    ProviderProbed,
    RemoteToolRequest,
    RemoteToolResult,
    RunSnapshot,
    RunTally,
    StatusTally,
    SubjectErased,
    SubjectKeyMade,
    ToolTally,
)
