"""Probing the model providers at the request of an operator.

The request is a record of loom.provider.events, like the results: the responsible runtime probes every provider, and
this process reads the results. So an operator sees what the runtimes see, from their machines.

Before: a transport. After: services/runtime/models/provider_probe.py.
"""

import asyncio
from collections.abc import Callable, Collection

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.protocols import LogAppender, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ProbeRequested
from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_LATER_S, RETRY_SOON_S
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.availability import AvailabilityTable
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable


class ProviderProbes:
    """The use case. Raises Refused."""

    def __init__(
        self,
        global_table: GlobalTable[AvailabilityTable],
        appender: LogAppender,
        codec: Codec,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
    ) -> None:
        self._global_table = global_table
        self._appender = appender
        self._codec = codec
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token

    async def probe(self, caller: Caller, providers: Collection[str]) -> tuple[AvailabilityTable, str]:
        """Return the table after all of these providers were probed, or as many as responded before the timeout, and
        the position of the request, empty when there was no provider to probe.

        Raises probe_unavailable when none was: no runtime is up.
        """
        if not providers:
            return self._global_table.table, ""
        request = f"p_{self._fresh_token()}"
        position = await self._publish(ProbeRequested(request_id=request, by=caller.subject, at_ms=self._clock_ms()))

        def answered() -> list[str]:
            return [name for name in providers if self._global_table.table.has_answered(request, name)]

        await self._global_table.wait_for(lambda: len(answered()) == len(providers), timeout_s=limits.PROBE_WAIT_S)
        if not answered():
            raise Refused(
                "probe_unavailable",
                f"no provider was probed within {limits.PROBE_WAIT_S:g} s: see that a runtime is up, and ask again",
                retry_after_s=RETRY_LATER_S,
            )
        return self._global_table.table, str(position)

    async def _publish(self, request: ProbeRequested) -> Position:
        """Return the position of the request, once it is in the log. Raises Refused(log_unavailable)."""
        topic, record = self._global_table.topic, ProducerRecord(key=None, value=self._codec.encode(request))
        try:
            async with asyncio.timeout(limits.PUBLISH_WAIT_S):
                offset = await self._appender.append(topic, PARTITION, [record])
        except (UnknownOutcome, TimeoutError) as error:
            raise Refused(
                "log_unavailable",
                "the log did not acknowledge the request for a probe; asking again does no harm",
                retry_after_s=RETRY_SOON_S,
                details={"outcome": "unknown"},
            ) from error
        return Position(topic=topic, partition=PARTITION, offset=offset)
