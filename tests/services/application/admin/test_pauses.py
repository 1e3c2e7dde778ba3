import asyncio
from typing import Any

import pytest

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.run_events import (
    ChildrenPlanned,
    RunPaused,
    RunPauseRequested,
    RunQuarantined,
    RunResumed,
)
from loomlog.schemas.generated.values import Spawn, ToolCall
from loomlog.services.application.queries.run_json import run_json
from loomlog.services.application.resources import TOPICS
from loomlog.services.application.runs.interrupts import InterruptResponse
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.pauses import WidePause
from loomlog.services.core.refusals import Refused
from loomlog.services.families.pause.api import OPERATIONS, PAUSE, RESUME, STATE, PauseEntry
from tests.services.application.entity_owner import event_at
from tests.services.application.owner import NOW_MS
from tests.services.application.performing import perform
from tests.services.application.world import ACME, ADMIN_CALLER, IVY, World, declined, pieces_of, until, world

Target = dict[str, str]
ALL: Target = {}
ACME_ONLY: Target = {"scope": "tenant", "tenant": "acme"}
SOAKER: Target = {"scope": "agent", "agent": "soaker"}


async def start(made: World, agent: str = "soaker", caller: Caller = ADMIN_CALLER) -> str:
    run = await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go"))
    run.stream.close()
    return run.run_id


async def apply(made: World, target: Target = ALL, *, timeout_ms: int = 0, reason: str = "") -> Any:
    """Pause; return the answer."""
    fields = {**target, "timeout_ms": timeout_ms, "reason": reason}
    return (await perform(made, PAUSE, ADMIN_CALLER, **fields)).value


async def pause(made: World, target: Target = ALL) -> str:
    state: str = (await apply(made, target, reason="deploy")).state
    return state


async def lift(made: World, target: Target = ALL) -> Any:
    return (await perform(made, RESUME, ADMIN_CALLER, **target)).value


async def read(made: World) -> Any:
    return (await perform(made, STATE, ADMIN_CALLER)).value


async def test_a_pause_is_in_the_log_with_who_and_why_before_it_is_answered() -> None:
    async with world() as made:
        answer = await perform(made, PAUSE, ADMIN_CALLER, timeout_ms=0, reason="deploy")
        assert answer.value.state == "paused"
        assert event_at(made.log, answer.positions[0]) == PauseSet(scope="all", reason="deploy", by="default")
        (entry,) = (await read(made)).pauses
        at = format_rfc3339(NOW_MS)
        assert entry == PauseEntry(scope="all", tenant=None, agent=None, reason="deploy", by="default", at=at)


async def test_a_run_that_is_started_after_a_resume_is_decided_by_an_owner_that_has_read_it() -> None:
    async with world() as made:
        await pause(made)
        (position,) = (await perform(made, RESUME, ADMIN_CALLER)).positions
        await start(made)
        assert position in made.commands()[-1].after


@pytest.mark.parametrize("target", [ALL, ACME_ONLY, SOAKER])
async def test_new_runs_of_what_is_paused_are_refused_until_it_is_resumed(target: Target) -> None:
    async with world() as made:
        await pause(made, target)
        actual = await declined(made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go")))
        assert (actual.code, actual.retry_after_s) == ("runtime_paused", 5)
        assert "deploy" in actual.message
        assert made.commands() == []
        await lift(made, target)
        run = await made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go"))
        assert (await pieces_of(run.stream))[-1].type == "done"


@pytest.mark.parametrize("target", [ACME_ONLY, {"scope": "agent", "agent": "parker"}])
async def test_runs_of_others_start_all_the_same(target: Target) -> None:
    async with world() as made:
        await pause(made, target)
        assert await start(made)


async def test_a_pause_waits_until_the_runs_stand_still() -> None:
    async with world() as made:
        run_id = await start(made, "silent")
        waiting = asyncio.create_task(apply(made, timeout_ms=5_000))
        await until(lambda: made.layer.wide_pauses.table.entries)
        made.happen(run_id, RunPauseRequested(scope="all"))
        made.happen(run_id, RunPaused(turn=1))
        still = await waiting
        assert (still.state, still.paused_runs_count, still.warnings) == ("paused", 1, [])
        now = await read(made)
        assert (now.state, now.paused_runs_count) == ("paused", 1)
        assert (await lift(made)).resumed_runs_count == 1


async def test_runs_that_wait_for_people_stand_still_and_stay_so_when_they_are_answered() -> None:
    async with world() as made:
        asking, losing = [await start(made, "silent") for _ in range(2)]
        (question,) = made.ask(asking, {"question": "Shall I?"})
        made.lose_a_call(losing)
        assert await pause(made) == "paused"
        for run_id in (asking, losing):
            made.happen(run_id, RunPauseRequested(scope="all"))
        await made.layer.interrupts.resolve(ADMIN_CALLER, asking, question, InterruptResponse(answer="yes"))
        await made.layer.control.resolve(ADMIN_CALLER, losing, 1, 0, done=True)
        now = await read(made)
        assert (now.state, now.paused_runs_count) == ("paused", 2)


async def test_a_run_that_waits_for_people_is_shown_as_paused_and_found_so() -> None:
    async with world() as made:
        run_id = await start(made, "silent")
        made.ask(run_id, {"question": "Shall I?"})
        for is_requested in (False, True):
            if is_requested:
                made.happen(run_id, RunPauseRequested(scope="run"))
            row = await made.layer.queries.run(ADMIN_CALLER, run_id)
            assert (
                row.paused,
                run_json(row, TOPICS.events)["pause_requested"],
                run_json(row, TOPICS.events)["paused"],
            ) == (
                False,
                is_requested,
                is_requested,
            )
            preview = await made.layer.bulk.preview(ADMIN_CALLER, "resume", "status=paused")
            assert [one.run_id for one in preview.first] == [run_id] * is_requested
        made.happen(run_id, RunResumed(scope="run", remaining=0))
        assert not run_json(await made.layer.queries.run(ADMIN_CALLER, run_id), TOPICS.events)["paused"]


async def test_a_call_that_is_made_again_is_shown_as_under_way() -> None:
    async with world() as made:
        run_id = await start(made, "silent")
        assert run_json(await made.layer.queries.run(ADMIN_CALLER, run_id), TOPICS.events)["under_way"] == ["model"]
        made.lose_a_call(run_id)
        assert run_json(await made.layer.queries.run(ADMIN_CALLER, run_id), TOPICS.events)["under_way"] == []
        await made.layer.control.resolve(ADMIN_CALLER, run_id, 1, 0, done=False)
        assert run_json(await made.layer.queries.run(ADMIN_CALLER, run_id), TOPICS.events)["under_way"] == ["0"]


async def test_a_run_that_waits_for_its_children_stands_still_and_the_children_do_or_do_not() -> None:
    async with world() as made:
        parent, child = [await start(made, "silent") for _ in range(2)]
        made.reply(parent, tool_calls=(ToolCall(id="c1", name="Agent", input="{}"),), effect_classes=("idempotent",))
        spawns = (Spawn(agent="silent", prompt="look"),)
        made.happen(parent, ChildrenPlanned(turn=1, index=0, call_id="c1", op="spawn", spawns=spawns))
        still = await apply(made)
        assert (still.state, still.warnings) == ("pausing", [f"{child} does not stand still yet"])
        made.ask(child, {"question": "Shall I?"})
        now = await read(made)
        assert now.state == "paused"


async def test_a_pause_that_takes_longer_names_the_runs_and_stays() -> None:
    async with world() as made:
        run_id = await start(made, "silent")
        still = await apply(made)
        assert (still.state, still.warnings) == ("pausing", [f"{run_id} does not stand still yet"])
        now = await read(made)
        assert now.state == "pausing"


async def test_pausing_twice_and_resuming_what_is_not_paused_are_refused() -> None:
    async with world() as made:
        assert (await declined(lift(made))).code == "not_paused"
        await pause(made)
        again = apply(made)
        assert (await declined(again)).code == "already_pausing"
        assert await pause(made, ACME_ONLY) == "paused"


async def test_a_resume_counts_the_runs_that_go_on_and_not_those_that_something_else_holds() -> None:
    async with world() as made:
        free, own, broken = [await start(made, "silent") for _ in range(3)]
        await pause(made)
        for run_id in (free, own, broken):
            made.happen(run_id, RunPauseRequested(scope="all"), RunPaused(turn=1))
        made.happen(own, RunPauseRequested(scope="run"))
        made.happen(broken, RunQuarantined(error="bad fold", record_offset=1, record_topic="t"))
        assert (await read(made)).paused_runs_count == 3
        assert (await lift(made)).resumed_runs_count == 1


async def test_a_resume_of_something_narrow_counts_nothing_while_something_wider_is_paused() -> None:
    async with world() as made:
        run_id = await start(made, "silent")
        await pause(made)
        await pause(made, {"scope": "agent", "agent": "silent"})
        made.happen(run_id, RunPauseRequested(scope="all"), RunPauseRequested(scope="agent"), RunPaused(turn=1))
        lifted = await lift(made, {"scope": "agent", "agent": "silent"})
        assert (lifted.state, lifted.resumed_runs_count) == ("paused", 0)
        made.happen(run_id, RunResumed(scope="agent", remaining=1))
        lifted = await lift(made)
        assert (lifted.state, lifted.resumed_runs_count) == ("running", 1)


async def test_what_does_not_say_what_to_pause_is_a_bad_request() -> None:
    async with world() as made:
        for target in (
            {"scope": "tenant"},
            {"scope": "agent"},
            {"tenant": "acme"},
            {"scope": "galaxy"},
            {"scope": "agent", "agent": "no name"},
        ):
            assert (await declined(apply(made, target))).code == "bad_request"


@pytest.mark.parametrize("caller", [ACME, IVY])
async def test_only_administrators_pause(caller: Caller) -> None:
    async with world() as made:
        for operation in OPERATIONS:
            assert (await declined(perform(made, operation, caller))).code == "insufficient_scope"


async def test_without_a_record_of_the_act_nothing_is_paused() -> None:
    async with world() as made:
        made.log.lose_acks = 10**9
        assert (await declined(apply(made))).code == "audit_unavailable"


async def test_of_two_pauses_at_once_one_is_set_and_the_other_is_refused() -> None:
    async with world() as made:
        one, other = await asyncio.gather(pause(made), pause(made), return_exceptions=True)
        refused = one if isinstance(one, Refused) else other
        assert isinstance(refused, Refused)
        assert refused.code == "already_pausing"
        assert "paused" in (one, other)


async def test_without_an_owner_it_is_said_that_the_pause_may_still_be_set() -> None:
    async with world(entity_owner=False) as made:
        actual = await declined(apply(made))
        assert (actual.code, actual.details["outcome"]) == ("log_unavailable", "unknown")
        assert "GET /v1/_state" in actual.message


async def test_a_pause_of_a_state_file_that_is_set_here_already_adds_nothing() -> None:
    async with world() as made:
        entry = WidePause(scope="tenant", tenant="acme", reason="bill")
        assert await made.layer.wide_pauses.restore(ADMIN_CALLER, entry, dry_run=True) == ""
        first, again = await asyncio.gather(
            *(made.layer.wide_pauses.restore(ADMIN_CALLER, entry, dry_run=False) for _ in range(2))
        )
        assert [first, again].count(None) == 1
        assert made.layer.wide_pauses.table.listed()[0].reason == "bill"
