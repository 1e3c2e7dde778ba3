"""loomlog: the command line. `loomlog --help` lists the commands; each has a file of its own.

Every read has --json, every write prints the position of the event it caused, exit codes are in failures.py.

Before: a person, a script, make. After: one file per group of commands.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, ClassVar

import typer

from services.cli.commands import Commands

MODULES: Mapping[str, str] = {
    "up": "services.cli.up:up",
    "down": "services.cli.up:down",
    "status": "services.cli.status:status",
    "doctor": "services.cli.doctor:doctor",
    "review": "services.cli.review:review",
    "run": "services.cli.runs:start",
    "runs": "services.cli.histories:runs_app",
    "inbox": "services.cli.inbox:inbox_app",
    "pause": "services.cli.pausing:pause",
    "resume": "services.cli.pausing:resume",
    "state": "services.cli.pausing:state",
    "limits": "services.cli.budgets:limits_app",
    "usage": "services.cli.budgets:usage",
    "routing": "services.cli.routing:routing",
    "snapshot": "services.cli.snapshots:snapshot_app",
    "events": "services.cli.events:events_app",
    "replay": "services.cli.replay:replay_run",
    "dlq": "services.cli.dead_letters:dead_letters_app",
    "audit": "services.cli.audit:audit_app",
    "subjects": "services.cli.subjects:subjects_app",
    "presets": "services.cli.presets:presets_app",
    "env-template": "services.cli.presets:env_template",
    "projections": "services.cli.read_models:projections_app",
    "topics": "services.cli.topics:topics_app",
}
"""Commands and where they are, in the order in which one needs them."""


class Loomlog(Commands):
    """The commands of loomlog."""

    modules: ClassVar[Mapping[str, str]] = MODULES


def _show_version(asked: bool) -> None:
    if asked:
        print(f"loomlog {version('loomlog')}")
        raise typer.Exit


app = typer.Typer(name="loomlog", cls=Loomlog, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def loomlog(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Runs agents over a log: every step of a run is an event, and every state comes back from the events."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The script `loomlog`. Ends the process with the exit code."""
    app(args=None if arguments is None else list(arguments), prog_name="loomlog")


if __name__ == "__main__":
    main(sys.argv[1:])
