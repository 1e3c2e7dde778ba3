"""Tools of MCP servers as runs have them: found, granted, called, lost."""

import json
import os
import sys

import pytest

from loomlog.connectors.configuration.mcp_block import McpServerBlock
from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.protocols import EffectClass, GivenAnswer, UsesStoredCredentials
from loomlog.schemas.generated.mcp_events import ListingFailed, ToolsListed
from loomlog.schemas.records import replace
from loomlog.services.families.mcp.tools import EndCalls, McpTools, UnlistedTool
from loomlog.services.families.ports.run_ends import EndedRun
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.connectors.mcp.peer_server import ECHO, PeerServer, Raw
from tests.connectors.mcp.test_sessions import SCRIPT
from tests.services.core.run.given import begun
from tests.services.families.identity.stored import Stored
from tests.services.families.mcp.world import World, context

ENDED = EndedRun(tenant="acme", facts=begun().live.facts, command_id="r_1:end:0", ended_at_ms=1)


@pytest.fixture
async def peer():
    async with PeerServer() as peer:
        yield peer


@pytest.fixture
async def opened():
    worlds = []

    async def open_world(credentials=None, **blocks: McpServerBlock) -> World:
        worlds.append(World({"PATH": os.environ["PATH"]}, credentials, **blocks))
        return worlds[-1]

    yield open_world
    for world in worlds:
        await world.servers.close()


def block(peer: PeerServer, **fields) -> McpServerBlock:
    return McpServerBlock(transport="http", url=peer.url, **fields)


def toolset(world: World, tenant: str = "acme"):
    return ProcessToolset({}, tenant_tools=McpTools(world.servers)).for_principal(tenant, "ann")


async def listed(world: World, name: str = "crm") -> None:
    await world.servers.discover(world.server(name), "start")


async def test_tools_are_granted_by_name_and_by_pattern(peer, opened):
    world = await opened(crm=block(peer))
    await listed(world)
    tools = toolset(world)
    assert [spec.name for spec in tools.specs(("mcp__crm__*",))] == ["mcp__crm__echo"]
    assert [spec.name for spec in tools.specs(("mcp__crm__echo",))] == ["mcp__crm__echo"]
    assert tools.specs(("mcp__other__*",)) == ()
    assert tools.effect_class("mcp__crm__echo", "{}") == "unsafe"
    assert not tools.is_reconcilable("mcp__crm__echo")


async def test_a_process_without_servers_pays_nothing(opened):
    world = await opened()
    tools = ProcessToolset({}, tenant_tools=McpTools(world.servers))
    assert tools.for_principal("acme", "ann") is tools


async def test_a_call_carries_the_headers_of_its_run_and_no_session_is_shared(peer, opened):
    headers = {
        "Authorization": "Bearer ${run.credentials.crm}",
        "X-Tenant": "${run.tenant_id}",
        "X-Root": "${run.root_run_id}",
        "X-Stored": "$cred:mine",
        "X-Missing": "${run.user_bearer}",
    }
    world = await opened(crm=block(peer, headers=headers))
    await listed(world)
    tool = toolset(world).find("mcp__crm__echo")
    assert isinstance(tool, UsesStoredCredentials)
    assert tool.credential_references == {"$cred:mine"}
    assert (await tool.call({"text": "a"}, context(crm="key-of-ann"))).text == "a"
    assert (await tool.call({"text": "b"}, context(crm="key-of-bob"))).text == "b"
    calls = [sent for sent, body in peer.requests if body.get("method") == "tools/call"]
    assert [sent["authorization"] for sent in calls] == ["Bearer key-of-ann", "Bearer key-of-bob"]
    assert calls[0]["x-tenant"] == "acme"
    assert calls[0]["x-root"] == "r_0"
    assert not {"x-stored", "x-missing"} & calls[0].keys()
    assert peer.methods().count("initialize") == 3, "one without a run, one for each key"


async def test_a_list_and_a_hook_have_stored_credentials_that_do_not_show(peer, opened):
    stored = Stored()
    await stored.set("mine", "hunter2-hunter2")
    peer.answers["tools/list"] = lambda request: {"tools": [{**ECHO, "description": "for hunter2-hunter2"}]}
    world = await opened(credentials=stored.reader(), crm=block(peer, headers={"X-Stored": "token $cred:mine"}))
    await listed(world)
    assert {sent.get("x-stored") for sent, _ in peer.requests} == {"token hunter2-hunter2"}
    (recorded,) = world.log.events
    assert "[redacted:credential]" in recorded.tools
    assert "hunter2" not in recorded.tools
    result = await EndCalls(world.servers).call(ENDED, "crm", "echo", {"text": "hunter2-hunter2"})
    assert result.text == "[redacted:credential]"


async def test_arguments_are_checked_before_anything_is_sent(peer, opened):
    world = await opened(crm=block(peer))
    await listed(world)
    result = await toolset(world).find("mcp__crm__echo").call({"text": 7}, context())
    assert result.is_error
    assert '/text: 7 is not of type "string"' in result.text
    assert "tools/call" not in peer.methods()


async def test_a_call_that_may_have_been_carried_out_is_unknown(peer, opened):
    peer.answers["tools/call"] = lambda request: Raw(500)
    world = await opened(crm=block(peer), look=block(peer, effects={"echo": "read"}))
    await listed(world)
    await listed(world, "look")
    result = await toolset(world).find("mcp__crm__echo").call({"text": "a"}, context())
    assert result.is_unknown
    assert "Check before you repeat it" in result.text
    with pytest.raises(Transient):
        await toolset(world).find("mcp__look__echo").call({"text": "a"}, context())


async def test_a_session_that_the_server_lost_is_opened_again(peer, opened):
    peer.session_id = "s1"
    world = await opened(crm=block(peer))
    await listed(world)
    answers = iter([Raw(404), {"content": [{"type": "text", "text": "again"}]}])
    peer.answers["tools/call"] = lambda request: next(answers)
    result = await toolset(world).find("mcp__crm__echo").call({"text": "a"}, context())
    assert result.text == "again"
    assert peer.methods().count("initialize") == 2


async def test_a_server_that_has_listed_nothing_is_asked_at_the_first_call(peer, opened):
    world = await opened(crm=block(peer))
    tool = toolset(world).find("mcp__crm__echo")
    assert tool.effect_class({}) is EffectClass.UNSAFE
    assert (await tool.call({"text": "a"}, context())).text == "a"
    assert isinstance(world.log.events[0], ToolsListed)
    assert world.log.events[0].source == "first_use"
    with pytest.raises(Permanent, match="its tools are: mcp__crm__echo"):
        await UnlistedTool(world.servers, world.server("crm"), "mcp__crm__nothing").call({}, context())


async def test_a_list_that_changed_is_an_event_and_the_next_turn_has_it(peer, opened):
    world = await opened(crm=block(peer))
    await listed(world)
    tools = McpTools(world.servers)
    before = tools.for_tenant("acme")
    shown = before.shown_lists(before.specs(("mcp__crm__*",)))
    peer.answers["tools/list"] = lambda request: {"tools": [ECHO, {**ECHO, "name": "shout"}]}
    await world.servers.discover(world.server("crm"), "list_changed")
    after = tools.for_tenant("acme")
    assert [spec.name for spec in after.specs(("mcp__crm__*",))] == ["mcp__crm__echo", "mcp__crm__shout"]
    assert after.shown_lists(after.specs(("mcp__crm__*",))) != shown
    assert [event.source for event in world.log.events] == ["start", "list_changed"]


async def test_a_process_that_says_that_its_tools_changed_is_asked_again(opened):
    changing = McpServerBlock(transport="stdio", command=sys.executable, args=(SCRIPT, "changes"))
    world = await opened(local=changing)
    await listed(world, "local")
    asked = []
    world.servers.discover = lambda server, source: _note(asked, source)
    await toolset(world).find("mcp__local__echo").call({}, context())
    assert asked == ["list_changed"]


async def _note(asked: list[str], source: str) -> None:
    asked.append(source)


async def test_a_server_that_does_not_answer_keeps_its_tools_and_says_why(peer, opened):
    world = await opened(crm=block(peer))
    await listed(world)
    peer.answers["tools/list"] = lambda request: Raw(500)
    with pytest.raises(Transient):
        await listed(world)
    assert isinstance(world.log.events[-1], ListingFailed)
    assert "answered 500" in world.servers.listed(world.server("crm")).error
    assert toolset(world).find("mcp__crm__echo") is not None


async def test_a_server_of_a_process_is_of_one_tenant(opened):
    world = await opened(local=McpServerBlock(transport="stdio", command=sys.executable, args=(SCRIPT, "good")))
    await listed(world, "local")
    for tenant in ("acme", "globex"):
        tool = toolset(world, tenant).find("mcp__local__echo")
        assert (await tool.call({"text": tenant}, context(tenant))).text == tenant
    assert len({key.tenant for key in world.servers.pool._sessions}) == 2


async def test_a_hook_calls_only_what_the_definition_chooses(peer, opened):
    calls = EndCalls((await opened(crm=block(peer, tools=("echo",)))).servers)

    assert (await calls.call(ENDED, "crm", "echo", {"text": "hi"})).text == "hi"
    with pytest.raises(Permanent, match="not among the `tools` of crm"):
        await calls.call(ENDED, "crm", "delete", {})
    with pytest.raises(Permanent, match="no MCP server other"):
        await calls.call(ENDED, "other", "echo", {})
    assert (await calls.call(ENDED, "crm", "echo", ["hi"])).is_error
    assert peer.methods().count("tools/call") == 1


# --- questions of servers to people ----------------------------------------------------------------------------------


def given(asking, status: str = "resolved", answer: str = '{"colour": "red"}') -> tuple[GivenAnswer, ...]:
    return (GivenAnswer(call_state=asking.call_state, status=status, answer=answer, is_held=asking.is_held),)


async def asked(opened, behaviour: str, **fields):
    """Return a world with a server that asks, its tool, and what it asks."""
    block = McpServerBlock(transport="stdio", command=sys.executable, args=(SCRIPT, behaviour), **fields)
    world = await opened(painter=block)
    await listed(world, "painter")
    tool = toolset(world).find("mcp__painter__echo")
    return world, tool, await tool.call({"text": "a"}, context())


async def test_a_question_of_a_server_is_one_of_the_run_and_its_answer_completes_the_call(opened):
    _, tool, result = await asked(opened, "asks", question_timeout_seconds=60)
    assert (result.asking.timeout_ms, result.asking.is_held) == (60_000, True)
    result = await tool.call({"text": "a"}, replace(context(), answers=given(result.asking)))
    assert json.loads(result.text) == {"action": "accept", "content": {"colour": "red"}}


async def test_a_question_that_takes_the_place_of_a_result_is_held_by_no_process(opened, tmp_path):
    notes = tmp_path / "notes"
    block = McpServerBlock(transport="stdio", command=sys.executable, args=(SCRIPT, "needs", str(notes)))
    first, second = await opened(painter=block), await opened(painter=block)
    await listed(first, "painter")
    await listed(second, "painter")
    asking = (await toolset(first).find("mcp__painter__echo").call({"text": "a"}, context())).asking
    assert not asking.is_held
    here = replace(context(), answers=given(asking))
    result = await toolset(second).find("mcp__painter__echo").call({"text": "a"}, here)
    assert json.loads(result.text)["colour"]["content"] == {"colour": "red"}
    assert notes.read_text() == "a\n"


async def test_a_call_whose_holder_is_gone_has_an_unknown_outcome(opened):
    world, tool, result = await asked(opened, "asks")
    await world.servers.held.close()
    result = await tool.call({"text": "a"}, replace(context(), answers=given(result.asking)))
    assert result.is_unknown
    assert "no longer does" in result.text


async def test_a_call_that_was_lost_with_its_holder_and_may_be_repeated_asks_anew(opened):
    world, tool, result = await asked(opened, "asks", effects={"echo": "read"})
    await world.servers.held.close()
    again = await tool.call({"text": "a"}, replace(context(), answers=given(result.asking, status="cancelled")))
    assert again.asking is not None


async def test_a_server_may_be_kept_from_asking_people(opened):
    _, _, result = await asked(opened, "asks", question_timeout_seconds=0)
    assert result.asking is None
    assert "no person can answer now" in result.text
