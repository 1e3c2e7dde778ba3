"""Probes whether providers are reachable and which models they list: one replica probes, all read the result.

The owner of run partition 0 probes, so there is a prober as long as any runtime works. Two for a moment do no harm: a
probe is a request without tokens, and the later answer counts. Every provider is probed again after `interval_s`; one
that is unreachable or has a stalled model after UNHEALTHY_INTERVAL_S; all of them on request.

Before: the global table has the last known state. After: services/stream/global_tables/providers.py folds the answers.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from loomlog.connectors.errors import ConnectorError, UnknownOutcome
from loomlog.connectors.protocols import LogAppender, Model, ProducerRecord
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import ProviderProbed
from loomlog.services.core.availability import ERROR_MAX, AvailabilityTable
from loomlog.services.runtime.models.availability import KEY_FAILURES
from loomlog.services.stream.global_tables.global_table import PARTITION, GlobalTable

log = logging.getLogger("loomlog.runtime")

INTERVAL_RANGE_S = (60.0, 3_600.0)
"""Least and most seconds between two probes of a provider (parity); the default is in the settings."""
UNHEALTHY_INTERVAL_S = 60.0
"""Seconds between probes of a provider that is unreachable or has a stalled model; until it recovers, runs skip it."""
POLL_S = 1.0
"""Seconds between checks whether a probe is due, without a wake-up."""
PROBE_WAIT_S = 10.0
"""Seconds to wait for one provider; a slower one counts as unreachable."""
MODELS_MAX = 2_000
"""Model names kept of a list; a gateway may list thousands, and a record has to fit one append."""
NAME_MAX = 200
"""Characters of a model name; a longer one is no configured model."""


class ProviderProber:
    """Prober of one runtime; `run` decides through `is_active` whether it probes."""

    def __init__(
        self,
        global_table: GlobalTable[AvailabilityTable],
        models: Mapping[str, Model],
        *,
        codec: Codec,
        appender: LogAppender,
        clock_ms: Callable[[], int],
        name: str,
        interval_s: float,
    ) -> None:
        least_s, most_s = INTERVAL_RANGE_S
        self._interval_ms = int(min(max(interval_s, least_s), most_s) * 1000)
        self._global_table = global_table
        self._models = models
        self._codec = codec
        self._appender = appender
        self._clock_ms = clock_ms
        self._name = name

    async def run(self, is_active: Callable[[], bool]) -> None:
        """Probe what is due while this runtime is the active prober, until cancelled."""
        while True:
            if is_active():
                request, due = self.due_probes(self._clock_ms())
                await self.probe(due, request)
            await self._global_table.wait_for(lambda: is_active() and bool(self._open_request()), timeout_s=POLL_S)

    def due_probes(self, now_ms: int) -> tuple[str, tuple[str, ...]]:
        """Return the open request (empty when only time makes probes due) and the providers to probe now."""
        request = self._open_request()
        if request:
            return request, tuple(
                name for name in self._models if not self._global_table.table.has_answered(request, name)
            )
        return "", tuple(name for name in self._models if self._is_due(name, now_ms))

    async def probe(self, names: tuple[str, ...], request_id: str = "") -> None:
        """Probe these providers concurrently and publish each answer as soon as it arrives."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._probe_one(name, request_id), name=f"probe {name}")

    async def _probe_one(self, name: str, request_id: str) -> None:
        probed = await probe_provider(
            name, self._models[name], request_id=request_id, by=self._name, clock_ms=self._clock_ms
        )
        before = self._global_table.table.providers.get(name)
        if before is not None and probed.reachable != before.reachable:
            # A provider that was never reachable (a local server that is not installed) is not reported.
            log.warning("%s %s", name, "answers again" if probed.reachable else f"does not answer: {probed.error}")
        try:
            self._global_table.apply_locally(probed)
            await self._appender.append(
                self._global_table.topic, PARTITION, [ProducerRecord(key=None, value=self._codec.encode(probed))]
            )
        except (UnknownOutcome, ValueError) as error:
            log.warning("the probe of %s could not be published: %s", name, error)

    def _is_due(self, name: str, now_ms: int) -> bool:
        probed = self._global_table.table.providers.get(name)
        if probed is None:
            return True
        wait_ms = self._interval_ms
        if not probed.reachable or self._global_table.table.stalled_since_ms(name):
            wait_ms = min(wait_ms, int(UNHEALTHY_INTERVAL_S * 1000))
        return now_ms - probed.checked_at_ms >= wait_ms

    def _open_request(self) -> str:
        """Return the newest request that a provider has not been probed for; it covers the older ones too."""
        table = self._global_table.table
        newest = table.request_ids[-1] if table.request_ids else ""
        return newest if newest and any(not table.has_answered(newest, name) for name in self._models) else ""


async def probe_provider(
    name: str, model: Model, *, request_id: str = "", by: str = "", clock_ms: Callable[[], int]
) -> ProviderProbed:
    """Probe a provider and return the outcome. A provider that answers and lists nothing is reachable."""
    error = ""
    listed: tuple[str, ...] = ()
    reachable = key_refused = False
    try:
        async with asyncio.timeout(PROBE_WAIT_S):
            await model.probe()
        reachable = True
        async with asyncio.timeout(PROBE_WAIT_S):
            listed = tuple(sorted({text for text in await model.list_models() if len(text) <= NAME_MAX})[:MODELS_MAX])
    except (ConnectorError, TimeoutError) as failure:
        error = f"no answer within {PROBE_WAIT_S:g} s" if isinstance(failure, TimeoutError) else str(failure)
        key_refused = not reachable and isinstance(failure, ConnectorError) and failure.kind in KEY_FAILURES
    return ProviderProbed(
        provider=name,
        reachable=reachable,
        models=listed,
        error=error[:ERROR_MAX],
        request_id=request_id,
        by=by,
        at_ms=clock_ms(),
        key_refused=key_refused,
    )
