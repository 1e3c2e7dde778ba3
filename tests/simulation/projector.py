"""A projector process, and one that rebuilds: the real loop and the real rebuild over the simulated tables."""

import asyncio
from collections.abc import Mapping

from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.projections.engine.rebuild import rebuild
from loomlog.services.projector.loop import Projector
from loomlog.services.projector.settings import ProjectorSettings
from tests.simulation.broker import Tail, Wire
from tests.simulation.log import TOPICS
from tests.simulation.store import Connection, Store

MAX_RECORDS = 15
"""Records of one transaction: few, so that there are many."""


class Nowhere(PostgresOptions):
    """Never looked at but for its name, and reading that off a dsn takes as long as a transaction here."""

    @property
    def place(self) -> str:
        return "simulated"


KAFKA, POSTGRES = KafkaOptions(bootstrap="simulated"), Nowhere(dsn="")


class Doors:
    """How a projector reaches the outside."""

    def __init__(self, wire: Wire, store: Store, partitions: int) -> None:
        self._wire = wire
        self._store = store
        self._partitions = partitions

    async def connect(self) -> Connection:
        wire = self._wire
        await wire.round_trip("connect to Postgres")
        return self._store.connect(wire.process, wire.fates, wire.strike)

    async def open_tail(self, starts: Mapping[int, int]) -> Tail:
        return Tail(self._wire, TOPICS.events, starts)

    async def count_partitions(self) -> int:
        return self._partitions


def projector_process(wire: Wire, store: Store, partitions: int) -> "asyncio.Task[None]":
    """Starts a projector in the wire's process."""
    doors = Doors(wire, store, partitions)
    settings = ProjectorSettings(kafka=KAFKA, postgres=POSTGRES, owner=wire.process.name, max_records=MAX_RECORDS)
    projector = Projector(
        settings,
        connect=doors.connect,  # type: ignore[arg-type]  # the part of a connection that is used
        open_tail=doors.open_tail,
        count_partitions=doors.count_partitions,
    )
    return wire.loop.spawn(wire.process, projector.run(asyncio.Event()))


def rebuild_process(wire: Wire, store: Store, partitions: int) -> "asyncio.Task[object]":
    """Starts a rebuild in the wire's process; it ends by itself, or with an error when the outside fails."""
    doors = Doors(wire, store, partitions)
    return wire.loop.spawn(
        wire.process,
        rebuild(
            doors.connect,  # type: ignore[arg-type]  # the part of a connection that is used
            doors.open_tail,
            TOPICS.events,
            partitions,
            owner=wire.process.name,
        ),
    )
