"""When runs started.

Before: services/application/application.py provides it. After: services/families/memory/handlers.py.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Tells when runs started; provided by processes that have their rows."""

    started_at_ms: Callable[[str, str], Awaitable[int | None]]
    """Takes tenant and run; returns None for a run that there is not. Raises Refused."""
