import subprocess
import sys

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.main import app, main

READS = (
    ("status",),
    ("doctor",),
    ("runs", "ls"),
    ("runs", "show"),
    ("runs", "follow"),
    ("events", "tail"),
    ("events", "get"),
    ("state",),
    ("backup", "ls"),
    ("replay",),
    ("audit", "verify"),
    ("projections", "lag"),
)


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


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_every_read_has_json(command):
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "--json" in result.stdout


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


@pytest.mark.parametrize("words", [("snapshot", "--help"), ("limits", "begin-anew", "--help")])
def test_a_former_name_of_a_command_still_works_and_is_not_listed(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(words)).exit_code == 0
    assert words[-2] not in CliRunner().invoke(app, [*words[:-2], "--help"]).stdout.split()
