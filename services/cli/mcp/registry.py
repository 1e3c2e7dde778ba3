"""`loomlog mcp-registry`: recipes of MCP servers, and taking one into a configuration file. No service has to run.

    loomlog mcp-registry list                                  recipes that come with the program, and your own
    loomlog mcp-registry show github                           one, as it would be in the file
    loomlog mcp-registry append-to-config github --to FILE     write it into a configuration file
    loomlog mcp-registry add crm.json                          keep a recipe of your own (LOOMLOG_MCP_RECIPES_ROOT)
    loomlog mcp-registry disable discord                       hide one

Before: services/cli/main.py. After: recipes.py.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.services.cli.claude_code.configuration_file import dump_yaml, mapping_of, put_entries, read_plain
from loomlog.services.cli.claude_code.entries import Entry
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.mcp.recipes import ABOUT, DISABLED, Recipe, parse_recipe, read_disabled, read_recipes
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import NAME, console, print_json, print_table

BLOCK = "mcp_servers"
ROOT = "LOOMLOG_MCP_RECIPES_ROOT"
registry_app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help="Recipes of MCP servers for configurations.")

RecipeName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the recipe.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there under the name.")]


@registry_app.command("list")
def list_recipes(
    include_disabled: Annotated[bool, typer.Option("--include-disabled", help="Hidden ones too.")] = False,
    as_json: Json = False,
) -> None:
    """List the recipes."""
    recipes = [one for one in read_recipes(_root()).values() if include_disabled or not one.is_disabled]
    if as_json:
        print_json([_facts(recipe) for recipe in recipes])
        return
    rows = [
        (one.name, one.about.transport, ", ".join(one.about.env_vars_required), one.about.description)
        for one in recipes
    ]
    print_table(console(), ("recipe", "transport", "needs", "what it is"), rows)


@registry_app.command("show")
def show(
    name: RecipeName,
    bundled: Annotated[bool, typer.Option("--bundled", help="The one that comes with the program.")] = False,
    as_json: Json = False,
) -> None:
    """Show a recipe as a block of a configuration file."""
    recipe = _find(name, None if bundled else _root())
    if as_json:
        print_json(_facts(recipe))
        return
    out = console()
    out.print(recipe.about.description, style=NAME)
    for label, value in (
        ("needs", ", ".join(recipe.about.env_vars_required)),
        ("credentials", ", ".join(recipe.about.credentials)),
        ("prompt", recipe.about.agent_prompt_hint),
    ):
        if value:
            out.print(f"{label}: {value}", soft_wrap=True)
    out.print(dump_yaml({BLOCK: {name: recipe.block()}}), soft_wrap=True, markup=False, highlight=False)


@registry_app.command("append-to-config")
def append_to_config(
    name: RecipeName,
    to: Annotated[Path, typer.Option("--to", help="The configuration file.")] = Path("loomlog.yaml"),
    force: Force = False,
    skip_env_check: Annotated[
        bool, typer.Option("--skip-env-check", help="Also when variables that it needs are not set.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a recipe into a configuration file, whose other lines stay as they are."""
    recipe = _find(name, _root())
    missing = [one for one in recipe.about.env_vars_required if not os.environ.get(one)]
    if missing and not skip_env_check:
        raise UsageError(f"{', '.join(missing)}: not set, and {name} needs it; set it, or use --skip-env-check")
    text = to.read_text() if to.exists() else ""
    if name in mapping_of(read_plain(text, str(to)), BLOCK) and not force:
        raise CliError(f"{to} has a server {name} already; --force replaces it")
    entry = Entry(block=BLOCK, name=name, source=f"the recipe {name}", value=recipe.block(), notes=())
    try:
        to.write_text(put_entries(text, [entry], file=str(to)))
    except ValueError as error:
        raise CliError(str(error)) from error
    sentence = f"{to} has the server {name} now; grant its tools to an agent: tools: [mcp__{name}__*]"
    _tell(sentence, {"file": str(to), "server": name}, as_json=as_json)


@registry_app.command("add")
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An entry of .mcp.json with a block _loomcycle.")],
    name: Annotated[str, typer.Option("--name", help="Name of the recipe; absent: that of the file.")] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Keep a recipe of your own; it comes before a bundled one of its name."""
    if not file.is_file():
        raise NotFound(f"there is no file {file}")
    text = file.read_bytes()
    recipe = parse_recipe(name or file.stem, str(file), text)
    root = _require_root()
    target = root / f"{recipe.name}.json"
    if target.exists() and not force:
        raise CliError(f"{target} is there already; --force replaces it")
    root.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text)
    _tell(f"{target} is the recipe {recipe.name} now", _facts(recipe), as_json=as_json)


@registry_app.command("remove")
def remove(name: RecipeName, as_json: Json = False) -> None:
    """Remove a recipe of your own; a bundled one of its name is seen again."""
    target = _require_root() / f"{_find(name, _root()).name}.json"
    if not target.is_file():
        raise NotFound(f"{name} comes with the program; `loomlog mcp-registry disable {name}` hides it")
    target.unlink()
    _tell(f"{target} is removed", {"name": name, "removed": str(target)}, as_json=as_json)


@registry_app.command("enable")
def enable(name: RecipeName, as_json: Json = False) -> None:
    """Show a recipe again that was hidden."""
    _set_disabled(name, is_disabled=False, as_json=as_json)


@registry_app.command("disable")
def disable(name: RecipeName, as_json: Json = False) -> None:
    """Hide a recipe."""
    _set_disabled(name, is_disabled=True, as_json=as_json)


def _set_disabled(name: str, *, is_disabled: bool, as_json: bool) -> None:
    root = _require_root()
    _find(name, root)
    names = [one for one in read_disabled(root) if one != name] + ([name] if is_disabled else [])
    root.mkdir(parents=True, exist_ok=True)
    (root / DISABLED).write_text("".join(f"{one}\n" for one in sorted(names)))
    sentence = f"{name} is {'hidden' if is_disabled else 'shown'}"
    _tell(sentence, {"name": name, "disabled": is_disabled}, as_json=as_json)


def _tell(text: str, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
    else:
        console().print(text, markup=False, soft_wrap=True)


def _find(name: str, root: Path | None) -> Recipe:
    recipes = read_recipes(root)
    if name not in recipes:
        raise NotFound(f"there is no recipe {name}{did_you_mean(name, recipes)}; `loomlog mcp-registry list` shows all")
    return recipes[name]


def _root() -> Path | None:
    return Path(os.environ[ROOT]) if os.environ.get(ROOT) else None


def _require_root() -> Path:
    root = _root()
    if root is None:
        raise UsageError(f"{ROOT} is not set: it names the folder for recipes of your own")
    return root


def _facts(recipe: Recipe) -> dict[str, Any]:
    about = {name: getattr(recipe.about, name) for name in recipe.about.__struct_fields__}
    return {
        "name": recipe.name,
        "source": recipe.source,
        "disabled": recipe.is_disabled,
        **recipe.entry,
        ABOUT: about,
    }
