from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.stream.partition.command_offsets import CommandProgress


def test_the_mark_moves_over_what_is_contiguous() -> None:
    progress = CommandProgress()
    progress.mark_handled(0)
    progress.mark_handled(2)
    assert (progress.low, progress.above) == (1, (2,))
    progress.mark_handled(1)
    assert (progress.low, progress.above) == (3, ())


def test_what_is_below_the_mark_is_handled_and_stays_so() -> None:
    progress = CommandProgress(5)
    progress.mark_handled(3)
    assert (progress.low, progress.above) == (5, ())
    assert progress.is_handled(4)
    assert not progress.is_handled(5)


def test_it_goes_on_from_a_checkpoint() -> None:
    progress = CommandProgress(5, (6, 8))
    progress.mark_handled(5)
    assert (progress.low, progress.above) == (7, (8,))


@given(st.integers(min_value=0, max_value=5), st.lists(st.integers(min_value=0, max_value=20), max_size=30))
def test_exactly_what_was_told_is_handled_in_whatever_order(low: int, offsets: list[int]) -> None:
    progress = CommandProgress(low)
    for offset in offsets:
        progress.mark_handled(offset)
    for offset in range(25):
        assert progress.is_handled(offset) == (offset < low or offset in offsets)
    assert not progress.is_handled(progress.low)
    copied = CommandProgress(progress.low, progress.above)
    assert [copied.is_handled(offset) for offset in range(25)] == [progress.is_handled(offset) for offset in range(25)]
