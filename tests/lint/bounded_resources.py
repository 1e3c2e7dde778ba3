"""Finds what bounds a resource in the source: semaphores, pools and executors that are made, and tables of open things
that are compared with a bound before something is refused.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from loomlog.services.core.bounded_resources import RESOURCES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "LIMITS.md"
BEGIN = "<!-- bounded resources: python -m tests.lint.bounded_resources -->"
END = "<!-- end of bounded resources -->"
FOLDERS = ("services", "connectors", "projections")
ONE_PERSON = re.compile(r"services/(cli|families/\w+/commands)[/.]")
"""Code of one person's own process."""
MAKERS = frozenset(
    {
        "Semaphore",
        "BoundedSemaphore",
        "ThreadPoolExecutor",
        "ProcessPoolExecutor",
        "ThreadPool",
        "AsyncConnectionPool",
        "open_pool",
        "open_reader",
        "SharedSlots",
        "Shares",
    }
)
"""What makes a bounded resource, by the last part of its name."""
MAKER_MODULES = frozenset({"services/stream/shared_slots.py", "connectors/storage/postgres.py"})
"""Modules that define such makers: what they make is counted where they are called."""


def bounded_modules() -> dict[str, list[int]]:
    """Return the modules that bound something, and the lines."""
    found: dict[str, list[int]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if ONE_PERSON.match(name) or name in MAKER_MODULES:
                continue
            if lines := sorted(set(bounding_lines(path.read_text()))):
                found[name] = lines
    return found


def bounding_lines(source: str) -> Iterator[int]:
    """Yield the lines of a module that make a bounded resource, or refuse one more of an open table."""
    for node in ast.walk(ast.parse(source)):
        is_made = isinstance(node, ast.Call) and _last_name(node.func) in MAKERS
        if is_made or (isinstance(node, ast.If) and _refuses(node) and any(map(_is_full, ast.walk(node.test)))):
            yield node.lineno


def _refuses(node: ast.If) -> bool:
    return any(isinstance(step, ast.Raise | ast.Return | ast.Continue) for step in node.body)


def _is_full(node: ast.AST) -> bool:
    """Whether a comparison asks if a table or a count of this object has reached a constant."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.GtE):
        return False
    left, right = node.left, _last_name(node.comparators[0])
    if isinstance(left, ast.Call) and _last_name(left.func) == "len" and left.args:
        left = left.args[0]
    is_own = isinstance(left, ast.Attribute) and isinstance(left.value, ast.Name) and left.value.id == "self"
    return is_own and right.isupper()


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def table() -> str:
    """Return the table of docs/LIMITS.md."""
    lines = ["| resource | process | in all | a tenant | a principal | why |", "|---|---|---|---|---|---|"]
    for row in RESOURCES:
        if row.limits is None:
            bounds = [row.total, row.per_tenant or "-", row.per_principal or "-"]
        else:
            bounds = [f"{n:,}" for n in (row.limits.total, row.limits.per_tenant, row.limits.per_principal)]
        lines.append("| " + " | ".join([row.name, row.process, *bounds, row.reason]) + " |")
    return "\n".join(lines) + "\n"


def write_table(page: str) -> str:
    """Return a page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"the page has no {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(write_table(PAGE.read_text()))
