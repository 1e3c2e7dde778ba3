"""Bundles whose words are somebody's own: their hashes agree with themselves, and nothing of them may do harm here."""

import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.schemas.generated.run_commands import ForkRun, StartRun
from loomlog.schemas.generated.values import ContentBlock, Segment, Usage
from tests.projections.stories import completed, replied, requested, started
from tests.services.api.serving import Served, frames_of, served
from tests.services.api.test_import import exported, imports, taken_in, two
from tests.services.application.owner import NOW_MS
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX

__all__ = ["two"]
RUN = "r_forged"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    """Where a forged bundle is sent, with books."""
    (tmp_path / "at").mkdir()
    async with served(tmp_path / "at") as made:
        yield made


async def forged(there: Served, *events: Any, run: str = RUN, at_ms: int = NOW_MS) -> bytes:
    there.world.tenants[run] = "default"
    there.world.happen(run, *events, at_ms=at_ms)
    return await exported(there, run)


def rewritten(data: bytes, *, without: str) -> bytes:
    """The file without the lines of that kind, whole again."""
    lines = [line for line in map(json.loads, gzip.decompress(data).splitlines()) if line["kind"] != without]
    lines[-1]["blobs"] = sum(line["kind"] == "blob" and line["last"] for line in lines)
    plain = b"".join(
        json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for line in lines[:-1]
    )
    lines[-1]["sha256"] = hashlib.sha256(plain).hexdigest()
    return gzip.compress(plain + json.dumps(lines[-1]).encode() + b"\n")


# --- whose it is -----------------------------------------------------------------------------------------------------


async def test_a_fork_of_an_import_is_for_whoever_asks(two: tuple[Served, Served]) -> None:
    there, here = two
    data = await forged(there, started(RUN, user_id="victim"), requested(1), replied(1, "ok"), completed())
    assert (await taken_in(here, data, ACME)).status_code == 200
    answer = await here.client(ACME).post(f"/v1/runs/{RUN}/fork?ids=1", json={"at": 2})
    fork = frames_of(answer.text)[1].data["run_id"]
    assert (await here.client(ACME).get(f"/v1/runs/{fork}")).json()["user_id"] == "acme-op"
    command = here.world.commands()[-1]
    assert isinstance(command, ForkRun)
    assert (command.user_id, command.envelope.tenant) == ("acme-op", "acme")


async def test_a_session_that_was_imported_goes_on_for_whoever_asks_and_stays_in_its_tenant(
    two: tuple[Served, Served],
) -> None:
    there, here = two
    data = await forged(there, started(RUN, user_id="victim"), requested(1), replied(1, "ok"), completed())
    assert (await taken_in(here, data, ACME)).status_code == 200
    for caller in (ACME, ADMIN_CALLER):  # the second goes on with the first's run, whose user nobody doubts
        client = here.client(caller)
        answer = await client.post("/v1/sessions/s_forged/messages", json={"prompt": "and now?"})
        assert answer.status_code == 200, answer.text
        command = here.world.commands()[-1]
        assert isinstance(command, StartRun)
        assert (command.envelope.tenant, command.user_id) == ("acme", "acme-op")


async def test_an_administrator_goes_on_with_an_import_of_a_tenant_in_that_tenant(two: tuple[Served, Served]) -> None:
    there, here = two
    data = await forged(there, started(RUN, user_id="victim"), requested(1), replied(1, "ok"), completed())
    assert (await taken_in(here, data, ACME)).status_code == 200
    answer = await here.client().post("/v1/sessions/s_forged/messages", json={"prompt": "and now?"})
    assert answer.status_code == 200, answer.text
    command = here.world.commands()[-1]
    assert isinstance(command, StartRun)
    assert (command.envelope.tenant, command.user_id) == ("acme", "default")


@pytest.mark.parametrize("name", ["session_id", "agent_id"])
async def test_a_name_of_another_tenants_run_is_refused(two: tuple[Served, Served], name: str) -> None:
    there, here = two
    mine = (await here.run(caller=GLOBEX))[1].data
    run = f"{mine['run_id']}-evil"
    first = started(run, **{"session_id": f"s_{run[2:]}", name: mine[name]})
    data = await forged(there, first, requested(1), replied(1, "ok"), completed(), run=run)
    answer = await taken_in(here, data, ACME)
    assert (answer.status_code, answer.json()["code"]) == (409, "run_id_taken"), answer.text
    assert mine[name] in answer.json()["error"]
    assert imports(here) == []


async def test_a_run_named_after_another_tenants_is_refused(two: tuple[Served, Served]) -> None:
    there, here = two
    run = f"{(await here.run(caller=GLOBEX))[1].data['run_id']}-evil"
    data = await forged(there, started(run), requested(1), replied(1, "ok"), completed(), run=run)
    answer = await taken_in(here, data, ACME)
    assert (answer.status_code, answer.json()["code"]) == (409, "run_id_taken"), answer.text
    assert imports(here) == []


@pytest.mark.parametrize(
    ("names", "says"),
    [({"session_id": ""}, "is no id"), ({"agent_id": "a b"}, "is no id"), ({"session_id": "s_other"}, "r_other")],
)
async def test_a_name_that_a_run_cannot_have_is_refused(two: tuple[Served, Served], names: Any, says: str) -> None:
    there, here = two
    data = await forged(there, started(RUN, **names), requested(1), replied(1, "ok"), completed())
    answer = await taken_in(here, data, ACME)
    assert (answer.status_code, says in answer.json()["error"]) == (400, True), answer.text
    assert imports(here) == []


async def test_an_administrator_means_the_run_that_began_with_the_name(two: tuple[Served, Served]) -> None:
    _, here = two
    mine = (await here.run(caller=GLOBEX))[1].data
    run = f"{mine['run_id']}-evil"
    here.world.tenants[run] = "acme"
    names = {"session_id": mine["session_id"], "agent_id": mine["agent_id"]}
    here.world.happen(run, started(run, **names), requested(1), at_ms=NOW_MS + 10_000)
    client = here.client()
    assert (await client.get(f"/v1/agents/{mine['agent_id']}")).json()["run_id"] == mine["run_id"]
    transcript = (await client.get(f"/v1/sessions/{mine['session_id']}/transcript")).json()
    assert {event["run_id"] for event in transcript["events"]} == {mine["run_id"]}
    await client.post(f"/v1/sessions/{mine['session_id']}/messages", json={"prompt": "and now?"})
    assert here.world.commands()[-1].envelope.tenant == "globex"


# --- what it says was spent, and when --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"usage": Usage(input_tokens=-50_000_000)}, "ModelReplied.usage.input_tokens is -50000000"),
        ({"usage": Usage(output_tokens=2**62)}, f"ModelReplied.usage.output_tokens is {2**62}"),
        ({"cost_micros": -1}, "ModelReplied.cost_micros is -1"),
        ({"cost_micros": 2**62}, f"ModelReplied.cost_micros is {2**62}"),
        ({"duration_ms": 2**62}, f"ModelReplied.duration_ms is {2**62}"),
    ],
)
async def test_a_number_that_cannot_be_is_refused_with_its_event(
    two: tuple[Served, Served], more: Any, says: str
) -> None:
    there, here = two
    data = await forged(there, started(RUN), requested(1), replied(1, "ok", **more), completed())
    answer = await taken_in(here, data, ACME)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
    assert f"event 3 of {RUN} cannot be: {says}: expected" in answer.json()["error"]
    assert imports(here) == []


@pytest.mark.parametrize("at_ms", [2**60, -(2**60), 0, NOW_MS + 3 * 86_400_000])
async def test_a_time_that_cannot_be_is_refused(two: tuple[Served, Served], at_ms: int) -> None:
    there, here = two
    data = await forged(there, started(RUN), requested(1), replied(1, "ok"), completed(), at_ms=at_ms)
    answer = await taken_in(here, data, ACME)
    assert (answer.status_code, f"at_ms is {at_ms}" in answer.json()["error"]) == (400, True), answer.text


async def test_what_was_spent_elsewhere_is_not_counted_here(two: tuple[Served, Served], here: Served) -> None:
    there, _ = two
    data = await forged(there, started(RUN), requested(1), replied(1, "ok"), completed())
    assert (await taken_in(here, data, ACME)).status_code == 200
    assert (await here.client().get("/v1/_usage")).json()["rows"] == []


async def test_usage_below_zero_keeps_nobody_from_setting_a_limit(here: Served) -> None:
    here.world.tenants[RUN] = "acme"
    below = replied(1, "ok", usage=Usage(input_tokens=-50_000_000), cost_micros=-500_000_000)
    here.world.happen(RUN, started(RUN), requested(1), below, completed())
    for body in ({"scope": "operator", "hard_limit": 1_000}, {"scope": "tenant", "scope_id": "acme", "hard_limit": 7}):
        answer = await here.client().put("/v1/_limits", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["used"] == 0


# --- payloads --------------------------------------------------------------------------------------------------------


async def with_payload(there: Served) -> bytes:
    ref = await there.world.blobs.put(b"long " * 20_000)
    block = ContentBlock(type="trusted-text", blob=ref)
    event = started(RUN, segments=(Segment(role="user", content=(block,)),))
    return await forged(there, event, requested(1), replied(1, "ok"), completed())


async def test_a_payload_that_is_not_in_the_file_is_refused(two: tuple[Served, Served]) -> None:
    there, here = two
    answer = await taken_in(here, rewritten(await with_payload(there), without="blob"), ACME)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
    (name,) = there.world.blobs.blobs
    assert f"the payload {name}, which is not in it" in answer.json()["error"]
    assert imports(here) == []
    assert (await taken_in(here, await exported(there, RUN), ACME)).status_code == 200


async def test_a_payload_that_is_another_one_is_refused_before_anything_is_kept(two: tuple[Served, Served]) -> None:
    there, here = two
    data = gzip.decompress(await with_payload(there)).replace(b"bG9uZyBsb25n", b"bG9uZyBMT05H", 1)
    answer = await taken_in(here, rewritten(gzip.compress(data), without="none"), ACME)
    assert (answer.status_code, "counts" in answer.text or "hashes to" in answer.text) == (400, True), answer.text
    assert here.world.blobs.blobs == {}
