"""Aggregates that rest: their state is not in memory, only what finds it again.

An aggregate that waits for a person needs nothing but a place in the partition: a command or a timer for it comes in
minutes, days or never. Its state is in its snapshot, whose offset the aggregate knows; one read of one record returns
it. The aggregate stays in Partition.aggregates, so whatever asks whether it is live gets the same answer as before.

    awake     the state is in memory
    resting   `state` is a Resting: what must be known of the run without its state

StateLoader returns the state before anything is decided. A snapshot that cannot be used, because it was deleted or
edited, costs a fold of the aggregate's events: the log is the truth.

Before: services/stream/ownership/leadership.py lets aggregates rest; a takeover finds them resting (fold.py). After:
command_intake.py and leadership.py load what they decide in.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol

from loomlog.schemas.records import Value
from loomlog.services.stream.family import Family
from loomlog.services.stream.partition.partition import Aggregate

log = logging.getLogger(__name__)

TOKEN_BYTES = 16
"""Length of a token: 128 bits of a SHA-256, so that no two snapshots of a partition are confused by accident."""
SHARED_MAX = 4_096
"""Different Resting values that are kept once; most runs of an agent that rest have the same."""


class Resting(Value, frozen=True, kw_only=True):
    """In the place of the state of an aggregate that rests: what its command handler must know without it.

    `session_id` and `agent_id` are empty if they are derived from the run's own id.
    """

    session_id: str = ""
    agent_id: str = ""
    agent: str = ""
    wide_pauses: tuple[str, ...] = ()
    """Scopes of the pauses wider than the run that hold it."""


@lru_cache(SHARED_MAX)
def shared_resting(session_id: str, agent_id: str, agent: str, wide_pauses: tuple[str, ...]) -> Resting:
    """Return the value, the same object for the same fields."""
    return Resting(session_id=session_id, agent_id=agent_id, agent=agent, wide_pauses=wide_pauses)


def is_resting(aggregate: Aggregate) -> bool:
    """Whether its state has to be loaded before anything is decided in it."""
    return type(aggregate.state) is Resting


def snapshot_token(aggregate: str, seq: int, state_sha256: str) -> bytes:
    """Return what identifies a snapshot: a hash of the id, the seq and the hash of the state."""
    return sha256(f"{aggregate} {seq} {state_sha256}".encode()).digest()[:TOKEN_BYTES]


class SnapshotUnusable(Exception):
    """The snapshot of an aggregate cannot be used; the message says why."""


class StateReader(Protocol):
    """services/stream/snapshots/snapshots.py"""

    async def read_state(self, partition: int, aggregate: Aggregate) -> Any:
        """Return the state that the aggregate's snapshot has. Raises Transient or SnapshotUnusable."""
        ...


class StateLoader:
    """Loads the states of one partition's aggregates. `refold` is CommandHandler.refold."""

    def __init__(
        self,
        partition: int,
        family: Family,
        snapshots: StateReader,
        refold: Callable[[Aggregate], Awaitable[Aggregate | str]],
    ) -> None:
        self._partition = partition
        self._family = family
        self._snapshots = snapshots
        self._refold = refold

    async def load(self, aggregate: Aggregate) -> None:
        """Give the aggregate its state. One whose events cannot be folded is quarantined. Raises Transient."""
        unloaded = aggregate.state
        try:
            state = await self._snapshots.read_state(self._partition, aggregate)
        except SnapshotUnusable as error:
            log.warning("%s %s is folded again from the log: %s", self._family.name, aggregate.id, error)
            again = await self._refold(aggregate)
            if aggregate.state is not unloaded:
                return  # loaded meanwhile, for something else
            aggregate.snapshot_seq = 0  # so that the next partition snapshot writes it again
            if isinstance(again, str):
                aggregate.state = self._family.absent(aggregate.id)
                aggregate.quarantined, aggregate.pending_events = again, True
            else:
                aggregate.state = again.state
            return
        if aggregate.state is unloaded:
            aggregate.state = state
