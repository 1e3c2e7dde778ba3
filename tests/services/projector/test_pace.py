"""Rests of the projector."""

import pytest

from loomlog.services.projector.pace import REST, REST_MAX_BUSY_S, REST_MAX_S, Pace


def rests(polls: list[tuple[float, int]], *, took_s: float) -> list[float]:
    """The rest after each poll: when its transaction ended, and its records."""
    pace = Pace()
    return [pace.rest_s(records, at_s - took_s, at_s) for at_s, records in polls]


def test_a_short_transaction_is_followed_by_a_short_rest() -> None:
    assert rests([(10.0, 1)], took_s=0.001) == [pytest.approx(REST * 0.001)]


def test_without_load_rests_are_short() -> None:
    assert rests([(10.0, 1)], took_s=0.02) == [REST_MAX_S]


def test_a_burst_is_no_load() -> None:
    """100 runs per second in bursts: 60 records within 5 ms, and again after 45."""
    polls = [(10.0 + burst * 0.05 + late, 30) for burst in range(100) for late in (0.0, 0.005)]
    assert set(rests(polls, took_s=0.02)) == {REST_MAX_S}


def test_under_load_rests_last_a_tenth_of_a_second() -> None:
    polls = [(10.0 + number * 0.05, 200) for number in range(60)]
    all_rests = rests(polls, took_s=0.04)
    assert all_rests[0] == REST_MAX_S, "one poll is no load"
    assert set(all_rests[30:]) == {REST_MAX_BUSY_S}


def test_rests_become_longer_with_the_load() -> None:
    last = [
        rests([(10.0 + n * 0.02, rate // 50) for n in range(200)], took_s=0.04)[-1] for rate in (1_000, 1_500, 2_000)
    ]
    assert last[0] == REST_MAX_S
    assert REST_MAX_S < last[1] < last[2] < REST_MAX_BUSY_S


def test_the_longest_rest_without_load_is_an_option() -> None:
    assert Pace(0.03).rest_s(1, 10.0, 10.02) == pytest.approx(0.03)


def test_rests_are_short_again_after_the_load() -> None:
    polls = [(10.0 + number * 0.05, 200) for number in range(60)]
    assert rests([*polls, (18.0, 5)], took_s=0.04)[-1] == REST_MAX_S
