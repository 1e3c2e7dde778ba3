"""Results of calls that wait for channels, and what becomes of their leases.

A queue reports to the run (services/runtime/run/wait_reports.py): messages that it has leased to the call, how many
there are for one that awaits several queues, or that the time is over. The messages are loaded here, in a task that
begins with the report; while a call waits there is none.

Before: services/runtime/main.py; wait_reports.py asks. After: services/families/channel/operations.py.
"""

from collections.abc import Callable
from typing import Any

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import CallRef, QueueRef, ToolCall
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Wait
from loomlog.services.families.channel.api import SUBSCRIBE, TOOL, ChannelAwaited, ChannelBatch
from loomlog.services.families.channel.caller import ChannelCaller, Origin, queue_of_ref
from loomlog.services.families.channel.operations import (
    ChannelOperations,
    deliveries_by_position,
    settle_command,
)
from loomlog.services.families.operation import RunAnswer
from loomlog.services.runtime.tools.operation_calls import refused_result
from loomlog.services.runtime.tools.operation_tools import OperationTool, to_tool_result
from loomlog.services.runtime.tools.tool_calls import parse_arguments

OF_SUBSCRIBE = "subscribe"
"""Mode of a wait for messages of one queue."""


class ChannelWaits:
    """Protocol WaitResults, and RunContext.release_lease."""

    def __init__(
        self,
        operations: ChannelOperations,
        tool: OperationTool,
        *,
        is_isolated: Callable[[str, str], bool] = lambda tenant, subject: False,
        clock_ms: Callable[[], int],
    ) -> None:
        self._operations = operations
        self._tool = tool
        self._is_isolated = is_isolated
        self._clock_ms = clock_ms

    async def result(
        self, report: ReportWait, call: ToolCall, wait: Wait, facts: RunFacts, tenant: str, *, satisfied: bool
    ) -> ToolResult:
        """Return the result of the call. Raises Transient while the messages cannot be read."""
        try:
            operation, of, asked = self._tool.parse(parse_arguments(call.input))
            if report.lease_id or operation is SUBSCRIBE or wait.mode == OF_SUBSCRIBE:
                return to_tool_result(await self._delivered(report, asked), of)
            answer = await self._awaited(report, wait, asked, facts, tenant, satisfied=satisfied)
            return to_tool_result(answer, of)
        except Refused as refused:
            return refused_result(TOOL.name, refused)
        except Unavailable as error:
            raise Transient(str(error), kind="unavailable") from error

    async def _delivered(self, report: ReportWait, asked: Any) -> RunAnswer[ChannelBatch]:
        """Return the messages of a lease; none when the time of the wait is over."""
        return await self._operations.leased(
            queue_of_ref(report.queue),
            report.lease_id,
            deliveries_by_position(report),
            after=asked.from_cursor,
            wait_ms=asked.wait_ms,
        )

    async def _awaited(
        self,
        report: ReportWait,
        wait: Wait,
        asked: Any,
        facts: RunFacts,
        tenant: str,
        *,
        satisfied: bool,
    ) -> RunAnswer[ChannelAwaited]:
        awaited = self._operations.awaited(asked, self._caller(report, facts, tenant))
        answer = await self._operations.look(awaited, facts.positions, satisfied=satisfied if wait.until_ms else None)
        self._operations.end_watches(awaited, report.wait_id)
        return answer

    def _caller(self, report: ReportWait, facts: RunFacts, tenant: str) -> ChannelCaller:
        grants = facts.definition.grants
        return ChannelCaller(
            tenant=tenant,
            origin=Origin.AGENT,
            subject=facts.subject,
            command_id=report.wait_id,
            issued_at_ms=0,
            user_id=facts.user_id,
            agent=facts.definition.name,
            call=CallRef(run_id=report.run_id, turn=report.turn, index=report.index),
            publish=() if grants is None else grants.channels_publish,
            subscribe=() if grants is None else grants.channels_subscribe,
            is_isolated=self._is_isolated(tenant, facts.subject),
            positions=facts.positions,
        )

    def release_lease(self, ref: QueueRef, lease_id: str, taken: int) -> None:
        """Tell a queue how many messages of a lease were taken; the work is done beside the run."""
        queue = queue_of_ref(ref)
        command = settle_command(queue, lease_id, taken, subject=lease_id, at_ms=self._clock_ms())
        self._operations.spawn(self._operations.settle(queue, command))
