"""Calls of runs that wait for the approval of people: read from the read models, decided by the owners of the runs
(port ApprovalCalls).

A decision is a command like any other (control.py): in the log first, then decided by the owner of the run, which alone
knows who is asked, how many have approved, and whether the call still waits.

Before: services/families/approvals/run_handlers.py. After: services/core/run/interrupts/approvals.py.
"""

from collections.abc import Sequence
from dataclasses import replace as replace_page
from typing import TYPE_CHECKING

from loomlog.projections.interrupts import PENDING, InterruptFilter, InterruptPage, InterruptRow
from loomlog.schemas.generated.run_commands import GiveApproval
from loomlog.schemas.generated.run_events import ApprovalGiven, CommandRefused, InterruptionClosed
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import replace
from loomlog.services.application.errors import owner_refusal
from loomlog.services.application.queries.audit_log import EventQuery
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.application.runs.control import already_ended
from loomlog.services.application.runs.interrupts import parse_statuses
from loomlog.services.application.runs.run_target import CommandTarget, RunTarget
from loomlog.services.core.access.decide import AccessFilter, Caller, access_filter
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.interrupts.questions import APPROVAL
from loomlog.services.families.ports.approval_calls import RecordedEvent, unknown_approval

if TYPE_CHECKING:
    from loomlog.services.application.application import Application

EVENTS_PAGE = 500
"""Events of one page of a recorded run."""


class RunApprovals:
    """See ApprovalCalls. The use cases are taken from the Application when they are needed: it is built later."""

    def __init__(self, application: "Application") -> None:
        self._application = application

    async def page(self, caller: Caller, *, statuses: str, run_id: str, limit: int, cursor: str) -> InterruptPage:
        """Return approvals that the caller may see."""
        sources, allowed = self._application.sources, access_filter(caller)
        user = allowed.user_id or ""
        criteria = InterruptFilter(
            kind=APPROVAL, statuses=parse_statuses(statuses), run_id=run_id, user_id=user, approver=user
        )
        await sources.barrier.wait_for_own_writes(None)
        page = await sources.projection.interrupts(scope_of(allowed), criteria, limit=limit, after=cursor)
        return replace_page(page, rows=await sources.content.decrypt_interrupts(page.rows))

    async def find(self, caller: Caller, run_id: str, approval_id: str) -> InterruptRow | None:
        """Return an approval of the caller's tenant."""
        sources = self._application.sources
        if not (ID_PATTERN.match(run_id) and ID_PATTERN.match(approval_id)):
            raise unknown_approval(run_id, approval_id)
        lag = await sources.barrier.wait_for_own_writes(sources.partition_of(run_id))
        scope = scope_of(AccessFilter(tenant=access_filter(caller).tenant, user_id=None))
        row = await sources.projection.interrupt(scope, run_id, approval_id)
        if row is None and lag:
            raise not_yet_error(unknown_approval(run_id, approval_id).message, lag)
        return row if row is not None and row.kind == APPROVAL else None

    async def decrypted(self, row: InterruptRow) -> InterruptRow:
        """Return a row in plaintext."""
        (plain,) = await self._application.sources.content.decrypt_interrupts([row])
        return plain

    async def give(
        self, caller: Caller, row: InterruptRow | None, command: GiveApproval
    ) -> tuple[ApprovalGiven | InterruptionClosed, str]:
        """Send a decision."""
        control = self._application.control
        target = await self._target(caller, row, command)
        seal = await self._application.sources.content.encryptor_for(target.tenant, target.user_id)
        reason = seal(command.reason, False) if seal is not None and command.reason else command.reason
        sent = replace(command, envelope=control.envelope(caller, target), reason=reason)
        item = await control.send_command(target, sent)
        if item is None:
            raise await control.pending_error("resolve_pending", target, "the decision is in the log")
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if not isinstance(event, ApprovalGiven | InterruptionClosed):
            raise already_ended(command.run_id)
        return event, control.position(item)

    async def _target(self, caller: Caller, row: InterruptRow | None, command: GiveApproval) -> CommandTarget:
        """Return where a decision goes. Raises Refused when the approval has ended or does not exist."""
        if row is None:
            target = await self._application.queries.visible_target(caller, command.run_id)
            if target.status != "running":
                raise unknown_approval(command.run_id, command.interrupt_id)
            return target  # its owner may know the approval already
        if row.status != PENDING:
            raise Refused("approval_closed", f"the approval {command.interrupt_id} is {row.status} already")
        return RunTarget(run_id=row.run_id, tenant=row.tenant, user_id=row.user_id or "", agent_id=row.agent_id or "")

    async def events(self, caller: Caller, run_id: str, cursor: str) -> tuple[Sequence[RecordedEvent], str]:
        """Return a page of the events of a run."""
        query = EventQuery(run_id=run_id, limit=EVENTS_PAGE, cursor=cursor)
        page = await self._application.audit_log.events(caller, query)
        return page.events, page.next
