"""The one flusher of a process: all pending decisions are appended together.

A batch is built only when the previous one is acknowledged, so it contains everything decided meanwhile (group commit),
and the partitions are appended together: apart they cost two round trips, and two halves on the wire one behind the
other were no faster with 64 runs in flight. An acknowledged batch releases its effects; anything else makes the owner
read the log again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial

from loomlog.connectors.errors import Transient, UnknownOutcome
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.protocols import LogRanges, ProducerRecord
from loomlog.schemas.codec import Codec, Undecodable
from loomlog.schemas.reader import TermReader
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.effect_calls import EffectRunner
from loomlog.services.stream.family import Family
from loomlog.services.stream.histogram import RECORDS, SECONDS, Histogram
from loomlog.services.stream.ownership.owner import PartitionOwner
from loomlog.services.stream.partition.partition import OffsetGap, Partition, ReadyEffect

log = logging.getLogger(__name__)


LINGER_STEPS = 0.5
LINGER_MAX_S = 0.005
"""Maximum wait of a flush for the quick calls that the last one started, so that their results are appended together
and runs do not split into two alternating halves; at most this share of the last flush's duration, and at most this
long. No wait if a command to an existing aggregate was decided: its sender waits for the answer, and it starts no call.
"""


class Flusher:
    """Appends the pending decisions of owners. `lost(owner, reason)` is called when an owner must
    read the log again.
    """

    def __init__(
        self,
        owners: Callable[[], Iterable[PartitionOwner]],
        *,
        lost: Callable[[PartitionOwner, str], None],
    ) -> None:
        self.flushes = 0
        self.records = 0
        self.sizes = Histogram(RECORDS)
        self.seconds = Histogram(SECONDS)
        self.in_flight_since: float | None = None
        """Monotonic time at which the batch on the wire was sent; None if there is none."""
        self._owners = owners
        self._lost = lost
        self._ready = asyncio.Event()
        self.drained = asyncio.Event()
        self._generation = 0
        self._out = 0
        self._back = asyncio.Event()
        self._linger_until = 0.0
        self._at_once = False
        """The pending decisions are flushed without lingering."""
        self.draining = False
        """Before a planned stop: decisions are still appended, but no call is started; the next owner starts it."""
        self.leaving: set[PartitionOwner] = set()
        """Owners for which the same is true, because their partition is handed over."""
        self.not_begun: list[tuple[PartitionOwner, str, Hashable]] = []
        """Owner, aggregate and key of the calls that were due since."""

    def wake(self, *, at_once: bool = False) -> None:
        """There is something to append; `at_once`: without waiting for calls."""
        if at_once:
            self._at_once = True
            self._back.set()
        self._ready.set()

    async def _linger(self) -> None:
        """Wait until the calls that the last flush started have returned, or the time is up."""
        rest_s = self._linger_until - time.monotonic()
        if rest_s <= 0:
            return
        self._back.clear()
        timer = asyncio.get_running_loop().call_later(rest_s, self._back.set)
        await self._back.wait()
        timer.cancel()

    def _batch_returned(self, generation: int) -> None:
        if generation == self._generation:
            self._out -= 1
            if self._out == 0:
                self._back.set()

    async def run(self) -> None:
        """Flush until cancelled."""
        while True:
            await self._ready.wait()
            if self._out and not self._at_once:
                await self._linger()
            self._ready.clear()
            self._at_once = False
            flights = [
                (owner, owner.partition, records)
                for owner in self._owners()
                if owner.partition is not None
                and owner.partition.has_pending
                and (records := owner.partition.next_batch(MAX_BATCH_BYTES))
            ]
            if not flights:
                continue
            self.in_flight_since = left = time.monotonic()
            if len(flights) == 1:
                outcomes = [await self._append(*flights[0])]
            else:
                outcomes = await asyncio.gather(*(self._append(*flight) for flight in flights))
            self.in_flight_since = None
            self.flushes += 1
            self.sizes.observe(sum(len(records) for _, _, records in flights))
            took_s = time.monotonic() - left
            self.seconds.observe(took_s)
            self._linger_until = left + took_s + min(LINGER_MAX_S, LINGER_STEPS * took_s)
            self._generation += 1
            self._out = 0
            for (owner, partition, records), outcome in zip(flights, outcomes, strict=True):
                self.records += len(records)
                await self._acknowledge(owner, partition, outcome)
                if partition.has_pending:
                    self._ready.set()
            self.drained.set()

    async def _append(
        self, owner: PartitionOwner, partition: Partition, records: tuple[ProducerRecord, ...]
    ) -> int | UnknownOutcome:
        try:
            context = owner.context
            return await context.appender.append(context.topics.events, partition.number, records)
        except UnknownOutcome as error:
            return error

    async def _acknowledge(self, owner: PartitionOwner, partition: Partition, outcome: int | UnknownOutcome) -> None:
        if owner.partition is not partition:
            return  # dropped meanwhile; the next claim reads the outcome of the batch
        if isinstance(outcome, UnknownOutcome) or outcome < partition.next_offset:
            log.warning("%s partition %d: unknown outcome: %s", owner.context.family.name, partition.number, outcome)
            self._lost(owner, "unknown_outcome")
            return
        try:
            dues = partition.acknowledged(outcome)
        except OffsetGap as gap:
            reason = await _lost_to_claim(owner.context, partition.number, gap)
            if owner.partition is not partition:
                return
            if reason:
                self._lost(owner, reason)
                return
            partition.skip_to(outcome)
            dues = partition.acknowledged(outcome)
        self._start_effects(owner, partition.number, dues)

    def _start_effects(self, owner: PartitionOwner, partition: int, dues: list[ReadyEffect]) -> None:
        calls: EffectRunner = owner.context.effect_runner
        family: Family = owner.context.family
        returned = partial(self._batch_returned, self._generation)
        for due in dues:
            if family.effects.stops_calls(due.effect):
                calls.stop(due.aggregate.id)
            elif family.local.is_local(due.effect):
                # Also before a planned stop: it only appends, and starts no call.
                owner.deliver(due)
            elif self.draining or owner in self.leaving:
                self.not_begun.append((owner, due.aggregate.id, due.effect.key))
            else:
                aggregate = due.aggregate
                self._out += calls.start(partition, aggregate.id, aggregate.tenant, due.effect, due.state, returned)


async def _lost_to_claim(context: HostContext, partition: int, gap: OffsetGap) -> str:
    """Return why the owner must read the log again after a gap; empty if it may continue."""
    try:
        claimed = await has_claim_between(
            context.ranges, context.codec, context.topics.events, partition, gap.start, gap.end
        )
    except Transient as error:
        log.warning("%s partition %d: what came between cannot be read: %s", context.family.name, partition, error)
        return "unknown_outcome"
    return "fenced" if claimed else ""


async def has_claim_between(ranges: LogRanges, codec: Codec, topic: str, partition: int, start: int, end: int) -> bool:
    """Whether a Claim is in [start, end)."""
    reader = TermReader(codec=codec, next_offset=start)
    async with await ranges.read(topic, partition, start, end) as chunks:
        async for chunk in chunks:
            for record in chunk:
                try:
                    reader.read(record.offset, record.value)
                except Undecodable:
                    continue  # not a Claim
    return reader.claims > 0
