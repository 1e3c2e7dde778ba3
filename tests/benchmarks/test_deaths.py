from tests.benchmarks.deaths import longest_stalls


def test_a_stall_is_between_two_ends_after_a_kill() -> None:
    assert longest_stalls([10.0, 20.0], [9.0, 10.5, 12.5, 19.5, 20.5], until=22.0) == [7.0, 1.5]


def test_nothing_that_ends_is_a_stall_until_the_next_kill() -> None:
    assert longest_stalls([10.0, 14.0], [], until=20.0) == [4.0, 6.0]
