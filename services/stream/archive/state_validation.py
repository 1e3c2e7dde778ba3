"""Validation of a state file from its first line to its last, before anything of it is restored.

First the hash of the whole, without reading the content; then the counts, the hash of every payload, and of every run
that its events are dense, chained, legal and match its head; the same of every aggregate of the entity topics. Only
what is being folded is kept, so a file may be larger than memory; of encrypted content the ids of its keys are kept, of
plaintext payloads their hashes.

Before: state_reader.py. After: services/application/transfer/restore.py, the command line.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import IO

from loomlog.connectors.crypto.content_encryption import key_ids_in
from loomlog.schemas.codec import DIGEST_BYTES, Undecodable, digest
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import Value
from loomlog.services.core.pauses import WidePause, validate_scope
from loomlog.services.core.run.history.replay import RunFold
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.lifecycle.fork import conversation_origin, is_foreign_event
from loomlog.services.core.run.state import Ended, Refused
from loomlog.services.core.spending_limits import account_error
from loomlog.services.stream.archive.bundle import BlobPart
from loomlog.services.stream.archive.state_file import (
    BrokenStateFile,
    StatedAggregate,
    StatedAggregateEvent,
    StatedEvent,
    StatedLimit,
    StatedOmission,
    StatedRun,
    StateHeader,
)
from loomlog.services.stream.archive.state_reader import StateReader, check_digest
from loomlog.services.stream.encryption.content_fields import is_in_clear, payloads_of_event
from loomlog.services.stream.entities.families import EntityFamilies, UnknownFamily
from loomlog.services.stream.entities.replay import AggregateFold


class EncryptedRun(Value, frozen=True, kw_only=True):
    """A run with encrypted content. `key_ids`: keys of its content and of the runs it continues."""

    is_over: bool
    key_ids: frozenset[str]


@dataclass(slots=True, kw_only=True)
class ValidatedState:
    """Content of a valid file."""

    header: StateHeader
    sha256: str = ""
    runs: int = 0
    live_runs: int = 0
    events: int = 0
    pauses: int = 0
    limits: int = 0
    blobs: int = 0
    encrypted_runs: dict[str, EncryptedRun] = field(default_factory=dict)
    """By run id; plaintext runs are not in it."""
    runs_in_clear: int = 0
    """Runs with plaintext content."""
    first_in_clear: str = ""
    foreign_runs: set[str] = field(default_factory=set)
    """Runs that were imported there and not restored: their figures were not trusted there either."""
    incomplete_runs: set[str] = field(default_factory=set)
    """Runs whose import was not complete when the file was written."""
    aggregates: int = 0
    aggregate_events: int = 0
    aggregate_key_ids: set[str] = field(default_factory=set)
    """Keys of the content of aggregates."""
    left_out: list[StatedOmission] = field(default_factory=list)
    """What is not in the file, by family."""
    unfoldable_aggregates: dict[str, str] = field(default_factory=dict)
    """Aggregates with an event that their family cannot fold, and why: they were quarantined there, or repaired."""


def validate_state(file: IO[bytes], *, bytes_max: int = 0, families: EntityFamilies | None = None) -> ValidatedState:
    """Read the file from its beginning to its end. Raises BrokenStateFile.

    `bytes_max`: limit of the bytes of all lines together; 0 for no limit. `families` folds the aggregates; None checks
    their seqs, chains and schemas only, as where a file is only kept.
    """
    check_digest(file, bytes_max=bytes_max)
    reader = StateReader(file, bytes_max=bytes_max)
    state = ValidatedState(header=reader.header)
    tenant = reader.header.tenant
    blob = hashlib.sha256()
    keys_of_blobs: dict[str, set[str]] = {}
    blobs_in_clear: set[str] = set()
    current: _RunCheck | None = None
    aggregate: _AggregateCheck | None = None
    for item in reader:
        match item:
            case WidePause():
                state.pauses += 1
                _check_pause(item, tenant)
            case StatedLimit():
                state.limits += 1
                _check_limit(item, tenant)
            case BlobPart():
                blob.update(item.data)
                if key_ids := _key_ids_in(item.data):
                    keys_of_blobs.setdefault(item.ref.sha256, set()).update(key_ids)
                if item.is_last:
                    state.blobs += 1
                    if item.ref.sha256 not in keys_of_blobs:
                        blobs_in_clear.add(item.ref.sha256)
                    if blob.hexdigest() != item.ref.sha256:
                        raise BrokenStateFile(f"the payload {item.ref.sha256} hashes to {blob.hexdigest()}: altered")
                    blob = hashlib.sha256()
            case StatedRun():
                if current is not None:
                    current.check_end(state)
                current = _RunCheck(item, reader, keys_of_blobs, blobs_in_clear)
                if tenant and item.tenant != tenant:
                    raise BrokenStateFile(f"{item.run_id} belongs to another tenant than the file")
                state.runs += 1
                state.live_runs += not item.is_over
            case StatedEvent():
                if current is None:
                    raise BrokenStateFile("an event comes before the first run")
                state.events += 1
                current.take(item)
            case StatedAggregate():
                if aggregate is not None:
                    aggregate.check_end(state)
                if tenant and item.tenant != tenant:
                    raise BrokenStateFile(f"{item.aggregate} belongs to another tenant than the file")
                aggregate = _AggregateCheck(item, reader, families)
                state.aggregates += 1
            case StatedAggregateEvent():
                if aggregate is None:
                    raise BrokenStateFile("an event comes before the first aggregate")
                state.aggregate_events += 1
                aggregate.take(item, state)
            case StatedOmission():
                state.left_out.append(item)
    if aggregate is not None:
        aggregate.check_end(state)
    if current is not None:
        current.check_end(state)
    state.sha256 = reader.sha256
    return state


class _RunCheck:
    """The run that is being folded. The runs it continues are left out: which events are legal does
    not depend on them.
    """

    def __init__(
        self,
        head: StatedRun,
        reader: StateReader,
        keys_of_blobs: Mapping[str, set[str]],
        blobs_in_clear: Collection[str],
    ) -> None:
        if not ID_PATTERN.match(head.run_id):
            raise BrokenStateFile(f"the file names a run {head.run_id[:80]!r}, which is no id")
        self._head = head
        self._folding = RunFold(head.run_id, codec=reader.codec, checks_roundtrip=False)
        self._keys_of_blobs = keys_of_blobs
        self._blobs_in_clear = blobs_in_clear
        self._key_ids: set[str] = set()
        self._origin = ""
        self._in_clear = False
        self._is_restored = False

    def take(self, item: StatedEvent) -> None:
        entry = self._folding.apply(item.event)
        if self._folding.drift:
            raise BrokenStateFile(f"{self._head.run_id}: {self._folding.drift[0]}")
        if entry is None or entry.tenant != self._head.tenant:
            raise BrokenStateFile(f"{self._head.run_id}: an event belongs to another tenant than the run")
        self._key_ids |= _key_ids_in(item.event.value)
        self._in_clear = self._in_clear or is_in_clear(entry.event)
        if self._keys_of_blobs or self._blobs_in_clear:
            for sha256 in payloads_of_event(entry.event):
                self._key_ids |= self._keys_of_blobs.get(sha256, set())
                self._in_clear = self._in_clear or sha256 in self._blobs_in_clear
        if isinstance(entry.event, RunStarted):
            self._is_restored = not is_foreign_event(entry.event)
            if (before := conversation_origin(entry.event)) is not None:
                self._origin = before.run_id

    def check_end(self, validated: ValidatedState) -> None:
        """Compare the run with its head and record it in `validated`. Raises BrokenStateFile."""
        head, folding = self._head, self._folding
        if (head.events, head.tail_digest) != (folding.seq, folding.tail_digest.hex()):
            raise BrokenStateFile(
                f"{head.run_id} has {folding.seq} events, not the {head.events} that its head promises"
            )
        if isinstance(folding.state, Refused) or head.is_over != isinstance(folding.state, Ended):
            raise BrokenStateFile(f"{head.run_id} is {type(folding.state).__name__}, which its head does not say")
        if is_importing(folding.state):
            if not self._is_restored:
                validated.foreign_runs.add(head.run_id)
            if not head.is_over:
                validated.incomplete_runs.add(head.run_id)
        before = validated.encrypted_runs.get(self._origin)
        key_ids = self._key_ids if before is None else self._key_ids | before.key_ids
        if key_ids:
            validated.encrypted_runs[head.run_id] = EncryptedRun(is_over=head.is_over, key_ids=frozenset(key_ids))
        if self._in_clear:
            validated.runs_in_clear += 1
            validated.first_in_clear = validated.first_in_clear or head.run_id


class _AggregateCheck:
    """The aggregate that is being read."""

    def __init__(self, head: StatedAggregate, reader: StateReader, families: EntityFamilies | None) -> None:
        tenant, slash, name = head.aggregate.partition(":")[2].partition("/")
        if not slash or not name or tenant != head.tenant:
            raise BrokenStateFile(f"the file names an aggregate {head.aggregate[:80]!r}, which is no id of its tenant")
        self._head = head
        self._reader = reader
        self._seq, self._digest = 0, bytes(DIGEST_BYTES)
        self._fold: AggregateFold | None = None
        if families is not None:
            try:
                self._fold = AggregateFold(families, head.aggregate, reader.codec)
            except UnknownFamily as error:
                raise BrokenStateFile(f"{error}; LOOMLOG_FAMILIES adds families") from error

    def take(self, item: StatedAggregateEvent, validated: ValidatedState) -> None:
        head, event = self._head, item.event
        try:
            decoded = self._reader.codec.decode(event.value)
        except Undecodable as error:
            raise BrokenStateFile(f"{head.aggregate}, seq {event.seq}: {error}") from error
        envelope = decoded.envelope
        if envelope is None or (envelope.aggregate, envelope.tenant) != (head.aggregate, head.tenant):
            raise BrokenStateFile(f"{head.aggregate}: one of its events is of another aggregate or tenant")
        if envelope.seq != self._seq + 1 or envelope.prev != self._digest:
            raise BrokenStateFile(
                f"{head.aggregate}: seq {envelope.seq} at offset {event.offset} does not continue its history"
            )
        self._seq, self._digest = envelope.seq, digest(event.value)
        validated.aggregate_key_ids |= _key_ids_in(event.value)
        if self._fold is not None:
            self._fold.apply(event)

    def check_end(self, validated: ValidatedState) -> None:
        """Compare the aggregate with its head. Raises BrokenStateFile."""
        head = self._head
        if (head.events, head.tail_digest) != (self._seq, self._digest.hex()):
            raise BrokenStateFile(
                f"{head.aggregate} has {self._seq} events, not the {head.events} that its head promises"
            )
        replayed = None if self._fold is None else self._fold.result()
        if replayed is not None and (problems := (*replayed.drift, *replayed.repaired)):
            validated.unfoldable_aggregates[head.aggregate] = problems[0]


def _key_ids_in(data: bytes) -> set[str]:
    """Tokens are ASCII, so they are found in any record or payload without decoding it."""
    return key_ids_in(data.decode("latin-1"))


def _check_pause(pause: WidePause, tenant: str) -> None:
    try:
        validate_scope(pause.scope, pause.tenant, pause.agent)
    except ValueError as error:
        raise BrokenStateFile(f"a pause: {error}") from error
    if tenant and pause.tenant != tenant:
        raise BrokenStateFile("a pause reaches beyond the tenant of the file")


def _check_limit(limit: StatedLimit, tenant: str) -> None:
    wrong = account_error(limit.scope, limit.tenant, limit.scope_id)
    if wrong:
        raise BrokenStateFile(f"a limit: {wrong}")
    if tenant and limit.tenant != tenant:
        raise BrokenStateFile("a limit reaches beyond the tenant of the file")
