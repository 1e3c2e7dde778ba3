"""What a request takes of this process: a row of the table of routes says which, and app.py takes it for all of them.

    REQUEST   one of the requests that are handled at a time, until the answer is ready; waits for it in turn
    STREAM    the same until the stream is open, and one of the event streams until it is closed
    START     the same, for the stream that answers the start of a run
    WAIT      one of the requests that wait, for messages or for the end of something, and nothing else
    NOTHING   health and documents

So one token neither keeps the others out nor slows them down: who opens hundreds of streams at once waits behind its
own. Requests without a token (deliveries to webhooks) count as one tenant, with the path as the principal.

Before: app.py. After: services/stream/shared_slots.py, services/core/bounded_resources.py.
"""

from collections.abc import Callable
from enum import Enum

from loomlog.schemas.records import replace
from loomlog.services.core import bounded_resources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.bounded_resources import BoundedResource
from loomlog.services.core.shares import Holder
from loomlog.services.stream.shared_slots import HeldSlot, SharedSlots

TURN_WAIT_S = 10.0
"""Seconds a request waits for its turn: less than clients wait for an answer."""
PRINCIPAL_CHARACTERS_MAX = 200


class Takes(Enum):
    """What a request takes."""

    NOTHING = "nothing"
    REQUEST = "request"
    WAIT = "wait"
    STREAM = "stream"
    START = "start"


class RouteSlots:
    """What one request holds."""

    __slots__ = ("_request", "_stream")

    def __init__(self, request: HeldSlot | None, stream: Callable[[], None] | None) -> None:
        """`stream`: releases the stream."""
        self._request = request
        self._stream = stream

    def hand_over_stream(self) -> Callable[[], None]:
        """Return what releases the stream, which its response calls when it ends."""
        stream, self._stream = self._stream, None
        assert stream is not None, "the row of the route says that it streams"
        return stream

    def release(self) -> None:
        """Release everything that was not handed over."""
        if self._request is not None:
            self._request.release()
        if self._stream is not None:
            self._stream()


NO_SLOTS = RouteSlots(None, None)


def no_quota(caller: Caller) -> Callable[[], None]:
    """Count nothing; return what gives nothing back."""
    return lambda: None


class RequestShares:
    """The slots of one process. `streams_per_principal` 0: as the table says."""

    def __init__(self, *, streams_per_principal: int = 0) -> None:
        self.take_quota: Callable[[Caller], Callable[[], None]] = no_quota
        """Counts an open stream against the quotas of its caller; returns what gives it back. Raises Refused."""
        self.requests = _slots_of(bounded_resources.REQUESTS)
        self.waiting = _slots_of(bounded_resources.WAITING_REQUESTS)
        self.streams = _slots_of(bounded_resources.EVENT_STREAMS, streams_per_principal)
        self.started = _slots_of(bounded_resources.STARTED_STREAMS)

    @property
    def open_streams(self) -> int:
        return self.streams.shares.in_use + self.started.shares.in_use

    async def enter(self, takes: Takes, caller: Caller, path: str) -> RouteSlots:
        """Take what a request needs. Raises ShareExhausted."""
        if takes is Takes.NOTHING:
            return NO_SLOTS
        holder = holder_of(caller, path)
        if takes is Takes.WAIT:
            return RouteSlots(self.waiting.try_acquire(holder), None)
        stream = None if takes is Takes.REQUEST else self._take_stream(takes, caller, holder)
        try:
            return RouteSlots(await self.requests.acquire(holder, wait_s=TURN_WAIT_S), stream)
        except BaseException:
            if stream is not None:
                stream()
            raise

    def _take_stream(self, takes: Takes, caller: Caller, holder: Holder) -> Callable[[], None]:
        """Take a stream, and return what releases it. Raises ShareExhausted, Refused."""
        release_quota = self.take_quota(caller)
        try:
            slot = (self.streams if takes is Takes.STREAM else self.started).try_acquire(holder)
        except BaseException:
            release_quota()
            raise

        def release() -> None:
            slot.release()
            release_quota()

        return release


def holder_of(caller: Caller, path: str) -> Holder:
    """Return for whom a request takes something."""
    return caller.holder if caller.subject else Holder(tenant="", principal=path[:PRINCIPAL_CHARACTERS_MAX])


def _slots_of(resource: BoundedResource, per_principal: int = 0) -> SharedSlots:
    limits = resource.shares
    if per_principal:
        limits = replace(limits, per_principal=min(per_principal, limits.per_tenant))
    return SharedSlots(resource.name, limits)
