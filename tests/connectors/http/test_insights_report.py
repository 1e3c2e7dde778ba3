import asyncio
from collections.abc import Callable

import httpx
import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.http import insights_report as module
from loomlog.connectors.http.insights_report import InsightsClient

URL = "http://127.0.0.1:18901"


def client(answer: Callable[[httpx.Request], httpx.Response]) -> InsightsClient:
    return InsightsClient(URL + "/", transport=httpx.MockTransport(answer))


async def test_the_report_is_asked_for_at_the_address() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"windows": {}, "at_ms": 1})

    insights = client(answer)
    assert await insights.report() == {"windows": {}, "at_ms": 1}
    await insights.close()
    assert [(request.method, str(request.url)) for request in asked] == [("GET", f"{URL}/insights")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(200, text="<html>"), "without a report"),
        (httpx.Response(200, json=[1]), "without a report"),
        (httpx.Response(200, json={"ok": True}), "is that insights"),
        (httpx.Response(404, json={"windows": {}}), "answered 404"),
        (httpx.Response(302, headers={"location": "http://elsewhere/"}), "answered 302"),
    ],
)
async def test_anything_else_than_a_report_is_permanent(answer: httpx.Response, said: str) -> None:
    with pytest.raises(Permanent, match=said):
        await client(lambda request: answer).report()


async def test_a_report_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REPORT_BYTES_MAX", 100)
    with pytest.raises(Permanent, match="larger than 100 bytes"):
        await client(lambda request: httpx.Response(200, content=b" " * 101)).report()


async def test_a_service_that_is_busy_or_away_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Transient, match="answered 503"):
        await client(lambda request: httpx.Response(503)).report()

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(Transient, match="ConnectError: refused"):
        await client(refuse).report()

    class Silent(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(module, "TIMEOUT_S", 0.02)
    with pytest.raises(Transient, match=r"no answer in 0\.02 s"):
        await InsightsClient(URL, transport=Silent()).report()
