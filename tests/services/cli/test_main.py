import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from loomlog.services.cli.errors import UNREACHABLE
from loomlog.services.cli.main import COMMANDS, FAMILY_COMMANDS, WRITTEN_GROUPS, app, main
from loomlog.services.families.registry import all_families, all_operations


def test_the_help_names_every_command():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for name in (
        "up",
        "down",
        "status",
        "doctor",
        "review",
        "run",
        "runs",
        "pause",
        "resume",
        "state",
        "backup",
        "events",
        "replay",
        "audit",
        "projections",
        "topics",
    ):
        assert f" {name} " in shown, name


def commands_under(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if not child.hidden:
                yield from commands_under(child, (*path, name))
    else:
        yield " ".join(path), command


def test_every_command_that_ends_with_an_answer_has_json():
    """Others stay until Ctrl-C, print nothing but JSON, or write or print a file."""
    every = dict(commands_under(typer.main.get_command(app)))
    without = {name for name, one in every.items() if not any("--json" in option.opts for option in one.params)}
    assert without == {"call", "demo", "env-template", "init", "login", "logout", "presets show", "review", "ui", "up"}


def test_main_ends_the_process_with_the_exit_code(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["events", "get", "nowhere"])
    assert ended.value.code == 2
    assert "is no place in the log" in capsys.readouterr().err


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("loomlog ")


def test_importing_the_command_line_opens_nothing_and_starts_no_loop():
    program = (
        "import asyncio, socket\n"
        "def refused(*_, **__): raise AssertionError('opened at import')\n"
        "socket.socket.connect = refused\n"
        "asyncio.new_event_loop = refused\n"
        "import loomlog.services.cli.main\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("words", [("snapshot", "--help")])
def test_a_former_name_of_a_command_still_works_and_is_not_listed(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(words)).exit_code == 0
    assert words[-2] not in CliRunner().invoke(app, [*words[:-2], "--help"]).stdout.split()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_the_beginning_of_its_docstring(name):
    place, text = COMMANDS[name]
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    docs = command.info.help if isinstance(command, typer.Typer) else command.__doc__
    assert " ".join(docs.split()).startswith(text)


def test_the_help_lists_the_families_that_have_commands_without_importing_them():
    with_routes = {operation.family for operation in all_operations() if operation.http}
    listed = {
        family.name: family.summary
        for family in all_families()
        if family.name in with_routes and family.name not in WRITTEN_GROUPS
    }
    assert listed == FAMILY_COMMANDS


def test_the_help_has_no_type_of_a_flag_and_no_sentence_that_is_cut_short():
    for arguments in (["--help"], ["runs", "--help"], ["runs", "show", "--help"], ["channels", "publish", "--help"]):
        shown = CliRunner().invoke(app, arguments).stdout
        assert "Usage: " in shown
        assert not [word for word in ("<bool>", "[[", "...\n  ") if word in shown], shown


DRIVERS = ("aiokafka", "anthropic", "fastapi", "faust", "grpc", "psycopg", "sqlalchemy", "uvloop")
CONFIGURATION = ("yaml", "loomlog.connectors.configuration.model")
"""Only settings are read; the models of the YAML files take longer to build than these commands to run."""
CODEC = ("fastavro", "loomlog.schemas.codec", "loomlog.services.stream")
MUST_NOT_IMPORT: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("--help",): (*DRIVERS, *CONFIGURATION, *CODEC, "asyncio", "httpx", "pydantic", "rich"),
    ("status",): (*DRIVERS, *CONFIGURATION, *CODEC),
    ("status", "--help"): (*DRIVERS, *CONFIGURATION, *CODEC),
    ("runs", "ls"): (*DRIVERS, *CONFIGURATION, *CODEC),
    ("runs", "ls", "--help"): (*DRIVERS, *CONFIGURATION, *CODEC),
}
"""Commands with modules that would make them slow. Where a command has options Typer itself imports pydantic."""


@pytest.mark.parametrize("arguments", MUST_NOT_IMPORT, ids=" ".join)
def test_a_command_imports_nothing_heavy_that_it_does_not_use(arguments, tmp_path):
    code = (
        "import sys\nfrom loomlog.services.cli.main import main\n"
        f"try:\n    main({list(arguments)!r})\nexcept SystemExit as ended:\n    print('ENDED', ended.code)\n"
        f"print('IMPORTED', [name for name in {MUST_NOT_IMPORT[arguments]!r} if name in sys.modules])"
    )
    environ = {"PATH": os.environ["PATH"], "LOOMLOG_BASE_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environ)
    assert f"ENDED {0 if '--help' in arguments else UNREACHABLE}\nIMPORTED []" in ended.stdout, ended.stdout
