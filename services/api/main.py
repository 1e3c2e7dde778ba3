"""The API process: HTTP and server-sent events.

    python -m loomlog.services.api.main                  serves until SIGTERM or SIGINT, exits with 0 within 5 s
    python -m loomlog.services.api.main --print-openapi  prints the OpenAPI document and exits

Listens at once and answers 503 `starting` until the broker and Postgres are available. Several may run behind one
address; they share only the log and the read models. An unexpected exception ends the process with 1, so that its
supervisor restarts it (no silent death). On a stop, open streams end with a comment that contains the reason; clients
reconnect to another process with Last-Event-ID.

Before: the environment and the configuration files. After: app.py, services/application/bootstrap.py.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.services.api.app import build_app
from loomlog.services.api.openapi import encode_document
from loomlog.services.api.process import build_service, end_streams, run_application, run_process
from loomlog.services.api.service import Service, installed_version
from loomlog.services.api.settings import ApiSettings, api_settings
from loomlog.services.core.bounded_resources import EVENT_STREAMS, REQUESTS, STARTED_STREAMS, WAITING_REQUESTS
from loomlog.services.core.refusals import StartProblem
from loomlog.services.web.static_files import WebPage, WebPageError, load_web_page

log = logging.getLogger("loomlog.api")

PING_S = 20.0
"""Seconds between two pings of a WebSocket, and to wait for the pong; then a client counts as lost."""
GRACE_S = 3
"""Seconds that requests in progress may take to finish after a stop; streams are ended at once."""
CLOSE_WAIT_S = 1.5
"""Seconds that the broker and Postgres clients may take to close; together with GRACE_S below 5 seconds."""
BACKLOG = 2_048
OPEN_FILES = (
    sum(resource.shares.total for resource in (EVENT_STREAMS, STARTED_STREAMS, WAITING_REQUESTS, REQUESTS)) + 1_000
)
"""Maximum open files: one connection for each; the rest is for the broker, Postgres and files."""
HEADERS_WAIT_S = 30.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
KEEP_ALIVE_S = 75
"""Seconds an idle connection is kept open; longer than a typical proxy's timeout, so that the proxy closes first."""


class ApiServer(uvicorn.Server):
    """uvicorn server that leaves signals to us and calls `on_stopping` before it waits for open requests."""

    def __init__(self, config: uvicorn.Config, *, on_stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stopping = on_stopping

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stopping()
        await super().shutdown(sockets)


class TimedHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a time limit for the headers of a request; it has none of its own."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._set_timer()

    def on_message_begin(self) -> None:
        self._set_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._cancel_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _set_timer(self) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(HEADERS_WAIT_S, self.transport.close)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ClientWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, corrected for handshakes that were refused with a response.

    uvicorn considers such a handshake unanswered and logs an error: for it, only an accepted or plainly closed one is
    complete.
    """

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True


async def run(loaded: ProcessConfiguration) -> None:
    """Run until SIGTERM or SIGINT, or until a failure."""
    settings = api_settings(loaded.settings)
    service = build_service(loaded, settings)
    service.web_page, service.web_page_absence = _load_page(settings)
    if (allowed := raise_open_file_limit(OPEN_FILES)) < OPEN_FILES:
        log.warning(
            "at most %d open files are allowed (ulimit -Hn), %d are enough for every stream", allowed, OPEN_FILES
        )
    listening = _open_socket(settings)
    server = ApiServer(
        _server_config(service, settings.endpoints.client_limits.frame_bytes), on_stopping=lambda: end_streams(service)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, server)
    where = "{}:{}".format(*listening.getsockname()[:2])
    log.info("listening on http://%s as %s", where, settings.replica_id)
    if service.authenticator.open_mode:
        log.warning("open mode: no token is configured, so everybody who reaches %s is an administrator", where)
    work = asyncio.create_task(run_application(service, loaded, settings), name="work")
    serving = asyncio.create_task(server.serve([listening]), name="server")
    await asyncio.wait({work, serving}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    if work.done():
        work.result()
    work.cancel()
    await asyncio.wait({work}, timeout=CLOSE_WAIT_S)
    for model in service.models.values():
        await model.close()
    await service.insights.close()
    await service.authenticator.providers.close()
    log.info("stopped")


def _load_page(settings: ApiSettings) -> tuple[WebPage | None, str]:
    """Return the web page, or why there is none. Without its files the API works all the same."""
    if not settings.ui_enabled:
        return None, "it is switched off (LOOMLOG_UI_ENABLED=0)"
    try:
        return load_web_page(installed_version()), ""
    except WebPageError as error:
        log.error("the web page is not served: %s", error)
        return None, str(error)


def _server_config(service: Service, frame_bytes: int) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(service),
        http=TimedHttpProtocol,
        loop="none",
        ws=ClientWebSocketProtocol,
        ws_max_size=frame_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,  # a decompression bomb would be expanded up to the limit, again and again
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


def _open_socket(settings: ApiSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise StartProblem(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror}; "
            "stop what listens there, or set LOOMLOG_LISTEN_ADDR"
        ) from error


def _stop(server: uvicorn.Server) -> None:
    log.info("stopping")
    server.should_exit = True


def main(arguments: Sequence[str] = ()) -> int:
    """Run the process; return its exit code."""
    if list(arguments) == ["--print-openapi"]:
        sys.stdout.write(encode_document(installed_version()).decode() + "\n")
        return 0
    if arguments:
        print("usage: python -m loomlog.services.api.main [--print-openapi]", file=sys.stderr)  # noqa: T201 - to a terminal
        return 2
    return run_process("api", run, log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
