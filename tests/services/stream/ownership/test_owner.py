"""One partition in the hands of a process: what a claim says and remembers, and results that come late."""

from collections.abc import Callable

import pytest

from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.run_events import ModelCallFailed
from loomlog.schemas.generated.stream_events import Claim
from loomlog.services.stream.ownership import leadership
from loomlog.services.stream.ownership.takeover import CLAIM_KEY
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
    await first.host.checkpoints.make(first.host.owners[0])
    await first.kill()
    second = world.host("b")
    await world.until(second.partition)
    records = [record for record in world.log.records[TOPICS.events, 0] if record.key == CLAIM_KEY]
    actual = [local_codec().decode(record.value or b"") for record in records]
    assert [decoded.record for decoded in actual] == [
        Claim(owner="a", reason="assigned"),
        Claim(owner="b", reason="assigned"),
    ]
    assert [decoded.envelope.term for decoded in actual if decoded.envelope] == [-1, 0]
    assert [decoded.envelope.seq for decoded in actual if decoded.envelope] == [0, 0]


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
    assert hosted.host.metrics.quarantined == 0


async def test_results_that_waited_for_a_claim_are_handed_over_when_the_partition_goes(
    world_of: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "HANDOVER_GRACE_S", 3_600.0)
    world = world_of(turns=1)
    hosted = world.host()
    opened = gate(world)
    world.start_run("r_x")
    await world.until(lambda: hosted.work.effect_runner.running_count == 1)
    hosted.wire.open.clear()
    hosted.host.ownership.lost(hosted.host.owners[0], "unknown_outcome")
    opened.set()
    await world.until(lambda: hosted.work.effect_runner.running_count == 0)
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
    world.log.put(TOPICS.commands, 0, [ProducerRecord(key=b"k", value=b"garbage")])
    await world.finished("r_x")
    await world.until(lambda: hosted.handled(1))
    figures = hosted.host.metrics
    assert (figures.claims, figures.commands, figures.refused_records, figures.fenced) == (1, 2, 1, 0)
    assert figures.takeover_s.total == 1
