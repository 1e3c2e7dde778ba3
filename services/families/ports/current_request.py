"""The present request of a process, as far as families need it: ids of commands that follow from its Idempotency-Key,
so that a repetition gives the same again, and where it came from.

Before: services/application/application.py provides them. After: families whose commands are not those of a Call.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRequest:
    """Functions of the present request."""

    command_ids: Callable[[str], Callable[[], str]]
    """Returns what draws the ids of commands of a step."""
    issued_at_ms: Callable[[], int]
    """Returns when a command of the present request is issued; 0 for one that may be a repetition, so that its owner
    looks it up.
    """
    origin: Callable[[], tuple[str, str]]
    """Returns its transport and its id."""
