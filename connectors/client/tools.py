"""Tools served over Kafka: reads requests, does each once, writes results. Needs aiokafka.

    async def add(arguments: dict[str, Any]) -> str:
        ...
    await serve_tool("127.0.0.1:19092", "add_to_order", add, ResultFile(Path("results.json")))

The rules of a correct service, which `serve_tool` follows:

- The key of a result is the key of its request: it routes the result to the owner of the run.
- The work and its result are stored under the idempotency key before the result is sent: a repeated request (a consumer
  restarted, a runtime died) gets the stored result. Work and result are atomic only when both are in one store: a
  handler
  that writes to a database stores its result there (`Results`), in the same transaction.
- A request past its deadline is not executed: its result would be ignored, and the model got a timeout.
- The offset is committed after the result is in the log.

Processes with the same group share the partitions.

Before: programs of users. After: aiokafka, schemas/codec.py.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

from loomlog.connectors.client.errors import Unreachable
from loomlog.schemas.codec import Undecodable, local_codec
from loomlog.schemas.generated.stream_records import RemoteToolRequest, RemoteToolResult

REQUESTS_TOPIC, RESULTS_TOPIC = "loom.tool.requests", "loom.tool.results"
Handler = Callable[[dict[str, Any]], Awaitable[str]]
"""Executes a call; receives its arguments, returns the text for the model. ToolFailed reports an error to the model."""


class ToolFailed(Exception):
    """The call failed; the model receives the message as an error result."""


class StoredResult(NamedTuple):
    text: str
    is_error: bool


class Results(Protocol):
    """Stored results by idempotency key. `save` is durable when it returns."""

    def load(self, key: str) -> StoredResult | None: ...
    def save(self, key: str, result: StoredResult) -> None: ...


class ResultFile:
    """Results in one JSON file, replaced atomically at each save: for small services and examples."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[str, list[Any]] = json.loads(path.read_text()) if path.exists() else {}

    def load(self, key: str) -> StoredResult | None:
        stored = self._results.get(key)
        return None if stored is None else StoredResult(*stored)

    def save(self, key: str, result: StoredResult) -> None:
        self._results[key] = list(result)
        temporary = self._path.with_name(self._path.name + ".new")
        with temporary.open("w") as file:
            json.dump(self._results, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


async def serve_tool(
    bootstrap: str,
    tool: str,
    handler: Handler,
    results: Results,
    *,
    group: str = "",
    requests_topic: str = REQUESTS_TOPIC,
    results_topic: str = RESULTS_TOPIC,
    on_event: Callable[[str, str, str], None] = lambda outcome, request_id, text: None,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Serve a tool until cancelled. `on_event` receives started, done, repeated or late, the request id and the text.

    Raises Unreachable when no broker answers at the start.
    """
    consumer = AIOKafkaConsumer(
        requests_topic,
        bootstrap_servers=bootstrap,
        group_id=group or tool,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **(options or {}),
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", **(options or {}))
    try:
        try:
            await producer.start()
            await consumer.start()
        except KafkaError as error:
            raise Unreachable(f"the broker at {bootstrap} does not answer: {error}") from error
        on_event("started", "", "")
        async for record in consumer:
            if ("ce_subject", tool.encode()) in record.headers:
                value = await _answer(record.value, handler, results, on_event)
                if value is not None:
                    await producer.send_and_wait(results_topic, key=record.key, value=value)
            await consumer.commit()
    finally:
        await consumer.stop()
        await producer.stop()


async def _answer(
    value: bytes, handler: Handler, results: Results, on_event: Callable[[str, str, str], None]
) -> bytes | None:
    """Return the encoded result of a request; None when it is no request or too late."""
    try:
        request = local_codec().decode(value).record
    except Undecodable:
        return None
    if not isinstance(request, RemoteToolRequest):
        return None
    result = results.load(request.idempotency_key)
    outcome = "repeated"
    if result is None:
        if request.deadline_ms < time.time() * 1000:
            on_event("late", request.request_id, "")
            return None
        try:
            result = StoredResult(await handler(json.loads(request.input)), False)
        except ToolFailed as failure:
            result = StoredResult(str(failure), True)
        await asyncio.to_thread(results.save, request.idempotency_key, result)
        outcome = "done"
    on_event(outcome, request.request_id, result.text)
    return local_codec().encode(
        RemoteToolResult(
            idempotency_key=request.idempotency_key,
            request_id=request.request_id,
            run_id=request.run_id,
            tenant=request.tenant,
            text=result.text,
            is_error=result.is_error,
        )
    )
