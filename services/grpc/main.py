"""The gRPC process.

    python -m loomlog.services.grpc.main     serves until SIGTERM or SIGINT, exits with 0 within 5 s

Listens at once; until the log and the read models are available its health is NOT_SERVING and every RPC but Health
UNAVAILABLE. Several may run behind one address; they share only the log and the read models. An unexpected exception
ends the process with 1, so that its supervisor restarts it. On a stop, open streams end with UNAVAILABLE; clients go
on with StreamRun in another process.

Before: the environment and the configuration files. After: server.py, services/api/process.py.
"""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial

import grpc
from grpc_health.v1.health import aio as health

from loomlog.connectors.configuration.load import ProcessConfiguration
from loomlog.connectors.process.file_limits import raise_open_file_limit
from loomlog.services.api.process import build_service, end_streams, run_application, run_process
from loomlog.services.api.service import Service
from loomlog.services.core.bounded_resources import EVENT_STREAMS, STARTED_STREAMS
from loomlog.services.grpc.front import Front
from loomlog.services.grpc.server import build_server, listen, set_serving
from loomlog.services.grpc.settings import grpc_settings

log = logging.getLogger("loomlog.grpc")

GRACE_S = 2.0
"""Seconds that RPCs in progress may take to finish after a stop; streams are ended at once."""
CLOSE_WAIT_S = 1.5
"""Seconds that the broker and Postgres clients may take to close; together with GRACE_S below 5 seconds."""
OPEN_FILES = EVENT_STREAMS.shares.total + STARTED_STREAMS.shares.total + 1_000
"""Maximum open files: a connection may have one stream only; the rest is for the broker, Postgres and files."""


async def run(loaded: ProcessConfiguration) -> None:
    """Run until SIGTERM or SIGINT, or until a failure."""
    settings = grpc_settings(loaded.settings)
    service = build_service(loaded, settings.shared)
    raise_open_file_limit(OPEN_FILES)
    server, state = build_server(
        Front(service), message_bytes_max=settings.shared.max_request_bytes, has_reflection=settings.has_reflection
    )
    await set_serving(state, is_serving=False)
    port = listen(server, settings.address, certificate=settings.certificate, key=settings.key)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await server.start()
    log.info("listening on port %d of %s as %s", port, settings.address, settings.shared.replica_id)
    working = run_application(
        service, loaded, settings.shared, name="grpc", on_ready=partial(set_serving, state, is_serving=True)
    )
    work = asyncio.create_task(working, name="work")
    stopped = asyncio.create_task(stopping.wait(), name="stop")
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    stopped.cancel()
    await _stop(service, server, state)
    if work.done():
        work.result()
    work.cancel()
    await asyncio.wait({work}, timeout=CLOSE_WAIT_S)
    for model in service.models.values():
        await model.close()
    await service.insights.close()
    await service.authenticator.providers.close()
    log.info("stopped")


async def _stop(service: Service, server: grpc.aio.Server, state: health.HealthServicer) -> None:
    await state.enter_graceful_shutdown()
    end_streams(service)
    await server.stop(GRACE_S)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the process; return its exit code."""
    if arguments:
        print("usage: python -m loomlog.services.grpc.main", file=sys.stderr)  # noqa: T201 - to a terminal
        return 2
    return run_process("grpc", run, log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
