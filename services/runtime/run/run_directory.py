"""Runs of a partition as its owner knows them: holders of sessions and handles, runs that are ending, runs ended
recently.

Memory is exact for everything that ended at or after `forgotten_until`. A command issued later than the newest
forgotten end, and than every start of a forgotten run, cannot belong to a forgotten run, so the usual start needs no
lookup. The end has the owner's clock and the start the sender's: an owner whose clock goes back does not take an old
start for a new one. The index knows what memory has forgotten, once its projection has caught up; until then lookups
wait. So a lookup can be late, never wrong.

Before: command_handler.py reports decisions and what the fold found. After: start_handler.py queries it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from sys import intern

from loomlog.connectors.errors import Transient
from loomlog.schemas.codec import read_envelope, read_text
from loomlog.schemas.generated.run_commands import ForkRun, StartRun
from loomlog.schemas.generated.values import RunPosition
from loomlog.schemas.reader import RawEvent
from loomlog.services.runtime.run.run_index import EndedRun, RunIndex
from loomlog.services.stream.partition.ended_aggregates import EndedAggregates
from loomlog.services.stream.partition.fold import ENDED_KEPT
from loomlog.services.stream.partition.partition import Partition

CLOCK_SKEW_MS = 10_000
"""Milliseconds that the clocks of senders and owners may differ before a start is looked up needlessly, or a repeat
missed.
"""


class RunDirectory:
    """Known runs of one partition. Runs before `known_since_ms` and `forgotten_until`, which come from the partition
    snapshot, are only in the index.
    """

    def __init__(
        self, *, number: int, known_since_ms: int, forgotten_until: int, index: RunIndex, past: EndedAggregates
    ) -> None:
        self._number = number
        self.index = index
        self._past = past
        self.issued_until_ms = known_since_ms
        """No ended run is known to have been issued after this time, by the clock of its sender."""
        self.issued_at_ms: dict[str, int] = {}
        """Issue times of the starts of live runs, as far as known here; for repeated starts the last one."""
        self.known_since_ms = known_since_ms
        self.forgotten_until = forgotten_until
        self._sessions: dict[tuple[str, str], str] = {}
        """Live run by (tenant, session), of sessions that have not the id of their run."""
        self._handles: dict[tuple[str, str], str] = {}
        """Live run by (tenant, handle), of handles that have not the id of their run."""
        self._own_sessions: dict[str, str] = {}
        """Tenant of each live run whose session has its id: most runs, so they cost an entry and no strings."""
        self._own_handles: dict[str, str] = {}
        self._rested_issued_until_ms = 0
        """No run that has rested is known to have been issued after this time."""
        self.ending: dict[str, asyncio.Event | None] = {}
        """Runs whose end is decided and not in the log yet; the event is set once it is, for
        commands that wait for it.
        """
        self.ended: OrderedDict[str, EndedRun] = OrderedDict()
        self.last_run_of_session: dict[str, str] = {}

    def end_event(self, run_id: str) -> asyncio.Event:
        """Return the event that is set once the end of an ending run is in the log."""
        awaited = self.ending[run_id] or asyncio.Event()
        self.ending[run_id] = awaited
        return awaited

    def load_ended(self, first: RawEvent, last: RawEvent) -> None:
        """Add an ended run found by the fold, from its first and last event."""
        envelope, at = read_envelope(first.value)
        ended, _ = read_envelope(last.value)
        if first.seq != 1:
            # It began before the partition snapshot, so its session is not in these bytes: the index has it.
            self.forgotten_until = max(self.forgotten_until, last.offset + 1)
            self.known_since_ms = max(self.known_since_ms, ended.at_ms)
            return
        # session_id is the first field of the body in both RunStarted and RunRefused.
        session, _ = read_text(first.value, at)
        refused = first.offset == last.offset
        self.add_ended(
            EndedRun(
                run_id=first.aggregate,
                tenant=envelope.tenant,
                session_id="" if refused else session,
                partition=self._number,
                first_offset=first.offset,
                last_offset=last.offset,
                ended_at_ms=ended.at_ms,
            )
        )

    def add_ended(self, run: EndedRun) -> None:
        """Add an ended run, and forget the oldest when there are more than ENDED_KEPT."""
        self.ended[run.run_id] = run
        self.issued_until_ms = max(self.issued_until_ms, run.issued_at_ms)
        if run.session_id:
            self.last_run_of_session[run.session_id] = run.run_id
        if len(self.ended) > ENDED_KEPT:
            name, oldest = self.ended.popitem(last=False)
            if self.last_run_of_session.get(oldest.session_id) == name:
                del self.last_run_of_session[oldest.session_id]
            self.forgotten_until = max(self.forgotten_until, oldest.last_offset + 1)
            issued_at_ms = oldest.issued_at_ms or self._rested_issued_until_ms
            self.known_since_ms = max(self.known_since_ms, oldest.ended_at_ms + 1, issued_at_ms + 1)

    def register(self, run_id: str, tenant: str, session: str, handle: str) -> None:
        """Record a live run as the holder of its session and its handle; empty: those of its own id."""
        tenant = intern(tenant)
        if session in ("", own_session(run_id)):
            self._own_sessions[run_id] = tenant
        else:
            self._sessions[tenant, session] = run_id
        if handle in ("", own_handle(run_id)):
            self._own_handles[run_id] = tenant
        else:
            self._handles[tenant, handle] = run_id

    def unregister(self, run_id: str, tenant: str, session: str, handle: str) -> None:
        """Free the session and the handle of a run."""
        self._own_sessions.pop(run_id, None)
        self._own_handles.pop(run_id, None)
        self._sessions.pop((tenant, session), None)
        self._handles.pop((tenant, handle), None)

    def handle_holder(self, tenant: str, handle: str) -> str:
        """The live run of the tenant that has the handle; empty if none has."""
        run_id = self._handles.get((tenant, handle), "")
        return run_id or _holder_by_id(self._own_handles, tenant, handle, own_handle)

    def session_holder(self, tenant: str, session: str) -> str:
        """The live run of the tenant that has the session; empty if none has."""
        run_id = self._sessions.get((tenant, session), "")
        return run_id or _holder_by_id(self._own_sessions, tenant, session, own_session)

    def is_ending(self, run_id: str) -> bool:
        """Whether the run's end is decided and not in the log yet."""
        return run_id in self.ending

    def has_ended(self, run_id: str) -> bool:
        """Whether the run is remembered to have ended."""
        return run_id in self.ended

    def may_be_forgotten(self, command: StartRun | ForkRun, now_ms: int) -> bool:
        """Return whether the command may have been handled so long ago that only the index knows.

        One whose sender's clock is ahead says nothing about when that was.
        """
        if self.known_since_ms == 0:
            return False  # nothing was ever forgotten
        issued_at_ms = command.envelope.issued_at_ms
        is_new = self.known_since_ms + CLOCK_SKEW_MS <= issued_at_ms <= now_ms + CLOCK_SKEW_MS
        return bool(command.idempotency_key) or not is_new

    def note_issued(self, run_id: str, command: StartRun | ForkRun) -> None:
        """Record the issue time of a live run's start, which may be a repeated one."""
        self.issued_at_ms[run_id] = max(self.issued_at_ms.get(run_id, 0), command.envelope.issued_at_ms)

    def forget_issued(self, run_id: str) -> None:
        """Keep the issue time of a run that rests only as a bound for all of them."""
        issued_at_ms = self.issued_at_ms.pop(run_id, 0)
        self._rested_issued_until_ms = max(self._rested_issued_until_ms, issued_at_ms)
        self.issued_until_ms = max(self.issued_until_ms, issued_at_ms)

    def ending_holder(self, command: StartRun) -> str:
        """Return the run that has the requested session or handle if its end is not in the log yet; else empty."""
        tenant = command.envelope.tenant
        holders = (
            self.session_holder(tenant, command.session_id),
            self.handle_holder(tenant, command.agent_id),
        )
        return next((run_id for run_id in holders if run_id in self.ending), "")

    async def require_index(self) -> None:
        """Raises Transient while the index lacks something that memory has forgotten."""
        reached = await self.index.next_offset(self._number)
        if reached < self.forgotten_until:
            raise Transient(
                f"the index of partition {self._number} is at {reached}, {self.forgotten_until} is needed",
                kind="unavailable",
            )

    async def is_indexed(self, run_id: str) -> bool:
        """Return whether the index has the run. Raises Transient."""
        await self.require_index()
        return await self.index.find_run(run_id) is not None

    async def position_of(self, run_id: str, tenant: str, partition: Partition) -> RunPosition | None:
        """Return the run's position as far as it is in the log; None when this tenant has no run of that id here."""
        live = partition.aggregates.get(run_id)
        if live is not None:
            if live.tenant != tenant or live.first_offset < 0:
                return None
            return RunPosition(run_id=run_id, first_offset=live.first_offset, last_offset=live.last_offset)
        run = self.ended.get(run_id)
        if run is None:
            await self.require_index()
            run = await self.index.find_run(run_id)
        if run is None or (run.tenant, run.partition) != (tenant, self._number):
            return None
        return run.position

    def is_session_in_memory(self, command: StartRun) -> bool:
        """Return whether the session can be continued without a lookup."""
        return self.is_session_live(command) or self.cached_session_run(command) is not None

    def is_session_live(self, command: StartRun) -> bool:
        """Return whether a run of the session is live."""
        # By tenant: another tenant's session is not found, and never named in a response.
        return bool(self.session_holder(command.envelope.tenant, command.session_id))

    def session_last_run(self, command: StartRun) -> EndedRun | None:
        """Return the session's last ended run, if it is remembered."""
        run_id = self.last_run_of_session.get(command.session_id)
        return self.ended.get(run_id) if run_id is not None else None

    def cached_session_run(self, command: StartRun) -> EndedRun | None:
        """Return the session's last run if its state is cached too, so that nothing has to be read."""
        run = self.session_last_run(command)
        return run if run is not None and self._past.cached(run.run_id) is not None else None


def own_session(run_id: str) -> str:
    """Return the session that a run has if its start names none."""
    return f"s_{run_id[2:]}"


def own_handle(run_id: str) -> str:
    """Return the handle that a run has if its start names none."""
    return f"a_{run_id[2:]}"


def _holder_by_id(holders: Mapping[str, str], tenant: str, name: str, own: Callable[[str], str]) -> str:
    run_id = f"r_{name[2:]}"
    return run_id if holders.get(run_id) == tenant and own(run_id) == name else ""
