"""Pages of the log: the cursor between two pages, and the queue of those that read.

Before: audit_log.py, services/application/log/browser.py. After: log_window.py.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request, unavailable
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import LOG_READS
from loomlog.services.core.refusals import Refused
from loomlog.services.core.shares import ShareLimits
from loomlog.services.stream.shared_slots import SharedSlots

READ_WAIT_S = 10.0
"""Time limit of one page, with the wait for those before."""
CURSOR_PATTERN = re.compile(r"(\d{1,9}):(\d{1,18}):(-?\d{1,18})\Z")


class LogCursor(NamedTuple):
    """Where a page goes on: an offset, and the term in force there."""

    partition: int
    offset: int
    term: int

    def encode(self) -> str:
        text = f"{self.partition}:{self.offset}:{self.term}"
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, cursor: str) -> "LogCursor":
        """Return the cursor of a text. Raises Refused(bad_request)."""
        try:
            match = CURSOR_PATTERN.match(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode())
        except (binascii.Error, UnicodeDecodeError, ValueError):
            match = None
        if match is None:
            raise foreign_cursor()
        return cls(int(match[1]), int(match[2]), int(match[3]))


def foreign_cursor() -> Refused:
    """Return the refusal of a cursor that a list has not given out."""
    return bad_request("cursor is not a place this list gave out: use `next` of an earlier answer")


class LogReadQueue:
    """One reader of the log at a time, with a bounded queue; an unreachable broker becomes a refusal."""

    def __init__(self) -> None:
        self._slots = SharedSlots(LOG_READS.name, LOG_READS.shares, waiting=ShareLimits.of(limits.EVENTS_WAITING_MAX))

    @asynccontextmanager
    async def slot(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for the turn to read. Raises ShareExhausted, Refused(log_unavailable)."""
        async with answered_within(READ_WAIT_S):
            with await self._slots.acquire(caller.holder, wait_s=2 * READ_WAIT_S):  # the outer bound comes first
                yield


@asynccontextmanager
async def answered_within(wait_s: float) -> AsyncIterator[None]:
    """The time limit of work with the log; a broker that does not answer becomes a refusal (log_unavailable)."""
    try:
        async with asyncio.timeout(wait_s):
            yield
    except TimeoutError as error:
        late = Transient(f"no answer in {wait_s:g} s", kind="timeout")
        raise unavailable("log", late) from error
    except ConnectorError as error:
        raise unavailable("log", error) from error
