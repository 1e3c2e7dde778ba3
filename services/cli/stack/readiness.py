"""Readiness of services, determined from the effect of their work, not from logs or elapsed time.

    api, insights   their own answer over HTTP
    grpc            its health; with TLS, whose names need not be those of this machine, that it listens
    runtime         the Claims of its partitions are in the log
    spare runtime   it has a role: it watches the owners, or owns already
    projector       its row in Postgres states that it projects

The runtime is probed only on our own broker: elsewhere other runtimes may hold partitions, and ours may get none. A
child that is restarted later is ready as soon as it runs; its takeovers are not visible from outside.

Before: services.py. After: stack/child.py calls these until they return None.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.kafka import KafkaOptions, KafkaRanges
from loomlog.connectors.storage.postgres import PostgresOptions, PostgresReader, open_reader
from loomlog.projections.engine.builds import PREFIX, has_status, read_status
from loomlog.services.cli.stack.record import load_record
from loomlog.services.cli.stack.runtime_role import read_role

ReadinessProbe = Callable[[], Awaitable[str | None]]
EVENTS_TOPIC = "loom.run.events"
PROBE_TIMEOUT_S = 2.0
PROBE_INTERVAL_S = 0.15
"""Children are probed every 50 ms, and several may share a probe; the broker need not receive each of them."""
CLOCK_SLACK_S = 1.0
SERVING = b"\x08\x01"
"""The message HealthCheckResponse with the status SERVING."""


def http_probe(client: httpx.AsyncClient, url: str) -> ReadinessProbe:
    """Return a probe that is ready when a GET of `url` succeeds."""

    async def ready() -> str | None:
        try:
            response = await client.get(url, timeout=PROBE_TIMEOUT_S)
        except httpx.HTTPError as error:
            return f"{url} does not answer: {type(error).__name__}"
        return None if response.is_success else f"{url} answers {response.status_code}: {response.text[:300]}"

    return ready


def grpc_probe(address: str, *, has_tls: bool) -> ReadinessProbe:
    """Return a probe that is ready when the gRPC server at the address serves."""

    async def ready() -> str | None:
        if has_tls:
            return await _describe_silence(address)
        import grpc  # takes long to load, and most commands need none of it

        async with grpc.aio.insecure_channel(address) as channel:
            check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
            try:
                state = await check(b"", timeout=PROBE_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                return f"{address} does not answer: {error.code().name}"
        return None if state == SERVING else f"{address} is not ready yet"

    return ready


async def _describe_silence(address: str) -> str | None:
    """Return why nothing can be reached at the address; None when something listens there."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError as error:
        return f"{address} does not answer: {type(error).__name__}"
    writer.close()
    return None


def role_probe(record: Path, child: str) -> ReadinessProbe:
    """Return a probe that is ready when that child of the stack in `record` owns or watches partitions."""

    async def ready() -> str | None:
        stack = await asyncio.to_thread(load_record, record)
        pid = next((one.pid for one in stack.children if one.name == child), None) if stack is not None else None
        role = await read_role(pid) if pid is not None else None
        if role is not None and role.name != "idle":
            return None
        return (role.clock_problem if role is not None else "") or "it neither owns partitions nor watches an owner"

    return ready


class ClaimProbe:
    """Ready when every partition of the events has grown since `start`: an owner has claimed each of them."""

    def __init__(self, options: KafkaOptions, partitions: int) -> None:
        self._ranges = KafkaRanges(options)
        self._start_offsets: dict[int, int] = {}
        self._partitions = range(partitions)
        self._checked_at = -PROBE_INTERVAL_S
        self._reason: str | None = "nothing is claimed yet"

    async def start(self) -> None:
        """Record the ends; call it before the first runtime is started. Raises Transient."""
        await self._ranges.start()
        self._start_offsets = {partition: await self._end_offset(partition) for partition in self._partitions}

    async def check(self) -> str | None:
        now = time.monotonic()
        if self._reason is None or now - self._checked_at < PROBE_INTERVAL_S:
            return self._reason
        self._checked_at = now
        try:
            open_ = [p for p in self._partitions if await self._end_offset(p) == self._start_offsets[p]]
        except ConnectorError as error:
            self._reason = str(error)
        else:
            named = ", ".join(map(str, open_))
            self._reason = f"partition {named} of {EVENTS_TOPIC} has no owner yet" if open_ else None
        if self._reason is None:
            # Not used again, and it would log errors when the broker stops.
            await self._ranges.close()
        return self._reason

    async def close(self) -> None:
        await self._ranges.close()

    async def _end_offset(self, partition: int) -> int:
        return await self._ranges.end_offset(EVENTS_TOPIC, partition)


class ProjectionProbe:
    """Ready when a projector has reported since its creation that it projects. `same_clock`: Postgres is on this
    machine.
    """

    def __init__(self, options: PostgresOptions, *, same_clock: bool) -> None:
        self._options = options
        self._since_s = time.time() - CLOCK_SLACK_S if same_clock else 0.0
        self._reader: PostgresReader | None = None
        self._was_ready = False

    async def start(self) -> None:
        self._reader = await open_reader(self._options, schema=PREFIX, max_connections=1)

    async def check(self) -> str | None:
        assert self._reader is not None, "begin() first"
        if self._was_ready:
            return None
        try:
            rows = await read_status(self._reader) if await has_status(self._reader) else []
        except ConnectorError as error:
            return f"its tables cannot be read: {error}"
        if any(row.state == "projecting" and row.at.timestamp() >= self._since_s for row in rows):
            self._was_ready = True
            await self._reader.close()
            return None
        return "it has not said yet that it projects"

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
