"""`loomlog runs tree RUN`: a run with every run it has started, and the status of each.

Before: runs.py. After: services/cli/http/api.py; the terminal.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.terminal.formatting import duration, one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING
from loomlog.services.cli.terminal.run_text import STATUS_STYLE, display_status, elapsed_seconds

PAGE_SIZE = 500
PAGES_MAX = 20
"""Pages of one tree that are shown: 10,000 runs."""


async def list_tree_runs(api: ApiClient, row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all runs of the tree that a run belongs to, oldest first."""
    tree_runs: list[Mapping[str, Any]] = []
    cursor = ""
    for _ in range(PAGES_MAX):
        page = await api.get("/v1/runs", {"root_run_id": row["root_run_id"], "limit": PAGE_SIZE, "cursor": cursor})
        tree_runs += page["runs"]
        cursor = page["next"] or ""
        if not cursor:
            break
    return sorted(tree_runs, key=lambda one: (one["started_at"], one["run_id"]))


def select_subtree(rows: list[Mapping[str, Any]], run_id: str) -> list[Mapping[str, Any]]:
    """Return the run and its descendants, parents before their children."""
    subtree = [row for row in rows if row["run_id"] == run_id]
    for row in subtree:  # grows during the iteration
        subtree += [one for one in rows if one["parent_run_id"] == row["run_id"]]
    return subtree


def print_tree(out: Console, rows: list[Mapping[str, Any]]) -> None:
    """Print the tree; `rows` are the result of `select_subtree`."""
    now = datetime.now(UTC)
    branches: dict[str, Tree] = {}
    for row in rows:
        line = _run_line(row, now)
        parent = branches.get(row["parent_run_id"] or "")
        branches[row["run_id"]] = Tree(line) if parent is None else parent.add(line)
    out.print(branches[rows[0]["run_id"]])
    out.print(Text(pluralize(len(rows), "run"), style=DIM))


def _run_line(row: Mapping[str, Any], now: datetime) -> Text:
    status = display_status(row)
    took_s = (
        elapsed_seconds(row)
        if row["completed_at"]
        else (now - datetime.fromisoformat(row["started_at"])).total_seconds()
    )
    why = row["error"] or ""
    return Text.assemble(
        (row["run_id"], NAME),
        f"  {one_line(row['agent'], 32)}  ",
        (status, STATUS_STYLE.get(status, WARNING)),
        ("  resident" if row["resident"] else "", DIM),
        (f"  {duration(took_s)}", DIM),
        (f"  {one_line(why, 60)}" if why else "", DIM),
    )
