"""Reports of queues at the owner of a run: each message is returned by one call, or is visible again."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ProducerRecord, ToolResult
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.schemas.generated.values import ChannelUse, LeaseRef, QueueRef, ToolCall
from loomlog.schemas.records import replace
from loomlog.services.core.admission import AdmissionLimits
from loomlog.services.core.run import limits
from loomlog.services.core.run.commands import RunTimerFired
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import AwaitingTools, Wait, idempotency_key
from loomlog.services.runtime.admission.queue import AdmissionQueue
from loomlog.services.runtime.run import wait_reports
from loomlog.services.runtime.telemetry.tracing import NO_TRACING
from loomlog.services.runtime.tools.tool_calls import ToolCalls
from loomlog.services.runtime.tools.toolset import ProcessToolset
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import NOW, answered, quarantine, recover
from tests.services.core.run.waiting import OTHER_QUEUE, QUEUE, UNTIL, waits
from tests.services.runtime.given import DeskAtWork, cancelling, envelope, saying, started
from tests.services.stream.given import EVENTS, claim_record

RUN = "r_tok"
WAIT = idempotency_key(RUN, 1, 0)


@dataclass
class Channels:
    """Makes results of the messages that a report names, and remembers what it is told of leases."""

    fails: Exception | None = None
    asked: list[tuple[ReportWait, ToolCall, Wait, str, bool]] = field(default_factory=list)
    settled: list[tuple[QueueRef, str, int]] = field(default_factory=list)
    before: asyncio.Event | None = None

    async def result(
        self, report: ReportWait, call: ToolCall, wait: Wait, facts: RunFacts, tenant: str, *, satisfied: bool
    ) -> ToolResult:
        self.asked.append((report, call, wait, tenant, satisfied))
        if self.before is not None:
            await self.before.wait()
        if self.fails is not None:
            raise self.fails
        messages = [{"id": f"msg_{position}", "value": "hello"} for position in report.positions]
        uses = [
            ChannelUse(kind="delivery", channel=report.queue.channel, scope="user", message_id=message["id"])
            for message in messages
        ]
        lease = LeaseRef(queue=report.queue, lease_id=report.lease_id, taken=len(messages))
        return ToolResult(
            text=json.dumps({"messages": messages}),
            channels=tuple(uses),
            leases=(lease,) if report.lease_id else (),
        )

    def release(self, queue: QueueRef, lease_id: str, taken: int) -> None:
        self.settled.append((queue, lease_id, taken))


class Work(DeskAtWork):
    """A partition whose runs call Channel."""

    def __init__(self, **parts: Any) -> None:
        self.channels = Channels()
        calls = ToolCalls(
            ProcessToolset({}),
            volumes={},
            operator_hosts=(),
            parallelism=1,
            blobs=MemoryBlobs(),
            tracing=NO_TRACING,
            clock_ms=lambda: NOW,
        )
        given = {
            "wait_results": self.channels,
            "complete_call": calls.complete,
            "release_lease": self.channels.release,
            **parts,
        }
        super().__init__(parts=given)

    def calling(self, run_id: str = RUN, calls: int = 1) -> Aggregate:
        """A run that calls Channel; its tool has not answered."""
        run = self.start(run_id)
        asked = tuple(ToolCall(id=f"c{at}", name="Channel", input='{"op":"subscribe"}') for at in range(calls))
        self.submit(run, answered(run.state, "", *asked, classes=("idempotent",) * calls))
        return run

    def waiting(self, run_id: str = RUN, **wait: Any) -> Aggregate:
        """A run whose call waits."""
        run = self.calling(run_id)
        self.submit(run, replace(waits(**wait), wait_id=idempotency_key(run_id, 1, 0)))
        return run

    def submit(self, run: Aggregate, order: Any) -> None:
        assert self.partition.submit(run, order, at_ms=self.now)
        self.flush()

    async def report(self, command: ReportWait) -> list[str]:
        """Names of the events that the report has, not in the log yet."""
        preparing = self.prepare(command)
        try:
            preparing.send(None)
        except StopIteration as ended:
            prepared = ended.value
        else:
            prepared = await asyncio.create_task(preparing)
        return [] if prepared.aggregate is None else self.decide(prepared)


def reports(run_id: str = RUN, *, turn: int = 1, lease: bool = True, **fields: Any) -> ReportWait:
    """The queue has leased its messages 4 and 5 for the call, or says what `fields` say."""
    key = idempotency_key(run_id, turn, 0)
    given: dict[str, Any] = {"queue": QUEUE, "wait_id": key, **fields}
    if lease:
        given = {"lease_id": key, "positions": (4, 5), **given}
    # The envelope is that of the queue: the tenant of a global one is empty.
    return ReportWait(envelope=envelope("report", given["queue"].tenant), run_id=run_id, turn=turn, index=0, **given)


def result_of(work: Work) -> ToolReturned:
    events = [event for decision in work.partition._pending for event in decision.events]
    [result] = [event for event in events if isinstance(event, ToolReturned)]
    return result


# --- completion ------------------------------------------------------------------------------------------------------


async def test_a_lease_completes_the_call_and_is_settled_once_the_result_is_in_the_log() -> None:
    work = Work()
    work.waiting()
    work.now = NOW + 700
    assert await work.report(reports()) == ["ToolReturned", "ModelCallRequested"]
    result = result_of(work)
    assert [message["id"] for message in json.loads(result.text)["messages"]] == ["msg_4", "msg_5"]
    assert (result.attempt, result.duration_ms) == (1, 700)
    assert result.details is not None
    assert [use.preview for use in result.details.channels] == ['"hello"', '"hello"']
    assert work.channels.settled == [], "it may still be lost"
    work.flush()
    assert work.channels.settled == [(QUEUE, WAIT, 2)]
    [(_, call, wait, tenant, satisfied)] = work.channels.asked
    assert (call.id, call.input, wait.until_ms, tenant, satisfied) == ("c0", '{"op":"subscribe"}', UNTIL, "t", True)


async def test_a_global_queue_reports_although_it_has_no_tenant() -> None:
    work = Work()
    work.waiting(queues=(OTHER_QUEUE,))
    assert await work.report(reports(queue=OTHER_QUEUE)) == ["ToolReturned", "ModelCallRequested"]


async def test_a_queue_that_the_call_does_not_wait_for_changes_nothing() -> None:
    work = Work()
    work.waiting()
    assert await work.report(reports(queue=OTHER_QUEUE)) == []
    assert await work.report(reports(wait_id="other", lease_id="other")) == []
    work.flush()
    assert work.channels.asked == []
    assert work.channels.settled == []


async def test_the_end_of_the_wait_completes_the_call_with_what_there_is() -> None:
    work = Work()
    work.waiting()
    assert await work.report(reports(lease=False, is_expired=True)) == ["ToolReturned", "ModelCallRequested"]
    assert work.channels.asked[0][4] is False
    work.flush()
    assert work.channels.settled == []


async def test_counts_complete_a_call_once_there_are_enough() -> None:
    work = Work()
    run = work.waiting(mode="at_least", needed=3, queues=(QUEUE, OTHER_QUEUE))
    assert await work.report(reports(lease=False, count=2)) == ["WaitReported"]
    assert await work.report(reports(lease=False, count=2)) == []
    assert isinstance(run.state, AwaitingTools)
    done = await work.report(reports(lease=False, count=1, queue=OTHER_QUEUE))
    assert done == ["ToolReturned", "ModelCallRequested"]
    [(_, _, wait, _, satisfied)] = work.channels.asked
    assert (wait.counts, satisfied) == ((2, 1), True)


async def test_an_expired_await_has_the_counts_of_its_other_queues() -> None:
    work = Work()
    work.waiting(mode="all", queues=(QUEUE, OTHER_QUEUE))
    await work.report(reports(lease=False, count=2))
    await work.report(reports(lease=False, count=0, queue=OTHER_QUEUE, is_expired=True))
    [(_, _, wait, _, satisfied)] = work.channels.asked
    assert (wait.counts, satisfied) == ((2, 0), False)


async def test_messages_that_cannot_be_read_now_leave_the_call_waiting_for_the_next_try() -> None:
    work = Work()
    run = work.waiting()
    work.channels.fails = Transient("no rows", kind="unavailable")
    with pytest.raises(Transient):
        await work.report(reports())
    assert isinstance(run.state, AwaitingTools)
    work.channels.fails = None
    assert await work.report(reports()) == ["ToolReturned", "ModelCallRequested"]


async def test_a_report_after_a_takeover_completes_the_call() -> None:
    work = Work()
    run = work.waiting()
    before = work.partition
    work.take_over()
    work.partition.aggregates.update(before.aggregates)
    assert not work.partition.submit(run, recover(at_ms=NOW + 1), at_ms=NOW + 1)
    assert await work.report(reports()) == ["ToolReturned", "ModelCallRequested"]
    assert result_of(work).attempt == 1


async def test_a_quarantined_run_is_left_alone_and_its_queue_asks_again() -> None:
    work = Work()
    run = work.waiting()
    work.submit(run, replace(quarantine(), at_ms=NOW))
    run.quarantined = "it looks wrong"
    assert await work.report(reports()) == []
    assert work.channels.settled == []


async def test_a_run_that_could_not_be_folded_does_not_say_what_it_took() -> None:
    work = Work()
    run = work.start(RUN)
    run.quarantined, run.pending_events = "event 3 cannot follow", True
    assert await work.report(reports()) == []
    work.flush()
    assert work.channels.settled == [], "its state may be older than the result of the call"


async def test_without_channels_a_report_changes_nothing() -> None:
    work = Work(wait_results=None)
    work.waiting()
    assert await work.report(reports()) == []


# --- reports that come early -----------------------------------------------------------------------------------------


async def test_a_lease_that_comes_before_the_wait_is_recorded_completes_the_call() -> None:
    work = Work()
    run = work.calling()
    assert await work.report(reports()) == ["ToolReturned", "ModelCallRequested"]
    assert not work.partition.submit(run, waits(), at_ms=NOW), "the tool says too late that it waits"


async def test_the_result_is_for_the_attempt_that_is_open_when_it_is_decided() -> None:
    work = Work()
    run = work.calling()
    work.channels.before = asyncio.Event()
    prepared = work.lookup(reports())
    await asyncio.sleep(0)
    work.submit(run, recover(at_ms=NOW + 1))
    work.channels.before.set()
    assert work.decide(await prepared) == ["ToolReturned", "ModelCallRequested"]
    assert result_of(work).attempt == 2


async def test_a_count_waits_until_it_is_known_what_the_call_waits_for() -> None:
    work = Work()
    run = work.calling()
    prepared = work.lookup(reports(lease=False, count=1))
    await asyncio.sleep(0)
    work.submit(run, waits(mode="any"))
    assert work.decide(await prepared) == ["ToolReturned", "ModelCallRequested"]


async def test_a_count_for_a_tool_that_never_says_what_it_waits_for_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_reports, "EARLY_REPORT_S", 0.001)
    work = Work()
    work.calling()
    assert await work.report(reports(lease=False, count=1)) == []


# --- leases of calls that have their result --------------------------------------------------------------------------


async def test_a_lease_for_a_cancelled_call_goes_back() -> None:
    work = Work()
    run = work.waiting()
    work.submit(run, RunTimerFired(at_ms=UNTIL + limits.WAIT_GRACE_MS))
    assert await work.report(reports()) == []
    assert work.channels.settled == [(QUEUE, WAIT, 0)]


async def test_a_queue_that_asks_again_is_told_what_was_taken_when_that_is_in_the_log() -> None:
    work = Work()
    work.waiting()
    await work.report(reports())
    assert await work.report(reports()) == []
    assert work.channels.settled == [], "the result is not in the log yet"
    work.flush()
    assert work.channels.settled == [(QUEUE, WAIT, 2), (QUEUE, WAIT, 2)]


async def test_a_call_that_ends_while_its_messages_are_loaded_gives_them_back() -> None:
    work = Work()
    run = work.waiting()
    work.channels.before = asyncio.Event()
    prepared = work.lookup(reports())
    await asyncio.sleep(0)
    work.submit(run, RunTimerFired(at_ms=UNTIL + limits.WAIT_GRACE_MS))
    work.channels.before.set()
    assert (await prepared).aggregate is None
    assert work.channels.settled == [(QUEUE, WAIT, 0)]


async def test_an_owner_that_was_replaced_gives_nothing_back() -> None:
    """It sees the run as it was: the next owner's call may have returned the messages."""
    work = Work()
    work.start(RUN)
    work.log.put(EVENTS, 0, [ProducerRecord(key=b"k", value=b"unreadable"), claim_record()])
    assert await work.report(reports()) == []
    assert await work.report(reports("r_unknown")) == []
    assert work.channels.settled == []


async def test_records_of_a_replaced_owner_keep_nothing_from_going_back() -> None:
    work = Work()
    work.start(RUN)
    work.log.put(EVENTS, 0, [ProducerRecord(key=b"k", value=b"unreadable")])
    assert await work.report(reports()) == []
    assert work.channels.settled == [(QUEUE, WAIT, 0)]


async def test_a_run_that_has_ended_answers_from_its_last_state() -> None:
    work = Work()
    run = work.waiting()
    await work.report(reports())
    work.end(run)
    ending = work.lookup(reports())
    await asyncio.sleep(0)
    assert work.channels.settled == [], "its end is not in the log"
    work.flush()
    assert (await ending).aggregate is None
    assert work.channels.settled[-1] == (QUEUE, WAIT, 2)


async def test_a_run_that_ended_before_this_process_is_read_from_the_log() -> None:
    work = Work()
    run = work.waiting()
    await work.report(reports())
    work.end(run)
    work.flush()
    work.past._kept.clear()
    work.channels.settled.clear()
    assert await work.report(reports()) == []
    assert work.channels.settled == [(QUEUE, WAIT, 2)]


async def test_a_run_that_only_the_index_knows_is_read_from_the_log() -> None:
    work = Work()
    run = work.waiting()
    await work.report(reports())
    work.end(run)
    work.flush()
    work.past._kept.clear()
    work.channels.settled.clear()
    work.forgotten_until = run.last_offset + 1
    work.take_over()
    work.index.limits[0] = 0
    with pytest.raises(Transient):
        await work.report(reports())
    assert work.channels.settled == [], "it must not give back what was taken"
    del work.index.limits[0]
    assert await work.report(reports()) == []
    assert work.channels.settled == [(QUEUE, WAIT, 2)]


async def test_a_run_that_was_cancelled_while_it_waited_gives_its_lease_back() -> None:
    work = Work()
    work.end(work.waiting())
    work.flush()
    assert await work.report(reports()) == []
    assert work.channels.settled == [(QUEUE, WAIT, 0)]


async def test_a_run_that_never_was_gives_the_lease_back() -> None:
    work = Work()
    assert await work.report(reports("r_unknown")) == []
    assert work.channels.settled == [(QUEUE, idempotency_key("r_unknown", 1, 0), 0)]


async def test_a_report_without_a_lease_to_a_run_that_is_over_tells_nothing() -> None:
    work = Work()
    assert await work.report(reports("r_unknown", lease=False, is_expired=True)) == []
    assert work.channels.settled == []


async def test_a_report_in_the_wrong_partition_is_refused() -> None:
    work = Work()
    work.partitions = 64
    work.take_over()
    with pytest.raises(ValueError, match="partition"):
        await work.report(reports("r_unknown9"))


# --- admission -------------------------------------------------------------------------------------------------------


async def test_a_stage_that_waits_lets_the_one_before_it_start() -> None:
    """With one place the editor, which waits for the researcher, would otherwise keep it out."""
    door = AdmissionQueue(AdmissionLimits(runs=1, queue=10), wait_s=10, provider_wait_s=10)
    work = Work(admission_queue=door)
    editor = work.calling("r_tok-e")
    researcher = work.lookup(started("r_tok-r"))
    await asyncio.sleep(0)
    assert not researcher.done(), "the only place is taken"
    work.submit(editor, replace(waits(), wait_id=idempotency_key("r_tok-e", 1, 0)))
    prepared = await researcher
    assert work.decide(prepared) == ["RunStarted", "ModelCallRequested"]
    work.flush()
    work.decide(work.at_once(cancelling("r_tok-r")))
    assert await work.report(reports("r_tok-e")) == ["ToolReturned", "ModelCallRequested"]


async def test_texts_for_a_run_that_waits_are_received() -> None:
    work = Work()
    work.waiting()
    assert work.decide(work.at_once(saying(RUN, "hurry"))) == ["InputReceived"]
