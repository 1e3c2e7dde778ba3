"""Questions of runs to people (interruptions), and stopping a turn: what a person sends to a run in addition to the
next text.

Lists come from the read models, restricted to what the caller may see: its tenant, or for an isolated caller its own
runs. An answer is a command like any other (control.py): in the log first, then decided by the owner of the run, which
alone knows whether the question is still open. A question that has ended according to the read models is refused
without involving the owner.

Before: a transport. After: control.py, services/application/queries/runs.py.
"""

from dataclasses import dataclass
from functools import partial

from loomlog.projections.interrupts import PENDING, STATUSES, InterruptFilter, InterruptRow
from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.run_commands import CancelTurn, ResolveInterruption
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InterruptionClosed,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
)
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request, owner_refusal
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.control import RunControl, already_ended
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import AccessFilter, Caller, access_filter
from loomlog.services.core.refusals import Refused
from loomlog.services.families.operation import sanitize_reason
from loomlog.services.stream.encryption.subject_keys import ContentEncryptor

ANSWER, DECLINED = "answer", "declined"
"""Ways to resolve a question."""
KINDS = ("question",)
TURN_END_EVENTS = (RunParked, RunPaused, ModelCallRequested, RunCompleted)
"""Events that can be the last of a stopped turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptResponse:
    """A person's response to a question. `resolved_by` names that person; empty: the caller."""

    kind: str = "question"
    disposition: str = ANSWER
    answer: str = ""
    resolved_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptResult:
    """A question that is no longer open. The time is in UTC milliseconds."""

    interrupt_id: str
    status: str
    resolved_at_ms: int
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStopped:
    """A turn that was stopped; `parked` is false when the run continues at once, or has had its last turn."""

    run_id: str
    parked: bool
    position: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptList:
    """A page of interruptions, newest first; `next` is empty at the end, `total` counts all pages."""

    rows: tuple[InterruptRow, ...]
    next: str
    total: int


class InterruptActions:
    """The use cases. All methods raise Refused."""

    def __init__(self, sources: StreamSources, reads: RunQueries, control: RunControl) -> None:
        self._sources = sources
        self._reads = reads
        self._control = control

    # --- lists -------------------------------------------------------------------------------------------------------

    async def list_of_run(self, caller: Caller, run_id: str, *, status: str = "") -> InterruptList:
        """Return the interruptions of a run. Raises not_found."""
        row = await self._reads.visible_run(caller, run_id)
        interrupt_filter = InterruptFilter(run_id=run_id, statuses=parse_statuses(status))
        return await self._list(AccessFilter(tenant=row.tenant, user_id=None), interrupt_filter, limit=limits.LIST_MAX)

    async def list_all(
        self, caller: Caller, *, user_id: str = "", status: str = "", limit: int = limits.LIST_DEFAULT, after: str = ""
    ) -> InterruptList:
        """Return the interruptions the caller may see, optionally of one user."""
        allowed = access_filter(caller)
        interrupt_filter = InterruptFilter(user_id=user_id, statuses=parse_statuses(status))
        if allowed.user_id is not None:
            if user_id not in ("", allowed.user_id):
                raise Refused("not_found", f"there is no user {user_id}")
            approver = "" if user_id else allowed.user_id
            interrupt_filter = replace(interrupt_filter, user_id=allowed.user_id, approver=approver)
        await self._sources.barrier.wait_for_own_writes(None)
        return await self._list(allowed, interrupt_filter, limit=limit, after=after)

    async def _list(
        self, allowed: AccessFilter, criteria: InterruptFilter, *, limit: int, after: str = ""
    ) -> InterruptList:
        page = await self._sources.projection.interrupts(
            scope_of(allowed), criteria, limit=max(1, min(limit, limits.LIST_MAX)), after=after
        )
        rows = await self._sources.content.decrypt_interrupts(page.rows)
        return InterruptList(rows=rows, next=page.next, total=page.total)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def resolve(
        self, caller: Caller, run_id: str, interrupt_id: str, response: InterruptResponse
    ) -> InterruptResult:
        """Answer or decline a question.

        Raises not_found, invalid_answer, interrupt_closed, interrupt_expired, resolve_pending.
        """
        check_response(response)
        row = await self._reads.visible_run(caller, run_id)
        await self._check_pending(row.tenant, run_id, interrupt_id, is_live=row.status == "running")
        envelope = self._control.envelope(caller, row)
        seal = await self._sources.content.encryptor_for(row.tenant, row.user_id)
        command = ResolveInterruption(
            envelope=envelope,
            run_id=run_id,
            interrupt_id=interrupt_id,
            disposition=response.disposition,
            answer=response.answer if seal is None else seal(response.answer, False),
            resolved_by=_name_of(response.resolved_by, seal),
        )
        item = await self._control.send_command(row, command)
        if item is None:
            why = await self._control.pending_error(
                "resolve_pending", row, "the answer is in the log and reaches the run"
            )
            raise await self._already_closed(row, interrupt_id) if why.code == "not_found" else why
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if not isinstance(event, InterruptionClosed):
            raise await self._already_closed(row, interrupt_id)
        if event.interrupt_id != interrupt_id or event.status not in ("resolved", DECLINED):
            raise _already_closed_error(interrupt_id, event.status)
        return InterruptResult(
            interrupt_id=interrupt_id,
            status=event.status,
            resolved_at_ms=item.envelope.at_ms,
            position=self._control.position(item),
        )

    async def cancel_turn(self, caller: Caller, run_id: str, reason: str = "") -> TurnStopped:
        """Stop the current turn of an interactive run.

        Raises not_found, already_completed, not_interactive, not_mid_turn, cancel_pending.
        """
        reason = sanitize_reason(reason)
        row = await self._reads.run_target(caller, run_id)
        if row.status != "running":
            raise _already_completed(run_id, row.status)
        command = CancelTurn(envelope=self._control.envelope(caller, row), run_id=run_id, reason=reason)
        is_it = partial(_is_turn_end, command_id=command.envelope.command_id)
        item = await self._control.send_command(row, command, is_it)
        if item is None:
            raise await self._control.pending_error("cancel_pending", row, "the cancel is in the log and takes effect")
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if item.envelope.cause_id != command.envelope.command_id:
            raise _already_completed(run_id, "ended")
        return TurnStopped(run_id=run_id, parked=isinstance(event, RunParked), position=self._control.position(item))

    async def _already_closed(self, row: RunRow, interrupt_id: str) -> Refused:
        """Return the refusal for a run that has ended since it was read.

        Mostly another answer was first; then the refusal has the status of the question.
        """
        await self._check_pending(row.tenant, row.run_id, interrupt_id, is_live=False)
        return already_ended(row.run_id)

    async def _check_pending(self, tenant: str, run_id: str, interrupt_id: str, *, is_live: bool) -> None:
        """Raise Refused when the read models show that the question has ended or does not exist."""
        unknown = Refused("not_found", f"the run {run_id} has no interrupt {interrupt_id[:140]}")
        if not ID_PATTERN.match(interrupt_id):
            raise unknown
        lag = await self._sources.barrier.wait_for_own_writes(self._sources.partition_of(run_id))
        row = await self._sources.projection.interrupt(tenant, run_id, interrupt_id)
        if row is not None and row.status != PENDING:
            raise _already_closed_error(interrupt_id, row.status or "")
        if row is None and not is_live:
            raise not_yet_error(unknown.message, lag) if lag else unknown


def check_response(response: InterruptResponse) -> None:
    """Raise Refused(invalid_answer) for a response that is invalid by itself."""
    if response.kind not in KINDS:
        raise Refused("invalid_answer", f"kind is {response.kind[:60]!r}: expected question")
    if response.disposition not in (ANSWER, DECLINED):
        raise Refused("invalid_answer", f"disposition is {response.disposition[:60]!r}: expected answer or declined")
    if response.disposition == DECLINED and response.answer:
        raise Refused("invalid_answer", "answer: expected none when disposition is declined")
    if response.disposition == ANSWER and not response.answer:
        raise Refused("invalid_answer", "answer is missing: expected the text of the answer")
    if len(response.answer.encode(errors="replace")) > limits.ANSWER_BYTES_MAX:
        raise Refused("payload_too_large", f"answer: at most {limits.ANSWER_BYTES_MAX} bytes")


def parse_statuses(text: str) -> frozenset[str]:
    """Parse `all`, or statuses separated by commas; empty means pending. Raises Refused."""
    if text == "all":
        return frozenset()
    statuses = frozenset(part.strip() for part in (text or PENDING).split(","))
    if not statuses <= set(STATUSES):
        raise bad_request(f"status is {text[:60]!r}: expected all, or some of {', '.join(STATUSES)}")
    return statuses


def _already_closed_error(interrupt_id: str, status: str) -> Refused:
    code = "interrupt_expired" if status == "timed_out" else "interrupt_closed"
    return Refused(code, f"the question {interrupt_id} is {status} already")


def _is_turn_end(item: EventItem, command_id: str) -> bool:
    """Whether the event ends a turn to be stopped: the reply to the command, or the end of the run."""
    if item.envelope.cause_id == command_id:
        return isinstance(item.record, (*TURN_END_EVENTS, CommandRefused))
    return isinstance(item.record, RunCompleted | RunFailed | RunCancelled)


def _already_completed(run_id: str, status: str) -> Refused:
    return Refused("already_completed", f"the run {run_id} has ended already ({status}); there is no turn to stop")


def _name_of(resolved_by: str, seal: ContentEncryptor | None) -> str:
    """Return the name of the person for storage; quotes would break the JSON of the tool result."""
    name = sanitize_reason(resolved_by)[: limits.NAME_BYTES_MAX].replace('"', "'").replace("\\", "/")
    return name if seal is None or not name else seal(name, False)
