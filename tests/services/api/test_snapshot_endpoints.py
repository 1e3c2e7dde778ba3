"""State files over HTTP: the shapes of the reference, one document in every form, and who may."""

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from loomlog.schemas.generated.run_commands import ImportRun
from tests.services.api.serving import Served, served

SNAPSHOTS = "/v1/_snapshots"


@pytest_asyncio.fixture(loop_scope="session")
async def two(tmp_path: Path) -> AsyncIterator[tuple[Served, Served]]:
    """Where it happened, and the other one."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        there = await stack.enter_async_context(served(tmp_path / "there"))
        yield there, await stack.enter_async_context(served(tmp_path / "here"))


async def created(there: Served, **body: Any) -> Any:
    answer = await there.client().post(SNAPSHOTS, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_snapshot_is_described_and_listed(two: tuple[Served, Served]) -> None:
    there, _ = two
    await there.run()
    made = await created(there, label="before the upgrade")
    assert made["id"].startswith("snap_")
    assert (made["label"], made["schema_version"], made["runs"], made["live_runs"]) == ("before the upgrade", 4, 1, 0)
    assert made["byte_size"] > 0
    assert made["created_at"].endswith("Z")
    assert all(position.startswith("loom.run.events/") for position in made["positions"])
    assert (await there.client().get(SNAPSHOTS)).json() == {"entries": [made]}


async def test_an_export_is_a_download_of_the_same_content_in_every_form(two: tuple[Served, Served]) -> None:
    there, _ = two
    await there.run()
    made = await created(there)
    path = f"{SNAPSHOTS}/{made['id']}"
    whole = (await there.client().get(path)).json()
    content = whole.pop("json_content")
    assert whole == made
    assert content["sections"]["runs"]["version"] == 1
    zipped = await there.client().get(f"{path}/export", headers={"accept-encoding": "gzip"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert f'attachment; filename="{made["id"]}.json"' == zipped.headers["content-disposition"]
    plain = await there.client().get(f"{path}/export", headers={"accept-encoding": "identity, gzip;q=0"})
    assert "content-encoding" not in plain.headers
    kept = await there.client().get(f"{path}/export?format=gzip")
    assert kept.headers["content-type"] == "application/gzip"
    assert zipped.json() == plain.json() == content == json.loads(gzip.decompress(kept.content))
    assert len(kept.content) == made["byte_size"]
    wrong = await there.client().get(f"{path}/export?format=zip")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")


async def test_a_file_is_restored_elsewhere_and_a_second_time_adds_nothing(two: tuple[Served, Served]) -> None:
    there, here = two
    run = (await there.run())[1].data["run_id"]
    made = await created(there)
    data = (await there.client().get(f"{SNAPSHOTS}/{made['id']}/export?format=gzip")).content
    tried = (await here.client().post(f"{SNAPSHOTS}/restore?dry_run=1", content=data)).json()
    assert (tried["dry_run"], tried["runs_restored"], tried["positions"]) == (True, 1, [])
    answer = await here.client().post(f"{SNAPSHOTS}/restore", content=data)
    actual = answer.json()
    assert (actual["runs_restored"], actual["runs_skipped"], actual["events_restored"]) == (1, 0, 4)
    assert actual["positions"] == [answer.headers["x-loomlog-position"]]
    assert (await here.client().get(f"/v1/runs/{run}")).json()["status"] == "completed"
    again = (await here.client().post(f"{SNAPSHOTS}/restore", content=gzip.decompress(data))).json()
    assert (again["runs_restored"], again["runs_skipped"], again["positions"]) == (0, 1, [])
    assert sum(isinstance(command, ImportRun) for command in here.world.commands()) == 1


async def test_a_kept_one_is_restored_by_its_id_and_by_a_document(two: tuple[Served, Served]) -> None:
    there, here = two
    await there.run()
    made = await created(there)
    path = f"{SNAPSHOTS}/{made['id']}/restore"
    actual = (await there.client().post(path, json={"include_history": True})).json()
    assert (actual["runs_restored"], actual["runs_skipped"]) == (0, 1)
    assert any("no effect" in warning for warning in actual["warnings"])
    assert (await there.client().post(path)).status_code == 200
    document = (await there.client().get(f"{SNAPSHOTS}/{made['id']}/export")).json()
    empty = await created(here)
    by_document = await here.client().post(f"{SNAPSHOTS}/{empty['id']}/restore", json={"json": document})
    assert by_document.json()["runs_restored"] == 1
    for changes, status, code in (
        ({"schema_version": 5}, 422, "snapshot_version_too_new"),
        ({"schema_version": "x"}, 422, "snapshot_version_unknown"),
        ({"label": "another"}, 500, "restore_failed"),
        ({"sections": 1}, 500, "restore_failed"),
        ({"format": "loomcycle"}, 500, "restore_failed"),
    ):
        answer = await here.client().post(f"{SNAPSHOTS}/{empty['id']}/restore", json={"json": {**document, **changes}})
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_one_is_removed_and_removing_it_again_is_no_error(two: tuple[Served, Served]) -> None:
    there, _ = two
    made = await created(there)
    for _ in range(2):
        answer = await there.client().delete(f"{SNAPSHOTS}/{made['id']}")
        assert (answer.status_code, answer.content) == (204, b"")
    assert (await there.client().delete(f"{SNAPSHOTS}/..%2Fx")).status_code in (204, 404)
    assert (await there.client().get(SNAPSHOTS)).json() == {"entries": []}
