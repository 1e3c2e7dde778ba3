"""Starts wait for a place, in the owner and in the log; nobody waits for ever, and nothing is held up by it."""

from collections.abc import Mapping
from typing import Any

import pytest

from loomlog.schemas.generated.run_commands import CancelRun, PauseRun
from loomlog.schemas.generated.run_events import (
    RunCancelled,
    RunCompleted,
    RunParked,
    RunPaused,
    RunRefused,
    RunStarted,
)
from loomlog.schemas.generated.values import CommandEnvelope, ParentCall
from loomlog.schemas.reader import TermReader
from loomlog.schemas.records import replace
from loomlog.services.core.admission import AdmissionLimits
from loomlog.services.core.run.lifecycle.activity import ACTIVITY_EVENTS, is_active
from loomlog.services.core.run.state import AwaitingModel
from loomlog.services.runtime.admission.queue import AdmissionQueue
from tests.services.core.run.given import (
    at_tools,
    begun,
    compact,
    completed,
    parked,
    paused,
    quarantine,
    refused,
    talked,
)
from tests.services.runtime.fakes import TURNS
from tests.services.runtime.small_runtime import TOPICS, Stage


def door(runs: int = 1, queue: int = 10, *, wait_s: float = 5.0, **more: Any) -> AdmissionQueue:
    return AdmissionQueue(AdmissionLimits(runs=runs, queue=queue, **more), wait_s=wait_s, provider_wait_s=wait_s)


def held() -> Stage:
    """A stage on which a run stays at work until it is let go."""
    stage = Stage()
    stage.model.held = True
    return stage


def told(stage: Stage) -> Mapping[str, list[Any]]:
    """The events of each run, in the order of their first ones."""
    reader, actual = TermReader(), {}
    for record in stage.log.records[TOPICS.events, 0]:
        event = reader.read(record.offset, record.value)
        if event is not None:
            actual.setdefault(event.aggregate, []).append(event.decode().record)
    return actual


def started(stage: Stage) -> list[str]:
    return [run for run, events in told(stage).items() if isinstance(events[0], RunStarted)]


def refusals(stage: Stage) -> dict[str, RunRefused]:
    return {run: events[0] for run, events in told(stage).items() if isinstance(events[0], RunRefused)}


async def test_a_start_without_a_place_waits_until_another_run_has_ended() -> None:
    stage, here = held(), door()
    async with stage.owner("a", door=here) as runtime:
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        stage.start(run_id="r_two")
        stage.start(run_id="r_three")
        await stage.until(lambda: len(here.controller.waiting) == 2)
        assert started(stage) == ["r_one"]
        assert runtime.host.owners[0].waiting_commands == 2
        stage.model.let_go.set()
        await stage.until(lambda: sum(isinstance(events[-1], RunCompleted) for events in told(stage).values()) == 3)
    assert started(stage) == ["r_one", "r_two", "r_three"]
    assert here.controller.active == {}


async def test_other_commands_go_on_while_a_start_waits() -> None:
    stage, here = held(), door()
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        stage.start(run_id="r_two")
        await stage.until(lambda: len(here.controller.waiting) == 1)
        envelope = CommandEnvelope(command_id="stop", tenant="acme", subject="someone")
        stage.send(CancelRun(envelope=envelope, run_id="r_one"))
        await stage.until(lambda: stage.has(RunCancelled))
        stage.model.let_go.set()
        await stage.until(lambda: stage.has(RunCompleted))


async def test_who_has_waited_too_long_is_refused() -> None:
    stage, here = held(), door(wait_s=0.05)
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        stage.start(run_id="r_two")
        await stage.until(lambda: bool(refusals(stage)))
        assert here.controller.waiting == {}
    assert refusals(stage)["r_two"].code == "backpressure"


BOUNDS = [
    ({"runs": 1}, "backpressure", ""),
    ({"runs": 9, "per_user": 1}, "per_user_quota_exhausted", "ada"),
    ({"runs": 9, "providers": {"mock": 1}}, "provider_concurrency_exhausted", "mock"),
]


@pytest.mark.parametrize(("bounds", "code", "about"), BOUNDS)
async def test_a_full_queue_refuses_at_once_with_the_bound_that_was_met(
    bounds: dict[str, Any], code: str, about: str
) -> None:
    stage, here = held(), door(queue=0, **bounds)
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one", user_id="ada")
        await stage.model.holding.wait()
        stage.start(run_id="r_two", user_id="ada")
        await stage.until(lambda: bool(refusals(stage)))
    event = refusals(stage)["r_two"]
    assert (event.code, event.about, event.cap) == (code, about, 1)


async def test_a_start_that_is_wrong_is_refused_without_waiting() -> None:
    stage, here = held(), door()
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        stage.start(run_id="r_two", agent="nobody")
        await stage.until(lambda: bool(refusals(stage)))
    assert refusals(stage)["r_two"].code == "unknown_agent"


async def test_the_next_owner_lets_starts_in_in_their_old_order() -> None:
    stage, first = held(), door()
    async with stage.owner("a", door=first):
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        for name in ("r_two", "r_three", "r_four"):
            stage.start(run_id=name)
        await stage.until(lambda: len(first.controller.waiting) == 3)
    assert list(first.controller.active) == ["r_one"]  # a crash tells nobody
    assert first.controller.waiting == {}
    second = door()
    async with stage.owner("b", door=second):
        await stage.until(lambda: len(second.controller.waiting) == 3)
        stage.model.let_go.set()
        await stage.until(lambda: sum(isinstance(events[-1], RunCompleted) for events in told(stage).values()) == 4)
    assert started(stage) == ["r_one", "r_two", "r_three", "r_four"]


async def test_a_run_that_waits_for_input_gives_its_place_to_others() -> None:
    stage, here = Stage(), door()
    stage.model.turns = (replace(TURNS[1]),)
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one", interactive=True)
        await stage.until(lambda: stage.has(RunParked))
        stage.start(run_id="r_two")
        await stage.until(lambda: stage.has(RunCompleted))
    assert here.controller.active == {}


async def test_a_run_that_is_paused_gives_its_place_to_others() -> None:
    stage, here = Stage(), door()
    envelope = CommandEnvelope(command_id="hold", tenant="acme", subject="someone")
    async with stage.owner("a", door=here):
        stage.start(run_id="r_one")
        stage.send(PauseRun(envelope=envelope, run_id="r_one"))
        await stage.until(lambda: stage.has(RunPaused))
        stage.start(run_id="r_two")
        await stage.until(lambda: stage.has(RunCompleted))
    assert list(told(stage)) == ["r_one", "r_two"]


async def test_without_a_door_everybody_goes_in() -> None:
    stage = held()
    async with stage.owner("a"):
        for name in ("r_one", "r_two", "r_three"):
            stage.start(run_id=name)
        await stage.until(lambda: len(started(stage)) == 3)


async def test_a_partition_that_is_given_up_takes_its_runs_along() -> None:
    stage, here = held(), door()
    async with stage.owner("a", door=here) as runtime:
        stage.start(run_id="r_one")
        await stage.model.holding.wait()
        stage.start(run_id="r_two")
        await stage.until(lambda: len(here.controller.waiting) == 1)
        runtime.host.owners[0].drop()
        await stage.until(lambda: not here.controller.waiting and not here.controller.active)


def test_what_is_at_work_is_what_has_calls() -> None:
    assert is_active(begun().state)
    assert is_active(at_tools("Read").state)
    for run in (parked(), paused(), completed(), refused()):
        assert not is_active(run.state)
    run = begun()
    run.give(quarantine())
    assert not is_active(run.state)


def test_a_run_that_begins_with_a_compaction_is_looked_at_when_it_begins() -> None:
    run = talked()
    assert not is_active(run.state)
    (asked,) = run.give(compact())
    assert is_active(run.state)
    assert type(asked) in ACTIVITY_EVENTS


def test_a_child_is_inside_with_its_parent() -> None:
    state = begun().state
    assert isinstance(state, AwaitingModel)
    parent = ParentCall(
        run_id="r_parent", agent_id="a_parent", root_run_id="r_parent", turn=1, index=0, number=0, depth=1
    )
    assert not is_active(replace(state, facts=replace(state.facts, parent=parent)))
