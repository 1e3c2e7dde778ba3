"""A stream of state changes of a user's runs, for clients that show a list of them.

    stream_open   the filter, at once
    run_state     a run has started or ended; earlier changes are not sent

One queue of the hub receives the first and last event of every run; they are decoded only while there are subscribers.
The end of a run does not contain its user, so the live runs of the user are read once, after the queue is open, and
from then on every start is seen. The stream ends after LIFETIME_S, and its client opens another.

Before: a transport. After: event_hub.py, projections/runs.py.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.projections.run_queries import PAGE_MAX, RunFilter
from loomlog.projections.runs import CANCELLED, RunRow
from loomlog.projections.tables import Scope
from loomlog.schemas.generated.run_events import RunCancelled, RunCompleted, RunFailed, RunStarted
from loomlog.schemas.records import replace
from loomlog.services.application.authentication import require_scope
from loomlog.services.application.queries.read_models import scope_of
from loomlog.services.application.streaming.items import EventItem, StreamChunk
from loomlog.services.application.streaming.run_stream import ENDED, FELL_BEHIND, StreamSources
from loomlog.services.application.streaming.subscription import CLIENT_LEFT, SLOW_CONSUMER, Subscription
from loomlog.services.core.access.decide import Caller, access_filter
from loomlog.services.core.access.scopes import RUNS_READ

KEEPALIVE_S = 25
"""Idle time after which a keepalive is sent (parity: reference surfaces 0.7)."""
LIFETIME_S = 30 * 60.0
"""Maximum duration of one stream (parity: surfaces 1.2)."""
LIVE_RUNS_MAX = 20_000
"""Maximum live runs of one user known at the start; no list shows more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRunInfo:
    """What the end of a run is reported with."""

    agent: str
    agent_id: str
    parent_agent_id: str
    parent_context: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFilter:
    """Filter by owner of the run and kind of change; empty fields do not narrow. `tenant` is for administrators."""

    user_id: str
    statuses: frozenset[str] = frozenset()
    agent: str = ""
    tenant: str = ""


class RunStates:
    """Creates state streams."""

    def __init__(
        self, sources: StreamSources, *, lifetime_s: float = LIFETIME_S, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        self._sources = sources
        self._lifetime_s = lifetime_s
        self._keepalive_s = keepalive_s

    def follow(self, caller: Caller, state_filter: StateFilter) -> "StateStream":
        """Open a stream of what the caller may see: nothing of a foreign tenant or user. Raises
        RequestRefused(insufficient_scope).
        """
        require_scope(caller, RUNS_READ)
        allowed = access_filter(caller)
        if allowed.tenant is None and state_filter.tenant:
            allowed = replace(allowed, tenant=state_filter.tenant)
        sees_any = state_filter.tenant in ("", allowed.tenant) and allowed.user_id in (None, state_filter.user_id)
        return StateStream(
            self._sources,
            self._sources.hub.subscribe_to_states(),
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
        self._known_runs: dict[str, LiveRunInfo] | None = None

    async def next(self) -> list[StreamChunk] | None:
        """Return chunks, [] for a keepalive, None at the end. Raises RequestRefused when the read models are
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
            pieces = [piece for item in items if isinstance(item, EventItem) for piece in await self._chunks_of(item)]
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

    async def _live_runs(self) -> dict[str, LiveRunInfo]:
        runs: dict[str, LiveRunInfo] = {}
        if not self._sees_any:
            return runs
        await self._sources.barrier.wait_for_own_writes(None)
        run_filter = RunFilter(user_id=self._filter.user_id, agent=self._filter.agent, statuses=frozenset({"running"}))
        after = ""
        while len(runs) < LIVE_RUNS_MAX:
            page = await self._sources.projection.runs(self._scope, run_filter, limit=PAGE_MAX, after=after)
            runs |= {row.run_id: _live_run_info(row) for row in page.rows}
            after = page.next
            if not after:
                break
        return runs

    async def _chunks_of(self, item: EventItem) -> list[StreamChunk]:
        assert self._known_runs is not None
        run_id, event = item.raw.aggregate, item.record
        match event:
            case RunStarted() if self._matches(item, event):
                run = self._known_runs[run_id] = LiveRunInfo(
                    agent=event.definition.name,
                    agent_id=event.agent_id,
                    parent_agent_id=event.parent_agent_id,
                    parent_context=event.options.parent_context,
                )
                return await self._state_chunks(item, run, "running")
            case RunCompleted() if (known := self._known_runs.pop(run_id, None)) is not None:
                return await self._state_chunks(item, known, "completed", stop_reason=event.stop_reason)
            case RunFailed() if (known := self._known_runs.pop(run_id, None)) is not None:
                return await self._state_chunks(item, known, "failed", error=event.error)
            case RunCancelled() if (known := self._known_runs.pop(run_id, None)) is not None:
                return await self._state_chunks(item, known, "cancelled", stop_reason=event.reason or CANCELLED)
            case _:
                return []

    def _matches(self, item: EventItem, event: RunStarted) -> bool:
        if not self._sees_any or event.imported_from is not None:
            return False
        if isinstance(self._scope, str) and item.envelope.tenant != self._scope:
            return False
        return event.user_id == self._filter.user_id and self._filter.agent in ("", event.definition.name)

    async def _state_chunks(
        self, item: EventItem, run: LiveRunInfo, status: str, *, stop_reason: str = "", error: str = ""
    ) -> list[StreamChunk]:
        if self._filter.statuses and status not in self._filter.statuses:
            return []
        fields = {
            "run_id": item.raw.aggregate,
            "agent_id": run.agent_id,
            "agent": run.agent,
            "user_id": self._filter.user_id,
            "parent_agent_id": run.parent_agent_id or None,
            "status": status,
            "stop_reason": stop_reason or None,
            "error": error or None,
            "ts": format_rfc3339(item.envelope.at_ms),
            "parent_context": dict(run.parent_context) or None,
        }
        return [
            StreamChunk(
                None, "run_state", orjson.dumps(await self._sources.content.decrypt(fields, item.envelope.tenant))
            )
        ]


def _live_run_info(row: RunRow) -> LiveRunInfo:
    return LiveRunInfo(
        agent=row.agent,
        agent_id=row.agent_id,
        parent_agent_id=row.parent_agent_id,
        parent_context=orjson.loads(row.parent_context),
    )
