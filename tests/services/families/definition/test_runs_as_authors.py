"""Runs that define what other runs use: through the tools of agents, over the rules in memory."""

import json
from collections.abc import Mapping
from dataclasses import replace as with_fields
from pathlib import Path
from typing import Any

import orjson
import pytest

from loomlog.connectors.configuration.resolve import GRANTED_FIELDS
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.protocols import ToolContext, ToolResult
from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.author import Author
from loomlog.services.families.definition.kind_api import APPLY
from loomlog.services.families.definition.table import file_definition
from tests.services.entities import MemoryEntities
from tests.services.families.definition.opened import fields_of
from tests.services.families.definition.volume_world import OPERATOR, Process

Content = Mapping[str, Any]
AGENT = KINDS["agent"]
AUTHOR_TOOLS = ["AgentDef", "SkillDef", "ScheduleDef", "VolumeDef", "TeamDef", "WebhookDef"]
FILES: Mapping[str, Content] = {
    "weak": {
        "tools": ["AgentDef"],
        "memory_scopes": ["user"],
        "channels": {"publish": ["team/*"], "subscribe": ["team/*"]},
        "agent_def_scopes": ["self"],
    },
    "puppet": {"tools": ["Read"], "volumes": ["vol"]},
    "writer": {
        "tools": [*AUTHOR_TOOLS, "Read", "Agent"],
        "volumes": ["vol", "default"],
        "agent_def_scopes": ["any"],
        "schedule_def_scopes": ["any"],
        "volume_def_scopes": ["any"],
    },
    "promoter": {"tools": ["AgentDef", "SkillDef", "Read"], "agent_def_scopes": ["any", "promote"]},
    "maker": {"tools": ["AgentDef", "Read", "Bash"], "agent_def_scopes": ["descendants"]},
    "leaf": {"system_prompt": "as the operator wrote it"},
}
SCHEDULE: Content = {"agent": "leaf", "schedule": "0 * * * *", "prompt": []}
ISOLATED = "ivy"


class Here(Process):
    """A runtime with agents of files. ivy is confined to what is her own."""

    def __init__(self, pool: Path) -> None:
        files = {
            ("agent", name): file_definition("agent", name, AGENT.compose(name, {"model": "m", **content}))
            for name, content in FILES.items()
        }
        files["skill", "triage"] = file_definition("skill", "triage", KINDS["skill"].compose("triage", {"body": "b"}))
        super().__init__(MemoryEntities(FAMILY), pool, files)
        self.calls = 0
        self.tools = self.opened.tools(lambda tenant, subject: (tenant, subject) == ("acme", ISOLATED))

    def run(self, agent: str, user: str = "ann", **changes: Any) -> ToolContext:
        """Return the context of a call in a run of the agent, as it is defined now."""
        resolved = self.definitions.resolve("agent", "acme", agent)
        assert resolved is not None
        assert resolved.content is not None
        block = AGENT.block_of(resolved.content)
        grants = {name: getattr(block, name) for name in GRANTED_FIELDS}
        grants |= {"channels_publish": block.channels.publish, "channels_subscribe": block.channels.subscribe}
        context = ToolContext(
            run_id="r_1",
            root_run_id="r_1",
            session_id="s_1",
            agent_id="a_1",
            agent=agent,
            tenant="acme",
            subject="service",
            user_id=user,
            user_tier="",
            provider="p",
            model="m",
            tools=(*block.tools, "Context"),
            tool_grants=(*block.tools, "Context"),
            grants=grants,
            agent_def_id=resolved.def_id if resolved.version else "",
        )
        return replace(context, **changes)

    async def call(self, tool: str, context: ToolContext, **arguments: Any) -> ToolResult:
        self.calls += 1
        return await self.tools[tool].call(arguments, replace(context, idempotency_key=f"k{self.calls}"))

    async def taken(self, tool: str, context: ToolContext, **arguments: Any) -> Any:
        result = await self.call(tool, context, **arguments)
        assert not result.is_error, result.text
        return orjson.loads(result.text)

    async def no(self, tool: str, context: ToolContext, **arguments: Any) -> str:
        result = await self.call(tool, context, **arguments)
        assert result.is_error
        return result.text

    async def operate(self, kind: str, author: Author = OPERATOR, *, op: str, **fields: Any) -> Any:
        self.calls += 1
        author = with_fields(author, command_id=f"o{self.calls}")
        return fields_of(await self.opened.ask(KINDS[kind].tool, op, author, **fields))

    def content(self, name: str, kind: str = "agent") -> Content:
        resolved = self.definitions.resolve(kind, "acme", name)
        assert resolved is not None
        assert resolved.content is not None
        return resolved.content


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "pool")


# --- an agent gives itself nothing -----------------------------------------------------------------------------------

WIDENED: Content = {
    "memory_scopes": ["user", "agent", "tenant"],
    "sql_scopes": ["agent", "user", "tenant"],
    "channels": {"subscribe": ["ten"]},
    "agent_def_scopes": ["any"],
    "unbounded_iterations": True,
}


async def test_an_agent_that_may_define_itself_gives_itself_nothing(here: Here) -> None:
    refusal = await here.no("AgentDef", here.run("weak"), op="fork", name="weak", promote=True, overlay=WIDENED)
    assert refusal.startswith("AgentDef was refused (grants_exceeded): cannot widen weak: ")
    assert "memory_scopes: agent, tenant exceeds the agent weak, which has user" in refusal
    for key in WIDENED:
        overlay = {key: WIDENED[key]}
        assert key in await here.no("AgentDef", here.run("weak"), op="fork", name="weak", overlay=overlay)
        assert key in await here.no("AgentDef", here.run("weak"), op="fork", name="weak", promote=True, overlay=overlay)
    assert here.content("weak")["memory_scopes"] == ["user"]
    prompt = {"system_prompt": "better", "channels": {"subscribe": ["team/a"]}}
    await here.taken("AgentDef", here.run("weak"), op="fork", name="weak", promote=True, overlay=prompt)
    assert here.content("weak")["system_prompt"] == "better"
    # What it took away from itself does not come back.
    wider = {"channels": {"subscribe": ["team/*"]}}
    assert "channels.subscribe" in await here.no("AgentDef", here.run("weak"), op="fork", name="weak", overlay=wider)


async def test_an_agent_does_not_rewrite_one_that_has_more(here: Here) -> None:
    context = here.run("writer")
    overlay = {"system_prompt": "OWNED", "volumes": ["vol", "secretvol"]}
    refusal = await here.no("AgentDef", context, op="fork", name="puppet", promote=False, overlay=overlay)
    assert "volumes: secretvol exceeds" in refusal
    await here.operate("agent", op="create", name="mighty", overlay={"model": "m", "tools": ["Bash"]})
    prompt = {"system_prompt": "OWNED"}
    assert "tools: Bash exceeds the agent writer" in await here.no(
        "AgentDef", context, op="fork", name="mighty", promote=False, overlay=prompt
    )
    await here.taken("AgentDef", context, op="fork", name="puppet", overlay=prompt)


async def test_a_wider_version_is_not_made_active_by_an_agent_that_has_less(here: Here) -> None:
    wide = await here.operate("agent", op="fork", name="weak", overlay={"memory_scopes": ["tenant"]}, promote=True)
    await here.operate("agent", op="fork", name="weak", overlay={"memory_scopes": ["user"]}, promote=True)
    context = here.run("weak")
    assert "grants_exceeded" in await here.no("AgentDef", context, op="promote", def_id=wide["def_id"])
    assert "grants_exceeded" in await here.no("AgentDef", context, op="rollback", name="weak")
    assert (await here.operate("agent", op="rollback", name="weak"))["def_id"] == wide["def_id"]


async def test_a_run_grants_no_tool_that_its_caller_has_taken_from_it(here: Here) -> None:
    context = here.run("maker", tool_grants=("AgentDef",), tools=("AgentDef",))
    overlay = {"model": "m", "tools": ["Bash"], "disable_context": True}
    assert "tools: Bash" in await here.no("AgentDef", context, op="create", name="child", overlay=overlay)
    await here.taken("AgentDef", here.run("maker"), op="create", name="child", overlay=overlay)


async def test_a_run_whose_agent_is_no_longer_defined_defines_nothing(here: Here) -> None:
    context = replace(here.run("maker"), agent="gone")
    refusal = await here.no("AgentDef", context, op="create", name="child", overlay={"model": "m"})
    assert "the definition of the agent gone is gone" in refusal


NARROW: Content = {
    "max_iterations": 12,
    "skills": ["greeting"],
    "volumes": ["shelf"],
    "memory_quota_bytes": 1000,
    "agent_def_scopes": ["any"],
}


async def test_what_a_new_agent_does_not_say_is_what_its_author_has(here: Here) -> None:
    """As a client of the original defines one: with a model, a prompt and its tools."""
    await here.operate("agent", op="fork", name="weak", overlay=NARROW, promote=True)
    author = here.content("weak")
    asked = {"system_prompt": "hi", "tools": ["Context"]}
    await here.taken("AgentDef", here.run("weak"), op="create", name="born", overlay=asked, promote=True)
    born = here.content("born")
    assert {name: born[name] for name in NARROW if name != "agent_def_scopes"} == {
        name: author[name] for name in NARROW if name != "agent_def_scopes"
    }
    assert not born.get("agent_def_scopes"), "what is nothing by default stays so"
    assert born["tools"] == ["Context"], "and tools are not given"


@pytest.mark.parametrize("field", ["max_iterations", "skills", "volumes", "memory_quota_bytes"])
async def test_what_a_new_agent_says_itself_is_not_changed_but_refused(here: Here, field: str) -> None:
    await here.operate("agent", op="fork", name="weak", overlay=NARROW, promote=True)
    wider = {"max_iterations": 13, "skills": ["*"], "volumes": ["other"], "memory_quota_bytes": 0}[field]
    refusal = await here.no("AgentDef", here.run("weak"), op="create", name="born", overlay={field: wider})
    assert f"cannot widen born: {field}" in refusal


async def test_limits_are_not_raised(here: Here) -> None:
    await here.operate("agent", op="fork", name="weak", overlay={"memory_quota_bytes": 1000}, promote=True)
    for quota in (1001, 0, 10**12):
        refusal = await here.no(
            "AgentDef", here.run("weak"), op="fork", name="weak", overlay={"memory_quota_bytes": quota}
        )
        assert "memory_quota_bytes" in refusal
    await here.taken("AgentDef", here.run("weak"), op="fork", name="weak", overlay={"memory_quota_bytes": 10})


# --- what is active of others ----------------------------------------------------------------------------------------


async def test_what_is_active_of_others_takes_a_word_of_its_own(here: Here) -> None:
    context = here.run("writer")
    made = await here.taken("AgentDef", context, op="fork", name="leaf", overlay={"system_prompt": "better"})
    denied = [
        await here.no("AgentDef", context, op="fork", name="leaf", promote=True, overlay={"system_prompt": "now"}),
        await here.no("AgentDef", context, op="promote", def_id=made["def_id"]),
        await here.no("AgentDef", context, op="retire", def_id=made["def_id"], retired=True),
        await here.no("AgentDef", context, op="rollback", name="leaf"),
        await here.no("SkillDef", context, op="fork", name="triage", promote=True, overlay={"body": "x"}),
    ]
    assert all("takes promote among the agent_def_scopes" in one for one in denied)
    promoter = here.run("promoter")
    await here.taken("AgentDef", promoter, op="promote", def_id=made["def_id"])
    assert here.content("leaf")["system_prompt"] == "better"
    await here.taken("AgentDef", promoter, op="retire", def_id=made["def_id"], retired=True)
    await here.taken("SkillDef", promoter, op="fork", name="triage", promote=True, overlay={"body": "x"})


async def test_an_agent_decides_about_itself_and_what_it_has_made(here: Here) -> None:
    own = await here.taken("AgentDef", here.run("weak"), op="fork", name="weak", overlay={"system_prompt": "a"})
    await here.taken("AgentDef", here.run("weak"), op="promote", def_id=own["def_id"])
    writer = here.run("writer")
    overlay = {"model": "m", "tools": ["AgentDef"], "agent_def_scopes": ["descendants"], "system_prompt": "a"}
    await here.taken("AgentDef", writer, op="create", name="child", overlay=overlay)
    await here.taken("AgentDef", here.run("child"), op="create", name="grandchild", overlay={"model": "m"})
    again = await here.taken("AgentDef", writer, op="fork", name="grandchild", overlay={"effort": "low"}, promote=True)
    await here.taken("AgentDef", writer, op="retire", def_id=again["def_id"], retired=True)
    other = replace(here.run("writer"), agent="leaf", agent_def_id="")
    assert "made by others" in await here.no("AgentDef", other, op="create", name="child", overlay={"model": "m"})


async def test_a_name_of_a_file_or_of_all_tenants_is_no_new_one(here: Here) -> None:
    shared = with_fields(OPERATOR, tenant="")
    await here.operate("agent", shared, op="create", name="common", overlay={"model": "m"})
    for name in ("leaf", "common"):
        refusal = await here.no("AgentDef", here.run("maker"), op="fork", name=name, overlay={"system_prompt": "x"})
        assert "the agent may not write" in refusal


# --- users who are confined to what is their own ---------------------------------------------------------------------


async def test_a_run_for_an_isolated_user_changes_nothing_for_the_tenant(here: Here) -> None:
    made = await here.operate("agent", op="fork", name="leaf", overlay={"system_prompt": "v2"}, promote=True)
    before = here.content("leaf")
    for context in (
        here.run("promoter", ISOLATED),
        here.run("writer", ISOLATED),
        here.run("writer", "", subject=ISOLATED),
    ):
        fork = {"op": "fork", "promote": True}
        refusals = [
            await here.no("AgentDef", context, **fork, name="leaf", overlay={"system_prompt": "CHANGED BY IVY"}),
            await here.no("AgentDef", context, op="create", name="new", overlay={"model": "m"}),
            await here.no("AgentDef", context, op="promote", def_id=made["def_id"]),
            await here.no("AgentDef", context, op="retire", def_id=made["def_id"], retired=True),
            await here.no("AgentDef", context, op="rollback", name="leaf"),
            await here.no("SkillDef", context, op="create", name="new", overlay={"body": "b"}),
            await here.no("SkillDef", context, **fork, name="triage", overlay={"body": "b"}),
            await here.no("TeamDef", context, op="delete", name="team"),
            await here.no("WebhookDef", context, op="create", name="hook", overlay={}),
            await here.no("VolumeDef", context, op="create", name="notes"),
            await here.no("VolumeDef", context, op="purge", name="notes"),
        ]
        assert [one for one in refusals if f"{ISOLATED} is confined to what is its own" not in one] == []
    assert here.content("leaf") == before
    await here.taken("VolumeDef", here.run("writer", ISOLATED), op="create", name="scratch", ephemeral=True)
    await here.taken("VolumeDef", here.run("writer", ISOLATED), op="delete", name="scratch")


async def test_an_isolated_user_has_schedules_of_its_own_and_touches_no_others(here: Here) -> None:
    await here.operate("schedule", op="create", name="daily", overlay=SCHEDULE)
    context = here.run("writer", ISOLATED)
    own = {**SCHEDULE, "user_id": ISOLATED}
    assert "confined" in await here.no("ScheduleDef", context, op="fork", name="daily", overlay=own)
    assert "confined" in await here.no("ScheduleDef", context, op="create", name="daily", overlay=own)
    assert "user_id" in await here.no("ScheduleDef", context, op="create", name="bobs", overlay={**own, "user_id": "b"})
    made = await here.taken("ScheduleDef", context, op="create", name="ivys", overlay=own)
    assert made["definition"]["isolated"] is True
    await here.taken("ScheduleDef", context, op="fork", name="ivys", overlay={"timezone": "Europe/Berlin"})
    await here.taken("ScheduleDef", context, op="retire", def_id=made["def_id"], retired=True)


@pytest.mark.parametrize(("kind", "overlay"), [("agent", {"model": "m"}), ("skill", {"body": "b"})])
async def test_the_same_holds_for_requests(here: Here, kind: str, overlay: Content) -> None:
    ivy = with_fields(OPERATOR, subject=ISOLATED, is_isolated=True)
    for body in ({"op": "create", "name": "new"}, {"op": "create", "name": "new", "promote": False}):
        with pytest.raises(Refused, match="is confined to what is its own") as caught:
            await here.operate(kind, ivy, **body, overlay=overlay)
        assert caught.value.code == "scope_denied"
    with pytest.raises(Refused, match="is confined to what is its own"):
        await here.opened.carry_out(APPLY, ivy, definitions=[{"kind": kind, "name": "new", "overlay": overlay}])


# --- schedules and volumes -------------------------------------------------------------------------------------------


async def test_a_schedule_of_a_run_works_for_its_user_with_its_abilities(here: Here) -> None:
    context = here.run("writer")
    create = {"op": "create", "name": "daily"}
    assert "user_id: bob" in await here.no("ScheduleDef", context, **create, overlay={**SCHEDULE, "user_id": "bob"})
    hook = {"kind": "channel.publish", "channel": "ten"}
    assert "on_complete: channel ten" in await here.no(
        "ScheduleDef", context, **create, overlay={**SCHEDULE, "user_id": "ann", "on_complete": [hook]}
    )
    made = await here.taken("ScheduleDef", context, **create, overlay={**SCHEDULE, "user_id": "ann"})
    assert "on_complete" in await here.no("ScheduleDef", context, op="add_hook", def_id=made["def_id"], hook=hook)
    narrowed = here.run("writer", hosts_source="caller")
    assert "agent: leaf" in await here.no("ScheduleDef", narrowed, op="create", name="later", overlay=SCHEDULE)


async def test_a_hook_within_its_author_is_added(here: Here) -> None:
    await here.operate("agent", op="fork", name="writer", overlay={"channels": {"publish": ["team/*"]}}, promote=True)
    context = here.run("writer")
    made = await here.taken("ScheduleDef", context, op="create", name="daily", overlay=SCHEDULE)
    hook = {"kind": "channel.publish", "channel": "team/a"}
    hooked = await here.taken("ScheduleDef", context, op="add_hook", def_id=made["def_id"], hook=hook)
    assert [one["channel"] for one in hooked["definition"]["on_complete"]] == ["team/a"]


async def test_a_run_does_not_open_a_volume_for_writing(here: Here) -> None:
    await here.do("create", name="notes", mode="ro")
    assert "mode: rw exceeds" in await here.no("VolumeDef", here.run("writer"), op="create", name="notes", mode="rw")
    assert json.loads((await here.call("VolumeDef", here.run("writer"), op="get", name="notes")).text)["mode"] == "ro"
    await here.do("create", name="notes", mode="rw")
