"""Runs whose calls wait for channels, and short ways for their queues to report."""

from typing import Any

from loomlog.schemas.generated.run_commands import CancelTurn, ReportWait
from loomlog.schemas.generated.run_events import CallWaiting
from loomlog.schemas.generated.values import LeaseRef, QueueRef
from loomlog.services.core.run.commands import CallWaits, CancelTurnCommand, ToolCompleted, WaitReportCommand
from loomlog.services.core.run.state import AwaitingTools, OpenCall, State, find_open_call, idempotency_key
from tests.services.core.run.given import ENVELOPE, NOW, RUN, Run, at_tools, returned

QUEUE = QueueRef(tenant="t", channel="news", scope="user", scope_id="alice")
OTHER_QUEUE = QueueRef(tenant="", channel="alarms", scope="global")
UNTIL = NOW + 30_000
WAIT = idempotency_key(RUN, 1, 0)
WAITING = CallWaiting(
    turn=1, index=0, call_id="c0", attempt=1, wait_id=WAIT, until_ms=UNTIL, queues=(QUEUE,), mode="subscribe"
)


def waits(index: int = 0, *, attempt: int = 1, turn: int = 1, **more: Any) -> CallWaits:
    """The tool found nothing and waits for the queue, for 30 s."""
    fields: dict[str, Any] = {"until_ms": UNTIL, "queues": (QUEUE,), "mode": "subscribe", **more}
    wait_id = idempotency_key(RUN, turn, index)
    return CallWaits(at_ms=NOW, turn=turn, index=index, attempt=attempt, wait_id=wait_id, **fields)


def waiting(*names: str, call: int = 0, run: Run | None = None, **more: Any) -> Run:
    """A run one of whose calls waits; `more` are fields of CallWaits."""
    run = run or at_tools(*(names or ("Channel",)), classes=("idempotent",) * max(1, len(names)))
    run.give(waits(call, **more))
    return run


def reports(index: int = 0, *, turn: int = 1, **fields: Any) -> ReportWait:
    """What a queue says; of the queue QUEUE unless another is named."""
    given: dict[str, Any] = {"queue": QUEUE, "wait_id": idempotency_key(RUN, turn, index), **fields}
    return ReportWait(envelope=ENVELOPE, run_id=RUN, turn=turn, index=index, **given)


def counts(count: int = 1, index: int = 0, *, at_ms: int = NOW, **fields: Any) -> WaitReportCommand:
    return WaitReportCommand(at_ms=at_ms, command=reports(index, count=count, **fields))


def takes(state: State, index: int = 0, *, taken: int = 1, **more: Any) -> ToolCompleted:
    """The result of a call with what it took of the lease of its wait."""
    lease = LeaseRef(queue=QUEUE, lease_id=idempotency_key(RUN, 1, index), taken=taken)
    return returned(state, index, leases=(lease,), **more)


def opened(run: Run, index: int = 0) -> OpenCall:
    assert isinstance(run.state, AwaitingTools)
    call = find_open_call(run.state, index)
    assert call is not None
    return call


def stops_turn() -> CancelTurnCommand:
    return CancelTurnCommand(at_ms=NOW, command=CancelTurn(envelope=ENVELOPE, run_id=RUN))
