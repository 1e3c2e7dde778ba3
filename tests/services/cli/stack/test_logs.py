import json

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.main import app
from loomlog.services.cli.stack import logs


def line(second, message, **fields):
    at = f"2026-11-23T10:00:{second:02d}.000+00:00"
    return json.dumps({"at": at, "level": "info", "logger": "x", "message": message} | fields) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOMLOG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "logs").mkdir()
    run_id = "r_24zns3xqfgtkxq24k8v1r1g2p5"
    runtime = line(1, "began") + line(3, "call failed", level="warning", run_id=run_id) + "half a li"
    (tmp_path / "logs" / "runtime.log").write_text(runtime)
    (tmp_path / "logs" / "api.log").write_text(line(2, "ready") + "plain text\n")
    (tmp_path / "logs" / "kafka.log").write_text("[2026-11-23 10:00:00] INFO broker\n")
    return tmp_path / "logs"


def shown(*arguments):
    result = CliRunner().invoke(app, ["logs", *arguments])
    assert result.exit_code == 0, result.output
    return [one.split(maxsplit=1)[1] for one in result.stdout.splitlines()]


def test_lines_of_all_our_services_are_merged_by_time(folder):
    timed = [one for one in shown() if "plain" not in one and "text" not in one]
    assert [" ".join(one.split()) for one in timed] == ["runtime began", "api ready", "runtime call failed"]


def test_lines_are_chosen_by_service_run_level_and_number(folder):
    assert "call failed" in shown("--run", "r_24zns3xqfgtkxq24k8v1r1g2p5")[0]
    assert len(shown("--run", "r_24zns3xqfgtkxq24k8v1r1g2p5")) == 1
    assert len(shown("runtime", "--level", "warning")) == 1
    assert len(shown("runtime", "-n", "1")) == 1
    assert len(shown("runtime", "--since", "2026-11-23T10:00:02Z")) == 1
    assert "broker" in CliRunner().invoke(app, ["logs", "kafka"]).stdout


def test_as_json_the_lines_are_those_of_the_files(folder):
    result = CliRunner().invoke(app, ["logs", "runtime", "--json"])
    assert [json.loads(one)["message"] for one in result.stdout.splitlines()] == ["began", "call failed"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothing"], 4, "there are: api, kafka, runtime"),
        (["--level", "loud"], 2, "expected one of debug, info"),
        (["--since", "yesterday"], 2, "--since is 'yesterday'"),
    ],
)
def test_a_wrong_use_is_refused(folder, arguments, code, text):
    result = CliRunner().invoke(app, ["logs", *arguments])
    assert result.exit_code == code
    assert text in result.stderr


def test_following_shows_what_comes_also_after_a_truncation(folder, monkeypatch):
    path, steps = folder / "runtime.log", iter(("append", "truncate", "end"))

    def wait(_):
        match next(steps):
            case "append":
                path.write_text(path.read_text().replace("half a li", line(4, "added").rstrip() + "\n"))
            case "truncate":
                path.write_text(line(5, "after"))
            case "end":
                raise KeyboardInterrupt

    monkeypatch.setattr(logs.time, "sleep", wait)
    result = CliRunner().invoke(app, ["logs", "runtime", "--follow"])
    assert [one.split()[-1] for one in result.stdout.splitlines()] == ["began", "failed", "added", "after"]
