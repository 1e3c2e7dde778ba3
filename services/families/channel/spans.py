"""The visible messages of a queue in few spans: until when they live, and when they became visible.

A queue has any number of messages, and its state a span for each 1/32 of them: enough to know which of the oldest have
expired, how many are left, and which position a cursor has. Up to 32 messages each has a span of its own, so all of
this is exact; later expired messages of a span are counted until its last one has expired.

Before: state.py. After: the schemas.
"""

from typing import NamedTuple

from loomlog.services.families.channel.cursor import NS_PER_MS

SPANS_MAX = 64
SHARE = 32
"""A new span begins when the last one has this part of all messages."""
CYCLE = NS_PER_MS
"""Times repeat the same number below the millisecond after so many messages."""
WIDTH_MAX = CYCLE // 2
"""Most messages of a span while the queue has fewer than SPANS_MAX times as many: positions of cursors are exact."""


class Span(NamedTuple):
    """Messages with consecutive positions; they begin after those of the span before."""

    last_position: int
    expires_at_ms: int
    """When the last of them to expire does, UTC milliseconds."""
    first_visible_ns: int
    """Time of the first of them."""


Spans = tuple[Span, ...]


def with_message(spans: Spans, first_position: int, position: int, visible_ns: int, expires_at_ms: int) -> Spans:
    """Return the spans with a further message at the end."""
    if spans:
        last = spans[-1]
        before = spans[-2].last_position if len(spans) > 1 else first_position - 1
        if last.last_position - before < min((position - first_position) // SHARE, WIDTH_MAX):
            expires_at_ms = max(last.expires_at_ms, expires_at_ms)
            return (*spans[:-1], Span(position, expires_at_ms, last.first_visible_ns))
    spans = (*spans, Span(position, expires_at_ms, visible_ns))
    return spans if len(spans) <= SPANS_MAX else _with_fewer(spans, first_position)


def _with_fewer(spans: Spans, first_position: int) -> Spans:
    """Return the spans with those two neighbours as one that have the fewest messages together."""
    starts = (first_position - 1, *(span.last_position for span in spans))
    index = min(range(len(spans) - 1), key=lambda one: starts[one + 2] - starts[one])
    first, second = spans[index], spans[index + 1]
    expires_at_ms = max(first.expires_at_ms, second.expires_at_ms)
    merged = Span(second.last_position, expires_at_ms, first.first_visible_ns)
    return (*spans[:index], merged, *spans[index + 2 :])


def without_expired(spans: Spans, at_ms: int) -> Spans:
    """Return the spans without the oldest ones all of whose messages have expired."""
    index = 0
    while index < len(spans) and spans[index].expires_at_ms <= at_ms:
        index += 1
    return spans[index:] if index else spans


def without_first(spans: Spans, first_position: int) -> Spans:
    """Return the spans without those whose messages are all before a position."""
    index = 0
    while index < len(spans) and spans[index].last_position < first_position:
        index += 1
    return spans[index:] if index else spans


def position_of(spans: Spans, first_position: int, last_visible_ns: int, visible_ns: int) -> int:
    """Return the position of the message that became visible at that time; below 1: there is none.

    Of messages that are not kept any more, only the newest million have a position of their own.
    """
    index = len(spans) - 1
    while index >= 0 and spans[index].first_visible_ns > visible_ns:
        index -= 1
    if index < 0:
        return _at_most(first_position - 1, visible_ns)
    span = spans[index]
    before = spans[index - 1].last_position if index else first_position - 1
    width = span.last_position - before
    if width <= CYCLE:
        return _at_most(span.last_position, visible_ns)
    until_ns = spans[index + 1].first_visible_ns if index + 1 < len(spans) else last_visible_ns + 1
    passed_ns = visible_ns - span.first_visible_ns
    estimate = before + 1 + width * passed_ns // max(until_ns - span.first_visible_ns, 1)
    return _at_most(min(estimate + CYCLE // 2, span.last_position), visible_ns)


def _at_most(position: int, visible_ns: int) -> int:
    """Return the last position up to that one whose times have the same number below the millisecond."""
    return position - (position - visible_ns) % CYCLE
