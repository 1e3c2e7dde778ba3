"""The commands for a run's past, over the real API in this process: what they ask for, show and write."""

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from rich.console import Console

from loomlog.services.cli.errors import CliError, UsageError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.log import replay as replay_command
from loomlog.services.cli.runs import history, runs
from loomlog.services.cli.terminal.output import Terminal
from loomlog.services.cli.terminal.state_text import print_state
from loomlog.services.stream.archive.bundle_replay import replay_bundle
from tests.services.api.serving import Served, served
from tests.services.cli.fake_api import let_commands_use


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:

        def client() -> ApiClient:
            return ApiClient("http://test", "shared-token", transport=httpx.ASGITransport(app=made.app))

        let_commands_use(monkeypatch, client)
        let_commands_use(monkeypatch, client)
        yield made


async def run_id(here: Served, **more: Any) -> str:
    return str((await here.run(**more))[1].data["run_id"])


def out() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Terminal(file=file, width=200), file


async def forked(run: str, capsys: pytest.CaptureFixture[str], at: int, **body: Any) -> dict[str, Any]:
    await history._start_fork(run, {"at": at, **body}, "key-1", should_follow=False, as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


async def test_a_run_is_shown_as_it_was(here: Served) -> None:
    run = await run_id(here)
    console, text = out()
    print_state(console, await runs._get_state(run, 2))
    shown = text.getvalue()
    assert f"{run}  at 2 of 4  ModelCallRequested" in shown
    assert "status      running, awaiting model, turn 1" in shown
    assert "> go" in shown
    assert "ok" not in shown.split("> go")[1]
    assert f"loomlog runs fork {run} --at 2`" in shown
    console, text = out()
    print_state(console, await runs._get_state(run, 4))
    assert "completed, ended (end_turn)" in text.getvalue()
    assert "--at 4 --prompt ...`" in text.getvalue()


async def test_a_fork_tells_its_ids_and_the_position_it_wrote(here: Served, capsys: pytest.CaptureFixture[str]) -> None:
    run = await run_id(here)
    found = await forked(run, capsys, 4, prompt="again")
    assert found["forked_from"] == {"run_id": run, "seq": 4}
    assert found["position"].startswith("loom.run.events/")
    console, text = out()
    print_state(console, await runs._get_state(found["run_id"], 1))
    assert "-- from here on its own" in text.getvalue()
    assert f"forked      from {run} at 4" in text.getvalue()
    assert (await forked(run, capsys, 4, prompt="again"))["run_id"] == found["run_id"]


async def test_two_runs_are_compared(here: Served, capsys: pytest.CaptureFixture[str]) -> None:
    run = await run_id(here)
    fork = await forked(run, capsys, 4, prompt="again", overrides=history.parse_overrides(["model=tiny"]))
    found = await history._get_diff(run, fork["run_id"], None, None)
    console, text = out()
    history._print_diff(console, found, include_equal=False)
    shown = text.getvalue()
    assert "model    mock-generic" in shown
    assert "2 of 4 steps are equal; the first difference is step 2: only in one." in shown
    assert "user: again" in shown
    assert "user: go" not in shown
    console, text = out()
    history._print_diff(console, found, include_equal=True)
    assert "user: go" in text.getvalue()
    console, text = out()
    history._print_diff(console, await history._get_diff(run, run, None, None), include_equal=False)
    assert "The runs are equal" in text.getvalue()


async def test_an_export_is_replayed_before_it_gets_its_name(here: Served, tmp_path: Path) -> None:
    run = await run_id(here)
    path, found = await history._download_export(run, tmp_path / "one.gz", force=False)
    assert (found.drift, found.replayed.seq) == ((), 4)
    assert replay_bundle(io.BytesIO(path.read_bytes())).drift == ()
    assert list(tmp_path.glob("*.part")) == []
    with pytest.raises(UsageError, match="--force"):
        await history._download_export(run, path, force=False)
    await history._download_export(run, path, force=True)


async def test_an_export_that_breaks_off_leaves_no_file(
    here: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await run_id(here)

    async def half(api: ApiClient, path: str, to: Path) -> None:
        to.write_bytes((await api.http.get(path)).content[:-20])

    monkeypatch.setattr(ApiClient, "download", half)
    with pytest.raises(CliError, match="did not arrive whole"):
        await history._download_export(run, tmp_path / "one.gz", force=False)
    assert list(tmp_path.glob("one.gz*")) == []


async def test_a_file_is_replayed_without_anything_else(
    here: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await run_id(here)
    path, found = await history._download_export(run, tmp_path / "one.gz", force=False)
    report = replay_command._replay_file(path, 0)
    assert (report.drift, report.source, report.compared_with) == ((), str(path), "the bundle")
    assert report.replayed.state_sha256 == found.replayed.state_sha256
    replay_command.replay_run(str(path), to_seq=2, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["seq"], shown["source"], shown["drift"]) == (2, str(path), [])
    with pytest.raises(CliError, match="there is no seq 9 yet"):
        replay_command._replay_file(path, 9)
    path.write_bytes(b"something else")
    with pytest.raises(CliError, match="cannot be replayed"):
        replay_command._replay_file(path, 0)


def test_settings_are_told_as_pairs() -> None:
    assert history.parse_overrides(["model=gpt=4", "temperature=0.5", "tools=Read, Grep", "max_tokens=100"]) == {
        "model": "gpt=4",
        "temperature": 0.5,
        "tools": ["Read", "Grep"],
        "max_tokens": 100,
    }
    assert history.parse_overrides(["system_prompt=1"]) == {"system_prompt": "1"}
    assert history.parse_overrides(['stop=["a,b"]', "tools="]) == {"stop": ["a,b"], "tools": []}
    assert history.parse_overrides([]) is None


@pytest.mark.parametrize("setting", ["model", "=x", ""])
def test_what_is_no_pair_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match="NAME=VALUE"):
        history.parse_overrides([setting])
