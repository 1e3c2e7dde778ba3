"""Presets: layers that are shipped with the program, chosen by name in LOOMLOG_PRESETS.

Each is a configuration file in the folder next to this module; its first comment line is its description. They override
the built-in providers and are overridden by every file of the installation, in the order in which they are named. They
contain no keys, only the names of variables.

Before: layers.py. After: the views of the API and the command line show them.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("presets")
KIND = "preset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Named layer. `content` is its YAML."""

    name: str
    description: str
    path: Path
    content: str


@cache
def load_presets() -> dict[str, Preset]:
    """Return all presets by name. Reads a few small files once."""
    presets = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        content = path.read_text()
        description = content.split("\n", 1)[0].removeprefix("#").strip()
        presets[path.stem] = Preset(name=path.stem, description=description, path=path, content=content)
    return presets
