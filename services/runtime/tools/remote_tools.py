"""The tools of other microservices, as configured, and the reader of their results.

Before: resources.py. After: connectors/tools/remote_tool.py.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.kafka import KafkaOptions, KafkaRanges, KafkaTail, open_tail
from loomlog.connectors.output_schema import check_output_schema
from loomlog.connectors.protocols import EffectClass, LogAppender, Tool
from loomlog.connectors.tools.remote_calls import REQUESTS_TOPIC, RESULTS_TOPIC, RemoteCallClient
from loomlog.connectors.tools.remote_tool import RemoteTool
from loomlog.schemas.codec import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteToolResources:
    """Open resources of a runtime with remote tools."""

    calls: RemoteCallClient
    results: KafkaTail
    tools: Mapping[str, Tool]


async def open_remote_tools(
    stack: AsyncExitStack,
    configuration: Configuration,
    kafka: KafkaOptions,
    codec: Codec,
    appender: LogAppender,
    *,
    clock_ms: Callable[[], int],
    name: str,
) -> RemoteToolResources | None:
    """Open everything, to be closed with the stack; None without such tools in the configuration. Raises Transient."""
    if not configuration.remote_tools:
        return None
    calls, results = await open_remote_calls(stack, kafka, codec, appender, clock_ms=clock_ms, name=name)
    return RemoteToolResources(
        calls=calls, results=results, tools=build_remote_tools(configuration, calls, clock_ms=clock_ms)
    )


async def open_remote_calls(
    stack: AsyncExitStack,
    kafka: KafkaOptions,
    codec: Codec,
    appender: LogAppender,
    *,
    clock_ms: Callable[[], int],
    name: str,
) -> tuple[RemoteCallClient, KafkaTail]:
    """Open calls over the log, and the tail of their results. Raises Transient."""
    ranges = KafkaRanges(kafka)
    await ranges.start()
    stack.push_async_callback(ranges.close)
    calls = RemoteCallClient(codec, appender, ranges, clock_ms=clock_ms, source=name)
    results = await open_tail(kafka, RESULTS_TOPIC, await calls.catch_up())
    stack.push_async_callback(results.close)
    return calls, results


def build_remote_tools(
    configuration: Configuration, calls: RemoteCallClient, *, clock_ms: Callable[[], int]
) -> dict[str, Tool]:
    """Return the remote tools by name."""
    return {
        name: RemoteTool(
            calls,
            name=name,
            description=block.description,
            input_schema=_to_json(block.input_schema),
            output=check_output_schema(block.output_schema) if block.output_schema else None,
            effect=EffectClass(block.effect),
            timeout_s=float(block.timeout_seconds),
            clock_ms=clock_ms,
            topic=block.topic or REQUESTS_TOPIC,
        )
        for name, block in configuration.remote_tools.items()
    }


def _to_json(value: Any) -> Any:
    """Return a value of a configuration file as JSON types."""
    match value:
        case Mapping():
            return {key: _to_json(entry) for key, entry in value.items()}
        case tuple() | list():
            return [_to_json(entry) for entry in value]
        case Decimal():
            return float(value)
        case _:
            return value
