"""Every command line in the documentation names a command and options that exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.core

from loomlog.services.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLE_FAMILIES = frozenset({"counter", "document"})
COMMAND = re.compile(r"(?:^|[`(]|\| |&& |sleep )(loomlog [a-z][^`|#);\n]*)", re.MULTILINE)


def command_lines(page: Path) -> list[str]:
    """Command lines in code blocks and code spans."""
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"```\w*\n(.*?)```|^    (.*)$|`([^`\n]+)`", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for parts in code for part in parts for line in part.splitlines()]
    return [re.split(r"\s{2,}", found.strip())[0] for line in lines for found in COMMAND.findall(line)]


def problem(line: str) -> str:
    """Return what is wrong with a command line; empty when nothing is."""
    command: Any = typer.main.get_command(app)
    try:
        words = shlex.split(line)[1:]
    except ValueError:
        words = line.split()[1:]
    while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith(("-", "[", "…")):
        name = words.pop(0)
        if name in EXAMPLE_FAMILIES:
            return ""  # tests/acceptance/test_families.py gives their commands
        if (child := command.get_command(typer.Context(command), name)) is None:
            return f"there is no command {name}"
        command = child
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    unknown = [
        word
        for word in words
        if re.fullmatch(r"--[a-z-]+", word.partition("=")[0]) and word.partition("=")[0] not in known
    ]
    return f"there is no option {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_of_a_page_exists(page: Path) -> None:
    wrong = {line: problem(line) for line in command_lines(page)}
    assert {line: found for line, found in wrong.items() if found} == {}


def test_a_command_line_that_does_not_exist_is_noticed() -> None:
    assert problem("loomlog runs shwo RUN") == "there is no command shwo"
    assert problem("loomlog runs fork RUN --att 3") == "there is no option --att"
    assert len(command_lines(ROOT / "docs" / "HOWTO.md")) > 20
