"""The text of a definition, and the times in requests about one.

Before: decide.py, table.py, operations.py. After: loomlog.connectors.definitions.
"""

from datetime import UTC, datetime
from typing import Any

import orjson

from loomlog.connectors.definitions import DefinitionProblem


def parse_content(text: str) -> dict[str, Any]:
    """Return the content in its canonical JSON. Raises DefinitionProblem."""
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise DefinitionProblem("invalid_definition", f"content: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise DefinitionProblem("invalid_definition", "content: expected an object")
    return content


def parse_time_ms(text: str, field: str) -> int:
    """Return an RFC 3339 time in UTC milliseconds; 0 for an empty text. Raises DefinitionProblem."""
    if not text:
        return 0
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None or time.year < 1970:
        raise DefinitionProblem("invalid_definition", f"{field} is {text[:60]!r}: expected a time of RFC 3339")
    return int(time.astimezone(UTC).timestamp() * 1000)
