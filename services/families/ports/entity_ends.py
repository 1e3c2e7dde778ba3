"""The ends of the topic of entities, for a family that must know how far behind the log a process is.

Before: services/application/bootstrap.py provides them. After: services/families/identity/directory.py.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityEnds:
    """Asks the broker. Raises ConnectorError."""

    read: Callable[[], Awaitable[Mapping[int, int]]]
    """Returns the end of each partition."""
