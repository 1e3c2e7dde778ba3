import asyncio
from typing import Any

import httpx
import pytest

from loomlog.connectors.http.insights_report import InsightsClient, InsightsReport
from loomlog.services.api import shared_insights as module
from loomlog.services.api.shared_insights import SharedInsights
from tests.services.api.serving import Served

REPORT: InsightsReport = {
    "at_ms": 1,
    "is_whole": True,
    "lag_records": 0,
    "history_minutes": 1,
    "windows": {},
    "minutes": [],
    "records": {"RunCompleted": 3},
    "parked": {},
}


class Insights(httpx.AsyncBaseTransport):
    """The insights service, which can be away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False
        self.hangs = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_away:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=REPORT)


def install(here: Served) -> tuple[Insights, dict[str, float]]:
    """Insights behind the api, and the clock of what is shared."""
    insights, now = Insights(), {"s": 0.0}
    client = InsightsClient("http://127.0.0.1:18901", transport=insights)
    here.service.insights = SharedInsights(client, clock=lambda: now["s"])
    return insights, now


async def get(here: Served) -> Any:
    return await here.client().get("/v1/_insights")


async def test_the_report_of_insights_is_passed_on(here: Served) -> None:
    install(here)
    answer = await get(here)
    assert (answer.status_code, answer.json()) == (200, REPORT)


async def test_all_requests_of_a_second_share_one_report(here: Served) -> None:
    insights, now = install(here)
    await asyncio.gather(*(get(here) for _ in range(10)))
    now["s"] = 0.9
    await get(here)
    assert insights.asked == 1
    now["s"] = 1.0
    await get(here)
    assert insights.asked == 2


async def test_insights_that_is_away_is_a_503_with_advice_which_is_shared_too(here: Served) -> None:
    insights, now = install(here)
    insights.is_away = True
    for _ in range(2):
        answer = await get(here)
        assert (answer.status_code, answer.json()["code"]) == (503, "insights_unavailable")
        assert "http://127.0.0.1:18901/insights: ConnectError: refused" in answer.json()["error"]
        assert "`loomlog status`" in answer.json()["error"]
        assert answer.headers["retry-after"] == "5"
    assert insights.asked == 1
    insights.is_away, now["s"] = False, 1.0
    assert (await get(here)).status_code == 200


async def test_a_request_waits_for_insights_within_a_bound(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.02)
    insights, _ = install(here)
    insights.hangs = True
    answer = await get(here)
    assert (answer.status_code, answer.json()["code"]) == (503, "insights_unavailable")
    insights.hangs = False
    assert (await get(here)).status_code == 200


async def test_without_an_address_it_says_which_settings_name_one(here: Served) -> None:
    answer = await get(here)
    assert (answer.status_code, answer.json()["code"]) == (503, "insights_unavailable")
    assert "LOOMLOG_INSIGHTS_URL" in answer.json()["error"]
