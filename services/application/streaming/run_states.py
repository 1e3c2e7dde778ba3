"""A stream of state changes of runs, for clients that show a list: of one user, or of all that a caller may see.

    stream_open   the filter, at once
    run_state     a run has started or ended; earlier changes are not sent
    run_change    a run begins or ceases to wait: input, a question, a pause, quarantine (only with `with_waits`)

A frame has the fields of a run in a list under their names there (run_json.py), and only those that the event says or
changes: a client puts them over the row that it has. `event` and `position` name the record in the log.

One queue of the hub receives these events of every run; each is decoded once for all streams, and only while there are
any. The end of a run does not contain its user or agent. From the first start that a stream sees it knows every run, so
only those that were live before are unknown to it:

    one user      their live runs are read once, after the queue is open
    all users     a run is read when the first change of it arrives: most live runs of an installation end before a list
                  of all of them is read

So a client opens the stream first and reads its list after `stream_open`. The stream ends after LIFETIME_S, and its
client opens another.

Before: a transport. After: event_hub.py, projections/runs.py.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import PAGE_MAX, RunFilter
from loomlog.projections.runs import CANCELLED, RunRow
from loomlog.projections.tables import Scope
from loomlog.schemas.codec import Undecodable
from loomlog.schemas.generated.run_events import (
    CompactionRequested,
    Event,
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunReleased,
    RunResumed,
    RunStarted,
)
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.items import EventItem, StreamChunk
from loomlog.services.application.streaming.run_stream import ENDED, FELL_BEHIND, UNREADABLE, StreamSources
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, SLOW_CONSUMER, Subscription
from loomlog.services.core.access.decide import Caller, access_filter

KEEPALIVE_S = 25
"""Idle time after which a keepalive is sent (parity: reference surfaces 0.7)."""
LIFETIME_S = 30 * 60.0
"""Maximum duration of one stream (parity: surfaces 1.2)."""
KNOWN_RUNS_MAX = 20_000
"""Maximum runs that one stream knows; no list shows more. Of all users, further ones are read again when they change;
of one user, the ends of further ones are not told.
"""
RUNNING = "running"

RunEnd = RunCompleted | RunFailed | RunCancelled


@dataclass(slots=True, kw_only=True)
class KnownRun:
    """What the later events of a run do not contain, and what it waits for as far as the stream has seen."""

    shown: Mapping[str, Any]
    """Fields of each of its frames, the same for its whole life."""
    parked: bool = False
    paused: bool = False
    pause_requested: bool = False
    pause_reason: str = ""
    quarantine_error: str | None = None
    """None: it is not quarantined."""
    questions: dict[str, None] = dataclasses.field(default_factory=dict)
    """Ids of its open questions, oldest first."""

    def apply(self, event: Event) -> bool:
        """Change what it waits for; False when a list would show nothing new."""
        match event:
            case RunParked():
                self.parked = True
            case InputReceived() | CompactionRequested():
                was_parked, self.parked = self.parked, False
                return was_parked
            case RunPauseRequested():
                self.pause_reason = self.pause_reason if self.pause_requested else event.reason
                self.pause_requested = True
            case RunPaused():
                self.paused, self.parked = True, False
            case RunResumed():
                if not event.remaining:
                    self.paused, self.pause_requested, self.pause_reason = False, False, ""
            case InterruptionOpened():
                self.questions[event.interrupt_id] = None
            case InterruptionClosed():
                self.questions.pop(event.interrupt_id, None)
            case RunQuarantined():
                self.quarantine_error = event.error
            case RunReleased():
                self.quarantine_error = None
            case _:
                return False
        return True

    def waits(self) -> dict[str, Any]:
        """Return what it waits for under the names of a run's JSON."""
        awaited = "interrupted" if self.questions else "awaiting_input" if self.parked else None
        return {
            "parked": self.parked,
            # An idle run is paused without an event of its own.
            "paused": self.paused or (self.pause_requested and self.parked),
            "pause_requested": self.pause_requested,
            "pause_reason": self.pause_reason or None,
            "quarantined": self.quarantine_error is not None,
            "quarantine_error": self.quarantine_error,
            "awaited_state": awaited,
            "awaited_on": next(iter(self.questions), None),
        }


NO_WAITS = KnownRun(shown={}).waits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFilter:
    """Filter by owner of the run and kind of change; empty fields do not narrow. `tenant` is for administrators."""

    user_id: str = ""
    statuses: frozenset[str] = frozenset()
    agent: str = ""
    tenant: str = ""
    with_waits: bool = False
    """Send run_change too."""


class RunStates:
    """Creates state streams."""

    def __init__(
        self, sources: StreamSources, *, lifetime_s: float = LIFETIME_S, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self._sources = sources
        self._lifetime_s = lifetime_s
        self._keepalive_s = keepalive_s

    def follow(self, caller: Caller, state_filter: StateFilter) -> "StateStream":
        """Open a stream of what the caller may see: nothing of a foreign tenant or user."""
        allowed = access_filter(caller)
        if allowed.tenant is None and state_filter.tenant:
            allowed = replace(allowed, tenant=state_filter.tenant)
        sees_any = state_filter.tenant in ("", allowed.tenant)
        if allowed.user_id is not None:
            sees_any = sees_any and state_filter.user_id in ("", allowed.user_id)
            state_filter = dataclasses.replace(state_filter, user_id=state_filter.user_id or allowed.user_id)
        return StateStream(
            self._sources,
            self._sources.hub.subscribe_to_states(with_waits=state_filter.with_waits),
            scope=scope_of(allowed),
            state_filter=state_filter,
            sees_any=sees_any,
            lifetime_s=self._lifetime_s,
            keepalive_s=self._keepalive_s,
        )


class StateStream:
    """One client's view; `next` and `close` as in run_stream.RunStream."""

    def __init__(
        self,
        sources: StreamSources,
        subscription: Subscription,
        *,
        scope: Scope,
        state_filter: StateFilter,
        sees_any: bool,
        lifetime_s: float,
        keepalive_s: float,
    ) -> None:
        self.end_reason = ""
        self._sources = sources
        self._subscription = subscription
        self._scope = scope
        self._filter = state_filter
        self._sees_any = sees_any
        self._keepalive_s = keepalive_s
        self._clock = asyncio.get_running_loop().time
        self._ends_at = self._clock() + lifetime_s
        self._is_open = False
        self._known_runs: dict[str, KnownRun | None] | None = None
        """Live runs; None for those that are not to be shown, so that they are not read again."""

    async def next(self) -> list[StreamChunk] | None:
        """Return chunks, [] for a keepalive, None at the end. Raises Refused when the read models are
        unavailable.
        """
        if not self._is_open:
            self._is_open = True
            return [self._open_chunk()]
        if self._known_runs is None:
            self._known_runs = await self._live_runs()
        deadline = self._clock() + self._keepalive_s
        while not self.end_reason:
            left = min(deadline, self._ends_at) - self._clock()
            if left <= 0:
                if self._clock() < self._ends_at:
                    return []
                self.close(ENDED)
                break
            items = await self._subscription.take(left)
            try:
                pieces = [chunk for item in items if isinstance(item, EventItem) for chunk in await self._chunks(item)]
            except Undecodable:
                self.close(UNREADABLE)
                break
            if pieces:
                return pieces
            if self._subscription.close_reason:
                self.close(
                    FELL_BEHIND if self._subscription.close_reason == SLOW_CONSUMER else self._subscription.close_reason
                )
        return None

    def close(self, reason: str = CLIENT_LEFT) -> None:
        """End the stream; a waiting `next` returns."""
        self.end_reason = self.end_reason or reason
        self._subscription.close(reason)

    def _open_chunk(self) -> StreamChunk:
        fields = {
            "user_id": self._filter.user_id,
            "filter_status": sorted(self._filter.statuses),
            "filter_agent": self._filter.agent,
            "keepalive_interval": KEEPALIVE_S,
        }
        return StreamChunk(None, "stream_open", orjson.dumps(fields))

    # --- which run it is ---------------------------------------------------------------------------------------------

    async def _live_runs(self) -> dict[str, KnownRun | None]:
        """Return the live runs of the user; none of all users."""
        runs: dict[str, KnownRun | None] = {}
        if not self._sees_any:
            return runs
        await self._sources.barrier.wait_for_own_writes(None)
        if not self._filter.user_id:
            return runs
        run_filter = RunFilter(user_id=self._filter.user_id, agent=self._filter.agent, statuses=frozenset({RUNNING}))
        after = ""
        while len(runs) < KNOWN_RUNS_MAX:
            page = await self._sources.projection.runs(self._scope, run_filter, limit=PAGE_MAX, after=after)
            runs |= {row.run_id: _run_of_row(row) for row in page.rows}
            after = page.next
            if not after:
                break
        return runs

    async def _known_run(self, item: EventItem) -> KnownRun | None:
        """Return the run of an event after its start; None when it is not to be shown."""
        assert self._known_runs is not None
        run_id = item.raw.aggregate
        if run_id in self._known_runs:
            return self._known_runs[run_id]
        if self._filter.user_id or not self._is_in_scope(item):
            return None
        row = await self._sources.projection.run(self._scope, run_id)
        if row is None:
            return None  # not projected yet
        is_shown = not row.told_events and self._filter.agent in ("", row.agent)
        run = _run_of_row(row) if is_shown else None
        self._remember(run_id, run)
        return run

    def _remember(self, run_id: str, run: KnownRun | None) -> None:
        assert self._known_runs is not None
        if run is None and self._filter.user_id:
            return  # of one user, an unknown run is one that is not to be shown
        self._known_runs[run_id] = run
        if len(self._known_runs) > KNOWN_RUNS_MAX:
            del self._known_runs[next(iter(self._known_runs))]

    def _is_in_scope(self, item: EventItem) -> bool:
        return self._sees_any and not (isinstance(self._scope, str) and item.envelope.tenant != self._scope)

    def _matches(self, item: EventItem, event: RunStarted) -> bool:
        return (
            self._is_in_scope(item)
            and event.imported_from is None
            and self._filter.user_id in ("", event.user_id)
            and self._filter.agent in ("", event.definition.name)
        )

    # --- frames ------------------------------------------------------------------------------------------------------

    async def _chunks(self, item: EventItem) -> list[StreamChunk]:
        event = item.record
        if isinstance(event, RunStarted):
            run = _run_of_start(item, event) if self._matches(item, event) else None
            self._remember(item.raw.aggregate, run)
            return [] if run is None else await self._state_chunks(item, run, RUNNING, run.waits())
        run = await self._known_run(item)
        if isinstance(event, RunEnd):
            assert self._known_runs is not None
            self._known_runs.pop(item.raw.aggregate, None)
        if run is None:
            return []
        match event:
            case RunCompleted():
                return await self._end_chunks(item, run, "completed", event, stop_reason=event.stop_reason)
            case RunFailed():
                return await self._end_chunks(item, run, "failed", event, error=event.error, error_code=event.code)
            case RunCancelled():
                return await self._end_chunks(item, run, "cancelled", event, stop_reason=event.reason or CANCELLED)
            case _ if run.apply(event):
                return await self._chunk(item, run, "run_change", RUNNING, run.waits())
            case _:
                return []

    async def _end_chunks(
        self,
        item: EventItem,
        run: KnownRun,
        status: str,
        event: RunEnd,
        *,
        stop_reason: str = "",
        error: str = "",
        error_code: str = "",
    ) -> list[StreamChunk]:
        usage = event.usage
        fields = {
            **NO_WAITS,
            "stop_reason": stop_reason or None,
            "error": error or None,
            "error_code": error_code or None,
            "completed_at": format_rfc3339(item.envelope.at_ms),
            "iterations": event.iterations,
            "cost_micros": event.cost_micros,
            "currency": event.currency or None,
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cache_creation_input_tokens": usage.cache_creation_input_tokens,
                "cache_read_input_tokens": usage.cache_read_input_tokens,
            },
        }
        return await self._state_chunks(item, run, status, fields)

    async def _state_chunks(
        self, item: EventItem, run: KnownRun, status: str, fields: Mapping[str, Any]
    ) -> list[StreamChunk]:
        return await self._chunk(item, run, "run_state", status, {"stop_reason": None, "error": None, **fields})

    async def _chunk(
        self, item: EventItem, run: KnownRun, frame_type: str, status: str, fields: Mapping[str, Any]
    ) -> list[StreamChunk]:
        if self._filter.statuses and status not in self._filter.statuses:
            return []
        at = Position(topic=self._sources.barrier.topic, partition=item.partition, offset=item.raw.offset)
        frame = {
            "run_id": item.raw.aggregate,
            **run.shown,
            "status": status,
            "live": status == RUNNING,
            **fields,
            "event": type(item.record).__name__,
            "position": str(at),
            "ts": format_rfc3339(item.envelope.at_ms),
        }
        decrypted = await self._sources.content.decrypt(frame, item.envelope.tenant)
        return [StreamChunk(None, frame_type, orjson.dumps(decrypted))]


def _run_of_start(item: EventItem, event: RunStarted) -> KnownRun:
    parent, origin = event.parent, event.forked_from
    return KnownRun(
        shown={
            "agent_id": event.agent_id,
            "session_id": event.session_id,
            "agent": event.definition.name,
            "tenant_id": item.envelope.tenant,
            "user_id": event.user_id,
            "parent_agent_id": event.parent_agent_id or None,
            "parent_run_id": parent.run_id if parent is not None else None,
            "root_run_id": parent.root_run_id if parent is not None else item.raw.aggregate,
            "depth": parent.depth if parent is not None else 0,
            "forked_from": {"run_id": origin.run_id, "seq": origin.seq} if origin is not None else None,
            "started_at": format_rfc3339(item.envelope.at_ms),
            "interactive": event.options.interactive,
            "provider": event.definition.provider,
            "model": event.definition.model,
            "parent_context": dict(event.options.parent_context) or None,
        }
    )


def _run_of_row(row: RunRow) -> KnownRun:
    return KnownRun(
        shown={
            "agent_id": row.agent_id,
            "session_id": row.session_id,
            "agent": row.agent,
            "tenant_id": row.tenant,
            "user_id": row.user_id,
            "parent_agent_id": row.parent_agent_id or None,
            "parent_run_id": row.parent_run_id or None,
            "root_run_id": row.root_run_id,
            "depth": row.depth,
            "forked_from": (
                {"run_id": row.forked_from_run_id, "seq": row.forked_from_seq} if row.forked_from_run_id else None
            ),
            "started_at": format_rfc3339(row.started_at_ms),
            "interactive": row.interactive,
            "provider": row.provider,
            "model": row.model,
            "parent_context": orjson.loads(row.parent_context) or None,
        },
        parked=row.parked,
        paused=row.paused,
        pause_requested=row.pause_requested,
        pause_reason=row.pause_reason,
        quarantine_error=row.quarantine_error if row.quarantined else None,
        questions=dict.fromkeys(row.open_interrupts.split()),
    )
