from tests.benchmarks.filling import CHUNK_S, next_chunk_s


def test_the_last_chunk_is_as_long_as_what_is_missing_needs():
    assert next_chunk_s(12_000, 100.0) == 10.0


def test_a_chunk_is_bounded_whatever_is_missing_and_however_slow_it_was():
    assert next_chunk_s(1_000_000, 10.0) == CHUNK_S
    assert next_chunk_s(1, 1_000.0) == 0.5
    assert next_chunk_s(100, 0.0) <= CHUNK_S
