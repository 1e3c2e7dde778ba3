"""`loomlog defs`: versions of agents, skills and other definitions, over the API.

    loomlog defs ls                                           all definitions, with the active version of each
    loomlog defs create NAME --file agent.md --description WHY
    loomlog defs fork NAME --set model=mock-generic           version 2, not active
    loomlog defs diff NAME@2                                  against its parent
    loomlog defs promote NAME@2 --why WHY
    loomlog defs rollback NAME --why WHY

NAME stands for an agent, unless --kind says what else. Lists have all kinds.

Before: services/cli/main.py. After: reads.py, changes.py, transfer.py.
"""

from collections.abc import Callable, Mapping

import typer

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.definitions import changes, reads, transfer

defs_app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Versions of agents, skills and other definitions: list, make, promote, compare, take back.",
)
COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": reads.list_definitions,
    "show": reads.show,
    "create": changes.create,
    "fork": changes.fork,
    "promote": changes.promote_version,
    "rollback": changes.rollback,
    "retire": changes.retire,
    "restore": changes.restore,
    "diff": reads.diff,
    "lineage": reads.lineage,
    "runs": reads.runs,
    "at": reads.at,
    "apply": transfer.apply,
    "export": transfer.export,
    "import": transfer.import_definitions,
}
"""Functions of the commands, in the order of the help."""
for name, command in COMMANDS.items():
    defs_app.command(name)(command)
