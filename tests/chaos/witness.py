"""Watches the events topic grow: who owns what, which runs have ended, and when each record was first seen.

It steers the campaign (which process is worth a strike, when a run is over) and keeps the sightings from which pauses
are computed. It proves nothing: the verdict rests on what is read again when all is over.

Before: the log.  After: load and faults ask it.
"""

import asyncio
import time
from collections.abc import Callable

from loomlog.connectors.kafka import KafkaOptions, KafkaTail
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused, RunStarted
from loomlog.schemas.generated.stream_events import Claim
from loomlog.schemas.reader import TermReader
from tests.chaos.evidence import EVENTS, Sighting

ENDS = frozenset(record.SCHEMA for record in (RunCompleted, RunFailed, RunCancelled, RunRefused))


class Witness:
    """`run` watches until cancelled; the rest may be asked at any time."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.sightings: list[Sighting] = []
        self.owners: dict[int, str] = {}
        """The name in the last Claim of each partition."""
        self.terms: dict[int, int] = {}
        """The offset of that Claim."""
        self._codec = local_codec()
        self._readers = {number: TermReader(codec=self._codec) for number in range(partitions)}
        self._tail = KafkaTail(
            KafkaOptions(bootstrap=bootstrap, client_id="witness"), EVENTS, dict.fromkeys(self._readers, 0)
        )
        self._changed = asyncio.Condition()
        self._begun: dict[str, str] = {}
        """Command ids and the runs they began."""
        self._live: dict[int, set[str]] = {number: set() for number in self._readers}
        self._ended: set[str] = set()

    async def run(self) -> None:
        """Watches from the first record on."""
        await self._tail.start()
        try:
            while True:
                polled = await self._tail.poll(timeout_s=0.5)
                at_s = time.monotonic()
                for number, records in polled.items():
                    self.sightings.append(
                        Sighting(partition=number, first=records[0].offset, last=records[-1].offset, at_s=at_s)
                    )
                    for record in records:
                        self._see(number, record.offset, record.value or b"")
                async with self._changed:
                    self._changed.notify_all()
        finally:
            await self._tail.close()

    async def ended(self, name: str) -> None:
        """Until the run of that id, or of the command of that id, is over."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._begun.get(name, name) in self._ended)

    def is_over(self, run_id: str) -> bool:
        """Whether the end of that run was seen."""
        return run_id in self._ended

    async def until(self, holds: Callable[[], bool]) -> None:
        """Until something about the log holds; looked at again whenever there are new records."""
        async with self._changed:
            await self._changed.wait_for(holds)

    def at_work(self) -> dict[str, int]:
        """How many live runs each owner has."""
        result: dict[str, int] = {}
        for number, owner in self.owners.items():
            result[owner] = result.get(owner, 0) + len(self._live[number])
        return result

    def _see(self, number: int, offset: int, value: bytes) -> None:
        reader = self._readers[number]
        claims = reader.claims
        event = reader.read(offset, value)
        if reader.claims > claims:
            claim = self._codec.decode(value).record
            assert isinstance(claim, Claim)
            self.owners[number], self.terms[number] = claim.owner, offset
        if event is None:
            return
        name = self._codec.name_of(value)
        if name == RunStarted.SCHEMA:
            envelope = event.decode(self._codec).envelope
            assert envelope is not None
            self._begun[envelope.cause_id] = event.aggregate
            self._live[number].add(event.aggregate)
        elif name in ENDS:
            self._ended.add(event.aggregate)
            self._live[number].discard(event.aggregate)
