"""Results of calls that waited for channels, from the reports of their queues."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ToolResult
from loomlog.schemas.generated.channel_commands import SettleLease
from loomlog.schemas.generated.run_commands import ReportWait
from loomlog.schemas.generated.values import AgentDefinition, AgentGrants, CommandEnvelope, RunOptions, ToolCall
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.core.run.state import Wait
from loomlog.services.families.channel.call_waits import ChannelWaits
from loomlog.services.families.channel.caller import Queue
from tests.services.entities import NOW_MS
from tests.services.families.channel.callers import ALL, Installation
from tests.services.families.channel.tool import channel_waits

TEAM, WORK_IN, WORK_OUT = (Queue("acme", name, "tenant") for name in ("team", "work/in", "work/out"))
WAIT_ID = "r_1:1.0"


def facts(grants: tuple[str, ...] = ALL) -> RunFacts:
    return RunFacts(
        run_id="r_1",
        session_id="s_1",
        agent_id="a_1",
        subject="app",
        user_id="ann",
        options=RunOptions(),
        definition=AgentDefinition(
            name="helper", sha256="ab", provider="mock", model="m", grants=AgentGrants(channels_subscribe=grants)
        ),
        system=(),
        cache_marks=(),
        messages=(),
        idempotency_key="",
        started_at_ms=1,
        traceparent="",
        request_sha256="",
    )


class Run:
    """A run with one call of Channel."""

    def __init__(self, **arguments: Any) -> None:
        self.here = Installation()
        self.waits = channel_waits(self.here.operations)
        self.call = ToolCall(id="c0", name="Channel", input=json.dumps(arguments))

    async def result(
        self, queue: Queue, wait: Wait, *, satisfied: bool, grants: tuple[str, ...] = ALL, **report: Any
    ) -> ToolResult:
        envelope = CommandEnvelope(command_id="channel:x:1", tenant="acme", subject="channel:x", issued_at_ms=1)
        told = ReportWait(
            envelope=envelope, run_id="r_1", turn=1, index=0, wait_id=WAIT_ID, queue=queue.to_ref(), **report
        )
        return await self.waits.result(told, self.call, wait, facts(grants), "acme", satisfied=satisfied)

    async def answer(self, queue: Queue, wait: Wait, *, satisfied: bool, **report: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads((await self.result(queue, wait, satisfied=satisfied, **report)).text)
        return answer


def wait(*queues: Queue, mode: str = "subscribe", until_ms: int = NOW_MS + 5_000, needed: int = 0) -> Wait:
    refs = tuple(queue.to_ref() for queue in queues)
    return Wait(wait_id=WAIT_ID, until_ms=until_ms, queues=refs, mode=mode, needed=needed, counts=(0,) * len(refs))


async def test_a_lease_becomes_messages_with_what_was_taken_of_it() -> None:
    run = Run(op="subscribe", channel="team", wait_ms=60_000)
    await run.here.application()("publish", channel="team", value={"n": 1})
    result = await run.result(TEAM, wait(TEAM), satisfied=True, lease_id=WAIT_ID, positions=(1,))
    answer = json.loads(result.text)
    assert [message["value"] for message in answer["messages"]] == [{"n": 1}]
    assert answer["wait_capped_ms"] == 30_000
    [lease], [use] = result.leases, result.channels
    assert (lease.lease_id, lease.taken, use.message_id) == (WAIT_ID, 1, answer["messages"][0]["id"])


async def test_a_message_that_is_given_again_is_marked_for_the_run_and_its_record() -> None:
    run = Run(op="subscribe", channel="team", wait_ms=10)
    app = run.here.application()
    for number in range(2):
        await app("publish", channel="team", value=number)
    result = await run.result(TEAM, wait(TEAM), satisfied=True, lease_id=WAIT_ID, positions=(1, 2), attempts=(3, 1))
    again, first = json.loads(result.text)["messages"]
    assert (again["redelivered"], again["attempt"]) == (True, 3)
    assert first.keys() == {"id", "value", "published_at"}
    assert [use.attempt for use in result.channels] == [3, 1]


async def test_a_subscribe_whose_time_is_over_is_empty_and_goes_on_from_its_cursor() -> None:
    run = Run(op="subscribe", channel="team", from_cursor="cur_0", wait_ms=10)
    result = await run.result(TEAM, wait(TEAM), satisfied=False, is_expired=True)
    assert json.loads(result.text) == {"channel": "team", "messages": [], "next_cursor": "cur_0"}
    assert (result.leases, result.is_error) == ((), False)


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_an_await_shows_what_is_there_and_ends_its_watches(is_recorded: bool) -> None:
    run = Run(op="await", channels=["work/in", "work/out"], mode="any", wait_ms=10)
    await run.here.application()("publish", channel="work/out", value=1)
    known = wait(WORK_IN, WORK_OUT, mode="any") if is_recorded else wait(WORK_OUT, mode="", until_ms=0)
    answer = await run.answer(WORK_OUT, known, satisfied=is_recorded, count=1)
    assert (answer["satisfied"], answer["fired"], answer["total_messages"]) == (True, ["work/out"], 1)
    await run.here.operations.close()
    ended = [command for command in run.here.entities.asked if isinstance(command, SettleLease)]
    assert [(command.channel, command.lease_id) for command in ended] == [("work/in", WAIT_ID), ("work/out", WAIT_ID)]


async def test_an_await_of_an_agent_that_may_not_read_is_refused() -> None:
    run = Run(op="await", channels=["team"])
    result = await run.result(TEAM, wait(TEAM, mode="any"), satisfied=True, grants=("work/*",), count=1)
    assert result.is_error
    assert "channel_not_granted" in result.text


async def test_messages_that_cannot_be_read_now_are_tried_again() -> None:
    run = Run(op="subscribe", channel="team")
    run.here.entities.error = Transient("no rows", kind="unavailable")
    with pytest.raises(Transient):
        await run.result(TEAM, wait(TEAM), satisfied=True, lease_id=WAIT_ID, positions=(1,))


async def test_a_lease_that_is_given_back_is_read_by_others() -> None:
    here = Installation()
    waits = ChannelWaits(here.operations, clock_ms=lambda: NOW_MS)
    agent, app = here.agent(), here.application()
    await app("publish", channel="team", value=1)
    lease = (await agent.answer("subscribe", channel="team")).leases[0]
    assert await app.values("subscribe", "team") == []
    waits.release_lease(lease.queue, lease.lease_id, 0)
    await here.operations.close()
    assert await app.values("subscribe", "team") == [1]
