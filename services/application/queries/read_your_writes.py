"""Read-your-writes: a position in the log identifies a write, and a read waits until its sources have passed it.

    implicit    a read of one resource waits, shortly, for what this process has seen of its partition
    explicit    a request with position tokens waits a little longer; then it is refused with not_yet and the lag
    complete    everything in the log now, by any process: for sums that must not miss anything

A token is the text of a position (schemas/position.py), `<topic>/<partition>:<offset>`; every write returns one. Each
topic that reads are answered from has one PositionReader that knows how far it is read: the rows of the projections, or
a table that this process folds itself. A further topic is one call of `register`.

A record beyond the end of the log has never been written, so such a token is refused at once. The broker is asked for
the end only when a wait would begin.

Before: services/api/app.py for every request, services/application/runs/start.py,
services/application/streaming/run_stream.py. After: projections/engine/positions.py,
services/stream/global_tables/global_table.py, services/stream/entities/replicas.py.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, reaching
from loomlog.services.application.queries.read_models import Positions
from loomlog.services.application.streaming.event_hub import EventHub
from loomlog.services.core.refusals import Refused


class PositionReader(Protocol):
    """What reads are answered from, for one topic."""

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        """Wait until the record at the offset is read, at most `timeout_s` (0: do not wait); returns the number of
        records that are missing, 0 when it is read. May raise Transient.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProjectedTopic:
    """A topic that is read from the projections (protocol PositionReader)."""

    positions: Positions
    topic: str

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        position = Position(topic=self.topic, partition=partition, offset=offset)
        arrival = await self.positions.wait(position, timeout_s=timeout_s)
        return 0 if arrival.is_reached else max(1, arrival.lag)


class PositionBarrier:
    """Waits for positions of the registered topics; the events of runs are registered from the beginning."""

    def __init__(
        self,
        hub: EventHub,
        positions: Positions,
        *,
        topic: str,
        end_offset: Callable[[str, int], Awaitable[int]],
        wait_s: float = limits.POSITION_WAIT_S,
    ) -> None:
        """`topic` is that of the events of runs. `end_offset` returns the offset after the last record of a topic's
        partition and raises Transient. `wait_s` bounds the wait for the tokens of one request.
        """
        self._hub = hub
        self.topic = topic
        self._end_offset = end_offset
        self._wait_s = wait_s
        self._runs = ProjectedTopic(positions, topic)
        self._readers: dict[str, tuple[PositionReader, int]] = {}
        self.register(topic, self._runs, partitions=len(hub.partitions))

    def register(self, topic: str, reader: PositionReader, *, partitions: int = 1) -> None:
        """Accept positions of a topic from now on; `reader` knows how far its `partitions` are read."""
        self._readers[topic] = (reader, partitions)

    def token(self, partition: int, offset: int) -> str:
        """Return the position token of an event of a run."""
        return str(Position(topic=self.topic, partition=partition, offset=offset))

    def log_ends(self) -> dict[int, int]:
        """Return the offset after the last event of runs this process has seen, by partition."""
        return {number: self._hub.position(number) for number in self._hub.partitions}

    async def wait_for_own_writes(self, partition: int | None, *, timeout_s: float = limits.OWN_WRITES_WAIT_S) -> int:
        """Wait for what this process has seen of the partition of run events, or of all when it is unknown.

        Returns the number of records the read models still lack, 0 when they have all. Never fails.
        """
        ends = self.log_ends()
        return await self._wait_for_ends(ends if partition is None else {partition: ends[partition]}, timeout_s)

    async def wait_for_all(self, ends: Mapping[int, int], *, timeout_s: float) -> None:
        """Wait for all events of runs before these offsets of the partitions.

        Raises Refused: not_yet with the lag.
        """
        lag = await self._wait_for_ends(ends, timeout_s)
        if lag:
            raise not_yet_error("the read models have not reached the end of the log", lag)

    async def wait_for(self, tokens: Sequence[str]) -> None:
        """Wait until the positions of all these tokens are read.

        Raises Refused: bad_request for a token that cannot have been given out, log_unavailable, or not_yet
        with the lag.
        """
        if len(tokens) > limits.POSITIONS_MAX:
            raise bad_request(f"{len(tokens)} positions: at most {limits.POSITIONS_MAX} in one request")
        positions = [self._parse(token) for token in tokens]
        deadline = asyncio.get_running_loop().time() + self._wait_s
        for position in positions:
            with reaching("log"):
                lag = await self._lag(position, deadline)
            if lag:
                raise not_yet_error(f"the position {position} is not read yet", lag)

    def _parse(self, token: str) -> Position:
        """Return the position of a token. Raises Refused(bad_request) unless its partition is read here."""
        try:
            position = Position.parse(token)
        except ValueError as error:
            raise bad_request(str(error)) from error
        known = self._readers.get(position.topic)
        if known is None:
            topics = ", ".join(sorted(self._readers))
            raise bad_request(
                f"the position {token[:80]!r} is of a topic that is not read here: expected one of {topics}"
            )
        if position.partition >= known[1]:
            raise bad_request(
                f"there is no partition {position.partition} of {position.topic}: expected 0 to {known[1] - 1}"
            )
        return position

    async def _lag(self, position: Position, deadline: float) -> int:
        """Return the number of records missing up to the position, at the latest at `deadline` (loop time, s)."""
        reader, _ = self._readers[position.topic]
        if not await reader.wait(position.partition, position.offset, timeout_s=0):
            return 0
        end = await self._end_offset(position.topic, position.partition)
        if position.offset >= end:
            newest = f"its newest record is {end - 1}" if end else "it has no record yet"
            raise bad_request(
                f"the position {position} is beyond the end of {position.topic}/{position.partition}: {newest}"
            )
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        return await reader.wait(position.partition, position.offset, timeout_s=left)

    async def _wait_for_ends(self, ends: Mapping[int, int], timeout_s: float) -> int:
        """Return the number of events of runs before these offsets that are missing after the wait."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        lag = 0
        for partition, end in ends.items():
            if end > 0:
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                lag += await self._runs.wait(partition, end - 1, timeout_s=left)
        return lag


def not_yet_error(what: str, lag: int) -> Refused:
    """Return the refusal of a read that would be older than its caller may expect."""
    return Refused(
        "not_yet",
        f"{what}: {lag} records are missing; try again",
        retry_after_s=RETRY_SOON_S,
        details={"lag": lag},
    )
