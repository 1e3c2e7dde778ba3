"""The filter that keeps a log readable."""

import logging

from services.insights.quiet import LINES_PER_MINUTE, PERIOD_S, FewOfAKind


def line(message: str = "node %d is away", *values: object, logger: str = "aiokafka") -> logging.LogRecord:
    return logging.LogRecord(logger, logging.ERROR, __file__, 1, message, values, None)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_few_lines_of_a_kind_pass_whatever_their_values() -> None:
    few = FewOfAKind(Clock())
    passed = [few.filter(line("node %d is away", n)) for n in range(LINES_PER_MINUTE + 2)]
    assert passed == [True] * LINES_PER_MINUTE + [False, False]


def test_another_kind_and_another_logger_pass() -> None:
    few = FewOfAKind(Clock())
    for _ in range(LINES_PER_MINUTE):
        few.filter(line("a"))
    assert not few.filter(line("a"))
    assert few.filter(line("b"))
    assert few.filter(line("a", logger="faust"))


def test_the_next_line_after_a_while_says_how_many_were_left_out() -> None:
    clock = Clock()
    few = FewOfAKind(clock)
    for _ in range(LINES_PER_MINUTE + 4):
        few.filter(line("node %d is away", 1))
    clock.now = PERIOD_S
    late = line("node %d is away", 2)
    assert few.filter(late)
    assert late.getMessage() == "node 2 is away (4 lines like this were left out)"


def test_kinds_without_end_do_not_fill_the_memory() -> None:
    few = FewOfAKind(Clock())
    for number in range(5_000):
        assert few.filter(line(f"kind {number}"))
    assert len(few._kinds) <= 1_000
