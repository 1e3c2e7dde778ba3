"""Answers of calls that wait in their runs until something else has happened.

Before: services/runtime/run/wait_answers.py asks. After: services/families/channel/call_waits.py.
"""

from typing import Any, Protocol

from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import QueueRef
from loomlog.schemas.records import Value
from loomlog.services.core.operations import AnyOperation
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Wait
from loomlog.services.families.operation import RunAnswer


class EndedWait(Value, frozen=True, kw_only=True):
    """A call whose wait is over. What the fields mean is said in WaitResults (services/runtime/run/context.py)."""

    operation: AnyOperation
    asked: Any
    """Input of the operation."""
    report: ReportWait
    wait: Wait
    facts: RunFacts
    tenant: str
    satisfied: bool
    is_isolated: bool
    """Whether the subject of the run is confined to what is its own."""


class CallWaits(Protocol):
    """What waits, and the leases of what it was given."""

    async def answer(self, ended: EndedWait) -> RunAnswer[Any]:
        """Return the answer of the call. Raises Refused, Unavailable, Transient."""
        ...

    def release_lease(self, queue: QueueRef, lease_id: str, taken: int) -> None:
        """Tell a queue how many messages of a lease were taken; the work is done beside the run."""
        ...
