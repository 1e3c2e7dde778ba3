"""The clock of a process against a broker in this test: what is measured when, and what is said of it."""

import asyncio
import logging

import pytest

from loomlog.connectors.errors import Transient
from loomlog.services.runtime import clock
from loomlog.services.runtime.clock import MEASURE_EVERY_S, CheckedClock
from tests.sleeps import noted_sleeps
from tests.waiting import until

NOW_MS = 1_800_000_000_000
DAY_S = 86_400


class World:
    """A broker and a computer with a clock each, at the same true time; the offsets are in seconds."""

    def __init__(self) -> None:
        self.true_s = 1_000.0
        self.clock_offset_s = 0.0
        self.broker_offset_s = 0.0
        self.is_away = False
        self.measurements = 0
        self.clock = CheckedClock(
            self.read_broker_time,
            read_clock_ms=lambda: self.ms(self.clock_offset_s),
            monotonic_s=lambda: self.true_s,
        )

    def ms(self, offset_s: float) -> int:
        return NOW_MS + int((self.true_s + offset_s) * 1000)

    async def read_broker_time(self) -> int:
        self.measurements += 1
        if self.is_away:
            raise Transient("the broker is away", kind="unavailable")
        self.true_s += 0.001
        stamp = self.ms(self.broker_offset_s)
        self.true_s += 0.001
        return stamp


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> World:
    monkeypatch.setattr(clock, "LOOK_EVERY_S", 0.001)
    caplog.set_level(logging.WARNING, logger="loomlog.runtime")
    return World()


async def test_a_right_clock_is_believed_from_the_first_measurement_without_a_word(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert not world.clock.is_believed
    assert world.clock.problem
    await world.clock.measure()
    assert (world.clock.is_believed, world.clock.problem, caplog.messages) == (True, "", [])
    assert world.clock.now_ms() == world.ms(0)
    assert abs(world.clock.offset_s) < 0.01


@pytest.mark.parametrize(("offset_s", "direction"), [(DAY_S, "ahead of"), (-DAY_S, "behind")])
async def test_a_wrong_clock_is_said_once_and_again_when_it_is_right(
    world: World, caplog: pytest.LogCaptureFixture, offset_s: float, direction: str
) -> None:
    world.clock_offset_s = offset_s
    for _ in range(3):
        await world.clock.measure()
    expected = f"the clock of this process is 86,400 s {direction} the broker's"
    assert not world.clock.is_believed
    assert [message[: len(expected)] for message in caplog.messages] == [expected]
    assert world.clock.offset_s == pytest.approx(offset_s, abs=0.01)
    world.clock_offset_s = 0.0
    await world.clock.measure()
    await world.clock.measure()
    assert world.clock.is_believed
    assert [message for message in caplog.messages[1:] if "agrees with the broker's again" in message] == [
        caplog.messages[-1]
    ]
    assert len(caplog.messages) == 2


async def test_without_an_answer_nothing_is_believed_first_and_the_reason_is_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.is_away = True
    for _ in range(3):
        await world.clock.measure()
    assert not world.clock.is_believed
    (message,) = caplog.messages
    assert "could not be compared with the broker's: the broker is away" in message
    world.is_away = False
    await world.clock.measure()
    assert world.clock.is_believed


async def test_without_an_answer_the_last_measurement_holds(world: World) -> None:
    await world.clock.measure()
    world.is_away, world.true_s = True, world.true_s + 3_600
    await world.clock.measure()
    assert world.clock.is_believed
    world.clock_offset_s = DAY_S
    await world.clock.measure()
    assert not world.clock.is_believed, "it was set since"


async def test_a_clock_that_was_set_gives_no_wrong_time_and_is_measured_at_once(world: World) -> None:
    await world.clock.measure()
    task = asyncio.create_task(world.clock.run())
    try:
        world.clock_offset_s = DAY_S
        assert world.clock.now_ms() == pytest.approx(world.ms(0), abs=10)
        await until(lambda: not world.clock.is_believed)
        assert world.measurements == 2
        world.clock_offset_s = 0
        await until(lambda: world.clock.is_believed)
        assert world.measurements == 3
    finally:
        task.cancel()


async def test_a_computer_that_was_suspended_is_believed_again_by_the_next_measurement(world: World) -> None:
    await world.clock.measure()
    world.clock_offset_s = world.broker_offset_s = 3_600  # the monotonic clock stood still
    task = asyncio.create_task(world.clock.run())
    try:
        await until(lambda: world.measurements == 2 and world.clock.now_ms() == world.ms(3_600))
        assert world.clock.is_believed
    finally:
        task.cancel()


async def test_it_is_measured_every_few_seconds_and_not_more_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    noted_sleeps(monkeypatch, clock.__name__, looks.append)
    await world.clock.measure()
    task = asyncio.create_task(world.clock.run())

    async def look() -> None:
        looks.clear()
        await until(lambda: len(looks) > 5)

    try:
        world.true_s += MEASURE_EVERY_S - 0.5
        await look()
        assert world.measurements == 1
        world.true_s += 1.0
        await look()
        assert world.measurements == 2
    finally:
        task.cancel()
