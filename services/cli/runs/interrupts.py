"""`loomlog inbox`: the open interruptions (questions of runs to people), and answering them.

    r_7m17...  assistant  intr_1f2e...  high  expires in 52 min
      Shall I delete the branch?   [yes | no]
      It has not been merged.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.http.api import quote_segment
from loomlog.services.cli.http.requests import get, print_written
from loomlog.services.cli.runs.runs import Json, Position, RunId, send_to_run
from loomlog.services.cli.terminal.formatting import duration, one_line
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, print_json

QUESTION_CHARACTERS = 400
"""Characters of a question or its context on one line; --json has all of it."""
PRIORITY_STYLES = {"high": WARNING, "low": DIM}

inbox_app = typer.Typer(cls=CommandGroup, help="Show and answer what runs ask people.", invoke_without_command=True)

InterruptId = Annotated[str, typer.Argument(metavar="ID", help="Id of the question (intr_...).")]
By = Annotated[str, typer.Option("--by", help="Who says it; you, without it.")]


@inbox_app.callback()
def inbox(
    context: typer.Context,
    user: Annotated[str, typer.Option("--user", help="Only of this user's runs.")] = "",
    status: Annotated[str, typer.Option("--status", help="pending, or all, or another status.")] = "pending",
    limit: Annotated[int, typer.Option("--limit", min=1, max=500, help="Most questions.")] = 50,
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Show the interruptions that wait for an answer, of every visible run, newest first."""
    if context.invoked_subcommand is not None:
        return
    listing = get("/v1/interrupts", {"user_id": user, "status": status, "limit": limit, "position": position})
    if as_json:
        print_json(listing)
        return
    out = console()
    if not listing["interrupts"]:
        out.print(Text("Nothing waits for an answer." if status == "pending" else "There is none.", style=DIM))
        return
    now = datetime.now(UTC)
    for row in listing["interrupts"]:
        for line in question_lines(row, now):
            out.print(line)
    left = listing["total"] - len(listing["interrupts"])
    if left > 0:
        out.print(Text(f"{left} more; --limit shows them.", style=DIM))


@inbox_app.command("answer")
def answer(
    run_id: RunId,
    interrupt_id: InterruptId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer; one of the options where there are some.")],
    by: By = "",
    as_json: Json = False,
) -> None:
    """Answer a question; its run continues."""
    _resolve_interrupt(run_id, interrupt_id, {"disposition": "answer", "answer": text}, by, "Answered", as_json=as_json)


@inbox_app.command("decline")
def decline(run_id: RunId, interrupt_id: InterruptId, by: By = "", as_json: Json = False) -> None:
    """Decline to answer; the run continues without an answer."""
    _resolve_interrupt(run_id, interrupt_id, {"disposition": "declined"}, by, "Declined", as_json=as_json)


def question_lines(row: Mapping[str, Any], now: datetime) -> list[Text]:
    """Format an interruption as lines of text."""
    when = row["status"]
    if row["status"] == "pending" and row["expires_at"]:
        left_s = (datetime.fromisoformat(row["expires_at"]) - now).total_seconds()
        when = f"expires in {duration(left_s)}" if left_s > 0 else "expires now"
    priority = row["priority"] or "normal"
    lines = [
        Text.assemble(
            (row["run_id"], NAME),
            f"  {one_line(row['agent'] or '', 32)}  ",
            (row["interrupt_id"], NAME),
            (f"  {priority}", PRIORITY_STYLES.get(priority, "")),
            (f"  {when}", DIM),
        )
    ]
    options = f"   [{' | '.join(one_line(one, 60) for one in row['options'])}]" if row["options"] else ""
    lines.append(Text.assemble(f"  {one_line(row['question'] or '', QUESTION_CHARACTERS)}", (options, WARNING)))
    if row["context"]:
        lines.append(Text(f"  {one_line(row['context'], QUESTION_CHARACTERS)}", style=DIM))
    if row["answer"]:
        by = f" ({row['resolved_by']})" if row["resolved_by"] else ""
        lines.append(Text(f"  > {one_line(row['answer'], QUESTION_CHARACTERS)}{by}", style=DIM))
    return lines


def _resolve_interrupt(
    run_id: str, interrupt_id: str, body: Mapping[str, str], by: str, verb: str, *, as_json: bool
) -> None:
    path = f"interrupts/{quote_segment(interrupt_id)}/resolve"
    response = send_to_run(run_id, path, {**body, **({"resolved_by": by} if by else {})})
    if as_json:
        print_written(response)
        return
    resolved = response.value["interrupt_id"]
    console().print(Text.assemble(f"{verb} ", (resolved, NAME), ("  event ", DIM), response.position))
