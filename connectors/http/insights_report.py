"""The report of the insights service: its shape, and a client that asks for it.

The classes are what services/insights/report.py returns and what the API passes on, so mypy holds both to one shape.
Times are UTC milliseconds, money is in millionths of the currency.

Before: services/api/process_handlers.py. After: httpx, to services/insights/web.py.
"""

import asyncio
from collections.abc import Mapping
from typing import cast

import httpx
import orjson
from typing_extensions import TypedDict

from loomlog.connectors.errors import Permanent, Transient

PATH = "/insights"
TIMEOUT_S = 2.0
"""Seconds for the whole report: insights is on the same machine or beside it."""
REPORT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of a report: three windows of 600 names each are 300 KB."""


class Percentiles(TypedDict):
    """Durations that half and 95 % do not exceed, in milliseconds; null without any."""

    p50: float | None
    p95: float | None


class AgentRate(TypedDict):
    """Runs of an agent; those that failed are errors."""

    tenant: str
    agent: str
    runs: int
    errors: int
    error_ratio: float


class ModelRate(TypedDict):
    """Calls of a model by runs that ended. The durations are of `timed_calls` calls that were answered meanwhile, also
    of runs that go on.
    """

    provider: str
    model: str
    calls: int
    errors: int
    error_ratio: float
    timed_calls: int
    duration_ms: Percentiles


class ModelLatency(TypedDict):
    """Durations of calls of a model that were answered in one minute."""

    provider: str
    model: str
    timed_calls: int
    duration_ms: Percentiles


class ToolRate(TypedDict):
    """Calls of a tool by runs that ended."""

    tool: str
    calls: int
    errors: int
    error_ratio: float


class InsightsWindow(TypedDict):
    """Runs that ended within the last minutes. `partitions`: their number by events partition."""

    covered_s: float
    runs: int
    runs_per_minute: float
    statuses: Mapping[str, int]
    error_ratio: float
    input_tokens_per_minute: float
    output_tokens_per_minute: float
    cost_micros_per_minute: Mapping[str, float]
    duration_ms: Percentiles
    agents: list[AgentRate]
    models: list[ModelRate]
    tools: list[ToolRate]
    partitions: Mapping[str, int]


class InsightsMinute(TypedDict):
    """Runs that ended in one minute: a run that goes on is in none. `tokens` is the sum of both; `models` has the
    busiest eight.
    """

    start_ms: int
    runs: int
    completed: int
    failed: int
    cancelled: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cost_micros: Mapping[str, int]
    duration_ms: Percentiles
    models: list[ModelLatency]
    model_calls: int
    model_errors: int
    tool_calls: int
    tool_errors: int


class InsightsReport(TypedDict):
    """Live figures. `is_whole`: false while the history is read again, so that the figures are too low. `records` and
    `parked` count what was read since the service began: records by outcome, dead letters by kind.
    """

    at_ms: int
    is_whole: bool
    lag_records: int
    history_minutes: int
    windows: Mapping[str, InsightsWindow]
    minutes: list[InsightsMinute]
    records: Mapping[str, int]
    parked: Mapping[str, int]


class InsightsClient:
    """Asks the insights service at an address for its report."""

    def __init__(self, base_url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.base_url, timeout=TIMEOUT_S, trust_env=False, follow_redirects=False, transport=transport
        )

    async def report(self) -> InsightsReport:
        """Return the report as it is now. Raises Transient when it does not answer in time, Permanent for anything
        else than a report.
        """
        content = bytearray()
        try:
            async with asyncio.timeout(TIMEOUT_S), self._http.stream("GET", PATH) as response:
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > REPORT_BYTES_MAX:
                        raise Permanent(
                            f"{self.base_url}{PATH} is larger than {REPORT_BYTES_MAX} bytes", kind="invalid"
                        )
        except (httpx.TimeoutException, TimeoutError) as error:
            raise Transient(f"{self.base_url}{PATH}: no answer in {TIMEOUT_S:g} s", kind="timeout") from error
        except httpx.HTTPError as error:
            raise Transient(f"{self.base_url}{PATH}: {type(error).__name__}: {error}", kind="network") from error
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise Transient(f"{self.base_url}{PATH} answered {response.status_code}", kind="unavailable")
        try:
            report = orjson.loads(content) if response.is_success else None
        except orjson.JSONDecodeError:
            report = None
        if not isinstance(report, dict) or "windows" not in report:
            raise Permanent(
                f"{self.base_url}{PATH} answered {response.status_code} without a report: is that insights?",
                kind="invalid",
            )
        return cast("InsightsReport", report)

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()
