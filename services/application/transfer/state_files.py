"""State files of the installation: created, listed, read and removed. For administrators only.

    cut         the end of every partition now; the state is that of everything below
    gathered    each partition once, sorted on disk (services/stream/archive/state_export.py)
    written     in pieces to the folder of state files, which all replicas see; the manifest makes it exist

Included: all runs (or a tenant's) with their payloads, all aggregates of the other families (or a tenant's) in the form
that each family declares (the manifest names what is left out, by family), the
pauses wider than a run (in a tenant's file those that hold its runs, as pauses of that tenant), and the spending limits
with the amounts spent under them. Not included: secrets (they are in no event), commands that no owner has decided,
dead letters, checkpoints of the audit chain (they are signed for the partitions they belong to), read models and caches
(they are rebuilt from the events).

Before: a transport. After: restore.py, in any installation.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import IO, Any, cast

from loomlog.connectors.errors import ConnectorError, Permanent
from loomlog.connectors.protocols import LogRanges
from loomlog.connectors.storage.state_files import StateFiles as StateFileStore
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.codec import Codec
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_LATER_S, bad_request, key_reused, reaching, unavailable
from loomlog.services.application.queries.json_types import LeftOut, StateFile
from loomlog.services.application.request_context import key_digests
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.families import StateFiles
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.evolve import REDUCER_VERSION
from loomlog.services.families.ports.spending_limits import SpendingLimits
from loomlog.services.families.ports.wide_pauses import StatedPauses
from loomlog.services.stream.archive.entity_export import EntityExport
from loomlog.services.stream.archive.state_export import StateExport
from loomlog.services.stream.archive.state_file import VERSION, StatedOmission, StateHeader, StateWriter
from loomlog.services.stream.entities.hosting import EntityParts

KEY_DIGITS = 16
"""Hexadecimal digits of the id of a file that follow from the Idempotency-Key of its request; as many from its body."""
BATCH_SIZE = 200
"""Runs written by one call in a worker thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFileRequest:
    """Contents of a state file. `tenant` empty: all; `since_ms`: runs that ended earlier are left out."""

    label: str = ""
    tenant: str = ""
    include_history: bool = True
    since_ms: int = 0
    max_bytes: int = limits.STATE_FILE_BYTES_MAX


class Backups:
    """The use cases. All methods raise Refused."""

    def __init__(
        self,
        sources: StreamSources,
        ranges: LogRanges,
        codec: Codec,
        pauses: StatedPauses,
        files: StateFileStore | None,
        spending_limits: SpendingLimits,
        *,
        events_topic: str,
        clock_ms: Callable[[], int],
        entities: EntityParts | None = None,
    ) -> None:
        self._sources = sources
        self._ranges = ranges
        self._codec = codec
        self._pauses = pauses
        self._state_files = files
        self._limits = spending_limits
        self._topic = events_topic
        self._clock_ms = clock_ms
        self._entities = entities
        self._busy = False

    async def create(self, caller: Caller, request: StateFileRequest) -> StateFile:
        """Create a state file; returns its manifest. Raises snapshot_too_large, backpressure."""
        if not request.label.isprintable() or len(request.label) > limits.NAME_BYTES_MAX:
            raise bad_request(f"label: expected at most {limits.NAME_BYTES_MAX} printable characters")
        if self._busy:
            raise Refused("backpressure", "a state file is being written here", retry_after_s=RETRY_LATER_S)
        self._busy = True
        try:
            return await self._earlier() or await self._create(caller, request)
        except ConnectorError as error:
            raise unavailable("blobs", error) from error
        finally:
            self._busy = False

    async def list(self) -> "list[StateFile]":
        """Return the manifests, newest first."""
        async with self._file_store() as files:
            return cast("list[StateFile]", await files.list_manifests())

    async def manifest(self, file_id: str) -> StateFile:
        """Return the manifest of a state file. Raises snapshot_not_found."""
        async with self._file_store() as files:
            manifest = await files.read_manifest(file_id)
        if manifest is None:
            raise Refused("snapshot_not_found", f"there is no snapshot {file_id[:80]}")
        return cast("StateFile", manifest)

    async def open(self, file_id: str) -> tuple[StateFile, IO[bytes]]:
        """Open a state file; returns its manifest and the file, which the caller closes. Raises snapshot_not_found."""
        manifest = await self.manifest(file_id)
        async with self._file_store() as files:
            try:
                return manifest, await files.open(file_id)
            except Permanent as error:
                if error.kind != "not_found":
                    raise
                raise Refused("snapshot_not_found", f"the snapshot {file_id[:80]} was removed") from error

    async def remove(self, file_id: str) -> bool:
        """Remove a state file; returns whether it existed."""
        async with self._file_store() as files:
            return await files.remove(file_id)

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _earlier(self) -> StateFile | None:
        """Return the file that a request with the same Idempotency-Key made: its id ends as key and body say.

        Raises Refused(idempotency_key_reused) when the body was another one.
        """
        suffix = _keyed_suffix()
        if not suffix:
            return None
        for manifest in await self._require_files().list_manifests():
            made = str(manifest["id"]).rpartition("_")[2]
            if made[:KEY_DIGITS] == suffix[:KEY_DIGITS] and len(made) == len(suffix):
                if made != suffix:
                    raise key_reused()
                return cast("StateFile", manifest)
        return None

    async def _create(self, caller: Caller, request: StateFileRequest) -> StateFile:
        now_ms = self._clock_ms()
        cut, (entity_cut, *further_cuts) = await self._consistent_cut()
        with reaching("log"):
            await self._limits.caught_up()
        header = StateHeader(
            created_at=format_rfc3339(now_ms),
            label=request.label,
            tenant=request.tenant,
            topic=self._topic,
            reducer_version=REDUCER_VERSION,
            include_history=request.include_history,
            positions={str(partition): end for partition, end in cut.items()},
            entity_topic=entity_cut.topic,
            entity_positions=entity_cut.positions,
            further_positions={one.topic: one.positions for one in further_cuts},
        )
        file_id = f"snap_{now_ms}_{_keyed_suffix() or secrets.token_hex(4)}"
        with (
            StateExport(self._codec, tenant=request.tenant) as gathered,
            EntityExport(self._codec, self._declared_forms(), tenant=request.tenant) as aggregates,
        ):
            with reaching("log"):
                for partition, end in cut.items():
                    await gathered.read(self._ranges, self._topic, partition, end)
                for one in (entity_cut, *further_cuts):
                    for partition, end in one.ends.items():
                        await aggregates.read(self._ranges, one.topic, partition, end, one.families)
            await asyncio.to_thread(gathered.choose, include_history=request.include_history, since_ms=request.since_ms)
            async with self._require_files().open_for_write(file_id) as file:
                out = _StateOutput(file, request.max_bytes)
                await self._write_state(out, header, gathered, aggregates)
                if request.tenant and not out.runs and not out.aggregates:
                    out.warnings.append(f"there is no run of a tenant {request.tenant[:80]} to put into it")
                omitted = islice(gathered.omitted_runs(), limits.WARNINGS_MAX)
                sentences = (one.sentence for one in out.left_out)
                warnings = [*sentences, *out.warnings, *omitted, *aggregates.omitted]
                manifest: StateFile = {
                    "id": file_id,
                    "created_at": header.created_at,
                    "created_by": caller.subject,
                    "label": request.label,
                    "tenant": request.tenant or None,
                    "schema_version": VERSION,
                    "byte_size": out.size,
                    "sha256": out.writer.sha256,
                    "include_history": request.include_history,
                    "runs": out.runs,
                    "live_runs": out.live_runs,
                    "events": out.events,
                    "blobs": out.blobs,
                    "pauses": out.pauses,
                    "limits": out.limits,
                    "aggregates": out.aggregates,
                    "aggregate_events": out.aggregate_events,
                    "left_out": left_out_json(out.left_out),
                    "positions": [self._sources.barrier.token(number, end - 1) for number, end in cut.items() if end],
                    "warnings": warnings[: limits.WARNINGS_MAX],
                }
                await self._require_files().commit(file_id, file, manifest)
        return manifest

    def _declared_forms(self) -> Mapping[str, StateFiles]:
        """Return how state files have each family."""
        parts = () if self._entities is None else self._entities.each
        return {
            name: family.declaration.lifecycle.state_files
            for one in parts
            for name, family in one.family.families.by_name.items()
        }

    async def _consistent_cut(self) -> tuple[Mapping[int, int], "tuple[_TopicCut, ...]"]:
        """Return the end of every partition of the events of runs, and of those of each topic set."""
        with reaching("log"):
            runs = {
                partition: await self._ranges.end_offset(self._topic, partition)
                for partition in sorted(self._sources.hub.partitions)
            }
            if self._entities is None:
                return runs, (_TopicCut(),)
            cuts = [
                _TopicCut(
                    parts.topics.events,
                    await self._ranges.end_offsets(parts.topics.events, parts.replicas.partitions),
                    tuple(
                        name
                        for name, family in parts.family.families.by_name.items()
                        if family.declaration.lifecycle.state_files is StateFiles.EVENTS
                    ),
                )
                for parts in self._entities.each
            ]
            return runs, tuple(cuts)

    async def _write_state(
        self, out: "_StateOutput", header: StateHeader, export: StateExport, aggregates: EntityExport
    ) -> None:
        writer = out.writer
        out.write(writer.begin(header))
        for pause in self._pauses.exported(header.tenant):
            out.write(writer.pause(pause))
            out.pauses += 1
        for limit in self._limits.exported():
            if not header.tenant or limit.tenant == header.tenant:
                out.write(writer.limit(limit))
                out.limits += 1
        for schema_id, value in sorted((aggregates.schemas | export.schemas).items()):
            out.write(writer.schema(self._codec, schema_id, value))
        of_runs = (ref for ref in export.blobs() if ref.sha256 not in aggregates.blobs)
        refs = chain(aggregates.blobs.values(), of_runs)
        while batch := await asyncio.to_thread(_next_batch, refs):
            for ref in batch:
                try:
                    data = await self._sources.blobs.get(ref)
                except Permanent as error:
                    out.warnings.append(f"the payload {ref.sha256} is not in the file: {error.kind}")
                    continue
                await asyncio.to_thread(out.write_all, writer.blob(ref, data))
                out.blobs += 1
        runs = export.runs()
        while batch_of_runs := await asyncio.to_thread(_next_batch, runs):
            await asyncio.to_thread(out.write_runs, export, batch_of_runs)
        whole = aggregates.aggregates()
        while batch_of_aggregates := await asyncio.to_thread(_next_batch, whole):
            await asyncio.to_thread(out.write_aggregates, aggregates, batch_of_aggregates)
        for omission in aggregates.left_out():
            out.write(writer.omission(omission))
            out.left_out.append(omission)
        out.write(writer.end())

    def _require_files(self) -> StateFileStore:
        if self._state_files is None:
            raise Refused("blobs_unavailable", "this process was not given a folder for state files")
        return self._state_files

    @asynccontextmanager
    async def _file_store(self) -> AsyncGenerator[StateFileStore, None]:
        with reaching("blobs"):
            yield self._require_files()


@dataclass(frozen=True, slots=True)
class _TopicCut:
    """The end of each partition of the events of a topic set, with the families whose aggregates come from there."""

    topic: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)
    families: tuple[str, ...] = ()

    @property
    def positions(self) -> Mapping[str, int]:
        return {str(partition): end for partition, end in self.ends.items()}


class _StateOutput:
    """The file that is being written, and counts of its contents so far."""

    def __init__(self, file: IO[bytes], size_max: int) -> None:
        self.writer = StateWriter()
        self.size = 0
        self.runs = 0
        self.live_runs = 0
        self.events = 0
        self.blobs = 0
        self.pauses = 0
        self.limits = 0
        self.aggregates = 0
        self.aggregate_events = 0
        self.left_out: list[StatedOmission] = []
        self.warnings: list[str] = []
        self._file = file
        self._size_max = size_max

    def write(self, piece: bytes) -> None:
        """Write a piece. Raises Refused(snapshot_too_large)."""
        self.size += len(piece)
        if self.size > self._size_max:
            raise Refused("snapshot_too_large", f"the snapshot is over {self._size_max} bytes; nothing was kept")
        self._file.write(piece)

    def write_all(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def write_runs(self, export: StateExport, batch: "list[Any]") -> None:
        for run in batch:
            self.write(self.writer.run(run))
            for offset, value in export.records(run.run_id):
                self.write(self.writer.event(offset, value))
            self.runs += 1
            self.live_runs += not run.is_over
            self.events += run.events

    def write_aggregates(self, export: EntityExport, batch: "list[Any]") -> None:
        for aggregate in batch:
            self.write(self.writer.aggregate(aggregate))
            for offset, value in export.records(aggregate.aggregate):
                self.write(self.writer.aggregate_event(offset, value))
            self.aggregates += 1
            self.aggregate_events += aggregate.events


def left_out_json(left_out: Iterable[StatedOmission]) -> list[LeftOut]:
    """Return what a file does not have, for answers."""
    return [
        {"family": one.family, "aggregates": one.aggregates or None, "events": one.events, "reason": one.reason}
        for one in left_out
    ]


def _next_batch(items: Iterator[Any]) -> "list[Any]":
    return list(islice(items, BATCH_SIZE))


def _keyed_suffix() -> str:
    """Return the end of the id of the file of a keyed request: digits of its key, then of its body; empty without."""
    digests = key_digests()
    return "" if digests is None else "".join(hashlib.sha256(one.encode()).hexdigest()[:KEY_DIGITS] for one in digests)
