"""Metrics endpoint of a runtime, on this machine only: GET /metrics.

A scraper sends one request every few seconds, so this is an asyncio server of one page and not a framework: no thread,
no second loop, and it reads only a few hundred bytes of a request. It answers only to 127.0.0.1 and localhost, so that
a web page cannot read it through its own host name.

Several runtimes on one machine: each takes the next free port after the configured one and logs which.

Before: exposition.py. After: Prometheus.
"""

import asyncio
import errno
import socket
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST

ADDRESS = "127.0.0.1"
ALLOWED_HOSTS = frozenset({ADDRESS, "localhost"})
PORTS_TRIED = 50
"""Ports tried; more runtimes than that on one machine would not help it."""
BACKLOG = 16
MAX_CONNECTIONS = 8
"""Maximum connections at once; further ones are closed unanswered."""
MAX_HEAD_BYTES = 8 * 1024
READ_TIMEOUT_S = 5.0
"""Seconds to read the whole head of a request; a scraper sends it at once."""
WRITE_TIMEOUT_S = 10.0


def bind_socket(port: int) -> socket.socket:
    """Return a socket on the port or, when it is taken, on the next free one of PORTS_TRIED; 0 takes any. Raises
    OSError.
    """
    for candidate in (0,) if port == 0 else range(port, min(port + PORTS_TRIED, 65_536)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Takes a port whose last connections are still closing. Of two processes that start together one fails in
            # listen().
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((ADDRESS, candidate))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return listener
    raise OSError(
        errno.EADDRINUSE,
        f"no free port for the metrics from {port} on {ADDRESS} ({PORTS_TRIED} tried); "
        "set LOOMLOG_RUNTIME_METRICS_PORT, or 0 for any",
    )


async def serve(listening: socket.socket, render_metrics: Callable[[], bytes]) -> None:
    """Serve the text of `render_metrics` as /metrics until cancelled."""
    under_way = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal under_way
        if under_way >= MAX_CONNECTIONS:
            writer.close()
            return
        under_way += 1
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
            writer.write(_handle_request(head, render_metrics))
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # not a request, or the client has disconnected: no response can be sent
        finally:
            under_way -= 1
            writer.close()

    server = await asyncio.start_server(answer, sock=listening, limit=MAX_HEAD_BYTES)
    async with server:
        await server.serve_forever()


def _handle_request(head: bytes, render_metrics: Callable[[], bytes]) -> bytes:
    line, *fields = head.decode("latin-1").split("\r\n")
    method, _, rest = line.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    hosts = [value.strip() for name, _, value in (field.partition(":") for field in fields) if name.lower() == "host"]
    if len(hosts) != 1 or not {hosts[0], hosts[0].rpartition(":")[0]} & ALLOWED_HOSTS:
        return _build_response(421, "this server answers to 127.0.0.1 and localhost only\n", method)
    if path != "/metrics":
        return _build_response(404, "there is only /metrics here\n", method)
    if method not in ("GET", "HEAD"):
        return _build_response(405, "GET it\n", method)
    return _build_response(200, render_metrics(), method, CONTENT_TYPE_LATEST)


REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 421: "Misdirected Request"}


def _build_response(
    status: int, body: bytes | str, method: str, content_type: str = "text/plain; charset=utf-8"
) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\n{allow}"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else data)
