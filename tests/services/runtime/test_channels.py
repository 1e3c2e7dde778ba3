"""Runs that work together over channels, through whole runtimes: they wait in the log, outlive their owners, and get
each message once.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from loomlog.connectors.protocols import ModelItem, ModelRequest, Reply
from loomlog.schemas.generated.channel_events import (
    LeaseSettled,
    MessagePublished,
    MessagesLeased,
    QueueWatched,
    ReaderWaiting,
)
from loomlog.schemas.generated.run_events import CallWaiting, RunCancelled, RunCompleted, ToolReturned
from loomlog.schemas.generated.values import ToolCall, Usage
from loomlog.services.core.admission import AdmissionLimits
from loomlog.services.runtime.admission.queue import AdmissionQueue
from tests.services.runtime.channel_world import ChannelWorld, Runtime
from tests.services.runtime.fakes import Scripted
from tests.waiting import until

DONE = Reply(text="done", stop_reason="end_turn", usage=Usage())


def asks(**arguments: Any) -> Reply:
    call = ToolCall(id="c0", name="Channel", input=json.dumps(arguments))
    return Reply(text="", tool_calls=(call,), stop_reason="tool_use", usage=Usage())


class Mixed:
    """The mock models; agents without a script of theirs say `turns`."""

    provider = "mock"

    def __init__(self, mock: Any, turns: list[Reply]) -> None:
        self._mock, self._scripted = mock, Scripted(turns)
        self.capabilities = mock.capabilities

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelItem]:
        model: Any = self._scripted if request.model == "mock-collector" else self._mock
        async for item in model.stream(request):
            yield item


def world(*turns: Reply) -> ChannelWorld:
    world = ChannelWorld()
    world.model = Mixed(world.model, [*turns, DONE])
    return world


def delivered(world: ChannelWorld, run_id: str) -> list[str]:
    """The messages that calls of a run have returned."""
    returned = world.events(ToolReturned, of=run_id)
    uses = [use for event in returned if event.details is not None for use in event.details.channels]
    return [use.message_id for use in uses if use.kind == "delivery"]


async def completed(world: ChannelWorld, count: int) -> None:
    await until(lambda: len(world.events(RunCompleted)) == count)


async def at_rest(runtime: Runtime, channel: str) -> None:
    """Wait until nothing of a queue is leased or waits."""

    def is_at_rest() -> bool:
        queue = runtime.queue(channel)
        return queue is not None and (queue.leased, queue.waits, queue.watches) == (0, 0, 0)

    await until(is_at_rest)


async def test_stages_hand_their_work_on_with_one_place_for_all_of_them() -> None:
    here = world()
    door = AdmissionQueue(AdmissionLimits(runs=1, queue=10), wait_s=30, provider_wait_s=30)
    async with here.runtime("a", door=door) as runtime:
        here.start("evaluator", "c7", "r_evaluator")
        here.start("editor", "c7", "r_editor")
        await until(lambda: len(here.queue_events(ReaderWaiting)) == 2)
        here.start("researcher", "c7", "r_researcher")
        await completed(here, 3)
        for channel in ("research-done/c7", "editing-done/c7"):
            await at_rest(runtime, channel)
    published = [event.message_id for event in here.queue_events(MessagePublished)]
    assert delivered(here, "r_editor") + delivered(here, "r_evaluator") == published
    submitted = here.evaluation.calls[0]
    assert (submitted["op"], submitted["run_id"]) == ("submit", "r_editor")
    assert [event.taken for event in here.queue_events(LeaseSettled)] == [1, 1]


async def test_many_circuits_side_by_side() -> None:
    here = world()
    async with here.runtime("a"):
        for number in range(8):
            for agent in ("evaluator", "editor", "researcher"):
                here.start(agent, f"c{number}", f"r_{agent}_{number}")
        await completed(here, 24)
    assert len(here.queue_events(MessagePublished)) == 16
    assert sorted(call["run_id"] for call in here.evaluation.calls) == [f"r_editor_{number}" for number in range(8)]


async def test_a_run_whose_owner_dies_while_it_waits_gets_its_message_once() -> None:
    here = world()
    async with here.runtime("first"):
        here.start("editor", "c7", "r_editor")
        await until(lambda: here.events(CallWaiting))
    async with here.runtime("second") as second:
        here.start("researcher", "c7", "r_researcher")
        await completed(here, 2)
        await at_rest(second, "research-done/c7")
        assert (await second.ask("subscribe", channel="research-done/c7")).value.messages == []
    assert len(delivered(here, "r_editor")) == 1
    assert len(here.queue_events(MessagesLeased)) == len(here.events(CallWaiting)) == 1


async def test_a_run_whose_owner_dies_with_the_messages_in_its_hands_gets_them_once() -> None:
    here = world()
    async with here.runtime("first") as first:
        here.start("editor", "c7", "r_editor")
        await until(lambda: here.events(CallWaiting))
        loading = asyncio.Event()

        async def never(*arguments: Any, **options: Any) -> Any:
            loading.set()
            await asyncio.Event().wait()

        first.operations.store.load = never  # type: ignore[method-assign]  # it dies before it has read them
        here.start("researcher", "c7", "r_researcher")
        await loading.wait()
        await until(lambda: here.events(RunCompleted, of="r_researcher"))
    assert delivered(here, "r_editor") == []
    async with here.runtime("second") as second:
        await completed(here, 2)
        await at_rest(second, "research-done/c7")
    assert len(delivered(here, "r_editor")) == 1
    assert len(here.queue_events(MessagesLeased)) == 1


async def test_what_a_cancelled_run_waited_for_is_there_for_others() -> None:
    here = world()
    async with here.runtime("a") as runtime:
        here.start("editor", "c7", "r_editor")
        await until(lambda: here.events(CallWaiting))
        here.cancel("r_editor")
        await until(lambda: here.events(RunCancelled))
        await runtime.ask("publish", channel="research-done/c7", value="for others")
        await until(lambda: here.queue_events(LeaseSettled))
        batch = (await runtime.ask("subscribe", channel="research-done/c7")).value
        assert [message.value for message in batch.messages] == ["for others"]
        await at_rest(runtime, "research-done/c7")


async def test_a_wait_that_is_over_is_an_empty_answer() -> None:
    here = world(asks(op="subscribe", channel="parts/a", wait_ms=1))
    async with here.runtime("a") as runtime:
        here.start("collector", "go", "r_collector")
        await completed(here, 1)
        await at_rest(runtime, "parts/a")
    [returned] = here.events(ToolReturned)
    assert json.loads(returned.text) == {"channel": "parts/a", "messages": [], "next_cursor": ""}
    assert not returned.is_error


async def test_a_run_awaits_all_of_several_channels_and_takes_nothing() -> None:
    here = world(asks(op="await", channels=["parts/a", "parts/b"], mode="all", wait_ms=20_000))
    async with here.runtime("a") as runtime:
        here.start("collector", "go", "r_collector")
        await until(lambda: here.events(CallWaiting))
        await runtime.ask("publish", channel="parts/a", value=1)
        await runtime.ask("publish", channel="parts/b", value=2)
        await completed(here, 1)
        for channel in ("parts/a", "parts/b"):
            await at_rest(runtime, channel)
        assert len((await runtime.ask("subscribe", channel="parts/a")).value.messages) == 1
    [returned] = here.events(ToolReturned)
    answer = json.loads(returned.text)
    assert (answer["satisfied"], answer["timed_out"], answer["mode"]) == (True, False, "all")
    assert (answer["fired"], answer["total_messages"]) == (["parts/a", "parts/b"], 2)
    assert [answer["results"][name]["messages"][0]["value"] for name in ("parts/a", "parts/b")] == [1, 2]
    assert len(here.queue_events(QueueWatched)) == 2


async def test_an_await_that_is_over_shows_what_is_there() -> None:
    here = world(asks(op="await", channels=["parts/a", "parts/b"], mode="all", wait_ms=300))
    async with here.runtime("a") as runtime:
        await runtime.ask("publish", channel="parts/a", value=1)
        here.start("collector", "go", "r_collector")
        await completed(here, 1)
    answer = json.loads(here.events(ToolReturned)[0].text)
    assert (answer["satisfied"], answer["timed_out"], answer["fired"]) == (False, True, ["parts/a"])
