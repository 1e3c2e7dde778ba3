"""Every bounded resource of the source is a row with shares, or with the reason why it needs none."""

import pytest

from loomlog.services.core.bounded_resources import RESOURCES
from tests.lint.bounded_resources import PAGE, bounded_modules, bounding_lines, write_table


def test_whatever_bounds_something_has_a_row_and_every_row_is_found() -> None:
    """A new semaphore, pool or table of open things: add its row to services/core/bounded_resources.py."""
    found, known = bounded_modules(), {module for row in RESOURCES for module in row.where}
    assert {name: lines for name, lines in found.items() if name not in known} == {}
    assert sorted(known - found.keys()) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("slots = asyncio.Semaphore(3)", [1]),
        ("self.pool = ThreadPoolExecutor(max_workers=2)", [1]),
        ("class Table:\n def add(self):\n  if len(self.open) >= limits.OPEN_MAX:\n   raise Full", [3]),
        ("class Table:\n def add(self):\n  if self.count >= MOST:\n   return False", [3]),
        ("class Table:\n def add(self):\n  if len(self.open) >= wanted:\n   return", []),
        ("def check(text):\n if len(text) >= TEXT_MAX:\n  raise TooLong", []),
    ],
)
def test_the_search_finds_what_bounds_a_resource_and_not_what_bounds_a_value(source: str, lines: list[int]) -> None:
    assert list(bounding_lines(source)) == lines


def test_every_row_has_shares_or_says_why_not() -> None:
    assert len({row.name for row in RESOURCES}) == len(RESOURCES)
    for row in RESOURCES:
        assert row.reason, row.name
        assert (row.limits is None) == bool(row.total), row.name
        assert row.limits is None or row.limits.per_tenant < row.limits.total or row.limits.total < 4, row.name


def test_the_page_of_limits_shows_the_table() -> None:
    """`python -m tests.lint.bounded_resources` writes it."""
    page = PAGE.read_text()
    assert page == write_table(page)
