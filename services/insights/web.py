"""The report over HTTP: /metrics for Prometheus, /insights for the api and `loomlog status`, /healthz.

No token: it listens on loopback unless LOOMLOG_INSIGHTS_HOST names another address, and accepts only loopback and that
name as Host, so that a web page cannot read it through a name of its own. Served by uvicorn in the loop that runs
Faust; Faust's own web server stays off.

Before: app.py gathers a ReportData. After: Prometheus, the command line, a supervisor.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loomlog.services.insights.report import ReportData, render_json, render_metrics
from loomlog.services.insights.settings import LOOPBACK

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BACKLOG = 16
"""Pending connections; the expected clients are a scraper and a person."""
MAX_REQUESTS_AT_ONCE = 16
"""Further requests get 503."""
GRACE_S = 1
"""How long a stop waits for a response under way."""


def create_app(view: Callable[[], ReportData], *, host: str = LOOPBACK) -> Starlette:
    """The three routes; each request calls `view`. `host` is accepted as Host beside loopback."""

    async def insights(request: Request) -> Response:
        return JSONResponse(render_json(view()))

    async def metrics(request: Request) -> Response:
        return Response(render_metrics(view()), media_type=METRICS_TYPE)

    async def healthz(request: Request) -> Response:
        now = view()
        return JSONResponse({"status": "ok", "is_whole": now.is_whole, "lag_records": now.lag_records})

    return Starlette(
        routes=[Route("/insights", insights), Route("/metrics", metrics), Route("/healthz", healthz)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[LOOPBACK, "localhost", host])],
    )


def bind_socket(port: int, *, host: str = LOOPBACK) -> socket.socket:
    """A listening socket; OSError names the address when it is taken or is not one of this machine."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno,
            f"cannot listen on {host}:{port}: {error.strerror}; is another insights running, or is {host} no address "
            "of this machine? Set LOOMLOG_INSIGHTS_HOST or LOOMLOG_INSIGHTS_PORT",
        ) from error
    return listening


async def serve(app: Starlette, listening: socket.socket) -> None:
    """Serves until cancelled; then closes within GRACE_S."""
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=MAX_REQUESTS_AT_ONCE,
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals belong to main, which stops Faust and this server together.
        yield
