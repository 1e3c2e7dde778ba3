"""Reports of queues to calls that wait for channels: a report completes its call, or its lease goes back.

A queue asks again about a lease until it knows how many of its messages were taken. A run tells it once the result of
the call is in the log, and answers later questions from what it remembers of its leases; a run that has ended, from its
last state. So no message is lost with a process, and none is given back that a call has returned.

An owner that was replaced, and does not know it, sees the run as it was: it would give back what the next owner's call
has returned. So what a call has not taken is told only if no claim is in the log after what this owner has read.

Before: command_handler.py with ReportWait. After: services/core/run/tools/waits.py decides; context.py has the parts
that load the messages and settle the leases.
"""

import asyncio

from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.values import ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.run.commands import ToolCompleted, WaitReportCommand
from loomlog.services.core.run.lifecycle.event_import import is_importing
from loomlog.services.core.run.react import CallTool
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, OpenCall, Wait
from loomlog.services.core.run.tools.waits import find_reported_call, is_satisfied, reported_wait, taken_of_lease
from loomlog.services.runtime.run.context import CompleteCall, RunContext, WaitResults
from loomlog.services.runtime.run.run_directory import RunDirectory
from loomlog.services.stream.context import PendingDecision
from loomlog.services.stream.partition.lookups import continue_in_task
from loomlog.services.stream.partition.partition import Aggregate, Decision, Partition

EARLY_REPORT_S = 5.0
"""Seconds that a count waits for the call to be recorded as waiting: the tool has been answered and is about to say so.
Later commands to the run are held back meanwhile; a count that is given up comes again with the next message.
"""


class WaitReports:
    """Reports to the runs of one partition."""

    def __init__(self, context: RunContext, directory: RunDirectory, *, number: int) -> None:
        self._context = context
        self._directory = directory
        self._number = number
        self._changes: dict[str, asyncio.Event] = {}
        """Set at the next event of a run, for reports that wait for it."""

    def decided(self, aggregate: Aggregate) -> None:
        """An event of the run was decided."""
        if self._changes and (changed := self._changes.pop(aggregate.id, None)) is not None:
            changed.set()

    def durable(self, decision: Decision) -> None:
        """Tell the queues what calls have taken: their results are in the log."""
        for event in decision.events:
            if type(event) is ToolReturned and event.details is not None:
                for lease in event.details.leases:
                    self._context.release_lease(lease.queue, lease.lease_id, lease.taken)

    async def prepare(self, report: ReportWait, partition: Partition) -> PendingDecision:
        """Return what the report decides. Raises ConnectorError; it is tried again then, so no report is lost."""
        aggregate = partition.aggregates.get(report.run_id)
        if aggregate is None:
            await self._release_of_ended(report, partition)
            return PendingDecision(None)
        if aggregate.quarantined or is_importing(aggregate.state):
            return PendingDecision(None)  # the queue asks again about a lease
        opened = find_reported_call(aggregate.state, report)
        if opened is None:
            await self._release(report, aggregate, partition)
            return PendingDecision(None)
        wait = reported_wait(opened, report)
        context = self._context
        if wait is None or context.wait_results is None or context.complete_call is None:
            return PendingDecision(None)
        satisfied = is_satisfied(wait, report)
        if satisfied or report.is_expired:
            complete = _Completion(report, wait, context.wait_results, context.complete_call, satisfied=satisfied)
            return await self._complete(complete, aggregate, opened, partition)
        if not wait.until_ms:
            if await self._until_changed(report.run_id):
                return await self.prepare(report, partition)
            return PendingDecision(None)
        command = WaitReportCommand(at_ms=context.clock_ms(), command=report)
        return PendingDecision(aggregate, lambda: command, report.envelope.command_id)

    async def _until_changed(self, run_id: str) -> bool:
        """Wait for the next event of the run; whether there was one in time."""
        changed = self._changes.setdefault(run_id, asyncio.Event())
        await continue_in_task()
        try:
            async with asyncio.timeout(EARLY_REPORT_S):
                await changed.wait()
        except TimeoutError:
            self._changes.pop(run_id, None)
            return False
        return True

    async def _complete(
        self, completion: "_Completion", aggregate: Aggregate, opened: OpenCall, partition: Partition
    ) -> PendingDecision:
        """Make the result of the call; it is decided for the attempt that is open then."""
        state = aggregate.state  # where the call is open; the run may go on meanwhile
        await continue_in_task()
        report = completion.report
        completed = await completion.run(state, opened, aggregate.tenant)
        present = find_reported_call(aggregate.state, report)
        if present is None or reported_wait(present, report) is None:
            await self._release(report, aggregate, partition)
            return PendingDecision(None)

        def order() -> ToolCompleted:
            present = find_reported_call(aggregate.state, report)
            if present is None or reported_wait(present, report) is None:
                return completed  # nothing follows: the call has its result, and the queue asks again about its lease
            at_ms = self._context.clock_ms()
            since_ms = at_ms if present.wait is None else present.wait.since_ms
            return replace(completed, at_ms=at_ms, attempt=present.attempt, duration_ms=max(0, at_ms - since_ms))

        return PendingDecision(aggregate, order, report.envelope.command_id)

    # --- leases ------------------------------------------------------------------------------------------------------

    async def _release(self, report: ReportWait, aggregate: Aggregate, partition: Partition) -> None:
        """Tell the queue what a call that has its result took of the lease, once all of that is in the log.

        Raises Transient.
        """
        if report.lease_id and await self._is_current(partition):
            taken = taken_of_lease(getattr(aggregate.state, "facts", None), report.lease_id)
            partition.on_durable(lambda _: self._context.release_lease(report.queue, report.lease_id, taken))

    async def _release_of_ended(self, report: ReportWait, partition: Partition) -> None:
        """Tell the queue what a run that is not live took of the lease. Raises Transient."""
        if report.lease_id:
            taken = taken_of_lease(await self._final_facts(report.run_id), report.lease_id)
            if await self._is_current(partition):
                self._context.release_lease(report.queue, report.lease_id, taken)

    async def _is_current(self, partition: Partition) -> bool:
        """Whether there is no later owner than this one. Raises Transient."""
        await continue_in_task()
        return not await self._context.ended_runs.is_claimed_since(self._number, partition.next_offset)

    async def _final_facts(self, run_id: str) -> RunFacts | None:
        """Return the facts of an ended run; None if it never began, or was refused. Raises Transient."""
        directory, past = self._directory, self._context.ended_runs
        if directory.is_ending(run_id):
            await continue_in_task()
            await directory.end_event(run_id).wait()
        state = past.cached(run_id)
        if state is None:
            run = directory.ended.get(run_id)
            if run is None and directory.forgotten_until:
                await continue_in_task()
                await directory.require_index()
                run = await directory.index.find_run(run_id)
            if run is None or run.partition != self._number:
                return None
            await continue_in_task()
            state = await past.state(self._number, run.position)
        facts: RunFacts | None = getattr(state, "facts", None)
        return facts


class _Completion:
    """The result of a call that a report completes."""

    def __init__(
        self, report: ReportWait, wait: Wait, results: WaitResults, complete: CompleteCall, *, satisfied: bool
    ) -> None:
        self.report = report
        self._wait = wait
        self._results = results
        self._complete = complete
        self._satisfied = satisfied

    async def run(self, state: AwaitingTools, opened: OpenCall, tenant: str) -> ToolCompleted:
        effect = CallTool(
            run_id=state.facts.run_id,
            turn=state.turn,
            index=opened.index,
            attempt=opened.attempt,
            call_id=opened.call.id,
            name=opened.call.name,
            input=opened.call.input,
            effect_class=opened.effect_class,
        )

        async def make(call: ToolCall, facts: RunFacts) -> ToolResult:
            return await self._results.result(self.report, call, self._wait, facts, tenant, satisfied=self._satisfied)

        return await self._complete(effect, state, tenant, make)
