"""Summaries of ended runs for live metrics: one record for each partition and interval, covering all of its runs.

A run is added when its end is in the log, so nothing of it is kept until the record is sent. Records are sent when
there is time and can be lost without harm.

How long model calls took goes along with the next record, whatever runs it is about: a run does not keep the times of
its calls, and the time of a call matters when it is made and not when its run ends.

Not chosen: a record for each run. Reading one costs 0.15 ms in the insights process and writing one 0.06 ms here; both
are more than the adding up (docs/decisions/0005).

Before: services/runtime/run/command_handler.py. After: services/insights, over the thin topic.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.conversation import ToolResultBlock
from loomlog.schemas.generated.stream_records import (
    AgentTally,
    CostTally,
    ModelTally,
    ModelTimes,
    RunTally,
    StatusTally,
    ToolTally,
)
from loomlog.services.core.run.state import Ended
from loomlog.services.stream.partition.partition import Aggregate
from loomlog.services.stream.snapshots.snapshots import batch_records

log = logging.getLogger(__name__)

MAX_WAITING = 20_000
"""Maximum runs in tallies that wait to be sent; more are dropped and counted, because tallies are
never authoritative.
"""
SEND_INTERVAL_S = 1.0
"""Seconds between two sends: tallies are for people and their windows are minutes. Insights' work is one record for
each partition this often, whatever the number of runs.
"""
FINAL_SEND_TIMEOUT_S = 1.0
"""Seconds to wait for the broker at the end of the process."""
MINUTE_MS = 60_000
"""One minute: runs of different minutes are never in one tally, because the minute is the smallest window in use."""
MAX_RUNS = 1_000
"""Maximum runs in one record; each is one more duration, at most 10 bytes."""
MAX_NAMES = 300
"""Maximum names in one record: the run that reaches it is the record's last. With MAX_TOOLS it keeps a record under 600
KB even if each has 128 characters of 4 bytes; an append may have 900 KB.
"""
MAX_TOOLS = 500
"""Maximum tool names in one record. A single run can reach it, by calling tools that do not exist; see OTHER."""
MAX_TIMES = 5_000
"""Maximum times of model calls that wait for a record; further ones are left out, because percentiles of 5,000 calls
need no more. At most 50 KB of a record.
"""
MAX_TIMED_MODELS = 100
"""Maximum models with times in one record: 100 KB of names at worst."""
MAX_NAME_CHARACTERS = 128
"""The longest id a caller may choose (schemas/ids.py); longer names come from a model or a file, and are cut."""
OTHER = "(other)"
"""Name under which tools beyond MAX_TOOLS are counted."""


@dataclass(slots=True, kw_only=True)
class _SummaryBuilder:
    """A record that still grows."""

    partition: int
    term: int
    offset: int = -1
    ended_at_ms: int = 0
    durations_ms: list[int] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    agents: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    call_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    tool_errors: Counter[str] = field(default_factory=Counter)
    input_tokens: int = 0
    output_tokens: int = 0
    costs: Counter[str] = field(default_factory=Counter)
    model_times: tuple[ModelTimes, ...] = ()

    @property
    def is_full(self) -> bool:
        names = len(self.agents) + len(self.calls) + len(self.tools) + len(self.costs)
        return len(self.durations_ms) >= MAX_RUNS or names >= MAX_NAMES

    def add(self, aggregate: Aggregate, state: Ended, at_ms: int) -> None:
        """Add one run."""
        facts = state.facts
        self.offset = max(self.offset, aggregate.last_offset)
        self.ended_at_ms = max(self.ended_at_ms, at_ms)
        self.durations_ms.append(max(0, at_ms - facts.started_at_ms))
        self.statuses[state.status] += 1
        agent = (_truncate(aggregate.tenant), _truncate(facts.definition.name))
        self.agents[agent] += 1
        if state.status == "failed":
            self.failed[agent] += 1
        if calls := facts.turns + facts.model_errors:
            model = (_truncate(facts.current_model.provider), _truncate(facts.current_model.model))
            self.calls[model] += calls
            self.call_errors[model] += facts.model_errors
        for message in facts.messages[facts.inherited_messages :]:
            for block in message.blocks:
                if isinstance(block, ToolResultBlock):
                    self._add_tool(block.name, block.is_error)
        for answer in state.results:  # results of the turn during which the run ended
            self._add_tool(answer.call.name, answer.is_error)
        self.input_tokens += facts.usage.input_tokens
        self.output_tokens += facts.usage.output_tokens
        if facts.cost_micros:
            self.costs[_truncate(facts.currency)] += facts.cost_micros

    def _add_tool(self, name: str, is_error: bool) -> None:
        name = _truncate(name)
        if name not in self.tools and len(self.tools) >= MAX_TOOLS:
            name = OTHER
        self.tools[name] += 1
        if is_error:
            self.tool_errors[name] += 1

    def to_record(self) -> RunTally:
        """Return the finished record."""
        return RunTally(
            partition=self.partition,
            term=self.term,
            offset=self.offset,
            ended_at_ms=self.ended_at_ms,
            durations_ms=tuple(self.durations_ms),
            statuses=tuple(StatusTally(status=status, runs=n) for status, n in sorted(self.statuses.items())),
            agents=tuple(
                AgentTally(tenant=tenant, agent=agent, runs=n, failed=self.failed[tenant, agent])
                for (tenant, agent), n in sorted(self.agents.items())
            ),
            models=tuple(
                ModelTally(provider=provider, model=model, calls=n, errors=self.call_errors[provider, model])
                for (provider, model), n in sorted(self.calls.items())
            ),
            tools=tuple(
                ToolTally(name=name, calls=n, errors=self.tool_errors[name]) for name, n in sorted(self.tools.items())
            ),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            costs=tuple(CostTally(currency=currency, micros=n) for currency, n in sorted(self.costs.items())),
            model_times=self.model_times,
        )


class RunSummaries:
    """Adds up ended runs and sends RunTally records."""

    def __init__(self, codec: Codec, appender: LogAppender, *, topic: str, clock_ms: Callable[[], int]) -> None:
        self.dropped = 0
        """Runs that are in no record sent."""
        self._codec = codec
        self._appender = appender
        self._topic = topic
        self._clock_ms = clock_ms
        self._open: dict[tuple[int, int, int], _SummaryBuilder] = {}
        """Open records by partition, term and minute."""
        self._full: list[_SummaryBuilder] = []
        self._pending_runs = 0
        self._times: dict[tuple[str, str], list[int]] = {}
        """Times of model calls that wait for a record, by provider and model."""
        self._pending_times = 0
        self._terms: dict[int, int] = {}

    def set_term(self, partition: int, term: int) -> None:
        """Set the term under which the partition is held from now on."""
        self._terms[partition] = term

    def add_ended_run(self, aggregate: Aggregate, state: Ended, partition: int) -> None:
        """Add a run whose end is in the log, under the current term of its partition."""
        if self._pending_runs >= MAX_WAITING:
            self.dropped += 1
            return
        self._pending_runs += 1
        term = self._terms.get(partition, -1)
        at_ms = self._clock_ms()
        place = (partition, term, at_ms // MINUTE_MS)
        sums = self._open.get(place)
        if sums is None:
            sums = self._open[place] = _SummaryBuilder(partition=partition, term=term)
        sums.add(aggregate, state, at_ms)
        if sums.is_full:
            self._full.append(self._open.pop(place))

    def add_model_call(self, provider: str, model: str, seconds: float) -> None:
        """Add the time of a model call that was answered."""
        name = (_truncate(provider), _truncate(model))
        if self._pending_times >= MAX_TIMES or (name not in self._times and len(self._times) >= MAX_TIMED_MODELS):
            return
        self._pending_times += 1
        self._times.setdefault(name, []).append(round(seconds * 1000))

    async def run(self) -> None:
        """Send the collected records, until cancelled. Raises Transient when the topic's partitions cannot be read."""
        partitions = await self._appender.partitions(self._topic)
        try:
            while True:
                await asyncio.sleep(SEND_INTERVAL_S)
                await self._send_all(partitions)
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(FINAL_SEND_TIMEOUT_S):
                    await self._send_all(partitions)
            except TimeoutError:
                log.warning(
                    "tallies of the last runs are lost: the broker did not take them in %.0f s", FINAL_SEND_TIMEOUT_S
                )
            raise

    async def _send_all(self, partitions: int) -> None:
        waiting = [*self._full, *self._open.values()]
        self._full, self._open, self._pending_runs = [], {}, 0
        if waiting:
            waiting[0].model_times = self._take_times()
        # The thin topic may have fewer partitions than the events topic.
        by_partition: dict[int, list[_SummaryBuilder]] = {}
        for sums in waiting:
            by_partition.setdefault(sums.partition % partitions, []).append(sums)
        # Sent together, so that the reader is woken once.
        async with asyncio.TaskGroup() as sending:
            for partition, gathered in by_partition.items():
                sending.create_task(self._send(partition, gathered))

    def _take_times(self) -> tuple[ModelTimes, ...]:
        times, self._times, self._pending_times = self._times, {}, 0
        return tuple(
            ModelTimes(provider=provider, model=model, durations_ms=tuple(durations))
            for (provider, model), durations in sorted(times.items())
        )

    async def _send(self, partition: int, waiting: list[_SummaryBuilder]) -> None:
        unsent = sum(len(sums.durations_ms) for sums in waiting)
        records = [
            ProducerRecord(key=str(sums.partition).encode(), value=self._codec.encode(sums.to_record()))
            for sums in waiting
        ]
        try:
            for batch in batch_records(records):
                await self._appender.append(self._topic, partition, batch)
        except UnknownOutcome as error:
            self.dropped += unsent
            log.warning("tallies of partition %d are lost: %s", partition, error)


def _truncate(name: str) -> str:
    return name[:MAX_NAME_CHARACTERS]
