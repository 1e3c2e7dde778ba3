"""What a person says to a run: answers, declines, stopped turns, and what of it others may see."""

import asyncio
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import ResolveInterruption
from loomlog.services.application.runs.interrupts import InterruptResponse, check_response, parse_statuses
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.run.state import Ended
from tests.services.application.owner import NOW_MS
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    GLOBEX,
    IVY,
    World,
    declined,
    types_of,
    until,
    until_type,
    world,
)

ASK = {"question": "Shall I?", "options": ["yes", "no"]}
YES = InterruptResponse(answer="yes")


async def silent(made: World, *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    return await made.layer.runs.start(caller, RunRequest(agent="silent", prompt="go", **fields))


async def asking(
    made: World, *questions: dict[str, Any], caller: Caller = ADMIN_CALLER
) -> tuple[StartedRun, list[str]]:
    run = await silent(made, caller=caller)
    return run, made.ask(run.run_id, *(questions or (ASK,)))


async def test_an_answer_ends_the_question_and_names_where_that_is_in_the_log() -> None:
    async with world() as made:
        run, [question] = await asking(made)
        actual = await made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
        pieces = await until_type(run.stream, "tool_result")
        run.stream.close()
    assert (actual.interrupt_id, actual.status, actual.resolved_at_ms) == (question, "resolved", NOW_MS)
    assert actual.position.startswith("loom.run.events/")
    assert types_of(pieces)[-3:] == ["interruption_pending", "interruption_resolved", "tool_result"]


async def test_a_question_can_be_declined() -> None:
    async with world() as made:
        run, [question] = await asking(made)
        actual = await made.layer.interrupts.resolve(
            ADMIN_CALLER, run.run_id, question, InterruptResponse(disposition="declined")
        )
        run.stream.close()
    assert actual.status == "declined"


@pytest.mark.parametrize(
    "response",
    [
        InterruptResponse(kind="vote", answer="yes"),
        InterruptResponse(answer="yes", disposition="odd"),
        InterruptResponse(answer="yes", disposition="declined"),
        InterruptResponse(),
    ],
)
async def test_a_malformed_answer_is_refused_before_anything_is_sent(response: InterruptResponse) -> None:
    async with world() as made:
        run, [question] = await asking(made)
        actual = await declined(made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, response))
        run.stream.close()
        assert not any(isinstance(command, ResolveInterruption) for command in made.commands())
    assert actual.code == "invalid_answer"


def test_a_proper_answer_is_none_of_those() -> None:
    check_response(YES)
    check_response(InterruptResponse(disposition="declined"))


async def test_an_answer_outside_the_options_is_refused_and_the_question_waits() -> None:
    async with world() as made:
        run, [question] = await asking(made)
        asked = made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, InterruptResponse(answer="maybe"))
        assert (await declined(asked)).code == "invalid_answer"
        [row] = (await made.layer.interrupts.list_of_run(ADMIN_CALLER, run.run_id)).rows
        run.stream.close()
    assert row.status == "pending"


@pytest.mark.parametrize("lagging", [False, True])
async def test_a_second_answer_is_refused_by_the_read_models_or_by_the_owner(lagging: bool) -> None:
    async with world() as made:
        run, [question] = await asking(made)
        made.project()
        made.projecting = not lagging
        await made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
        again = made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, InterruptResponse(answer="no"))
        assert (await declined(again)).code == "interrupt_closed"
        run.stream.close()


@pytest.mark.parametrize("is_heard", [True, False])
async def test_an_answer_that_another_was_before_is_closed_also_when_that_one_has_ended_the_run(
    is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as made:
        run, [question] = await asking(made)
        resolve = made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
        ordered = made.layer.control.send_command

        async def late(*order: Any) -> Any:
            monkeypatch.undo()
            await made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
            made.reply(run.run_id)
            return await ordered(*order) if is_heard else None

        monkeypatch.setattr(made.layer.control, "send_command", late)
        actual = await declined(resolve)
        assert isinstance(made.states[run.run_id], Ended)
        run.stream.close()
    assert (actual.code, actual.message) == ("interrupt_closed", f"the question {question} is resolved already")


async def test_an_answer_that_comes_too_late_says_so() -> None:
    async with world() as made:
        run, [question] = await asking(made, {**ASK, "timeout_ms": 800})
        made.now_ms = NOW_MS + 800
        for _ in range(2):
            late = made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
            assert (await declined(late)).code == "interrupt_expired"
        run.stream.close()


async def test_a_question_of_a_run_that_has_ended_is_closed_and_one_it_never_had_unknown() -> None:
    async with world() as made:
        run, [question] = await asking(made)
        await made.layer.control.cancel(ADMIN_CALLER, run.agent_id)
        run.stream.close()
        resolve = made.layer.interrupts.resolve
        assert (await declined(resolve(ADMIN_CALLER, run.run_id, question, YES))).code == "interrupt_closed"
        for other in ("intr_other", "has space", "\0"):
            assert (await declined(resolve(ADMIN_CALLER, run.run_id, other, YES))).code == "not_found"


async def test_a_live_run_without_that_question_says_not_found() -> None:
    async with world() as made:
        run, _ = await asking(made)
        other, [foreign] = await asking(made)
        assert (
            await declined(made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, foreign, YES))
        ).code == "not_found"
        run.stream.close()
        other.stream.close()


@pytest.mark.parametrize("stranger", [GLOBEX, IVY])
async def test_nobody_else_sees_or_answers_the_question_of_a_tenant_or_user(stranger: Caller) -> None:
    async with world() as made:
        run, [question] = await asking(made, caller=ACME)
        layer = made.layer.interrupts
        assert (await declined(layer.resolve(stranger, run.run_id, question, YES))).code == "not_found"
        assert (await declined(layer.list_of_run(stranger, run.run_id))).code == "not_found"
        assert (await declined(layer.cancel_turn(stranger, run.run_id))).code == "not_found"
        if stranger.is_isolated:
            assert (await declined(layer.list_all(stranger, user_id="acme-op"))).code == "not_found"
        else:
            assert (await layer.list_all(stranger, user_id="acme-op")).rows == ()
        assert (await layer.list_all(stranger)).total == 0
        assert [row.interrupt_id for row in (await layer.list_all(ACME)).rows] == [question]
        run.stream.close()


async def test_lists_show_what_waits_unless_more_is_asked_for() -> None:
    async with world() as made:
        run, [first, second] = await asking(made, ASK, {"question": "name?"})
        await made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, first, YES)
        layer = made.layer.interrupts
        assert [row.interrupt_id for row in (await layer.list_of_run(ADMIN_CALLER, run.run_id)).rows] == [second]
        every = await layer.list_all(ADMIN_CALLER, user_id="default", status="all")
        assert {row.status for row in every.rows} == {"pending", "resolved"}
        assert every.total == 2
        run.stream.close()


def test_statuses_are_checked() -> None:
    assert parse_statuses("") == {"pending"}
    assert parse_statuses("all") == frozenset()
    assert parse_statuses("resolved, declined") == {"resolved", "declined"}


async def test_a_status_that_does_not_exist_is_refused() -> None:
    async with world() as made:
        assert (await declined(made.layer.interrupts.list_all(ADMIN_CALLER, status="odd"))).code == "bad_request"


async def test_an_answer_nobody_takes_is_said_to_be_pending() -> None:
    async with world(waits={"control_s": 0.02}) as made:
        run, [question] = await asking(made)
        made.owner_is_busy = True
        pending = made.layer.interrupts.resolve(ADMIN_CALLER, run.run_id, question, YES)
        assert (await declined(pending)).code == "resolve_pending"
        run.stream.close()


# --- encrypted -------------------------------------------------------------------------------------------------------


async def test_with_a_key_what_is_asked_lies_encrypted_and_is_shown_in_clear() -> None:
    async with world(encrypted=True) as made:
        run = await silent(made)
        assert made.keys is not None
        sealer = await made.keys.cipher_for("default", "default")
        made.ask(run.run_id, {"question": sealer.text('a "secret"?'), "options": [sealer.text('"yes"'), "no"]})
        [row] = (await made.layer.interrupts.list_of_run(ADMIN_CALLER, run.run_id)).rows
        stored = made.twin.tables["interrupts"][run.run_id, row.interrupt_id]
        run.stream.close()
    assert (row.question, row.options) == ('a "secret"?', '["\\"yes\\"","no"]')
    assert "secret" not in str(stored)


# --- turns -----------------------------------------------------------------------------------------------------------


async def test_a_turn_is_stopped_and_the_run_parks() -> None:
    async with world() as made:
        run = await silent(made, interactive=True)
        made.said = "I was about to"
        actual = await made.layer.interrupts.cancel_turn(ADMIN_CALLER, run.run_id, "stop talking")
        pieces = await until_type(run.stream, "awaiting_input")
        run.stream.close()
    assert (actual.run_id, actual.parked) == (run.run_id, True)
    assert types_of(pieces)[-3:] == ["text", "turn_cancelled", "awaiting_input"]


async def test_what_was_previewed_of_a_stopped_turn_is_not_sent_again() -> None:
    async with world() as made:
        run = await silent(made, interactive=True)
        await until_type(run.stream, "started")
        made.preview(run.run_id, "I was ", start=0)
        await until_type(run.stream, "text")
        made.said = "I was about"
        await made.layer.interrupts.cancel_turn(ADMIN_CALLER, run.run_id)
        pieces = await until_type(run.stream, "turn_cancelled")
        run.stream.close()
    assert [piece.data for piece in pieces if piece.type == "text"] == [b'{"type":"text","text":"about"}']


async def test_a_run_with_a_text_that_waits_goes_on_and_is_not_parked() -> None:
    async with world() as made:
        run = await silent(made, interactive=True)
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, "rather this")
        actual = await made.layer.interrupts.cancel_turn(ADMIN_CALLER, run.run_id)
        run.stream.close()
    assert actual.parked is False


async def test_a_turn_that_cannot_be_stopped_says_why() -> None:
    async with world() as made:
        plain = await silent(made)
        parker = await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent="parker", prompt="go", interactive=True))
        await until_type(parker.stream, "awaiting_input")
        cancel = made.layer.interrupts.cancel_turn
        assert (await declined(cancel(ADMIN_CALLER, plain.run_id))).code == "not_interactive"
        assert (await declined(cancel(ADMIN_CALLER, parker.run_id))).code == "not_mid_turn"
        assert (await declined(cancel(ADMIN_CALLER, "r_nothing"))).code == "not_found"
        plain.stream.close()
        parker.stream.close()


async def test_a_run_that_ends_while_its_turn_is_to_be_stopped_has_completed() -> None:
    async with world() as made:
        run = await silent(made)
        made.owner_is_busy = True
        asked = asyncio.create_task(made.layer.interrupts.cancel_turn(ADMIN_CALLER, run.run_id))
        await until(lambda: len(made.commands()) == 2)
        made.reply(run.run_id)
        assert (await declined(asked)).code == "already_completed"
        run.stream.close()
