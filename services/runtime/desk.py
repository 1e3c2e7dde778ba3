"""What the owner of a run partition knows besides the fold: which sessions and handles are live, what ended lately.

It makes commands ready for the core: resolves the agent, finds the run a session goes on with, and recognises commands
that were handled before. What it cannot know from memory it asks the index (a projection), but only when the projection
has come far enough; until then the command waits. So a look-up can be late, never wrong.

Memory is exact for everything that ended at or after `forgotten_until`. A command issued later than the newest
forgotten end, and than every start of a forgotten run, cannot belong to a forgotten run, so the usual start needs no
look-up. The end is told by the owner's clock and the start by the sender's: an owner whose clock goes back does not
take an old start for a new one.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol, assert_never

from connectors.errors import Transient
from connectors.partitioner import partition_of
from connectors.protocols import LogRecord
from schemas.codec import read_envelope, read_text
from schemas.ids import ID_PATTERN, hashed_token, partition_key
from schemas.reader import RawEvent
from schemas.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    Command,
    CompactRun,
    ForkRun,
    HandOverModelReply,
    HandOverToolResult,
    ImportRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ResolveCall,
    ResolveInterruption,
    ResumeRun,
    StartRun,
)
from schemas.run_events import RunCancelled, RunCompleted, RunFailed, RunRefused, RunRestored, RunStarted
from schemas.values import AgentDefinition, BlobRef, LimitNotice, RunPosition
from services.core.pauses import PauseTable
from services.core.run.conversation import conversation
from services.core.run.facts import Pause
from services.core.run.importing import is_import
from services.core.run.orders import (
    Cancel,
    Close,
    Compact,
    Input,
    Obey,
    PauseIt,
    Quarantine,
    Refusal,
    Release,
    Resolve,
    ResumeIt,
    Start,
    StopTurn,
)
from services.core.run.react import Kin
from services.core.run.state import AwaitingModel, Ended
from services.runtime.admission import Door
from services.runtime.credentials import NO_CREDENTIALS, Credentials
from services.runtime.doorway import Doorway
from services.runtime.hand_over import order_of
from services.runtime.kin import KinDesk
from services.runtime.past_runs import PastRun, RunIndex
from services.runtime.relatives import Relatives
from services.runtime.responses import Answering, Responses
from services.runtime.secrecy import IN_CLEAR, Secrecy
from services.runtime.tally import Tallies
from services.runtime.tracing import NO_TRACING, Tracing, traceparent_in
from services.runtime.wishes import narrowed
from services.stream.fold import KEEP_OVER
from services.stream.partition import Aggregate, Decision, Partition
from services.stream.past import Past
from services.stream.workplace import Prepared

CLOCK_SKEW_MS = 10_000
"""How far the clocks of senders and owners may differ before a start is looked up needlessly, or a repeat missed."""
MAX_COMMAND_BYTES = 620_000
"""A larger StartRun would not fit one append together with its definition; big blocks belong in the blob store."""
CASCADED_MAX = 2_000
"""Handles of descendants that a cancel lists, 30 bytes each, so that it fits one append; all of them end."""
KEY_PATTERN = re.compile(r"[A-Za-z0-9]{1,64}\Z")
"""Keys a producer may choose: what may follow r_ in a run id before the dash."""

ToARun = (
    CancelRun
    | CancelTurn
    | CloseResident
    | CompactRun
    | PauseRun
    | PostInput
    | QuarantineRun
    | ReleaseRun
    | ResolveCall
    | ResolveInterruption
    | ResumeRun
    | HandOverModelReply
    | HandOverToolResult
)
"""Commands to a run that exists."""

SaidSoFar = Callable[[str, int, int], Coroutine[Any, Any, tuple[str, BlobRef | None]]]
"""What the model has said in that run, turn and attempt, if this process asks it; so_far.SoFar."""


class Definitions(Protocol):
    """Resolves an agent by name to what a run is pinned to."""

    def resolve(self, agent: str, *, tenant: str, user_tier: str) -> AgentDefinition | Refusal: ...


class StartBudgets(Protocol):
    """What the desk must know of limits on spending; services.runtime.spending.Spending."""

    def applies(self, tenant: str, user_id: str) -> bool: ...
    async def exhausted(self, tenant: str, user_id: str) -> LimitNotice | None: ...


class RunDesk:
    """The desk of one partition (protocol services.stream.owner.Desk)."""

    def __init__(
        self,
        *,
        number: int,
        partitions: int,
        known_since_ms: int,
        forgotten_until: int,
        definitions: Definitions,
        index: RunIndex,
        past: Past,
        tallies: Tallies,
        clock_ms: Callable[[], int],
        absent: Callable[[str, Any], Any],
        tracing: Tracing = NO_TRACING,
        pauses: Callable[[], PauseTable] | None = None,
        secrecy: Secrecy = IN_CLEAR,
        responses: Responses | None = None,
        so_far: SaidSoFar | None = None,
        budgets: StartBudgets | None = None,
        door: Door | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self._secrecy = secrecy
        self._responses = responses or Responses(secrecy)
        self._so_far = so_far
        self._budgets = budgets
        self._doorway = Doorway(door)
        self._credentials = credentials
        self._number = number
        self._partitions = partitions
        self.issued_until_ms = known_since_ms
        self._issued: dict[str, int] = {}
        """When the starts of live runs were issued, as far as this desk has seen them; the last of repeated ones."""
        self._known_since_ms = known_since_ms
        self._forgotten_until = forgotten_until
        self._definitions = definitions
        self._index = index
        self._past = past
        self._tallies = tallies
        self._clock_ms = clock_ms
        self._absent = absent
        self._tracing = tracing
        self._pauses = pauses
        self._timeline = tracing.timeline()
        self._relatives = Relatives(
            number=number,
            past=past,
            definitions=definitions,
            find=self._position_of,
            holder=lambda tenant, handle: self._live_handles.get((tenant, handle), ""),
            speaker=lambda tenant, session: self._live_sessions.get((tenant, session), ""),
            clock_ms=clock_ms,
            absent=absent,
            pauses=self._holding,
            secrecy=secrecy,
        )
        self._kin = KinDesk(
            number=number,
            past=past,
            definitions=definitions,
            find=self._position_of,
            is_ending=lambda run_id: run_id in self._ending,
            is_over=lambda run_id: run_id in self._over,
            holder=lambda tenant, handle: self._live_handles.get((tenant, handle), ""),
            pauses=self._holding,
            clock_ms=clock_ms,
            absent=absent,
        )
        self._live_sessions: dict[tuple[str, str], str] = {}
        self._live_handles: dict[tuple[str, str], str] = {}
        self._ending: dict[str, asyncio.Event | None] = {}
        """Runs whose end is decided and not in the log yet; set when it is, for commands that wait for it."""
        self._over: OrderedDict[str, PastRun] = OrderedDict()
        self._last_of_session: dict[str, str] = {}

    # --- watching ----------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        self._doorway.closed()

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        self._doorway.decided(aggregate, event)
        match event:
            case RunStarted(session_id=session, agent_id=handle, imported_from=None, parent=parent):
                self._live_sessions[aggregate.tenant, session] = aggregate.id
                self._live_handles[aggregate.tenant, handle] = aggregate.id
                if parent is not None:
                    self._kin.began(aggregate.id, parent.run_id)
            case RunRestored() if not is_import(aggregate.state):
                self._hold(aggregate)
            case RunRefused() | RunCompleted() | RunFailed() | RunCancelled():
                self._ending[aggregate.id] = None

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        if any(isinstance(event, RunRestored) for event in decision.events):
            # What was told again was no work of this process.
            self._timeline.found_live(aggregate.id, aggregate.state, self._clock_ms())
        elif not is_import(aggregate.state):
            self._timeline.durable(aggregate.id, aggregate.tenant, aggregate.state, decision.events, self._clock_ms())
        if not decision.ends:
            return
        awaited = self._ending.pop(aggregate.id, None)
        if awaited is not None:
            awaited.set()
        state = aggregate.state
        session = ""
        if isinstance(state, Ended):
            # Not before: until its end is in the log a run keeps its session and its handle.
            session = state.facts.session_id
            self._past.keep(aggregate.id, state)
            if not is_import(state):
                self._live_sessions.pop((aggregate.tenant, session), None)
                self._live_handles.pop((aggregate.tenant, state.facts.agent_id), None)
                if state.facts.parent is not None:
                    self._kin.ended(aggregate.id, state.facts.parent.run_id)
                self._tallies.ended(aggregate, state, self._number)
                self._credentials.ended(state.facts)
        self._remember(
            PastRun(
                run_id=aggregate.id,
                tenant=aggregate.tenant,
                session_id=session,
                first_offset=aggregate.first_offset,
                last_offset=aggregate.last_offset,
                ended_at_ms=self._clock_ms(),
                issued_at_ms=self._issued.pop(aggregate.id, 0),
            )
        )

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None:
        self._timeline.folded(aggregate.id, event, at_ms)

    def found_live(self, aggregate: Aggregate) -> None:
        if is_import(aggregate.state):
            return  # it holds no session and no handle: nothing of it is done here
        self._doorway.look_at(aggregate)
        self._timeline.found_live(aggregate.id, aggregate.state, self._clock_ms())
        self._hold(aggregate)

    def _hold(self, aggregate: Aggregate) -> None:
        """Its session and its handle are its own while it lives."""
        facts = getattr(aggregate.state, "facts", None)
        if facts is not None:
            self._live_sessions[aggregate.tenant, facts.session_id] = aggregate.id
            self._live_handles[aggregate.tenant, facts.agent_id] = aggregate.id
            if facts.parent is not None:
                self._kin.began(aggregate.id, facts.parent.run_id)

    def carry_out(
        self, aggregate: Aggregate, effect: Kin, state: Any, partition: Partition
    ) -> Sequence[Prepared] | Coroutine[Any, Any, Sequence[Prepared]]:
        return self._kin.carry_out(aggregate, effect, state, partition)

    def standing(self, aggregate: Aggregate) -> Obey | None:
        """The pauses wider than the run that hold it now."""
        facts = getattr(aggregate.state, "facts", None)
        if self._pauses is None or facts is None:
            return None
        table = self._pauses()
        wanted = table.holding(aggregate.tenant, facts.definition.name)
        return Obey(at_ms=self._clock_ms(), wanted=wanted, by=table.by)

    def found_over(self, first: RawEvent, last: RawEvent) -> None:
        envelope, at = read_envelope(first.value)
        ended, _ = read_envelope(last.value)
        if first.seq != 1:
            # It began before the checkpoint, so its session is not in these bytes: the index knows.
            self._forgotten_until = max(self._forgotten_until, last.offset + 1)
            self._known_since_ms = max(self._known_since_ms, ended.at_ms)
            return
        # session_id is the first field of the body in RunStarted and RunRefused alike.
        session, _ = read_text(first.value, at)
        refused = first.offset == last.offset
        self._remember(
            PastRun(
                run_id=first.aggregate,
                tenant=envelope.tenant,
                session_id="" if refused else session,
                first_offset=first.offset,
                last_offset=last.offset,
                ended_at_ms=ended.at_ms,
            )
        )

    def _remember(self, run: PastRun) -> None:
        self._over[run.run_id] = run
        self.issued_until_ms = max(self.issued_until_ms, run.issued_at_ms)
        if run.session_id:
            self._last_of_session[run.session_id] = run.run_id
        if len(self._over) > KEEP_OVER:
            name, oldest = self._over.popitem(last=False)
            if self._last_of_session.get(oldest.session_id) == name:
                del self._last_of_session[oldest.session_id]
            self._forgotten_until = max(self._forgotten_until, oldest.last_offset + 1)
            self._known_since_ms = max(self._known_since_ms, oldest.ended_at_ms + 1, oldest.issued_at_ms + 1)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def prepare(
        self, record: LogRecord, command: Command, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        if self._secrecy.is_on and not isinstance(command, ForkRun):  # whose a fork is tells its origin
            subject = _subject_of(command, partition)
            sealed = command if subject is None else self._secrecy.command(command, subject)
            if isinstance(sealed, Coroutine):
                return self._prepare_sealed(record, sealed, partition)
            command = sealed
        return self._prepare(record, command, partition)

    async def _prepare_sealed(
        self, record: LogRecord, sealing: Coroutine[Any, Any, Command], partition: Partition
    ) -> Prepared:
        prepared = self._prepare(record, await sealing, partition)
        return prepared if isinstance(prepared, Prepared) else await prepared

    def _prepare(
        self, record: LogRecord, command: Command, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        match command:
            case StartRun():
                if self._budgets is not None and self._budgets.applies(command.envelope.tenant, command.user_id):
                    starting = self._start_in_budget(self._budgets, record, command, partition)
                    return self._doorway.through(starting, command, partition)
                return self._doorway.through(self._start(record, command, partition), command, partition)
            case ForkRun():
                return self._fork(record, command, partition)
            case ImportRun():
                return self._import(record, command, partition)
            case CancelRun():
                cancel = Cancel(
                    at_ms=self._clock_ms(), command=command, cascaded=self._descendants(command.run_id, partition)
                )
                prepared = self._existing(command.run_id, command, partition, lambda: cancel)
                # A run that stands still may be ended when it is known how far it came.
                prepared.despite_quarantine = prepared.aggregate is not None and not prepared.aggregate.unfolded
                return prepared
            case CloseResident():
                close = Close(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: close)
            case PauseRun():
                pause = PauseIt(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: pause)
            case ResumeRun():
                resume = ResumeIt(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: resume)
            case PostInput():
                given = Input(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: given)
            case CompactRun():
                compact = Compact(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: compact)
            case ResolveCall():
                # Sent again it is refused or has no place: what it resolved does not wait any more.
                resolve = Resolve(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: resolve)
            case ResolveInterruption():
                return self._respond(command, partition)
            case CancelTurn():
                return self._stop_turn(command, partition)
            case QuarantineRun():
                return self._quarantine(command, partition)
            case ReleaseRun():
                return self._release(command, partition)
            case HandOverModelReply() | HandOverToolResult():
                result = order_of(command, self._clock_ms())
                return self._existing(command.run_id, command, partition, lambda: result)
            case _:
                assert_never(command)

    def _descendants(self, run_id: str, partition: Partition) -> tuple[str, ...]:
        """Handles of the live runs below it."""
        live = (partition.aggregates.get(name) for name in self._kin.descendants(run_id))
        handles = [found.state.facts.agent_id for found in live if found is not None]
        return tuple(handles[:CASCADED_MAX])

    def _existing(self, run_id: str, command: ToARun, partition: Partition, order: Callable[[], Any]) -> Prepared:
        aggregate = partition.aggregates.get(run_id)
        if aggregate is None or aggregate.tenant != command.envelope.tenant:
            return Prepared(None)
        return Prepared(aggregate, order, command.envelope.command_id)

    def _respond(self, command: ResolveInterruption, partition: Partition) -> Prepared | Coroutine[Any, Any, Prepared]:
        prepared = self._existing(command.run_id, command, partition, lambda: None)
        held = prepared.aggregate
        if held is None:
            return prepared
        facts = getattr(held.state, "facts", None)
        subject = "" if facts is None else facts.user_id
        answering = self._responses.prepared(command, held.state, held.tenant, subject)

        async def opened(opening: Coroutine[Any, Any, Answering]) -> Prepared:
            answered = await opening
            return Prepared(held, lambda: answered(self._clock_ms()), command.envelope.command_id)

        if isinstance(answering, Coroutine):
            return opened(answering)
        return Prepared(held, lambda: answering(self._clock_ms()), command.envelope.command_id)

    def _stop_turn(self, command: CancelTurn, partition: Partition) -> Prepared | Coroutine[Any, Any, Prepared]:
        stop = StopTurn(at_ms=self._clock_ms(), command=command)
        prepared = self._existing(command.run_id, command, partition, lambda: stop)
        held = prepared.aggregate
        if held is None or self._so_far is None or not isinstance(held.state, AwaitingModel):
            return prepared
        return self._stop_call(command, held, held.state, self._so_far)

    async def _stop_call(
        self, command: CancelTurn, held: Aggregate, state: AwaitingModel, so_far: SaidSoFar
    ) -> Prepared:
        turn, attempt = state.turn, state.attempt
        text, blob = await so_far(held.id, turn, attempt)
        stop = StopTurn(at_ms=self._clock_ms(), command=command, turn=turn, attempt=attempt, text=text, text_blob=blob)
        return Prepared(held, lambda: stop, command.envelope.command_id)

    def _quarantine(self, command: QuarantineRun, partition: Partition) -> Prepared:
        held = self._existing(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return Prepared(None)
        quarantine = Quarantine(at_ms=self._clock_ms(), command=command, was=held.quarantined)
        return Prepared(held, lambda: quarantine, command.envelope.command_id, despite_quarantine=True)

    def _release(self, command: ReleaseRun, partition: Partition) -> Prepared | Coroutine[Any, Any, Prepared]:
        held = self._existing(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return Prepared(None)
        if not held.quarantined:
            release = Release(at_ms=self._clock_ms(), command=command)
            return Prepared(held, lambda: release, command.envelope.command_id)
        return self._release_from_log(command, held, partition)

    async def _release_from_log(self, command: ReleaseRun, held: Aggregate, partition: Partition) -> Prepared:
        """The run folded again, which may have been repaired. Raises Transient."""
        settled = asyncio.Event()
        partition.mark(lambda _: settled.set())
        await settled.wait()
        seq = held.seq
        again = await self._past.again(self._number, held)
        error = again if isinstance(again, str) else ""
        found = held if isinstance(again, str) else again
        found.quarantined = held.quarantined

        def order() -> Release:
            if partition.aggregates.get(held.id) is not held or held.seq != seq:
                raise ValueError(f"{held.id} has changed while it was folded again: release it once more")
            if error and getattr(held.state, "facts", None) is None:
                raise ValueError(f"{held.id} cannot be folded from its first event on: {error}")
            return Release(
                at_ms=self._clock_ms(),
                command=command,
                was=held.quarantined,
                error=error,
                obey=self.standing(found),
            )

        return Prepared(found, order, command.envelope.command_id, despite_quarantine=True)

    async def _start_in_budget(
        self, budgets: StartBudgets, record: LogRecord, command: StartRun, partition: Partition
    ) -> Prepared:
        """The start of a run to which limits apply, with the one under which nothing is left. Raises Transient."""
        exhausted = await budgets.exhausted(command.envelope.tenant, command.user_id)
        starting = self._start(record, command, partition)
        prepared = starting if isinstance(starting, Prepared) else await starting
        order = prepared.order
        if exhausted is not None and order is not None:
            prepared.order = lambda: replace(order(), exhausted=exhausted)
        return prepared

    def _start(
        self, record: LogRecord, command: StartRun, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        key = (record.key or b"").decode(errors="replace")
        run_id = command.run_id or derived_run_id(key, command.envelope.tenant, command.envelope.command_id)
        self._check_place(key, run_id, "session", command.session_id, record)
        known = partition.aggregates.get(run_id)
        if known is not None:
            self._was_issued(run_id, command)
            return Prepared(known, lambda: self._order(command, run_id, None, found=True), command.envelope.command_id)
        if run_id in self._over or run_id in self._ending:
            return Prepared(None)
        ending = self._holder_that_ends(command)
        if ending:
            ended = self._ending[ending] or asyncio.Event()
            self._ending[ending] = ended
            return self._start_after(ended, record, command, partition)
        may_be_forgotten = self._may_be_forgotten(command)
        if may_be_forgotten or (command.session_id and not self._session_in_memory(command)):
            return self._look_up(record, command, run_id, look_for_run=may_be_forgotten)
        return self._ready(record, command, run_id, self._session_from_memory(command))

    def _may_be_forgotten(self, command: StartRun | ForkRun) -> bool:
        """Whether the command may have been handled so long ago that only the index knows."""
        if self._known_since_ms == 0:
            return False  # nothing was ever forgotten
        return bool(command.idempotency_key) or command.envelope.issued_at_ms < self._known_since_ms + CLOCK_SKEW_MS

    def _was_issued(self, run_id: str, command: StartRun | ForkRun) -> None:
        self._issued[run_id] = max(self._issued.get(run_id, 0), command.envelope.issued_at_ms)

    def _holder_that_ends(self, command: StartRun) -> str:
        """The run that has the session or the handle asked for, when its end is on its way to the log; else empty."""
        tenant = command.envelope.tenant
        holders = (
            self._live_sessions.get((tenant, command.session_id), ""),
            self._live_handles.get((tenant, command.agent_id), ""),
        )
        return next((run_id for run_id in holders if run_id in self._ending), "")

    async def _start_after(
        self, ended: asyncio.Event, record: LogRecord, command: StartRun, partition: Partition
    ) -> Prepared:
        # Its end may be read in the log before its acknowledgement reaches us, so whoever asks now is not too early.
        await ended.wait()
        prepared = self._start(record, command, partition)
        return prepared if isinstance(prepared, Prepared) else await prepared

    def _check_place(self, key: str, run_id: str, kind: str, other: str, record: LogRecord) -> None:
        """`other` is the session or run (`kind`) whose partition the new run must share; empty: none."""
        if not ID_PATTERN.match(run_id):
            raise ValueError(f"run_id {run_id!r}: expected 1 to 128 of A-Z a-z 0-9 _ -")
        if key != partition_key(run_id):
            raise ValueError(
                f"the record's key is {key!r}, but the run {run_id} belongs under {partition_key(run_id)!r}"
            )
        if other and partition_key(other) != key:
            raise ValueError(
                f"the record's key is {key!r}, but the {kind} {other} belongs under {partition_key(other)!r}"
            )
        expected = partition_of(record.key or b"", self._partitions)
        if record.partition != expected:
            raise ValueError(
                f"the record lies in partition {record.partition}, but its key belongs in {expected}: "
                "produce with the murmur2 partitioner"
            )
        if len(record.value or b"") > MAX_COMMAND_BYTES:
            raise ValueError(f"the command has {len(record.value or b'')} bytes, at most {MAX_COMMAND_BYTES}")

    def _session_in_memory(self, command: StartRun) -> bool:
        return self._session_is_live(command) or self._kept_session(command) is not None

    def _session_is_live(self, command: StartRun) -> bool:
        # By tenant: what another tenant has is not found, and never named in an answer.
        return (command.envelope.tenant, command.session_id) in self._live_sessions

    def _session_from_memory(self, command: StartRun) -> PastRun | None:
        run_id = self._last_of_session.get(command.session_id)
        return self._over.get(run_id) if run_id is not None else None

    def _kept_session(self, command: StartRun) -> PastRun | None:
        """The session's last run when its state is at hand too, so that nothing has to be read."""
        found = self._session_from_memory(command)
        return found if found is not None and self._past.kept(found.run_id) is not None else None

    async def _reach_index(self) -> None:
        """Raises Transient while the index lacks something that memory has forgotten."""
        reached = await self._index.reached(self._number)
        if reached < self._forgotten_until:
            raise Transient(
                f"the index of partition {self._number} is at {reached}, {self._forgotten_until} is needed",
                kind="unavailable",
            )

    async def _look_up(self, record: LogRecord, command: StartRun, run_id: str, *, look_for_run: bool) -> Prepared:
        await self._reach_index()
        if look_for_run and await self._index.find_run(run_id) is not None:
            return Prepared(None)
        last = self._session_from_memory(command)
        if command.session_id and last is None and not self._session_is_live(command):
            last = await self._index.last_run_of_session(command.session_id)
        if last is not None and last.tenant == command.envelope.tenant:
            await self._past.state(self._number, last.position)
        return self._ready(record, command, run_id, last)

    def _ready(self, record: LogRecord, command: StartRun, run_id: str, last: PastRun | None) -> Prepared:
        tenant = command.envelope.tenant
        self._was_issued(run_id, command)
        if last is not None and last.tenant != tenant:
            last = None
        ended = self._past.kept(last.run_id) if last is not None else None
        history = conversation(ended) if ended is not None else None
        found = not command.session_id or last is not None or self._session_is_live(command)
        aggregate = Aggregate(
            id=run_id,
            state=self._absent(run_id, history),
            key=record.key or b"",
            tenant=tenant,
        )
        trace = traceparent_in(record.headers) or self._tracing.context_of(run_id)

        def order() -> Start:
            return self._order(command, run_id, last, found=found, traceparent=trace)

        return Prepared(aggregate, order, command.envelope.command_id)

    def _order(
        self, command: StartRun, run_id: str, last: PastRun | None, *, found: bool, traceparent: str = ""
    ) -> Start:
        tenant = command.envelope.tenant
        session = command.session_id or f"s_{run_id[2:]}"
        handle = command.agent_id or f"a_{run_id[2:]}"
        resolved = self._definitions.resolve(command.agent, tenant=tenant, user_tier=command.user_tier)
        definition = narrowed(resolved, command) if isinstance(resolved, AgentDefinition) else None
        return Start(
            at_ms=self._clock_ms(),
            command=command,
            session_id=session,
            agent_id=handle,
            definition=definition,
            unresolved=resolved if isinstance(resolved, Refusal) else None,
            session_found=found,
            session_live_run=self._live_sessions.get((tenant, session), ""),
            handle_live_run=self._live_handles.get((tenant, handle), ""),
            continues=last.position if last is not None else None,
            traceparent=traceparent,
            pauses=self._holding(tenant, command.agent),
        )

    def _holding(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """What holds runs of that tenant and agent now, wider than a run."""
        return self._pauses().holding(tenant, agent) if self._pauses is not None else ()

    # --- forks and imports -------------------------------------------------------------------------------------------

    def _fork(
        self, record: LogRecord, command: ForkRun, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        key = (record.key or b"").decode(errors="replace")
        run_id = command.run_id or derived_run_id(key, command.envelope.tenant, command.envelope.command_id)
        self._check_place(key, run_id, "run", command.origin_run_id, record)
        if run_id in partition.aggregates or run_id in self._over or run_id in self._ending:
            return Prepared(None)
        return self._fork_from_log(record, command, run_id, partition)

    async def _fork_from_log(self, record: LogRecord, command: ForkRun, run_id: str, partition: Partition) -> Prepared:
        if command.origin_run_id in self._ending:
            ended = self._ending[command.origin_run_id] or asyncio.Event()
            self._ending[command.origin_run_id] = ended
            await ended.wait()
        if self._may_be_forgotten(command) and await self._is_in_index(run_id):
            return Prepared(None)
        self._was_issued(run_id, command)
        trace = traceparent_in(record.headers) or self._tracing.context_of(run_id)
        return await self._relatives.fork(record, command, run_id, partition, traceparent=trace)

    def _import(
        self, record: LogRecord, command: ImportRun, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        key = (record.key or b"").decode(errors="replace")
        self._check_place(key, command.run_id, "run", "", record)
        known = partition.aggregates.get(command.run_id)
        if known is not None:
            is_theirs = known.tenant == command.envelope.tenant
            return self._relatives.further_part(command, known) if is_theirs else Prepared(None)
        if command.run_id in self._over or command.run_id in self._ending or command.first_seq != 1:
            return Prepared(None)
        return self._import_first(record, command, partition)

    async def _import_first(self, record: LogRecord, command: ImportRun, partition: Partition) -> Prepared:
        # A run that happened long ago may have been imported at any time since.
        if self._forgotten_until and await self._is_in_index(command.run_id):
            return Prepared(None)
        return await self._relatives.first_part(record, command, partition)

    async def _is_in_index(self, run_id: str) -> bool:
        await self._reach_index()
        return await self._index.find_run(run_id) is not None

    async def _position_of(self, run_id: str, tenant: str, partition: Partition) -> RunPosition | None:
        """Where the run lies as far as it is in the log; None when this tenant has none of that id."""
        live = partition.aggregates.get(run_id)
        if live is not None:
            if live.tenant != tenant or live.first_offset < 0:
                return None
            return RunPosition(run_id=run_id, first_offset=live.first_offset, last_offset=live.last_offset)
        found = self._over.get(run_id)
        if found is None:
            await self._reach_index()
            found = await self._index.find_run(run_id)
        return found.position if found is not None and found.tenant == tenant else None


def _subject_of(command: Command, partition: Partition) -> str | None:
    """The user of the run a command is for; None when nothing will come of it."""
    if isinstance(command, StartRun):
        return command.user_id
    aggregate = partition.aggregates.get(command.run_id)
    facts = None if aggregate is None else getattr(aggregate.state, "facts", None)
    return None if facts is None else str(facts.user_id)


def derived_run_id(key: str, tenant: str, command_id: str) -> str:
    """The run id of a StartRun that names none: the record's key and a hash of the command id."""
    if not KEY_PATTERN.match(key):
        raise ValueError(
            f"the record's key is {key!r}; expected 1 to 64 letters and digits, or a run_id in the command"
        )
    return f"r_{key}-{hashed_token('command', tenant, command_id)}"
