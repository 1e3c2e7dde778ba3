"""Command handler of a run partition: observes decisions, and prepares commands for the core.

The known runs are in run_directory.py; new runs are prepared in start_handler.py (forks and imports:
history_handler.py), commands between the runs of a tree in child_runs.py. This module has the rest: commands to
existing runs, pauses wider than a run, and the work at the start and end of a run.

Before: partition/command_intake.py. After: the core decides the commands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, assert_never

from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.generated.run_commands import (
    CancelRun,
    CancelTurn,
    CloseResident,
    Command,
    CompactRun,
    ForkRun,
    GiveApproval,
    HandOverModelReply,
    HandOverToolResult,
    ImportRun,
    PauseRun,
    PostInput,
    QuarantineRun,
    ReleaseRun,
    ReportWait,
    ResolveCall,
    ResolveInterruption,
    ResumeRun,
    StartRun,
)
from loomlog.schemas.generated.run_events import (
    ApprovalEscalated,
    InterruptionClosed,
    InterruptionOpened,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunRefused,
    RunRestored,
    RunStarted,
)
from loomlog.schemas.reader import RawEvent
from loomlog.services.core.run.commands import (
    ApplyWidePauses,
    CancelCommand,
    CancelTurnCommand,
    CloseCommand,
    CompactCommand,
    GiveApprovalCommand,
    InputCommand,
    PauseCommand,
    QuarantineCommand,
    ReleaseCommand,
    ResolveCallCommand,
    ResumeCommand,
)
from loomlog.services.core.run.interrupts.approvals import asked_approval
from loomlog.services.core.run.lifecycle.activity import may_rest
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.lifecycle.pause import RUN_SCOPE
from loomlog.services.core.run.react import RelatedRunEffect
from loomlog.services.core.run.state import AwaitingModel, Ended
from loomlog.services.runtime.admission.partition_gate import PartitionAdmission
from loomlog.services.runtime.run.child_runs import ChildRunCoordinator
from loomlog.services.runtime.run.context import Interruption, RunContext
from loomlog.services.runtime.run.history_handler import HistoryHandler
from loomlog.services.runtime.run.interrupt_responses import InterruptionAnswers
from loomlog.services.runtime.run.late_results import decode_result
from loomlog.services.runtime.run.partition_check import check_partition
from loomlog.services.runtime.run.run_directory import RunDirectory, own_handle, own_session
from loomlog.services.runtime.run.run_end_actions import end_of_decision
from loomlog.services.runtime.run.run_index import EndedRun
from loomlog.services.runtime.run.start_handler import StartHandler, derive_run_id
from loomlog.services.runtime.run.wait_reports import WaitReports
from loomlog.services.stream.context import PendingDecision, TimerIntake
from loomlog.services.stream.partition.asked import AskedRecord
from loomlog.services.stream.partition.fold import Fold
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Decision, Partition
from loomlog.services.stream.partition.resting import Resting, shared_resting

CASCADED_MAX = 2_000
"""Maximum handles of descendants that a cancel lists, 30 bytes each, so that it fits one append; all of them end."""
LiveRunCommand = (
    CancelRun
    | CancelTurn
    | CloseResident
    | CompactRun
    | PauseRun
    | PostInput
    | QuarantineRun
    | ReleaseRun
    | ReportWait
    | ResolveCall
    | ResolveInterruption
    | GiveApproval
    | ResumeRun
    | HandOverModelReply
    | HandOverToolResult
)
"""Commands to an existing run."""
REGISTRY_EVENTS = frozenset({RunStarted, RunRestored, RunRefused, RunCompleted, RunFailed, RunCancelled})
"""Events with which a run begins or stops holding its session and handle; most events do not."""
INTERRUPTIONS = frozenset({InterruptionOpened, InterruptionClosed, ApprovalEscalated})


class RunCommandHandler:
    """The command handler of one partition (protocol loomlog.services.stream.context.CommandHandler)."""

    def __init__(self, context: RunContext, *, number: int, known_since_ms: int, forgotten_until: int) -> None:
        """`number` is the partition; `known_since_ms` and `forgotten_until`: see run_directory.py."""
        self._context = context
        self._number = number
        self._encryption = context.encryption
        self._clock_ms = context.clock_ms
        self._past = context.ended_runs
        self._interruption_answers = context.interruption_answers or InterruptionAnswers(context.encryption)
        self._admission = PartitionAdmission(context.admission_queue)
        self._timeline = context.tracing.timeline()
        self._directory = RunDirectory(
            number=number,
            known_since_ms=known_since_ms,
            forgotten_until=forgotten_until,
            index=context.index,
            past=context.ended_runs,
        )
        self._history = HistoryHandler(context, self._directory, number=number)
        self._waits = WaitReports(context, self._directory, number=number)
        self._child_runs = ChildRunCoordinator(context, self._directory, number=number)
        self._start_handler = StartHandler(context, self._directory, self._history, number=number)

    @property
    def issued_until_ms(self) -> int:
        return self._directory.issued_until_ms

    # --- watching ----------------------------------------------------------------------------------------------------

    def aggregate_closed(self) -> None:
        self._admission.close()
        if self._context.end_actions is not None:
            self._context.end_actions.release(self._number)

    def to_snapshot_state(self, aggregate: Aggregate, events: Sequence[Any]) -> Sequence[Any]:
        if not self._encryption.is_enabled:
            return events
        facts = getattr(aggregate.state, "facts", None)
        return events if facts is None else self._encryption.encrypt_results(events, aggregate.tenant, facts.user_id)

    def decided(self, aggregate: Aggregate, event: Any) -> None:
        self._admission.on_decided(aggregate, event)
        self._waits.decided(aggregate)
        if type(event) not in REGISTRY_EVENTS:
            return
        match event:
            case RunStarted(session_id=session, agent_id=handle, imported_from=None, parent=parent):
                self._directory.register(aggregate.id, aggregate.tenant, session, handle)
                if parent is not None:
                    self._child_runs.on_child_started(aggregate.id, parent.run_id)
            case RunRestored() if not is_importing(aggregate.state):
                self._register_live_run(aggregate)
            case RunRefused() | RunCompleted() | RunFailed() | RunCancelled():
                self._directory.ending[aggregate.id] = None

    def durable(self, aggregate: Aggregate, decision: Decision) -> None:
        if RunRestored in map(type, decision.events):
            # An imported history is not the work of this process.
            self._timeline.on_recovered(aggregate.id, aggregate.state, self._clock_ms())
        elif not is_importing(aggregate.state):
            self._timeline.on_durable(
                aggregate.id, aggregate.tenant, aggregate.state, decision.events, self._clock_ms()
            )
            self._waits.durable(decision)
            if not INTERRUPTIONS.isdisjoint(map(type, decision.events)):
                for event in decision.events:
                    self._report_interruption(aggregate, event, is_repeated=False)
        if not decision.ended:
            return
        awaited = self._directory.ending.pop(aggregate.id, None)
        if awaited is not None:
            awaited.set()
        state = aggregate.state
        session = ""
        if isinstance(state, Ended):
            # Only now: until its end is in the log a run keeps its session and its handle.
            session = state.facts.session_id
            self._past.cache(aggregate.id, state)
            if not is_importing(state):
                self._directory.unregister(aggregate.id, aggregate.tenant, session, state.facts.agent_id)
                if state.facts.parent is not None:
                    self._child_runs.on_child_ended(aggregate.id, state.facts.parent.run_id)
                self._context.run_summaries.add_ended_run(aggregate, state, self._number)
                self._context.credentials.on_run_ended(state.facts)
                self._context.on_run_ended(aggregate.tenant, state.facts)
        self._directory.add_ended(
            EndedRun(
                run_id=aggregate.id,
                tenant=aggregate.tenant,
                session_id=session,
                partition=self._number,
                first_offset=aggregate.first_offset,
                last_offset=aggregate.last_offset,
                ended_at_ms=self._clock_ms(),
                issued_at_ms=self._directory.issued_at_ms.pop(aggregate.id, 0),
            )
        )
        if self._context.end_actions is not None:
            end = end_of_decision(aggregate, decision.events, self._number, self._clock_ms())
            self._context.end_actions.on_ended(end)

    def folded(self, aggregate: Aggregate, event: Any, at_ms: int) -> None:
        self._timeline.on_replayed(aggregate.id, event, at_ms)
        if type(event) in INTERRUPTIONS and not is_importing(aggregate.state):
            self._report_interruption(aggregate, event, is_repeated=True)

    def _report_interruption(self, aggregate: Aggregate, event: Any, *, is_repeated: bool) -> None:
        facts = getattr(aggregate.state, "facts", None)
        if facts is not None and isinstance(event, Interruption):
            for tell in self._context.on_interruption:
                tell(aggregate.tenant, facts, event, is_repeated)
        if facts is not None and isinstance(event, InterruptionOpened | ApprovalEscalated):
            asked = asked_approval(aggregate.state, event)
            if asked is not None:
                for notify in self._context.on_approval:
                    notify(aggregate.tenant, facts, asked, is_repeated)

    def live_found(self, aggregate: Aggregate) -> None:
        if isinstance(aggregate.state, Resting):
            resting = aggregate.state
            self._directory.register(aggregate.id, aggregate.tenant, resting.session_id, resting.agent_id)
            return
        if is_importing(aggregate.state):
            return  # it holds no session and no handle, and nothing of it is executed here
        self._admission.update_activity(aggregate)
        self._timeline.on_recovered(aggregate.id, aggregate.state, self._clock_ms())
        self._register_live_run(aggregate)

    def _register_live_run(self, aggregate: Aggregate) -> None:
        """Record the run as the holder of its session and handle."""
        facts = getattr(aggregate.state, "facts", None)
        if facts is not None:
            self._directory.register(aggregate.id, aggregate.tenant, facts.session_id, facts.agent_id)
            if facts.parent is not None:
                self._child_runs.on_child_started(aggregate.id, facts.parent.run_id)

    def ended_found(self, first: RawEvent, last: RawEvent) -> None:
        self._directory.load_ended(first, last)

    def timer_of_absent(self, name: str, intake: TimerIntake) -> None: ...

    async def live(self, fold: Fold, load: Callable[[Aggregate], Awaitable[None]]) -> list[Aggregate]:
        if self._context.end_actions is not None:
            self._context.end_actions.on_takeover(self._number, fold)
        return await fold.live(lambda event: self._past.history_for(self._number, event), self.folded, load=load)

    # --- rest --------------------------------------------------------------------------------------------------------

    def target(self, record: LogRecord | AskedRecord, command: Command) -> str:
        if isinstance(command, StartRun) and not command.run_id:
            return derive_run_id(
                (record.key or b"").decode(errors="replace"), command.envelope.tenant, command.envelope.command_id
            )
        return command.run_id

    def resting(self, aggregate: Aggregate) -> Resting | None:
        state = aggregate.state
        if aggregate.quarantined or not may_rest(state) or self._child_runs.has_children(aggregate.id):
            return None
        facts = state.facts
        return shared_resting(
            "" if facts.session_id == own_session(aggregate.id) else facts.session_id,
            "" if facts.agent_id == own_handle(aggregate.id) else facts.agent_id,
            facts.definition.name,
            tuple(pause.scope for pause in facts.pauses if pause.scope != RUN_SCOPE),
        )

    def rested(self, aggregate: Aggregate) -> None:
        self._directory.forget_issued(aggregate.id)

    async def refold(self, aggregate: Aggregate) -> Aggregate | str:
        return await self._past.refold(self._number, aggregate)

    async def prepare_local_effect(
        self, aggregate: Aggregate, effect: RelatedRunEffect, state: Any, partition: Partition
    ) -> Sequence[PendingDecision]:
        return await self._child_runs.execute(aggregate, effect, state, partition)

    def wide_pauses_command(self, aggregate: Aggregate) -> ApplyWidePauses | None:
        """Return the command with the pauses wider than the run that apply to it now; None for a run that rests and has
        these pauses.
        """
        if self._context.pauses is None:
            return None
        table, state = self._context.pauses(), aggregate.state
        if isinstance(state, Resting):
            pauses = table.pauses_for(aggregate.tenant, state.agent)
            if {pause.scope for pause in pauses} == set(state.wide_pauses):
                return None
            return ApplyWidePauses(at_ms=self._clock_ms(), pauses=pauses, by=table.changed_by)
        facts = getattr(state, "facts", None)
        if facts is None:
            return None
        pauses = table.pauses_for(aggregate.tenant, facts.definition.name)
        return ApplyWidePauses(at_ms=self._clock_ms(), pauses=pauses, by=table.changed_by)

    # --- preparing ---------------------------------------------------------------------------------------------------

    async def prepare(self, record: LogRecord | AskedRecord, command: Command, partition: Partition) -> PendingDecision:
        """Prepare a command for the core. Raises ValueError for a command that does not belong in this partition."""
        assert not isinstance(record, AskedRecord), "commands for runs come through their topic"
        if isinstance(command, LiveRunCommand):
            check_partition(record, command.run_id, self._context.partitions)
        # the user of a fork is known only from its origin
        if self._encryption.is_enabled and not isinstance(command, ForkRun):
            subject = _subject_of(command, partition)
            if subject is not None:
                command = await self._encryption.encrypt_command(command, subject)
        match command:
            case StartRun():
                prepared = await self._start_handler.start(record, command, partition)
                return await self._admission.admit_start(prepared, command, partition)
            case ForkRun():
                return await self._start_handler.fork(record, command, partition)
            case ImportRun():
                return await self._start_handler.import_run(record, command, partition)
            case CancelRun():
                cancel = CancelCommand(
                    at_ms=self._clock_ms(), command=command, cascaded=self._descendants(command.run_id, partition)
                )
                prepared = self._prepare_for_live_run(command.run_id, command, partition, lambda: cancel)
                # A quarantined run may be cancelled if all of its events could be folded.
                prepared.allowed_in_quarantine = (
                    prepared.aggregate is not None and not prepared.aggregate.pending_events
                )
                return prepared
            case CloseResident():
                close = CloseCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: close)
            case PauseRun():
                pause = PauseCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: pause)
            case ResumeRun():
                resume = ResumeCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: resume)
            case PostInput():
                input_command = InputCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: input_command)
            case CompactRun():
                compact = CompactCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: compact)
            case ResolveCall():
                # A repeated command is refused or finds no run: the call it resolved is not open any more.
                resolve = ResolveCallCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: resolve)
            case GiveApproval():
                approval = GiveApprovalCommand(at_ms=self._clock_ms(), command=command)
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: approval)
            case ResolveInterruption():
                return await self._answer_interruption(command, partition)
            case CancelTurn():
                return await self._cancel_turn(command, partition)
            case QuarantineRun():
                return self._quarantine(command, partition)
            case ReleaseRun():
                return await self._release(command, partition)
            case ReportWait():
                return await self._waits.prepare(command, partition)
            case HandOverModelReply() | HandOverToolResult():
                result = decode_result(command, self._clock_ms())
                return self._prepare_for_live_run(command.run_id, command, partition, lambda: result)
            case _:
                assert_never(command)

    def _descendants(self, run_id: str, partition: Partition) -> tuple[str, ...]:
        """Return the handles of the live runs below a run."""
        live = (partition.aggregates.get(name) for name in self._child_runs.descendants(run_id))
        handles = [aggregate.state.facts.agent_id for aggregate in live if aggregate is not None]
        return tuple(handles[:CASCADED_MAX])

    def _prepare_for_live_run(
        self, run_id: str, command: LiveRunCommand, partition: Partition, order: Callable[[], Any]
    ) -> PendingDecision:
        aggregate = partition.aggregates.get(run_id)
        if aggregate is None or aggregate.tenant != command.envelope.tenant:
            return PendingDecision(None)
        return PendingDecision(aggregate, order, command.envelope.command_id)

    async def _answer_interruption(self, command: ResolveInterruption, partition: Partition) -> PendingDecision:
        prepared = self._prepare_for_live_run(command.run_id, command, partition, lambda: None)
        held = prepared.aggregate
        if held is None:
            return prepared
        facts = getattr(held.state, "facts", None)
        subject = "" if facts is None else facts.user_id
        answer = await self._interruption_answers.prepare(command, held.state, held.tenant, subject)
        return PendingDecision(held, lambda: answer(self._clock_ms()), command.envelope.command_id)

    async def _cancel_turn(self, command: CancelTurn, partition: Partition) -> PendingDecision:
        stop = CancelTurnCommand(at_ms=self._clock_ms(), command=command)
        prepared = self._prepare_for_live_run(command.run_id, command, partition, lambda: stop)
        held = prepared.aggregate
        if held is None or self._context.read_partial_output is None or not isinstance(held.state, AwaitingModel):
            return prepared
        turn, attempt = held.state.turn, held.state.attempt
        await continue_in_task()
        text, blob = await self._context.read_partial_output(held.id, turn, attempt)
        cancel = CancelTurnCommand(
            at_ms=self._clock_ms(), command=command, turn=turn, attempt=attempt, text=text, text_blob=blob
        )
        return PendingDecision(held, lambda: cancel, command.envelope.command_id)

    def _quarantine(self, command: QuarantineRun, partition: Partition) -> PendingDecision:
        held = self._prepare_for_live_run(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return PendingDecision(None)
        quarantine = QuarantineCommand(at_ms=self._clock_ms(), command=command, existing_reason=held.quarantined)
        return PendingDecision(held, lambda: quarantine, command.envelope.command_id, allowed_in_quarantine=True)

    async def _release(self, command: ReleaseRun, partition: Partition) -> PendingDecision:
        held = self._prepare_for_live_run(command.run_id, command, partition, lambda: None).aggregate
        if held is None:
            return PendingDecision(None)
        if not held.quarantined:
            release = ReleaseCommand(at_ms=self._clock_ms(), command=command)
            return PendingDecision(held, lambda: release, command.envelope.command_id)
        await continue_in_task()
        return await self._release_from_log(command, held, partition)

    async def _release_from_log(
        self, command: ReleaseRun, aggregate: Aggregate, partition: Partition
    ) -> PendingDecision:
        """Fold the run again, because it may have been repaired, and prepare its release. Raises Transient."""
        settled = asyncio.Event()
        partition.on_durable(lambda _: settled.set())
        await settled.wait()
        seq = aggregate.seq
        again = await self._past.refold(self._number, aggregate)
        error = again if isinstance(again, str) else ""
        released = aggregate if isinstance(again, str) else again
        released.quarantined = aggregate.quarantined

        def order() -> ReleaseCommand:
            if partition.aggregates.get(aggregate.id) is not aggregate or aggregate.seq != seq:
                raise ValueError(f"{aggregate.id} has changed while it was folded again: release it once more")
            if error and getattr(aggregate.state, "facts", None) is None:
                raise ValueError(f"{aggregate.id} cannot be folded from its first event on: {error}")
            return ReleaseCommand(
                at_ms=self._clock_ms(),
                command=command,
                existing_reason=aggregate.quarantined,
                error=error,
                wide_pauses=self.wide_pauses_command(released),
            )

        return PendingDecision(released, order, command.envelope.command_id, allowed_in_quarantine=True)


def _subject_of(command: Command, partition: Partition) -> str | None:
    """Return the user of the run a command is for; None when the run is unknown."""
    if isinstance(command, StartRun):
        return command.user_id
    aggregate = partition.aggregates.get(command.run_id)
    facts = None if aggregate is None else getattr(aggregate.state, "facts", None)
    return None if facts is None else str(facts.user_id)
