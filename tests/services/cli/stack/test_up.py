import errno
import json
import os

from typer.testing import CliRunner

from loomlog.services.cli.main import app
from loomlog.services.cli.stack import home, up
from loomlog.services.cli.stack.errors import StackError
from tests.services.cli.places import child, configured, settings_in, with_stack


def test_down_where_nothing_is_says_so_and_makes_nothing(tmp_path):
    result = CliRunner().invoke(app, ["down"], env={"LOOMLOG_HOME": str(tmp_path / "home")})
    assert (result.exit_code, result.stdout) == (0, f"Nothing runs: there is no state folder {tmp_path / 'home'}.\n")
    assert not (tmp_path / "home").exists()


def test_down_in_a_folder_where_nothing_runs_is_fine(tmp_path):
    (tmp_path / "home").mkdir()
    result = CliRunner().invoke(app, ["down"], env={"LOOMLOG_HOME": str(tmp_path / "home")})
    assert (result.exit_code, result.stdout) == (0, f"Nothing was running in {tmp_path / 'home'}.\n")


def test_down_with_json_prints_one_document(tmp_path):
    result = CliRunner().invoke(app, ["down", "--json"], env={"LOOMLOG_HOME": str(tmp_path / "home")})
    assert json.loads(result.stdout) == {"home": str(tmp_path / "home"), "stopped": False, "took_s": 0.0}


def test_down_asks_for_no_space(tmp_path, monkeypatch):
    def full(**options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(home.tempfile, "TemporaryFile", full)
    (tmp_path / "home").mkdir()
    result = CliRunner().invoke(app, ["down"], env={"LOOMLOG_HOME": str(tmp_path / "home")})
    assert (result.exit_code, result.stdout) == (0, f"Nothing was running in {tmp_path / 'home'}.\n")


def test_up_while_a_stack_runs_is_refused(tmp_path, monkeypatch):
    running = with_stack(settings_in(tmp_path), child("api"))
    monkeypatch.setattr(up, "current_settings", lambda: running)
    for arguments in (["up"], ["up", "--detach"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        assert "A stack is running" in result.stderr


def test_a_problem_of_the_stack_is_a_sentence(tmp_path, monkeypatch):
    configured(tmp_path)
    monkeypatch.chdir(tmp_path)

    def full(cli, made, steps):
        raise StackError("The disk is full.")

    monkeypatch.setattr(up, "foreground_stack", full)
    environ = {
        "LOOMLOG_HOME": str(tmp_path / "home"),
        "LOOMLOG_LISTEN_ADDR": "127.0.0.1:0",
        "LOOMLOG_INSIGHTS_ENABLED": "0",
    }
    result = CliRunner().invoke(app, ["up"], env=environ)
    assert (result.exit_code, result.stderr) == (1, "The disk is full.\n")


async def test_what_an_earlier_stack_left_running_is_stopped_before_ports_are_looked_at(tmp_path, monkeypatch):
    configured(tmp_path)
    order: list[str] = []

    async def stop(home, say):
        order.append("stopped")
        return True

    def planned(*_, **__):
        order.append("planned")

    monkeypatch.setattr(up, "stop_stack", stop)
    monkeypatch.setattr(up, "create_plan", planned)
    half_dead = with_stack(settings_in(tmp_path), child("api"), supervised=False)
    await up.prepare_plan(half_dead, _Quiet())
    assert order == ["stopped", "planned"]


class _Quiet:
    def report(self, what: str) -> None:
        """Nobody listens."""
