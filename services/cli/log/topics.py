"""`loomlog topics apply`: creates the topics of topics.yaml, and changes them where that is safe.

Before: services/cli/main.py. After: redpanda/apply.py.
"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import FAILED
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.stack.services import apply_topics
from loomlog.services.cli.terminal.output import DIM, NAME, SUCCESS, WARNING, console, print_json

topics_app = typer.Typer(help="The topics of the log.", no_args_is_help=True)


@topics_app.callback()
def topics() -> None:
    """Manage the topics of the log."""


@topics_app.command("apply")
def apply(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 when something would change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Make the topics match topics.yaml. Idempotent."""
    cli = current_settings()
    bootstrap = cli.kafka()
    changes = run(apply_topics(bootstrap, replicas=cli.settings.replication_factor, environ=cli.environ, check=check))
    pending = any(change.changes_something for change in changes)
    if as_json:
        print_json({"bootstrap": bootstrap, "applied": not check, "changes": [asdict(change) for change in changes]})
    else:
        out = console()
        for change in changes:
            style = WARNING if change.changes_something else DIM
            out.print(Text.assemble((f"{change.kind:<8}", style), (change.topic, NAME), f"  {change.text}"))
        if not pending:
            out.print(Text(f"The topics at {bootstrap} are as they should be.", style=SUCCESS))
        elif not check:
            out.print(Text("A topic is no event, so there is no position to tell.", style=DIM))
    if check and pending:
        raise typer.Exit(FAILED)
