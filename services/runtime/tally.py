"""The thin record for live metrics: one for each run that ended, sent when there is time, lost without harm."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from connectors.errors import UnknownOutcome
from connectors.protocols import LogAppender, Outgoing
from schemas.codec import Codec
from schemas.conversation import ToolResultBlock
from schemas.quick import frozen_on_paper
from schemas.stream_records import RunTally, ToolTally
from services.core.run.state import Ended
from services.stream.partition import Aggregate
from services.stream.snapshot import batches

log = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Tallies waiting to be sent; more are dropped and counted, because they are never truth."""
SEND_EVERY_S = 0.25
"""Tallies are for people; a quarter of a second gathers hundreds of runs into one append."""


@frozen_on_paper
@dataclass(frozen=True, slots=True)
class _EndedRun:
    partition: int
    term: int
    aggregate: Aggregate
    state: Ended
    at_ms: int


class Tallies:
    """Collects and sends RunTally records."""

    def __init__(self, codec: Codec, appender: LogAppender, *, topic: str, clock_ms: Callable[[], int]) -> None:
        self.dropped = 0
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._clock_ms = clock_ms
        self._waiting: list[_EndedRun] = []
        self._terms: dict[int, int] = {}

    def owns(self, partition: int, term: int) -> None:
        """The partition is held under this term from now on."""
        self._terms[partition] = term

    def ended(self, aggregate: Aggregate, state: Ended, partition: int) -> None:
        """A run's end is in the log, under the term in which its partition is held now."""
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        term = self._terms.get(partition, -1)
        self._waiting.append(_EndedRun(partition, term, aggregate, state, self._clock_ms()))

    async def run(self) -> None:
        """Sends what has gathered, until cancelled. Raises Transient when the topic's partitions cannot be learnt."""
        partitions = await self._appender.partitions(self._topic)
        while True:
            await asyncio.sleep(SEND_EVERY_S)
            waiting, self._waiting = self._waiting, []
            records: dict[int, list[Outgoing]] = {}
            for ended in waiting:
                # The thin topic may have fewer partitions than the events have.
                records.setdefault(ended.partition % partitions, []).append(self._record(ended))
            for partition, gathered in records.items():
                try:
                    for batch in batches(gathered):
                        await self._appender.append(self._topic, partition, batch)
                except UnknownOutcome as error:
                    self.dropped += len(gathered)
                    log.warning("tallies of partition %d are lost: %s", partition, error)

    def _record(self, ended: "_EndedRun") -> Outgoing:
        aggregate, state = ended.aggregate, ended.state
        facts = state.facts
        calls: dict[str, int] = {}
        errors: dict[str, int] = {}
        for message in facts.messages[facts.inherited_messages :]:
            for block in message.blocks:
                if isinstance(block, ToolResultBlock):
                    calls[block.name] = calls.get(block.name, 0) + 1
                    errors[block.name] = errors.get(block.name, 0) + block.is_error
        for answer in state.answers:  # results of the turn in whose middle the run ended
            name = answer.call.name
            calls[name] = calls.get(name, 0) + 1
            errors[name] = errors.get(name, 0) + answer.is_error
        tally = RunTally(
            partition=ended.partition,
            term=ended.term,
            offset=aggregate.last_offset,
            run_id=aggregate.id,
            tenant=aggregate.tenant,
            agent=facts.definition.name,
            provider=facts.definition.provider,
            model=facts.definition.model,
            status=state.status,
            started_at_ms=facts.started_at_ms,
            ended_at_ms=ended.at_ms,
            turns=facts.turns,
            input_tokens=facts.usage.input_tokens,
            output_tokens=facts.usage.output_tokens,
            cost_micros=facts.cost_micros,
            currency=facts.currency,
            model_errors=facts.model_errors,
            tools=tuple(ToolTally(name=name, calls=n, errors=errors[name]) for name, n in sorted(calls.items())),
        )
        return Outgoing(key=aggregate.id.encode(), value=self._codec.encode(tally))
