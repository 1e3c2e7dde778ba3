"""The state as a file on the command line, over a whole API in this process."""

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.services.cli.admin import backups
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.http import requests
from loomlog.services.cli.http.api import ApiClient
from tests.services.api.serving import Served, served
from tests.services.cli.admin.test_pauses import invoke
from tests.services.cli.fake_api import FakeApi, Scripted, let_commands_use, refused

DESCRIBED = {
    "id": "snap_1_0123abcd",
    "created_at": "2026-01-01T00:00:00Z",
    "label": "nightly",
    "tenant": None,
    "runs": 3,
    "live_runs": 1,
    "byte_size": 2048,
    "positions": ["loom.run.events/0:7", "loom.run.events/1:9"],
    "warnings": [],
}
RESTORED = {
    "dry_run": False,
    "runs_restored": 2,
    "runs_continued": 1,
    "runs_skipped": 1,
    "runs_failed": 0,
    "runs_sealed": 0,
    "events_restored": 9,
    "pauses_restored": 1,
    "limits_restored": 0,
    "blobs_restored": 0,
    "warnings": [],
    "positions": ["loom.entity.events/0:3", "loom.run.events/1:9"],
}


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    (tmp_path / "here").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(served(tmp_path / "here"))

        def api_of_here() -> ApiClient:
            return ApiClient("http://test", "shared-token", transport=made.client()._transport)

        let_commands_use(monkeypatch, api_of_here)
        yield made


async def made_of(here: Served) -> str:
    await here.run()
    async with requests.open_api() as api:
        return str((await api.post(backups.BACKUPS_PATH, {})).value["id"])


def test_creating_one_says_what_is_in_it_and_up_to_where(fake: FakeApi) -> None:
    fake.answers["POST", "/v1/_snapshots"] = Scripted(body=DESCRIBED)
    result = invoke("backup", "create", "--tenant", "acme", "--label", "nightly")
    assert fake.bodies("/v1/_snapshots") == [{"include_history": True, "tenant": "acme", "label": "nightly"}]
    assert result.stdout.splitlines() == [
        "Backup snap_1_0123abcd  3 runs, 1 under way, 2.0 KiB",
        "State up to loom.run.events/0:7, loom.run.events/1:9",
    ]


def test_aggregates_of_other_families_are_counted_where_there_are_any(fake: FakeApi) -> None:
    fake.answers["POST", "/v1/_snapshots"] = Scripted(body=DESCRIBED | {"aggregates": 2, "aggregate_events": 9})
    assert "3 runs, 1 under way, 2 aggregates of other families, 2.0 KiB" in invoke("backup", "create").stdout
    counts = {
        "aggregates_restored": 2,
        "aggregates_skipped": 3,
        "aggregates_failed": 1,
        "aggregate_events_restored": 9,
    }
    fake.answers["POST", "/v1/_snapshots/snap_1_0123abcd/restore"] = Scripted(body=RESTORED | counts)
    result = invoke("backup", "restore", "snap_1_0123abcd")
    line = "Restored 2 aggregates of other families, 9 events; 3 existed already, 1 could not be restored"
    assert (result.exit_code, line in result.stdout) == (1, True)


def test_the_list_names_them(fake: FakeApi) -> None:
    fake.answers["GET", "/v1/_snapshots"] = Scripted(body={"entries": [DESCRIBED]})
    assert invoke("backup", "ls").stdout.splitlines()[1].split()[:4] == [
        "snap_1_0123abcd",
        "2026-01-01T00:00:00Z",
        "all",
        "3",
    ]
    assert json.loads(invoke("backup", "ls", "--json").stdout) == {"entries": [DESCRIBED]}


def test_a_restore_shows_every_position_it_wrote(fake: FakeApi) -> None:
    fake.answers["POST", "/v1/_snapshots/snap_1_0123abcd/restore"] = Scripted(body=RESTORED)
    result = invoke("backup", "restore", "snap_1_0123abcd")
    assert result.stdout.splitlines() == [
        "Restored 2 runs (1 continue here), 9 events, 1 pause, 0 limits, 0 payloads; 1 run existed already",
        "event loom.entity.events/0:3",
        "event loom.run.events/1:9",
    ]
    fake.answers["POST", "/v1/_snapshots/snap_1_0123abcd/restore"] = Scripted(
        body={**RESTORED, "runs_failed": 1, "warnings": ["r_x is not restored: taken"]}
    )
    failed = invoke("backup", "restore", "snap_1_0123abcd", "--dry-run")
    assert (failed.exit_code, "r_x is not restored: taken" in failed.stdout) == (1, True)
    assert fake.bodies("/v1/_snapshots/snap_1_0123abcd/restore")[1] == {
        "dry_run": True, "sealed": False, "in_clear": False
    }  # fmt: skip
    fake.answers["POST", "/v1/_snapshots/snap_1_0123abcd/restore"] = Scripted(body={**RESTORED, "runs_sealed": 2})
    sealed = invoke("backup", "restore", "snap_1_0123abcd", "--sealed")
    assert (sealed.exit_code, "2 runs cannot be read here: keys are missing or erased" in sealed.stdout) == (0, True)
    assert fake.bodies("/v1/_snapshots/snap_1_0123abcd/restore")[2] == {
        "dry_run": False, "sealed": True, "in_clear": False
    }  # fmt: skip
    invoke("backup", "restore", "snap_1_0123abcd", "--in-clear")
    assert fake.bodies("/v1/_snapshots/snap_1_0123abcd/restore")[3]["in_clear"] is True


def test_what_is_no_file_and_no_id_is_wrong_use(fake: FakeApi) -> None:
    result = invoke("backup", "restore", "nowhere.gz")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "neither a local file nor the id" in result.stderr


@pytest.mark.parametrize("command", ["export", "rm"])
def test_an_id_that_would_be_another_route_is_wrong_use(fake: FakeApi, command: str) -> None:
    result = invoke("backup", command, "../x")
    assert (result.exit_code, fake.asked) == (2, [])
    assert "../x is not the id of a backup" in result.stderr


def test_one_is_removed(fake: FakeApi) -> None:
    fake.answers["DELETE", "/v1/_snapshots/snap_1_0123abcd"] = Scripted()
    assert invoke("backup", "rm", "snap_1_0123abcd").exit_code == 0
    removed = json.loads(invoke("backup", "rm", "snap_1_0123abcd", "--json").stdout)
    assert removed == {"backup_id": "snap_1_0123abcd", "removed": True}
    fake.answers["DELETE", "/v1/_snapshots/snap_1_0123abcd"] = refused(403, "insufficient_scope", "admin only")
    assert invoke("backup", "rm", "snap_1_0123abcd").exit_code == 1


async def test_an_export_is_checked_and_restores(here: Served, tmp_path: Path) -> None:
    snapshot_id = await made_of(here)
    path = tmp_path / "state.gz"
    state = await backups._download_backup(snapshot_id, path)
    assert (state.runs, state.events, sorted(p.name for p in tmp_path.glob("state*"))) == (1, 4, ["state.gz"])
    answer = await backups._restore_file(path, {"dry_run": True})
    assert answer.value["runs_skipped"] == 1


async def test_an_export_that_breaks_off_leaves_no_file(
    here: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot_id = await made_of(here)
    content = (await here.client().get(f"/v1/_snapshots/{snapshot_id}/export?format=gzip")).content

    async def half(self: ApiClient, path: str, to: Path) -> Any:
        to.write_bytes(gzip.compress(gzip.decompress(content)[:-20]))

    monkeypatch.setattr(ApiClient, "download", half)
    with pytest.raises(CliError, match="did not arrive whole"):
        await backups._download_backup(snapshot_id, tmp_path / "state.gz")
    assert list(tmp_path.glob("state*")) == []
