"""`loomlog init`: a commented configuration to begin with.

    loomlog init                       loomlog.yaml in this folder
    loomlog init shop --from orders    loomlog.yaml in the folder shop, from another template

Before: services/cli/main.py. After: services/cli/templates.
"""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.terminal.output import console

HERE = Path()
FILE = "loomlog.yaml"
DEFAULT_TEMPLATE = "assistant"
FIRST_RUNS = {
    "assistant": 'loomlog run assistant "What is a term?"',
    "reviewer": "loomlog review .",
    "orders": 'loomlog run orders "Add a lamp to order 17"',
}
"""A command to try, by template."""


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the file; created when missing.")
    ] = Path(),
    template: Annotated[
        str, typer.Option("--from", metavar="TEMPLATE", help="Template: assistant, reviewer or orders.")
    ] = DEFAULT_TEMPLATE,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented loomlog.yaml with two agents."""
    if template not in FIRST_RUNS:
        hint = did_you_mean(template, FIRST_RUNS)
        raise UsageError(f"There is no template {template}{hint}; templates: {', '.join(FIRST_RUNS)}.")
    file = folder / FILE
    if file.exists() and not force:
        raise CliError(f"{file} exists already. --force replaces it; another FOLDER gets a file of its own.")
    content = resources.files("loomlog.services.cli.templates").joinpath(f"{template}.yaml").read_text("utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror}.") from error
    out = console()
    out.print(f"wrote {file} (template {template})")
    for step in (
        *([f"cd {folder}"] if folder != Path() else []),
        "loomlog agents check",
        "loomlog up",
        FIRST_RUNS[template],
    ):
        out.print(f"  {step}")
