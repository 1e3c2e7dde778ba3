"""Calls of runs that wait for the approval of people: rows to read, and runs to send decisions to.

Before: services/application/runs/approvals.py provides it. After: services/families/approvals/run_handlers.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from loomlog.projections.interrupts import InterruptPage, InterruptRow
from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import ApprovalGiven, InterruptionClosed
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused


class RecordedEvent(Protocol):
    """An event of a run, as the log has it."""

    @property
    def type(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def payload(self) -> Mapping[str, Any]: ...


class ApprovalCalls(Protocol):
    """All methods raise Refused."""

    async def page(self, caller: Caller, *, statuses: str, run_id: str, limit: int, cursor: str) -> InterruptPage:
        """Return approvals that the caller may see, decrypted, newest first."""
        ...

    async def find(self, caller: Caller, run_id: str, approval_id: str) -> InterruptRow | None:
        """Return an approval of the caller's tenant, as it is stored; None: there is none."""
        ...

    async def decrypted(self, row: InterruptRow) -> InterruptRow:
        """Return a row in plaintext."""
        ...

    async def give(
        self, caller: Caller, row: InterruptRow | None, command: GiveApproval
    ) -> tuple[ApprovalGiven | InterruptionClosed, str]:
        """Send a decision to its run; return the event and its position. `row` None: no read model has the approval
        yet. The command has no envelope, and its reason in plaintext.
        """
        ...

    async def events(self, caller: Caller, run_id: str, cursor: str) -> tuple[Sequence[RecordedEvent], str]:
        """Return a page of the events of a run, and the cursor of the next one; empty: that was the last."""
        ...


def unknown_approval(run_id: str, approval_id: str) -> Refused:
    """Return the refusal for an approval that there is not."""
    return Refused("not_found", f"the run {run_id[:140]} has no approval {approval_id[:140]}")
