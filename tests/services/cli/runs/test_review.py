import io
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.main import app
from loomlog.services.cli.runs import review
from loomlog.services.cli.stack.foreground import StepLog
from loomlog.services.cli.stack.plan import ReviewFolders, create_plan
from loomlog.services.cli.terminal.output import Terminal
from tests.services.cli.fake_api import FakeApi, frame, frames, row
from tests.services.cli.places import CONFIGURATION, child, configured, settings_in, wiring, with_stack

DONE = frame("done", {"type": "done", "stop_reason": "end_turn"}, 1024)
REPORT = (
    "# Code review\n\n2 findings.\n\n- `services/api/main.py:12` `x`\n- `a.sh:3` `y`\n- `a.sh:3` `again`\n"
    + "line\n" * 30
)


def planned(folder: Path, text: str = CONFIGURATION, **environ: str):
    configured(folder, text)
    free = {"LOOMLOG_LISTEN_ADDR": "127.0.0.1:0", "LOOMLOG_INSIGHTS_PORT": "0"}
    return create_plan(settings_in(folder, **{**free, **environ}), working_directory=folder)


class Job:
    """One review against a fake API, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders = ReviewFolders(source=folder / "project", out=folder / "reports")
        self.folders.out.mkdir()
        self.fake = FakeApi()
        self.fake.streams.append(frames(DONE))
        self.fake.rows["r_1"] = row()
        self.file = io.StringIO()
        self._cli = settings_in(folder)
        monkeypatch.setattr(review, "ApiClient", lambda url, token: self.fake.client(token))

    async def run(self) -> int:
        out = Terminal(file=self.file, force_terminal=False)
        return await review._run_review(self._cli, "http://api.test", self.folders, StepLog(out, lambda: 0.0), out)

    @property
    def shown(self) -> str:
        return self.file.getvalue()


@pytest.fixture
def job(tmp_path, monkeypatch) -> Job:
    return Job(tmp_path, monkeypatch)


def writes_report(job: Job, text: str = REPORT) -> None:
    """The fake agent: the report is there once the run is over."""

    def ended(request):
        (job.folders.out / "report.md").write_text(text)
        return row()

    job.fake.pages["/v1/runs/r_1"] = ended


async def test_a_review_ends_with_0_and_shows_where_the_report_is_and_how_it_begins(job):
    writes_report(job)
    assert await job.run() == 0
    assert job.fake.bodies("/v1/runs")[0]["agent"] == "reviewer"
    assert "folder project" in job.fake.bodies("/v1/runs")[0]["prompt"]
    assert "  # Code review\n" in job.shown
    assert "and 21 more lines" in job.shown
    assert f"Report    {job.folders.out / 'report.md'}  names 2 places" in job.shown
    assert "loomlog replay r_1" in job.shown


async def test_a_run_that_failed_is_1_with_its_reason(job):
    job.fake.rows["r_1"] = row(status="failed", error="anthropic 401: bad key", stop_reason=None)
    assert await job.run() == 1
    assert "The review failed: anthropic 401: bad key" in job.shown


async def test_a_quarantined_review_is_said_as_such(job):
    job.fake.rows["r_1"] = row(status="running", quarantined=True, quarantine_error="bad record")
    assert await job.run() == 1
    assert "The review is quarantined: bad record" in job.shown


async def test_a_review_without_a_report_is_1(job):
    assert await job.run() == 1
    assert "was not written" in job.shown


async def test_the_report_of_an_earlier_review_is_not_taken_for_this_one(job):
    (job.folders.out / "report.md").write_text("# Old\n")
    assert await job.run() == 1
    assert "# Old" not in job.shown


async def test_a_report_with_escapes_does_not_control_the_terminal(job):
    writes_report(job, "# x\x1b[2J\n")
    assert await job.run() == 0
    assert "\x1b" not in job.shown


def test_which_model_will_do_it_is_told(tmp_path):
    assert review._describe_model(planned(tmp_path)).startswith(
        "model: mock/mock-reviewer, a script; with ANTHROPIC_API_KEY"
    )
    real = CONFIGURATION.replace("provider: mock, model: mock-reviewer", "provider: anthropic, model: claude-x")
    assert review._describe_model(planned(tmp_path, real, ANTHROPIC_API_KEY="k" * 20)) == "model: anthropic/claude-x"


def test_a_review_nobody_could_do_does_not_begin(tmp_path):
    real = CONFIGURATION.replace("provider: mock, model: mock-reviewer", "provider: anthropic, model: claude-x")
    with pytest.raises(UsageError, match="cannot begin: agent reviewer: no model is available"):
        review._describe_model(planned(tmp_path, real))
    without = CONFIGURATION.replace("reviewer:", "writer:")
    with pytest.raises(UsageError, match="no agent `reviewer`"):
        review._describe_model(planned(tmp_path, without))


@pytest.fixture
def running(tmp_path, monkeypatch):
    """Settings over a stack that runs with the folders src and results."""
    cli = with_stack(settings_in(tmp_path), child("api"), known=wiring(tmp_path))
    monkeypatch.setattr(review, "current_settings", lambda: cli)
    return cli


def steps() -> StepLog:
    return StepLog(Terminal(file=io.StringIO()), lambda: 0.0)


async def test_a_running_stack_with_the_same_folder_is_used(running, tmp_path):
    found, folders = await review._join_running_stack(running, tmp_path / "src", None, steps())
    assert found is running
    assert folders == ReviewFolders(source=tmp_path / "src", out=tmp_path / "results")
    same = await review._join_running_stack(running, tmp_path / "src", tmp_path / "results", steps())
    assert same[1] == folders


@pytest.mark.parametrize(("source", "into"), [("other", None), ("src", "other")])
async def test_a_running_stack_with_other_folders_is_not_changed(running, tmp_path, source, into):
    with pytest.raises(CliError, match=r"agents see .*src as `source`.*loomlog down.*LOOMLOG_HOME"):
        await review._join_running_stack(running, tmp_path / source, tmp_path / into if into else None, steps())


async def test_a_running_stack_without_a_folder_for_the_report_cannot_be_used(running, tmp_path):
    without = replace(running, services_record=wiring(tmp_path, out=""))
    with pytest.raises(CliError, match="write to no folder"):
        await review._join_running_stack(without, tmp_path / "src", None, steps())


async def test_a_stack_that_is_starting_is_waited_for(running, tmp_path):
    starting = replace(running, services_record=None)
    found, _ = await review._join_running_stack(starting, tmp_path / "src", None, steps())
    assert found is running


async def test_a_stack_that_stays_incomplete_is_said(tmp_path, monkeypatch):
    starting = with_stack(settings_in(tmp_path), child("api"))
    monkeypatch.setattr(review, "current_settings", lambda: starting)
    monkeypatch.setattr(review, "STARTING_TIMEOUT_S", 0.01)
    with pytest.raises(CliError, match=r"was not complete within 0\.01 s"):
        await review._join_running_stack(starting, tmp_path, None, steps())


def test_what_is_no_folder_is_a_wrong_use(tmp_path):
    environ = {"LOOMLOG_HOME": str(tmp_path / "home")}
    (tmp_path / "file").touch()
    for name, said in (("nothing", "There is no folder"), ("file", "is not a folder")):
        result = CliRunner().invoke(app, ["review", str(tmp_path / name)], env=environ)
        assert result.exit_code == 2
        assert said in result.stderr


def test_a_link_to_a_folder_is_the_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert review._require_folder(tmp_path / "link") == tmp_path / "real"
