"""JSON of times, usage, segments and tool inputs, the same in every response and frame.

Before: values of the log. After: frames, rows and responses.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from loomlog.schemas.generated.values import Segment, Usage

NESTING_CHECKED = 200
"""Brackets in a tool input above which its nesting is checked: more than 254 levels cannot be written as JSON."""
TIME_MS_MAX = 9_223_372_036_854
"""In the year 2262: the last time whose nanoseconds fit 64 bits."""


def parse_input(text: str) -> Any:
    """A tool input as a value; the text itself if it cannot be parsed, or not be written as JSON again."""
    try:
        value = orjson.loads(text)
        if text.count("{") + text.count("[") > NESTING_CHECKED:
            orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text
    return value


def clamp_ms(at_ms: int) -> int:
    """The time, clamped to the range that a timestamp can show."""
    return min(max(at_ms, 0), TIME_MS_MAX)


def to_datetime(at_ms: int) -> datetime:
    """The time in UTC."""
    return datetime.fromtimestamp(clamp_ms(at_ms) / 1000, UTC)


def format_rfc3339(at_ms: int) -> str:
    """The time as every response shows it: UTC to the millisecond, `2026-01-31T12:00:00.000Z`."""
    return to_datetime(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def segments_json(segments: Iterable[Segment]) -> list[dict[str, Any]]:
    """Segments as the caller would have written them: fields at their default are left out."""
    return [
        {
            "role": segment.role,
            "content": [{k: v for k, v in block.to_avro().items() if v} for block in segment.content],
        }
        for segment in segments
    ]


def usage_json(
    usage: Usage,
    *,
    provider: str,
    model: str,
    max_context_tokens: int = 0,
    credential_source: str = "",
    credential_scope: str = "",
    cost_micros: int = 0,
    currency: str = "",
) -> dict[str, Any]:
    """The usage object of `usage` and `done` frames; only that of a single call names its cost and the source of
    its key.
    """
    data: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cache_creation_input_tokens:
        data["cache_creation_input_tokens"] = usage.cache_creation_input_tokens
    if usage.cache_read_input_tokens:
        data["cache_read_input_tokens"] = usage.cache_read_input_tokens
    if model:
        data["model"] = model
    if provider:
        data["provider"] = provider
    if max_context_tokens:
        data["max_context_tokens"] = max_context_tokens
    if credential_source:
        data["credential_source"] = credential_source
    if credential_scope:
        data["credential_scope_id"] = credential_scope
    if cost_micros:
        data |= {"cost_micros": cost_micros, "currency": currency}
    return data
