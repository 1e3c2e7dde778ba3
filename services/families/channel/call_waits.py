"""Answers of calls that wait for channels, and what becomes of their leases.

A queue reports to the run (services/runtime/run/wait_reports.py): messages that it has leased to the call, how many
there are for one that awaits several queues, or that the time is over. The messages are loaded here, in a task that
begins with the report; while a call waits there is none.

Before: services/runtime/run/wait_answers.py. After: operations.py.
"""

from collections.abc import Callable
from typing import Any

from loomlog.schemas.generated.values import CallRef, QueueRef
from loomlog.services.families.channel.api import SUBSCRIBE, ChannelAwaited, ChannelBatch
from loomlog.services.families.channel.caller import ChannelCaller, Origin, queue_of_ref
from loomlog.services.families.channel.operations import (
    ChannelOperations,
    deliveries_by_position,
    settle_command,
)
from loomlog.services.families.operation import RunAnswer
from loomlog.services.families.ports.call_waits import EndedWait

OF_SUBSCRIBE = "subscribe"
"""Mode of a wait for messages of one queue."""


class ChannelWaits:
    """Protocol loomlog.services.families.ports.call_waits.CallWaits."""

    def __init__(self, operations: ChannelOperations, *, clock_ms: Callable[[], int]) -> None:
        self._operations = operations
        self._clock_ms = clock_ms

    async def answer(self, ended: EndedWait) -> RunAnswer[Any]:
        if ended.report.lease_id or ended.operation is SUBSCRIBE or ended.wait.mode == OF_SUBSCRIBE:
            return await self._delivered(ended)
        return await self._awaited(ended)

    async def _delivered(self, ended: EndedWait) -> RunAnswer[ChannelBatch]:
        """Return the messages of a lease; none when the time of the wait is over."""
        report = ended.report
        return await self._operations.leased(
            queue_of_ref(report.queue),
            report.lease_id,
            deliveries_by_position(report),
            after=ended.asked.from_cursor,
            wait_ms=ended.asked.wait_ms,
        )

    async def _awaited(self, ended: EndedWait) -> RunAnswer[ChannelAwaited]:
        awaited = self._operations.awaited(ended.asked, _caller(ended))
        satisfied = ended.satisfied if ended.wait.until_ms else None
        answer = await self._operations.look(awaited, ended.facts.positions, satisfied=satisfied)
        self._operations.end_watches(awaited, ended.report.wait_id)
        return answer

    def release_lease(self, queue: QueueRef, lease_id: str, taken: int) -> None:
        leased = queue_of_ref(queue)
        command = settle_command(leased, lease_id, taken, subject=lease_id, at_ms=self._clock_ms())
        self._operations.spawn(self._operations.settle(leased, command))


def _caller(ended: EndedWait) -> ChannelCaller:
    report, facts = ended.report, ended.facts
    grants = facts.definition.grants
    return ChannelCaller(
        tenant=ended.tenant,
        origin=Origin.AGENT,
        subject=facts.subject,
        command_id=report.wait_id,
        issued_at_ms=0,
        user_id=facts.user_id,
        agent=facts.definition.name,
        call=CallRef(run_id=report.run_id, turn=report.turn, index=report.index),
        publish=() if grants is None else grants.channels_publish,
        subscribe=() if grants is None else grants.channels_subscribe,
        is_isolated=ended.is_isolated,
        positions=facts.positions,
    )
