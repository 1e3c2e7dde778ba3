"""One thin record for the runs that ended in a partition since the last one; lost without harm."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.errors import UnknownOutcome
from loomlog.connectors.kafka import MAX_BATCH_BYTES
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.schemas.generated.stream_records import (
    AgentTally,
    CostTally,
    ModelTally,
    ModelTimes,
    RunTally,
    StatusTally,
    ToolTally,
)
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.state import Absent, Ended
from loomlog.services.insights.minute_windows import EMPTY, MINUTE_MS, minute_of
from loomlog.services.runtime.telemetry import run_summaries as tally_module
from loomlog.services.runtime.telemetry.metrics import RunMetrics
from loomlog.services.runtime.telemetry.run_summaries import RunSummaries
from loomlog.services.stream.partition.partition import Aggregate
from tests.services.core.run.given import (
    NOW,
    RUN,
    Run,
    answered,
    at_tools,
    begun,
    calls,
    cancel,
    completed,
    erred,
    failed,
    returned,
    start,
)
from tests.services.runtime.given import values
from tests.services.stream.given import CODEC

TOPIC = "loom.insights.runs"


class Sender:
    def __init__(self, partitions: int = 4) -> None:
        self.log = MemoryLog({TOPIC: partitions})
        self.now = NOW + 5
        self.tallies = RunSummaries(CODEC, self.log, topic=TOPIC, clock_ms=lambda: self.now)

    def ended(self, run: Run, partition: int = 1, *, offset: int = 77, tenant: str = "t") -> None:
        assert isinstance(run.state, Ended)
        aggregate = Aggregate(id=RUN, state=run.state, key=b"tok", tenant=tenant, last_offset=offset)
        self.tallies.add_ended_run(aggregate, run.state, partition)

    async def sent(self, count: int = 1) -> list[RunTally]:
        async with asyncio.timeout(30):
            while len(values(self.log, TOPIC)) < count:
                await asyncio.sleep(0)
        return values(self.log, TOPIC)


@pytest_asyncio.fixture(loop_scope="session")
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sender]:
    monkeypatch.setattr(tally_module, "SEND_INTERVAL_S", 0.0)
    made = Sender()
    task = asyncio.get_running_loop().create_task(made.tallies.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


def eventful() -> Run:
    """Three tools in two turns, one error of a tool and one of the model."""
    run = at_tools("Read", "Read", "Bash")
    run.give(returned(run.state, 0))
    run.give(returned(run.state, 1, is_error=True, outcome="error"))
    run.give(returned(run.state, 2))
    run.give(erred(run.state, "rate_limited", transient=True))
    run.give(answered(run.state, "done"))
    return run


async def test_a_run_is_told_with_its_sums_its_place_and_its_term(sender: Sender) -> None:
    sender.tallies.set_term(1, 40)
    sender.ended(eventful())
    assert await sender.sent() == [
        RunTally(
            partition=1,
            term=40,
            offset=77,
            ended_at_ms=NOW + 5,
            durations_ms=(5,),
            statuses=(StatusTally(status="completed", runs=1),),
            agents=(AgentTally(tenant="t", agent="helper", runs=1, failed=0),),
            models=(ModelTally(provider="acme", model="large", calls=3, errors=1),),
            tools=(ToolTally(name="Bash", calls=1, errors=0), ToolTally(name="Read", calls=2, errors=1)),
            input_tokens=20,
            output_tokens=10,
            costs=(CostTally(currency="USD", micros=6),),
        )
    ]


async def test_runs_of_a_partition_are_one_record_with_the_offset_of_the_last(sender: Sender) -> None:
    sender.tallies.set_term(1, 40)
    for offset, run in ((77, eventful()), (81, completed()), (90, failed())):
        sender.ended(run, offset=offset)
    (tally,) = await sender.sent()
    assert (tally.offset, tally.durations_ms) == (90, (5, 5, 5))
    assert tally.statuses == (StatusTally(status="completed", runs=2), StatusTally(status="failed", runs=1))
    assert tally.agents == (AgentTally(tenant="t", agent="helper", runs=3, failed=1),)


async def test_together_runs_add_up_to_what_each_alone_adds_up_to(sender: Sender) -> None:
    for number, run in enumerate((eventful(), completed(), failed(), eventful())):
        sender.ended(run, tenant=f"t{number % 2}", offset=80 + number)
    (together,) = await sender.sent()
    total = EMPTY
    for number, run in enumerate((eventful(), completed(), failed(), eventful())):
        sender.ended(run, tenant=f"t{number % 2}", offset=80 + number)
        total = total.plus(minute_of((await sender.sent(2 + number))[-1]))
    assert minute_of(together) == total


async def test_partitions_terms_and_minutes_have_records_of_their_own(sender: Sender) -> None:
    sender.tallies.set_term(1, 40)
    sender.ended(completed(), 1)
    sender.ended(completed(), 2)
    sender.now += MINUTE_MS
    sender.ended(completed(), 1)
    sender.tallies.set_term(1, 41)
    sender.ended(completed(), 1)
    actual = {(tally.partition, tally.term, tally.ended_at_ms) for tally in await sender.sent(4)}
    assert actual == {(1, 40, NOW + 5), (2, -1, NOW + 5), (1, 40, sender.now), (1, 41, sender.now)}


@pytest.mark.parametrize("bound", ["MAX_RUNS", "MAX_NAMES"])
async def test_a_full_record_is_followed_by_another(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    # Names of the first run: its agent, its model and its currency; the second adds its agent.
    monkeypatch.setattr(tally_module, bound, {"MAX_RUNS": 2, "MAX_NAMES": 4}[bound])
    for number in range(5):
        sender.ended(completed(), tenant=f"t{number}", offset=80 + number)
    assert [(tally.offset, len(tally.durations_ms)) for tally in await sender.sent(3)] == [(81, 2), (83, 2), (84, 1)]


async def test_the_largest_record_fits_an_append() -> None:
    sender = Sender()
    wide = "\U0001f600" * 200
    names = [f"{number:03}{wide}" for number in range(tally_module.MAX_TOOLS + 5)]
    run = begun()
    while names:
        asked, names = names[:100], names[100:]
        run.give(answered(run.state, "", *calls(*asked)))
        for index in range(len(asked)):
            run.give(returned(run.state, index))
    run.give(answered(run.state, "done"))
    for number in range(tally_module.MAX_NAMES - 3):
        sender.ended(completed(), tenant=f"{number:03}{wide}", offset=number)
    sender.ended(run, offset=1_000)
    (sums,) = sender.tallies._full
    assert sums.tools[tally_module.OTHER] == 5
    assert len(CODEC.encode(sums.to_record())) < MAX_BATCH_BYTES - 100_000


async def test_the_term_is_that_under_which_the_run_ended(sender: Sender) -> None:
    sender.tallies.set_term(1, 40)
    sender.ended(completed())
    sender.tallies.set_term(1, 41)
    assert [tally.term for tally in await sender.sent()] == [40]


async def test_clocks_that_disagree_give_no_negative_duration(sender: Sender) -> None:
    sender.now = NOW - 500
    sender.ended(completed())
    assert (await sender.sent())[0].durations_ms == (0,)


async def test_tools_of_the_runs_it_continues_are_not_counted_again(sender: Sender) -> None:
    before = at_tools("Read")
    before.give(returned(before.state, 0))
    before.give(answered(before.state, "done"))
    run = Run(state=Absent(run_id=RUN, history=build_conversation(before.state)))
    run.give(start())
    run.give(answered(run.state, "done"))
    sender.ended(run)
    assert (await sender.sent())[0].tools == ()


async def test_results_that_were_in_when_a_run_was_cancelled_are_counted(sender: Sender) -> None:
    run = at_tools("Read", "Bash")
    run.give(returned(run.state, 0, is_error=True, outcome="error"))
    run.give(cancel())
    sender.ended(run)
    assert (await sender.sent())[0].tools == (ToolTally(name="Read", calls=1, errors=1),)


async def test_tallies_that_cannot_be_sent_are_counted_and_forgotten(sender: Sender) -> None:
    append = sender.log.append

    async def away(*_: Any) -> int:
        raise UnknownOutcome("no broker")

    sender.log.append = away  # type: ignore[method-assign, assignment]  # the fault is asked for
    sender.ended(completed())
    async with asyncio.timeout(30):
        while not sender.tallies.dropped:
            await asyncio.sleep(0)
    sender.log.append = append  # type: ignore[method-assign]  # as it was
    sender.ended(completed())
    assert len(await sender.sent()) == 1
    assert sender.tallies.dropped == 1


async def test_more_than_the_bound_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "MAX_WAITING", 2)
    sender = Sender()
    for _ in range(5):
        sender.ended(completed())
    assert sender.tallies.dropped == 3


async def test_what_has_gathered_when_the_process_stops_is_sent() -> None:
    sender = Sender()
    task = asyncio.get_running_loop().create_task(sender.tallies.run())
    await asyncio.sleep(0)  # it knows the partitions and waits for the second to pass
    sender.ended(completed())
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert len(values(sender.log, TOPIC)) == 1


async def test_a_stop_does_not_wait_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "FINAL_SEND_TIMEOUT_S", 0.0)
    sender = Sender()

    async def never(*_: Any) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    sender.log.append = never  # type: ignore[method-assign, assignment]  # the fault is asked for
    task = asyncio.get_running_loop().create_task(sender.tallies.run())
    await asyncio.sleep(0)
    sender.ended(completed())
    task.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([task])
    assert task.cancelled()


# --- times of model calls --------------------------------------------------------------------------------------------


async def test_times_of_model_calls_go_along_with_the_next_record_and_only_once(sender: Sender) -> None:
    sender.tallies.set_term(1, 40)
    for seconds in (0.2, 1.2504):
        sender.tallies.add_model_call("acme", "large", seconds)
    sender.tallies.add_model_call("acme", "fast", 0.0)
    await asyncio.sleep(0)
    assert values(sender.log, TOPIC) == [], "they alone are no reason for a record"
    sender.ended(completed())
    (first,) = await sender.sent()
    assert first.model_times == (
        ModelTimes(provider="acme", model="fast", durations_ms=(0,)),
        ModelTimes(provider="acme", model="large", durations_ms=(200, 1250)),
    )
    sender.ended(completed(), offset=78)
    assert (await sender.sent(2))[1].model_times == ()


async def test_times_that_wait_are_bounded(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "MAX_TIMES", 3)
    monkeypatch.setattr(tally_module, "MAX_TIMED_MODELS", 2)
    for model in ("a", "b", "c", "a", "a"):
        sender.tallies.add_model_call("acme", model, 1.0)
    sender.ended(completed())
    (first,) = await sender.sent()
    assert [(times.model, len(times.durations_ms)) for times in first.model_times] == [("a", 2), ("b", 1)]
    sender.tallies.add_model_call("acme", "c", 1.0)
    sender.ended(completed(), offset=78)
    assert [times.model for times in (await sender.sent(2))[1].model_times] == ["c"]


def test_answered_calls_alone_are_timed() -> None:
    metrics, timed = RunMetrics(), list[tuple[str, str, float]]()
    metrics.on_model_answer = lambda *call: timed.append(call)
    metrics.record_model_call("acme", "large", "ok", 0.5)
    metrics.record_model_call("acme", "large", "rate_limited", 0.1)
    assert timed == [("acme", "large", 0.5)]
