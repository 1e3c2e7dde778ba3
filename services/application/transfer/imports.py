"""Importing a run from elsewhere, from its bundle.

    checked     the bundle is complete with every payload its events refer to, every run in it folds without drift, no
                number in it is impossible, and where content is encrypted nothing new in it is in plaintext, unless
                the request allows it; nothing is written before that is known
    named       its runs, sessions and handles do not belong to another tenant here
    stored      payloads go to the blob store, where the same bytes are the same blob
    published   the runs in their order, oldest first, each in batches that fit one append
    imported    the owner has appended the end of each; a run that exists here is left unchanged

Runs keep their ids, so the same file again adds nothing. They belong to the caller's tenant, whatever the bundle
contains. Only an operator of a tenant may import, because the runs name its users. The contents of a bundle are
unverified, its hashes prove only that it is consistent: so nothing of it is granted here
(services/runtime/run/fork_definition.py) or counted as spent.

Before: a transport has spooled the file. After: event_import.py, and the owner of each partition decides.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from loomlog.connectors.crypto.content_encryption import is_part_of_token
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Undecodable, digest
from loomlog.schemas.generated.run_events import RunStarted
from loomlog.schemas.generated.values import ImportOrigin
from loomlog.schemas.ids import ID_PATTERN, partition_key
from loomlog.services.application import limits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.runs import GENERATED_ID_PREFIXES
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.streaming.subscription import Subscription
from loomlog.services.application.transfer.event_import import (
    EventImporter,
    ImportBatch,
    plaintext_refusal,
    reencode_event,
)
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import IMPORTS
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.lifecycle.import_validation import value_error
from loomlog.services.stream.archive.bundle import (
    BlobPart,
    BrokenBundle,
    BundledEvent,
    BundleHeader,
    BundleReader,
    blob_refs,
)
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from loomlog.services.stream.encryption.content_fields import is_in_clear, payloads_of_event
from loomlog.services.stream.shared_slots import SharedSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A run of a bundle that exists here now. `added` is false when it existed before."""

    run_id: str
    added: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """An imported bundle; its own run is the last. `position` is that of its newest event here."""

    runs: tuple[ImportedRun, ...]
    position: str


@dataclass(slots=True)
class _KnownRun:
    """Facts about a run from the first pass: number of events, and the first and last of them."""

    first_offset: int
    tenant: str
    session_id: str
    agent_id: str
    events: int = 0
    tail_digest: str = ""
    is_in_clear: bool = False
    """Whether any of its content is in plaintext."""
    payloads: set[str] = field(default_factory=set)
    """Hashes of its payloads in the blob store, while those are checked for plaintext."""


@dataclass(frozen=True, slots=True)
class _CheckedBundle:
    header: BundleHeader
    sha256: str
    runs: dict[str, _KnownRun]


class RunImports:
    """The use case. `clock_ms` supplies the time."""

    def __init__(
        self,
        sources: StreamSources,
        publisher: CommandPublisher,
        *,
        clock_ms: Callable[[], int],
        wait_s: float = limits.DECISION_WAIT_S,
    ) -> None:
        self._sources = sources
        self._clock_ms = clock_ms
        self._importer = EventImporter(sources, publisher, clock_ms=clock_ms, wait_s=wait_s)
        self._slots = SharedSlots(IMPORTS.name, IMPORTS.shares)

    async def import_bundle(self, caller: Caller, file: IO[bytes], *, in_clear: bool = False) -> ImportResult:
        """Import every run of the bundle. `file` must be readable from its beginning more than once.

        Raises Refused, also content_in_clear: where content is encrypted, runs in plaintext are imported only
        with `in_clear`; ShareExhausted.
        """
        slot = self._slots.try_acquire(caller.holder)
        try:
            looks = self._sources.content.keys is not None and not in_clear
            checked = await asyncio.to_thread(_check_bundle, file, self._clock_ms(), checks_in_clear=looks)
            run_ids = [run.run_id for run in checked.header.runs]
            here = {
                run_id: position
                for run_id in run_ids
                if (position := await self._existing_position(caller, run_id, checked))
            }
            missing = [run_id for run_id in run_ids if run_id not in here]
            in_clear_here = [run_id for run_id in missing if checked.runs[run_id].is_in_clear]
            if in_clear_here:
                raise plaintext_refusal(len(in_clear_here), len(run_ids), "bundle", in_clear_here[0])
            for run_id in missing:
                await self._check_names(caller, run_id, checked.runs[run_id])
            if missing:
                await self._store_blobs(file)
                here |= await self._publish(caller, file, checked, frozenset(missing))
        except BrokenBundle as error:
            raise bad_request(f"the bundle cannot be imported: {error}") from error
        except Undecodable as error:
            raise bad_request(f"the bundle contains a record that cannot be decoded here: {error}") from error
        finally:
            slot.release()
        return ImportResult(
            runs=tuple(ImportedRun(run_id=run_id, added=run_id in missing) for run_id in run_ids),
            position=here[run_ids[-1]],
        )

    async def _existing_position(self, caller: Caller, run_id: str, checked: _CheckedBundle) -> str:
        """Return the position of the newest event of the run here; empty when there is none, or its import is
        unfinished.

        Raises Refused(run_id_taken) when it is another tenant's, or is being imported from another file.
        """
        if not ID_PATTERN.match(run_id):
            raise bad_request(f"the bundle names a run {run_id[:80]!r}, which is no id")
        return await self._importer.existing_position(caller.tenant, run_id, origin=_import_origin(checked, run_id))

    async def _check_names(self, caller: Caller, run_id: str, known: _KnownRun) -> None:
        """Check the names of a run.

        Raises Refused when session or handle are invalid, or when one of them or the run id is derived from a
        run of another tenant here.
        """
        for what, name in (("session", known.session_id), ("handle", known.agent_id)):
            if not ID_PATTERN.match(name):
                raise bad_request(f"the bundle gives {run_id} the {what} {name[:80]!r}, which is no id")
            if name.startswith(GENERATED_ID_PREFIXES) and not await self._is_free(caller, f"r_{name[2:]}"):
                raise Refused(
                    "run_id_taken",
                    f"the bundle gives {run_id} the {what} {name}, which does not belong to your tenant here",
                )
        if not await self._is_free(caller, f"r_{partition_key(run_id)}"):
            raise Refused("run_id_taken", f"{run_id} is named after a run that does not belong to your tenant here")
        if partition_key(known.session_id) != partition_key(run_id):
            raise bad_request(
                f"the bundle gives {run_id} the session {known.session_id}, whose runs begin with "
                f"r_{partition_key(known.session_id)}"
            )

    async def _is_free(self, caller: Caller, run_id: str) -> bool:
        """Whether no other tenant has a run with that id here."""
        place = await self._sources.projection.audit_row(EVERY_TENANT, run_id) if ID_PATTERN.match(run_id) else None
        return place is None or place.tenant == caller.tenant

    async def _store_blobs(self, file: IO[bytes]) -> None:
        file.seek(0)
        gathered = bytearray()
        for item in BundleReader(file):
            if isinstance(item, BlobPart):
                gathered += item.data
                if item.is_last:
                    await self._importer.store_blob(item.ref, bytes(gathered))
                    gathered.clear()

    async def _publish(
        self, caller: Caller, file: IO[bytes], checked: _CheckedBundle, missing_ids: frozenset[str]
    ) -> dict[str, str]:
        """Publish the events of the missing runs in batches, waiting for each run's end; returns those positions."""
        done: dict[str, str] = {}
        file.seek(0)
        reader = BundleReader(file)
        part: ImportBatch | None = None
        run_id = ""
        subscription: Subscription | None = None
        try:
            for item in reader:
                if isinstance(item, BlobPart):
                    break
                if item.run_id not in missing_ids:
                    continue
                if isinstance(item, BundledEvent):
                    run_id = item.run_id
                    subscription = subscription or self._sources.hub.subscribe(run_id)
                    value = reencode_event(reader.codec, item.event.value)
                    if part is not None and part.size + len(value) > limits.IMPORT_BATCH_BYTES:
                        await self._send(caller, run_id, checked, part)
                        part = None
                    part = part or ImportBatch(item.event.seq)
                    part.add(value)
                elif part is not None and subscription is not None:
                    await self._send(caller, run_id, checked, part)
                    done[run_id] = await self._importer.wait_for_end(
                        caller.tenant, run_id, checked.runs[run_id].events, subscription
                    )
                    subscription.close()
                    part = subscription = None
        finally:
            if subscription is not None:
                subscription.close()
        return done

    async def _send(self, caller: Caller, run_id: str, checked: _CheckedBundle, batch: ImportBatch) -> None:
        await self._importer.send(caller.tenant, caller.subject, run_id, _import_origin(checked, run_id), batch)


def _import_origin(checked: _CheckedBundle, run_id: str) -> ImportOrigin:
    known = checked.runs[run_id]
    return ImportOrigin(
        topic=checked.header.topic,
        partition=checked.header.partition,
        first_offset=known.first_offset,
        tenant=known.tenant,
        events=known.events,
        tail_digest=known.tail_digest,
        bundle_sha256=checked.sha256,
    )


def _check_bundle(file: IO[bytes], now_ms: int, *, checks_in_clear: bool) -> _CheckedBundle:
    """Run the first pass: fold everything and require that nothing differs. Raises BrokenBundle."""
    look = _BundleCheck(now_ms, checks_in_clear=checks_in_clear)
    file.seek(0)
    replay = replay_bundle(file, through_bytes=False, bytes_max=limits.IMPORT_BYTES_MAX, seen=look.add_item)
    if replay.drift:
        more = f" (and {len(replay.drift) - 1} more)" if len(replay.drift) > 1 else ""
        raise BrokenBundle(f"its history does not hold: {replay.drift[0]}{more}")
    return _CheckedBundle(replay.header, look.finish(), look.runs)


class _BundleCheck:
    """Checks of the first pass in addition to the fold: owners of the runs, their numbers, their payloads.

    With `checks_in_clear` also whether any content is in plaintext.
    """

    def __init__(self, now_ms: int, *, checks_in_clear: bool) -> None:
        self.runs: dict[str, _KnownRun] = {}
        self._now_ms = now_ms
        self._checks_in_clear = checks_in_clear
        self._reader: BundleReader | None = None
        self._expected_payloads: set[tuple[str, int]] = set()
        """Hash and size of each payload that events refer to."""
        self._payload_sizes: dict[str, int] = {}
        self._payload_hash = hashlib.sha256()
        self._payload_size = 0

    def add_item(self, item: BundledEvent | BlobPart, reader: BundleReader) -> None:
        """Check the next item. Raises BrokenBundle."""
        self._reader = reader
        if isinstance(item, BlobPart):
            self._check_payload(item)
        else:
            self._check_event(item, reader)

    def finish(self) -> str:
        """Return the hash of the bundle once all payloads were in it. Raises BrokenBundle."""
        for sha256, size in sorted(self._expected_payloads):
            if sha256 not in self._payload_sizes:
                raise BrokenBundle(f"its events refer to the payload {sha256}, which is not in it")
            if size != self._payload_sizes[sha256]:
                raise BrokenBundle(
                    f"its events give the payload {sha256} {size} bytes; it has {self._payload_sizes[sha256]}"
                )
        assert self._reader is not None, "a bundle without events does not hold"
        return self._reader.sha256

    def _check_event(self, item: BundledEvent, reader: BundleReader) -> None:
        decoded = reader.codec.decode(item.event.value)
        record, envelope = decoded.record, decoded.envelope
        if envelope is None:
            raise BrokenBundle(f"event {item.event.seq} of {item.run_id} has no envelope")
        wrong = value_error(record, envelope.at_ms, self._now_ms)
        if wrong:
            raise BrokenBundle(f"event {item.event.seq} of {item.run_id} cannot be: {wrong}")
        if len(item.event.value) > limits.IMPORT_EVENT_BYTES_MAX:
            raise BrokenBundle(
                f"event {item.event.seq} of {item.run_id} has {len(item.event.value)} bytes; at most "
                f"{limits.IMPORT_EVENT_BYTES_MAX} can be imported"
            )
        refs = list(blob_refs(record))
        self._expected_payloads |= {(ref.sha256, ref.size_bytes) for ref in refs}
        known = self.runs.get(item.run_id)
        if known is None:
            begun = record if isinstance(record, RunStarted) else None  # the fold reports any other first event
            known = self.runs[item.run_id] = _KnownRun(
                first_offset=item.event.offset,
                tenant=envelope.tenant,
                session_id=begun.session_id if begun is not None else "",
                agent_id=begun.agent_id if begun is not None else "",
            )
        known.events += 1
        known.tail_digest = digest(item.event.value).hex()
        if self._checks_in_clear and not known.is_in_clear:
            known.is_in_clear = is_in_clear(record)
            known.payloads |= payloads_of_event(record)

    def _check_payload(self, part: BlobPart) -> None:
        # An encrypted payload is one token from its first byte to its last.
        if self._checks_in_clear and not is_part_of_token(part.data, is_first=not self._payload_size):
            for known in self.runs.values():
                known.is_in_clear = known.is_in_clear or part.ref.sha256 in known.payloads
        self._payload_hash.update(part.data)
        self._payload_size += len(part.data)
        if self._payload_size > limits.BLOB_BYTES_MAX:
            raise BrokenBundle(f"the payload {part.ref.sha256} is over {limits.BLOB_BYTES_MAX} bytes")
        if part.is_last:
            if self._payload_hash.hexdigest() != part.ref.sha256:
                raise BrokenBundle(f"the payload {part.ref.sha256} hashes to {self._payload_hash.hexdigest()}")
            self._payload_sizes[part.ref.sha256] = self._payload_size
            self._payload_hash, self._payload_size = hashlib.sha256(), 0
