"""Actions at the end of a run: once each, until they are done, and none of a run that has none."""

import asyncio
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import RunRefused
from loomlog.schemas.generated.values import RunOptions
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.run.state import Ended
from loomlog.services.runtime.run import run_end_actions as module
from loomlog.services.runtime.run.run_end_actions import RunEnd, RunEndActions
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.core.run.given import begun
from tests.services.entities import NOW_MS

HOOKS = ('{"kind":"a"}', '{"kind":"b"}')


class Hooks:
    """Hooks that do what they are told."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.errors: dict[int, list[Exception]] = {}

    async def carry_out(self, text: str, end: RunEnd, state: Ended, number: int) -> bool:
        assert text == HOOKS[number]
        errors = self.errors.get(number, [])
        if errors:
            raise errors.pop(0)
        self.done.append((end.run_id, number))
        return True


class Commands:
    """Owners of schedules."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.errors: list[Exception] = []

    async def ask(self, command: Any, *, wait_s: float) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        self.asked.append(command)
        return Nothing()


class Nothing:
    events = ()


class Note(dict[str, Any]):
    """NoteRunEnded of a family."""


class Here:
    def __init__(self) -> None:
        self.hooks, self.commands = Hooks(), Commands()
        log: Any = None  # nothing is read
        self.actions = RunEndActions(
            self.commands,
            self.hooks,
            log,
            local_codec(),
            triggers={"schedule": Note},
        )

    def end(self, *, trigger: str = "", hooks: tuple[str, ...] = HOOKS, offset: int = 9, **more: Any) -> RunEnd:
        facts = begun().live.facts
        facts = replace(facts, run_id="r_1", options=RunOptions(on_complete=hooks, trigger=trigger))
        state = Ended(facts=facts, status="failed", reason="no key")
        fields = {"state": state, "code": "unauthorised", **more}
        return RunEnd(
            tenant="acme",
            partition=0,
            run_id="r_1",
            first_offset=3,
            last_offset=offset,
            ended_at_ms=NOW_MS,
            **fields,
        )


@pytest.fixture
def here() -> Here:
    return Here()


async def test_the_trigger_is_told_and_the_hooks_follow_in_order(here: Here) -> None:
    assert await here.actions.carry_out(here.end(trigger="schedule:acme/team/nightly"))
    (note,) = here.commands.asked
    envelope = note.pop("envelope")
    assert note == {
        "name": "team/nightly",
        "run_id": "r_1",
        "status": "failed",
        "code": "unauthorised",
        "message": "no key",
    }
    assert (envelope.command_id, envelope.tenant, envelope.issued_at_ms) == ("r_1:ended", "acme", NOW_MS)
    assert here.hooks.done == [("r_1", 0), ("r_1", 1)]


async def test_a_refused_run_is_told_too(here: Here) -> None:
    refused = RunRefused(code="unknown_agent", message="x" * 1_000, trigger="schedule:acme/nightly")
    assert await here.actions.carry_out(here.end(state=None, refused=refused))
    (note,) = here.commands.asked
    assert (note["status"], note["code"], note["message"]) == ("refused", "unknown_agent", "x" * 300)
    assert here.hooks.done == []


async def test_what_does_not_answer_is_tried_again_and_nothing_else(here: Here) -> None:
    here.commands.errors = [CommandUnanswered("no owner")]
    here.hooks.errors = {0: [Unavailable("no owner")]}
    end = here.end(trigger="schedule:acme/nightly")
    assert not await here.actions.carry_out(end)
    assert (len(here.commands.asked), here.hooks.done) == (0, [("r_1", 1)])
    assert await here.actions.carry_out(end)
    assert (len(here.commands.asked), here.hooks.done) == (1, [("r_1", 1), ("r_1", 0)])
    assert here.actions.counts == {"done": 3, "unavailable": 2}


async def test_what_is_refused_is_not_tried_again(here: Here) -> None:
    here.hooks.errors = {0: [Refused("channel_not_declared", "there is no channel")]}
    assert await here.actions.carry_out(here.end(trigger="robot:acme/x"))
    assert here.hooks.done == [("r_1", 1)]
    assert here.actions.counts == {"refused": 2, "done": 1}


async def test_an_end_is_pending_until_all_is_done(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    here.hooks.errors = {1: [Unavailable("no owner")] * 3}
    here.actions._pending[0] = {}
    here.actions.on_ended(here.end(offset=9))
    assert [here.actions.is_done_below(0, offset) for offset in (8, 9, 10)] == [True, True, False]
    task = asyncio.create_task(here.actions.run())
    async with asyncio.timeout(30):
        while here.actions.pending_count():
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert here.hooks.done == [("r_1", 0), ("r_1", 1)]
    assert here.actions.is_done_below(0, 10)


async def test_a_run_without_actions_is_not_pending(here: Here) -> None:
    here.actions.on_ended(here.end(hooks=()))
    here.actions.on_ended(here.end(state=None, refused=RunRefused(code="x", message="y")))
    facts = here.end().state.facts  # type: ignore[union-attr]  # it has one
    imported = Ended(facts=replace(facts, imported_events=3), status="completed", reason="end_turn")
    here.actions.on_ended(here.end(state=imported))
    assert here.actions.pending_count() == 0


async def test_nothing_of_a_released_partition_is_done_or_taken_for_done(here: Here) -> None:
    here.actions.on_ended(here.end())
    here.actions.release(0)
    assert here.actions.pending_count() == 0
    assert not here.actions.is_done_below(0, 100)


async def test_an_end_that_cannot_be_read_now_waits(here: Here) -> None:
    class Away:
        async def state(self, partition: int, position: Any) -> Any:
            raise Transient("the log is away", kind="unavailable")

    here.actions._ended_runs = Away()  # type: ignore[assignment]  # nothing else is asked of it
    assert not await here.actions.carry_out(here.end(state=None))
