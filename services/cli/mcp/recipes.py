"""Recipes of MCP servers: files that come with the program, and those of the operator's folder, which win by name.

A recipe is an entry of a `.mcp.json` with a block `_loomcycle` beside it: what it is for, what it needs.

Before: registry.py. After: services/cli/claude_code/mcp_files.py has the same entries without that block.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, ValidationError, convert

from loomlog.connectors import mcp
from loomlog.schemas.records import Value
from loomlog.services.cli.errors import UsageError

BUNDLED = Path(mcp.__file__).with_name("recipes")
DISABLED = ".disabled"
"""File of the operator's folder with a hidden name on each line."""
ABOUT = "_loomcycle"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
FILE_BYTES_MAX = 65_536


class About(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of a recipe beside its entry."""

    description: str
    transport: str
    pool_size: int = 1
    env_vars_required: list[str] = []
    credentials: list[str] = []
    schedule_compatible: bool = True
    agent_prompt_hint: str = ""


class Recipe(Value, frozen=True, kw_only=True):
    """A recipe. `source` is bundled or the operator's folder."""

    name: str
    source: str
    entry: Mapping[str, Any]
    about: About
    is_disabled: bool = False

    def block(self) -> dict[str, Any]:
        """Return the value of mcp_servers.<name>."""
        entry = {key: tuple(value) if isinstance(value, list) else value for key, value in self.entry.items()}
        value = {"transport": self.about.transport, **entry, "description": self.about.description}
        return {**value, "pool_size": self.about.pool_size} if self.about.pool_size != 1 else value


def read_recipes(root: Path | None) -> dict[str, Recipe]:
    """Return all recipes by name, sorted. Raises UsageError for a file that is none."""
    recipes = {path.stem: _read(path, "bundled") for path in sorted(BUNDLED.glob("*.json"))}
    for path in _own_files(root):
        recipes[path.stem] = _read(path, str(root))
    hidden = read_disabled(root)
    return {
        name: Recipe(
            name=name,
            source=recipes[name].source,
            entry=recipes[name].entry,
            about=recipes[name].about,
            is_disabled=name in hidden,
        )
        for name in sorted(recipes)
    }


def read_disabled(root: Path | None) -> list[str]:
    """Return the hidden names."""
    path = None if root is None else root / DISABLED
    if path is None or path.is_symlink() or not path.is_file():
        return []
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def parse_recipe(name: str, source: str, text: bytes) -> Recipe:
    """Return a recipe. Raises UsageError that says what is wrong."""
    if not NAME.match(name):
        raise UsageError(f"{source}: {name[:80]!r} is not the name of a recipe: expected 1 to 64 letters, digits, _, -")
    try:
        document = orjson.loads(text)
        about = convert(document.pop(ABOUT), About) if isinstance(document, dict) else None
    except (orjson.JSONDecodeError, KeyError, ValidationError) as error:
        raise UsageError(f"{source}: not a recipe: {error}; expected an entry of .mcp.json with {ABOUT}") from error
    if about is None or not (document.get("command") or document.get("url")):
        raise UsageError(f"{source}: not a recipe: expected an object with a command or a url, and {ABOUT}")
    return Recipe(name=name, source=source, entry=document, about=about)


def _own_files(root: Path | None) -> list[Path]:
    if root is None or not root.is_dir():
        return []
    return [path for path in sorted(root.glob("*.json")) if path.is_file() and not path.is_symlink()]


def _read(path: Path, source: str) -> Recipe:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise UsageError(f"{path}: a recipe has at most {FILE_BYTES_MAX} bytes")
    recipe = parse_recipe(path.stem, str(path), path.read_bytes())
    return Recipe(name=recipe.name, source=source, entry=recipe.entry, about=recipe.about)
