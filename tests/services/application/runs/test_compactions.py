"""Compactions and replays through the command layer, with the real rules behind them."""

from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import ForkRun, StartRun
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.core.run.conversation.compaction import COMPACT, COPY
from loomlog.services.core.run.conversation.conversation import build_conversation
from loomlog.services.core.run.state import Ended, Parked
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, World, declined, until_type, world

LONG = "long words " * 40


async def talked(made: World, texts: int = 4, agent: str = "parker") -> StartedRun:
    """A parked run in which that many further texts were said."""
    run = await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent=agent, prompt=f"task {LONG}", interactive=True))
    await until_type(run.stream, "awaiting_input")
    for number in range(texts):
        await made.layer.control.post_input(ADMIN_CALLER, run.run_id, f"text {number} {LONG}")
        await until_type(run.stream, "awaiting_input")
    return run


async def ended(made: World, texts: int = 4) -> StartedRun:
    """The same, and the run was ended."""
    run = await talked(made, texts)
    await made.layer.control.cancel_run(ADMIN_CALLER, run.run_id)
    run.stream.close()
    return run


# --- compact ---------------------------------------------------------------------------------------------------------


async def test_a_parked_run_is_compacted_where_it_is() -> None:
    async with world() as made:
        run = await talked(made)
        actual = await made.layer.compactions.compact(ADMIN_CALLER, run.run_id, "tidy")
        assert actual.applied == "live"
        assert 0 < actual.after_tokens < actual.before_tokens
        assert actual.position.startswith("loom.run.events/")
        pieces = await until_type(run.stream, "context_compaction")
        assert any(b"they talked" in piece.data for piece in pieces)
        assert isinstance(made.states[run.run_id], Parked)
        row = await made.layer.queries.run(ADMIN_CALLER, run.run_id)
        assert (row.compactions, row.parked, row.status) == (1, True, "running")
        run.stream.close()


async def test_a_short_conversation_is_left_alone() -> None:
    async with world() as made:
        run = await talked(made, texts=0)
        actual = await made.layer.compactions.compact(ADMIN_CALLER, run.run_id)
        assert (actual.applied, actual.before_tokens, actual.after_tokens) == ("noop", 0, 0)
        run.stream.close()


async def test_a_summary_that_saves_nothing_is_left_alone() -> None:
    async with world() as made:
        made.summary = "x" * 50_000
        run = await talked(made)
        assert (await made.layer.compactions.compact(ADMIN_CALLER, run.run_id)).applied == "noop"
        run.stream.close()


async def test_a_run_in_the_middle_of_a_turn_is_busy() -> None:
    async with world() as made:
        run = await made.layer.runs.start(ADMIN_CALLER, RunRequest(agent="silent", prompt="go", interactive=True))
        actual = await declined(made.layer.compactions.compact(ADMIN_CALLER, run.run_id))
        assert actual.code == "run_busy"
        run.stream.close()


async def test_a_summary_that_fails_is_said_and_changes_nothing() -> None:
    async with world() as made:
        made.summary_error = "mock 529: overloaded"
        run = await talked(made)
        before = build_conversation(made.states[run.run_id])
        actual = await declined(made.layer.compactions.compact(ADMIN_CALLER, run.run_id))
        assert actual.code == "compaction_failed"
        assert "mock 529" in actual.message
        assert build_conversation(made.states[run.run_id]) == before
        run.stream.close()


async def test_a_summary_that_takes_long_is_pending_and_goes_on() -> None:
    async with world(waits={"compaction_s": 0.1}) as made:
        run = await made.layer.runs.start(
            ADMIN_CALLER, RunRequest(agent="silent", prompt=f"task {LONG}", interactive=True)
        )
        made.reply(run.run_id)
        for number in range(4):
            await made.layer.control.post_input(ADMIN_CALLER, run.run_id, f"text {number} {LONG}")
            made.reply(run.run_id)
        actual = await declined(made.layer.compactions.compact(ADMIN_CALLER, run.run_id))
        assert actual.code == "compact_pending"
        assert actual.retry_after_s
        made.summarise(run.run_id)
        assert isinstance(made.states[run.run_id], Parked)
        run.stream.close()


async def test_a_session_that_is_over_gets_a_marker_from_which_its_next_run_starts() -> None:
    async with world() as made:
        run = await ended(made)
        actual = await made.layer.compactions.compact(ADMIN_CALLER, run.run_id)
        assert actual.applied == "marker"
        assert actual.after_tokens < actual.before_tokens
        (seed,) = [one for one in made.commands() if isinstance(one, StartRun) and one.seed]
        assert (seed.seed, seed.session_id, seed.agent) == (COMPACT, run.session_id, "parker")
        held = build_conversation(made.states[seed.run_id])
        assert "they talked" in str(held[0])
        again = await made.layer.runs.continue_session(ADMIN_CALLER, run.session_id, RunRequest(prompt="and now?"))
        assert again.session_id == run.session_id
        assert build_conversation(made.states[again.run_id])[: len(held)] == held
        again.stream.close()


@pytest.mark.parametrize(
    ("texts", "more", "code"),
    [(4, {"summary_error": "mock 500: away"}, "compaction_failed")],
)
async def test_a_marker_that_cannot_be_made_is_said(texts: int, more: dict[str, Any], code: str) -> None:
    async with world() as made:
        run = await ended(made, texts)
        for name, value in more.items():
            setattr(made, name, value)
        assert (await declined(made.layer.compactions.compact(ADMIN_CALLER, run.run_id))).code == code


async def test_a_short_session_that_is_over_gets_no_marker() -> None:
    async with world() as made:
        run = await ended(made, texts=0)
        assert (await made.layer.compactions.compact(ADMIN_CALLER, run.run_id)).applied == "noop"


async def test_a_session_with_another_run_under_way_is_busy() -> None:
    async with world() as made:
        first = await ended(made)
        second = await made.layer.runs.continue_session(
            ADMIN_CALLER, first.session_id, RunRequest(agent="silent", prompt="wait")
        )
        actual = await declined(made.layer.compactions.compact(ADMIN_CALLER, first.run_id))
        assert actual.code == "run_busy"
        second.stream.close()


async def test_who_sees_no_run_compacts_none() -> None:
    async with world() as made:
        run = await talked(made)
        assert (await declined(made.layer.compactions.compact(GLOBEX, run.run_id))).code == "not_found"
        run.stream.close()


# --- replay ----------------------------------------------------------------------------------------------------------


async def test_a_session_goes_on_with_another_agent_in_a_session_of_its_own() -> None:
    async with world() as made:
        run = await ended(made)
        copy = await made.layer.compactions.replay(ADMIN_CALLER, run.session_id, "soaker")
        assert copy.session_id != run.session_id
        assert copy.events == made.seqs[run.run_id]
        assert not copy.compacted
        (seed,) = [one for one in made.commands() if isinstance(one, ForkRun)]
        assert (seed.seed, seed.origin_run_id, seed.run_id) == (COPY, run.run_id, copy.seed_run_id)
        state = made.states[copy.seed_run_id]
        assert isinstance(state, Ended)
        assert (state.status, state.reason, state.facts.definition.name) == ("completed", "seeded", "soaker")
        assert build_conversation(state) == build_conversation(made.states[run.run_id])
        again = await made.layer.runs.continue_session(ADMIN_CALLER, copy.session_id, RunRequest(prompt="go on"))
        assert len(build_conversation(made.states[again.run_id])) == len(build_conversation(state)) + 2
        again.stream.close()


async def test_a_session_is_given_on_in_a_summary_when_it_is_asked_for() -> None:
    async with world() as made:
        run = await ended(made)
        copy = await made.layer.compactions.replay(ADMIN_CALLER, run.session_id, "soaker", compress=True)
        assert copy.compacted
        assert "they talked" in str(build_conversation(made.states[copy.seed_run_id])[0])


async def test_a_short_session_is_given_on_as_it_is() -> None:
    async with world() as made:
        run = await ended(made, texts=0)
        copy = await made.layer.compactions.replay(ADMIN_CALLER, run.session_id, "soaker", compress=True)
        assert not copy.compacted


@pytest.mark.parametrize(
    ("agent", "error", "code"),
    [
        ("ghost", "", "agent_gone"),
        ("", "", "bad_request"),
        ("a b", "", "bad_request"),
        ("soaker", "away", "compaction_failed"),
    ],
)
async def test_a_replay_that_cannot_be_is_said(agent: str, error: str, code: str) -> None:
    async with world() as made:
        run = await ended(made)
        made.summary_error = error
        actual = await declined(made.layer.compactions.replay(ADMIN_CALLER, run.session_id, agent, compress=True))
        assert actual.code == code


async def test_an_unknown_or_foreign_session_is_not_found() -> None:
    async with world() as made:
        run = await ended(made)
        for caller, session in ((ADMIN_CALLER, "s_none"), (GLOBEX, run.session_id), (ACME, run.session_id)):
            assert (await declined(made.layer.compactions.replay(caller, session, "soaker"))).code == "not_found"
