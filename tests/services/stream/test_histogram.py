from loomlog.services.stream.histogram import CALL_SECONDS, RECORDS, SECONDS, Histogram


def test_a_value_counts_under_the_first_bound_that_is_not_below_it() -> None:
    distribution = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 99.0):
        distribution.observe(value)
    assert distribution.counts == [2, 2, 1]
    assert distribution.sum == 103.5
    assert distribution.total == 5


def test_bounds_are_in_order() -> None:
    for bounds in (SECONDS, CALL_SECONDS, RECORDS):
        assert list(bounds) == sorted(set(bounds))
