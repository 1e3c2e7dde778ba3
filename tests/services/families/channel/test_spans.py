"""Spans: what is known of many messages."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from loomlog.services.families.channel.cursor import next_ns
from loomlog.services.families.channel.spans import (
    CYCLE,
    SPANS_MAX,
    Span,
    Spans,
    position_of,
    with_message,
    without_expired,
    without_first,
)

START_MS = 1_700_000_000_000


def filled(count: int, ttl_ms: int, *, every_ms: int = 1) -> tuple[Spans, list[int]]:
    spans: Spans = ()
    times, last_ns = [0], 0
    for position in range(1, count + 1):
        at_ms = START_MS + position * every_ms
        last_ns = next_ns(at_ms, position, last_ns)
        times.append(last_ns)
        spans = with_message(spans, 1, position, last_ns, at_ms + ttl_ms)
    return spans, times


def test_there_are_few_spans_of_about_the_same_size() -> None:
    spans, _ = filled(20_000, 5_000)
    assert len(spans) <= SPANS_MAX
    ends = [0, *(span.last_position for span in spans)]
    assert ends[-1] == 20_000
    assert max(after - before for before, after in pairwise(ends)) <= 20_000 // 16


def test_few_messages_expire_one_by_one() -> None:
    spans, _ = filled(32, 5_000, every_ms=10)
    for position in range(1, 33):
        left = without_expired(spans, START_MS + position * 10 + 5_000)
        assert len(left) == 32 - position


def test_what_has_expired_is_known_up_to_a_sixteenth() -> None:
    spans, _ = filled(20_000, 5_000)
    for expired in (1_000, 10_000, 19_000):
        left = without_expired(spans, START_MS + expired + 5_000)
        first = spans[len(spans) - len(left) - 1].last_position + 1 if len(left) < len(spans) else 1
        assert expired - 20_000 // 16 <= first <= expired + 1
    assert without_expired(spans, START_MS + 25_000) == ()


@given(st.integers(1, 3_000), st.sampled_from((0, 1, 40)))
def test_positions_follow_from_times(count: int, every_ms: int) -> None:
    spans, times = filled(count, 10_000, every_ms=every_ms)
    for position in range(1, count + 1, max(1, count // 100)):
        assert position_of(spans, 1, times[-1], times[position]) == position
    first = count // 2 + 1
    left = without_first(spans, first)
    for position in range(1, count + 1, max(1, count // 100)):
        assert position_of(left, first, times[-1], times[position]) == position


def test_positions_in_a_span_of_millions_are_estimated_by_time() -> None:
    """Messages came at an even rate: three million in three million milliseconds."""
    count = 3 * CYCLE
    first_ns = next_ns(START_MS, 1, 0)
    spans: Spans = (Span(count, START_MS, first_ns),)
    last_ns = next_ns(START_MS + count - 1, count, 0)
    for position in (1, 400_000, CYCLE, CYCLE + 7, 2 * CYCLE + 499_000, count):
        at_ns = next_ns(START_MS + position - 1, position, 0)
        assert position_of(spans, 1, last_ns, at_ns) == position
