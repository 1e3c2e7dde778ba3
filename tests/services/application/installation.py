"""Installations in memory for restores: real owners over a log with any number of partitions, and a command layer.

    async with installation(tmp_path, partitions=3) as made:
        made.world.start_run("r_x")     # tests.services.stream.world: owners, and effects that follow a script
        made.layer                      # the use cases over the same log

Every installation keeps its state files in a folder of its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.connectors.storage.state_files import StateFiles
from loomlog.projections.engine.positions import WaitResult
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.position import Position
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.resources import TOPICS, ApplicationResources, Waits
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.core.run.state import State
from loomlog.services.stream.archive.run_log import LineageSegment, RunLog, fold_run
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.hosting import EntityParts
from tests.projections.twin import Twin
from tests.services.application.entity_owner import entity_parts
from tests.services.application.entity_owner import follow as follow_entities
from tests.services.application.entity_owner import own as own_entities
from tests.services.application.tables import TwinProjection
from tests.services.application.world import tokens
from tests.services.log_entities import LogEntities
from tests.services.stream.world import World

WAIT_S = 30.0


class Installation:
    """See the module."""

    def __init__(
        self, folder: Path, world: World, keys: SubjectKeys | None = None, entities: EntityParts | None = None
    ) -> None:
        self.world = world
        self.log: MemoryLog = world.log
        for topic in (TOPICS.previews, TOPICS.commands, TOPICS.events):
            self.log._partitions[topic] = world.partitions
        self.twin = Twin()
        self.projecting = True
        self.postgres_is_away = False
        self.blobs = MemoryBlobs()
        self.files = StateFiles(folder)
        self._projected = dict.fromkeys(range(world.partitions), 0)
        reads = LogEntities(world.partitions)
        resources = ApplicationResources(
            authenticator=Authenticator(tokens()),
            hub=EventHub(local_codec(), {partition: HubStart() for partition in range(world.partitions)}),
            appender=self.log,
            ranges=self.log,
            projection=TwinProjection(self),  # type: ignore[arg-type]  # it asks for these few attributes
            positions=self,
            blobs=self.blobs,
            codec=local_codec(),
            keepalive_s=30.0,
            state_files=self.files,
            clock_ms=world.clock,
            waits=Waits(decision_s=WAIT_S),
            keys=keys,
            entities=entities or entity_parts(self.log, world.partitions),
            entity_commands=reads,
            entity_reads=reads,
        )
        self.layer = Application(resources)
        reads.attach(self.log, self.layer.resources.entities)

    def project(self) -> None:
        """Brings the read models up to the end of the log."""
        for partition, done in self._projected.items():
            records: Sequence[ConsumerRecord] = self.log.records[TOPICS.events, partition][done:]
            if records:
                self.twin.apply(records)
                self._projected[partition] += len(records)

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        """Protocol Positions."""
        self.project()
        return WaitResult(is_reached=self._projected[position.partition] > position.offset, lag=0)

    def lengths(self) -> dict[Any, int]:
        """Records of every partition of what is kept for ever."""
        return {place: len(records) for place, records in self.log.records.items() if place[0].endswith("events")}

    async def states(self, seqs: dict[str, int] | None = None) -> dict[str, tuple[int, State]]:
        """Of every accepted run the seq and the state, as it is or as it was at the seq that is given for it."""
        result: dict[str, tuple[int, State]] = {}
        for partition in range(self.world.partitions):
            reader = TermReader()
            places: dict[str, tuple[int, int]] = {}
            for record in self.log.records[TOPICS.events, partition]:
                event = reader.read(record.offset, record.value)
                if event is not None:
                    places[event.aggregate] = (places.get(event.aggregate, (record.offset, 0))[0], record.offset + 1)
            log = RunLog(self.log, local_codec(), TOPICS.events, partition)
            for run_id, (first_offset, end_offset) in places.items():
                link = LineageSegment(run_id=run_id, first_offset=first_offset, end_offset=end_offset)
                first = await log.first(link)
                assert first is not None
                seq = 0 if seqs is None else seqs.get(run_id, 0)
                replayed = await fold_run(
                    log, await log.lineage(link, first), codec=local_codec(), to_seq=seq, through_bytes=False
                )
                assert not replayed.drift, replayed.drift
                result[run_id] = (replayed.seq, replayed.state)
        return result


@contextlib.asynccontextmanager
async def installation(
    folder: Path, *, partitions: int, seed: int = 0, keys: SubjectKeys | None = None
) -> AsyncIterator[Installation]:
    """One whose owners and command layer are at work. `keys`: of what the command layer seals and opens."""
    world = World(partitions=partitions, seed=seed)
    made = Installation(folder, world, keys)
    await made.layer.publisher.open()
    every = dict.fromkeys(range(partitions), 0)
    events, previews = made.log.tail(TOPICS.events, every), made.log.tail(TOPICS.previews, every)
    work = asyncio.create_task(
        made.layer.run(
            events,
            previews,
            lambda: own_entities(made.log, partitions, world.clock),
            lambda: follow_entities(made.layer.resources.entities, made.log),
        )
    )
    try:
        world.host()
        yield made
    finally:
        await world.close()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


def as_here(state: State) -> State:
    """The state without the one thing that is different about a run that was told again."""
    facts = getattr(state, "facts", None)
    return state if facts is None else replace(state, facts=replace(facts, imported_events=0, imported_as=""))  # type: ignore[call-arg]


def envelope(command_id: str, tenant: str = "t") -> CommandEnvelope:
    return CommandEnvelope(command_id=command_id, tenant=tenant, issued_at_ms=0)
