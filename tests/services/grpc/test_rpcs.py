from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest_asyncio

from tests.services.grpc.serving import Served, served


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


async def test_a_run_begins_with_the_frames_that_clients_wait_for(here: Served):
    events = await here.run()
    assert [event.type for event in events] == ["session", "agent", "started", "text", "usage", "done"]
    session, agent = events[:2]
    ids = orjson.loads(agent.error)
    assert ids["session_id"] == session.text
    assert (ids["agent_id"], ids["parent_agent_id"], agent.stop_reason) == (agent.text, "", "")
    assert ids["run_id"].startswith("r_")
    assert session.position.startswith("loom.run.events/")


async def test_events_carry_what_http_has_from_field_100_on(here: Served):
    events = await here.run()
    assert [event.seq > 0 for event in events] == [False, False, True, True, True, True]
    done = events[-1]
    assert orjson.loads(done.payload)["type"] == done.type == "done"
    assert done.usage.input_tokens > 0


async def test_a_run_is_followed_after_an_event_without_the_first_two_frames(here: Served):
    events = await here.run()
    run_id = orjson.loads(events[1].error)["run_id"]
    again = [event async for event in here.call("StreamRun", run_id=run_id, from_seq=events[2].seq)]
    assert [event.type for event in again] == ["text", "usage", "done"]
