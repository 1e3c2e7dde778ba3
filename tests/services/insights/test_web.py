"""The three routes, served for real on a free port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from loomlog.services.insights.report import ReportData
from loomlog.services.insights.web import bind_socket, create_app, serve
from tests.services.insights.given import NOW_MS

EMPTY_VIEW = ReportData(
    now_ms=NOW_MS, history_minutes=15, cells={}, records={}, parked={}, lag_records=0, is_whole=False
)


@asynccontextmanager
async def served(host: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    with bind_socket(0, host=host) as listening:
        serving = asyncio.create_task(serve(create_app(lambda: EMPTY_VIEW, host=host), listening))
        address = "http://{}:{}".format(*listening.getsockname())
        try:
            async with httpx.AsyncClient(base_url=address, timeout=30, trust_env=False) as client:
                yield client
        finally:
            serving.cancel()
            async with asyncio.timeout(30):
                await asyncio.gather(serving, return_exceptions=True)


async def test_the_report_is_served_as_json_and_as_metrics() -> None:
    async with served() as client:
        assert (await client.get("/insights")).json()["is_whole"] is False
        metrics = await client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "loomlog_insights_is_whole 0.0" in metrics.text
        assert (await client.get("/healthz")).json() == {"status": "ok", "is_whole": False, "lag_records": 0}


async def test_another_host_name_and_an_unknown_route_are_refused() -> None:
    async with served() as client:
        assert (await client.get("/insights", headers={"host": "evil.example"})).status_code == 400
        assert (await client.get("/elsewhere")).status_code == 404
        assert (await client.post("/insights")).status_code == 405


async def test_an_address_that_is_configured_is_listened_on_and_accepted_as_host() -> None:
    async with served("127.0.0.2") as client:
        assert client.base_url.host == "127.0.0.2"
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/healthz", headers={"host": "localhost"})).status_code == 200
        assert (await client.get("/healthz", headers={"host": "evil.example"})).status_code == 400


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0.*LOOMLOG_INSIGHTS_HOST"):
        bind_socket(0, host="192.0.2.1")


def test_a_port_in_use_is_named() -> None:
    with bind_socket(0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}.*LOOMLOG_INSIGHTS_PORT"):
            bind_socket(port)
