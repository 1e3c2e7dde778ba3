"""`loomlog presets` and `loomlog env-template`: configuration shipped with the program. No service has to run.

Before: services/cli/main.py. After: loomlog.connectors.configuration.
"""

import sys
from typing import Annotated

import typer

from loomlog.connectors.configuration.env_template import render_env_template as template
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.presets import KIND, load_presets
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import console, print_json, print_table

presets_app = typer.Typer(
    cls=CommandGroup, help="Show the configuration layers that come with the program.", invoke_without_command=True
)


@presets_app.callback()
def list_presets(context: typer.Context, as_json: Json = False) -> None:
    """List the presets. LOOMLOG_PRESETS=base,local applies them below the files of this installation."""
    if context.invoked_subcommand is not None:
        return
    presets = load_presets().values()
    if as_json:
        print_json([{"name": one.name, "kind": KIND, "description": one.description} for one in presets])
        return
    print_table(console(), ("preset", "what it is"), [(one.name, one.description) for one in presets])


@presets_app.command("show")
def show(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the preset.")]) -> None:
    """Print a preset as YAML, to read or as a starting point for a file."""
    preset = load_presets().get(name)
    if preset is None:
        raise typer.BadParameter(f"there is no preset {name}{did_you_mean(name, load_presets())}", param_hint="NAME")
    sys.stdout.write(preset.content)


def env_template() -> None:
    """Print every environment setting with its default, as a template file."""
    sys.stdout.write(template())
