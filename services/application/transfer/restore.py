"""Restoring a state file into this installation, whatever its partition counts are.

    checked     the whole file, before anything of it is imported (services/stream/archive/state_validation.py), and
                whether the content of live runs can be decrypted here: without its keys a run would only fail. Where
                content is encrypted, a file with plaintext content is refused, unless the request allows it
    paused      the pauses in it that are not set here, before the first run could continue
    limited     the spending limits in it for accounts without one here, before the first run could spend
    stored      payloads, where the same bytes are the same blob
    imported    run by run, each by its partition's owner; one that exists here is left unchanged

A live run continues here: after its last event the owner treats its open calls as after a takeover. Runs keep their
ids, so they find their partition here by their key, and those that refer to each other share it. A run waits only for
the one it continues; `CONCURRENT_RESTORES` are imported concurrently. A run that has started others continues once the
whole file is imported, or it would start them again. Runs that were imports at the source are unverified here too
(decision 10). The same file again adds nothing.

Before: a transport has spooled the file, or state_files.py has it. After: event_import.py.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import IO

from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.generated.run_events import ChildRequested, RunStarted
from loomlog.schemas.generated.values import ImportOrigin
from loomlog.services.application import limits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.content import ContentAccess
from loomlog.services.application.errors import RETRY_LATER_S, reaching, run_refusing
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.transfer.entity_restore import AggregateImport, EntityRestore, RestoredAggregate
from loomlog.services.application.transfer.event_import import (
    EventImporter,
    ImportBatch,
    plaintext_refusal,
    reencode_event,
)
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.families import StateFiles
from loomlog.services.core.pauses import WidePause
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from loomlog.services.families.ports.spending_limits import SpendingLimits
from loomlog.services.families.ports.wide_pauses import StatedPauses
from loomlog.services.stream.archive.bundle import BlobPart, BrokenBundle
from loomlog.services.stream.archive.state_file import (
    BrokenStateFile,
    StatedAggregate,
    StatedAggregateEvent,
    StatedEvent,
    StatedLimit,
    StatedOmission,
    StatedRun,
    UnknownStateSection,
    UnsupportedStateFile,
)
from loomlog.services.stream.archive.state_reader import StateReader
from loomlog.services.stream.archive.state_validation import ValidatedState, validate_state
from loomlog.services.stream.entities.families import EntityFamilies, FamilySet
from loomlog.services.stream.entities.hosting import EntityParts

FATAL_CODES = frozenset({"import_pending", "backpressure", "log_unavailable", "projection_unavailable"})
"""Codes of a refusal of one run after which the others are not tried."""
EARLIER_VERSION = "the file was written by a version that did not read their topic"


@dataclass(slots=True, kw_only=True)
class RestoreResult:
    """Counts of what a restore added. `positions`: of the newest event it wrote to each partition."""

    is_dry_run: bool
    runs: int = 0
    live_runs: int = 0
    events: int = 0
    pauses: int = 0
    limits: int = 0
    blobs: int = 0
    sealed_runs: int = 0
    """Imported runs whose content cannot be decrypted here: its keys are missing or erased."""
    skipped_runs: int = 0
    """Runs that existed here before."""
    failed_runs: int = 0
    aggregates: int = 0
    aggregate_events: int = 0
    skipped_aggregates: int = 0
    """Aggregates that existed here before."""
    failed_aggregates: int = 0
    refilled: dict[str, int] = field(default_factory=dict)
    """By family: things such as keys that aggregates have again (Family.refill)."""
    left_out: list[StatedOmission] = field(default_factory=list)
    """What the file does not have."""
    warnings: list[str] = field(default_factory=list)
    positions: dict[str, str] = field(default_factory=dict)

    def add_warning(self, warning: str) -> None:
        if len(self.warnings) < limits.WARNINGS_MAX:
            self.warnings.append(warning)

    def add_position(self, position: str) -> None:
        """Add a position token; per partition only the newest is kept."""
        topic, _, offset = position.rpartition(":")
        if topic and int(offset) > int(self.positions.get(topic, ":-1").rpartition(":")[2]):
            self.positions[topic] = position


@dataclass(slots=True)
class _RestoredRun:
    """The run that is being read."""

    head: StatedRun
    origin: ImportOrigin
    batch: ImportBatch = field(default_factory=lambda: ImportBatch(1))
    is_skipped: bool = False
    has_children: bool = False


class StateRestore:
    """The use case. `clock_ms` supplies the time."""

    def __init__(
        self,
        sources: StreamSources,
        publisher: CommandPublisher,
        pauses: StatedPauses,
        spending_limits: SpendingLimits,
        *,
        clock_ms: Callable[[], int],
        wait_s: float = limits.DECISION_WAIT_S,
        entities: EntityParts | None = None,
        ranges: LogRanges | None = None,
    ) -> None:
        """`entities` None: there are no families, and a file with aggregates is refused. `ranges` reads the log."""
        self._importer = EventImporter(sources, publisher, clock_ms=clock_ms, wait_s=wait_s)
        self._entities = entities
        self._ranges = ranges
        self._clock_ms = clock_ms
        self._wait_s = wait_s
        self._content = sources.content
        self._pauses = pauses
        self._limits = spending_limits
        self._busy = False

    async def restore(
        self, caller: Caller, file: IO[bytes], *, dry_run: bool = False, sealed: bool = False, in_clear: bool = False
    ) -> RestoreResult:
        """Restore a state file; `file` must be readable from its beginning more than once.

        Raises Refused: snapshot_version_too_new, snapshot_version_unknown, restore_failed, keys_missing,
        content_in_clear, import_pending.

        `sealed`: live runs whose keys are missing here are imported as well, and end here as cancelled. `in_clear`: so
        are runs in plaintext where content is encrypted; they stay readable for good.
        """
        if self._busy:
            raise Refused("backpressure", "a restore is under way here", retry_after_s=RETRY_LATER_S)
        self._busy = True
        try:
            parts = () if self._entities is None else self._entities.each
            declared = FamilySet(one.declaration for of in parts for one in of.family.families.by_name.values())
            families = EntityFamilies(declared)
            checked = await asyncio.to_thread(validate_state, file, bytes_max=limits.STATE_BYTES_MAX, families=families)
            unreadable = await _find_unreadable(checked, self._content, accepts_sealed=sealed)
            if checked.runs_in_clear and self._content.keys is not None and not in_clear:
                raise plaintext_refusal(checked.runs_in_clear, checked.runs, "file", checked.first_in_clear)
            work = _RestoreWork(
                self._importer,
                self._pauses,
                self._limits,
                caller,
                checked,
                unreadable,
                self._entity_restore(caller, checked),
                dry_run=dry_run,
            )
            work.tell_left_out([*checked.left_out, *_unmentioned(checked, parts)])
            return await work.run(file, _missing_keys(checked.aggregate_key_ids, self._content))
        except UnsupportedStateFile as error:
            raise Refused("snapshot_version_too_new", str(error)) from error
        except UnknownStateSection as error:
            raise Refused("snapshot_version_unknown", str(error)) from error
        except (BrokenStateFile, BrokenBundle) as error:
            text = f"the file cannot be restored: {error}; nothing was written"
            raise Refused("restore_failed", text) from error
        finally:
            self._busy = False

    def _entity_restore(self, caller: Caller, checked: ValidatedState) -> EntityRestore | None:
        if self._entities is None or self._ranges is None:
            return None
        return EntityRestore(
            self._entities,
            self._ranges,
            topic=checked.header.entity_topic,
            file_sha256=checked.sha256,
            subject=caller.subject,
            issued_at_ms=self._clock_ms(),
            wait_s=self._wait_s,
        )


def _unmentioned(checked: ValidatedState, parts: Sequence[EntityParts]) -> Iterator[StatedOmission]:
    """Yield the families here that a file of an earlier version has nothing of, and does not name."""
    if checked.header.further_positions:
        return
    for one in parts[1:]:
        for name, family in one.family.families.by_name.items():
            if family.declaration.lifecycle.state_files is StateFiles.EVENTS:
                yield StatedOmission(family=name, aggregates=0, events=0, reason=EARLIER_VERSION)


def _missing_keys(key_ids: AbstractSet[str], content: ContentAccess) -> int:
    """Return how many of the keys are not here and were not erased either."""
    keys = content.keys
    return sum(keys is None or not (keys.can_open(one) or keys.is_erased(one)) for one in key_ids)


async def _find_unreadable(checked: ValidatedState, content: ContentAccess, *, accepts_sealed: bool) -> frozenset[str]:
    """Return the runs whose content cannot be decrypted here. Raises Refused: keys_missing, log_unavailable."""
    keys = content.keys
    if keys is not None and checked.encrypted_runs:
        with reaching("log"):
            await keys.catch_up()
    known = {key_id for run in checked.encrypted_runs.values() for key_id in run.key_ids}
    gone = {key_id for key_id in known if keys is None or not keys.can_open(key_id)}
    missing = {key_id for key_id in gone if keys is None or not keys.is_erased(key_id)}
    lost = [name for name, run in checked.encrypted_runs.items() if not run.is_over and run.key_ids & missing]
    if lost and not accepts_sealed:
        raise Refused(
            "keys_missing",
            f"{len(lost)} of the {checked.live_runs} live runs of the file could not continue here, {lost[0]} first: "
            f"keys of their content are missing ({len(missing)} keys). Mirror the topic loom.subject.keys from "
            "where the file was written, under the same LOOMLOG_ENCRYPTION_KEY, and restore again; or restore "
            "these runs sealed: they end here as cancelled. Nothing was written",
        )
    return frozenset(name for name, run in checked.encrypted_runs.items() if run.key_ids & gone)


class _RestoreWork:
    """One restore."""

    def __init__(
        self,
        importer: EventImporter,
        pauses: StatedPauses,
        spending_limits: SpendingLimits,
        caller: Caller,
        checked: ValidatedState,
        unreadable: frozenset[str],
        entities: EntityRestore | None,
        *,
        dry_run: bool,
    ) -> None:
        self._importer = importer
        self._pauses = pauses
        self._limits = spending_limits
        self._caller = caller
        self._checked = checked
        self._unreadable = unreadable
        self._entities = entities
        self._dry_run = dry_run
        self._result = RestoreResult(is_dry_run=dry_run)
        self._unavailable: set[str] = set()
        """Runs of the file that could not be imported; runs that continue them cannot be either."""
        self._running_imports: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(limits.CONCURRENT_RESTORES)
        self._blob = bytearray()
        self._parents: dict[str, _RestoredRun] = {}
        """Live runs with children; their last batches are sent once the others are imported, the youngest run first."""
        self._child_request_ids: frozenset[int] = frozenset()
        """Schema ids of the event by which a run requests children."""

    def tell_left_out(self, left_out: Sequence[StatedOmission]) -> None:
        """Say what the file does not have."""
        self._result.left_out.extend(left_out)
        for one in left_out:
            self._result.add_warning(one.sentence)

    async def run(self, file: IO[bytes], missing_keys: int) -> RestoreResult:
        """Import the contents of the file, in one pass. `missing_keys`: of the content of aggregates."""
        if missing_keys:
            self._result.add_warning(
                f"{missing_keys} keys of content of aggregates are missing here: it cannot be read until the topic "
                "loom.subject.keys is mirrored from where the file was written"
            )
        if self._entities is not None and self._checked.aggregates and not self._dry_run:
            await self._entities.open()
        try:
            async with asyncio.TaskGroup() as group:
                await self._read(file, group)
            for run in reversed(self._parents.values()):
                await self._finish_import(run)
        except BaseExceptionGroup as errors:
            declined, others = errors.split(Refused)
            if declined is None or others is not None:
                raise
            first = declined
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]  # type: ignore[assignment]  # a group holds groups or what was split off
            raise first from None
        return self._result

    async def _read(self, file: IO[bytes], group: asyncio.TaskGroup) -> None:
        reader = StateReader(file)
        run: _RestoredRun | None = None
        aggregate: AggregateImport | None = None
        for item in reader:
            match item:
                case WidePause():
                    await self._restore_pause(item)
                case StatedLimit():
                    await self._restore_limit(item)
                case BlobPart():
                    await self._store_blob(item)
                case StatedRun():
                    await self._finish_run(run, group)
                    run = await self._begin_run(item)
                case StatedEvent():
                    assert run is not None, "the file was checked"
                    await self._add_event(run, item, reader)
                case StatedAggregate():
                    await self._finish_aggregate(aggregate, group)
                    aggregate = self._begin_aggregate(item)
                case StatedAggregateEvent():
                    if aggregate is not None and self._entities is not None and not self._dry_run:
                        await self._entities.add(aggregate, item.event.value, reader.codec)
        await self._finish_run(run, group)
        await self._finish_aggregate(aggregate, group)

    def _begin_aggregate(self, head: StatedAggregate) -> AggregateImport:
        assert self._entities is not None, "the file was checked: without families it has no aggregates"
        return self._entities.begin(head, problem=self._checked.unfoldable_aggregates.get(head.aggregate, ""))

    async def _finish_aggregate(self, aggregate: AggregateImport | None, group: asyncio.TaskGroup) -> None:
        """Send the last part of an aggregate, concurrently with the next ones."""
        if aggregate is None or self._entities is None:
            return
        if self._dry_run:
            self._count_aggregate(RestoredAggregate(head=aggregate.head, problem=aggregate.problem))
            return
        await self._slots.acquire()
        task = group.create_task(self._import_aggregate(self._entities, aggregate))
        task.add_done_callback(lambda _: self._slots.release())

    async def _import_aggregate(self, entities: EntityRestore, aggregate: AggregateImport) -> None:
        self._count_aggregate(await entities.finish(aggregate))

    def _count_aggregate(self, restored: RestoredAggregate) -> None:
        result = self._result
        if restored.refilled:
            family = restored.head.aggregate.partition(":")[0]
            result.refilled[family] = result.refilled.get(family, 0) + restored.refilled
            result.add_position(restored.position)
        if restored.problem:
            result.failed_aggregates += 1
            result.add_warning(f"{restored.head.aggregate} is not restored: {restored.problem}")
        elif restored.was_here:
            result.skipped_aggregates += 1
        else:
            result.aggregates += 1
            result.aggregate_events += restored.head.events
            result.add_position(restored.position)

    async def _restore_pause(self, pause: WidePause) -> None:
        restoring = self._pauses.restore(self._caller, pause, dry_run=self._dry_run)
        position = await run_refusing(restoring, unavailable_code="log_unavailable")
        if position is not None:
            self._result.pauses += 1
            self._result.add_position(position)

    async def _restore_limit(self, limit: StatedLimit) -> None:
        position = await self._limits.restore(self._caller, limit, dry_run=self._dry_run)
        if position is not None:
            self._result.limits += 1
            self._result.add_position(position)

    async def _store_blob(self, item: BlobPart) -> None:
        if self._dry_run:
            self._result.blobs += item.is_last
            return
        self._blob += item.data
        if len(self._blob) > limits.BLOB_BYTES_MAX:
            raise BrokenStateFile(f"the payload {item.ref.sha256} is over {limits.BLOB_BYTES_MAX} bytes")
        if item.is_last:
            await self._importer.store_blob(item.ref, bytes(self._blob))
            self._result.blobs += 1
            self._blob.clear()

    async def _begin_run(self, head: StatedRun) -> _RestoredRun:
        origin = ImportOrigin(
            topic=self._checked.header.topic,
            partition=head.partition,
            first_offset=head.first_offset,
            tenant=head.tenant,
            events=head.events,
            tail_digest=head.tail_digest,
            bundle_sha256=self._checked.sha256,
            restored=head.run_id not in self._checked.foreign_runs,
        )
        run = _RestoredRun(head, origin)
        try:
            # Without waiting for the read models: an existing run is left unchanged in any case, only later.
            if await self._importer.existing_position(head.tenant, head.run_id, origin=origin, own_writes=False):
                self._result.skipped_runs += 1
                run.is_skipped = True
        except Refused as declined:
            self._mark_failed(run, declined)
        return run

    async def _add_event(self, run: _RestoredRun, item: StatedEvent, reader: StateReader) -> None:
        if run.is_skipped:
            return
        value = reencode_event(reader.codec, item.event.value)
        if not self._child_request_ids:
            self._child_request_ids = reader.codec.schema_ids_of(frozenset({ChildRequested.SCHEMA}))
        run.has_children = run.has_children or item.event.schema_id in self._child_request_ids
        if item.event.seq == 1 and not await self._has_origin(reader.codec.decode(item.event.value).record):
            self._mark_failed(run, Refused("run_id_taken", "the run it continues is not here"))
            return
        if run.batch.values and run.batch.size + len(value) > limits.IMPORT_BATCH_BYTES:
            await self._send_batch(run, run.batch)
            run.batch = ImportBatch(item.event.seq)
        run.batch.add(value)

    async def _finish_run(self, run: _RestoredRun | None, group: asyncio.TaskGroup) -> None:
        """Send the last batch of a run, concurrently with the next runs."""
        if run is None or run.is_skipped:
            return
        if self._dry_run:
            self._count_run(run)
            return
        name = run.head.run_id
        if run.has_children and self._is_continued(run):
            self._parents[name] = run
            return
        await self._slots.acquire()
        task = self._running_imports[name] = group.create_task(self._finish_import(run))
        task.add_done_callback(lambda _: self._run_done(name))

    def _run_done(self, run_id: str) -> None:
        self._slots.release()
        self._running_imports.pop(run_id, None)

    async def _has_origin(self, first: object) -> bool:
        """Whether the run that this first event continues was not given up; waits until that is known."""
        before = conversation_origin(first) if isinstance(first, RunStarted) else None
        if before is None:
            return True
        parent = self._parents.pop(before.run_id, None)
        if parent is not None:
            await self._finish_import(parent)  # a fork of it needs all of it
        under_way = self._running_imports.get(before.run_id)
        if under_way is not None:
            await asyncio.wait({under_way})
        return before.run_id not in self._unavailable

    async def _finish_import(self, run: _RestoredRun) -> None:
        head = run.head
        subscription = self._importer.subscribe(head.run_id)
        try:
            await self._send_batch(run, run.batch)
            position = await self._importer.wait_for_end(head.tenant, head.run_id, head.events, subscription)
        except Refused as declined:
            if declined.code in FATAL_CODES:
                raise
            self._mark_failed(run, declined)
            return
        finally:
            subscription.close()
        self._count_run(run)
        self._result.add_position(position)

    async def _send_batch(self, run: _RestoredRun, batch: ImportBatch) -> None:
        if self._dry_run:
            return
        head = run.head
        await self._importer.send(
            head.tenant, self._caller.subject, head.run_id, run.origin, batch, continues=self._is_continued(run)
        )

    def _is_continued(self, run: _RestoredRun) -> bool:
        """Whether a run continues here; one that is unreadable, erased or incomplete is history only."""
        name = run.head.run_id
        return not run.head.is_over and name not in self._unreadable and name not in self._checked.incomplete_runs

    def _count_run(self, run: _RestoredRun) -> None:
        self._result.runs += 1
        self._result.live_runs += self._is_continued(run)
        self._result.sealed_runs += run.head.run_id in self._unreadable
        self._result.events += run.head.events

    def _mark_failed(self, run: _RestoredRun, refusal: Refused) -> None:
        run.is_skipped = True
        self._unavailable.add(run.head.run_id)
        self._result.failed_runs += 1
        self._result.add_warning(f"{run.head.run_id} is not restored: {refusal.message}")
