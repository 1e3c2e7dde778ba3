"""The report of insights, asked for at most once in SHARED_S and shared by all requests of that time.

A page of charts asks for it every two seconds, and so does everybody who has one open; insights itself has one loop,
which also reads its topic.

Before: process_handlers.py. After: connectors/http/insights_report.py.
"""

import asyncio
import time
from collections.abc import Callable

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.http.insights_report import InsightsClient, InsightsReport
from loomlog.services.application.errors import RETRY_LATER_S
from loomlog.services.core.refusals import Refused

SHARED_S = 1.0
"""Seconds that a report, or the reason why there is none, is shared by all requests."""
WAIT_S = 4.0
"""Seconds that a request waits at most, also for one before it; longer than a report may take."""
ADVICE = (
    "`loomlog status` shows whether insights runs, `loomlog up` starts it; LOOMLOG_INSIGHTS_URL names it where it does "
    "not run beside the api"
)


class SharedInsights:
    """The report, shared by all requests of a short time. `client` None: insights is switched off."""

    def __init__(self, client: InsightsClient | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at = -SHARED_S
        self._report: InsightsReport | None = None
        self._failure = ""

    @property
    def place(self) -> str:
        """Address of insights; empty when it is switched off."""
        return "" if self._client is None else self._client.base_url

    async def report(self) -> InsightsReport:
        """Return the report, at most SHARED_S old. Raises Refused(insights_unavailable)."""
        if self._client is None:
            raise Refused(
                "insights_unavailable",
                "the api knows no insights to ask: LOOMLOG_INSIGHTS_ENABLED is 0, or LOOMLOG_INSIGHTS_PORT is 0; "
                "LOOMLOG_INSIGHTS_URL names its address",
            )
        try:
            async with asyncio.timeout(WAIT_S), self._lock:
                if self._clock() - self._asked_at >= SHARED_S:
                    await self._ask(self._client)
        except TimeoutError:
            raise _unavailable(f"{self._client.base_url}: no answer in {WAIT_S:g} s") from None
        if self._report is None:
            raise _unavailable(self._failure)
        return self._report

    async def _ask(self, client: InsightsClient) -> None:
        self._report, self._failure = None, ""
        try:
            self._report = await client.report()
        except ConnectorError as error:
            self._failure = str(error)
        self._asked_at = self._clock()

    async def close(self) -> None:
        """Close the connection to insights."""
        if self._client is not None:
            await self._client.close()


def _unavailable(reason: str) -> Refused:
    return Refused(
        "insights_unavailable",
        f"insights has not told its figures: {reason}; {ADVICE}",
        retry_after_s=RETRY_LATER_S,
    )
