from loomlog.schemas.generated.pause_events import PauseSet
from loomlog.schemas.generated.run_events import (
    ModelCallFailed,
    ModelCallRequested,
    RunCompleted,
    RunPaused,
    RunPauseRequested,
    RunResumed,
)
from loomlog.services.families.pause.state import PauseTable, evolve
from tests.services.runtime.fakes import AGENT
from tests.services.runtime.small_runtime import Stage

NOTHING = PauseTable()


def only(scope: str, tenant: str = "", agent: str = "") -> PauseTable:
    return evolve(NOTHING, PauseSet(scope=scope, tenant=tenant, agent=agent, reason="deploy", by="op"), 1)


def kinds(stage: Stage) -> list[str]:
    return [type(event).__name__ for event in stage.events()]


async def test_a_run_accepted_while_paused_waits_without_a_call_and_completes_when_it_is_resumed() -> None:
    for table in (only("all"), only("tenant", "acme"), only("agent", agent=AGENT.name)):
        stage = Stage()
        stage.pauses = table
        async with stage.owner("one") as runtime:
            stage.start()
            await stage.until(lambda: stage.has(RunPaused))  # noqa: B023
            assert kinds(stage)[-3:] == ["RunStarted", "RunPauseRequested", "RunPaused"]
            stage.pauses = NOTHING
            runtime.host.apply_wide_pauses()
            await stage.until(lambda: stage.has(RunCompleted))  # noqa: B023


async def test_runs_of_others_go_on() -> None:
    stage = Stage()
    stage.pauses = evolve(only("tenant", "globex"), PauseSet(scope="agent", tenant="acme", agent="other"), 1)
    async with stage.owner("one") as runtime:
        stage.start()
        runtime.host.apply_wide_pauses()
        await stage.until(lambda: stage.has(RunCompleted))
    assert not stage.has(RunPauseRequested)


async def test_a_call_under_way_is_finished_and_obeying_twice_says_nothing_more() -> None:
    stage = Stage()
    stage.model.held = True
    async with stage.owner("one") as runtime:
        stage.start()
        await stage.model.holding.wait()
        stage.pauses = only("all")
        runtime.host.apply_wide_pauses()
        runtime.host.apply_wide_pauses()
        stage.model.let_go.set()
        await stage.until(lambda: stage.has(RunCompleted))
    assert kinds(stage)[-3:] == ["RunPauseRequested", "ModelReplied", "RunCompleted"]


async def test_a_pause_and_its_end_that_nobody_saw_are_obeyed_at_the_next_take_over() -> None:
    stage = Stage()
    stage.model.held = True
    async with stage.owner("one"):
        stage.start()
        await stage.model.holding.wait()
    stage.pauses = only("all")
    async with stage.owner("two"):
        await stage.until(lambda: stage.has(RunPaused))
    asked = sum(isinstance(event, ModelCallRequested) for event in stage.events())
    assert (asked, stage.has(ModelCallFailed)) == (2, True), "the lost call is recorded and not made again"
    stage.pauses, stage.model.held = NOTHING, False
    async with stage.owner("three"):
        await stage.until(lambda: stage.has(RunCompleted))
    assert sum(isinstance(event, RunResumed) for event in stage.events()) == 1
    assert sum(isinstance(event, ModelCallFailed) for event in stage.events()) == 1
