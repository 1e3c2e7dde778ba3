"""Times, usage, segments and tool inputs as every answer and every frame writes them.

Before: values of the log. After: frames, rows and answers, which all show them alike.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from loomlog.schemas.generated.values import Segment, Usage

NESTING_CHECKED = 200
"""Brackets in a tool input above which its nesting is tried: deeper than 254 levels cannot be written as JSON."""
TIME_MS_MAX = 9_223_372_036_854
"""In the year 2262: the last time whose nanoseconds fit 64 bits."""


def parse_input(text: str) -> Any:
    """A tool input as a value. What cannot be read, or could not be written again, stays the text it was."""
    try:
        value = orjson.loads(text)
        if text.count("{") + text.count("[") > NESTING_CHECKED:
            orjson.dumps(value)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return text
    return value


def clamp_ms(at_ms: int) -> int:
    """The time itself, or the nearest that can be shown when an event has one that no calendar has."""
    return min(max(at_ms, 0), TIME_MS_MAX)


def to_datetime(at_ms: int) -> datetime:
    """The time in UTC."""
    return datetime.fromtimestamp(clamp_ms(at_ms) / 1000, UTC)


def format_rfc3339(at_ms: int) -> str:
    """The time as every answer shows it: UTC to the millisecond, `2026-01-31T12:00:00.000Z`."""
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
) -> dict[str, Any]:
    """The usage object of `usage` and `done` frames; only that of one call says whose key it was made with."""
    found: dict[str, Any] = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    if usage.cache_creation_input_tokens:
        found["cache_creation_input_tokens"] = usage.cache_creation_input_tokens
    if usage.cache_read_input_tokens:
        found["cache_read_input_tokens"] = usage.cache_read_input_tokens
    if model:
        found["model"] = model
    if provider:
        found["provider"] = provider
    if max_context_tokens:
        found["max_context_tokens"] = max_context_tokens
    if credential_source:
        found["credential_source"] = credential_source
    if credential_scope:
        found["credential_scope_id"] = credential_scope
    return found
