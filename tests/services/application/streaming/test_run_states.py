"""The stream of the states of runs: of one user, and of all that a caller may see."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from loomlog.schemas.generated.run_events import (
    InputReceived,
    InterruptionClosed,
    InterruptionOpened,
    RunParked,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunReleased,
    RunResumed,
)
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.streaming.run_states import RunStates, StateFilter, StateStream
from loomlog.services.core.access.decide import Caller
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, World, until, world

EVERY_USER = ""
WAITS = ("parked", "paused", "pause_requested", "quarantined", "awaited_state", "awaited_on")


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


# --- all users -------------------------------------------------------------------------------------------------------


async def test_without_a_user_the_runs_of_all_users_are_told_with_what_a_list_shows() -> None:
    async with world() as made, watching(made, user_id=EVERY_USER) as stream:
        run_ids = [await run(made, user_id=user) for user in ("ann", "bob")]
        states = await told(stream, 4)
        row = await made.layer.queries.run(ADMIN_CALLER, run_ids[0])
    assert [(state["user_id"], state["status"]) for state in states] == [
        ("ann", "running"),
        ("ann", "completed"),
        ("bob", "running"),
        ("bob", "completed"),
    ]
    started, ended = states[:2]
    assert (started["run_id"], started["live"], started["event"]) == (run_ids[0], True, "RunStarted")
    assert (started["agent"], started["provider"], started["root_run_id"]) == ("soaker", row.provider, run_ids[0])
    assert (ended["live"], ended["iterations"], ended["cost_micros"]) == (False, 1, row.cost_micros)
    assert (ended["usage"]["input_tokens"], ended["usage"]["output_tokens"]) == (row.input_tokens, row.output_tokens)
    assert ended["position"] == f"loom.run.events/{row.partition}:{row.last_offset}"


async def test_a_run_that_was_live_before_is_read_when_it_changes_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world() as made:
        run_id = await run(made, "silent", user_id="ann")
        async with watching(made, user_id=EVERY_USER, with_waits=True) as stream:
            asked: list[str] = []
            read = made.layer.projection.run

            async def counting(scope: Any, run_id: str) -> Any:
                asked.append(run_id)
                return await read(scope, run_id)

            monkeypatch.setattr(made.layer.projection, "run", counting)
            made.happen(run_id, RunPauseRequested(scope="run", reason="look"))
            made.happen(run_id, RunResumed(scope="run"))
            await told(stream, 2)
            made.reply(run_id)
            (state,) = await told(stream)
    assert asked == [run_id]
    assert (state["status"], state["agent"], state["user_id"]) == ("completed", "silent", "ann")


async def test_a_run_of_another_agent_is_not_read_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made:
        other = await run(made, "silent")
        async with watching(made, user_id=EVERY_USER, agent="soaker", with_waits=True) as stream:
            asked = 0
            read = made.layer.projection.run

            async def counting(scope: Any, run_id: str) -> Any:
                nonlocal asked
                asked += 1
                return await read(scope, run_id)

            monkeypatch.setattr(made.layer.projection, "run", counting)
            made.happen(other, RunPauseRequested(scope="run"))
            made.happen(other, RunResumed(scope="run"))
            made.reply(other)
            run_id = await run(made, "soaker")
            assert [state["run_id"] for state in await told(stream, 2)] == [run_id, run_id]
    assert asked == 1


@pytest.mark.parametrize(("caller", "sees"), [(ADMIN_CALLER, True), (ACME, True), (GLOBEX, False), (IVY, False)])
async def test_all_users_are_those_that_the_caller_may_see(caller: Caller, sees: bool) -> None:
    async with world() as made:
        made.layer.run_states = RunStates(made.layer.sources, keepalive_s=0.05)
        before = await run(made, "silent", caller=ACME)
        async with watching(made, caller=caller, user_id=EVERY_USER, with_waits=True) as stream:
            made.happen(before, RunPauseRequested(scope="run"))
            await run(made, caller=ACME)
            if sees:
                assert {state["tenant_id"] for state in await told(stream, 3)} == {"acme"}
            else:
                assert await stream.next() == []


async def test_an_isolated_caller_hears_of_its_own_runs_whoever_it_asks_for() -> None:
    async with world() as made:
        made.layer.run_states = RunStates(made.layer.sources, keepalive_s=0.05)
        async with (
            watching(made, caller=IVY, user_id=EVERY_USER) as everybody,
            watching(made, caller=IVY, user_id="acme-op") as another,
        ):
            await run(made, caller=ACME)
            run_id = await run(made, caller=IVY)
            assert {state["run_id"] for state in await told(everybody, 2)} == {run_id}
            assert await another.next() == []


async def test_an_administrator_narrows_all_users_to_a_tenant() -> None:
    async with world() as made, watching(made, user_id=EVERY_USER, tenant="acme") as stream:
        await run(made, caller=GLOBEX)
        run_id = await run(made, caller=ACME)
        assert {state["run_id"] for state in await told(stream, 2)} == {run_id}


async def test_what_a_run_waits_for_is_told_as_a_list_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = InterruptionOpened(turn=1, index=0, call_id="c", interrupt_id="i1", question="?", expires_at_ms=1)
    closed = InterruptionClosed(turn=1, index=0, call_id="c", interrupt_id="i1", status="resolved")
    steps: list[tuple[Any, dict[str, Any]]] = [
        (RunParked(since_turn=1), {"parked": True, "awaited_state": "awaiting_input"}),
        (RunPauseRequested(scope="run", reason="look"), {"parked": True, "paused": True, "pause_requested": True}),
        (RunPaused(turn=2), {"paused": True, "pause_requested": True, "awaited_state": None}),
        (RunResumed(scope="run"), {}),
        (opened, {"awaited_state": "interrupted", "awaited_on": "i1"}),
        (closed, {}),
        (RunQuarantined(error="broken", record_offset=1, record_topic="t"), {"quarantined": True}),
        (RunReleased(), {}),
    ]
    async with world() as made:
        run_id = await run(made, "silent")
        monkeypatch.setattr("tests.services.application.owner.evolve", lambda state, event, at_ms: state)
        async with watching(made, user_id=EVERY_USER, with_waits=True) as stream:
            for event, expected in steps:
                made.happen(run_id, event)
                (state,) = await told(stream)
                quiet = {name: None if name.startswith("awaited") else False for name in WAITS}
                actual = {name: state[name] for name in WAITS}
                assert actual == quiet | {"awaited_state": state["awaited_state"]} | expected, type(event).__name__
                assert (state["status"], state["event"]) == ("running", type(event).__name__)
                row = await made.layer.queries.run(ADMIN_CALLER, run_id)
                assert (row.parked, row.quarantined) == (state["parked"], state["quarantined"])


async def test_input_for_a_run_that_does_not_wait_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as made, watching(made, user_id=EVERY_USER, with_waits=True) as stream:
        run_id = await run(made, "silent")
        monkeypatch.setattr("tests.services.application.owner.evolve", lambda state, event, at_ms: state)
        made.happen(run_id, InputReceived(text="more"))
        made.happen(run_id, RunParked(since_turn=1))
        made.happen(run_id, InputReceived(text="go on"))
        states = await told(stream, 3)
    assert [state["event"] for state in states] == ["RunStarted", "RunParked", "InputReceived"]
    assert [state["parked"] for state in states] == [False, True, False]


async def test_the_stream_of_one_user_tells_starts_and_ends_alone() -> None:
    async with world() as made, watching(made) as stream:
        run_id = await run(made, "silent")
        made.happen(run_id, RunPauseRequested(scope="run"))
        made.happen(run_id, RunResumed(scope="run"))
        made.reply(run_id)
        assert [state["event"] for state in await told(stream, 2)] == ["RunStarted", "RunCompleted"]


async def test_a_stream_forgets_the_oldest_run_and_reads_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.application.streaming.run_states.KNOWN_RUNS_MAX", 1)
    async with world() as made, watching(made, user_id=EVERY_USER) as stream:
        first, second = [await run(made, "silent", user_id=user) for user in ("ann", "bob")]
        await told(stream, 2)
        assert list(stream._known_runs or ()) == [second]
        await until(lambda: first in made.hub.live_runs)
        made.reply(first)
        (state,) = await told(stream)
        assert (state["run_id"], state["user_id"], state["status"]) == (first, "ann", "completed")
