"""Importing a run from elsewhere: its events are published in batches, and its owner appends them.

Shared by an import (imports.py, one bundle) and a restore (restore.py, a state file). A run that exists here is left
unchanged, so importing it twice adds nothing.

Before: imports.py, restore.py. After: services/application/command_publisher.py,
services/core/run/lifecycle/event_import.py.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from loomlog.projections.runs import RunRow, import_source
from loomlog.projections.tables import EVERY_TENANT
from loomlog.schemas.codec import Codec, local_codec
from loomlog.schemas.generated.run_commands import ImportRun
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused, RunRestored
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, ImportOrigin
from loomlog.schemas.ids import partition_key
from loomlog.services.application import limits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import RETRY_LATER_S, owner_refusal, reaching
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.streaming.subscription import Subscription
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.bundle import BrokenBundle

ENDED_STATUSES = frozenset({"completed", "failed", "cancelled"})


@dataclass(slots=True)
class ImportBatch:
    """Events to be published together."""

    first_seq: int
    values: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, value: bytes) -> None:
        self.values.append(value)
        self.size += len(value)


class EventImporter:
    """Imports events. `clock_ms` supplies the time; `wait_s` is the timeout for the owner of each run."""

    def __init__(
        self, sources: StreamSources, publisher: CommandPublisher, *, clock_ms: Callable[[], int], wait_s: float
    ) -> None:
        self._sources = sources
        self._publisher = publisher
        self._clock_ms = clock_ms
        self._wait_s = wait_s

    async def existing_position(
        self, tenant: str, run_id: str, *, origin: ImportOrigin | None = None, own_writes: bool = True
    ) -> str:
        """Return the position of the newest event of the run here; empty when there is none, or its import is
        unfinished.

        Raises Refused(run_id_taken) when it is another tenant's, or is being imported from elsewhere than
        `origin`.
        """
        if own_writes:
            await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(run_id))
        place = await self._sources.projection.audit_row(EVERY_TENANT, run_id)
        if place is not None and place.tenant != tenant:
            raise Refused("run_id_taken", f"there is a run {run_id} here that does not belong to your tenant")
        if place is None:
            return ""
        if place.status == "refused":
            raise Refused("run_id_taken", f"an import of {run_id} was refused here before ({place.reason})")
        if place.status not in ENDED_STATUSES:
            row = await self._sources.projection.run(tenant, run_id)
            if row is None:
                return ""
            if row.told_events:
                if origin is not None and not _has_origin(row, origin):
                    raise Refused(
                        "run_id_taken",
                        f"{run_id} is partly imported here, from another file: one of {row.told_events} events of "
                        f"{row.imported_from}. Send that one again, or cancel the run, which ends it as it is",
                    )
                return ""  # an import that was interrupted: it can be retried
        return self._sources.barrier.token(place.partition, place.last_offset)

    async def store_blob(self, ref: BlobRef, data: bytes) -> None:
        """Store a payload in the blob store. Raises Refused, and BrokenBundle when its hash is not that of
        `ref`.
        """
        with reaching("blobs"):
            kept = await self._sources.blobs.put(data, ref.media_type)
        if kept.sha256 != ref.sha256:
            raise BrokenBundle(f"the payload {ref.sha256} hashes to {kept.sha256}")

    async def send(
        self,
        tenant: str,
        subject: str,
        run_id: str,
        origin: ImportOrigin,
        batch: ImportBatch,
        *,
        continues: bool = False,
    ) -> None:
        """Publish a batch; it is durable in the commands topic on return. Raises Refused."""
        command_id = f"{run_id}@{batch.first_seq}.{origin.bundle_sha256[:16]}"
        command = ImportRun(
            envelope=CommandEnvelope(
                command_id=command_id, tenant=tenant, subject=subject, issued_at_ms=self._clock_ms()
            ),
            run_id=run_id,
            origin=origin,
            first_seq=batch.first_seq,
            events=tuple(batch.values),
            continues=continues,
        )
        await self._publisher.publish(partition_key(run_id), command_id, command)

    def subscribe(self, run_id: str) -> Subscription:
        """Subscribe to a run; do so before the last batch is sent, so that its event is not missed."""
        return self._sources.hub.subscribe(run_id)

    async def wait_for_end(self, tenant: str, run_id: str, event_count: int, subscription: Subscription) -> str:
        """Wait until the run is imported to its end; returns that position. Raises Refused."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._wait_s
        while (left := deadline - clock()) > 0 and not subscription.close_reason:
            for item in await subscription.take(min(left, limits.DECISION_POLL_S)):
                if not isinstance(item, EventItem):
                    continue
                record = item.record
                if isinstance(record, RunRefused):
                    raise owner_refusal(record.code, f"{run_id}: {record.message}")
                is_restored = isinstance(record, RunRestored) and record.events == event_count
                if is_restored or isinstance(record, RunCompleted | RunFailed | RunCancelled):
                    return self._sources.barrier.token(item.partition, item.raw.offset)
            if position := await self.existing_position(tenant, run_id):
                return position
        raise Refused(
            "import_pending",
            f"the run {run_id} is in the log to be imported, but no runtime has done it within {self._wait_s:g} s; "
            "send the same file again, it adds nothing twice. A run whose import was begun from another file "
            "accepts only that file: send it, or cancel the run",
            retry_after_s=RETRY_LATER_S,
            details={"run_id": run_id},
        )


def _has_origin(row: RunRow, origin: ImportOrigin) -> bool:
    """Whether the run has this origin according to its row; the owner also compares how it ended."""
    actual = (row.told_events, row.imported_from, row.restored)
    return actual == (origin.events, import_source(origin), origin.restored)


def reencode_event(codec: Codec, value: bytes) -> bytes:
    """Re-encode the record as this version writes it, under its original envelope; `codec` reads the other version."""
    decoded = codec.decode(value)
    assert decoded.envelope is not None, "it was folded when the file was checked"
    return local_codec().encode_event(decoded.envelope, decoded.record)


def plaintext_refusal(count: int, total: int, file: str, first: str) -> Refused:
    """Return the refusal for `count` of `total` runs with plaintext content that the request does not allow."""
    return Refused(
        "content_in_clear",
        f"{count} of the {total} runs of the {file}, {first} first, have content in plaintext, and content is "
        "encrypted here: no erasure could remove it. Leave them out, or import them as they are, readable for good, "
        "with in_clear=1 (--in-clear). Nothing was written",
    )
