"""Volumes made at run time, over the rules in memory and folders on the disk."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.definitions import DefinitionProblem, canonical_json
from loomlog.connectors.errors import Transient
from loomlog.schemas.generated.definition_commands import DefineVersion, DeleteLine
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import At, aggregate_id
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition import volumes as volumes_module
from loomlog.services.families.definition.decide import decide
from loomlog.services.families.definition.limits import VERSIONS_MAX
from loomlog.services.families.definition.state import VOLUME, Line
from loomlog.services.families.definition.volume_content import folder_parts, parse_volume
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.definition.volume_world import AGENT, OPERATOR, Process, of_run


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return tmp_path / "pool"


@pytest.fixture
def here(pool: Path) -> Process:
    return Process(MemoryEntities(FAMILY), pool)


# --- volumes that last -----------------------------------------------------------------------------------------------


async def test_a_volume_is_made_listed_bound_and_purged(here: Process, pool: Path) -> None:
    made = await here.do("create", name="notes")
    path = str(pool / "acme" / "notes")
    assert (made["name"], made["path"], made["mode"]) == ("notes", path, "rw")
    assert made["created_at"] == made["updated_at"] == "2027-01-15T08:00:00.000000000Z"
    assert "/vol/notes" in made["mount_warning"]
    assert Path(path).is_dir()
    assert await here.names() == ["notes"]
    assert (await here.do("get", name="notes"))["path"] == path
    binding = here.table.find("acme", "notes")
    assert binding is not None
    assert (binding.path, binding.mode, binding.root) == (path, "rw", str(pool))
    assert here.table.find("other", "notes") is None
    (Path(path) / "f").write_text("x")
    assert await here.do("purge", name="notes") == {"name": "notes", "deleted": True, "files_removed": True}
    assert not Path(path).exists()
    assert await here.names() == []
    assert here.table.find("acme", "notes") is None
    assert (await here.refused("get", name="notes"))[0] == "not_found"
    assert (await here.refused("purge", name="notes"))[0] == "not_found"


async def test_deleting_keeps_the_files_and_the_name_can_be_made_again_any_number_of_times(
    here: Process, pool: Path
) -> None:
    for number in range(VERSIONS_MAX + 2):
        await here.do("create", name="notes", mode="ro" if number % 2 else "rw")
        if not number:
            (pool / "acme" / "notes" / "f").write_text("kept")
        assert await here.do("delete", name="notes") == {"name": "notes", "deleted": True, "files_removed": False}
    assert (pool / "acme" / "notes" / "f").read_text() == "kept"
    assert len(here.replicas.state(aggregate_id("definition", "acme", "volume/notes")).versions) == 0


async def test_making_it_again_changes_the_mode_and_keeps_the_files(here: Process, pool: Path) -> None:
    await here.do("create", name="notes")
    (pool / "acme" / "notes" / "f").write_text("kept")
    changed = await here.do("create", name="notes", mode="ro")
    assert changed["mode"] == "ro"
    assert (pool / "acme" / "notes" / "f").exists()
    assert await here.names() == ["notes"]


async def test_tenants_have_folders_of_their_own_and_share_one(here: Process, pool: Path) -> None:
    for tenant in ("acme", "other", ""):
        await here.do("create", replace(OPERATOR, tenant=tenant), name="notes")
    assert sorted(one.name for one in pool.iterdir()) == ["_shared", "acme", "other"]
    assert (binding := here.table.find("third", "notes")) is not None
    assert binding.path == str(pool / "_shared" / "notes")
    await here.do("purge", name="notes")
    assert (binding := here.table.find("acme", "notes")) is not None
    assert binding.path == str(pool / "_shared" / "notes")
    assert (pool / "other" / "notes").is_dir()


@pytest.mark.parametrize("tenant", ["_shared", "_ephemeral", "..", "a/b"])
async def test_a_tenant_that_is_no_folder_of_its_own_has_no_volumes(here: Process, tenant: str) -> None:
    assert (await here.refused("create", replace(OPERATOR, tenant=tenant, is_admin=False), name="notes"))[
        0
    ] == "bad_name"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "A", "-a", "_ephemeral", "_ephemeral-1", "a" * 65, "ä", "a\n", "a b", "a\0"]
)
@pytest.mark.parametrize("op", ["create", "get", "delete", "purge"])
async def test_bad_names_are_refused(here: Process, pool: Path, op: str, name: str) -> None:
    reason, _ = await here.refused(op, name=name)
    assert reason == ("missing_field" if not name else "invalid_definition" if "\0" in name else "bad_name")
    assert not pool.exists()


@pytest.mark.parametrize(
    ("body", "reason", "text"),
    [
        ({"op": "create"}, "missing_field", "name"),
        ({"op": "create", "name": "a", "path": "/etc"}, "unknown_field", "path"),
        ({"op": "create", "name": "a", "mode": "rwx"}, "invalid_definition", "one of '', ro, rw"),
        ({"op": "create", "name": "a", "mode": 7}, "invalid_definition", "not 7"),
        ({"op": "create", "name": "a", "ephemeral": "yes"}, "invalid_definition", "true or false"),
        ({"op": "create", "name": "a", "ephemeral": True}, "invalid_definition", "only a run can make one"),
        ({"op": "create", "name": "a", "mount_at": "notes"}, "invalid_definition", "mount_at"),
        ({"op": "create", "name": "work"}, "static_name", "configuration file"),
        ({"op": "purge", "name": "pool"}, "static_name", "configuration file"),
    ],
)
async def test_what_is_refused_says_what_to_do(here: Process, body: Any, reason: str, text: str) -> None:
    with pytest.raises(Refused, match=text) as caught:
        await here.opened.ask("VolumeDef", author=OPERATOR, **body)
    assert caught.value.code == reason


async def test_without_a_dynamic_root_the_refusal_says_what_to_configure(tmp_path: Path) -> None:
    here = Process(MemoryEntities(FAMILY), None)
    assert "dynamic_root: true" in (await here.refused("create", name="notes"))[1]
    assert await here.names() == []


async def test_a_folder_that_cannot_be_made_is_a_refusal_and_no_line(here: Process, pool: Path) -> None:
    pool.mkdir()
    (pool / "acme").symlink_to("/etc")
    assert "symlink" in (await here.refused("create", name="notes"))[1]
    assert await here.names() == []


async def test_a_purge_that_does_not_reach_the_owner_is_finished_by_the_next(here: Process, pool: Path) -> None:
    await here.do("create", name="notes")
    here.entities.error = Transient("gone", kind="unavailable")
    with pytest.raises(Unavailable):
        await here.do("purge", name="notes")
    here.entities.error = None
    assert await here.names() == ["notes"]  # what is listed can be purged again
    assert (await here.do("purge", name="notes"))["files_removed"]
    assert await here.names() == []


async def test_a_repeated_purge_has_the_first_answer(here: Process) -> None:
    await here.do("create", name="notes")
    first = replace(OPERATOR, command_id="call 7")
    answer = await here.opened.ask("VolumeDef", "purge", first, name="notes")
    assert await here.opened.ask("VolumeDef", "purge", replace(first, issued_at_ms=0), name="notes") == answer


async def test_a_record_that_names_another_folder_is_not_bound_and_not_purged(here: Process, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    content = canonical_json({"path": str(tmp_path / "precious"), "mode": "rw"})
    envelope = CommandEnvelope(command_id="x", tenant="acme", subject="someone")
    await here.ask(DefineVersion(envelope=envelope, kind=VOLUME, name="notes", content=content), wait_s=1)
    assert here.table.find("acme", "notes") is None
    assert "nothing was removed" in (await here.refused("purge", name="notes"))[1]
    assert (tmp_path / "precious").is_dir()
    assert (await here.do("delete", name="notes"))["deleted"]


# --- who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "made_by", "may"),
    [
        ((), "helper", False),
        (("any",), "other", True),
        (("named:notes",), "other", True),
        (("named:others",), "other", False),
        (("self",), "helper", False),
        (("descendants",), "helper", True),
        (("descendants",), "other", False),
    ],
)
async def test_an_agent_writes_the_volumes_of_its_scopes(
    here: Process, scopes: tuple[str, ...], made_by: str, may: bool
) -> None:
    await here.do("create", replace(AGENT, agent=made_by), name="notes")
    author = replace(AGENT, grants={"volume_def_scopes": scopes})
    if may:
        assert (await here.do("purge", author, name="notes"))["deleted"]
    else:
        reason, message = await here.refused("purge", author, name="notes")
        assert reason == "scope_denied"
        assert "volume_def_scopes" in message
    assert ("notes" in await here.names()) == (not may)


async def test_an_agent_without_scopes_makes_no_volume_of_any_kind(here: Process, pool: Path) -> None:
    author = replace(AGENT, grants={})
    for ephemeral in (True, False):
        assert (await here.refused("create", author, name="notes", ephemeral=ephemeral))[0] == "scope_denied"
    assert not pool.exists()


async def test_a_name_that_was_deleted_belongs_to_whoever_makes_it_next(here: Process) -> None:
    await here.do("create", replace(AGENT, agent="other"), name="notes")
    await here.do("delete", name="notes")
    author = replace(AGENT, grants={"volume_def_scopes": ("descendants",)})
    await here.do("create", author, name="notes")
    assert (await here.do("delete", author, name="notes"))["deleted"]


async def test_only_administrators_see_folders_of_the_server(here: Process, pool: Path) -> None:
    pool.mkdir()
    (pool / "acme").symlink_to("/")  # so that no folder can be made
    for author, is_shown in ((OPERATOR, True), (replace(OPERATOR, is_admin=False), False), (of_run("r_1"), False)):
        is_ephemeral = bool(author.root_run_id)
        if is_ephemeral:
            (pool / "_ephemeral").symlink_to("/")
        _, message = await here.refused("create", author, name="notes", ephemeral=is_ephemeral)
        assert (str(pool) in message) == is_shown
    (pool / "acme").unlink()
    (pool / "_ephemeral").unlink()
    await here.do("create", name="notes")
    await here.do("create", of_run("r_1"), name="repo", ephemeral=True)
    member = replace(OPERATOR, is_admin=False)
    answers = [
        await here.do("create", member, name="notes"),
        await here.do("get", member, name="notes"),
        await here.do("list", member),
        await here.do("list", of_run("r_1")),
        await here.do("get", of_run("r_1"), name="repo"),
    ]
    assert str(pool) not in str(answers)
    assert str(pool) in str(await here.do("list"))


# --- ephemeral volumes -----------------------------------------------------------------------------------------------


async def test_trees_of_runs_have_the_same_name_apart_and_see_only_their_own(here: Process, pool: Path) -> None:
    for root in ("r_a", "r_b"):
        made = await here.do("create", of_run(root), name="repo", ephemeral=True)
        path = str(pool / "_ephemeral" / root / "repo")
        assert made == {"name": "repo", "path": "", "mode": "rw", "ephemeral": True, "created_at": made["created_at"]}
        assert [(one.name, one.path) for one in here.table.of_run("acme", root)] == [("repo", path)]
        assert await here.names(of_run(root)) == ["repo"]
    assert here.table.of_run("other", "r_a") == ()
    assert here.table.find("acme", "repo") is None
    assert await here.names() == []
    assert (await here.refused("get", name="repo"))[0] == "not_found"
    assert (await here.refused("purge", name="repo"))[0] == "not_found"


@pytest.mark.parametrize("op", ["delete", "purge"])
async def test_a_run_removes_its_volume_with_its_files(here: Process, pool: Path, op: str) -> None:
    await here.do("create", of_run("r_a"), name="repo", ephemeral=True)
    await here.do("create", of_run("r_b"), name="repo", ephemeral=True)
    assert (await here.do(op, of_run("r_a"), name="repo"))["files_removed"] is True
    assert [one.content.root_run for one in here.table.all_ephemeral()] == ["r_b"]
    assert [one.name for one in (pool / "_ephemeral").iterdir()] == ["r_b"]


async def test_the_end_of_a_run_removes_all_of_it_and_lines_are_used_again(here: Process, pool: Path) -> None:
    for round_number in range(3):
        for name in ("repo", "notes"):
            await here.do("create", of_run(f"r_{round_number}"), name=name, ephemeral=True)
        (pool / "_ephemeral" / f"r_{round_number}" / "repo" / "f").write_text("x")
        await here.operations.end_run("acme", f"r_{round_number}", at_ms=NOW_MS + round_number)
        assert here.table.all_ephemeral() == []
        assert list(pool.iterdir()) == []
    assert sorted(name for _, name in here.entities.entities) == ["volume/_ephemeral-0", "volume/_ephemeral-1"]


async def test_two_processes_that_take_one_line_at_once_get_two(here: Process, pool: Path) -> None:
    other = Process(here.entities, pool)
    await asyncio.gather(
        here.do("create", of_run("r_a"), name="repo", ephemeral=True),
        other.do("create", of_run("r_b"), name="repo", ephemeral=True),
    )
    here.read()
    made = here.table.all_ephemeral()
    assert [one.content.root_run for one in made] == ["r_a", "r_b"]
    assert {one.line for one in made} == {"_ephemeral-0", "_ephemeral-1"}


async def test_a_removal_that_comes_late_leaves_the_next_volume_of_the_line_alone(here: Process, pool: Path) -> None:
    other = Process(here.entities, pool)
    await here.do("create", of_run("r_a"), name="repo", ephemeral=True)
    other.read()
    await here.operations.end_run("acme", "r_a", at_ms=NOW_MS)
    await here.do("create", of_run("r_b"), name="repo", ephemeral=True)
    await other.operations.end_run("acme", "r_a", at_ms=NOW_MS + 1)  # it has not read what happened meanwhile
    here.read()
    assert [one.content.root_run for one in here.table.all_ephemeral()] == ["r_b"]
    assert (pool / "_ephemeral" / "r_b" / "repo").is_dir()


async def test_one_call_that_is_made_again_makes_one_volume(here: Process) -> None:
    author, fields = of_run("r_a"), {"name": "repo", "ephemeral": True}
    first = await here.opened.ask("VolumeDef", "create", author, **fields)
    again = await here.opened.ask("VolumeDef", "create", replace(author, issued_at_ms=0), **fields)
    assert again.value == first.value
    await here.do("create", author, name="repo", ephemeral=True, mode="ro")
    assert [(one.line, one.content.mode) for one in here.table.all_ephemeral()] == [("_ephemeral-0", "ro")]


async def test_names_of_volumes_that_last_and_bounds_are_kept(here: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.do("create", name="notes")
    assert (await here.refused("create", of_run("r_a"), name="notes", ephemeral=True))[0] == "definition_conflict"
    assert (await here.refused("create", of_run("r_a"), name="work", ephemeral=True))[0] == "static_name"
    monkeypatch.setattr(volumes_module, "RUN_VOLUMES_MAX", 1)
    monkeypatch.setattr(volumes_module, "EPHEMERAL_MAX", 2)
    await here.do("create", of_run("r_a"), name="one", ephemeral=True)
    assert "tree" in (await here.refused("create", of_run("r_a"), name="two", ephemeral=True))[1]
    await here.do("create", of_run("r_b"), name="one", ephemeral=True)
    reason, message = await here.refused("create", of_run("r_c"), name="one", ephemeral=True)
    assert (reason, "tenant" in message) == ("too_many", True)


# --- the rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "content", "reason"),
    [
        ("../x", {"path": "/p", "mode": "rw"}, "bad_name"),
        ("notes", {"path": "p", "mode": "rw"}, "invalid_definition"),
        ("notes", {"path": "/" + "p" * 5_000, "mode": "rw"}, "invalid_definition"),
        ("notes", {"path": "/p", "mode": "x"}, "invalid_definition"),
        ("notes", {"path": "/p"}, "invalid_definition"),
        ("notes", {"path": "/p", "mode": ["rw"]}, "invalid_definition"),
        ("notes", {"path": "/p", "mode": "rw", "size": "1"}, "invalid_definition"),
        ("notes", {"path": "/p", "mode": "rw", "root_run": "r_1"}, "invalid_definition"),
        ("notes", {"path": "/p", "mode": "rw", "name": "other"}, "invalid_definition"),
        ("_ephemeral-1", {"path": "/p", "mode": "rw"}, "invalid_definition"),
        ("_ephemeral-x", {"path": "/p", "mode": "rw", "name": "a", "root_run": "r_1"}, "invalid_definition"),
        ("_ephemeral-1", {"path": "/p", "mode": "rw", "name": "../a", "root_run": "r_1"}, "bad_name"),
        ("_ephemeral-1", {"path": "/p", "mode": "rw", "name": "a", "root_run": "../r"}, "invalid_definition"),
    ],
)
def test_a_foreign_record_of_a_volume_is_refused(line: str, content: dict[str, Any], reason: str) -> None:
    envelope = CommandEnvelope(command_id="x", tenant="acme", subject="someone")
    command = DefineVersion(envelope=envelope, kind=VOLUME, name=line, content=canonical_json(content))
    (event,) = decide(Line(tenant="acme", kind=VOLUME, name=line), command, At(at_ms=1))
    assert isinstance(event, CommandRefused)
    assert event.code == reason
    with pytest.raises(DefinitionProblem):
        parse_volume(line, content)


async def test_a_line_is_deleted_only_with_the_content_that_is_expected(here: Process) -> None:
    await here.do("create", name="notes")
    made = here.table.made("acme", "notes")
    assert made is not None
    for sha256, is_deleted in (("0" * 64, False), (made.digest.hex(), True)):
        envelope = CommandEnvelope(command_id=sha256, tenant="acme", subject="someone")
        command = DeleteLine(envelope=envelope, kind=VOLUME, name="notes", expect_sha256=sha256)
        (event,) = (await here.ask(command, wait_s=1)).events
        assert (isinstance(event, CommandRefused) and event.code == "definition_conflict") != is_deleted


def test_folders_follow_from_tenant_run_and_name() -> None:
    assert folder_parts("acme", "notes") == ("acme", "notes")
    assert folder_parts("", "notes") == ("_shared", "notes")
    assert folder_parts("acme", "notes", "r_1") == ("_ephemeral", "r_1", "notes")
    for tenant, name, run in (("..", "a", ""), ("acme", "..", ""), ("acme", "a", "../r"), ("acme", "a/b", "r_1")):
        with pytest.raises(DefinitionProblem):
            folder_parts(tenant, name, run)
