import pytest

from tests.benchmarks.smoke_verdict import FALLEN, Pair, better, expected, falls, ratio_of, ratios


def pairs(row: str, *each: tuple[float, float]) -> list[Pair]:
    return [Pair(row=row, ours=ours, floor=floor) for ours, floor in each]


def test_the_ratio_is_the_median_of_the_pairs_so_one_disturbed_moment_changes_nothing():
    quiet = ratio_of(pairs("topic:1", *[(50, 200)] * 9))
    disturbed = ratio_of(pairs("topic:1", *[(50, 200)] * 7, (1, 200), (50, 20)))
    assert quiet.ratio == disturbed.ratio == 0.25


def test_a_machine_that_becomes_slower_for_both_changes_nothing():
    measured = ratios(pairs("topic:1", (50, 200), (25, 100), (10, 40)))
    assert falls(measured, {"topic:1": 0.25}) == []


def test_a_delay_that_halves_ours_fails_and_is_told_with_both_figures():
    measured = ratios(pairs("topic:1", (25, 200), (13, 100), (12, 100)))
    (fall,) = falls(measured, {"topic:1": 0.25})
    assert "topic:1" in str(fall)
    assert "0.125" in str(fall)
    assert "0.250" in str(fall)


@pytest.mark.parametrize(("share", "fails"), [(FALLEN + 0.01, False), (FALLEN - 0.01, True), (1.5, False)])
def test_the_gate_fails_when_a_third_is_lost_and_not_before(share, fails):
    measured = ratios(pairs("http:16", (100 * share, 400)))
    assert bool(falls(measured, {"http:16": 0.25})) is fails


@pytest.mark.parametrize(("now_ms", "share"), [(10.0, 1.0), (8.0, 1.0), (12.5, 0.8), (15.0, 2 / 3), (50.0, 0.5)])
def test_less_is_expected_where_python_is_slower_and_never_more(now_ms, share):
    assert expected({"http:16": 0.3}, 10.0, now_ms) == pytest.approx({"http:16": 0.3 * share})


def test_of_one_in_flight_the_same_is_expected_everywhere():
    assert expected({"topic:1": 0.3}, 10.0, 20.0) == {"topic:1": 0.3}


def test_one_row_that_falls_is_enough():
    measured = ratios([*pairs("topic:1", (50, 200)), *pairs("http:16", (10, 200))])
    assert [fall.row for fall in falls(measured, {"topic:1": 0.25, "http:16": 0.25})] == ["http:16"]


def test_a_row_that_was_not_measured_has_fallen():
    assert [fall.row for fall in falls({}, {"topic:1": 0.25})] == ["topic:1"]


def test_a_side_on_which_nothing_ended_counts_as_nothing_and_does_not_divide():
    assert ratio_of(pairs("topic:1", (50, 0))).ratio == 0
    assert ratio_of(pairs("topic:1", (0, 50))).ratio == 0


def test_the_middle_half_of_the_pairs_is_told():
    one = ratio_of(pairs("topic:1", *[(n, 100) for n in range(1, 9)]))
    assert (one.low, one.high) == (0.03, 0.07)
    assert one.pairs == 8


def test_the_better_of_two_measurements_judges_a_row():
    first = ratios([*pairs("topic:1", (10, 100)), *pairs("http:16", (30, 100))])
    second = ratios(pairs("topic:1", (25, 100)))
    judged = better(first, second)
    assert (judged["topic:1"].ratio, judged["http:16"].ratio) == (0.25, 0.30)
    assert better(second, first)["topic:1"].ratio == 0.25
