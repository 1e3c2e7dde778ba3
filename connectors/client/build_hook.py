"""Build hook of the distribution loomlog-client: the modules of this repository under its own package name.

`loomlog.connectors.client` becomes `loomlog_client`, `loomlog.schemas` becomes `loomlog_client.schemas`: an application
that also installs loomlog has no file twice.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "loomlog_client"
NAMES = (
    (r"\bloomlog\.connectors\.client\b", PACKAGE),
    (r"\bloomlog\.connectors\.http\.sse\b", f"{PACKAGE}.sse"),
    (r"\bloomlog\.schemas\b", f"{PACKAGE}.schemas"),
)
LEFT_OUT = frozenset({"build_hook.py", "generate.py"})


class ClientBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the renamed modules to a temporary folder and includes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        client = Path(self.root)
        repository = client.parents[1]
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name)
        modules = {path: path.name for path in client.glob("*.py")}
        modules[repository / "connectors/http/sse.py"] = "sse.py"
        for pattern in ("*.py", "generated/*.py", "ids.json", "released/**/*.avsc"):
            schemas = repository / "schemas"
            modules |= {path: f"schemas/{path.relative_to(schemas)}" for path in schemas.glob(pattern)}
        for source, name in modules.items():
            if source.name not in LEFT_OUT:
                file = target / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(_renamed(source.read_text()) if source.suffix == ".py" else source.read_text())
                build_data["force_include"][str(file)] = f"{PACKAGE}/{name}"
        (target / "py.typed").touch()
        build_data["force_include"][str(target / "py.typed")] = f"{PACKAGE}/py.typed"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()


def _renamed(source: str) -> str:
    for name, replacement in NAMES:
        source = re.sub(name, replacement, source)
    return source
