import pytest

from loomlog.schemas.generated.run_commands import PauseRun, QuarantineRun
from loomlog.schemas.generated.run_events import RunQuarantined
from loomlog.services.application.runs import bulk
from loomlog.services.application.runs.bulk import BulkResult
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused
from tests.services.application.world import ACME, ADMIN_CALLER, World, declined, world

BAD = RunQuarantined(error="a bug", record_offset=1, record_topic="t")


async def started(made: World, agent: str = "silent", caller: Caller = ADMIN_CALLER) -> str:
    run = await made.layer.runs.start(caller, RunRequest(agent=agent, prompt="go"))
    run.stream.close()
    return run.run_id


async def all_pages(made: World, action: str, where: str) -> list[tuple[str, str]]:
    """Run and outcome of every page."""
    actual: list[tuple[str, str]] = []
    after = ""
    while True:
        page: BulkResult = await made.layer.bulk.act(ADMIN_CALLER, action, where, "why", after=after)
        actual += [(one.run_id, one.outcome) for one in page.results]
        after = page.next
        if not after:
            return actual


async def test_a_preview_counts_and_shows_and_changes_nothing() -> None:
    async with world() as made:
        runs = {await started(made) for _ in range(3)}
        await started(made, "soaker")
        preview = await made.layer.bulk.preview(ADMIN_CALLER, "pause", "agent=silent")
        assert (preview.matched, preview.has_more, {row.run_id for row in preview.first}) == (3, False, runs)
        assert not any(isinstance(command, PauseRun) for command in made.commands())


async def test_a_preview_with_a_cursor_is_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)
    async with world() as made:
        runs = {await started(made) for _ in range(3)}
        page = await made.layer.bulk.act(ADMIN_CALLER, "pause", "agent=silent", "why")
        left = await made.layer.bulk.preview(ADMIN_CALLER, "pause", "agent=silent", after=page.next)
        assert {row.run_id for row in left.first} == runs - {one.run_id for one in page.results}
        assert left.matched == 1
        with pytest.raises(Refused, match="cursor"):
            await made.layer.bulk.preview(ADMIN_CALLER, "pause", "agent=silent", after="nonsense")


async def test_an_order_reaches_every_run_of_the_filter_page_by_page_and_each_names_its_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk, "PAGE_SIZE", 2)
    async with world() as made:
        runs = {await started(made) for _ in range(5)}
        other = await started(made, "silent", ACME)
        page = await made.layer.bulk.act(ADMIN_CALLER, "quarantine", "tenant=default,status=running", "why")
        assert len(page.results) == 2
        assert all(one.position.startswith("loom.run.events/") for one in page.results)
        done = await all_pages(made, "quarantine", "tenant=default,status=running")
        assert {run_id for run_id, _ in done} <= runs
        commands = [command for command in made.commands() if isinstance(command, QuarantineRun)]
        assert {command.run_id for command in commands} == runs
        assert {command.reason for command in commands} == {"why"}
        assert not made.states[other].facts.quarantine_error  # type: ignore[union-attr]


async def test_runs_that_the_order_cannot_change_are_left_out() -> None:
    async with world() as made:
        bad, well, asked = [await started(made) for _ in range(3)]
        made.happen(bad, BAD)
        await made.layer.control.pause(ADMIN_CALLER, asked)
        assert await all_pages(made, "release", "status=running") == [(bad, "changed")]
        made.happen(bad, BAD)
        assert await all_pages(made, "resume", "status=running") == [(asked, "changed")]
        actual = await all_pages(made, "quarantine", "agent=silent")
        assert sorted(actual) == sorted([(well, "changed"), (asked, "changed")])


async def test_status_narrows_to_what_stands_still_and_why() -> None:
    async with world() as made:
        bad, _ = [await started(made) for _ in range(2)]
        made.happen(bad, BAD)
        parked = await started(made, "soaker")
        del parked
        preview = await made.layer.bulk.preview(ADMIN_CALLER, "cancel", "status=quarantined")
        assert [row.run_id for row in preview.first] == [bad]
        assert await all_pages(made, "cancel", "status=quarantined") == [(bad, "changed")]


async def test_one_that_fails_says_why_and_keeps_no_other_from_it() -> None:
    async with world() as made:
        runs = {await started(made) for _ in range(3)}
        for run_id in runs:
            made.happen(run_id, BAD)
        made.unfoldable = "ValueError: two replies"
        page = await made.layer.bulk.act(ADMIN_CALLER, "release", "status=quarantined", "")
        assert {one.run_id for one in page.results} == runs
        for one in page.results:
            assert (one.outcome, one.code) == ("failed", "run_quarantined")
            assert "two replies" in one.error


async def test_what_had_happened_already_is_unchanged_and_no_failure() -> None:
    async with world() as made:
        run_id = await started(made)
        await made.layer.control.pause(ADMIN_CALLER, run_id)
        assert await all_pages(made, "pause", "agent=silent") == [(run_id, "unchanged")]


async def test_a_wrong_action_or_filter_is_refused() -> None:
    async with world() as made:
        assert (await declined(made.layer.bulk.preview(ADMIN_CALLER, "delete", "agent=a"))).code == "bad_request"
        assert (await declined(made.layer.bulk.act(ADMIN_CALLER, "pause", "agnet=a", ""))).code == "bad_request"
