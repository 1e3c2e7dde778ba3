"""One order to many runs from the command line: what it would reach, a question, then page by page.

Before: orders.py. After: POST /v1/runs/bulk.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.failures import FAILED, Failure, WrongUse
from loomlog.services.cli.runs.runs import api_of_here
from loomlog.services.cli.terminal.formatting import counted
from loomlog.services.cli.terminal.output import BAD, DIM, NAME, console, print_json, print_table
from loomlog.services.cli.terminal.run_text import table_row

PATH = "/v1/runs/bulk"
PAGES_MAX = 2_000
"""Of 50 runs each: five times as many as a preview counts; whoever has more narrows the filter."""
HEAD = ("RUN", "AGENT", "STATUS", "TURNS", "CALLS", "TOKENS", "COST", "TOOK", "STARTED")


def order(action: str, where: str, reason: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Preview, ask, act. Ends with exit code 1 when the order failed for one run."""
    asks = not dry_run and not yes
    if asks and (as_json or not is_terminal()):
        raise WrongUse(f"To {action} many runs without being asked, give --yes; --dry-run shows which they are.")
    preview = run(_preview(action, where))
    if dry_run:
        _show(preview, as_json=as_json)
        return
    if not as_json:
        _show(preview, as_json=False)
    if asks and not typer.confirm(f"{action.capitalize()} {_how_many(preview)}?"):
        raise Failure("Nothing was done.")
    results = run(_act(action, where, reason, as_json=as_json))
    failed = sum(result["outcome"] == "failed" for result in results)
    if as_json:
        print_json({"action": action, "where": where, "results": results})
    else:
        console().print(Text(_summary(results), style=BAD if failed else ""))
    if failed:
        raise typer.Exit(FAILED)


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _show(preview: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(preview)
        return
    out = console()
    if not preview["matched"]:
        out.print(f"No live run to {preview['action']} matches {preview['where']}.")
        return
    now = datetime.now(UTC)
    print_table(out, HEAD, [table_row(row, now) for row in preview["runs"]], right=(3, 4, 5, 6, 7))
    hidden = preview["matched"] - len(preview["runs"])
    rest = f", {hidden} of them not shown" if hidden > 0 else ""
    out.print(Text(f"{_how_many(preview)}{rest}", style=DIM))


def _how_many(preview: Mapping[str, Any]) -> str:
    return ("more than " if preview["more"] else "") + counted(preview["matched"], "run")


def _summary(results: list[Mapping[str, Any]]) -> str:
    outcomes = Counter(result["outcome"] for result in results)
    return ", ".join(f"{outcomes[name]} {name}" for name in ("changed", "unchanged", "failed"))


async def _preview(action: str, where: str) -> Mapping[str, Any]:
    async with api_of_here() as api:
        found: Mapping[str, Any] = (await api.post(PATH, {"action": action, "where": where, "dry_run": True})).value
        return found


async def _act(action: str, where: str, reason: str, *, as_json: bool) -> list[Mapping[str, Any]]:
    """Page by page; each result is shown as it comes."""
    results: list[Mapping[str, Any]] = []
    body = {"action": action, "where": where, "reason": reason, "dry_run": False}
    cursor = ""
    async with api_of_here() as api:
        for _ in range(PAGES_MAX):
            page = (await api.post(PATH, {**body, **({"cursor": cursor} if cursor else {})})).value
            results += page["results"]
            if not as_json:
                for result in page["results"]:
                    _print(result)
            cursor = page["next"] or ""
            if not cursor:
                return results
    raise Failure(f"{counted(len(results), 'run')} done and there are more: narrow the filter and do the rest.")


def _print(result: Mapping[str, Any]) -> None:
    where = (("  event ", DIM), result["position"]) if result["position"] else ()
    why = f"  {result['error']}" if result["error"] else ""
    style = BAD if result["outcome"] == "failed" else ""
    console().print(Text.assemble((result["run_id"], NAME), f" {result['outcome']}", *where, (why, style)))
