"""Calls that wait for channels, through whole runtimes over a log in memory: they outlive their owners, and messages of
a lease are taken once or go back.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import CallWait, EffectClass, Reply, ToolContext, ToolResult
from loomlog.schemas.generated.run_commands import CancelRun, ReportWait
from loomlog.schemas.generated.run_events import (
    CallWaiting,
    ModelCallRequested,
    RunCancelled,
    RunCompleted,
    RunStarted,
    ToolCallRequested,
    ToolReturned,
)
from loomlog.schemas.generated.values import CommandEnvelope, LeaseRef, QueueRef, ToolCall, Usage
from loomlog.schemas.records import replace
from loomlog.services.core.admission import AdmissionLimits
from loomlog.services.core.run import limits
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Wait, idempotency_key
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.clock import clock_ms
from loomlog.services.stream.partition import lookups
from tests.services.core.run.waiting import QUEUE
from tests.services.runtime.fakes import AGENT, Scripted
from tests.services.runtime.small_runtime import RUN, SmallRuntime, Stage

KEY = idempotency_key(RUN, 1, 0)
READS = Reply(
    text="",
    tool_calls=(ToolCall(id="c0", name="Channel", input='{"op":"subscribe"}'),),
    stop_reason="tool_use",
    usage=Usage(),
)
DONE = Reply(text="the answer", stop_reason="end_turn", usage=Usage())


class Reads:
    """A tool that finds nothing and waits."""

    name = "Channel"
    description = "Reads a channel."
    input_schema: Mapping[str, Any] = {"type": "object"}
    timeout_s = 5.0

    def __init__(self, for_ms: int = 60_000) -> None:
        self.for_ms = for_ms
        self.attempts: list[int] = []

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.attempts.append(context.attempt)
        until_ms = clock_ms() + self.for_ms
        return ToolResult(
            text="", waiting=CallWait(wait_id=context.idempotency_key, until_ms=until_ms, queues=(QUEUE,))
        )


class Channels:
    """A queue as the runtimes meet it, which outlives them: its messages, and what it is told of leases."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.settled: list[tuple[str, int]] = []

    async def result(
        self, report: ReportWait, call: ToolCall, wait: Wait, facts: RunFacts, tenant: str, *, satisfied: bool
    ) -> ToolResult:
        if self.failures:
            self.failures -= 1
            raise Transient("the rows do not answer", kind="unavailable")
        lease = LeaseRef(queue=report.queue, lease_id=report.lease_id, taken=len(report.positions))
        return ToolResult(text=json.dumps({"messages": list(report.positions)}), leases=(lease,))

    def release(self, queue: QueueRef, lease_id: str, taken: int) -> None:
        assert queue == QUEUE
        self.settled.append((lease_id, taken))


class Work:
    """A stage whose runs read a channel in their first turn."""

    def __init__(self, *, for_ms: int = 60_000, failures: int = 0) -> None:
        self.reads = Reads(for_ms)
        self.channels = Channels(failures)
        self.stage = Stage(replace(AGENT, tools=("Channel",)), {"Channel": self.reads})
        self.stage.model = Scripted([READS, DONE])

    def owner(self, name: str, **parts: Any) -> AbstractAsyncContextManager[SmallRuntime]:
        return self.stage.owner(name, wait_results=self.channels, release_lease=self.channels.release, **parts)

    def report(self, command_id: str, run_id: str = RUN) -> None:
        """The queue reports a lease of its messages 7 and 8."""
        key = idempotency_key(run_id, 1, 0)
        envelope = CommandEnvelope(command_id=command_id, tenant="", subject="channel:news", issued_at_ms=2)
        self.stage.send(
            ReportWait(
                envelope=envelope,
                run_id=run_id,
                turn=1,
                index=0,
                wait_id=key,
                queue=QUEUE,
                lease_id=key,
                positions=(7, 8),
            )
        )

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.stage.events() if isinstance(event, kind)]


async def test_a_wait_holds_no_task_outlives_its_owner_and_is_completed_before_the_next() -> None:
    work = Work()
    async with work.owner("first") as first:
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
        await work.stage.until(lambda: first.calls.running_count == 0)
    async with work.owner("second") as second:
        assert second.calls.running_count == 0
        work.report("one")
        await work.stage.until(lambda: work.stage.has(RunCompleted))
    assert work.reads.attempts == [1]
    [result] = work.of(ToolReturned)
    assert (json.loads(result.text), result.attempt) == ({"messages": [7, 8]}, 1)
    assert len(work.of(ToolCallRequested)) == 1
    assert work.channels.settled == [(KEY, 2)]


async def test_a_queue_that_was_not_told_asks_the_next_owner_also_when_the_run_is_over() -> None:
    work = Work()
    async with work.owner("first"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
        work.report("one")
        await work.stage.until(lambda: work.stage.has(RunCompleted))
    work.channels.settled.clear()
    async with work.owner("second"):
        work.report("two")
        await work.stage.until(lambda: bool(work.channels.settled))
    assert work.channels.settled == [(KEY, 2)]
    assert len(work.of(ToolReturned)) == 1


async def test_a_run_that_is_cancelled_while_it_waits_gives_the_lease_back() -> None:
    work = Work()
    async with work.owner("only"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
        envelope = CommandEnvelope(command_id="stop", tenant="acme", subject="someone", issued_at_ms=2)
        work.stage.send(CancelRun(envelope=envelope, run_id=RUN))
        work.report("one")
        await work.stage.until(lambda: bool(work.channels.settled))
    assert work.channels.settled == [(KEY, 0)]
    assert len(work.of(RunCancelled)) == 1
    assert work.of(ToolReturned) == []


async def test_a_report_is_tried_until_its_messages_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LOOKUP_RETRY_S", 0.0)
    work = Work(failures=3)
    async with work.owner("only"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
        work.report("one")
        await work.stage.until(lambda: work.stage.has(RunCompleted))
    assert work.channels.failures == 0
    assert [result.is_error for result in work.of(ToolReturned)] == [False]


async def test_a_report_that_the_first_owner_could_not_carry_out_reaches_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookups, "LOOKUP_RETRY_S", 0.0)
    work = Work(failures=10**9)
    async with work.owner("first"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
        work.report("one")
        await work.stage.until(lambda: work.channels.failures < 10**9)
    work.channels.failures = 0
    async with work.owner("second"):
        await work.stage.until(lambda: work.stage.has(RunCompleted))
    assert work.channels.settled == [(KEY, 2)]


async def test_a_run_whose_queue_is_silent_ends_the_call_itself_before_any_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "WAIT_GRACE_MS", 0)
    work = Work(for_ms=50)
    async with work.owner("first"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
    async with work.owner("second"):
        await work.stage.until(lambda: work.stage.has(RunCompleted))
        work.report("too late")
        await work.stage.until(lambda: bool(work.channels.settled))
    assert [result.outcome for result in work.of(ToolReturned)] == ["timeout"]
    assert work.channels.settled == [(KEY, 0)]


async def test_a_call_whose_wait_an_outage_has_outlasted_gets_what_its_queue_reports_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = Work(for_ms=-limits.WAIT_GRACE_MS // 2)
    async with work.owner("first"):
        work.stage.start()
        await work.stage.until(lambda: work.stage.has(CallWaiting))
    monkeypatch.setattr(limits, "WAIT_GRACE_MS", limits.WAIT_GRACE_MS // 3)  # as if the outage had been longer
    async with work.owner("second"):
        await work.stage.until(lambda: len(work.of(CallWaiting)) == 2)
        work.report("one")
        await work.stage.until(lambda: work.stage.has(RunCompleted))
    assert [json.loads(result.text) for result in work.of(ToolReturned)] == [{"messages": [7, 8]}]
    assert work.channels.settled == [(KEY, 2)]


async def test_with_one_place_a_run_that_waits_lets_the_next_one_start() -> None:
    work = Work()
    door = AdmissionQueue(AdmissionLimits(runs=1, queue=10), wait_s=30, provider_wait_s=30)
    async with work.owner("only", door=door):
        work.stage.start()
        work.stage.start(run_id="r_two")
        await work.stage.until(lambda: len(work.of(CallWaiting)) == 2)
        names = [type(event) for event in work.stage.events()]
        assert names.index(CallWaiting) < len(names) - 1 - names[::-1].index(RunStarted), "the second one waited"
        work.report("one")
        work.report("two", "r_two")
        await work.stage.until(lambda: len(work.of(RunCompleted)) == 2)
    assert len(work.of(ModelCallRequested)) == 4
