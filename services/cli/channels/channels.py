"""`loomlog channels`: messages between agents, and between agents and the outside, over the API.

    loomlog channels ls                              channels, with what their queues hold
    loomlog channels create reviews --ttl 7d         declare one; `set` changes it, `rm` deletes the declaration
    loomlog channels publish reviews '{"n": 1}'      JSON; --text for plain text
    loomlog channels tail reviews                    messages as they come; nothing is taken
    loomlog channels subscribe reviews --wait 10s    take the next ones

Channels of users and agents have a queue for each: --scope-id names it.

Before: services/cli/main.py. After: reads.py, changes.py.
"""

from collections.abc import Callable, Mapping

import typer

from loomlog.services.cli.channels import changes, reads
from loomlog.services.cli.commands import CommandGroup

channels_app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    help="Channels: declare, publish, read, wait, follow.",
)
COMMANDS: Mapping[str, Callable[..., None]] = {
    "ls": reads.list_channels,
    "show": reads.show,
    "create": changes.create,
    "set": changes.update,
    "rm": changes.remove,
    "publish": changes.publish,
    "peek": reads.peek,
    "subscribe": changes.subscribe,
    "ack": changes.ack,
    "purge": changes.purge,
    "await": reads.wait,
    "tail": reads.tail,
}
"""Functions of the commands, in the order of the help."""
for name, command in COMMANDS.items():
    channels_app.command(name)(command)
