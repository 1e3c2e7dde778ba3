"""Bulk commands for runs: a preview, a confirmation, then execution page by page.

Before: control.py. After: POST /v1/runs/bulk.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED, CliError, UsageError
from loomlog.services.cli.http.requests import open_api, send
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, console, print_json
from loomlog.services.cli.terminal.run_text import print_runs

PATH = "/v1/runs/bulk"
PAGES_MAX = 2_000
"""Pages of 50 runs each, five times as many runs as a preview counts; for more, the filter has to be narrowed."""


def run_bulk_action(action: str, run_filter: str, reason: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Preview, confirm and execute an action. Exits 1 when it failed for one run."""
    asks = not dry_run and not yes
    if asks and (as_json or not is_interactive()):
        raise UsageError(f"To {action} many runs without being asked, give --yes; --dry-run shows which they are.")
    preview = send("POST", PATH, {"action": action, "where": run_filter, "dry_run": True}).value
    if dry_run:
        _print_preview(preview, as_json=as_json)
        return
    if not as_json:
        _print_preview(preview, as_json=False)
    if asks and not typer.confirm(f"{action.capitalize()} {_run_count(preview)}?"):
        raise CliError("Nothing was done.")
    results = run(_apply_action(action, run_filter, reason, as_json=as_json))
    failed = sum(result["outcome"] == "failed" for result in results)
    if as_json:
        print_json({"action": action, "where": run_filter, "results": results})
    else:
        console().print(Text(_summarize(results), style=ERROR if failed else ""))
    if failed:
        raise typer.Exit(FAILED)


def is_interactive() -> bool:
    """Return whether standard input is a terminal, so that a question can be answered."""
    return sys.stdin.isatty()


def _print_preview(preview: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(preview)
        return
    out = console()
    if not preview["matched"]:
        out.print(f"No live run to {preview['action']} matches {preview['where']}.")
        return
    print_runs(out, preview["runs"])
    hidden = preview["matched"] - len(preview["runs"])
    rest = f", {hidden} of them not shown" if hidden > 0 else ""
    out.print(Text(f"{_run_count(preview)}{rest}", style=DIM))


def _run_count(preview: Mapping[str, Any]) -> str:
    return ("more than " if preview["more"] else "") + pluralize(preview["matched"], "run")


def _summarize(results: list[Mapping[str, Any]]) -> str:
    outcomes = Counter(result["outcome"] for result in results)
    return ", ".join(f"{outcomes[name]} {name}" for name in ("changed", "unchanged", "failed"))


async def _apply_action(action: str, run_filter: str, reason: str, *, as_json: bool) -> list[Mapping[str, Any]]:
    """Execute the action page by page and print each result as it arrives."""
    results: list[Mapping[str, Any]] = []
    body = {"action": action, "where": run_filter, "reason": reason, "dry_run": False}
    cursor = ""
    async with open_api() as api:
        for _ in range(PAGES_MAX):
            page = (await api.post(PATH, {**body, **({"cursor": cursor} if cursor else {})})).value
            results += page["results"]
            if not as_json:
                for result in page["results"]:
                    _print_result(result)
            cursor = page["next"] or ""
            if not cursor:
                return results
    raise CliError(f"{pluralize(len(results), 'run')} done and there are more: narrow the filter and do the rest.")


def _print_result(result: Mapping[str, Any]) -> None:
    where = (("  event ", DIM), result["position"]) if result["position"] else ()
    why = f"  {result['error']}" if result["error"] else ""
    style = ERROR if result["outcome"] == "failed" else ""
    console().print(Text.assemble((result["run_id"], NAME), f" {result['outcome']}", *where, (why, style)))
