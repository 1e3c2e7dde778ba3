"""What the owner of a run partition keeps for it: it watches decisions, and makes commands ready for the core.

What it remembers of runs is in known_runs.py; new runs are made ready in starts.py (forks and imports: relatives.py),
orders between the runs of a tree in kin.py. Here is the rest: orders to runs that exist, pauses wider than a run, and
what has to be done when a run has begun or ended.

Before: intake.py. After: the core decides on the orders.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, assert_never

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.generated.run_commands import (
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
from loomlog.schemas.generated.run_events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRefused,
    RunRestored,
    RunStarted,
)
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.pauses import PauseTable
from loomlog.services.core.run.commands import (
    ApplyWidePauses,
    CancelCommand,
    CancelTurnCommand,
    CloseCommand,
    CompactCommand,
    InputCommand,
    PauseCommand,
    QuarantineCommand,
    ReleaseCommand,
    ResolveCallCommand,
    ResumeCommand,
)
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.react import RelatedRunEffect
from loomlog.services.core.run.run_facts import Pause
from loomlog.services.core.run.state import AwaitingModel, Ended
from loomlog.services.runtime.admission.partition_gate import Doorway
from loomlog.services.runtime.admission.queue import Door
from loomlog.services.runtime.content.encryption import IN_CLEAR, Secrecy
from loomlog.services.runtime.content.run_credentials import NO_CREDENTIALS, Credentials
from loomlog.services.runtime.models.budget_reservation import StartBudgets
from loomlog.services.runtime.models.definition_resolver import Definitions
from loomlog.services.runtime.run.child_runs import KinDesk
from loomlog.services.runtime.run.history_handler import Relatives
from loomlog.services.runtime.run.interrupt_responses import Answering, Responses
from loomlog.services.runtime.run.late_results import order_of
from loomlog.services.runtime.run.partition_check import check_place
from loomlog.services.runtime.run.run_directory import KnownRuns
from loomlog.services.runtime.run.run_index import PastRun, RunIndex
from loomlog.services.runtime.run.start_handler import Starts
from loomlog.services.runtime.telemetry.run_summaries import Tallies
from loomlog.services.runtime.telemetry.tracing import NO_TRACING, Tracing
from loomlog.services.stream.context import Prepared
from loomlog.services.stream.partition.ended_aggregates import Past
from loomlog.services.stream.partition.partition import Aggregate, Decision, Partition

CASCADED_MAX = 2_000
"""Handles of descendants that a cancel lists, 30 bytes each, so that it fits one append; all of them end."""
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
NOTED = frozenset({RunStarted, RunRestored, RunRefused, RunCompleted, RunFailed, RunCancelled})
"""Events by which somebody begins or ends to hold a session and a handle; most do not."""

SaidSoFar = Callable[[str, int, int], Coroutine[Any, Any, tuple[str, BlobRef | None]]]
"""What the model has said in that run, turn and attempt, if this process asks it; so_far.SoFar."""


class RunDesk:
    """The desk of one partition (protocol loomlog.services.stream.context.Desk)."""

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
        self._doorway = Doorway(door)
        self._credentials = credentials
        self._number = number
        self._partitions = partitions
        self._known = KnownRuns(
            number=number, known_since_ms=known_since_ms, forgotten_until=forgotten_until, index=index, past=past
        )
        self._past = past
        self._tallies = tallies
        self._clock_ms = clock_ms
        self._pauses = pauses
        self._timeline = tracing.timeline()
        self._relatives = Relatives(
            number=number,
            past=past,
            definitions=definitions,
            find=self._known.position_of,
            holder=lambda tenant, handle: self._known.handles.get((tenant, handle), ""),
            speaker=lambda tenant, session: self._known.sessions.get((tenant, session), ""),
            clock_ms=clock_ms,
            absent=absent,
            pauses=self._holding,
            secrecy=secrecy,
        )
        self._kin = KinDesk(
            number=number,
            past=past,
            definitions=definitions,
            find=self._known.position_of,
            is_ending=lambda run_id: run_id in self._known.ending,
            is_over=lambda run_id: run_id in self._known.over,
            holder=lambda tenant, handle: self._known.handles.get((tenant, handle), ""),
            pauses=self._holding,
            clock_ms=clock_ms,
            absent=absent,
            budgets=budgets,
        )
        self._starts = Starts(
            number=number,
            partitions=partitions,
            known=self._known,
            definitions=definitions,
            past=past,
            relatives=self._relatives,
            holding=self._holding,
            is_erased=secrecy.is_erased,
            clock_ms=clock_ms,
            absent=absent,
            tracing=tracing,
            budgets=budgets,
        )

    @property
    def issued_until_ms(self) -> int:
        return self._known.issued_until_ms

    # --- watching ----------------------------------------------------------------------------------------------------

    def closed(self) -> None:
        self._doorway.closed()

    def as_kept(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        if not self._secrecy.is_on:
            return events
        facts = getattr(aggregate.state, "facts", None)
        return events if facts is None else self._secrecy.results(events, aggregate.tenant, facts.user_id)

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        self._doorway.decided(aggregate, event)
        if type(event) not in NOTED:
            return
        match event:
            case RunStarted(session_id=session, agent_id=handle, imported_from=None, parent=parent):
                self._known.sessions[aggregate.tenant, session] = aggregate.id
                self._known.handles[aggregate.tenant, handle] = aggregate.id
                if parent is not None:
                    self._kin.began(aggregate.id, parent.run_id)
            case RunRestored() if not is_importing(aggregate.state):
                self._hold(aggregate)
            case RunRefused() | RunCompleted() | RunFailed() | RunCancelled():
                self._known.ending[aggregate.id] = None

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        if RunRestored in map(type, decision.events):
            # What was told again was no work of this process.
            self._timeline.found_live(aggregate.id, aggregate.state, self._clock_ms())
        elif not is_importing(aggregate.state):
            self._timeline.durable(aggregate.id, aggregate.tenant, aggregate.state, decision.events, self._clock_ms())
        if not decision.ends:
            return
        awaited = self._known.ending.pop(aggregate.id, None)
        if awaited is not None:
            awaited.set()
        state = aggregate.state
        session = ""
        if isinstance(state, Ended):
            # Not before: until its end is in the log a run keeps its session and its handle.
            session = state.facts.session_id
            self._past.keep(aggregate.id, state)
            if not is_importing(state):
                self._known.sessions.pop((aggregate.tenant, session), None)
                self._known.handles.pop((aggregate.tenant, state.facts.agent_id), None)
                if state.facts.parent is not None:
                    self._kin.ended(aggregate.id, state.facts.parent.run_id)
                self._tallies.ended(aggregate, state, self._number)
                self._credentials.ended(state.facts)
        self._known.remember(
            PastRun(
                run_id=aggregate.id,
                tenant=aggregate.tenant,
                session_id=session,
                partition=self._number,
                first_offset=aggregate.first_offset,
                last_offset=aggregate.last_offset,
                ended_at_ms=self._clock_ms(),
                issued_at_ms=self._known.issued.pop(aggregate.id, 0),
            )
        )

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None:
        self._timeline.folded(aggregate.id, event, at_ms)

    def found_live(self, aggregate: Aggregate) -> None:
        if is_importing(aggregate.state):
            return  # it holds no session and no handle: nothing of it is done here
        self._doorway.look_at(aggregate)
        self._timeline.found_live(aggregate.id, aggregate.state, self._clock_ms())
        self._hold(aggregate)

    def _hold(self, aggregate: Aggregate) -> None:
        """Its session and its handle are its own while it lives."""
        facts = getattr(aggregate.state, "facts", None)
        if facts is not None:
            self._known.sessions[aggregate.tenant, facts.session_id] = aggregate.id
            self._known.handles[aggregate.tenant, facts.agent_id] = aggregate.id
            if facts.parent is not None:
                self._kin.began(aggregate.id, facts.parent.run_id)

    def found_over(self, first: RawEvent, last: RawEvent) -> None:
        self._known.found_over(first, last)

    def carry_out(
        self, aggregate: Aggregate, effect: RelatedRunEffect, state: Any, partition: Partition
    ) -> Sequence[Prepared] | Coroutine[Any, Any, Sequence[Prepared]]:
        return self._kin.carry_out(aggregate, effect, state, partition)

    def standing(self, aggregate: Aggregate) -> ApplyWidePauses | None:
        """The pauses wider than the run that hold it now."""
        facts = getattr(aggregate.state, "facts", None)
        if self._pauses is None or facts is None:
            return None
        table = self._pauses()
        wanted = table.holding(aggregate.tenant, facts.definition.name)
        return ApplyWidePauses(at_ms=self._clock_ms(), pauses=wanted, by=table.by)

    # --- preparing ---------------------------------------------------------------------------------------------------

    def prepare(
        self, record: LogRecord, command: Command, partition: Partition
    ) -> Prepared | Coroutine[Any, Any, Prepared]:
        """Raises ValueError for a command that does not belong here."""
        if isinstance(command, ToARun):
            check_place(record, command.run_id, self._partitions)
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
                return self._doorway.through(self._starts.start(record, command, partition), command, partition)
            case ForkRun():
                return self._starts.fork(record, command, partition)
            case ImportRun():
                return self._starts.take_in(record, command, partition)
            case CancelRun():
                cancel = CancelCommand(
                    at_ms=self._clock_ms(), command=command, cascaded=self._descendants(command.run_id, partition)
                )
                prepared = self._existing(command.run_id, command, partition, lambda: cancel)
                # A run that stands still may be ended when it is known how far it came.
                prepared.despite_quarantine = prepared.aggregate is not None and not prepared.aggregate.unfolded
                return prepared
            case CloseResident():
                close = CloseCommand(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: close)
            case PauseRun():
                pause = PauseCommand(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: pause)
            case ResumeRun():
                resume = ResumeCommand(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: resume)
            case PostInput():
                given = InputCommand(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: given)
            case CompactRun():
                compact = CompactCommand(at_ms=self._clock_ms(), command=command)
                return self._existing(command.run_id, command, partition, lambda: compact)
            case ResolveCall():
                # Sent again it is refused or has no place: what it resolved does not wait any more.
                resolve = ResolveCallCommand(at_ms=self._clock_ms(), command=command)
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
        stop = CancelTurnCommand(at_ms=self._clock_ms(), command=command)
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
        stop = CancelTurnCommand(
            at_ms=self._clock_ms(), command=command, turn=turn, attempt=attempt, text=text, text_blob=blob
        )
        return Prepared(held, lambda: stop, command.envelope.command_id)

    def _quarantine(self, command: QuarantineRun, partition: Partition) -> Prepared:
        held = self._existing(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return Prepared(None)
        quarantine = QuarantineCommand(at_ms=self._clock_ms(), command=command, existing_reason=held.quarantined)
        return Prepared(held, lambda: quarantine, command.envelope.command_id, despite_quarantine=True)

    def _release(self, command: ReleaseRun, partition: Partition) -> Prepared | Coroutine[Any, Any, Prepared]:
        held = self._existing(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return Prepared(None)
        if not held.quarantined:
            release = ReleaseCommand(at_ms=self._clock_ms(), command=command)
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

        def order() -> ReleaseCommand:
            if partition.aggregates.get(held.id) is not held or held.seq != seq:
                raise ValueError(f"{held.id} has changed while it was folded again: release it once more")
            if error and getattr(held.state, "facts", None) is None:
                raise ValueError(f"{held.id} cannot be folded from its first event on: {error}")
            return ReleaseCommand(
                at_ms=self._clock_ms(),
                command=command,
                existing_reason=held.quarantined,
                error=error,
                wide_pauses=self.standing(found),
            )

        return Prepared(found, order, command.envelope.command_id, despite_quarantine=True)

    def _holding(self, tenant: str, agent: str) -> tuple[Pause, ...]:
        """What holds runs of that tenant and agent now, wider than a run."""
        return self._pauses().holding(tenant, agent) if self._pauses is not None else ()


def _subject_of(command: Command, partition: Partition) -> str | None:
    """The user of the run a command is for; None when nothing will come of it."""
    if isinstance(command, StartRun):
        return command.user_id
    aggregate = partition.aggregates.get(command.run_id)
    facts = None if aggregate is None else getattr(aggregate.state, "facts", None)
    return None if facts is None else str(facts.user_id)
