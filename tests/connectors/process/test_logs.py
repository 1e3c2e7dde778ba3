"""What keeps a log readable."""

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from loomlog.connectors.process import logs
from loomlog.connectors.process.logs import (
    LIBRARIES,
    LINES_PER_MINUTE,
    RATE_LIMIT_PERIOD_S,
    JsonLineFormatter,
    RateLimitFilter,
    about,
)

SERVICES = Path(__file__).parents[3] / "services"
RUN_ID = re.compile(r"\b\w*run_id\b")


def line(message: str = "node %d is away", *values: object, logger: str = "aiokafka") -> logging.LogRecord:
    return logging.LogRecord(logger, logging.ERROR, __file__, 1, message, values, None)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_few_lines_of_a_kind_pass_whatever_their_values() -> None:
    few = RateLimitFilter(Clock())
    passed = [few.filter(line("node %d is away", n)) for n in range(LINES_PER_MINUTE + 2)]
    assert passed == [True] * LINES_PER_MINUTE + [False, False]


def test_another_kind_and_another_logger_pass() -> None:
    few = RateLimitFilter(Clock())
    for _ in range(LINES_PER_MINUTE):
        few.filter(line("a"))
    assert not few.filter(line("a"))
    assert few.filter(line("b"))
    assert few.filter(line("a", logger="faust"))


def test_a_line_carries_the_run_and_the_tenant_that_it_is_about() -> None:
    record = line("the end of %s waits", "r_1", logger="loomlog.x")
    record.__dict__ |= about("r_1", "acme")
    read = json.loads(JsonLineFormatter().format(record))
    assert (read["run_id"], read["tenant"]) == ("r_1", "acme")


def test_every_line_that_names_a_run_carries_its_id() -> None:
    """A call of `log` in a service that is given a run id says so in `extra`, where queries of logs can find it."""
    without = [
        f"{path.relative_to(SERVICES)}:{node.lineno}"
        for path in sorted(SERVICES.rglob("*.py"))
        if "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.")
        if any(RUN_ID.search(ast.unparse(one)) for one in node.args)
        if not any(keyword.arg == "extra" for keyword in node.keywords)
    ]
    assert without == []


def test_the_next_line_after_a_while_says_how_many_were_left_out() -> None:
    clock = Clock()
    few = RateLimitFilter(clock)
    for _ in range(LINES_PER_MINUTE + 4):
        few.filter(line("node %d is away", 1))
    clock.now = RATE_LIMIT_PERIOD_S
    late = line("node %d is away", 2)
    assert few.filter(late)
    assert late.getMessage() == "node 2 is away (4 lines like this were left out)"


def test_kinds_without_end_do_not_fill_the_memory() -> None:
    few = RateLimitFilter(Clock())
    for number in range(5_000):
        assert few.filter(line(f"kind {number}"))
    assert len(few._kinds) <= 1_000


def test_what_we_say_ourselves_always_passes() -> None:
    few = RateLimitFilter(Clock())
    assert all(few.filter(line(logger="loomlog.insights")) for _ in range(LINES_PER_MINUTE + 3))


@pytest.mark.parametrize("logger", ["aiokafka.conn", "faust.rereading", "mode"])
def test_the_loggers_below_a_library_are_filtered_like_it(logger: str) -> None:
    few = RateLimitFilter(Clock())
    assert [few.filter(line(logger=logger)) for _ in range(LINES_PER_MINUTE + 1)][-1] is False


def test_a_line_is_one_json_object() -> None:
    record = line("node %d is\naway", 7)
    record.run_id = "r_1"
    found = json.loads(JsonLineFormatter().format(record))
    assert (found["level"], found["logger"], found["message"], found["run_id"]) == (
        "error", "aiokafka", "node 7 is\naway", "r_1"
    )  # fmt: skip


@pytest.fixture
def as_before() -> Iterator[None]:
    """Gives the libraries their levels back; tests/conftest.py gives the process the rest."""
    levels = {name: logging.getLogger(name).level for name in LIBRARIES}
    logging.getLogger().handlers = []  # `begin` closes those it finds
    yield
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.parametrize(("asked", "of_libraries"), [("debug", logging.WARNING), ("error", logging.ERROR)])
@pytest.mark.usefixtures("as_before")
def test_libraries_are_heard_from_warning_on_and_never_below_the_level_asked_for(asked: str, of_libraries: int) -> None:
    logs.configure_logging(asked)
    assert {logging.getLogger(name).getEffectiveLevel() for name in (*LIBRARIES, "faust.rereading")} == {of_libraries}
    assert logging.getLogger("loomlog.insights").getEffectiveLevel() == getattr(logging, asked.upper())
    assert any(isinstance(found, RateLimitFilter) for found in logging.getLogger().handlers[0].filters)
