"""The files that a project begins with, and the token of its administrator."""

import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.auth_file import FILE, PEPPER, TOKEN, load_auth_file
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.main import app
from loomlog.services.cli.settings import load_cli_settings


def init(folder: Path, *options: str) -> tuple[int, str]:
    before = os.umask(0)  # the widest: the file is private whatever it is
    try:
        result = CliRunner().invoke(app, ["init", str(folder), *options])
    finally:
        os.umask(before)
    return result.exit_code, result.output


def test_a_token_is_written_once_for_the_owner_alone_and_is_in_no_output(tmp_path):
    code, output = init(tmp_path, "--with-token")
    assert code == 0, output
    file = tmp_path / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    environ: dict[str, str] = {}
    load_auth_file(tmp_path, environ)
    assert set(environ) == {TOKEN, PEPPER}
    assert environ[TOKEN].startswith("lct_")
    assert environ[TOKEN] != environ[PEPPER]
    assert not any(value in output for value in environ.values())
    content = file.read_bytes()
    code, output = init(tmp_path, "--with-token")
    assert code != 0
    assert "--force replaces it" in " ".join(output.split())
    assert file.read_bytes() == content
    assert init(tmp_path, "--with-token", "--force")[0] == 0
    assert file.read_bytes() != content


def test_a_project_gets_a_token_later_and_keeps_its_configuration(tmp_path):
    (tmp_path / "loomlog.yaml").write_text("agents: {}\n")
    assert init(tmp_path, "--with-token")[0] == 0
    assert (tmp_path / "loomlog.yaml").read_text() == "agents: {}\n"


def test_git_ignores_the_token(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / ".gitignore").write_text("*.pyc")
    for _ in range(2):
        assert init(tmp_path / "shop", "--with-token", "--force")[0] == 0
    assert (tmp_path / "shop" / ".gitignore").read_text() == f"*.pyc\n{FILE}\n"


def test_commands_of_the_folder_send_the_token_unless_the_environment_has_another(tmp_path, monkeypatch):
    init(tmp_path, "--with-token")
    monkeypatch.chdir(tmp_path)
    for name in (TOKEN, PEPPER, "LOOMLOG_TOKEN", "LOOMLOG_BASE_URL"):
        monkeypatch.setenv(name, "")  # so that what the command sets is undone
        monkeypatch.delenv(name)
    CliRunner().invoke(app, ["hash", "--help"])
    written = os.environ[TOKEN]
    assert load_cli_settings(os.environ, working_directory=tmp_path).token == written
    os.environ[TOKEN] = "another"
    CliRunner().invoke(app, ["hash", "--help"])
    assert os.environ[TOKEN] == "another"


def test_the_token_is_not_shown_to_an_installation_elsewhere(tmp_path):
    init(tmp_path, "--with-token")
    environ = {"LOOMLOG_BASE_URL": "https://loomlog.test"}
    load_auth_file(tmp_path, environ)
    assert set(environ) == {"LOOMLOG_BASE_URL"}


@pytest.mark.parametrize(
    ("content", "mode", "problem"),
    [
        (f"{TOKEN}=x\n", 0o640, "others may read it: chmod 600"),
        ("PATH=/tmp\n", 0o600, r"auth.env:1: expected LOOMLOG_AUTH_TOKEN="),
        (f"# mine\n\n{TOKEN}=\n", 0o600, r"auth.env:3: expected"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_replaced(tmp_path, content, mode, problem):
    (tmp_path / FILE).write_text(content)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(UsageError, match=problem):
        load_auth_file(tmp_path, {})
    assert init(tmp_path, "--with-token", "--force")[0] == 0
    load_auth_file(tmp_path, {})
