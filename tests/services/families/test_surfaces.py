"""What a process offers follows from the registry: a family in it is everywhere, one that is not is nowhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from loomlog.services.families.registry import ENVIRONMENT

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json
import typer
from loomlog.services.api.openapi import build_document
from loomlog.services.api.routes import ROUTES
from loomlog.services.cli.main import app
from loomlog.services.families.registry import all_families, all_tools
from tests.lint.references import families_page

group = typer.main.get_command(app)
document = build_document("1")
print(json.dumps({
    "routes": sorted(f"{route.method} {route.path}" for route in ROUTES),
    "schemas": sorted(document["components"]["schemas"]),
    "tags": [tag["name"] for tag in document["tags"]],
    "commands": group.list_commands(typer.Context(group)),
    "tools": sorted(tool.name for tool in all_tools()),
    "page": [line for line in families_page(all_families()) if line.startswith("## ")],
}))
"""


def offered(families: str) -> dict[str, list[str]]:
    environ = {**os.environ, ENVIRONMENT: families}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environ, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    surfaces: dict[str, Any] = json.loads(done.stdout)
    return surfaces


def test_a_family_in_the_registry_is_in_every_surface_and_without_it_the_rest_stays_as_it_was() -> None:
    with_counter, without = offered("tests.services.entities"), offered("")
    added = {kind: [one for one in names if one not in without[kind]] for kind, names in with_counter.items()}
    assert added == {
        "routes": [
            "GET /v1/_counter",
            "GET /v1/_counter/remaining",
            "GET /v1/_counter/show",
            "POST /v1/_counter/increment",
        ],
        "schemas": [
            "CounterIncrementBody",
            "CounterIncrementReply",
            "CounterRemainingAnswer",
        ],
        "tags": ["Counter"],
        "commands": ["counter"],
        "tools": ["Counter"],
        "page": ["## counter\n"],
    }
    for kind, names in without.items():
        assert [one for one in with_counter[kind] if one not in added[kind]] == names, kind
