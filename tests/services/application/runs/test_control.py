import asyncio
from typing import Any

import orjson
import pytest

from loomlog.projections.engine.positions import WaitResult
from loomlog.schemas.conversation import TextBlock
from loomlog.schemas.generated.run_commands import CancelRun, PostInput
from loomlog.schemas.generated.run_events import CommandRefused, InputReceived, RunCompleted, RunFailed, RunQuarantined
from loomlog.schemas.generated.values import Usage
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.runs.forks import ForkRequest
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    GLOBEX,
    IVY,
    STARTER,
    World,
    declined,
    pieces_of,
    types_of,
    until,
    until_type,
    world,
)


async def start(made: World, agent: str, *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    return await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go", **fields))


def waits_of(made: World) -> list[Position]:
    """For which positions the read models are waited for, from now on."""
    waits: list[Position] = []
    wait = made.wait

    async def watched(position: Position, *, timeout_s: float) -> WaitResult:
        waits.append(position)
        return await wait(position, timeout_s=timeout_s)

    made.wait = watched  # type: ignore[method-assign]  # to look on
    return waits


# --- input -----------------------------------------------------------------------------------------------------------


async def test_input_wakes_a_parked_run() -> None:
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        actual = await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "second")
        pieces = await until_type(run.stream, "awaiting_input")
        run.stream.close()
    assert actual.run_id == run.run_id
    assert actual.position.startswith("loom.run.events/")
    assert types_of(pieces) == ["steer", "text", "usage", "awaiting_input"]


async def test_input_reaches_a_run_in_the_middle_of_a_turn() -> None:
    async with world() as made:
        run = await start(made, "silent", interactive=True)
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "wait")
        assert made.states[run.run_id].facts.waiting_inputs == ("wait",)  # type: ignore[union-attr]
        run.stream.close()


async def test_a_long_text_lies_in_the_blob_store_and_is_shown_whole() -> None:
    text = "go on " * 174_762  # 4 bytes less than the bound
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, text)
        pieces = await until_type(run.stream, "awaiting_input")
        run.stream.close()
        [command] = [command for command in made.commands() if isinstance(command, PostInput)]
        output = made.states[run.run_id].facts.messages[-2].blocks[0]  # type: ignore[union-attr]
        again = await made.layer.queries.stream(ADMIN_CALLER, run.run_id)
        stored: list[StreamChunk] = []
        while types_of(stored).count("awaiting_input") < 2:
            stored += await until_type(again, "awaiting_input")
        again.close()
    assert len(text) > limits.INPUT_BYTES_MAX - 8
    assert (command.text, command.text_blob.size_bytes) == ("", len(text))
    assert output == TextBlock(text="", blob=command.text_blob)
    for shown in (pieces, stored):
        steer = orjson.loads([piece for piece in shown if piece.type == "steer"][-1].data)
        assert steer["user_input"]["text"] == text
        assert "text_blob" not in steer


async def test_a_full_queue_is_said_with_when_to_come_again() -> None:
    async with world() as made:
        run = await start(made, "silent", interactive=True)
        for number in range(16):
            await made.layer.control.post_input(ADMIN_CALLER, run.run_id, str(number))
        actual = await declined(made.layer.control.post_input(ADMIN_CALLER, run.run_id, "one more"))
        run.stream.close()
    assert (actual.code, actual.retry_after_s) == ("queue_full", 1)


async def test_input_to_a_finished_or_unknown_run_is_not_found() -> None:
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        for run_id in (run.run_id, "r_nothing", "has space", "\0"):
            actual = await declined(made.layer.control.post_input(ADMIN_CALLER, run_id, "hello?"))
            assert actual.code == "not_found"
        assert not any(isinstance(command, PostInput) for command in made.commands())


async def test_empty_input_is_refused_before_anything_else() -> None:
    async with world() as made:
        assert (await declined(made.layer.control.post_input(ADMIN_CALLER, "r_nothing", " "))).code == "empty_text"


async def test_a_member_may_not_change_the_run_of_an_isolated_user_and_an_operator_may() -> None:
    async with world() as made:
        run = await start(made, "silent", caller=IVY, interactive=True)
        member = replace(STARTER, scopes=frozenset({RUNS_CREATE, RUNS_READ}))
        control = made.layer.control
        for _ in ("from the memory of the process", "from the read models"):
            for asked in (
                control.post_input(member, run.run_id, "x"),
                control.cancel(member, run.agent_id),
                control.cancel_run(member, run.run_id),
                made.layer.forks.fork(member, run.run_id, ForkRequest(at_seq=1, prompt="x")),
                made.layer.runs.continue_session(member, run.session_id, RunRequest(prompt="x")),
            ):
                refused = await declined(asked)
                assert (refused.code, "isolated user ivy" in refused.message) == ("insufficient_scope", True)
            made.layer.hub.live_runs[run.run_id] = None
        await control.post_input(IVY, run.run_id, "x")
        await control.cancel(ACME, run.agent_id)
        run.stream.close()


async def test_a_run_that_ends_while_input_is_on_its_way_is_not_found() -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        asked = asyncio.create_task(made.layer.control.post_input(ADMIN_CALLER, run.run_id, "x"))
        await until(lambda: len(made.commands()) == 2)
        made.reply(run.run_id)
        assert (await declined(asked)).code == "not_found"
        run.stream.close()


async def test_input_nobody_answers_is_said_to_be_pending() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        assert (await declined(made.layer.control.post_input(ADMIN_CALLER, run.run_id, "x"))).code == "input_pending"
        run.stream.close()


async def test_orders_to_a_quarantined_run_say_why_nothing_happens() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        made.happen(run.run_id, RunQuarantined(error="a bug", record_offset=1, record_topic="t"))
        actual = await declined(made.layer.control.cancel(ADMIN_CALLER, run.agent_id))
        assert (actual.code, "a bug" in actual.message) == ("run_quarantined", True)
        run.stream.close()


async def test_a_run_is_quarantined_and_released_with_the_positions_of_both_events() -> None:
    async with world() as made:
        run = await start(made, "silent")
        control = made.layer.control
        held = await control.quarantine(ADMIN_CALLER, run.run_id, "it sends mails")
        assert held.position.startswith("loom.run.events/")
        assert made.states[run.run_id].facts.quarantine_error == "it sends mails"  # type: ignore[union-attr]
        again = await declined(control.quarantine(ADMIN_CALLER, run.run_id))
        assert (again.code, "it sends mails" in again.message) == ("already_quarantined", True)
        free = await control.release(ADMIN_CALLER, run.run_id)
        assert free.position > held.position
        assert (await declined(control.release(ADMIN_CALLER, run.run_id))).code == "not_quarantined"
        run.stream.close()


async def test_a_release_that_ends_in_quarantine_again_says_why_and_where() -> None:
    async with world() as made:
        run = await start(made, "silent")
        await made.layer.control.quarantine(ADMIN_CALLER, run.run_id)
        made.unfoldable = "ValueError: two replies"
        actual = await declined(made.layer.control.release(ADMIN_CALLER, run.run_id))
        assert (actual.code, "two replies" in actual.message) == ("run_quarantined", True)
        assert str(actual.details["position"]).startswith("loom.run.events/")
        run.stream.close()


async def test_quarantine_and_release_are_for_runs_that_are_there_and_live() -> None:
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        control = made.layer.control
        for order in (control.quarantine, control.release):
            assert (await declined(order(ADMIN_CALLER, "r_nothing"))).code == "not_found"
            over = await declined(order(ADMIN_CALLER, run.run_id))
            assert (over.code, "has ended" in over.message) == ("not_found", True)


async def test_a_refusal_of_somebody_elses_command_is_not_taken_for_ones_own() -> None:
    async with world(waits={"control_s": 0.05}) as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        asked = asyncio.create_task(made.layer.control.post_input(ADMIN_CALLER, run.run_id, "x"))
        await until(lambda: len(made.commands()) == 2)
        made.happen(run.run_id, CommandRefused(code="queue_full", message="no"), cause_id="c_other")
        assert (await declined(asked)).code == "input_pending"
        run.stream.close()


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_cancel_ends_a_run_and_its_stream_and_keeps_the_reason() -> None:
    async with world() as made:
        run = await start(made, "silent")
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "enough")
        pieces = await pieces_of(run.stream)
    assert (actual.cancelled, actual.status, actual.reason) == (True, "cancelled", "enough")
    assert (actual.agent_id, actual.run_id) == (run.agent_id, run.run_id)
    assert types_of(pieces)[-1] == "done"


async def test_a_cancel_of_a_run_under_way_does_not_wait_for_the_read_models() -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.project()
        made.projecting = False  # from now on the read models are behind, for ever
        made.happen(run.run_id, InputReceived(text="later", source="api"))
        waits = waits_of(made)
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "enough")
        run.stream.close()
    assert (actual.cancelled, actual.reason, waits) == (True, "enough", [])


async def test_a_run_that_has_ended_and_is_not_yet_told_so_in_the_read_models_is_told_as_it_ended() -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.project()
        made.projecting = False
        made.reply(run.run_id)
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "too late")
        run.stream.close()
    assert (actual.cancelled, actual.status, actual.reason) == (False, "completed", "end_turn")


async def test_a_run_that_this_process_knows_is_ordered_while_the_read_models_are_away() -> None:
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        made.postgres_is_away = True
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "second")
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "enough")
        run.stream.close()
    assert (actual.cancelled, actual.run_id, actual.reason) == (True, run.run_id, "enough")


async def test_a_run_of_another_process_is_known_after_the_first_order_to_it() -> None:
    async with world() as made:
        run = await start(made, "parker", interactive=True)
        await until_type(run.stream, "awaiting_input")
        made.hub.live_runs[run.run_id] = None  # as in a process that did not start it
        made.project()
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "second")
        made.postgres_is_away = True
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
        run.stream.close()
    assert actual.cancelled


async def test_what_is_known_of_a_run_is_forgotten_at_its_end() -> None:
    async with world() as made:
        run = await start(made, "silent")
        assert made.hub.live_runs[run.run_id] is not None
        await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
        run.stream.close()
        assert made.hub.live_runs == {}


@pytest.mark.parametrize("stranger", [GLOBEX, IVY])
async def test_knowing_a_run_shows_it_to_no_stranger(stranger: Caller) -> None:
    async with world() as made:
        run = await start(made, "silent", caller=ACME)
        actual = await declined(made.layer.control.cancel(stranger, run.agent_id))
        await made.layer.control.cancel(ACME, run.agent_id)
        run.stream.close()
    assert actual.code == "unknown_agent_id"
    assert [command.envelope.tenant for command in made.commands() if isinstance(command, CancelRun)] == ["acme"]


async def test_no_cancel_is_answered_before_the_end_of_the_run_is_in_the_log() -> None:
    """A reply that says cancelled stays true whatever dies after it, because the log has said it first."""
    async with world() as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        asked = asyncio.create_task(made.layer.control.cancel(ADMIN_CALLER, run.agent_id))
        await until(lambda: len(made.commands()) == 2)  # the order is durable, and its owner dies before it reads it
        await asyncio.sleep(0)
        assert not asked.done()
        await made._handle(made.commands()[1])  # the next owner reads it
        actual = await asked
        run.stream.close()
    assert actual.cancelled


async def test_a_chosen_handle_waits_for_the_read_models_because_a_newer_run_may_have_it() -> None:
    async with world() as made:
        run = await start(made, "silent", agent_id="mine")
        made.project()
        made.happen(run.run_id, InputReceived(text="later", source="api"))
        waits = waits_of(made)
        actual = await made.layer.control.cancel(ADMIN_CALLER, "mine")
        run.stream.close()
    assert (actual.cancelled, bool(waits)) == (True, True)


async def test_cancel_twice_is_harmless() -> None:
    async with world() as made:
        run = await start(made, "silent")
        first = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "enough")
        second = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id, "again")
        run.stream.close()
    assert (second.status, second.reason, second.cancelled) == (first.status, first.reason, True)
    assert sum(isinstance(command, CancelRun) for command in made.commands()) == 1


async def test_cancel_of_a_finished_run_says_how_it_ended() -> None:
    async with world() as made:
        run = await start(made, "soaker")
        await pieces_of(run.stream)
        actual = await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
    assert (actual.cancelled, actual.status, actual.reason) == (False, "completed", "end_turn")


@pytest.mark.parametrize(
    ("ending", "status", "reason"),
    [
        (RunCompleted(stop_reason="end_turn", usage=Usage()), "completed", "end_turn"),
        (RunFailed(code="model_error", error="mock 500: broken", usage=Usage()), "failed", "mock 500: broken"),
    ],
)
async def test_a_run_that_ends_by_itself_meanwhile_is_told_as_it_was(ending: Any, status: str, reason: str) -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        asked = asyncio.create_task(made.layer.control.cancel(ADMIN_CALLER, run.agent_id))
        await until(lambda: len(made.commands()) == 2)
        made.happen(run.run_id, ending)
        actual = await asked
        run.stream.close()
    assert (actual.cancelled, actual.status, actual.reason) == (False, status, reason)


async def test_cancel_by_a_chosen_handle_finds_its_newest_run() -> None:
    async with world() as made:
        await pieces_of((await start(made, "soaker", agent_id="mine")).stream)
        second = await start(made, "silent", agent_id="mine")
        actual = await made.layer.control.cancel(ADMIN_CALLER, "mine")
        second.stream.close()
    assert actual.run_id == second.run_id


async def test_a_cancel_nobody_answers_is_said_to_be_pending() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run = await start(made, "silent")
        made.owner_is_busy = True
        actual = await declined(made.layer.control.cancel(ADMIN_CALLER, run.agent_id))
        assert (actual.code, actual.details["run_id"]) == ("cancel_pending", run.run_id)
        run.stream.close()


async def test_read_models_that_go_away_while_waiting_do_not_spoil_a_cancel() -> None:
    async with world() as made:
        run = await start(made, "silent")
        handle = made._handle

        async def away_then_handle(command: Any) -> None:
            made.postgres_is_away = True
            await handle(command)

        made._handle = away_then_handle  # type: ignore[method-assign]
        assert (await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)).cancelled
        run.stream.close()


async def test_orders_leave_no_subscription_behind() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run = await start(made, "silent")
        run.stream.close()
        await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
        await declined(made.layer.control.cancel(ADMIN_CALLER, "nobody"))
        assert made.hub.subscribers == 0


# --- calls of unknown outcome ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("done", "frame"), [(True, "tool_result"), (False, "")])
async def test_a_lost_call_is_resolved_by_whoever_knows(done: bool, frame: str) -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.lose_a_call(run.run_id)
        await until_type(run.stream, "outcome_unknown")
        actual = await made.layer.control.resolve(ADMIN_CALLER, run.run_id, 1, 0, done=done, result="paid" * done)
        if frame:
            await until_type(run.stream, frame)
        run.stream.close()
    assert (actual.run_id, actual.is_repeated) == (run.run_id, not done)
    assert actual.position.startswith("loom.run.events/")


async def test_a_call_that_waits_for_nobody_is_not_resolved() -> None:
    async with world() as made:
        run = await start(made, "silent")
        actual = await declined(made.layer.control.resolve(ADMIN_CALLER, run.run_id, 1, 0, done=True))
        run.stream.close()
    assert actual.code == "nothing_to_resolve"


async def test_a_call_of_a_run_that_is_over_or_of_others_is_not_resolved() -> None:
    async with world() as made:
        run = await start(made, "silent", caller=ACME)
        made.lose_a_call(run.run_id)
        actual = await declined(made.layer.control.resolve(GLOBEX, run.run_id, 1, 0, done=True))
        assert actual.code == "not_found"
        await made.layer.control.cancel(ACME, run.agent_id)
        made.project()
        actual = await declined(made.layer.control.resolve(ACME, run.run_id, 1, 0, done=True))
        assert actual.code == "not_found"
        run.stream.close()


async def test_a_call_that_is_not_done_has_no_result() -> None:
    async with world() as made:
        actual = await declined(made.layer.control.resolve(ADMIN_CALLER, "r_1", 1, 0, done=False, result="x"))
        assert actual.code == "bad_request"


async def test_a_resolution_nobody_answers_is_said_to_be_pending() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run = await start(made, "silent")
        made.lose_a_call(run.run_id)
        made.owner_is_busy = True  # no runtime is up
        actual = await declined(made.layer.control.resolve(ADMIN_CALLER, run.run_id, 1, 0, done=True))
        run.stream.close()
    assert actual.code == "resolve_pending"


# --- pause -----------------------------------------------------------------------------------------------------------


async def test_a_paused_run_shows_why_and_goes_on_when_it_is_resumed() -> None:
    async with world() as made:
        run = await start(made, "silent", interactive=True)
        held = await made.layer.control.pause(ADMIN_CALLER, run.run_id, "look first")
        assert held.position.startswith("loom.run.events/")
        row = await made.layer.queries.run(ADMIN_CALLER, run.run_id)
        assert (row.status, row.pause_requested, row.paused, row.pause_reason) == ("running", True, False, "look first")
        made.reply(run.run_id)
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "and then?")
        assert (await made.layer.queries.run(ADMIN_CALLER, run.run_id)).paused
        await made.layer.control.resume(ADMIN_CALLER, run.run_id)
        row = await made.layer.queries.run(ADMIN_CALLER, run.run_id)
        assert (row.pause_requested, row.paused, row.pause_reason) == (False, False, "")
        run.stream.close()


async def test_pausing_twice_and_resuming_what_runs_are_refused() -> None:
    async with world() as made:
        run = await start(made, "silent")
        assert (await declined(made.layer.control.resume(ADMIN_CALLER, run.run_id))).code == "not_paused"
        await made.layer.control.pause(ADMIN_CALLER, run.run_id)
        assert (await declined(made.layer.control.pause(ADMIN_CALLER, run.run_id))).code == "already_pausing"
        run.stream.close()


async def test_a_run_that_is_over_or_not_ours_is_not_found_for_a_pause() -> None:
    async with world() as made:
        over = await start(made, "soaker")
        await pieces_of(over.stream)
        run = await start(made, "silent", caller=ACME)
        for caller, run_id in ((ADMIN_CALLER, over.run_id), (GLOBEX, run.run_id), (IVY, run.run_id)):
            assert (await declined(made.layer.control.pause(caller, run_id))).code == "not_found"
            assert (await declined(made.layer.control.resume(caller, run_id))).code == "not_found"
        run.stream.close()
