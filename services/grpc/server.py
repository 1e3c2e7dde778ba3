"""The listener: which RPCs there are, limits of connections and messages, TLS, health and reflection.

    /loomcycle.v1.Loomcycle/*        the RPCs
    /grpc.health.v1.Health/*         without a token; serving once log and read models have answered
    reflection                       with LOOMLOG_GRPC_REFLECTION

Before: main.py. After: front.py, streams.py.
"""

from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from loomlog.services.core.refusals import StartProblem
from loomlog.services.grpc.front import Front
from loomlog.services.grpc.messages import POOL, SERVICE, service_descriptor
from loomlog.services.grpc.streams import STREAMS, stream_handler

HEADERS_BYTES_MAX = 32 * 1024
"""Metadata of a request."""
STREAMS_PER_CONNECTION = 1_000
"""RPCs under way of one connection; further ones wait in their client. Each takes part in the shares of its caller."""
PING_EVERY_MS = 30_000
"""Silence after which a client is asked whether it is there."""
PING_WAIT_MS = 20_000
PINGS_NOT_BELOW_MS = 10_000
"""A client that pings more often than that is disconnected after PING_STRIKES_MAX times."""
PING_STRIKES_MAX = 3
IDLE_MS = 30 * 60_000
"""A connection without RPCs is closed after this time; its client opens another when it needs one."""


class LoomHandlers(grpc.GenericRpcHandler):
    """Finds the handler of an RPC. An RPC that the service does not have is answered too, with a sentence."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._handlers = {method.name: front.handler(method.name) for method in service_descriptor().methods}
        self._handlers |= {row.name: stream_handler(front, row) for row in STREAMS}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        prefix, _, name = handler_call_details.method.rpartition("/")
        if prefix != f"/{SERVICE}":
            return None
        return self._handlers.get(name) or self._front.handler(name)


def build_server(
    front: Front, *, message_bytes_max: int, has_reflection: bool
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    """Return a server that listens nowhere yet, and what says whether it serves."""
    server = grpc.aio.server(options=_options(message_bytes_max))
    server.add_generic_rpc_handlers((LoomHandlers(front),))
    state = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    if has_reflection:
        reflection.enable_server_reflection((SERVICE,), server, pool=POOL)
    return server, state


async def set_serving(state: health.aio.HealthServicer, *, is_serving: bool) -> None:
    """Say whether the service serves."""
    status = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
    for name in ("", SERVICE):
        await state.set(name, status)


def listen(server: grpc.aio.Server, address: str, *, certificate: Path | None, key: Path | None) -> int:
    """Bind the address; returns the port. Raises StartProblem."""
    try:
        if certificate is None or key is None:
            return server.add_insecure_port(address)
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
        return server.add_secure_port(address, credentials)
    except OSError as error:
        raise StartProblem(f"LOOMLOG_GRPC_TLS_CERT, LOOMLOG_GRPC_TLS_KEY: {error}") from error
    except RuntimeError as error:
        text = f"cannot listen on {address}: stop what listens there, or set LOOMLOG_GRPC_ADDR ({error})"
        raise StartProblem(text) from error


def _options(message_bytes_max: int) -> Sequence[tuple[str, int]]:
    return (
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),  # answers have bounds of their own
        ("grpc.max_metadata_size", HEADERS_BYTES_MAX),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.keepalive_time_ms", PING_EVERY_MS),
        ("grpc.keepalive_timeout_ms", PING_WAIT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", PINGS_NOT_BELOW_MS),
        ("grpc.http2.max_ping_strikes", PING_STRIKES_MAX),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.so_reuseport", 0),
    )
