"""Runs and volumes that were made at run time: the tool, what tools are bound to, and the end of ephemeral ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import EffectClass, Reply
from loomlog.connectors.tools.arguments import require_supported_schema
from loomlog.connectors.tools.registry import ToolOptions, build_tools
from loomlog.schemas.generated.run_events import RunCompleted, ToolReturned
from loomlog.schemas.generated.values import AgentGrants, ParentCall, ToolCall, Usage, VolumeGrant
from loomlog.schemas.records import replace
from loomlog.services.core.run.run_facts import RunFacts
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.ephemeral_volumes import EphemeralVolumes
from loomlog.services.runtime.run.run_index import EndedRun
from tests.services.core.run.given import DEFINITION, at_tools, begun
from tests.services.entities import NOW_MS, MemoryEntities
from tests.services.families.definition.volume_world import Process, of_run
from tests.services.runtime.fakes import AGENT, Scripted
from tests.services.runtime.small_runtime import RUN, Stage
from tests.services.runtime.tools.test_tool_calls import Work

CHILD_OF = ParentCall(run_id="r_root", agent_id="a", root_run_id="r_root", turn=1, index=0, number=0, depth=1)
WRITER = replace(
    AGENT, tools=("VolumeDef", "Write", "Read"), grants=AgentGrants(volume_def_scopes=("any",)), sha256="cd34"
)


class Index:
    """The rows of runs by id."""

    def __init__(self) -> None:
        self.rows: dict[str, EndedRun] = {}
        self.error: Transient | None = None

    def add(self, run_id: str, *, tenant: str = "acme", ended_at_ms: int = 0) -> None:
        self.rows[run_id] = EndedRun(
            run_id=run_id,
            tenant=tenant,
            session_id="s",
            partition=0,
            first_offset=1,
            last_offset=2,
            ended_at_ms=ended_at_ms,
        )

    async def find_run(self, run_id: str) -> EndedRun | None:
        if self.error is not None:
            raise self.error
        return self.rows.get(run_id)


class Here(Process):
    """A runtime."""

    def __init__(self, pool: Path) -> None:
        super().__init__(MemoryEntities(FAMILY), pool)
        self.index = Index()
        self.ends = EphemeralVolumes(self.operations, self.index.find_run, clock_ms=lambda: NOW_MS, interval_s=0.01)

    @asynccontextmanager
    async def removing(self, *, active: bool = False) -> AsyncIterator[None]:
        task = asyncio.create_task(self.ends.run(lambda: active))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.table.all_ephemeral()) != count:
                await asyncio.sleep(0.005)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "pool")


def call(name: str, /, **arguments: Any) -> Reply:
    calls = (ToolCall(id=f"c-{name}", name=name, input=json.dumps(arguments)),)
    return Reply(text="", tool_calls=calls, stop_reason="tool_use", usage=Usage(input_tokens=1), model="m-1")


async def test_a_run_makes_a_folder_uses_it_and_it_is_gone_with_the_run(here: Here, tmp_path: Path) -> None:
    stage = Stage(agent=WRITER, tools={**build_tools(ToolOptions()), **here.opened.tools()})
    stage.model = Scripted(
        [
            call("VolumeDef", op="create", name="scratch", ephemeral=True),
            call("Write", path="f", content="hello"),
            call("Read", path="f", volume="scratch"),
            Reply(text="done", stop_reason="end_turn", usage=Usage(input_tokens=1), model="m-1"),
        ]
    )
    stage.start(agent=WRITER.name)
    folder = tmp_path / "pool" / "_ephemeral" / RUN / "scratch"
    async with stage.owner("one", made_volumes=here.table, on_run_ended=here.ends.on_run_ended):
        await stage.until(lambda: stage.has(RunCompleted))
        assert (folder / "f").read_text() == "hello"
        async with here.removing():
            await here.until(0)
    results = [event for event in stage.events() if isinstance(event, ToolReturned)]
    assert [event.is_error for event in results] == [False, False, False]
    assert json.loads(results[0].text)["path"] == ""
    assert results[0].details is not None
    assert results[0].details.positions == ("loom.entity.events/1:2",)
    assert results[2].text == "hello"
    assert list((tmp_path / "pool").iterdir()) == []


async def test_only_the_end_of_the_top_level_run_ends_its_volumes(here: Here) -> None:
    await here.do("create", of_run("r_root"), name="repo", ephemeral=True)
    facts = begun().live.facts
    child: RunFacts = replace(facts, run_id="r_child", parent=CHILD_OF)
    async with here.removing():
        here.ends.on_run_ended("acme", child)
        here.ends.on_run_ended("other", replace(facts, run_id="r_root"))
        await asyncio.sleep(0.05)
        assert len(here.table.all_ephemeral()) == 1
        here.ends.on_run_ended("acme", replace(facts, run_id="r_root"))
        await here.until(0)


async def test_the_sweep_removes_what_ended_runs_have_left_and_nothing_else(here: Here, tmp_path: Path) -> None:
    for root in ("r_over", "r_live", "r_unknown", "r_foreign"):
        await here.do("create", of_run(root), name="repo", ephemeral=True)
    here.index.add("r_over", ended_at_ms=NOW_MS)
    here.index.add("r_live")
    here.index.add("r_foreign", tenant="other", ended_at_ms=NOW_MS)
    async with here.removing():
        await asyncio.sleep(0.05)
    assert len(here.table.all_ephemeral()) == 4  # another runtime sweeps
    here.index.error = Transient("gone", kind="unavailable")
    await here.ends.sweep()
    here.index.error = None
    async with here.removing(active=True):
        await here.until(3)
    left = ["r_foreign", "r_live", "r_unknown"]
    assert [one.content.root_run for one in here.table.all_ephemeral()] == left
    assert sorted(one.name for one in (tmp_path / "pool" / "_ephemeral").iterdir()) == left


async def test_a_volume_that_cannot_be_removed_waits_for_the_next_sweep(
    here: Here, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await here.do("create", of_run("r_over"), name="repo", ephemeral=True)
    here.index.add("r_over", ended_at_ms=NOW_MS)
    folder = tmp_path / "pool" / "_ephemeral" / "r_over"
    folder.rename(tmp_path / "aside")
    folder.symlink_to(tmp_path / "aside")
    await here.ends.sweep()
    assert "could not be removed yet" in caplog.text
    assert (tmp_path / "aside" / "repo").is_dir()
    folder.unlink()
    (tmp_path / "aside").rename(folder)
    await here.ends.sweep()
    assert here.table.all_ephemeral() == []
    assert not folder.exists()


# --- what tools are bound to -----------------------------------------------------------------------------------------


def author_in(tenant: str, root: str = "r_a") -> Author:
    return with_fields(of_run(root), tenant=tenant)


async def bound(here: Here, *grants: VolumeGrant, tenant: str = "t", **facts: Any) -> list[tuple[str, str, str]]:
    work = Work(made_volumes=here.table)
    run = at_tools("Read", definition=replace(DEFINITION, volumes=grants))
    run.state = replace(run.live, facts=replace(run.live.facts, **facts))
    await work.run(run)
    return [(one.name, one.mode, one.path) for one in work.tool.calls[0][1].volumes]


async def test_a_run_is_bound_to_made_volumes_of_its_grants_in_the_narrower_mode(here: Here, tmp_path: Path) -> None:
    author = author_in("t")
    await here.do("create", author, name="made")
    await here.do("create", author, name="fixed", mode="ro")
    pool = str(tmp_path / "pool")
    grants = [VolumeGrant(name=name, mode=mode) for name, mode in (("made", "ro"), ("fixed", "rw"), ("gone", "rw"))]
    assert await bound(here, *grants) == [("made", "ro", f"{pool}/t/made"), ("fixed", "ro", f"{pool}/t/fixed")]
    assert await bound(here) == []
    await here.do("delete", author, name="made")
    assert [name for name, _, _ in await bound(here, *grants)] == ["fixed"]
    # A volume of this process is never replaced by one that was made.
    assert (await bound(here, VolumeGrant(name="notes", mode="rw")))[0][2] == "/srv/notes"


async def test_all_runs_of_a_tree_are_bound_to_its_ephemeral_volumes(here: Here, tmp_path: Path) -> None:
    await here.do("create", author_in("t", root="r_root"), name="repo", ephemeral=True)
    path = str(tmp_path / "pool" / "_ephemeral" / "r_root" / "repo")
    assert await bound(here, parent=CHILD_OF) == [("repo", "rw", path)]
    assert await bound(here, run_id="r_root") == [("repo", "rw", path)]
    assert await bound(here) == []


# --- the tool --------------------------------------------------------------------------------------------------------


def test_the_tool_has_a_schema_that_models_take_and_classes_of_its_operations(here: Here) -> None:
    tool = here.opened.tools()["VolumeDef"]
    require_supported_schema(tool.name, tool.input_schema)
    assert tool.effect_class({"op": "list"}) is EffectClass.READ
    assert tool.effect_class({"op": "purge"}) is EffectClass.IDEMPOTENT
