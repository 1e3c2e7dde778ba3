"""Takeover of a partition: load the partition snapshot, append a Claim, and fold the log up to it.

The fold is the truth: whatever a former owner appends after that has a former term and is ignored by every reader. A
standby has most of it folded already.

Before: owner.py claims the partition. After: leadership.py takes the live aggregates and recovers their calls.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import DecisionEnvelope
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.stream.context import HostContext
from loomlog.services.stream.partition.partition import NO_DIGEST
from loomlog.services.stream.partition.recovered_state import PartitionFold
from loomlog.services.stream.snapshots.snapshots import FoldStart

log = logging.getLogger(__name__)

CLAIM_KEY = b"claim"


class Takeover:
    """One takeover of one partition."""

    def __init__(self, number: int, context: HostContext) -> None:
        self.number = number
        self._context = context

    async def claim_and_fold(
        self, reason: str, folded: PartitionFold | None, before: Callable[[str], Awaitable[None]] | None
    ) -> tuple[PartitionFold, int]:
        """Return the partition folded up to our Claim, and the time of the last record before it (UTC milliseconds).

        The arguments are those of PartitionOwner.claim. Raises Transient or UnknownOutcome.
        """
        context = self._context
        if folded is None:
            folded = await self._load_snapshot()
        else:
            context.snapshots.forget(self.number)
        if before is not None:
            await self._catch_up(folded)
            if folded.lifeline not in ("", context.liveness_address):
                await before(folded.lifeline)
        term = await context.appender.append(
            context.topics.events, self.number, [self._claim_record(folded.term, reason)]
        )
        if folded.next_offset > term:
            ignored = f"what was folded up to {folded.next_offset} is of another, longer log"
            folded = await self._fold_from_start(ignored)
        last_ms = folded.last_ms
        async with await context.ranges.read(
            context.topics.events, self.number, folded.next_offset, term + 1
        ) as chunks:
            async for chunk in chunks:
                folded.feed(chunk)
                last_ms = max((record.timestamp for record in chunk[-2:] if record.offset < term), default=last_ms)
                await asyncio.sleep(0)  # heartbeats share this event loop
        actual_term = folded.fold.reader.term
        assert actual_term == term, f"read up to the Claim at {term}, found the term {actual_term}"
        return folded, last_ms

    async def _catch_up(self, folded: PartitionFold) -> None:
        """Fold what there is already, and find its owner."""
        context, topic = self._context, self._context.topics.events
        if not folded.lifeline and folded.term >= await context.ranges.beginning_offset(topic, self.number):
            async with await context.ranges.read(topic, self.number, folded.term, folded.term + 1) as chunks:
                async for chunk in chunks:
                    folded.note_claim(chunk[0])
        end = await context.ranges.end_offset(topic, self.number)
        async with await context.ranges.read(topic, self.number, folded.next_offset, end) as chunks:
            async for chunk in chunks:
                folded.feed(chunk)
                await asyncio.sleep(0)  # heartbeats share this event loop

    async def _load_snapshot(self) -> PartitionFold:
        context = self._context
        first = await context.ranges.beginning_offset(context.topics.events, self.number)
        start = await context.snapshots.load(self.number, first)
        if start.ignored:
            log.warning(
                "%s partition %d: folding from offset %d because %s",
                context.family.name,
                self.number,
                first,
                start.ignored,
            )
        return PartitionFold(context.family, context.codec, start)

    async def _fold_from_start(self, because: str) -> PartitionFold:
        context = self._context
        first = await context.ranges.beginning_offset(context.topics.events, self.number)
        log.warning(
            "%s partition %d: folding from offset %d because %s", context.family.name, self.number, first, because
        )
        return PartitionFold(context.family, context.codec, FoldStart(first))

    def _claim_record(self, term: int, reason: str) -> ProducerRecord:
        common = DecisionEnvelope(term=term, aggregate="", tenant="", at_ms=self._context.clock_ms())
        claim = Claim(owner=self._context.name, reason=reason, lifeline=self._context.liveness_address)
        return ProducerRecord(
            key=CLAIM_KEY, value=self._context.codec.encode_decision_event(common, 0, NO_DIGEST, claim)
        )
