"""Restoring the aggregates of a state file: each is imported in parts, by the owners of their partitions.

The owner keeps every event as it was stored, with its envelope (services/core/entity_import.py), so seqs and chains
are those of the file whatever the partition counts. An aggregate with events here is left as it is.

Before: restore.py reads the file. After: services/stream/entities/client.py asks the owners.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import LogRanges
from loomlog.schemas.codec import Codec, Undecodable, local_codec
from loomlog.schemas.generated.entity_commands import ImportAggregate
from loomlog.schemas.generated.entity_events import AggregateEventImported, CommandHadNoEffect, CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope, ImportOrigin
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_LATER_S, reaching, unavailable
from loomlog.services.core.entity_import import original_event
from loomlog.services.core.families import no_refill
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.state_file import StatedAggregate
from loomlog.services.stream.entities.answers import Answer, CommandInvalid, CommandUnanswered
from loomlog.services.stream.entities.hosting import EntityParts

EVENT_OVERHEAD_BYTES = 450
"""Maximum bytes of an event in the log besides the event it holds and twice the id of its aggregate: the record around
it (RECORD_OVERHEAD_BYTES of partition.py) and its envelope.
"""
EXISTS = "exists"
"""Code of the refusal for an aggregate that has events here."""


@dataclass(slots=True, kw_only=True)
class RestoredAggregate:
    """What became of an aggregate: restored, unless it was here before or `problem` says why not."""

    head: StatedAggregate
    was_here: bool = False
    problem: str = ""
    position: str = ""
    refilled: int = 0
    """Things that an aggregate which was here before lacked, or that a restored one has (Family.refill)."""


@dataclass(slots=True)
class AggregateImport:
    """The aggregate that is being read, and the part of it that was not sent yet."""

    head: StatedAggregate
    origin: ImportOrigin
    first_seq: int = 1
    values: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes of the part as it will be in the log."""
    was_here: bool = False
    problem: str = ""
    refill: dict[str, Any] = field(default_factory=dict)
    """Commands that bring back what the file has."""


class EntityRestore:
    """Imports the aggregates of one file. Call `open`; then for each `begin`, `add` for each event, `finish`."""

    def __init__(
        self,
        parts: EntityParts,
        ranges: LogRanges,
        *,
        topic: str,
        file_sha256: str,
        subject: str,
        issued_at_ms: int,
        wait_s: float = limits.DECISION_WAIT_S,
    ) -> None:
        """`topic` is that of aggregates whose head names none; `wait_s` is the timeout for the owner of each."""
        self._parts = parts
        self._ranges = ranges
        self._topic = topic
        self._sha256 = file_sha256
        self._subject = subject
        self._issued_at_ms = issued_at_ms
        self._wait_s = wait_s
        self._ends: Mapping[tuple[str, int], int] = {}
        """By topic and partition."""

    async def open(self) -> None:
        """Note how far the log reaches: what is answered from below was here before. Raises Refused."""
        with reaching("log"):
            self._ends = {
                (one.topics.events, number): await self._ranges.end_offset(one.topics.events, number)
                for one in self._parts.each
                for number in range(one.replicas.partitions)
            }

    def begin(self, head: StatedAggregate, *, problem: str = "") -> AggregateImport:
        """Begin with an aggregate; with a `problem` it is not imported."""
        origin = ImportOrigin(
            topic=head.topic or self._topic,
            partition=head.partition,
            first_offset=head.first_offset,
            tenant=head.tenant,
            events=head.events,
            tail_digest=head.tail_digest,
            bundle_sha256=self._sha256,
            restored=True,
        )
        return AggregateImport(head, origin, problem=problem)

    async def add(self, imported: AggregateImport, value: bytes, codec: Codec) -> None:
        """Add the next event; sends a part that is full. `codec` reads the file. Raises Refused."""
        if imported.problem:
            return
        self._keep_refill(imported, value, codec)
        if imported.was_here:
            return
        if not _is_readable_here(value, codec):
            imported.problem = "its records have the schema ids of another registry, and its chain covers their bytes"
            return
        if len(value) > limits.IMPORT_EVENT_BYTES_MAX:
            imported.problem = f"an event has {len(value)} bytes, at most {limits.IMPORT_EVENT_BYTES_MAX} fit a command"
            return
        size = len(value) + EVENT_OVERHEAD_BYTES + 2 * len(imported.head.aggregate.encode())
        if imported.values and imported.size + size > limits.IMPORT_BATCH_BYTES:
            await self._send_part(imported)
        imported.values.append(value)
        imported.size += size

    async def finish(self, imported: AggregateImport) -> RestoredAggregate:
        """Send the last part. Raises Refused when the owner does not answer."""
        position, refilled = "", len(imported.refill)
        if not imported.problem and not imported.was_here:
            position = await self._send_part(imported)
        if not imported.problem and imported.was_here:
            refilled, position = await self._refill(imported)
        return RestoredAggregate(
            head=imported.head,
            was_here=imported.was_here,
            problem=imported.problem,
            position=position,
            refilled=0 if imported.problem else refilled,
        )

    def _keep_refill(self, imported: AggregateImport, value: bytes, codec: Codec) -> None:
        name = imported.head.aggregate
        family = self._parts.of(name).family.families.of(name).declaration
        if family.refill is no_refill:
            return
        try:
            record = codec.decode(value).record
        except Undecodable as error:
            imported.problem = f"an event cannot be read: {error}"
            return
        if isinstance(record, AggregateEventImported):
            record, _ = original_event(record)
        family.refill(imported.refill, record, self._issued_at_ms)

    async def _refill(self, imported: AggregateImport) -> tuple[int, str]:
        """Send what an aggregate that was here lacks; return how many were taken, and the position of the last."""
        refilled, position = 0, ""
        name = sha256(f"{imported.head.aggregate} {self._sha256}".encode()).hexdigest()[:32]
        for number, command in enumerate(imported.refill.values()):
            envelope = CommandEnvelope(
                command_id=f"restore-{name}-{number}-{self._issued_at_ms}",
                tenant=imported.head.tenant,
                subject=self._subject,
                issued_at_ms=self._issued_at_ms,
            )
            answer = await self._ask(imported.head.aggregate, replace(command, envelope=envelope))
            if not isinstance(answer.events[-1], CommandRefused | CommandHadNoEffect):
                refilled, position = refilled + 1, answer.position
        return refilled, position

    async def _send_part(self, imported: AggregateImport) -> str:
        """Send the part and begin the next one; returns the position of its last event if that is new."""
        head = imported.head
        # The same for the same file, so that restoring it again adds nothing; ids of aggregates may be too long for it.
        name = sha256(f"{head.aggregate} {self._sha256}".encode()).hexdigest()[:32]
        command = ImportAggregate(
            envelope=CommandEnvelope(
                command_id=f"import-{name}-{imported.first_seq}",
                tenant=head.tenant,
                subject=self._subject,
                issued_at_ms=self._issued_at_ms,
            ),
            aggregate=head.aggregate,
            origin=imported.origin,
            first_seq=imported.first_seq,
            events=tuple(imported.values),
        )
        imported.first_seq += len(imported.values)
        imported.values, imported.size = [], 0
        answer = await self._ask(head.aggregate, command)
        last = answer.events[-1]
        if isinstance(last, CommandRefused) and last.code == EXISTS:
            imported.was_here = True
        elif isinstance(last, CommandRefused):
            imported.problem = last.message
        elif imported.first_seq > head.events:
            topic = self._parts.of(head.aggregate).topics.events
            imported.was_here = answer.offset < self._ends.get((topic, answer.partition), 0)
        return "" if imported.was_here or imported.problem else answer.position

    async def _ask(self, aggregate: str, command: Any) -> Answer:
        try:
            return await self._parts.of(aggregate).client.ask(command, wait_s=self._wait_s)
        except CommandUnanswered as error:
            raise Refused(
                "import_pending",
                f"{error}; send the same file again, it adds nothing twice",
                retry_after_s=RETRY_LATER_S,
                details={"aggregate": aggregate},
            ) from error
        except CommandInvalid as error:
            raise Refused("restore_failed", str(error)) from error
        except ConnectorError as error:
            raise unavailable("log", error) from error


def _is_readable_here(value: bytes, codec: Codec) -> bool:
    """Whether this installation reads the record, as it was stored, as the file does."""
    try:
        return local_codec().name_of(value) == codec.name_of(value)
    except Undecodable:
        return False
