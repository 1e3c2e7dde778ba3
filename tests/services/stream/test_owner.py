"""One partition in the hands of a process: commands in order for each key, results, and what a claim remembers."""

from collections.abc import Callable

import pytest

from connectors.errors import Transient
from connectors.protocols import Outgoing
from schemas.codec import local_codec
from schemas.run_events import InputReceived, ModelCallFailed, RunCancelled, RunStarted
from schemas.stream_events import Claim
from services.stream import owner as owner_module
from services.stream.take_over import CLAIM_KEY
from tests.services.stream.judge import dead_letters
from tests.services.stream.outside import TOPICS
from tests.services.stream.test_host import gate
from tests.services.stream.world import World

Worlds = Callable[..., World]


async def test_a_claim_says_who_took_the_partition_why_and_what_term_it_saw(world_of: Worlds) -> None:
    world = world_of(turns=1)
    first = world.host("a")
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(first.settled)
    await first.host.checkpoint(first.host.owners[0])
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    records = [record for record in world.log.records[TOPICS.events, 0] if record.key == CLAIM_KEY]
    found = [local_codec().decode(record.value or b"") for record in records]
    assert [decoded.record for decoded in found] == [
        Claim(owner="a", reason="assigned"),
        Claim(owner="b", reason="assigned"),
    ]
    assert [decoded.envelope.term for decoded in found if decoded.envelope] == [-1, 0]
    assert [decoded.envelope.seq for decoded in found if decoded.envelope] == [0, 0]


async def test_commands_of_one_key_are_handled_in_order_behind_one_that_waits(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.index.limits[0] = -1
    world.start_run("r_tok", session_id="")
    await world.until(lambda: hosted.work.calls.under_way == 1)
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
    reached = world.index.reached

    async def away(partition: int) -> int:
        if refusals:
            raise refusals.pop()
        return await reached(partition)

    world.index.reached = away  # type: ignore[method-assign]  # the fault is asked for
    world.start_run("r_tok", session_id="s_tok")
    story = await world.finished("r_tok")
    assert story.runs["r_tok"].events[0].code == "not_found"
    assert dead_letters(world.log, TOPICS.dead_letters) == []
    assert hosted.host.figures.refused_records == 0


async def test_a_look_up_that_crashes_parks_its_command_alone(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()

    async def broken(partition: int) -> int:
        raise ZeroDivisionError("a bug")

    world.index.reached = broken  # type: ignore[method-assign]  # the fault is asked for
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


async def test_a_result_for_a_run_that_is_over_or_unknown_changes_nothing(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_x")
    await world.finished("r_x")
    await world.until(hosted.settled)
    before = len(world.log.records[TOPICS.events, 0])
    hosted.host.result(0, "r_x", "t", object())
    hosted.host.result(0, "r_never", "t", object())
    assert not hosted.host.result(7, "r_elsewhere", "t", object())
    await world.ticks(10)
    assert len(world.log.records[TOPICS.events, 0]) == before
    assert hosted.host.figures.quarantined == 0


async def test_results_that_waited_for_a_claim_are_handed_over_when_the_partition_goes(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_module, "HANDOVER_GRACE_S", 3_600.0)
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.calls.under_way == 1)
    hosted.wire.open.clear()
    hosted.host._lost(hosted.host.owners[0], "unknown_outcome")
    opened.set()
    await world.until(lambda: hosted.work.calls.under_way == 0)
    hosted.reassign()
    await world.until(lambda: not hosted.host.owners)
    hosted.wire.open.set()
    hosted.reassign(0)
    story = await world.finished("r_x")
    assert not any(isinstance(event, ModelCallFailed) for event in story.runs["r_x"].events)
    assert set(world.begun.values()) == {1}


async def test_figures_tell_what_happened(world_of: Worlds) -> None:
    world = world_of(turns=1)
    hosted = world.host()
    world.start_run("r_x")
    world.log.put(TOPICS.commands, 0, [Outgoing(key=b"k", value=b"garbage")])
    await world.finished("r_x")
    await world.until(lambda: hosted.handled(1))
    figures = hosted.host.figures
    assert (figures.claims, figures.commands, figures.refused_records, figures.fenced) == (1, 2, 1, 0)
    assert figures.take_over_s.total == 1
