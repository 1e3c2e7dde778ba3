"""The runs of a partition as its owner knows them: who holds a session or a handle, what is ending, what ended lately.

Memory is exact for everything that ended at or after `forgotten_until`. A command issued later than the newest
forgotten end, and than every start of a forgotten run, cannot belong to a forgotten run, so the usual start needs no
look-up. The end is told by the owner's clock and the start by the sender's: an owner whose clock goes back does not
take an old start for a new one. What memory has forgotten the index knows, once it has come far enough; until then who
asks waits. So a look-up can be late, never wrong.

Before: command_handler.py tells of decisions and of what the fold found. After: start_handler.py asks.
"""

import asyncio
from collections import OrderedDict

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
"""How far the clocks of senders and owners may differ before a start is looked up needlessly, or a repeat missed."""


class RunDirectory:
    """See the module. `known_since_ms` and `forgotten_until` are what a checkpoint has left to the index."""

    def __init__(
        self, *, number: int, known_since_ms: int, forgotten_until: int, index: RunIndex, past: EndedAggregates
    ) -> None:
        self._number = number
        self.index = index
        self._past = past
        self.issued_until_ms = known_since_ms
        """No run that is over is known to have been ordered after this, by the clock of who ordered it."""
        self.issued_at_ms: dict[str, int] = {}
        """When the starts of live runs were issued, as far as is known here; the last of repeated ones."""
        self.known_since_ms = known_since_ms
        self.forgotten_until = forgotten_until
        self.sessions: dict[tuple[str, str], str] = {}
        """The live run of each (tenant, session)."""
        self.handles: dict[tuple[str, str], str] = {}
        """The live run of each (tenant, handle)."""
        self.ending: dict[str, asyncio.Event | None] = {}
        """Runs whose end is decided and not in the log yet; set when it is, for commands that wait for it."""
        self.ended: OrderedDict[str, EndedRun] = OrderedDict()
        self.last_run_of_session: dict[str, str] = {}

    def end_event(self, run_id: str) -> asyncio.Event:
        """Set once the end of a run that is ending is in the log."""
        awaited = self.ending[run_id] or asyncio.Event()
        self.ending[run_id] = awaited
        return awaited

    def load_ended(self, first: RawEvent, last: RawEvent) -> None:
        """The fold has met its first and its last event."""
        envelope, at = read_envelope(first.value)
        ended, _ = read_envelope(last.value)
        if first.seq != 1:
            # It began before the checkpoint, so its session is not in these bytes: the index knows.
            self.forgotten_until = max(self.forgotten_until, last.offset + 1)
            self.known_since_ms = max(self.known_since_ms, ended.at_ms)
            return
        # session_id is the first field of the body in RunStarted and RunRefused alike.
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
        """It is over."""
        self.ended[run.run_id] = run
        self.issued_until_ms = max(self.issued_until_ms, run.issued_at_ms)
        if run.session_id:
            self.last_run_of_session[run.session_id] = run.run_id
        if len(self.ended) > ENDED_KEPT:
            name, oldest = self.ended.popitem(last=False)
            if self.last_run_of_session.get(oldest.session_id) == name:
                del self.last_run_of_session[oldest.session_id]
            self.forgotten_until = max(self.forgotten_until, oldest.last_offset + 1)
            self.known_since_ms = max(self.known_since_ms, oldest.ended_at_ms + 1, oldest.issued_at_ms + 1)

    def may_be_forgotten(self, command: StartRun | ForkRun) -> bool:
        """Whether the command may have been handled so long ago that only the index knows."""
        if self.known_since_ms == 0:
            return False  # nothing was ever forgotten
        return bool(command.idempotency_key) or command.envelope.issued_at_ms < self.known_since_ms + CLOCK_SKEW_MS

    def note_issued(self, run_id: str, command: StartRun | ForkRun) -> None:
        """The start of a live run, perhaps once more."""
        self.issued_at_ms[run_id] = max(self.issued_at_ms.get(run_id, 0), command.envelope.issued_at_ms)

    def ending_holder(self, command: StartRun) -> str:
        """The run that has the session or the handle asked for, when its end is on its way to the log; else empty."""
        tenant = command.envelope.tenant
        holders = (
            self.sessions.get((tenant, command.session_id), ""),
            self.handles.get((tenant, command.agent_id), ""),
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
        """Raises Transient."""
        await self.require_index()
        return await self.index.find_run(run_id) is not None

    async def position_of(self, run_id: str, tenant: str, partition: Partition) -> RunPosition | None:
        """Where the run lies as far as it is in the log; None when this tenant has none of that id here."""
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
        """Whether nothing has to be looked up to continue it."""
        return self.is_session_live(command) or self.cached_session_run(command) is not None

    def is_session_live(self, command: StartRun) -> bool:
        """Whether a run of it is under way."""
        # By tenant: what another tenant has is not found, and never named in an answer.
        return (command.envelope.tenant, command.session_id) in self.sessions

    def session_last_run(self, command: StartRun) -> EndedRun | None:
        """Its last run that is over, when that is remembered."""
        run_id = self.last_run_of_session.get(command.session_id)
        return self.ended.get(run_id) if run_id is not None else None

    def cached_session_run(self, command: StartRun) -> EndedRun | None:
        """The session's last run when its state is at hand too, so that nothing has to be read."""
        run = self.session_last_run(command)
        return run if run is not None and self._past.cached(run.run_id) is not None else None
