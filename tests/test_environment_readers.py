"""No process reads a variable of the environment whose name comes from a definition or a request.

The registry of secrets alone does (connectors/configuration/secret_registry.py). Here, because it is about all files.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READERS = frozenset({"environ", "environment", "_environ", "_environment", "environb"})
COMMANDS = ROOT / "services" / "cli"
"""A command runs with the environment of the person who gives it, and serves no request."""


def find_readers(source: str) -> list[int]:
    """Return the lines that read a variable whose name is not written there."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Subscript(value=place, slice=name, ctx=ast.Load()):
                pass
            case ast.Call(func=ast.Attribute(value=place, attr="get" | "pop" | "setdefault"), args=[name, *_]):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="getenv") as place, args=[name, *_]):
                pass
            case ast.Call(func=ast.Name(id="getenv") as place, args=[name, *_]):
                pass
            case _:
                continue
        is_environment = getattr(place, "attr", getattr(place, "id", "")) in READERS | {"getenv"}
        is_written = isinstance(name, ast.Constant) or (isinstance(name, ast.Name) and name.id.isupper())
        if is_environment and not is_written:
            lines.append(node.lineno)
    return sorted(lines)


def test_names_from_outside_are_resolved_by_the_registry_alone() -> None:
    files = [file for file in (ROOT / "services").rglob("*.py") if COMMANDS not in file.parents]
    readers = [f"{file.relative_to(ROOT)}:{line}" for file in files for line in find_readers(file.read_text())]
    assert len(files) > 300
    assert readers == []


@pytest.mark.parametrize(
    "source",
    [
        "os.environ[block.secret_env]",
        "os.environ.get(variable, '')",
        "self._environment.get(name)",
        "environ[f'KEY_{tenant}']",
        "os.getenv(hook.secret_env)",
        "getenv(name)",
    ],
)
def test_each_way_to_read_one_is_seen(source: str) -> None:
    assert find_readers(source) == [1]


@pytest.mark.parametrize("source", ["os.environ.get('HOME')", "os.environ[ENVIRONMENT]", "values.get(name)"])
def test_names_that_are_written_in_the_source_are_left_alone(source: str) -> None:
    assert find_readers(source) == []
