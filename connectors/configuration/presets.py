"""Presets: layers that come with the program, chosen by name in LOOMLOG_PRESETS.

Each is a file of the folder beside this one, written as any configuration is; its first comment line says what it is
for. They lie on top of the built-in providers and below every file of the installation, in the order in which they are
named. Keys are not in them, only the names of variables.

Before: layers.py. After: the views of the API and the command line show them.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("presets")
KIND = "preset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A layer by name. `content` is its YAML."""

    name: str
    description: str
    path: Path
    content: str


@cache
def load_presets() -> dict[str, Preset]:
    """All of them by name. Reads a few small files once."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        content = path.read_text()
        description = content.split("\n", 1)[0].removeprefix("#").strip()
        found[path.stem] = Preset(name=path.stem, description=description, path=path, content=content)
    return found
