"""Ids of commands that follow from a request: with its Idempotency-Key the same again.

Before: services/application/application.py provides them. After: families whose commands are not those of a Call.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandIds:
    """Ids by the step of a request that draws them."""

    of_step: Callable[[str], Callable[[], str]]
    issued_at_ms: Callable[[], int]
    """Returns when a command of the present request is issued; 0 for one that may be a repetition, so that its owner
    looks it up.
    """
