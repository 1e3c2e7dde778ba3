from typing import Any

import pytest

from loomlog.projections.run_queries import RunFilter
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.runs.start import StartedRun
from loomlog.services.core.access.decide import Caller
from tests.services.application.world import (
    ACME,
    ADMIN_CALLER,
    GLOBEX,
    IVY,
    READER,
    World,
    declined,
    pieces_of,
    types_of,
    world,
)

STRANGE_IDS = ["has space", "\0", "x" * 129, "ä", "../x"]


async def start(made: World, agent: str = "soaker", *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    return await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go", **fields))


async def finished(made: World, agent: str = "soaker", *, caller: Caller = ADMIN_CALLER, **fields: Any) -> StartedRun:
    accepted = await start(made, agent, caller=caller, **fields)
    await pieces_of(accepted.stream)
    return accepted


# --- one run ---------------------------------------------------------------------------------------------------------


async def test_a_run_is_read_by_its_id_and_by_its_handle() -> None:
    async with world() as made:
        run = await finished(made)
        by_id = await made.layer.queries.run(ADMIN_CALLER, run.run_id)
        assert by_id == await made.layer.queries.agent(ADMIN_CALLER, run.agent_id)
    assert (by_id.run_id, by_id.status) == (run.run_id, "completed")


async def test_what_does_not_exist_is_not_found() -> None:
    async with world() as made:
        assert (await declined(made.layer.queries.run(ADMIN_CALLER, "r_nothing"))).code == "not_found"
        assert (await declined(made.layer.queries.agent(ADMIN_CALLER, "nobody"))).code == "unknown_agent_id"
        assert (await declined(made.layer.queries.transcript(ADMIN_CALLER, "s_nothing"))).code == "not_found"
        assert (await declined(made.layer.queries.stream(ADMIN_CALLER, "r_nothing"))).code == "not_found"


@pytest.mark.parametrize("strange", STRANGE_IDS)
async def test_an_id_that_nothing_can_have_is_not_found_and_never_asked_for(strange: str) -> None:
    async with world() as made:
        made.postgres_is_away = True
        for asked in (
            made.layer.queries.run(ADMIN_CALLER, strange),
            made.layer.queries.agent(ADMIN_CALLER, strange),
            made.layer.queries.transcript(ADMIN_CALLER, strange),
            made.layer.queries.stream(ADMIN_CALLER, strange),
        ):
            assert (await declined(asked)).code in ("not_found", "unknown_agent_id")


@pytest.mark.parametrize("stranger", [GLOBEX, IVY])
async def test_the_run_of_another_tenant_or_user_does_not_exist(stranger: Caller) -> None:
    async with world() as made:
        run = await finished(made, caller=ACME)
        reads = made.layer.queries
        assert (await declined(reads.run(stranger, run.run_id))).code == "not_found"
        assert (await declined(reads.agent(stranger, run.agent_id))).code == "unknown_agent_id"
        assert (await declined(reads.transcript(stranger, run.session_id))).code == "not_found"
        assert (await declined(reads.stream(stranger, run.run_id))).code == "not_found"
        assert (await reads.runs(stranger, RunFilter())).rows == ()


async def test_an_isolated_user_sees_its_own_and_its_operator_sees_it_too() -> None:
    async with world() as made:
        run = await finished(made, caller=IVY)
        for caller in (IVY, ACME, READER, ADMIN_CALLER):
            assert (await made.layer.queries.run(caller, run.run_id)).user_id == "ivy"
            assert (await made.layer.queries.stream(caller, run.run_id)) is not None


async def test_a_handle_is_that_of_the_callers_own_tenant_before_others() -> None:
    async with world() as made:
        own = await start(made, "silent", agent_id="shared")
        other = await start(made, "silent", caller=ACME, agent_id="shared")
        read, cancel = made.layer.queries.agent, made.layer.control.cancel
        assert (await read(ADMIN_CALLER, "shared")).run_id == own.run_id
        assert (await read(ACME, "shared")).run_id == other.run_id
        stopped = await cancel(ADMIN_CALLER, "shared")
        assert (stopped.run_id, stopped.cancelled) == (own.run_id, True)
        assert (await cancel(ADMIN_CALLER, "shared")).run_id == own.run_id, "an ended one of his own before another's"
        assert (await read(ACME, "shared")).status == "running"
        own.stream.close()
        other.stream.close()


async def test_a_cancel_that_names_the_run_of_a_handle_ends_no_other() -> None:
    async with world() as made:
        own = await start(made, "silent", agent_id="shared")
        other = await start(made, "silent", caller=ACME, agent_id="shared")
        cancel = made.layer.control.cancel
        assert (await declined(cancel(ADMIN_CALLER, "else", run_id=other.run_id))).code == "unknown_agent_id"
        assert (await declined(cancel(GLOBEX, "shared", run_id=other.run_id))).code == "not_found"
        assert (await cancel(ADMIN_CALLER, "shared", run_id=other.run_id)).run_id == other.run_id
        assert (await made.layer.queries.agent(ADMIN_CALLER, "shared")).status == "running"
        own.stream.close()
        other.stream.close()


async def test_an_isolated_users_handle_means_its_own_run_also_when_another_user_has_it_now() -> None:
    async with world() as made:
        own = await finished(made, caller=IVY, agent_id="shared")
        other = await start(made, "silent", caller=ACME, agent_id="shared")
        assert (await made.layer.queries.agent(IVY, "shared")).run_id == own.run_id
        assert (await made.layer.queries.agent(ACME, "shared")).run_id == other.run_id
        assert (await made.layer.control.cancel(IVY, "shared")).run_id == own.run_id
        other.stream.close()


async def test_a_run_the_read_models_may_miss_is_not_called_unknown() -> None:
    async with world(projecting=False) as made:
        run = await finished(made)
        actual = await declined(made.layer.queries.run(ADMIN_CALLER, run.run_id))
        assert (actual.code, actual.details["lag"] > 0) == ("not_yet", True)
        assert (await declined(made.layer.queries.agent(ADMIN_CALLER, run.agent_id))).code == "not_yet"
        made.project()
        assert (await made.layer.queries.run(ADMIN_CALLER, run.run_id)).run_id == run.run_id


async def test_a_run_that_is_there_is_shown_even_when_the_read_models_are_behind() -> None:
    async with world() as made:
        run = await start(made, "silent")
        made.project()
        made.projecting = False
        made.reply(run.run_id)
        await pieces_of(run.stream)
        assert (await made.layer.queries.run(ADMIN_CALLER, run.run_id)).status == "running"


async def test_read_models_that_are_away_are_an_answer() -> None:
    async with world() as made:
        made.postgres_is_away = True
        assert (await declined(made.layer.queries.run(ADMIN_CALLER, "r_1"))).code == "projection_unavailable"


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_a_list_shows_a_caller_what_it_sees_newest_first() -> None:
    async with world() as made:
        ours = [await finished(made, caller=ACME), await finished(made, caller=IVY)]
        await finished(made, caller=GLOBEX)
        assert len((await made.layer.queries.runs(ADMIN_CALLER, RunFilter())).rows) == 3
        listed = (await made.layer.queries.runs(ACME, RunFilter())).rows
    assert {row.run_id for row in listed} == {run.run_id for run in ours}


async def test_an_isolated_user_cannot_list_others_by_asking_for_them() -> None:
    async with world() as made:
        await finished(made, caller=ACME)
        mine = await finished(made, caller=IVY)
        assert [row.run_id for row in (await made.layer.queries.runs(IVY, RunFilter())).rows] == [mine.run_id]
        assert (await made.layer.queries.runs(IVY, RunFilter(user_id="acme-op"))).rows == ()


async def test_only_an_administrator_can_choose_the_tenant() -> None:
    async with world() as made:
        await finished(made, caller=ACME)
        assert len((await made.layer.queries.runs(ADMIN_CALLER, RunFilter(), tenant="acme")).rows) == 1
        assert (await made.layer.queries.runs(ADMIN_CALLER, RunFilter(), tenant="globex")).rows == ()
        assert (await made.layer.queries.runs(GLOBEX, RunFilter(), tenant="acme")).rows == ()
        assert len((await made.layer.queries.runs(ACME, RunFilter(), tenant="acme")).rows) == 1


async def test_pages_go_on_where_they_ended() -> None:
    async with world() as made:
        runs = [(await finished(made)).run_id for _ in range(5)]
        actual: list[str] = []
        after = ""
        while True:
            page = await made.layer.queries.runs(ADMIN_CALLER, RunFilter(), limit=2, after=after)
            actual += [row.run_id for row in page.rows]
            after = page.next
            if not after:
                break
    assert sorted(actual) == sorted(runs)
    assert len(actual) == 5


@pytest.mark.parametrize("cursor", ["!", "AAAA", "YQ", "a" * 2_000, "AAo", "\0", "bm90IG91cnM"])
async def test_a_place_we_did_not_give_out_is_refused(cursor: str) -> None:
    async with world() as made:
        run = await finished(made)
        actual = await declined(made.layer.queries.runs(ADMIN_CALLER, RunFilter(), after=cursor))
        assert actual.code == "bad_request"
        if cursor in ("!", "\0", "AAAA"):
            asked = made.layer.queries.transcript(ADMIN_CALLER, run.session_id, after=cursor)
            assert (await declined(asked)).code == "bad_request"


# --- transcripts -----------------------------------------------------------------------------------------------------


async def test_a_transcript_holds_every_run_of_the_session() -> None:
    async with world() as made:
        first = await finished(made)
        second = await made.layer.runs.continue_session(ADMIN_CALLER, first.session_id, RunRequest(prompt="more"))
        await pieces_of(second.stream)
        transcript = await made.layer.queries.transcript(ADMIN_CALLER, first.session_id)
    each = ["user_input", "system_prompt", "started", "text", "usage", "done"]
    assert [row.type for row in transcript.rows] == each + each
    assert {row.run_id for row in transcript.rows} == {first.run_id, second.run_id}


# --- streams ---------------------------------------------------------------------------------------------------------


async def test_the_stream_of_a_finished_run_is_its_frames_and_ends() -> None:
    async with world() as made:
        run = await finished(made)
        stream = await made.layer.queries.stream(ADMIN_CALLER, run.run_id)
        assert types_of(await pieces_of(stream)) == ["agent", "steer", "started", "text", "usage", "done"]


async def test_a_stream_from_the_last_place_gives_the_ids_and_ends() -> None:
    async with world() as made:
        run = await finished(made)
        last = (await made.layer.queries.transcript(ADMIN_CALLER, run.session_id)).rows[-1].seq
        stream = await made.layer.queries.stream(ADMIN_CALLER, run.run_id, after=last)
        assert types_of(await pieces_of(stream)) == ["agent"]


async def test_a_run_only_the_hub_knows_yet_can_be_followed_by_those_who_may() -> None:
    async with world(projecting=False) as made:
        run = await finished(made, caller=ACME)
        stream = await made.layer.queries.stream(ACME, run.run_id)
        assert types_of(await pieces_of(stream)) == ["agent", "started", "text", "usage", "done"]
        for stranger in (GLOBEX, IVY):
            assert (await declined(made.layer.queries.stream(stranger, run.run_id))).code == "not_yet"
