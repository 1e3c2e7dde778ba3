"""`loomlog runs tree RUN`: a run with everything it has started, and how each of them stands.

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
"""Runs of one tree that are shown: 10,000."""


async def list_tree_runs(api: ApiClient, row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All runs of the tree that the run belongs to, oldest first."""
    found: list[Mapping[str, Any]] = []
    cursor = ""
    for _ in range(PAGES_MAX):
        page = await api.get("/v1/runs", {"root_run_id": row["root_run_id"], "limit": PAGE_SIZE, "cursor": cursor})
        found += page["runs"]
        cursor = page["next"] or ""
        if not cursor:
            break
    return sorted(found, key=lambda one: (one["started_at"], one["run_id"]))


def select_subtree(rows: list[Mapping[str, Any]], run_id: str) -> list[Mapping[str, Any]]:
    """The run and its descendants, parents before their children."""
    wanted = [row for row in rows if row["run_id"] == run_id]
    for row in wanted:  # grows while it is walked
        wanted += [one for one in rows if one["parent_run_id"] == row["run_id"]]
    return wanted


def print_tree(out: Console, rows: list[Mapping[str, Any]]) -> None:
    """`rows` as `select_subtree` gives them."""
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
