"""Whether a clock is believed, and which time goes on while it is not."""

import pytest

from loomlog.services.core.clock import OFFSET_MAX_MS, ROUND_TRIP_MAX_S, ClockCheck, measured

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def check(offset_ms: int = 0, *, round_trip_s: float = 0.002, before: ClockCheck | None = None) -> ClockCheck:
    """A measurement that ends at 100 s of the monotonic clock, when the clock is NOW_MS."""
    began_s = 100.0 - round_trip_s
    broker_ms = NOW_MS - offset_ms - int(round_trip_s * 500)
    return measured(before or ClockCheck(), broker_ms, began_s, 100.0, NOW_MS)


def test_nothing_is_believed_before_a_measurement() -> None:
    assert not ClockCheck().is_believed(NOW_MS, 100.0)
    assert ClockCheck().now_ms(NOW_MS, 100.0) == NOW_MS
    assert ClockCheck().offset_ms(NOW_MS, 100.0) == 0


@pytest.mark.parametrize(
    ("offset_ms", "round_trip_s", "expected"),
    [
        (0, 0.002, True),
        (OFFSET_MAX_MS, 0.0, True),
        (-OFFSET_MAX_MS, 0.0, True),
        (OFFSET_MAX_MS + 2, 0.002, False),
        (-OFFSET_MAX_MS - 2, 0.002, False),
        (OFFSET_MAX_MS + 900, 2.0, True),
        (OFFSET_MAX_MS + 1_100, 2.0, False),
        (DAY_MS, 0.002, False),
        (-3_600_000, 0.002, False),
    ],
)
def test_a_clock_is_believed_within_a_minute_and_half_of_the_round_trip(
    offset_ms: int, round_trip_s: float, expected: bool
) -> None:
    one = check(offset_ms, round_trip_s=round_trip_s)
    assert one.is_believed(NOW_MS, 100.0) is expected
    assert one.offset_ms(NOW_MS, 100.0) == pytest.approx(offset_ms, abs=1)


def test_the_last_measurement_and_the_monotonic_clock_hold_without_another() -> None:
    one = check()
    assert one.is_believed(NOW_MS + DAY_MS, 100.0 + 86_400)
    assert one.now_ms(NOW_MS + DAY_MS, 100.0 + 86_400) == NOW_MS + DAY_MS


@pytest.mark.parametrize("jump_ms", [DAY_MS, -3_600_000, OFFSET_MAX_MS + 100, -OFFSET_MAX_MS - 100])
def test_a_jump_is_noticed_at_once_and_time_goes_on_without_it(jump_ms: int) -> None:
    one = check()
    assert not one.is_believed(NOW_MS + 5_000 + jump_ms, 105.0)
    assert one.now_ms(NOW_MS + 5_000 + jump_ms, 105.0) == NOW_MS + 5_000


def test_a_clock_that_differs_less_is_believed_as_it_is() -> None:
    one = check(30_000)
    assert one.now_ms(NOW_MS + 1_000, 101.0) == NOW_MS + 1_000
    assert not one.is_believed(NOW_MS + 32_000, 101.0), "31 s more are more than a minute"
    assert one.now_ms(NOW_MS + 32_000, 101.0) == NOW_MS + 1_000


def test_a_broker_that_jumps_does_not_take_the_time_along() -> None:
    one = check(-DAY_MS, before=check())
    assert not one.is_believed(NOW_MS, 100.0)
    assert one.now_ms(NOW_MS + 7_000, 107.0) == NOW_MS + 7_000


def test_a_clock_that_was_never_right_is_not_corrected() -> None:
    assert check(DAY_MS).now_ms(NOW_MS, 100.0) == NOW_MS


def test_a_slow_measurement_changes_nothing() -> None:
    before = check()
    slow_s = ROUND_TRIP_MAX_S + 0.1
    assert measured(before, NOW_MS + DAY_MS, 200.0, 200.0 + slow_s, NOW_MS) == before
