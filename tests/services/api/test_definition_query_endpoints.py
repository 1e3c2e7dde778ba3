"""Definitions of all kinds over HTTP: lists, versions, differences, lineage, the past, batches, and blame."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from loomlog.connectors.definitions import KINDS
from loomlog.projections.runs import RunRow
from loomlog.services.core.definitions import def_id
from loomlog.services.families.definition.services import DefinitionOptions
from loomlog.services.families.definition.table import file_definition
from loomlog.services.stream.entities.reads import PositionNotRead
from tests.services.api.serving import Served, served
from tests.services.application.owner import NOW_MS
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX, IVY, READER
from tests.services.log_entities import LogEntities

PATH = "/v1/_definitions"
AGENT = KINDS["agent"]
FILED = file_definition(
    "agent",
    "filed",
    AGENT.compose("filed", {"model": "m", "system_prompt": "of the file", "tools": ["Read", "Grep"]}),
)
SOAKER = file_definition("agent", "soaker", AGENT.compose("soaker", {"model": "m"}))
FILES = {("agent", "filed"): FILED, ("agent", "soaker"): SOAKER}


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> LogEntities:
    return LogEntities()


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: LogEntities) -> AsyncIterator[Served]:
    options = [DefinitionOptions(files=FILES)]
    async with served(tmp_path, entity_commands=entities, entity_reads=entities, family_options=options) as made:
        entities.attach(made.world.log, made.world.layer.resources.entities)
        yield made


async def operate(here: Served, op: str, caller: Any = ACME, kind: str = "agent", **fields: Any) -> dict[str, Any]:
    answer = await here.client(caller).post(f"/v1/_{kind}def", json={"op": op, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()) | {"position": answer.headers.get("x-loomlog-position", "")}


async def create(here: Served, name: str, prompt: str, caller: Any = ACME, **fields: Any) -> dict[str, Any]:
    overlay = {"model": "m", "system_prompt": prompt, **fields.pop("overlay", {})}
    return await operate(here, "create", caller, name=name, overlay=overlay, **fields)


async def get(here: Served, path: str, caller: Any = ACME, status: int = 200) -> Any:
    answer = await here.client(caller).get(f"{PATH}{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


async def apply(here: Served, *definitions: Any, caller: Any = ACME, **more: Any) -> Any:
    return await here.client(caller).post(f"{PATH}/apply", json={"definitions": list(definitions), **more})


def change(name: str, prompt: str, kind: str = "agent", **more: Any) -> dict[str, Any]:
    overlay = {"body": prompt} if kind == "skill" else {"system_prompt": prompt, "model": "m"}
    return {"kind": kind, "name": name, "overlay": overlay, **more}


def refusal(answer: Any) -> tuple[int, str, str | None]:
    return answer.status_code, answer.json()["code"], answer.json().get("reason")


# --- lists -----------------------------------------------------------------------------------------------------------


async def test_a_list_has_files_and_versions_and_says_what_is_active(here: Served) -> None:
    made = await create(here, "helper", "one", overlay={"description": "Helps."})
    await operate(here, "fork", name="filed", overlay={"system_prompt": "mine"})
    await operate(here, "create", ADMIN_CALLER, name="common", overlay={"model": "m"}, kind="agent")
    rows = {row["name"]: row for row in (await get(here, ""))["definitions"]}
    assert list(rows) == ["filed", "helper", "soaker"]
    assert rows["helper"] == {
        "kind": "agent",
        "name": "helper",
        "tenant_id": "acme",
        "source": "tenant",
        "description": "Helps.",
        "active_def_id": made["def_id"],
        "active_version": 1,
        "version_count": 1,
        "live_version_count": 1,
        "latest_version": 1,
        "last_updated": rows["helper"]["last_updated"],
        "made_by_agent": None,
        "static_def_id": None,
        "static_differs": False,
        "judgements": {"count": 0, "mean": None},
    }
    filed = rows["filed"]
    assert (filed["source"], filed["version_count"], filed["static_def_id"]) == ("file", 2, FILED.def_id)
    assert (filed["active_def_id"], filed["active_version"]) == (None, 0)
    assert (rows["soaker"]["version_count"], rows["soaker"]["description"]) == (0, None)


async def test_shared_definitions_are_listed_for_everybody_unless_something_hides_them(here: Served) -> None:
    body = {"op": "create", "name": "common", "overlay": {"model": "m"}}
    answer = await here.client().post("/v1/_agentdef?tenant=_shared", json=body)
    assert answer.status_code == 200, answer.text
    (row,) = (await get(here, "?name=common", GLOBEX))["definitions"]
    assert (row["source"], row["tenant_id"], row["active_def_id"]) == ("shared", "", answer.json()["def_id"])
    await create(here, "common", "ours")
    (row,) = (await get(here, "?name=common"))["definitions"]
    assert (row["source"], row["tenant_id"], row["active_version"]) == ("tenant", "acme", 1)


async def test_a_list_is_read_page_by_page(here: Served) -> None:
    for name in ("a", "b", "c"):
        await create(here, name, "x")
    await operate(here, "create", kind="skill", name="a", overlay={"body": "x"})
    seen, cursor = [], ""
    while True:
        page = await get(here, f"?limit=2&cursor={cursor}")
        seen += [(row["kind"], row["name"]) for row in page["definitions"]]
        cursor = page["next"]
        if not cursor:
            break
    assert seen == [("agent", name) for name in ("a", "b", "c", "filed", "soaker")] + [("skill", "a")]
    assert (await get(here, "?cursor=nonsense", status=400))["code"] == "bad_request"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("kind=skill", ["note"]),
        ("prefix=no", ["note"]),
        ("name=note", ["note"]),
        ("active=false&kind=agent", ["filed", "idle", "soaker"]),
        ("active=true", ["retiring", "note"]),
        ("retired=true", ["retiring"]),
        ("created_by=acme-op&kind=agent", ["idle", "retiring"]),
        ("created_by=ivy", []),
        ("tenant=acme&kind=skill", ["note"]),
    ],
)
async def test_lists_are_filtered(here: Served, query: str, names: list[str]) -> None:
    await operate(here, "create", kind="skill", name="note", overlay={"body": "x"})
    await create(here, "idle", "x", promote=False)
    first = await create(here, "retiring", "x")
    await create(here, "retiring", "y")
    await operate(here, "retire", def_id=first["def_id"], retired=True)
    assert [row["name"] for row in (await get(here, f"?{query}"))["definitions"]] == names


# --- single versions -------------------------------------------------------------------------------------------------


async def test_a_version_is_shown_with_its_author(here: Served) -> None:
    made = await create(here, "helper", "one", description="the first")
    row = await get(here, f"/{made['def_id']}")
    assert (row["kind"], row["tenant_id"], row["created_by"]) == ("agent", "acme", "acme-op")
    assert (row["version"], row["promoted"], row["description"]) == (1, True, "the first")
    assert row["definition"]["system_prompt"] == "one"
    assert row["position"].startswith("loom.entity.events/")
    later = await get(here, f"/{(await create(here, 'helper', 'two'))['def_id']}")
    assert int(later["position"].rpartition(":")[2]) > int(row["position"].rpartition(":")[2])
    assert row["judgements"] == {"count": 0, "mean": None, "min": None, "max": None}


async def test_a_definition_of_a_file_is_shown(here: Served) -> None:
    row = await get(here, f"/{FILED.def_id}")
    assert (row["version"], row["promoted"], row["content_sha256"]) == (0, True, FILED.content_sha256)
    assert row["definition"] == FILED.content


@pytest.mark.parametrize("path", ["", "/diff", "/lineage", "/runs"])
async def test_the_version_of_another_tenant_is_not_found(here: Served, path: str) -> None:
    made = await create(here, "helper", "one")
    assert (await get(here, f"/{made['def_id']}{path}", GLOBEX, 404))["code"] == "not_found"
    assert (await get(here, f"/def_0000000000000000{path}", status=404))["code"] == "not_found"
    assert await get(here, f"/{made['def_id']}{path}?tenant=acme", ADMIN_CALLER)


async def test_a_change_of_the_output_schema_says_whether_its_readers_go_on_working(here: Served) -> None:
    schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
    await create(here, "helper", "one")
    typed = await operate(here, "fork", name="helper", overlay={"output_schema": schema}, promote=True)
    looser = await operate(here, "fork", name="helper", overlay={"output_schema": {**schema, "required": []}})
    assert (await get(here, f"/{typed['def_id']}/diff"))["output_change"] == {"kind": "compatible", "reasons": []}
    change = (await get(here, f"/{looser['def_id']}/diff"))["output_change"]
    assert change == {"kind": "breaking", "reasons": ["$.total: may be absent now"]}
    same = await operate(here, "fork", name="helper", overlay={"system_prompt": "two"})
    assert "output_change" not in await get(here, f"/{same['def_id']}/diff")


async def test_a_difference_is_that_to_the_parent_or_to_what_is_named(here: Served) -> None:
    first = await create(here, "helper", "one")
    second = await operate(here, "fork", name="helper", overlay={"system_prompt": "two"}, promote=False)
    prompts = [{"field": "system_prompt", "before": "one", "after": "two"}]
    answer = await get(here, f"/{second['def_id']}/diff")
    assert (answer["from"], answer["to"]) == (first["def_id"], second["def_id"])
    assert [one for one in answer["changes"] if one["field"] == "system_prompt"] == prompts
    answer = await get(here, f"/{second['def_id']}/diff?to=active")
    assert (answer["from"], answer["to"]) == (second["def_id"], first["def_id"])
    answer = await get(here, f"/{first['def_id']}/diff?to={second['def_id']}")
    assert answer["to"] == second["def_id"]
    answer = await get(here, f"/{first['def_id']}/diff")
    assert answer["from"] is None
    assert {"field": "model", "before": None, "after": "m"} in answer["changes"]
    assert (await get(here, f"/{first['def_id']}/diff?to=file", status=404))["code"] == "not_found"
    skill = await operate(here, "create", kind="skill", name="note", overlay={"body": "x"})
    assert (await get(here, f"/{first['def_id']}/diff?to={skill['def_id']}", status=400))["code"] == "bad_request"


async def test_a_fork_of_a_file_is_compared_with_the_file(here: Served) -> None:
    fork = await operate(here, "fork", name="filed", overlay={"tools": ["Read"]})
    answer = await get(here, f"/{fork['def_id']}/diff?to=file")
    assert answer["to"] == FILED.def_id
    assert answer["changes"] == [{"field": "tools", "before": ["Read"], "after": ["Read", "Grep"]}]


async def test_lineage_has_ancestors_and_descendants(here: Served) -> None:
    fork = await operate(here, "fork", name="filed", overlay={"tools": ["Read"]})
    answer = await get(here, f"/{fork['def_id']}/lineage?depth=1")
    assert answer["root"]["version"] == 1
    assert [row["version"] for row in answer["ancestors"]] == [1]
    assert answer["descendants"] == []
    assert (await get(here, f"/{FILED.def_id}/lineage"))["root"]["def_id"] == FILED.def_id


async def test_runs_are_those_of_agents_made_at_run_time(here: Served) -> None:
    made = await create(here, "helper", "one")
    assert await get(here, f"/{made['def_id']}/runs") == {"runs": [], "next": None}
    assert (await get(here, f"/{FILED.def_id}/runs", status=400))["code"] == "bad_request"
    skill = await operate(here, "create", kind="skill", name="note", overlay={"body": "x"})
    assert (await get(here, f"/{skill['def_id']}/runs", status=400))["code"] == "bad_request"


# --- batches ---------------------------------------------------------------------------------------------------------


async def test_a_batch_makes_all_definitions_active(here: Served) -> None:
    first = await create(here, "helper", "one", overlay={"tools": ["Read"]})
    answer = await apply(
        here,
        change("helper", "two", expect_active=first["def_id"]),
        change("filed", "over the file"),
        change("cite", "Name your sources.", kind="skill"),
        description="together",
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    helper, filed, cite = body["definitions"]
    assert (body["status"], helper["kind"], cite["kind"]) == ("applied", "agent", "skill")
    assert [row["promoted"] for row in body["definitions"]] == [True] * 3
    assert (helper["parent_def_id"], helper["definition"]["tools"]) == (first["def_id"], ["Read"])
    assert (filed["version"], filed["parent_def_id"]) == (2, def_id("acme", "agent", "filed", 1))
    assert filed["definition"]["tools"] == ["Read", "Grep"]
    assert (cite["version"], cite["description"]) == (1, "together")
    listed = {row["name"]: row["active_def_id"] for row in (await get(here, "?active=true"))["definitions"]}
    assert listed == {row["name"]: row["def_id"] for row in (helper, filed, cite)}
    position = answer.headers["x-loomlog-position"]
    assert (await here.client(ACME).get(PATH, headers={"x-loomlog-position": position})).status_code == 200
    undone = await operate(here, "rollback", name="helper", why="worse")
    assert undone["def_id"] == first["def_id"]


async def test_a_refused_change_refuses_all(here: Served) -> None:
    first = await create(here, "helper", "one")
    answer = await apply(here, change("new", "x"), change("helper", "two", expect_active="def_other"))
    assert refusal(answer) == (409, "definition_conflict", "definition_conflict")
    assert "helper" in answer.json()["error"]
    answer = await apply(here, change("filed", "x", kind="agent"), {**change("helper", "y"), "overlay": {"colour": 1}})
    assert refusal(answer) == (422, "tool_refused", "unknown_field")
    answer = await apply(here, {**change("filed", "x"), "overlay": {"tools": ["Bash"]}}, change("new", "x"))
    assert refusal(answer) == (422, "tool_refused", "tools_widened")
    assert "filed" in answer.json()["error"]
    rows = {row["name"]: row for row in (await get(here, ""))["definitions"]}
    assert rows["helper"]["active_def_id"] == first["def_id"]
    assert rows["new"]["active_def_id"] is None
    assert rows["new"]["live_version_count"] == 0
    assert (await create(here, "new", "later"))["promoted"]


async def test_content_that_is_active_already_makes_no_version(here: Served) -> None:
    first = await create(here, "helper", "one")
    answer = (await apply(here, change("helper", "one"), change("other", "x"))).json()["definitions"]
    assert (answer[0]["def_id"], answer[0]["deduplicated"]) == (first["def_id"], True)
    assert "deduplicated" not in answer[1]
    (row,) = (await get(here, "?name=helper"))["definitions"]
    assert (row["version_count"], row["active_version"]) == (1, 1)


async def test_the_same_idempotency_key_is_the_same_batch(here: Served) -> None:
    body = {"definitions": [change("helper", "one")]}
    answers = [
        (await here.client(ACME).post(f"{PATH}/apply", json=body, headers={"Idempotency-Key": key})).json()
        for key in ("k", "k", "l")
    ]
    assert answers[0] == answers[1]
    assert answers[2]["batch"] != answers[0]["batch"]
    assert answers[2]["definitions"][0]["deduplicated"]


async def test_long_definitions_fit_one_batch(here: Served) -> None:
    changes = [change(f"long{number}", f"{number}" * 16_000, kind="skill") for number in range(16)]
    answer = await apply(here, *changes)
    assert answer.status_code == 200, answer.text
    assert answer.json()["definitions"][9]["definition"]["body"] == "9" * 16_000


@pytest.mark.parametrize(
    ("body", "reason", "text"),
    [
        ({}, "missing_field", "definitions"),
        ([], "invalid_definition", "object"),
        ({"definitions": []}, "invalid_definition", "a list of 1 to 32"),
        ({"definitions": [1]}, "invalid_definition", "definitions[0]"),
        ({"definitions": [change("a", "x")] * 2}, "invalid_definition", "twice"),
        ({"definitions": [change(f"a{n}", "x") for n in range(33)]}, "too_many", "33"),
        ({"definitions": [{"name": "a"}]}, "missing_field", "kind"),
        ({"definitions": [{"kind": "agent"}]}, "missing_field", "name"),
        ({"definitions": [change("a", "x", kind="agnet")]}, "invalid_definition", "agent"),
        ({"definitions": [change("../a", "x")]}, "bad_name", "name"),
        ({"definitions": [change("a", "x", colour=1)]}, "unknown_field", "colour"),
        ({"definitions": [change("a", "x", parent_def_id="def_1")]}, "parent_not_found", "def_1"),
        ({"definitions": [change("a", "x")], "why": "?"}, "unknown_field", "why"),
        ({"definitions": [change("a", "x")], "description": 1}, "invalid_definition", "description"),
        ({"definitions": [change("a", "x")], "description": "x" * 8_193}, "too_large", "a"),
        ({"definitions": [{**change("a", "x"), "overlay": 1}]}, "invalid_definition", "overlay"),
    ],
)
async def test_a_batch_that_cannot_be_is_refused(here: Served, body: Any, reason: str, text: str) -> None:
    answer = await here.client(ACME).post(f"{PATH}/apply", json=body)
    assert refusal(answer) == (422, "tool_refused", reason)
    assert text in answer.json()["error"]


# --- the past --------------------------------------------------------------------------------------------------------


async def test_what_was_active_at_a_position(here: Served) -> None:
    first = await create(here, "helper", "one", description="begin")
    second = await create(here, "helper", "two")
    batch = (await apply(here, change("helper", "three"), change("other", "x"), description="together")).json()
    gone = await operate(here, "retire", def_id=batch["definitions"][0]["def_id"], retired=True)
    at = [await get(here, f"/at?position={made['position']}&name=helper") for made in (first, second, gone)]
    assert [[row["version"] for row in answer["definitions"]] for answer in at] == [[1], [2], []]
    assert at[0]["definitions"] == [
        {
            "kind": "agent",
            "name": "helper",
            "tenant_id": "acme",
            "active_def_id": first["def_id"],
            "version": 1,
            "promoted_at": at[0]["definitions"][0]["promoted_at"],
            "promoted_by": "acme-op",
            "why": "begin",
            "position": first["position"],
        }
    ]
    assert at[0]["at"] == first["position"]


async def test_what_was_active_at_a_time(here: Served) -> None:
    await create(here, "helper", "one")
    await operate(here, "create", kind="skill", name="note", overlay={"body": "x"})
    answer = await get(here, "/at?time=2100-01-01T00:00:00Z")
    assert [(row["kind"], row["name"]) for row in answer["definitions"]] == [("agent", "helper"), ("skill", "note")]
    assert [row["name"] for row in (await get(here, "/at?time=2100-01-01&kind=skill"))["definitions"]] == ["note"]
    before = await get(here, "/at?time=2001-01-01T00:00:00Z")
    assert before == {"definitions": [], "at": "2001-01-01T00:00:00.000Z"}
    assert (await get(here, "/at?time=2100-01-01", GLOBEX))["definitions"] == []
    assert len((await get(here, "/at?time=2100-01-01&tenant=acme", ADMIN_CALLER))["definitions"]) == 2


async def test_the_position_of_an_event_of_a_run_stands_for_its_time(here: Served) -> None:
    made = await create(here, "helper", "one")
    await here.run(caller=ACME)
    run = (await here.client(ACME).get("/v1/runs")).json()["runs"][0]
    answer = await get(here, f"/at?position={run['position']}")
    assert [row["active_def_id"] for row in answer["definitions"]] == [made["def_id"]]


@pytest.mark.parametrize(
    "query",
    ["", "time=soon", "time=2026-01-01&position=loom.entity.events/0:0", "position=x", "position=loom.other/0:0",
     "position=loom.entity.events/0:99999", "time=2026-01-01&kind=agnet"],
)  # fmt: skip
async def test_a_moment_that_cannot_be_is_refused(here: Served, query: str) -> None:
    assert (await get(here, f"/at?{query}", status=400))["code"] == "bad_request"


async def test_rows_that_are_behind_are_said_to_be(here: Served, entities: LogEntities) -> None:
    await create(here, "helper", "one")
    entities.error = PositionNotRead("behind")
    assert (await get(here, "/at?time=2100-01-01", status=503))["code"] == "definitions_unavailable"


# --- blame -----------------------------------------------------------------------------------------------------------


async def blame(here: Served, run_id: str, caller: Any = ACME, status: int = 200) -> Any:
    answer = await here.client(caller).get(f"/v1/runs/{run_id}/blame")
    assert answer.status_code == status, answer.text
    return answer.json()


async def run_of(here: Served, **pin: Any) -> str:
    """A finished run; its row says what it was pinned to."""
    frames = await here.run(caller=ACME)
    run_id = str(next(frame.data["run_id"] for frame in frames if frame.event == "agent"))
    here.world.project()
    rows = here.world.twin.tables["runs"]
    rows[run_id] = cast(RunRow, rows[run_id])._replace(**pin)
    return run_id


async def test_blame_names_the_version_its_author_and_its_promotion(here: Served) -> None:
    first = await create(here, "helper", "one", description="a start")
    made = await create(here, "helper", "two", description="better", promote=False)
    promoted = await operate(here, "promote", def_id=made["def_id"], why="it scored higher")
    run_id = await run_of(
        here, agent="helper", def_id=made["def_id"], def_version=2, started_at_ms=NOW_MS, definition_sha256="ab"
    )
    found = await blame(here, run_id, READER)
    assert found == {
        "run_id": run_id,
        "agent": "helper",
        "def_id": made["def_id"],
        "version": 2,
        "source": "tenant",
        "content_sha256": made["content_sha256"],
        "definition_sha256": "ab",
        "created_at": found["created_at"],
        "created_by": "acme-op",
        "created_by_agent_id": made["created_by_agent_id"],
        "created_by_run_id": None,
        "description": "better",
        "parent_def_id": None,
        "promoted_at": found["promoted_at"],
        "promoted_by": "acme-op",
        "promoted_why": "it scored higher",
        "promotion_position": promoted["position"],
        "is_active_now": True,
        "file": None,
        "skills": [],
    }
    await operate(here, "rollback", name="helper")
    after = await blame(here, run_id)
    assert (after["is_active_now"], after["promotion_position"]) == (False, promoted["position"])
    assert first["def_id"] != made["def_id"]


async def test_blame_of_a_fork_says_whether_the_file_differs(here: Served) -> None:
    same = await operate(here, "fork", name="filed", overlay={}, promote=True)
    run_id = await run_of(here, agent="filed", def_id=same["def_id"], def_version=2)
    assert (await blame(here, run_id))["file"] == {"def_id": FILED.def_id, "differs_from_pin": False}
    other = await operate(here, "fork", name="filed", overlay={"system_prompt": "other"})
    run_id = await run_of(here, agent="filed", def_id=other["def_id"], def_version=3)
    found = await blame(here, run_id)
    assert found["file"]["differs_from_pin"] is True
    assert found["promoted_at"] is None


async def test_blame_of_a_run_of_a_file(here: Served) -> None:
    found = await blame(here, await run_of(here))
    assert (found["agent"], found["source"], found["version"]) == ("soaker", "file", 0)
    assert (found["def_id"], found["is_active_now"]) == (SOAKER.def_id, True)
    assert found["file"] == {"def_id": SOAKER.def_id, "differs_from_pin": None}


async def test_blame_of_a_version_that_is_not_here(here: Served) -> None:
    found = await blame(here, await run_of(here, agent="gone", def_id="def_1", def_version=7))
    assert (found["def_id"], found["version"], found["source"], found["is_active_now"]) == ("def_1", 7, None, False)


async def test_blame_is_for_those_who_see_the_run(here: Served) -> None:
    run_id = await run_of(here)
    assert (await blame(here, run_id, GLOBEX, 404))["code"] == "not_found"
    assert (await blame(here, run_id, IVY, 404))["code"] == "not_found"
