"""Schedules over HTTP: definitions arm them, state, run-now, pauses, what is ahead and what was, and hooks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.secret_registry import build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.definitions import KINDS
from loomlog.schemas.generated.schedule_commands import ArmSchedule
from loomlog.services.families.definition.services import DefinitionOptions
from loomlog.services.families.definition.table import file_definition
from loomlog.services.families.schedule.arming import schedule_options
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, READER
from tests.services.entities import NOW_MS, UNANSWERED
from tests.services.schedule_entities import ScheduleEntities

PATH = "/v1/_schedules"
LISTED = Settings(scheduler_env_allowlist=("LOOMLOG_GITHUB",))
SECRETS = build_secret_registry(Configuration(), LISTED, {"LOOMLOG_GITHUB": "a-token"})
SCHEDULE = KINDS["schedule"]
BLOCKS = {
    "filed": ScheduleBlock(agent="soaker", schedule="0 3 * * *", enabled=True, tenant_id="acme"),
    "off": ScheduleBlock(agent="soaker", schedule="0 3 * * *"),
}
FILES = {
    ("schedule", name): file_definition("schedule", name, SCHEDULE.content_of(block)) for name, block in BLOCKS.items()
}
PROMPT = [{"role": "user", "content": [{"type": "trusted-text", "text": "tick"}]}]


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> ScheduleEntities:
    return ScheduleEntities()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: ScheduleEntities) -> AsyncIterator[Served]:
    options = schedule_options(BLOCKS, is_enabled=True, secrets=SECRETS)
    more: dict[str, Any] = {"entity_commands": entities, "entity_reads": entities, "clock_ms": lambda: NOW_MS}
    async with served(tmp_path, family_options=[DefinitionOptions(files=FILES), options], **more) as made:
        entities.attach(made.world.log, made.world.layer.resources.entities)
        yield made


async def operate(here: Served, op: str, caller: Any = ACME, status: int = 200, **fields: Any) -> dict[str, Any]:
    answer = await here.client(caller).post("/v1/_scheduledef", json={"op": op, **fields})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


async def create(here: Served, name: str = "nightly", **overlay: Any) -> dict[str, Any]:
    overlay = {"agent": "soaker", "schedule": "@every 1h", "prompt": PROMPT, **overlay}
    return await operate(here, "create", name=name, overlay=overlay)


async def get(here: Served, path: str, caller: Any = ACME, status: int = 200) -> Any:
    answer = await here.client(caller).get(f"{PATH}{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


async def post(here: Served, path: str, caller: Any = ACME, status: int = 200, **more: Any) -> Any:
    answer = await here.client(caller).post(f"{PATH}{path}", **more)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_schedule_that_is_created_is_armed_when_it_is_answered(here: Served) -> None:
    made = await create(here)
    assert (made["version"], made["promoted"]) == (1, True)
    state = await get(here, f"/{made['def_id']}/state")
    assert state["next_run_at"] == "2027-01-15T09:00:00.000000000Z"
    assert state["def_id"] == made["def_id"]
    assert "last_run_id" not in state
    assert "paused_until" not in state


async def test_run_now_is_told_by_the_state_and_by_the_fires(here: Served, entities: ScheduleEntities) -> None:
    made = await create(here)
    answer = await post(here, f"/{made['def_id']}/run-now")
    assert (answer["def_id"], answer["scheduled"]) == (made["def_id"], "next-tick")
    state = await get(here, f"/{made['def_id']}/state")
    assert state["last_run_id"] == answer["run_id"] == state["running"][0]
    assert "last_status" not in state
    await entities.end("acme", "nightly", "failed", "tool_failed", "the disk is full")
    state = await get(here, f"/{made['def_id']}/state")
    assert (state["last_status"], state["last_error"]) == ("failed", "tool_failed: the disk is full")
    page = await get(here, f"/{made['def_id']}/fires")
    (fire,) = page["fires"]
    assert (fire["status"], fire["run_id"], fire["is_manual"]) == ("failed", answer["run_id"], True)
    assert page["next"] is None


async def test_a_fire_names_its_event_in_the_log(here: Served) -> None:
    made = await create(here)
    positions = []
    for _ in range(2):
        fired = await here.client(ACME).post(f"/v1/_schedules/{made['def_id']}/run-now")
        positions.append(fired.headers["x-loomlog-position"])
    fires = (await get(here, f"/{made['def_id']}/fires"))["fires"]
    assert sorted(fire["position"] for fire in fires) == sorted(positions)


async def test_a_pause_and_its_end(here: Served) -> None:
    made = await create(here)
    path = f"/{made['def_id']}"
    assert await post(here, f"{path}/pause") == {"def_id": made["def_id"], "paused": True}
    assert (await get(here, f"{path}/state"))["paused_until"].startswith("2126-")
    await post(here, f"{path}/run-now")
    assert await post(here, f"{path}/resume") == {"def_id": made["def_id"], "paused": False}
    assert "paused_until" not in await get(here, f"{path}/state")
    await post(here, f"{path}/pause", params={"until": "2027-01-16T00:00:00Z"})
    assert (await get(here, f"{path}/state"))["paused_until"] == "2027-01-16T00:00:00.000000000Z"
    await post(here, f"{path}/pause", params={"until": "2001-01-01T00:00:00Z"}, status=400)
    await post(here, f"{path}/pause", params={"until": "soon"}, status=400)


async def test_what_has_no_state_is_not_found(here: Served) -> None:
    made = await create(here)
    newer = await operate(here, "fork", name="nightly", overlay={"schedule": "@every 2h"})
    assert (newer["promoted"], newer["parent_def_id"]) == (True, made["def_id"])
    assert (await get(here, f"/{newer['def_id']}/state"))["next_run_at"] == "2027-01-15T10:00:00.000000000Z"
    for def_id, caller in ((made["def_id"], ACME), (newer["def_id"], GLOBEX), ("def_no", ACME), ("a%2Fb", ACME)):
        for verb in ("run-now", "pause", "resume"):
            assert (await post(here, f"/{def_id}/{verb}", caller, status=404))["code"] in (
                "not_found",
                "route_not_found",
            )
        await get(here, f"/{def_id}/state", caller, status=404)
    await operate(here, "retire", def_id=newer["def_id"], retired=True)
    assert (await get(here, f"/{newer['def_id']}/state", status=404))["code"] == "not_found"


async def test_instants_ahead_are_in_the_zone_of_the_schedule(here: Served) -> None:
    made = await create(here, schedule="30 2 * * *", timezone="Europe/Berlin", jitter_ms=60_000)
    answer = await get(here, f"/{made['def_id']}/preview?count=2")
    assert (answer["times"], answer["timezone"]) == ("30 2 * * *", "Europe/Berlin")
    assert [one["local"] for one in answer["instants"]] == ["2027-01-16T02:30:00+01:00", "2027-01-17T02:30:00+01:00"]
    assert all(0 <= one["jitter_ms"] <= 60_000 for one in answer["instants"])
    assert answer == await get(here, f"/{made['def_id']}/preview?count=2")
    await get(here, f"/{made['def_id']}/preview?count=101", status=400)
    template = await create(here, "template", schedule="", user_tier_schedules={"gold": "@hourly"})
    assert (await get(here, f"/{template['def_id']}/preview"))["instants"] == []


async def test_times_that_no_schedule_has_yet_are_previewed(here: Served) -> None:
    params = {"times": " 0 9\t* * 1 ", "timezone": "Europe/Berlin", "count": "2"}
    answer = await here.client(ACME).get(f"{PATH}/preview", params=params)
    shown = answer.json()
    assert (shown["times"], shown["timezone"]) == ("0 9\t* * 1", "Europe/Berlin")
    assert [one["local"] for one in shown["instants"]] == ["2027-01-18T09:00:00+01:00", "2027-01-25T09:00:00+01:00"]
    for bad in (
        {},
        {"times": "@hourly\x07"},
        {"times": "@hourly", "timezone": "UTC\t"},
        {"times": "0 9 * *"},
        {"times": "@hourly", "timezone": "Mars"},
        {"times": "@hourly", "count": "0"},
    ):
        answer = await here.client(ACME).get(f"{PATH}/preview", params=bad)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), bad
    assert (await here.client(READER).get(f"{PATH}/preview", params=params)).status_code == 403


async def test_a_list_with_states_tells_when_each_fires_next(here: Served) -> None:
    made = await create(here, "hourly", timezone="Europe/Berlin")
    idle = await create(here, "idle")
    await operate(here, "retire", def_id=idle["def_id"], retired=True)
    plain = {entry["name"]: entry for entry in (await get(here, "/list-all"))["entries"]}
    assert "state" not in plain["hourly"]
    listed = {entry["name"]: entry for entry in (await get(here, "/list-all?with_state=true"))["entries"]}
    state = listed["hourly"]["state"]
    assert state["next_run_at"] == (await get(here, f"/{made['def_id']}/state"))["next_run_at"]
    assert (state["agent"], state["times"], state["timezone"]) == ("soaker", "@every 1h", "Europe/Berlin")
    assert (state["is_enabled"], state["problem"]) == (True, "")
    assert "state" not in listed["idle"]


async def test_a_fork_of_a_template_for_a_user_has_the_times_of_the_plan(
    here: Served, entities: ScheduleEntities
) -> None:
    await create(here, "template", schedule="", user_tier_schedules={"free": "@daily", "gold": "0 * * * *"})
    assert entities.state("acme", "template").next_ms == 0
    fork = await operate(here, "fork", name="template", overlay={"user_id": "ada", "user_tier": "gold"})
    state = entities.state("acme", "template")
    assert (state.def_id, state.run and state.run.user_id) == (fork["def_id"], "ada")
    assert state.spec is not None
    assert state.spec.times == "0 * * * *"


async def test_hooks_are_added_and_removed_as_new_versions(here: Served, entities: ScheduleEntities) -> None:
    made = await create(here, on_complete=[{"kind": "channel.publish", "channel": "a"}])
    hook = {"kind": "memory.set", "scope": "user", "key": "last", "payload": {"run": "{{run.id}}"}}
    added = await operate(here, "add_hook", def_id=made["def_id"], hook=hook)
    assert (added["version"], added["promoted"]) == (2, True)
    assert [one["kind"] for one in added["definition"]["on_complete"]] == ["channel.publish", "memory.set"]
    run = entities.state("acme", "nightly").run
    assert run is not None
    assert '"schedule_name":"nightly"' in run.on_complete[1]
    removed = await operate(here, "remove_hook", def_id=added["def_id"], hook_index=0)
    assert [one["kind"] for one in removed["definition"]["on_complete"]] == ["memory.set"]
    last = await operate(here, "remove_hook", def_id=removed["def_id"], hook_index=0)
    assert "on_complete" not in last["definition"]
    for fields in ({"hook_index": 0}, {"hook_index": -1}, {"hook_index": True}, {}):
        await operate(here, "remove_hook", status=422, def_id=last["def_id"], **fields)
    await operate(here, "add_hook", status=422, def_id=last["def_id"], hook={"kind": "no"})
    await operate(here, "add_hook", status=422, def_id="def_no", hook=hook)


async def test_credentials_of_a_schedule_are_told_at_each_fire(here: Served, entities: ScheduleEntities) -> None:
    for name, overlay, text in (
        ("required", {"required_credentials": ["github"]}, "github is missing"),
        (
            "closed",
            {"user_credentials_from_env": {"github": "LOOMLOG_OTHER"}},
            "LOOMLOG_OTHER is not set, or the tenant acme may not use it",
        ),
    ):
        made = await create(here, name, **overlay)
        assert "run_id" not in await post(here, f"/{made['def_id']}/run-now")
        state = await get(here, f"/{made['def_id']}/state")
        assert state["last_status"] == "failed"
        assert text in state["last_error"]
    made = await create(here, "open", user_credentials_from_env={"github": "LOOMLOG_GITHUB"})
    assert (await post(here, f"/{made['def_id']}/run-now"))["run_id"]


async def test_the_list_has_those_of_files_for_their_tenant_and_for_administrators(here: Served) -> None:
    made = await create(here)
    rows = {one["name"]: one for one in (await get(here, "/list-all"))["entries"]}
    assert set(rows) == {"filed", "nightly"}
    assert (rows["nightly"]["source"], rows["nightly"]["active_def_id"]) == ("dynamic-only", made["def_id"])
    assert (rows["filed"]["source"], rows["filed"]["in_static"]) == ("static-only", True)
    assert rows["filed"]["active_def_id"] == FILES["schedule", "filed"].def_id
    assert rows["filed"]["static_definition"]["schedule"] == "0 3 * * *"
    everywhere = (await get(here, "/list-all", ADMIN_CALLER))["entries"]
    assert {(one["tenant_id"], one["name"]) for one in everywhere} == {
        ("acme", "filed"),
        ("acme", "nightly"),
        ("default", "off"),
    }
    assert (await get(here, "/list-all", GLOBEX))["entries"] == []
    await get(here, "/list-all?tenant=globex", status=403)
    fork = await operate(here, "fork", name="filed", overlay={"schedule": "@daily"})
    (row,) = [one for one in (await get(here, "/list-all"))["entries"] if one["name"] == "filed"]
    assert (row["source"], row["active_def_id"]) == ("both", fork["def_id"])


async def test_a_schedule_of_a_file_that_was_forked_is_the_file_again_when_the_fork_is_retired(
    here: Served, entities: ScheduleEntities
) -> None:
    fork = await operate(here, "fork", name="filed", overlay={"schedule": "@daily"})
    await operate(here, "retire", def_id=fork["def_id"], retired=True)
    state = entities.state("acme", "filed")
    assert (state.is_armed, state.def_id) == (True, FILES["schedule", "filed"].def_id)


async def test_a_definition_is_made_also_while_its_schedule_cannot_be_armed(
    here: Served, entities: ScheduleEntities
) -> None:
    entities.schedules.error = UNANSWERED
    made = await create(here)
    assert any(isinstance(one, ArmSchedule) for one in entities.schedules.asked)
    entities.schedules.error = None
    await get(here, f"/{made['def_id']}/state", status=404)
    entities.schedules.error = UNANSWERED
    assert (await post(here, f"/{made['def_id']}/run-now", status=503))["code"] == "command_pending"
