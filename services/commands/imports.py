"""Taking in a run that happened elsewhere, from its bundle.

    checked     the bundle is whole, every run in it folds without drift; nothing is written before that is known
    kept        payloads go to the blob store, where the same bytes are the same blob
    published   the runs in their order, oldest first, each in parts that fit one append
    told        the owner has appended the end of each; a run that is here already is left as it is

Runs keep their ids, so the same file again adds nothing. They belong to the caller's tenant, whatever the bundle says;
a caller who is confined to its own subject may not, because the runs name other users. An id that another tenant has is
refused.

Before: a transport has spooled the file. After: publisher.py, and the owner of each partition decides.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from connectors.errors import OutsideError
from projections.tables import EVERY_TENANT
from schemas.codec import Undecodable, digest, local_codec, read_envelope
from schemas.ids import ID_PATTERN, partition_key
from schemas.run_commands import ImportRun
from schemas.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused
from schemas.values import BlobRef, CommandEnvelope, ImportOrigin
from services.commands import limits
from services.commands.authentication import demand
from services.commands.declined import RETRY_LATER_S, Declined, away, bad_request, refused
from services.commands.follow import Sources
from services.commands.items import EventItem
from services.commands.publisher import Publisher
from services.commands.subscription import Subscription
from services.core.access.decide import Caller
from services.core.access.scopes import RUNS_CREATE, TENANT
from services.stream.bundle import BlobPart, BrokenBundle, BundledEvent, BundleReader, Header
from services.stream.bundle_replay import replay_bundle

OVER = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A run of a bundle, here now. `added` is false when it was here before."""

    run_id: str
    added: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A bundle that was taken in; its own run is the last. `position` is that of its newest event here."""

    runs: tuple[ImportedRun, ...]
    position: str


@dataclass(slots=True)
class _Known:
    """What the first pass learnt of a run: how many events it has, and the first and last of them."""

    first_offset: int
    tenant: str
    events: int = 0
    tail_digest: str = ""


@dataclass(frozen=True, slots=True)
class _Checked:
    header: Header
    sha256: str
    runs: dict[str, _Known]


@dataclass(slots=True)
class _Part:
    """Events that wait to be published together."""

    first_seq: int
    values: list[bytes] = field(default_factory=list)
    size: int = 0


class Imports:
    """The use case. `clock_ms` brings the time in."""

    def __init__(
        self,
        sources: Sources,
        publisher: Publisher,
        *,
        clock_ms: Callable[[], int],
        wait_s: float = limits.DECISION_WAIT_S,
    ) -> None:
        self._sources = sources
        self._publisher = publisher
        self._clock_ms = clock_ms
        self._wait_s = wait_s
        self._busy = 0

    async def take_in(self, caller: Caller, file: IO[bytes]) -> Imported:
        """Everything in the bundle. `file` can be read from its beginning more than once. Raises Declined."""
        demand(caller, RUNS_CREATE)
        if caller.is_isolated:
            raise Declined(
                "insufficient_scope", f"an import needs the scope {TENANT}: it names users", details={"scope": TENANT}
            )
        if self._busy >= limits.IMPORTS_MAX:
            raise Declined("backpressure", f"{self._busy} imports are under way here", retry_after_s=RETRY_LATER_S)
        self._busy += 1
        try:
            checked = await asyncio.to_thread(_checked, file)
            wanted = [run.run_id for run in checked.header.runs]
            here = {run_id: position for run_id in wanted if (position := await self._here(caller, run_id))}
            missing = [run_id for run_id in wanted if run_id not in here]
            if missing:
                await self._keep_blobs(file)
                here |= await self._publish(caller, file, checked, frozenset(missing))
        except BrokenBundle as error:
            raise bad_request(f"the bundle cannot be taken in: {error}") from error
        except Undecodable as error:
            raise bad_request(f"the bundle has a record nobody here can read: {error}") from error
        finally:
            self._busy -= 1
        return Imported(
            runs=tuple(ImportedRun(run_id=run_id, added=run_id in missing) for run_id in wanted),
            position=here[wanted[-1]],
        )

    async def _here(self, caller: Caller, run_id: str) -> str:
        """The position of the newest event of the run here; empty while there is none, or it is being taken in.

        Raises Declined(run_id_taken) when it is another tenant's.
        """
        if not ID_PATTERN.match(run_id):
            raise bad_request(f"the bundle names a run {run_id[:80]!r}, which is no id")
        await self._sources.barrier.own_writes(self._sources.partition_of(run_id))
        place = await self._sources.projection.place(EVERY_TENANT, run_id)
        if place is not None and place.tenant != caller.tenant:
            raise Declined("run_id_taken", f"there is a run {run_id} here that does not belong to your tenant")
        if place is None:
            return ""
        if place.status == "refused":
            raise Declined("run_id_taken", f"an import of {run_id} was refused here before ({place.reason})")
        if place.status not in OVER:
            row = await self._sources.projection.run(caller.tenant, run_id)
            if row is None or row.imported_from:
                return ""  # an import that was broken off: it can be tried again
        return self._sources.barrier.token(place.partition, place.last_offset)

    async def _keep_blobs(self, file: IO[bytes]) -> None:
        file.seek(0)
        gathered = bytearray()
        for item in BundleReader(file):
            if isinstance(item, BlobPart):
                gathered += item.data
                if len(gathered) > limits.BLOB_BYTES_MAX:
                    raise BrokenBundle(f"the payload {item.ref.sha256} is over {limits.BLOB_BYTES_MAX} bytes")
                if item.is_last:
                    await self._keep(item.ref, bytes(gathered))
                    gathered.clear()

    async def _keep(self, ref: BlobRef, data: bytes) -> None:
        try:
            kept = await self._sources.blobs.put(data, ref.media_type)
        except OutsideError as error:
            raise away("blobs", error) from error
        if kept.sha256 != ref.sha256:
            raise BrokenBundle(f"the payload {ref.sha256} hashes to {kept.sha256}")

    async def _publish(
        self, caller: Caller, file: IO[bytes], checked: _Checked, missing: frozenset[str]
    ) -> dict[str, str]:
        """The events of the missing runs in parts, and after each run the wait for its end; where that lies."""
        done: dict[str, str] = {}
        file.seek(0)
        reader = BundleReader(file)
        part: _Part | None = None
        run_id = ""
        subscription: Subscription | None = None
        try:
            for item in reader:
                if isinstance(item, BlobPart):
                    break
                if item.run_id not in missing:
                    continue
                if isinstance(item, BundledEvent):
                    run_id = item.run_id
                    subscription = subscription or self._sources.hub.subscribe(run_id)
                    value = _written_here(reader, item)
                    if part is not None and part.size + len(value) > limits.IMPORT_PART_BYTES:
                        await self._send(caller, run_id, checked, part)
                        part = None
                    part = part or _Part(item.event.seq)
                    part.values.append(value)
                    part.size += len(value)
                elif part is not None and subscription is not None:
                    await self._send(caller, run_id, checked, part)
                    done[run_id] = await self._ended(run_id, subscription, caller)
                    subscription.close()
                    part = subscription = None
        finally:
            if subscription is not None:
                subscription.close()
        return done

    async def _send(self, caller: Caller, run_id: str, checked: _Checked, part: _Part) -> None:
        known = checked.runs[run_id]
        command_id = f"{run_id}@{part.first_seq}.{checked.sha256[:16]}"
        command = ImportRun(
            envelope=CommandEnvelope(
                command_id=command_id, tenant=caller.tenant, subject=caller.subject, issued_at_ms=self._clock_ms()
            ),
            run_id=run_id,
            origin=ImportOrigin(
                topic=checked.header.topic,
                partition=checked.header.partition,
                first_offset=known.first_offset,
                tenant=known.tenant,
                events=known.events,
                tail_digest=known.tail_digest,
                bundle_sha256=checked.sha256,
            ),
            first_seq=part.first_seq,
            events=tuple(part.values),
        )
        await self._publisher.publish(partition_key(run_id), command_id, command)

    async def _ended(self, run_id: str, subscription: Subscription, caller: Caller) -> str:
        """Waits until the last event of the run is in the log; its position. Raises Declined."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._wait_s
        while (left := deadline - clock()) > 0 and not subscription.closed:
            for item in await subscription.take(min(left, limits.DECISION_LOOK_S)):
                if not isinstance(item, EventItem):
                    continue
                if isinstance(item.record, RunRefused):
                    raise refused(item.record.code, f"{run_id}: {item.record.message}")
                if isinstance(item.record, RunCompleted | RunFailed | RunCancelled):
                    return self._sources.barrier.token(item.partition, item.raw.offset)
            if position := await self._here(caller, run_id):
                return position
        raise Declined(
            "import_pending",
            f"the run {run_id} is in the log to be taken in, but no runtime has done it within {self._wait_s:g} s; "
            "send the same file again, it adds nothing twice",
            retry_after_s=RETRY_LATER_S,
            details={"run_id": run_id},
        )


def _checked(file: IO[bytes]) -> _Checked:
    """The first pass: everything is folded and nothing may differ. Raises BrokenBundle."""
    runs: dict[str, _Known] = {}
    last: list[BundleReader] = []

    def seen(item: BundledEvent | BlobPart, reader: BundleReader) -> None:
        last[:] = [reader]
        if isinstance(item, BundledEvent):
            envelope, _ = read_envelope(item.event.value)
            known = runs.setdefault(item.run_id, _Known(first_offset=item.event.offset, tenant=envelope.tenant))
            known.events += 1
            known.tail_digest = digest(item.event.value).hex()

    file.seek(0)
    found = replay_bundle(file, through_bytes=False, bytes_max=limits.IMPORT_BYTES_MAX, seen=seen)
    if found.drift:
        more = f" (and {len(found.drift) - 1} more)" if len(found.drift) > 1 else ""
        raise BrokenBundle(f"its history does not hold: {found.drift[0]}{more}")
    return _Checked(found.header, last[0].sha256, runs)


def _written_here(reader: BundleReader, item: BundledEvent) -> bytes:
    """The record as this version writes it, under the envelope it had."""
    decoded = reader.codec.decode(item.event.value)
    assert decoded.envelope is not None, "it was folded in the first pass"
    return local_codec().encode_event(decoded.envelope, decoded.record)
