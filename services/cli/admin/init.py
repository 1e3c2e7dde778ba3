"""`loomlog init`: a commented configuration to begin with.

    loomlog init                       loomlog.yaml in this folder
    loomlog init shop --from orders    loomlog.yaml in the folder shop, from another template
    loomlog init --with-token          with auth.env too: the token of the administrator, for this folder alone

With --with-token a configuration that is there already stays, so that a project can get a token later. A token that is
there stays unless --force is given: who replaces it locks out those who have it.

Before: services/cli/main.py. After: services/cli/templates, services/cli/auth_file.py.
"""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.cli import auth_file
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
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    with_token: Annotated[
        bool,
        typer.Option(
            "--with-token",
            help="Also write auth.env with a token of an administrator, which commands and `loomlog up` in the folder "
            "use; only you may read it.",
        ),
    ] = False,
) -> None:
    """Write a commented loomlog.yaml with two agents."""
    if template not in FIRST_RUNS:
        hint = did_you_mean(template, FIRST_RUNS)
        raise UsageError(f"There is no template {template}{hint}; templates: {', '.join(FIRST_RUNS)}.")
    file, secret = folder / FILE, folder / auth_file.FILE
    new_file = secret if with_token else file
    if new_file.exists() and not force:
        raise CliError(f"{new_file} exists already. --force replaces it; another FOLDER gets a file of its own.")
    content = resources.files("loomlog.services.cli.templates").joinpath(f"{template}.yaml").read_text("utf-8")
    out = console()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file.exists() and not force:
            out.print(f"kept {file}")
        else:
            file.write_text(content, "utf-8")
            out.print(f"wrote {file} (template {template})")
        if with_token:
            secret.unlink(missing_ok=True)
            auth_file.create_auth_file(secret)
            out.print(f"wrote {secret}: the token of the administrator, for your eyes only")
    except OSError as error:
        raise CliError(f"{error.filename} cannot be written: {error.strerror}.") from error
    for step in (
        *([f"cd {folder}"] if folder != Path() else []),
        "loomlog agents check",
        "loomlog up",
        FIRST_RUNS[template],
    ):
        out.print(f"  {step}")
