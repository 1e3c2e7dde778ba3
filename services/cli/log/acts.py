"""`loomlog audit acts`: who did what, newest first, over the API.

    loomlog audit acts --since 24h
    loomlog audit acts --who ada --what hook            all operations on hooks
    loomlog audit acts --what pause.runs --json

Before: audit.py. After: services/families/act/handlers.py.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from loomlog.services.cli.http.requests import get
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, WARNING, console, print_json, print_table
from loomlog.services.cli.terminal.times import to_rfc3339

PATH = "/v1/_audit"
HEAD = ("at", "who", "token", "over", "what", "target", "outcome", "change")
STYLES = {"refused": ERROR, "unknown": WARNING, "begun": WARNING}


def list_acts(
    who: Annotated[str, typer.Option("--who", help="Only of this subject of a caller.")] = "",
    what: Annotated[str, typer.Option("--what", help="Only this operation, such as hook.register, or family.")] = "",
    since: Annotated[str, typer.Option("--since", help="Only since this time, or age such as 24h.")] = "",
    until: Annotated[str, typer.Option("--until", help="Only before this time, or age.")] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Administrators: only this tenant; all if absent.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Most acts.")] = 50,
    cursor: Annotated[str, typer.Option("--cursor", help="`next` of an earlier list.")] = "",
    as_json: Json = False,
) -> None:
    """List administrative acts, newest first: who did what, over what, and how it has ended."""
    times = {"since": to_rfc3339(since, option="--since"), "until": to_rfc3339(until, option="--until")}
    fields = {"who": who, "what": what, **times, "tenant": tenant, "cursor": cursor}
    page = get(PATH, {"limit": limit, **fields})
    if as_json:
        print_json(page)
        return
    out = console()
    if not page["acts"]:
        out.print(Text("There are no such acts.", style=DIM))
        return
    print_table(out, HEAD, [_row(act) for act in page["acts"]])
    if page["next"]:
        out.print(Text(f"There are more: --cursor {page['next']}", style=DIM))


def _row(act: Mapping[str, Any]) -> list[str | Text]:
    outcome = " ".join(str(part) for part in (act["outcome"], act.get("code", "")) if part)
    if act.get("count"):
        outcome += f" x{act['count']}"
    change = " -> ".join(orjson.dumps(act[name]).decode() for name in ("before", "after") if name in act)
    return [
        act["at"],
        Text(act["who"], style=NAME),
        act["token"],
        act["transport"],
        act["what"],
        act["target"],
        Text(outcome, style=STYLES.get(act["outcome"], "")),
        change,
    ]
