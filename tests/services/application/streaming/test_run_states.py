"""The stream of the states of a user's runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.streaming.run_states import RunStates, StateFilter, StateStream
from loomlog.services.core.access.decide import Caller
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, World, world


@asynccontextmanager
async def watching(
    made: World, *, caller: Caller = ADMIN_CALLER, user_id: str = "default", **more: Any
) -> AsyncIterator[StateStream]:
    """A stream that has said what it filters for and knows what is live."""
    stream = made.layer.run_states.follow(caller, StateFilter(user_id=user_id, **more))
    opened = await stream.next()
    assert opened is not None
    assert [piece.type for piece in opened] == ["stream_open"]
    stream._known_runs = await stream._live_runs()
    try:
        yield stream
    finally:
        stream.close()


async def told(stream: StateStream, count: int = 1) -> list[dict[str, Any]]:
    """The next states."""
    actual: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT_S):
        while len(actual) < count:
            actual += [orjson.loads(piece.data) for piece in await stream.next() or []]
    return actual


async def run(made: World, agent: str = "soaker", *, caller: Caller = ADMIN_CALLER, **fields: Any) -> str:
    accepted = await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go", **fields))
    accepted.stream.close()
    return accepted.run_id


async def test_it_opens_with_its_filter() -> None:
    async with world() as made:
        state_filter = StateFilter(user_id="u", statuses=frozenset({"failed", "completed"}), agent="soaker")
        stream = made.layer.run_states.follow(ADMIN_CALLER, state_filter)
        [opened] = await stream.next() or []
        stream.close()
    assert orjson.loads(opened.data) == {
        "user_id": "u",
        "filter_status": ["completed", "failed"],
        "filter_agent": "soaker",
        "keepalive_interval": 25,
    }


async def test_it_tells_of_starts_and_ends() -> None:
    async with world() as made, watching(made) as stream:
        run_id = await run(made, user_id="default")
        first, second = await told(stream, 2)
    assert (first["run_id"], first["status"], first["agent"]) == (run_id, "running", "soaker")
    assert (second["status"], second["stop_reason"], second["error"]) == ("completed", "end_turn", None)
    assert second["user_id"] == "default"


async def test_the_end_of_a_run_that_was_live_before_is_told() -> None:
    async with world() as made:
        run_id = await run(made, "silent")
        async with watching(made, statuses=frozenset({"completed"})) as stream:
            made.reply(run_id)
            assert [state["run_id"] for state in await told(stream)] == [run_id]


async def test_other_users_agents_and_states_are_left_out() -> None:
    async with world() as made, watching(made, agent="silent", statuses=frozenset({"completed"})) as stream:
        await run(made, "soaker")
        await run(made, "soaker", user_id="somebody")
        run_id = await run(made, "silent")
        made.reply(run_id)
        assert [state["run_id"] for state in await told(stream)] == [run_id]


@pytest.mark.parametrize(("caller", "user_id"), [(GLOBEX, "acme-op"), (IVY, "acme-op")])
async def test_nobody_hears_of_a_foreign_tenant_or_user(caller: Caller, user_id: str) -> None:
    async with world() as made:
        made.layer.run_states = RunStates(made.layer.sources, keepalive_s=0.05)
        async with watching(made, caller=caller, user_id=user_id) as stream:
            await run(made, caller=ACME)
            assert await stream.next() == []


async def test_an_end_that_nobody_waits_for_any_more_closes_it() -> None:
    async with world() as made:
        made.layer.run_states = RunStates(made.layer.sources, lifetime_s=0.02)
        async with watching(made) as stream:
            assert await stream.next() is None
            assert stream.end_reason == "ended"
        assert made.hub.subscribers == 0
