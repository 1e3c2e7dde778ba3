"""loomlog: the command line. `loomlog --help` lists the commands; each has a file of its own.

Every read has --json, every write prints the position of the event it caused, exit codes are in errors.py.

Before: a person, a script, make. After: one file per group of commands.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, ClassVar

import typer

from loomlog.services.cli.commands import CommandGroup

MODULES: Mapping[str, str] = {
    "init": "loomlog.services.cli.admin.init:init",
    "up": "loomlog.services.cli.stack.up:up",
    "down": "loomlog.services.cli.stack.up:down",
    "status": "loomlog.services.cli.doctor.status:status",
    "doctor": "loomlog.services.cli.doctor.doctor:doctor",
    "review": "loomlog.services.cli.runs.review:review",
    "run": "loomlog.services.cli.runs.runs:start",
    "runs": "loomlog.services.cli.runs.history:runs_app",
    "agents": "loomlog.services.cli.admin.agents:agents_app",
    "inbox": "loomlog.services.cli.runs.interrupts:inbox_app",
    "pause": "loomlog.services.cli.admin.pauses:pause",
    "resume": "loomlog.services.cli.admin.pauses:resume",
    "state": "loomlog.services.cli.admin.pauses:state",
    "limits": "loomlog.services.cli.admin.budget_limits:limits_app",
    "usage": "loomlog.services.cli.admin.budget_limits:usage",
    "routing": "loomlog.services.cli.admin.routing:routing",
    "backup": "loomlog.services.cli.admin.backups:backup_app",
    "events": "loomlog.services.cli.log.events:events_app",
    "replay": "loomlog.services.cli.log.replay:replay_run",
    "dlq": "loomlog.services.cli.log.dead_letters:dead_letters_app",
    "audit": "loomlog.services.cli.log.audit:audit_app",
    "subjects": "loomlog.services.cli.admin.subjects:subjects_app",
    "presets": "loomlog.services.cli.admin.presets:presets_app",
    "env-template": "loomlog.services.cli.admin.presets:env_template",
    "projections": "loomlog.services.cli.log.projections:projections_app",
    "topics": "loomlog.services.cli.log.topics:topics_app",
}
"""Commands and their functions, in the order of the help."""
ALIASES: Mapping[str, str] = {"snapshot": "backup"}
"""Former names; not listed."""


class Loomlog(CommandGroup):
    """The commands of loomlog."""

    modules: ClassVar[Mapping[str, str]] = MODULES
    aliases: ClassVar[Mapping[str, str]] = ALIASES


def _show_version(requested: bool) -> None:
    if requested:
        print(f"loomlog {version('loomlog')}")
        raise typer.Exit


app = typer.Typer(name="loomlog", cls=Loomlog, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def loomlog(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Run agents over a log: every step of a run is an event, and every state is rebuilt from the events."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the script `loomlog`. Ends the process with the exit code."""
    app(args=None if arguments is None else list(arguments), prog_name="loomlog")


if __name__ == "__main__":
    main(sys.argv[1:])
