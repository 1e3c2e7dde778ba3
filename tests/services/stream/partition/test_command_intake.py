"""Commands of one partition: in order for each key, also behind one that waits for a look-up."""

from collections.abc import Callable
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.run_events import InputReceived, RunCancelled, RunStarted
from loomlog.services.runtime.run.command_handler import RunCommandHandler
from tests.services.stream.judge import dead_letters
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]


async def test_commands_of_one_key_are_handled_in_order_behind_one_that_waits(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.index.limits[0] = -1
    world.start_run("r_tok", session_id="")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    world.cancel_run("r_tok")
    await world.finished("r_tok")
    await world.until(hosted.settled)
    await hosted.kill()
    # The next owner does not have the session's state at hand, so the start has to wait for a look-up.
    other = world.host("b")
    await world.until(other.partition)
    world.start_run("r_tok-2", session_id="s_tok")
    world.say("r_tok-2", "one")
    world.say("r_tok-2", "two")
    world.cancel_run("r_tok-2")
    await world.until(lambda: other.host.owners[0].waiting_commands == 4)
    del world.index.limits[0]
    story = await world.finished("r_tok-2")
    assert [type(event) for event in story.runs["r_tok-2"].events] == [
        RunStarted,
        type(story.runs["r_tok-2"].events[1]),
        InputReceived,
        InputReceived,
        RunCancelled,
    ]
    assert [event.text for event in story.runs["r_tok-2"].events[2:4]] == ["one", "two"]
    assert other.host.owners[0].waiting_commands == 0
    opened.set()


async def test_two_starts_that_both_wait_keep_their_order(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    world.start_run("r_tok")
    await world.finished("r_tok")
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    world.start_run("r_tok-2", session_id="s_tok")
    world.start_run("r_tok-3", session_id="s_tok")
    story = await world.finished("r_tok-2", "r_tok-3")
    # The second finds the first one's run still live, as it would have without the look-ups.
    assert type(story.runs["r_tok-2"].events[0]) is RunStarted
    assert story.runs["r_tok-3"].events[0].code == "session_busy"


async def test_a_look_up_that_the_outside_refuses_is_tried_again(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    refusals = [Transient("the database is away", kind="unavailable")] * 3
    reached = world.index.next_offset

    async def away(partition: int) -> int:
        if refusals:
            raise refusals.pop()
        return await reached(partition)

    world.index.next_offset = away  # type: ignore[method-assign]  # the fault is asked for
    world.start_run("r_tok", session_id="s_tok")
    story = await world.finished("r_tok")
    assert story.runs["r_tok"].events[0].code == "not_found"
    assert dead_letters(world.log, TOPICS.dead_letters) == []
    assert hosted.host.metrics.refused_records == 0


async def test_a_look_up_that_crashes_parks_its_command_alone(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()

    async def broken(partition: int) -> int:
        raise ZeroDivisionError("a bug")

    world.index.next_offset = broken  # type: ignore[method-assign]  # the fault is asked for
    world.start_run("r_tok", session_id="s_tok")
    behind = world.cancel_run("r_tok")
    world.start_run("r_fine")
    await world.finished("r_fine")
    await world.until(lambda: hosted.handled(0) and hosted.handled(behind))
    assert [letter.offset for letter in dead_letters(world.log, TOPICS.dead_letters)] == [0]


async def test_look_ups_end_with_the_partition_they_were_for(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.index.limits[0] = -1
    world.start_run("r_tok", session_id="s_tok")
    await world.until(lambda: hosted.host.owners and hosted.host.owners[0].waiting_commands)
    owner = hosted.host.owners[0]
    hosted.reassign()
    await world.until(lambda: not hosted.host.owners)
    assert owner.waiting_commands == 0
    hosted.reassign(0)
    del world.index.limits[0]
    story = await world.finished("r_tok")
    assert story.runs["r_tok"].events[0].code == "not_found"


async def test_a_command_that_crashes_when_it_is_looked_at_again_is_parked_alone(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    prepare, looks = RunCommandHandler.prepare, 0

    def broken_the_second_time(self: RunCommandHandler, record: Any, command: Any, partition: Any) -> Any:
        nonlocal looks
        looks += record.offset == 0
        if record.offset == 0 and looks == 2:
            raise ZeroDivisionError("a bug")
        return prepare(self, record, command, partition)

    async def away(partition: int) -> int:
        raise Transient("the database is away", kind="unavailable")

    monkeypatch.setattr(RunCommandHandler, "prepare", broken_the_second_time)
    world.index.next_offset = away  # type: ignore[method-assign]  # the fault is asked for
    world.start_run("r_tok", session_id="s_tok")
    world.start_run("r_fine")
    await world.finished("r_fine")
    await world.until(lambda: hosted.handled(0))
    assert [letter.offset for letter in dead_letters(world.log, TOPICS.dead_letters)] == [0]
    assert hosted.host.owners[0].waiting_commands == 0
