"""`loomlog schedules`: what runs at which times, over the API.

    loomlog schedules ls                       all schedules, with their next time and their last run
    loomlog schedules preview nightly          when it fires next, in its zone
    loomlog schedules fires nightly            what it has fired, and how late
    loomlog schedules run-now nightly          fire at once
    loomlog schedules pause 'report-*' --yes   several at once; without --yes they are only shown

A schedule is named as its definition is, or by the id of a version. `loomlog defs` makes and changes definitions.

Before: services/cli/main.py. After: reads.py, changes.py.
"""

from collections.abc import Callable, Mapping

import typer

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.schedules import changes, reads

schedules_app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Schedules: when they fire, what they have fired; run-now and pauses."
)
COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": reads.list_schedules,
    "show": reads.show,
    "preview": reads.preview,
    "fires": reads.fires,
    "run-now": changes.run_now,
    "pause": changes.pause,
    "resume": changes.resume,
}
"""Functions of the commands, in the order of the help."""
for name, command in COMMANDS.items():
    schedules_app.command(name)(command)
