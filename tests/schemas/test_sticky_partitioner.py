from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.ids import ALPHABET, ID_PATTERN, TOKEN_CHARACTERS, fresh_token
from loomlog.schemas.sticky_partitioner import STICKY_MS, STICKY_RUNS, StickyPartitioner

NOW_MS = 1_800_000_000_000


def fresh(number: int, at_ms: int = NOW_MS) -> str:
    return fresh_token(at_ms, (number * 2_654_435_761).to_bytes(10, "big"))


def places(placer: StickyPartitioner, partitions: int, times_ms: list[int]) -> list[int]:
    tokens = [placer.assign_partition(fresh(number, at_ms), at_ms) for number, at_ms in enumerate(times_ms)]
    return [partition_of(token.encode(), partitions) for token in tokens]


def test_runs_that_begin_together_lie_in_one_partition() -> None:
    assert len(set(places(StickyPartitioner(8), 8, [NOW_MS + at for at in range(0, STICKY_MS, 4)]))) == 1


def test_the_first_partition_is_a_matter_of_chance() -> None:
    firsts = [
        partition_of(StickyPartitioner(4).assign_partition(fresh(number), NOW_MS).encode(), 4) for number in range(50)
    ]
    assert firsts == [partition_of(fresh(number).encode(), 4) for number in range(50)]
    assert set(firsts) == {0, 1, 2, 3}


def test_after_its_time_a_partition_gives_way_to_the_next() -> None:
    first, second, third = places(StickyPartitioner(4), 4, [NOW_MS, NOW_MS + STICKY_MS, NOW_MS + 2 * STICKY_MS])
    assert (second, third) == ((first + 1) % 4, (first + 2) % 4)


def test_a_crowd_is_spread_evenly_however_quickly_it_comes() -> None:
    counted = Counter(places(StickyPartitioner(4), 4, [NOW_MS] * 8 * STICKY_RUNS))
    assert counted == dict.fromkeys(range(4), 2 * STICKY_RUNS)


def test_runs_that_come_one_by_one_take_every_partition_in_turn() -> None:
    counted = Counter(places(StickyPartitioner(3), 3, [NOW_MS + number * 5_000 for number in range(30)]))
    assert counted == {0: 10, 1: 10, 2: 10}


def test_a_clock_that_is_set_back_does_not_hold_a_partition() -> None:
    first, second = places(StickyPartitioner(4), 4, [NOW_MS, NOW_MS - 3_600_000])
    assert second == (first + 1) % 4


@given(st.binary(min_size=10, max_size=10), st.integers(1, 1_024))
def test_a_placed_token_is_a_token_of_the_same_moment(drawn: bytes, partitions: int) -> None:
    token = fresh_token(NOW_MS, drawn)
    placer = StickyPartitioner(partitions)
    placer.assign_partition(fresh(1), NOW_MS)
    placed = placer.assign_partition(token, NOW_MS)
    assert placed[:-2] == token[:-2]
    assert len(placed) == TOKEN_CHARACTERS
    assert ID_PATTERN.match(placed)
    assert set(placed) <= set(ALPHABET)


def test_with_hundreds_of_partitions_a_token_may_stay_where_it_fell() -> None:
    tokens = [fresh(number) for number in range(200)]
    placer = StickyPartitioner(1_024)
    placed = [placer.assign_partition(token, NOW_MS) for token in tokens]
    assert any(was == now for was, now in zip(tokens[1:], placed[1:], strict=True))
    assert len(set(placed)) == len(tokens)


def test_equal_moments_do_not_make_equal_tokens() -> None:
    placer = StickyPartitioner(4)
    placed = [placer.assign_partition(fresh(number), NOW_MS) for number in range(2_000)]
    assert len(set(placed)) == len(placed)


def test_without_a_partition_there_is_no_place() -> None:
    with pytest.raises(ValueError, match="partitions: 0, expected at least 1"):
        StickyPartitioner(0)
