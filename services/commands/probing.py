"""Probing the providers of models when an operator asks for it.

The request is a record of loom.provider.events, like the answers: the runtime whose turn it is asks every provider, and
this process reads what came out. So an operator sees what the runtimes see, from their machines.

Before: a transport. After: services/runtime/prober.py.
"""

import asyncio
from collections.abc import Callable, Collection

from connectors.errors import UnknownOutcome
from connectors.protocols import LogAppender, Outgoing
from schemas.codec import Codec
from schemas.stream_records import ProbeRequested
from services.commands import limits
from services.commands.authentication import demand
from services.commands.declined import RETRY_LATER_S, RETRY_SOON_S, Declined
from services.core.access.decide import Caller
from services.core.access.scopes import ADMIN
from services.core.availability import Matrix
from services.stream.providers import PARTITION, ProviderBoard


class Probing:
    """The use case. Raises Declined."""

    def __init__(
        self,
        board: ProviderBoard,
        appender: LogAppender,
        codec: Codec,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
    ) -> None:
        self._board = board
        self._appender = appender
        self._codec = codec
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token

    async def probe(self, caller: Caller, providers: Collection[str]) -> Matrix:
        """The matrix after all of these providers were probed, or as many as answered in time.

        Raises probe_unavailable when none was: no runtime works.
        """
        demand(caller, ADMIN)
        if not providers:
            return self._board.matrix
        request = f"p_{self._fresh_token()}"
        await self._append(ProbeRequested(request_id=request, by=caller.subject, at_ms=self._clock_ms()))

        def answered() -> list[str]:
            return [name for name in providers if self._board.matrix.has_answered(request, name)]

        await self._board.until(lambda: len(answered()) == len(providers), timeout_s=limits.PROBE_WAIT_S)
        if not answered():
            raise Declined(
                "probe_unavailable",
                f"no provider was probed within {limits.PROBE_WAIT_S:g} s: see that a runtime is up, and ask again",
                retry_after_s=RETRY_LATER_S,
            )
        return self._board.matrix

    async def _append(self, request: ProbeRequested) -> None:
        outgoing = Outgoing(key=None, value=self._codec.encode(request))
        try:
            async with asyncio.timeout(limits.PUBLISH_WAIT_S):
                await self._appender.append(self._board.topic, PARTITION, [outgoing])
        except (UnknownOutcome, TimeoutError) as error:
            raise Declined(
                "log_unavailable",
                "the log did not acknowledge the request for a probe; asking again does no harm",
                retry_after_s=RETRY_SOON_S,
            ) from error
