"""Tools that clients offer to runs: the global table of registrations as tools, and the reader of their results.

The reader is opened when the first client registers, or when a call of one is recovered: most installations have none,
and it would read every result of every other tool.

Before: resources.py. After: connectors/tools/client_tool.py, for the toolset.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from loomlog.connectors.protocols import LogAppender, LogRecord, LogTail, Tool
from loomlog.connectors.retries import until_answered
from loomlog.connectors.tools.client_tool import ClientSideTool, RemoteCaller
from loomlog.connectors.tools.remote_calls import ExpiryWatch, RemoteCallClient
from loomlog.schemas.codec import Codec
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult
from loomlog.services.core.clients.table import ClientTable
from loomlog.services.runtime.settings import RuntimeSettings
from loomlog.services.runtime.tools.remote_tools import RemoteToolResources, open_remote_calls
from loomlog.services.stream.global_tables.clients import clients
from loomlog.services.stream.global_tables.global_table import GlobalTable, GlobalTables

log = logging.getLogger("loomlog.runtime")

SCHEMA_CACHE_MAX = 1_000
"""Schemas that are kept as objects; at each turn a model is shown all of its run."""

OpenedCalls = tuple[RemoteCallClient, LogTail]


class LazyRemoteCalls:
    """Calls over the log whose results are read from the first call on (protocol RemoteCaller)."""

    def __init__(self, opener: Callable[[AsyncExitStack], Awaitable[OpenedCalls]]) -> None:
        self._opener = opener
        self._activated = asyncio.Event()
        self._ready = asyncio.Event()
        self._calls: RemoteCallClient | None = None
        self.on_unreadable: Callable[[LogRecord, str], None] | None = None
        """As RemoteCallClient.on_unreadable; None keeps the default."""

    def activate(self) -> None:
        """Start reading results: calls are to be expected."""
        self._activated.set()

    async def run(self) -> None:
        """Read results from the activation on, until cancelled."""
        await self._activated.wait()
        async with AsyncExitStack() as stack:
            calls, tail = await self._open_with_retry(stack)
            if self.on_unreadable is not None:
                calls.on_unreadable = self.on_unreadable
            self._calls = calls
            self._ready.set()
            await calls.follow(tail)

    async def call(self, topic: str, request: RemoteToolRequest, *, since_ms: int | None = None) -> RemoteToolResult:
        return await (await self._wait_for_calls()).call(topic, request, since_ms=since_ms)

    async def wait_for_result(
        self, topic: str, idempotency_key: str, tenant: str, since_ms: int, *, expiry_watch: ExpiryWatch
    ) -> RemoteToolResult | str:
        return await (await self._wait_for_calls()).wait_for_result(
            topic, idempotency_key, tenant, since_ms, expiry_watch=expiry_watch
        )

    async def _wait_for_calls(self) -> RemoteCallClient:
        self.activate()
        await self._ready.wait()
        assert self._calls is not None
        return self._calls

    async def _open_with_retry(self, stack: AsyncExitStack) -> OpenedCalls:
        async def open_calls() -> OpenedCalls:
            async with AsyncExitStack() as trying:
                calls = await self._opener(trying)
                await stack.enter_async_context(trying.pop_all())
                return calls

        return await until_answered(open_calls, "reading results of clients' tools")


class ClientTools:
    """The tools of clients, for a ProcessToolset: `tools_for` and `missing_tool`."""

    def __init__(
        self,
        global_table: GlobalTable[ClientTable],
        calls: RemoteCaller,
        *,
        timeout_s: float,
        clock_ms: Callable[[], int],
    ) -> None:
        self._global_table = global_table
        self._calls = calls
        self._timeout_s = timeout_s
        self._clock_ms = clock_ms

    def tools_for(self, tenant: str, subject: str) -> Mapping[str, Tool]:
        """Return the tools that are offered to the runs of a principal now, by name."""
        offered = self._global_table.table.offered_tools(tenant, subject, self._clock_ms())
        return {
            name: ClientSideTool(
                self._calls,
                name=name,
                description=tool.tool.description,
                input_schema=_parse_schema(tool.tool.input_schema),
                connection_id=tool.connection_id,
                is_connected=self._is_connected,
                timeout_s=self._timeout_s,
                clock_ms=self._clock_ms,
            )
            for name, tool in offered.items()
        }

    def missing_tool(self, name: str) -> Tool:
        """Return a tool that no client offers: it refuses calls, and reports what the log has of a lost one."""
        return ClientSideTool(
            self._calls,
            name=name,
            input_schema={"type": "object"},
            connection_id="",
            is_connected=self._is_connected,
            timeout_s=self._timeout_s,
            clock_ms=self._clock_ms,
        )

    def _is_connected(self, request: RemoteToolRequest) -> bool:
        return self._global_table.table.is_connected(
            request.tenant, request.subject, request.connection_id, self._clock_ms()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientToolResources:
    """Open resources of a runtime for the tools of clients."""

    tools: ClientTools
    results: LazyRemoteCalls | None
    """None = results of remote tools are read anyway."""

    def start_tasks(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the background tasks."""
        if self.results is None:
            return []
        return [tasks.create_task(self.results.run(), name="results of clients' tools")]


async def open_client_tools(
    tables: GlobalTables,
    settings: RuntimeSettings,
    codec: Codec,
    appender: LogAppender,
    remote: RemoteToolResources | None,
    *,
    topic: str,
    clock_ms: Callable[[], int],
) -> ClientToolResources:
    """Read the connected clients before the first turn of a model, and open the resources. Raises Transient."""
    global_table = GlobalTable(codec, topic, clients(clock_ms))
    await tables.open(global_table)

    async def open_results(within: AsyncExitStack) -> OpenedCalls:
        return await open_remote_calls(within, settings.kafka, codec, appender, clock_ms=clock_ms, name=settings.name)

    results: LazyRemoteCalls | None = None
    calls: RemoteCaller
    if remote is not None:
        calls = remote.calls
    else:
        calls = results = LazyRemoteCalls(open_results)
        global_table.changed = results.activate
        if global_table.table.principals:
            results.activate()
    tools = ClientTools(global_table, calls, timeout_s=settings.client_tool_timeout_s, clock_ms=clock_ms)
    return ClientToolResources(tools=tools, results=results)


@lru_cache(maxsize=SCHEMA_CACHE_MAX)
def _parse_schema(text: str) -> Mapping[str, Any]:
    schema = json.loads(text)
    assert isinstance(schema, dict), "a registration holds objects only"
    return schema
