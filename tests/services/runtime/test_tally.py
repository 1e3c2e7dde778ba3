"""One thin record for each run that ended; lost without harm."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from connectors.errors import UnknownOutcome
from connectors.memory_log import MemoryLog
from schemas.stream_records import RunTally, ToolTally
from services.core.run.state import Absent, Ended, conversation
from services.runtime import tally as tally_module
from services.runtime.tally import Tallies
from services.stream.partition import Aggregate
from tests.services.core.run.given import NOW, RUN, Run, answered, at_tools, cancel, completed, erred, returned, start
from tests.services.runtime.given import values
from tests.services.stream.given import CODEC

TOPIC = "loom.insights.runs"


class Sender:
    def __init__(self, partitions: int = 4) -> None:
        self.log = MemoryLog({TOPIC: partitions})
        self.tallies = Tallies(CODEC, self.log, topic=TOPIC, clock_ms=lambda: NOW + 5)

    def ended(self, run: Run, partition: int = 1) -> None:
        assert isinstance(run.state, Ended)
        aggregate = Aggregate(id=RUN, state=run.state, key=b"tok", tenant="t", last_offset=77)
        self.tallies.ended(aggregate, run.state, partition)

    async def sent(self, count: int = 1) -> list[RunTally]:
        async with asyncio.timeout(5):
            while len(values(self.log, TOPIC)) < count:
                await asyncio.sleep(0)
        return values(self.log, TOPIC)


@pytest_asyncio.fixture(loop_scope="session")
async def sender(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sender]:
    monkeypatch.setattr(tally_module, "SEND_EVERY_S", 0.0)
    made = Sender()
    task = asyncio.get_running_loop().create_task(made.tallies.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


async def test_a_run_is_told_with_its_sums_its_place_and_its_term(sender: Sender) -> None:
    run = at_tools("Read", "Read", "Bash")
    run.give(returned(run.state, 0))
    run.give(returned(run.state, 1, is_error=True, outcome="error"))
    run.give(returned(run.state, 2))
    run.give(erred(run.state, "rate_limited", transient=True))
    run.give(answered(run.state, "done"))
    sender.tallies.owns(1, 40)
    sender.ended(run)
    assert await sender.sent() == [
        RunTally(
            partition=1,
            term=40,
            offset=77,
            run_id=RUN,
            tenant="t",
            agent="helper",
            provider="acme",
            model="large",
            status="completed",
            started_at_ms=NOW,
            ended_at_ms=NOW + 5,
            turns=2,
            input_tokens=20,
            output_tokens=10,
            cost_micros=6,
            currency="USD",
            model_errors=1,
            tools=(ToolTally(name="Bash", calls=1, errors=0), ToolTally(name="Read", calls=2, errors=1)),
        )
    ]


async def test_the_term_is_that_under_which_the_run_ended(sender: Sender) -> None:
    sender.tallies.owns(1, 40)
    sender.ended(completed())
    sender.tallies.owns(1, 41)
    assert [tally.term for tally in await sender.sent()] == [40]


async def test_tools_of_the_runs_it_continues_are_not_counted_again(sender: Sender) -> None:
    before = at_tools("Read")
    before.give(returned(before.state, 0))
    before.give(answered(before.state, "done"))
    run = Run(state=Absent(run_id=RUN, history=conversation(before.state)))
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
    async with asyncio.timeout(5):
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
