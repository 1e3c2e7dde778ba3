"""Compacting conversations, and continuing a session with another agent.

    a parked run       CompactRun: it is summarised and parks again                              applied: live
    an ended run       a seed in its session, from which the session's next run starts           applied: marker
    another agent      a seed in a session of its own, in addition to the run whose conversation it holds (replay)

The owner of the run decides about all of them, and they are in the log before the summary is requested; this module
waits for the end. A timeout here loses nothing: the compaction continues.

Before: a transport. After: control.py for commands, start.py for seeds; services/core/run/conversation/compaction.py
decides.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from loomlog.projections.frames.other_events import COMPACTION_FAILED
from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.run_commands import CompactRun, ForkRun, StartRun
from loomlog.schemas.generated.run_events import CommandRefused, CompactionFailed, CompactionRequested, ContextCompacted
from loomlog.schemas.generated.values import CommandEnvelope, RunOptions, RunPosition
from loomlog.services.application import limits
from loomlog.services.application.errors import RETRY_LATER_S, bad_request, owner_refusal
from loomlog.services.application.queries.runs import RunQueries, owner_of
from loomlog.services.application.runs.control import RunControl, already_ended
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.run_ids import continuation_names, fork_names
from loomlog.services.application.runs.start import RunStarts, StartAttempt, StartedRun
from loomlog.services.application.streaming.items import EventItem
from loomlog.services.application.streaming.run_stream import RunStream
from loomlog.services.core.access.decide import Caller, resolve_identity
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.conversation.compaction import BUSY, COMPACT, COPY, NO_GAIN, NOTHING_TO_COMPACT
from loomlog.services.core.run.limits import AGENT_NAME
from loomlog.services.families.operation import sanitize_reason

LIVE: Final = "live"
MARKER: Final = "marker"
NOOP: Final = "noop"
"""Targets that a compaction was applied to; noop: nothing was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """Result of a compaction. `applied` is live, marker or noop; token counts are estimates."""

    run_id: str
    applied: Literal["live", "marker", "noop"]
    before_tokens: int = 0
    after_tokens: int = 0
    position: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCopy:
    """A session that continues another's conversation. `events` is the number of events shared with it."""

    session_id: str
    seed_run_id: str
    events: int
    compacted: bool
    position: str


class SessionCompactions:
    """The use cases. `clock_ms` and `fresh_token` supply time and randomness."""

    def __init__(
        self,
        runs: RunStarts,
        control: RunControl,
        reads: RunQueries,
        *,
        clock_ms: Callable[[], int],
        fresh_token: Callable[[], str],
        wait_s: float = limits.COMPACTION_WAIT_S,
    ) -> None:
        self._runs = runs
        self._control = control
        self._reads = reads
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token
        self._wait_s = wait_s

    async def compact(self, caller: Caller, run_id: str, reason: str = "") -> CompactionResult:
        """Replace the older part of a conversation by a summary.

        Raises Refused: not_found, content_erased, run_busy, agent_gone, compaction_failed, compact_pending.
        """
        reason = sanitize_reason(reason)
        row = await self._reads.controlled_run(caller, run_id)
        return await (
            self._compact_live(caller, row, reason) if row.status == "running" else self._compact_session(caller, row)
        )

    async def replay(self, caller: Caller, session_id: str, agent: str, *, compress: bool = False) -> SessionCopy:
        """Start a new session of that agent with the conversation of this one, unchanged or summarised.

        Raises Refused: not_found, content_erased, agent_gone, empty_source, bad_fork_point, compaction_failed,
        compact_pending.
        """
        if not AGENT_NAME.match(agent):
            raise bad_request("agent is required: the name of the agent that goes on with the session")
        head = await self._reads.session_to_continue(caller, session_id)
        origin = head.newest
        if origin is None:
            raise Refused("session_busy", f"session_busy: the session {session_id} has just begun; wait for its run")
        events = await self._reads.count_session_events(origin.tenant, session_id)
        who = resolve_identity(caller, user_id="", session=owner_of(origin))
        names = fork_names(
            fresh_token=self._fresh_token(),
            origin=origin.run_id,
            tenant=who.tenant,
            subject=who.subject,
            agent_id="",
            idempotency_key="",
        )

        def command(whole: RunRequest) -> ForkRun:
            return ForkRun(
                envelope=self._envelope(names.run_id, who.tenant, who.subject),
                origin_run_id=origin.run_id,
                user_id=who.user_id,
                at_seq=origin.last_seq,
                run_id=names.run_id,
                agent_id=names.agent_id,
                agent=agent,
                interactive=False,
                seed=COMPACT if compress else COPY,
            )

        request = RunRequest(agent=agent)
        accepted, tokens = await self._start_seed(
            StartAttempt(caller=caller, request=request, requester=who, names=names, digest="", make_command=command)
        )
        return SessionCopy(
            session_id=accepted.session_id,
            seed_run_id=accepted.run_id,
            events=events,
            compacted=tokens is not None,
            position=accepted.position,
        )

    # --- a run that waits --------------------------------------------------------------------------------------------

    async def _compact_live(self, caller: Caller, row: RunRow, reason: str) -> CompactionResult:
        def command(envelope: CommandEnvelope) -> CompactRun:
            return CompactRun(envelope=envelope, run_id=row.run_id, reason=reason)

        item = await self._control.send_and_settle(
            caller, row, command, _CompactionListener(), pending="compact_pending", wait_s=self._wait_s
        )
        position, event = self._control.position(item), item.record
        match event:
            case CommandRefused(code=code) if code == NOTHING_TO_COMPACT:
                return CompactionResult(run_id=row.run_id, applied=NOOP, position=position)
            case CommandRefused():
                raise owner_refusal(event.code, event.message)
            case CompactionFailed(kind=kind) if kind == NO_GAIN:
                return CompactionResult(run_id=row.run_id, applied=NOOP, position=position)
            case CompactionFailed():
                raise _compaction_error(row.run_id, event.message or event.kind)
            case ContextCompacted():
                return CompactionResult(
                    run_id=row.run_id,
                    applied=LIVE,
                    before_tokens=event.before_tokens,
                    after_tokens=event.after_tokens,
                    position=position,
                )
            case _:
                raise already_ended(row.run_id)

    # --- seeds -------------------------------------------------------------------------------------------------------

    async def _compact_session(self, caller: Caller, row: RunRow) -> CompactionResult:
        """Start a seed at the end of the session, so that its next run starts from the summary."""
        head = await self._reads.session(caller, row.session_id)
        newest = head.newest or row
        who = resolve_identity(caller, user_id="", session=head.owner)
        names = continuation_names(
            fresh_token=self._fresh_token(),
            session_id=row.session_id,
            tenant=who.tenant,
            subject=who.subject,
            agent_id="",
            idempotency_key="",
        )

        def command(whole: RunRequest) -> StartRun:
            return StartRun(
                envelope=self._envelope(names.run_id, who.tenant, who.subject),
                agent=newest.agent,
                run_id=names.run_id,
                session_id=row.session_id,
                agent_id=names.agent_id,
                user_id=who.user_id,
                options=RunOptions(user_tier=newest.user_tier),
                continues=RunPosition(
                    run_id=newest.run_id, first_offset=newest.first_offset, last_offset=newest.last_offset
                )
                if newest.status != "running"
                else None,
                seed=COMPACT,
            )

        request = RunRequest(agent=newest.agent, session_id=row.session_id)
        launch = StartAttempt(
            caller=caller, request=request, requester=who, names=names, digest="", make_command=command
        )
        try:
            accepted, tokens = await self._start_seed(launch)
        except Refused as declined:
            if declined.code == NOTHING_TO_COMPACT:
                return CompactionResult(run_id=row.run_id, applied=NOOP)
            if declined.code == "session_busy":
                raise Refused(BUSY, f"{BUSY}: {declined.message}") from declined
            raise
        if tokens is None:
            return CompactionResult(run_id=row.run_id, applied=NOOP, position=accepted.position)
        before, after = tokens
        return CompactionResult(
            run_id=row.run_id,
            applied=MARKER,
            before_tokens=before,
            after_tokens=after,
            position=accepted.position,
        )

    async def _start_seed(self, attempt: StartAttempt) -> tuple[StartedRun, tuple[int, int] | None]:
        """Start a seed and wait for its end; returns it, and the tokens before and after if it was summarised."""
        try:
            accepted = await self._runs.launch(attempt)
        except Refused as declined:
            if declined.code == "unknown_agent":
                raise Refused("agent_gone", f"agent_gone: {declined.message}") from declined
            raise
        try:
            async with asyncio.timeout(self._wait_s):
                return accepted, await _read_to_end(accepted.stream, accepted.run_id)
        except TimeoutError:
            raise Refused(
                "compact_pending",
                f"no summary within {self._wait_s:g} s; the run {accepted.run_id} goes on making it: follow it",
                retry_after_s=RETRY_LATER_S,
                details={"run_id": accepted.run_id, "session_id": accepted.session_id, "position": accepted.position},
            ) from None
        finally:
            accepted.stream.close()

    def _envelope(self, command_id: str, tenant: str, subject: str) -> CommandEnvelope:
        # Each run id has one start, so the run id is the command's id too.
        return CommandEnvelope(command_id=command_id, tenant=tenant, subject=subject, issued_at_ms=self._clock_ms())


class _CompactionListener:
    """Whether an event settles the compaction that its command started: a refusal, or its end."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, item: EventItem, command_id: str) -> bool:
        match item.record:
            case CompactionRequested(number=number):
                if item.envelope.cause_id == command_id:
                    self._number = number
                return False
            case ContextCompacted(number=number) | CompactionFailed(number=number):
                return number == self._number
            case _:
                # The same command twice in the log: the second is refused, and the first continues.
                return not self._number and item.envelope.cause_id == command_id


async def _read_to_end(stream: RunStream, run_id: str) -> tuple[int, int] | None:
    """Read the stream of a seed to its end; returns the token counts. Raises Refused(compaction_failed)."""
    tokens: tuple[int, int] | None = None
    failed: dict[str, Any] = {}
    while (pieces := await stream.next()) is not None:
        for piece in pieces:
            if piece.type == "context_compaction":
                compaction = orjson.loads(piece.data)["context_compaction"]
                tokens = compaction["before_tokens"], compaction["after_tokens"]
            elif piece.type == COMPACTION_FAILED:
                failed = orjson.loads(piece.data)
    if failed and failed["compaction_failed"]["kind"] != NO_GAIN:
        raise _compaction_error(run_id, str(failed["error"]))
    return tokens


def _compaction_error(run_id: str, reason: str) -> Refused:
    return Refused(
        "compaction_failed", f"the conversation of {run_id} could not be summarised, it is as it was: {reason}"
    )
