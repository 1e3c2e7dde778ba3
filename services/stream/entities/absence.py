"""What a request does not find is looked for once more, after all that is in the log has been read.

A process follows the log and is up to 20 ms behind what another one has just written there, such as a channel that
another api has declared. What it knows is served as it is; a refusal because something is not there is given only
after the end of the log was read, so that a client may go from one process to the next without a position. Reading is
on the path of such refusals alone, and all that are under way share it.

Before: services/application/dispatch.py. After: replicas.py.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from loomlog.connectors.errors import Transient
from loomlog.services.core.error_codes import says_missing
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.batched_lookups import BatchedLookups

log = logging.getLogger(__name__)

WAIT_S = 1.0
"""Time for reading what is missing; after it the refusal stands."""
T = TypeVar("T")


class Followed(Protocol):
    """What a process follows; services/stream/entities/replicas.py."""

    @property
    def records_read(self) -> int: ...
    async def catch_up(self, *, timeout_s: float) -> None: ...


class AbsenceCheck:
    """Tries again what was refused for something that is not there, when the log had more than was read."""

    def __init__(self, followed: Sequence[Followed] = ()) -> None:
        """`followed` empty: every refusal stands."""
        self._followed = followed
        # One that has begun may have asked before what is looked for was written: the next one counts, and is shared.
        self._ends: BatchedLookups[None, None] = BatchedLookups(self._read_to_end, batch_max=1)

    async def try_twice(self, handle: Callable[[], Awaitable[T]]) -> T:
        """Return what `handle` does, which is called again if it changes nothing before it refuses. Raises Refused."""
        before = self._records_read()
        try:
            return await handle()
        except Refused as refused:
            if not self._followed or not says_missing(refused.code):
                raise
            await self.catch_up()
            if self._records_read() == before:
                raise
        return await handle()

    def _records_read(self) -> int:
        return sum(one.records_read for one in self._followed)

    async def catch_up(self) -> None:
        """Read to the end of the log as it is now, or as much of it as can be read in WAIT_S."""
        await self._ends.get(None)

    async def _read_to_end(self, _: Sequence[None]) -> Mapping[None, None]:
        try:
            await asyncio.gather(*(one.catch_up(timeout_s=WAIT_S) for one in self._followed))
        except Transient as error:
            log.info("a refusal stands without the end of the log: %s", error)
        return {}
