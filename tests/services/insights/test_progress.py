"""Positions: where to start, which records to dead-letter, which offsets to commit."""

import pytest

from loomlog.services.insights.progress import PartitionStart, ReadProgress, start_offset


@pytest.mark.parametrize(
    ("since", "committed", "begins"),
    [
        (50, 80, 50),  # the history begins before the commit: read it again
        (50, 20, 20),  # down for longer than the history: skip nothing undone
        (None, 80, 80),  # no record is as young as the history
        (None, None, 10),  # never read: the whole topic
        (50, None, 10),
        (50, 5, 10),  # retention has deleted the committed offset
        (None, 500, 100),  # the topic was created again under an old group
    ],
)
def test_reading_begins_at_the_history_and_skips_nothing_undone(
    since: int | None, committed: int | None, begins: int
) -> None:
    assert start_offset(since=since, committed=committed, beginning=10, end=100) == begins


def started_progress() -> ReadProgress:
    progress = ReadProgress()
    progress.begin(
        {0: PartitionStart(offset=5, committed=8, end=10), 1: PartitionStart(offset=0, committed=None, end=0)}
    )
    return progress


def test_records_processed_before_the_restart_are_not_new() -> None:
    progress = started_progress()
    assert [progress.is_new(0, offset) for offset in (7, 8)] == [False, True]
    assert progress.is_new(1, 0)


def test_only_offsets_above_the_last_commit_are_committed() -> None:
    progress = started_progress()
    progress.mark_done(0, 6)
    assert progress.offsets_to_commit() == {}
    progress.mark_done(0, 8)
    progress.mark_done(1, 0)
    assert progress.offsets_to_commit() == {0: 9, 1: 1}
    progress.mark_committed({0: 9, 1: 1})
    assert progress.offsets_to_commit() == {}


def test_a_revoked_partition_is_ignored() -> None:
    progress = started_progress()
    progress.begin({1: PartitionStart(offset=0, committed=None, end=0)})
    progress.mark_done(0, 50)
    progress.mark_committed({0: 50})
    assert progress.partitions == {1}
    assert progress.offsets_to_commit() == {}


def test_the_windows_are_whole_once_the_initial_end_is_passed() -> None:
    progress = ReadProgress()
    assert not progress.is_whole
    progress = started_progress()
    assert not progress.is_whole
    progress.mark_done(0, 9)
    assert progress.is_whole


def test_lag_counts_the_partitions_that_are_read() -> None:
    progress = started_progress()
    progress.mark_done(0, 9)
    assert progress.lag({0: 15, 1: 3, 2: 99}) == 5 + 3


def test_a_position_never_goes_back_and_grows_with_every_record() -> None:
    progress = started_progress()
    before = progress.position
    progress.mark_done(0, 9)
    progress.mark_done(0, 7)
    assert progress.position == before + 5
