"""A run that happened in one installation, taken in by another."""

import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.storage.blobs import blob_ref
from loomlog.schemas.generated.run_commands import ImportRun
from loomlog.schemas.generated.values import ContentBlock, Segment
from loomlog.schemas.records import replace
from loomlog.services.application import limits
from loomlog.services.application.transfer.event_import import EventImporter, ImportBatch
from loomlog.services.core.refusals import Refused
from tests.projections.stories import completed, replied, requested, started
from tests.services.api.serving import Served, frames_of, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX

TOKEN = f"lenc1.{'0' * 20}.{'A' * 60}"
"""Looks like content that some key seals."""


@pytest_asyncio.fixture(loop_scope="session")
async def two(tmp_path: Path) -> AsyncIterator[tuple[Served, Served]]:
    """Where it happened, and the other one."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    async with contextlib.AsyncExitStack() as stack:
        there = await stack.enter_async_context(served(tmp_path / "there"))
        yield there, await stack.enter_async_context(served(tmp_path / "here"))


async def exported(there: Served, run_id: str) -> bytes:
    answer = await there.client().get(f"/v1/runs/{run_id}/export")
    assert answer.status_code == 200, answer.text
    return answer.content


async def taken_in(here: Served, data: bytes, caller: Any = ADMIN_CALLER) -> Any:
    return await here.client(caller).post("/v1/runs/import", content=data)


async def run_id(there: Served, **more: Any) -> str:
    return str((await there.run(**more))[1].data["run_id"])


def imports(here: Served) -> list[ImportRun]:
    return [command for command in here.world.commands() if isinstance(command, ImportRun)]


async def test_an_imported_run_is_what_it_was_and_nothing_of_it_is_done(two: tuple[Served, Served]) -> None:
    there, here = two
    run = await run_id(there)
    answer = await taken_in(here, await exported(there, run))
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"run_id": run, "imported": True, "runs": [{"run_id": run, "imported": True}]}
    assert answer.headers["x-loomlog-position"].startswith("loom.run.events/")
    before = (await there.client().get(f"/v1/runs/{run}/state")).json()
    after = (await here.client().get(f"/v1/runs/{run}/state")).json()
    for name in ("messages", "turns", "usage", "definition", "status", "reason", "session_id", "at", "system"):
        assert after[name] == before[name], name
    proof = (await here.client().get(f"/v1/runs/{run}/replay")).json()
    assert (proof["drift"], proof["compared"], proof["seq"]) == ([], True, 4)
    origin = proof["events"][0]["payload"]["imported_from"]
    last = (await there.client().get(f"/v1/runs/{run}/replay")).json()["tail_digest"]
    assert (origin["tail_digest"], origin["events"], origin["topic"]) == (last, 4, "loom.run.events")
    row = (await here.client().get(f"/v1/runs/{run}")).json()
    assert row["imported_from"].startswith("loom.run.events/")
    assert (await here.client().get(f"/v1/sessions/{row['session_id']}/transcript")).json()["events"]


async def test_importing_twice_adds_nothing(two: tuple[Served, Served]) -> None:
    there, here = two
    run = await run_id(there)
    data = await exported(there, run)
    first = await taken_in(here, data)
    written = len(imports(here))
    again = await taken_in(here, data)
    assert again.json()["imported"] is False
    assert again.headers["x-loomlog-position"] == first.headers["x-loomlog-position"]
    assert len(imports(here)) == written
    home = await taken_in(there, data)
    assert (home.json()["imported"], imports(there)) == (False, [])


async def test_a_part_that_comes_again_changes_nothing(two: tuple[Served, Served]) -> None:
    there, here = two
    run = await run_id(there)
    await taken_in(here, await exported(there, run))
    command = imports(here)[0]
    before = here.world.seqs[run]
    here.world._handle(command)
    assert here.world.seqs[run] == before


async def test_a_long_run_comes_in_parts(two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch) -> None:
    there, here = two
    monkeypatch.setattr(limits, "IMPORT_BATCH_BYTES", 1)
    run = await run_id(there)
    await taken_in(here, await exported(there, run))
    assert [command.first_seq for command in imports(here)] == [1, 2, 3, 4]
    assert (await here.client().get(f"/v1/runs/{run}/replay")).json()["drift"] == []


async def test_a_run_that_broke_off_goes_on_with_the_file_it_began_with(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = two
    run = "r_half"
    there.world.tenants[run] = "default"
    there.world.happen(run, started(run), requested(1))
    earlier = await exported(there, run)
    there.world.happen(run, replied(1, "so much for that"), completed())
    later = await exported(there, run)
    send = EventImporter.send

    async def first_only(
        self: EventImporter, tenant: str, subject: str, name: str, origin: Any, part: ImportBatch, **more: Any
    ) -> None:
        if part.first_seq > 1:
            raise Refused("log_unavailable", "the api was killed")
        await send(self, tenant, subject, name, origin, part, **more)

    with monkeypatch.context() as patched:
        patched.setattr(limits, "IMPORT_BATCH_BYTES", 1)
        patched.setattr(EventImporter, "send", first_only)
        assert (await taken_in(here, earlier)).status_code == 503
    here.world.project()
    refused = await taken_in(here, later)
    assert (refused.status_code, refused.json()["code"]) == (409, "run_id_taken")
    assert "from another file: one of 2 events of loom.run.events/" in refused.json()["error"]
    assert (await taken_in(here, earlier)).json()["imported"] is True, "its parts are cut elsewhere now"
    assert (await here.client().get(f"/v1/runs/{run}/replay")).json()["drift"] == []


async def test_an_event_that_fits_no_command_is_known_before_the_first_part_is_sent(
    two: tuple[Served, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, here = two
    run = await run_id(there)
    monkeypatch.setattr(limits, "IMPORT_EVENT_BYTES_MAX", 100)
    answer = await taken_in(here, await exported(there, run))
    assert (answer.status_code, imports(here)) == (400, [])
    assert f"event 1 of {run} has " in answer.json()["error"]


async def test_a_run_that_was_under_way_ends_here_and_can_be_forked(two: tuple[Served, Served]) -> None:
    there, here = two
    run = "r_live"
    there.world.tenants[run] = "default"
    there.world.happen(run, started(run), requested(1))
    answer = await taken_in(here, await exported(there, run))
    assert answer.status_code == 200, answer.text
    row = (await here.client().get(f"/v1/runs/{run}")).json()
    assert (row["status"], "goes on where it came from" in row["stop_reason"]) == ("cancelled", True)
    fork = await here.client().post(f"/v1/runs/{run}/fork", json={"at": 2})
    assert frames_of(fork.text)[-1].event == "done"


async def test_payloads_come_along(two: tuple[Served, Served]) -> None:
    there, here = two
    run = "r_blob"
    there.world.tenants[run] = "default"
    ref = await there.world.blobs.put(b"long " * 200_000)
    block = ContentBlock(type="trusted-text", blob=ref)
    event = started(run, segments=(Segment(role="user", content=(block,)),))
    there.world.happen(run, event, requested(1), replied(1, "ok"), completed())
    await taken_in(here, await exported(there, run))
    assert await here.world.blobs.get(ref) == b"long " * 200_000
    assert ref == blob_ref(b"long " * 200_000, "text/plain")


async def test_it_belongs_to_the_tenant_of_the_caller(two: tuple[Served, Served]) -> None:
    there, here = two
    run = await run_id(there)
    data = await exported(there, run)
    assert (await taken_in(here, data, ACME)).status_code == 200
    row = (await here.client(ACME).get(f"/v1/runs/{run}")).json()
    assert row["tenant_id"] == "acme"
    assert (await here.client(GLOBEX).get(f"/v1/runs/{run}")).status_code == 404
    other = await taken_in(here, data, GLOBEX)
    assert (other.status_code, other.json()["code"]) == (409, "run_id_taken")


async def test_a_history_that_does_not_hold_is_not_taken_in(two: tuple[Served, Served]) -> None:
    there, here = two
    run = await run_id(there)
    data = await exported(there, run)
    lines = gzip.decompress(data).splitlines(keepends=True)
    event = next(at for at, line in enumerate(lines) if b'"kind":"event"' in line)
    without = b"".join([*lines[:event], *lines[event + 1 :]])
    for wrong, says in (
        (data[:-30], "cut short"),
        (b"nothing", "no bundle"),
        (b"", "empty"),
        (gzip.compress(without), "counts"),
        (gzip.compress(b"".join(lines).replace(b'"tenant":"default"', b'"tenant":"another"')), "altered"),
    ):
        answer = await taken_in(here, wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
        assert says in answer.json()["error"], (says, answer.text)
    assert imports(here) == []


async def test_without_an_owner_it_is_pending_and_comes_later(tmp_path: Path, two: tuple[Served, Served]) -> None:
    there, _ = two
    data = await exported(there, await run_id(there))
    (tmp_path / "deaf").mkdir()
    async with served(tmp_path / "deaf", owner=False) as deaf:
        answer = await taken_in(deaf, data)
        assert (answer.status_code, answer.json()["code"]) == (503, "import_pending")
        assert len(imports(deaf)) == 1
        assert json.loads(answer.text)["run_id"]


async def test_where_content_is_encrypted_a_run_in_clear_is_taken_in_only_when_that_is_wanted(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "there") as there, served(tmp_path / "here", encrypted=True) as here:
        run = await run_id(there, prompt="in clear")
        data = await exported(there, run)
        refused = await taken_in(here, data)
        assert (refused.status_code, refused.json()["code"]) == (409, "content_in_clear")
        assert f"1 of the 1 runs of the bundle, {run} first" in refused.json()["error"]
        assert "--in-clear" in refused.json()["error"]
        assert imports(here) == []
        answer = await here.client().post("/v1/runs/import?in_clear=1", content=data)
        assert (answer.status_code, answer.json()["imported"]) == (200, True)
        again = await taken_in(here, data)
        assert (again.status_code, again.json()["imported"]) == (200, False), "nothing new comes with it"


async def test_nor_is_one_whose_payload_is_in_clear(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "there") as there, served(tmp_path / "here", encrypted=True) as here:
        world = there.world
        ref = await world.blobs.put(b"long " * 20_000, "text/plain")
        block = ContentBlock(type="trusted-text", blob=ref)
        run = "r_" + world.token()
        world.tenants[run] = "acme"
        first = started(run, segments=(Segment(role="user", content=(block,)),))
        world.happen(run, first, requested(1), replied(1, text=""), completed())
        refused = await taken_in(here, await exported(there, run))
        assert (refused.status_code, refused.json()["code"]) == (409, "content_in_clear")


@pytest.mark.parametrize("where", ["text", "payload", "end of the payload"])
async def test_a_token_among_words_in_clear_does_not_pass_them_off_as_sealed(tmp_path: Path, where: str) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "there") as there, served(tmp_path / "here", encrypted=True) as here:
        world = there.world
        text = TOKEN if where != "text" else f"in clear {TOKEN}"
        payload = TOKEN * 2_000 if where == "text" else f"{TOKEN} long " if where != "payload" else f"long {TOKEN}"
        block = ContentBlock(type="trusted-text", text=text)
        blob = ContentBlock(type="trusted-text", blob=await world.blobs.put(payload.encode(), "text/plain"))
        run = "r_" + world.token()
        world.tenants[run] = "acme"
        first = started(run, segments=(Segment(role="user", content=(block, blob)),))
        world.happen(run, first, requested(1), replied(1, text=TOKEN), completed())
        refused = await taken_in(here, await exported(there, run))
        assert (refused.status_code, refused.json()["code"]) == (409, "content_in_clear")


async def test_the_script_of_an_agent_is_no_content(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    async with served(tmp_path / "there") as there, served(tmp_path / "here", encrypted=True) as here:
        world = there.world
        segment = Segment(role="user", content=(ContentBlock(type="trusted-text", text=TOKEN),))
        run = "r_" + world.token()
        world.tenants[run] = "acme"
        first = started(run, segments=(segment,))
        script = await world.blobs.put(b"function run(input) {} " * 4_000, "text/plain")
        first = replace(first, definition=replace(first.definition, code_blob=script))
        world.happen(run, first, requested(1), replied(1, text=TOKEN), completed())
        answer = await taken_in(here, await exported(there, run))
        assert (answer.status_code, answer.json().get("imported")) == (200, True), answer.text
