"""`loomlog memory`: what agents, users and the tenant remember, over the API.

    loomlog memory ls                              scopes and their sizes; `ls user ada` lists entries
    loomlog memory get user ada colour             the value, who set it, and when
    loomlog memory set user ada colour '"red"'     JSON; --text for plain text
    loomlog memory log user ada colour             its changes, each with its run, turn and call
    loomlog memory at user ada colour --time 24h   the value as it was then

A scope is `agent` with the name of an agent, `user` with the id of a user, or `tenant`, whose id is left out or
written as `-`.

Before: services/cli/main.py. After: reads.py, changes.py.
"""

from collections.abc import Callable, Mapping

import typer

from loomlog.services.cli.commands import CommandGroup
from loomlog.services.families.memory.commands import changes, reads

memory_app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Memory of agents, users and the tenant: read, write, search, and its past.",
)
COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": reads.list_memory,
    "get": reads.get,
    "set": changes.set_entry,
    "rm": changes.remove,
    "search": reads.search,
    "log": reads.log,
    "at": reads.at,
    "usage": reads.usage,
    "reembed": changes.reembed,
    "drop": changes.drop,
}
"""Functions of the commands, in the order of the help."""
for name, command in COMMANDS.items():
    memory_app.command(name)(command)
