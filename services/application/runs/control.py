"""Commands to a live run: the next user text, pause, quarantine, and cancel.

All are handled like a start: durable in the log first, then decided by the run's owner, whose event is awaited for a
short time. A run that has ended meanwhile produces no event, so the read models are checked as well. Repeating a cancel
is harmless; an input is sent once, and when its outcome is unknown the response reports that.

Before: a transport. After: services/application/command_publisher.py, services/application/streaming/event_hub.py.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CloseResident,
    Command,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResumeRun,
)
from loomlog.schemas.generated.run_events import (
    CommandRefused,
    InputReceived,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunPauseRequested,
    RunQuarantined,
    RunReleased,
    RunResumed,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.schemas.ids import command_identity, partition_key
from loomlog.schemas.records import Value
from loomlog.services.application import limits
from loomlog.services.application.command_publisher import CommandPublisher
from loomlog.services.application.errors import RETRY_SOON_S, key_reused, owner_refusal
from loomlog.services.application.payloads import store_text
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.request_context import command_id as make_command_id
from loomlog.services.application.request_context import current_request
from loomlog.services.application.runs.requests import check_input, check_result
from loomlog.services.application.runs.run_target import CommandTarget
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.application.streaming.subscription import Subscription
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.decide import ALREADY_APPLIED
from loomlog.services.families.operation import sanitize_reason

SOURCES = ("api", "webui")
"""Sources of a user text."""


class InputAccepted(Value, frozen=True, kw_only=True):
    """A user text that is now in the run's history."""

    run_id: str
    position: str


class CancelResult(Value, frozen=True, kw_only=True):
    """Result of a cancel; `cancelled` is false when the run had already ended otherwise."""

    agent_id: str
    run_id: str
    status: str
    reason: str
    position: str
    cascaded: tuple[str, ...] = ()
    """Handles of its live descendants, which end with it."""

    @property
    def cancelled(self) -> bool:
        return self.status == "cancelled"


class CallResolutionResult(Value, frozen=True, kw_only=True):
    """A call of unknown outcome that now has its result, or is repeated."""

    run_id: str
    is_repeated: bool
    position: str


class PauseResult(Value, frozen=True, kw_only=True):
    """A run whose pause or quarantine was set or lifted."""

    run_id: str
    agent_id: str
    position: str


def already_ended(run_id: str) -> Refused:
    """Return the refusal of a command to a run that has ended."""
    return Refused("not_found", f"the run {run_id} is not in flight: it has ended")


class RunControl:
    """The use cases for live runs."""

    def __init__(
        self,
        sources: StreamSources,
        reads: RunQueries,
        publisher: CommandPublisher,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        wait_s: float = limits.CONTROL_WAIT_S,
    ) -> None:
        self._sources = sources
        self._reads = reads
        self._publisher = publisher
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._wait_s = wait_s

    async def post_input(self, caller: Caller, run_id: str, text: str, *, source: str = "api") -> InputAccepted:
        """Send a run the next user text. Raises Refused: empty_text, not_found, queue_full, input_pending."""
        check_input(text)
        assert source in SOURCES, source
        row = await self.require_running(caller, run_id)
        envelope = self.envelope(caller, row)
        seal = await self._sources.content.encryptor_for(row.tenant, row.user_id)
        stored_text, blob = await store_text(text if seal is None else seal(text, False), self._sources.blobs)
        command = PostInput(envelope=envelope, run_id=run_id, text=stored_text, source=source, text_blob=blob)
        item = await self.send_command(row, command)
        if item is None:
            raise await self.pending_error("input_pending", row, "the text is in the log and will reach the run")
        event = item.record
        if isinstance(event, CommandRefused) and event.code == ALREADY_APPLIED:
            return InputAccepted(run_id=run_id, position=self.position(item))
        if isinstance(event, CommandRefused):
            declined = owner_refusal(event.code, event.message)
            declined.retry_after_s = RETRY_SOON_S if event.code == "queue_full" else declined.retry_after_s
            raise declined
        if not isinstance(event, InputReceived):
            raise already_ended(run_id)
        return InputAccepted(run_id=run_id, position=self.position(item))

    async def cancel(self, caller: Caller, agent_id: str, reason: str = "", *, run_id: str = "") -> CancelResult:
        """Cancel the live run of a handle, or the given run of it.

        Raises Refused: unknown_agent_id, not_found, cancel_pending.
        """
        reason = sanitize_reason(reason)
        if not run_id:
            return await self._cancel(caller, await self._reads.handle_target(caller, agent_id), reason)
        row = await self._reads.run_target(caller, run_id)
        if row.agent_id != agent_id:
            raise Refused("unknown_agent_id", f"the run {run_id} does not have the handle {agent_id[:140]}")
        return await self._cancel(caller, row, reason)

    async def cancel_run(self, caller: Caller, run_id: str, reason: str = "") -> CancelResult:
        """Cancel a run by its id, because its handle may belong to a newer run by now. Raises
        not_found, like `cancel`.
        """
        reason = sanitize_reason(reason)
        return await self._cancel(caller, await self._reads.run_target(caller, run_id), reason)

    async def close_resident(self, caller: Caller, run_id: str, reason: str = "") -> CancelResult:
        """Close a resident sub-agent; one that has ended is unchanged. Raises Refused: not_found,
        cancel_pending.
        """
        row = await self.check_resident(caller, run_id)
        if row.status != "running":
            return await self._decrypt_result(self._result_from_row(row), row)
        command = CloseResident(envelope=self.envelope(caller, row), run_id=run_id, reason=sanitize_reason(reason))
        return await self._send_ending_command(row, command, "the close is in the log and takes effect")

    async def check_resident(self, caller: Caller, run_id: str) -> RunRow:
        """Return the row of a resident sub-agent. Raises Refused: not_found."""
        row = await self._reads.controlled_run(caller, run_id)
        if not row.resident:
            raise Refused("not_found", f"the run {run_id} is no resident sub-agent")
        return row

    async def _cancel(self, caller: Caller, row: CommandTarget, reason: str) -> CancelResult:
        if isinstance(row, RunRow) and row.status != "running":
            return await self._decrypt_result(self._result_from_row(row), row)
        command = CancelRun(envelope=self.envelope(caller, row), run_id=row.run_id, reason=reason)
        return await self._send_ending_command(row, command, "the cancel is in the log and takes effect")

    async def _send_ending_command(
        self, row: CommandTarget, command: CancelRun | CloseResident, pending: str
    ) -> CancelResult:
        item = await self.send_command(row, command, _is_ending)
        if item is None:
            now = await self._read_row(row)
            if now is not None and now.status != "running":
                return await self._decrypt_result(self._result_from_row(now), row)
            raise await self.pending_error("cancel_pending", row, pending)
        return await self._decrypt_result(self._result_from_event(row, item), row)

    async def _decrypt_result(self, result: CancelResult, row: CommandTarget) -> CancelResult:
        return await self._sources.content.decrypt(result, row.tenant)

    async def resolve(
        self, caller: Caller, run_id: str, turn: int, index: int, *, done: bool, result: str = ""
    ) -> CallResolutionResult:
        """Report the outcome of a call that waits for it.

        Raises Refused: not_found, nothing_to_resolve, run_paused, resolve_pending.
        """
        check_result(result, done=done)
        row = await self.require_running(caller, run_id)
        envelope = self.envelope(caller, row)
        seal = await self._sources.content.encryptor_for(row.tenant, row.user_id)
        text = result if seal is None else seal(result, False)
        command = ResolveCall(envelope=envelope, run_id=run_id, turn=turn, index=index, done=done, result=text)
        item = await self.send_command(row, command)
        if item is None:
            raise await self.pending_error("resolve_pending", row, "the answer is in the log and will reach the run")
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if not isinstance(event, ToolReturned | ToolCallRequested):
            raise already_ended(run_id)
        repeated = isinstance(event, ToolCallRequested)
        return CallResolutionResult(run_id=run_id, is_repeated=repeated, position=self.position(item))

    async def send_and_settle(
        self,
        caller: Caller,
        row: RunRow,
        make_command: Callable[[CommandEnvelope], Command],
        is_reply: Callable[[EventItem, str], bool],
        *,
        pending: str,
        wait_s: float,
    ) -> EventItem:
        """Send a command of another use case; returns the event for which `is_reply` (event, command id) is true, or
        the run's end.

        Raises Refused: not_found when the run had ended, `pending` when there was no reply within `wait_s`.
        """
        envelope = self.envelope(caller, row)

        def settles(item: EventItem) -> bool:
            return is_reply(item, envelope.command_id) or _is_ending(item)

        item = await self.send_command(row, make_command(envelope), settles, wait_s=wait_s)
        if item is None:
            raise await self.pending_error(pending, row, "the command is in the log and takes effect", wait_s=wait_s)
        return item

    async def pause(self, caller: Caller, run_id: str, reason: str = "") -> PauseResult:
        """Pause a run before its next model call. Raises Refused: not_found, already_pausing."""
        reason = sanitize_reason(reason)
        row = await self.require_running(caller, run_id)
        command = PauseRun(envelope=self.envelope(caller, row), run_id=run_id, reason=reason)
        return await self._pause_or_resume(row, command, pending="pause_pending")

    async def resume(self, caller: Caller, run_id: str) -> PauseResult:
        """Lift the pause of a run; wider pauses still hold it. Raises Refused: not_found, not_paused."""
        row = await self.require_running(caller, run_id)
        command = ResumeRun(envelope=self.envelope(caller, row), run_id=run_id)
        return await self._pause_or_resume(row, command, pending="pause_pending")

    async def quarantine(self, caller: Caller, run_id: str, reason: str = "") -> PauseResult:
        """Quarantine a run until it is released; its calls are stopped.

        Raises Refused: not_found, already_quarantined.
        """
        reason = sanitize_reason(reason)
        row = await self.require_running(caller, run_id)
        command = QuarantineRun(envelope=self.envelope(caller, row), run_id=run_id, reason=reason)
        return await self._pause_or_resume(row, command, pending="quarantine_pending")

    async def release(self, caller: Caller, run_id: str, reason: str = "") -> PauseResult:
        """Fold a quarantined run again and let it continue.

        Raises Refused: not_found, not_quarantined, and run_quarantined when it still cannot be folded.
        """
        reason = sanitize_reason(reason)
        row = await self.require_running(caller, run_id)
        command = ReleaseRun(envelope=self.envelope(caller, row), run_id=run_id, reason=reason)
        return await self._pause_or_resume(row, command, pending="quarantine_pending")

    # --- for this and other use cases (interrupts.py) ----------------------------------------------------------------

    async def require_running(self, caller: Caller, run_id: str) -> CommandTarget:
        """Return a run that the caller may see and that has not ended. Raises Refused(not_found)."""
        row = await self._reads.run_target(caller, run_id)
        if row.status != "running":
            raise already_ended(run_id)
        return row

    async def _pause_or_resume(
        self, row: CommandTarget, command: PauseRun | ResumeRun | QuarantineRun | ReleaseRun, *, pending: str
    ) -> PauseResult:
        item = await self.send_command(row, command)
        if item is None:
            raise await self.pending_error(pending, row, "the command is in the log and takes effect")
        event = item.record
        if isinstance(event, CommandRefused):
            raise owner_refusal(event.code, event.message)
        if isinstance(event, RunQuarantined) and not isinstance(command, QuarantineRun):
            error = f"the run {row.run_id} cannot go on and is quarantined: {event.error}"
            raise Refused("run_quarantined", error, details={"position": self.position(item)})
        if not isinstance(event, RunPauseRequested | RunResumed | RunQuarantined | RunReleased):
            raise already_ended(row.run_id)
        return PauseResult(run_id=row.run_id, agent_id=row.agent_id, position=self.position(item))

    # --- shared ------------------------------------------------------------------------------------------------------

    def envelope(self, caller: Caller, row: CommandTarget) -> CommandEnvelope:
        """Return the envelope of a new command of the caller."""
        return CommandEnvelope(
            command_id=make_command_id(f"c_{self._fresh_token()}"),
            tenant=row.tenant,
            subject=caller.subject,
            issued_at_ms=self._clock_ms(),
        )

    async def send_command(
        self,
        row: CommandTarget,
        command: Command,
        is_reply: Callable[[EventItem], bool] | None = None,
        wait_s: float | None = None,
    ) -> EventItem | None:
        """Append the command; returns the event that answers it, or the one that `is_reply` accepts.

        None: see `_wait_for_effect`.
        """
        command_id = command.envelope.command_id
        subscription = self._sources.hub.subscribe(row.run_id)
        try:
            if current_request.get().idempotency_key and (earlier := self._earlier_reply(row.run_id, command_id)):
                return earlier
            await self._publisher.publish(partition_key(row.run_id), command_id, command)
            is_reply = is_reply or partial(_is_reply_to, command_id=command_id)
            return await self._wait_for_effect(subscription, row, is_reply, wait_s or self._wait_s)
        finally:
            subscription.close()

    def _earlier_reply(self, run_id: str, command_id: str) -> EventItem | None:
        """Return the recent event that answered this command before, for a repeated request. Raises
        Refused(idempotency_key_reused) when it had another body.
        """
        identity = command_identity(command_id)
        for item in self._sources.hub.recent(run_id):
            if command_identity(item.envelope.cause_id) == identity:
                if item.envelope.cause_id != command_id:
                    raise key_reused()
                return item
        return None

    async def _wait_for_effect(
        self, subscription: Subscription, row: CommandTarget, is_reply: Callable[[EventItem], bool], wait_s: float
    ) -> EventItem | None:
        """Return the event that answers a command; None after a timeout, or when the run has already ended."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + wait_s
        while not subscription.close_reason and (left := deadline - clock()) > 0:
            items = await subscription.take(min(left, limits.DECISION_POLL_S))
            for item in items:
                if isinstance(item, EventItem) and item.raw.offset > row.last_offset and is_reply(item):
                    return item
            if not items and (now := await self._read_row(row)) is not None and now.status != "running":
                return None
        return None

    async def _read_row(self, row: CommandTarget) -> RunRow | None:
        """Return the run's current row in the read models; the row read earlier when they are unavailable."""
        now = None
        try:
            now = await self._sources.projection.run(row.tenant, row.run_id)
        except Refused as declined:
            if declined.code != "projection_unavailable":
                raise
        return now or (row if isinstance(row, RunRow) else None)

    async def pending_error(
        self, code: str, row: CommandTarget, consequence: str, *, wait_s: float | None = None
    ) -> Refused:
        """Return why a command has no reply: the run has ended, is quarantined, or has no owner at the moment."""
        now = await self._read_row(row)
        if now is not None and now.status != "running":
            return already_ended(row.run_id)
        if now is not None and now.quarantined:
            return Refused(
                "run_quarantined",
                f"the run {row.run_id} is quarantined and accepts no commands: {now.quarantine_error}; an operator has "
                "to release it",
            )
        return Refused(
            code,
            f"no runtime has answered within {wait_s or self._wait_s:g} s; {consequence} as soon as one is up",
            retry_after_s=RETRY_SOON_S,
            details={"run_id": row.run_id, "agent_id": row.agent_id},
        )

    def position(self, item: EventItem) -> str:
        """Return the position of the event, as a token for reads."""
        return self._sources.barrier.token(item.partition, item.raw.offset)

    def _result_from_row(self, row: RunRow) -> CancelResult:
        return CancelResult(
            agent_id=row.agent_id,
            run_id=row.run_id,
            status=row.status,
            reason=row.stop_reason or row.error,
            position=self._sources.barrier.token(row.partition, row.last_offset),
        )

    def _result_from_event(self, row: CommandTarget, item: EventItem) -> CancelResult:
        cascaded: tuple[str, ...] = ()
        match item.record:
            case RunCancelled(reason=reason, cascaded=cascaded):
                status, why = "cancelled", reason
            case RunCompleted(stop_reason=reason):
                status, why = "completed", reason
            case RunFailed(error=reason):
                status, why = "failed", reason
            case other:
                raise AssertionError(f"{type(other).__name__} does not end a run")
        return CancelResult(
            agent_id=row.agent_id,
            run_id=row.run_id,
            status=status,
            reason=why,
            position=self.position(item),
            cascaded=cascaded,
        )


def _is_reply_to(item: EventItem, command_id: str) -> bool:
    return item.envelope.cause_id == command_id or _is_ending(item)


def _is_ending(item: EventItem) -> bool:
    return isinstance(item.record, RunCancelled | RunCompleted | RunFailed)
