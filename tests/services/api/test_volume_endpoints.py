"""Volumes over HTTP: what is made, what is listed to whom, and how refusals read."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from loomlog.services.application.dispatch import Dispatch
from loomlog.services.families.definition import FAMILY
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, GLOBEX
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.definition.volume_world import Process, of_run

MAKE = {"op": "create", "name": "notes"}


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(MemoryEntities(FAMILY), tmp_path / "pool")


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, process: Process) -> AsyncIterator[Served]:
    tokens = iter(range(1_000))
    handlers = process.opened.handlers
    dispatch = Dispatch(handlers, clock_ms=lambda: NOW_MS, new_token=lambda: f"t{next(tokens)}")
    async with served(tmp_path) as made:
        made.world.layer.dispatch = dispatch
        yield made


async def test_a_volume_is_made_listed_and_purged(here: Served, tmp_path: Path) -> None:
    client = here.client()
    made = await client.post("/v1/_volumedef?tenant=acme", json=MAKE)
    path = str(tmp_path / "pool" / "acme" / "notes")
    assert (made.status_code, made.json()["path"]) == (200, path)
    assert made.headers["x-loomlog-position"] == "loom.entity.events/1:2"
    entries = (await client.get("/v1/_volumes?tenant=acme")).json()["entries"]
    assert [(one["name"], one["source"], one["dynamic_root"], one["path"]) for one in entries] == [
        ("pool", "static", True, str(tmp_path / "pool")),
        ("work", "static", False, "/srv/work"),
        ("notes", "dynamic", False, path),
    ]
    purged = await client.post("/v1/_volumedef?tenant=acme", json={"op": "purge", "name": "notes"})
    assert purged.json() == {"name": "notes", "deleted": True, "files_removed": True}
    assert (await client.post("/v1/_volumedef?tenant=acme", json={"op": "list"})).json() == {"volumes": []}


async def test_tenants_see_their_own_volumes_and_no_paths(here: Served, process: Process) -> None:
    client = here.client(ACME)
    await client.post("/v1/_volumedef", json=MAKE)
    await here.client().post("/v1/_volumedef?tenant=_shared", json={"op": "create", "name": "common"})
    await process.do("create", of_run("r_1"), name="repo", ephemeral=True)
    entries = (await client.get("/v1/_volumes")).json()["entries"]
    assert [(one["name"], one["source"]) for one in entries[2:]] == [("notes", "dynamic"), ("common", "shared")]
    ephemeral = (await client.get("/v1/_volumes/ephemeral")).json()["entries"]
    assert [(one["name"], one["root_run_id"], one["mode"]) for one in ephemeral] == [("repo", "r_1", "rw")]
    assert {one["path"] for one in (*entries, *ephemeral)} == {""}
    other = here.client(GLOBEX)
    assert [one["name"] for one in (await other.get("/v1/_volumes")).json()["entries"]] == ["pool", "work", "common"]
    assert (await other.get("/v1/_volumes/ephemeral")).json() == {"entries": []}
    assert (await other.get("/v1/_volumes?tenant=acme")).status_code == 403
    assert (await here.client().get("/v1/_volumes/ephemeral?tenant=acme")).json()["entries"][0]["path"]
