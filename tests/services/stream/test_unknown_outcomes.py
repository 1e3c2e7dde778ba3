"""A call is under way when its owner is lost; a real file tells what happened, the log what the run was told."""

from pathlib import Path

import pytest

from loomlog.connectors.protocols import EffectClass
from loomlog.schemas.generated.run_events import ToolCallRequested, ToolOutcomeAsked, ToolReconcileRequested
from tests.services.stream.ledger_world import RUN, LedgerWorld

KEY = f"{RUN}:1.0"


@pytest.mark.parametrize("after", [False, True])
async def test_without_a_reconciler_an_unsafe_call_is_never_made_again_and_its_outcome_is_unknown(
    tmp_path: Path, after: bool
) -> None:
    world = LedgerWorld(tmp_path)
    await world.killed_in_a_call(after_the_effect=after)
    world.host("b")
    await world.finished(RUN)
    assert world.lines == ({KEY: 1} if after else {})
    assert (world.result().outcome, world.result().settled_by) == ("outcome_unknown", "")
    await world.close()


async def test_an_effect_that_happened_is_found_by_the_reconciler_and_not_done_again(tmp_path: Path) -> None:
    world = LedgerWorld(tmp_path, reconciles=True)
    await world.killed_in_a_call(after_the_effect=True)
    world.host("b")
    await world.finished(RUN)
    assert world.lines == {KEY: 1}
    event = world.result()
    assert (event.outcome, event.settled_by, event.attempt) == ("ok", "reconciler", 1)
    assert event.text == f"Recorded {KEY}."
    await world.close()


async def test_an_effect_that_did_not_happen_is_done_once_by_a_second_visible_attempt(tmp_path: Path) -> None:
    world = LedgerWorld(tmp_path, reconciles=True)
    await world.killed_in_a_call(after_the_effect=False)
    world.host("b")
    story = await world.finished(RUN)
    assert world.lines == {KEY: 1}
    assert (world.result().outcome, world.result().settled_by, world.result().attempt) == ("ok", "", 2)
    events = story.runs[RUN].events
    kinds = [type(event) for event in events if isinstance(event, ToolCallRequested | ToolReconcileRequested)]
    assert kinds == [ToolCallRequested, ToolReconcileRequested, ToolCallRequested]
    await world.close()


@pytest.mark.parametrize("after", [False, True])
async def test_owners_that_die_in_the_call_again_and_again_never_do_the_effect_twice(
    tmp_path: Path, after: bool
) -> None:
    world = LedgerWorld(tmp_path, reconciles=True)
    await world.killed_in_a_call(after_the_effect=after)
    for number in range(3):
        if not after:
            world.hold_calls(after_the_effect=False)
        hosted = world.host(f"b{number}")
        await world.ticks(40)
        await hosted.kill()
    world.gate = None
    world.host("last")
    await world.finished(RUN)
    assert world.lines[KEY] <= 1
    assert (world.lines[KEY] == 1) == (world.result().outcome == "ok")
    await world.close()


async def test_a_repeatable_call_is_made_again_without_a_question(tmp_path: Path) -> None:
    world = LedgerWorld(tmp_path, reconciles=True, effect=EffectClass.IDEMPOTENT)
    await world.killed_in_a_call(after_the_effect=True)
    world.host("b")
    await world.finished(RUN)
    assert world.lines == {KEY: 2}
    assert world.result().attempt == 2
    await world.close()


@pytest.mark.parametrize(("done", "lines"), [(True, 1), (False, 2)])
async def test_an_operator_who_is_asked_decides_and_owners_may_come_and_go_meanwhile(
    tmp_path: Path, done: bool, lines: int
) -> None:
    world = LedgerWorld(tmp_path, definition={"unknown_outcome": "ask"})
    await world.killed_in_a_call(after_the_effect=True)
    for name in ("b", "c"):
        hosted = world.host(name)
        await world.until(lambda: any(isinstance(e, ToolOutcomeAsked) for e in world.story().runs[RUN].events))
        await world.ticks(50)
        assert world.story().live == [RUN]
        await hosted.kill()
    world.host("d")
    world.resolve(done=done)
    story = await world.finished(RUN)
    assert world.lines == {KEY: lines}
    assert world.result().settled_by == ("operator" if done else "")
    assert sum(isinstance(event, ToolOutcomeAsked) for event in story.runs[RUN].events) == 1
    await world.close()
