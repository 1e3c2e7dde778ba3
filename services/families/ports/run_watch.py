"""Runs that are about to start, and what becomes of them, for those that answer a request with it.

Before: families that start runs for requests. After: services/application/runs/run_watch.py.
"""

from typing import Any, Protocol

from loomlog.schemas.generated.run_events import RunRefused, RunStarted
from loomlog.schemas.records import Value


class EndedRun(Value, frozen=True, kw_only=True):
    """A run that has ended, or waits for its user."""

    agent_id: str
    status: str
    final_text: str
    result: Any
    """The record of a run with an output schema; None: it has none."""


class ExpectedRun(Protocol):
    """A run whose beginning is waited for. Close it after use."""

    async def first_event(self, deadline: float) -> RunStarted | RunRefused | None:
        """Return the first event of the run; None when there is none in time."""
        ...

    def close(self) -> None:
        """Wait for nothing more."""
        ...


class RunWatch(Protocol):
    """The runs that this process hears of."""

    def expect(self, run_id: str) -> ExpectedRun:
        """Hear of a run that is about to start."""
        ...

    async def end(self, tenant: str, run_id: str, timeout_s: float) -> EndedRun | None:
        """Return the end of a run that has started; None when it is not known in time."""
        ...
