"""Memory of agents in another installation: over its REST, with crashes, tenants, fallback and peers that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.secret_registry import TENANT_KEY_VARIABLE
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.definition.table import TENANT as TENANT_SOURCE
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.author import Scope
from loomlog.services.families.memory.store import Change
from tests.connectors.tools.web_server import Answer, Server, page, running
from tests.services.entities import MemoryEntities
from tests.services.families.memory.peer import NAME, Definitions, RemoteAgent, memory_peer

ENTRY = "/v1/_memory/scopes/user/ada/keys/k"
LOCAL = {"fallback_on_error": "inprocess"}


class Peer:
    """A peer and the agents of this test."""

    def __init__(self, port: int, entities: MemoryEntities) -> None:
        self.port = port
        self.entities = entities
        self.made: list[RemoteAgent] = []

    def agent(self, **more: Any) -> RemoteAgent:
        self.made.append(RemoteAgent(self.port, **more))
        return self.made[-1]

    def keys(self, tenant: str, name: str) -> list[str]:
        entity = self.entities.entities.get((tenant, name))
        return [] if entity is None else sorted(key for key, _ in entity.state.entries())


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    entities = MemoryEntities(FAMILY)
    async with memory_peer(tmp_path, entities) as port:
        made = Peer(port, entities)
        yield made
        for agent in made.made:
            await agent.backends.close()


@asynccontextmanager
async def odd(**more: Any) -> AsyncIterator[tuple[Server, RemoteAgent]]:
    """A server that answers whatever a test says, and an agent whose memory is there."""
    async with running() as server:
        agent = RemoteAgent(server.port, **more)
        yield server, agent
        await agent.backends.close()


# --- entries ---------------------------------------------------------------------------------------------------------


async def test_keys_are_there_and_not_here(peer: Peer) -> None:
    agent = peer.agent()
    answer = await agent.call("set", key="k", value={"a": [1, None, "ü"]}, ttl=60)
    assert answer["ok"] is True
    assert answer["revision"] == 1
    assert answer["usage"]["keys"] == 1
    got = await agent.call("get", key="k", include_provenance=True)
    assert (got["value"], got["revision"], got["provenance"]) == ({"a": [1, None, "ü"]}, 1, None)
    assert got["expires_at"] is not None
    assert got["source"]["origin"] == "operator"
    assert peer.keys("default", "user/ada") == ["k"]
    assert agent.local.asked == []
    assert await agent.call("delete", key="k") == {"deleted": True}
    assert await agent.call("delete", key="k") == {"deleted": False}
    assert await agent.call("get", key="k") == {"value": None, "expires_at": None}


async def test_reducers(peer: Peer) -> None:
    agent = peer.agent()
    assert (await agent.call("incr", key="n"))["value"] == 1
    assert (await agent.call("incr", key="n", delta=2.5))["value"] == 3.5
    assert (await agent.call("merge", key="m", value={"a": {"b": 1}}))["value"] == {"a": {"b": 1}}
    assert (await agent.call("merge", key="m", value={"a": {"c": 2}}))["value"] == {"a": {"b": 1, "c": 2}}
    for _ in range(2):
        assert (await agent.call("append_dedupe", key="s", value="x"))["value"] == ["x"]
    for number in range(4):
        answer = await agent.call("bounded_list", key="l", value=number, limit=3)
    assert (answer["value"], answer["dropped"]) == ([1, 2, 3], 1)
    assert (await agent.refused("incr", key="m")).code == "invalid_value"


async def test_a_list_is_in_order_and_goes_on_after_a_key(peer: Peer) -> None:
    agent = peer.agent()
    for key in ("b/2", "a", "b/1", "c"):
        await agent.call("set", key=key, value=key)
    first = await agent.call("list", limit=2)
    assert ([one["key"] for one in first["entries"]], first["truncated"]) == (["a", "b/1"], True)
    rest = await agent.call("list", after="b/1")
    assert ([one["key"] for one in rest["entries"]], rest["truncated"]) == (["b/2", "c"], False)
    assert [one["key"] for one in (await agent.call("list", prefix="b/"))["entries"]] == ["b/1", "b/2"]


@pytest.mark.parametrize("key", ["a/b", "history", "a/history", "100%", "..", "?x=1#y", "ü 漢字", "a%2Fb", "x" * 512])
async def test_a_key_may_have_any_characters(peer: Peer, key: str) -> None:
    agent = peer.agent()
    assert (await agent.call("get", key=key))["value"] is None
    await agent.call("set", key=key, value=key)
    assert (await agent.call("get", key=key))["value"] == key
    assert peer.keys("default", "user/ada") == [key]


async def test_the_past_of_a_key_is_no_key(peer: Peer) -> None:
    agent = peer.agent()
    await agent.call("set", key="a", value=1)
    assert (await agent.call("get", key="a/history"))["value"] is None
    assert (await agent.call("incr", key="a/history"))["value"] == 1
    assert (await agent.call("get", key="a"))["value"] == 1


async def test_a_scope_id_with_a_slash_is_its_own_scope(peer: Peer) -> None:
    agent = peer.agent()
    await agent.call("set", key="k", value="of ada")
    ids = ["ada/keys/x", "ada%2Fkeys%2Fx", "memory/consolidator"]
    for one in ids:
        await agent.call("set", user_id=one, key="k", value=one)
    assert [(await agent.call("get", user_id=one, key="k"))["value"] for one in ids] == ids
    assert (await agent.call("list"))["entries"] == [{"key": "k", "value": "of ada", "expires_at": None}]


async def test_if_revision_of_a_call_is_kept(peer: Peer) -> None:
    agent = peer.agent()
    await agent.call("set", key="k", value=1, if_revision=0)
    assert (await agent.refused("set", key="k", value=2, if_revision=0)).code == "revision_conflict"
    assert (await agent.call("set", key="k", value=2, if_revision=1))["revision"] == 2


async def test_what_the_backend_lacks_is_refused_and_done_nowhere(peer: Peer) -> None:
    agent = peer.agent(**LOCAL)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("add", {"content": "likes tea"}),
        ("recall", {"query": "tea"}),
        ("supersede", {"key": "k"}),
        ("cursor_get", {}),
        ("pending_drain", {}),
        ("set", {"key": "k", "value": 1, "provenance": {"class": "fact"}}),
        ("set", {"key": "k", "value": 1, "embed": True, "embed_text": "x"}),
        ("sql_query", {"statement": "SELECT 1", "scope": "run"}),
    ]
    for op, fields in calls:
        refused = await agent.refused(op, **fields)
        assert refused.code in ("capability_unsupported", "search_unavailable"), op
    assert peer.keys("default", "user/ada") == []
    assert agent.local.asked == []


async def test_an_embedding_that_the_peer_has_not_made_is_told(peer: Peer) -> None:
    answer = await peer.agent().call("set", key="k", value="tea", embed=True)
    assert (answer["embedded"], answer["embed_warning"]) == (False, "embedder_not_configured")


async def test_its_limits_hold_and_are_told_without_values(peer: Peer) -> None:
    agent = peer.agent()
    for number in range(16):
        await agent.call("set", key=f"k{number}", value="x" * 65_000)
    refused = await agent.refused("set", key="secret-name", value="y" * 65_000)
    assert refused.code == "memory_quota_exceeded"
    assert "secret-name" not in str(refused)


async def test_a_number_that_no_answer_can_hold_is_refused_here_and_there(peer: Peer) -> None:
    agent = peer.agent()
    assert (await agent.refused("set", key="k", value={"n": [10**30]})).code == "invalid_value"
    agent.definitions.contents[NAME] = {"kind": "inprocess"}
    assert (await agent.refused("set", key="k", value={"n": [10**30]})).code == "invalid_value"
    await agent.call("set", key="k", value={"n": [2**63 - 1, -(2**63 - 1), True]})


# --- crashes and others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["incr", "set", "bounded_list", "append_dedupe", "merge"])
async def test_a_call_that_is_made_again_has_its_effect_once_and_the_same_answer(peer: Peer, op: str) -> None:
    by_op: dict[str, dict[str, Any]] = {
        "incr": {"delta": 1},
        "set": {"value": 1},
        "bounded_list": {"value": 1, "limit": 5},
        "append_dedupe": {"value": 1},
        "merge": {"value": {"a": 1}},
    }
    fields = by_op[op]
    first = await peer.agent().call(op, key="n", call=7, **fields)
    written = peer.entities.offset
    other = peer.agent()
    again = await other.call(op, key="n", call=7, attempt=2, **fields)
    assert again == first
    assert peer.entities.offset == written
    await other.call("set", key="n", value={"incr": 10, "merge": {"z": 1}}.get(op, [9]), call=8)
    late = await peer.agent().call(op, key="n", call=7, attempt=2, **fields)
    assert late.get("value") == first.get("value")
    assert (await other.call("get", key="n"))["value"] == {"incr": 10, "merge": {"z": 1}}.get(op, [9])


async def test_a_call_that_is_made_again_has_its_effect_once_although_the_value_can_be_reduced_no_more(
    peer: Peer,
) -> None:
    agent = peer.agent()
    assert (await agent.call("incr", key="n", call=7))["value"] == 1
    await agent.call("set", key="n", value="text", call=8)
    assert (await agent.call("incr", key="n", call=7, attempt=2))["value"] == 1
    assert (await agent.call("get", key="n"))["value"] == "text"
    assert (await agent.refused("incr", key="n", call=9, attempt=2)).code == "invalid_value"


async def test_a_crash_between_the_write_and_its_answer_counts_once(peer: Peer) -> None:
    """Cancelled at every turn of the loop in which the call can be: the next process makes it again."""
    agent = peer.agent()
    await agent.call("set", key="n", value=0, call=1)
    for turns in range(0, 60, 3):
        calling = asyncio.create_task(agent.call("incr", key="n", call=100 + turns))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        calling.cancel()
        await asyncio.wait([calling])
        await peer.agent().call("incr", key="n", call=100 + turns, attempt=2)
    assert (await agent.call("get", key="n"))["value"] == 20


async def test_increments_of_many_processes_at_once_all_count(peer: Peer) -> None:
    agents = [peer.agent() for _ in range(4)]
    calls = [
        agent.call("incr", key="n", call=100 + 10 * which + n) for which, agent in enumerate(agents) for n in range(5)
    ]
    await asyncio.gather(*calls)
    assert (await agents[0].call("get", key="n"))["value"] == 20


async def test_a_write_on_a_condition_is_one_under_its_key_whatever_it_writes(peer: Peer) -> None:
    agent = peer.agent()
    backend = await agent.backends.backend_of(agent.author(1, 1))
    scope, author = Scope("default", "user", "ada"), agent.author(1, 1)
    one = await backend.set(scope, "k", Change(text="1", op="incr", if_revision=0), author)
    two = await backend.set(scope, "k", Change(text="2", op="incr", if_revision=one.revision), author)
    assert (two.text, two.revision) == ("1", one.revision)
    other = await backend.set(scope, "k", Change(text="2", op="incr", if_revision=one.revision), author, "1")
    assert (other.text, other.revision) == ("2", 2)


# --- tenants ---------------------------------------------------------------------------------------------------------


async def test_a_key_for_each_tenant(peer: Peer) -> None:
    more = {"tenancy_strategy": {"kind": "key_per_tenant", "env_pattern": "MEM_{tenant_id}"}}
    environment = {"MEM_acme": "acme-token", "MEM_globex": "globex-token"}
    for tenant in ("acme", "globex"):
        await peer.agent(tenant=tenant, environment=environment, **more).call("set", key="k", value=tenant)
        assert peer.keys(tenant, "user/ada") == ["k"]
    refused = await peer.agent(tenant="other", environment=environment, **LOCAL, **more).refused("get", key="k")
    assert refused.code == "capability_unsupported"
    assert "MEM_other is not set" in str(refused)


async def test_a_prefix_for_each_tenant(peer: Peer) -> None:
    more = {"tenancy_strategy": {"kind": "shared_key_with_prefix", "prefix_pattern": "t-{tenant_id}-"}}
    acme, other = peer.agent(tenant="acme", **more), peer.agent(tenant="acme-x", **more)
    await acme.call("set", key="k", value=1, user_id="x-ada")
    await acme.call("set", key="k", value=1, scope="agent")
    await acme.call("set", key="x-k", value=1, scope="tenant")
    assert {name for _, name in peer.entities.entities} == {"user/t-acme-:x-ada", "agent/t-acme-:helper", "tenant/"}
    assert peer.keys("default", "tenant/") == ["t-acme-:x-k"]
    for scope in ("user", "agent", "tenant"):
        assert (await other.call("list", scope=scope))["entries"] == []
        assert (await other.call("get", scope=scope, key="k"))["value"] is None
    assert (await acme.call("list", scope="tenant", prefix="x-"))["entries"][0]["key"] == "x-k"
    refused = await acme.refused("set", scope="tenant", key="k" * 510, value=1)
    assert "at most 504 fit" in str(refused)


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("{tenant_id}", "a:"), ("{tenant_id}/", "a%2F"), ("{tenant_id}.x", "a.x"), ("x:{tenant_id}y", "x:ay:")],
)
async def test_a_prefix_never_ends_within_the_name_of_another_tenant(peer: Peer, pattern: str, prefix: str) -> None:
    more = {"tenancy_strategy": {"kind": "shared_key_with_prefix", "prefix_pattern": pattern}}
    await peer.agent(tenant="a", **more).call("set", scope="tenant", key="k", value=1)
    assert peer.keys("default", "tenant/") == [f"{prefix}k"]


async def test_without_a_strategy_a_backend_serves_the_default_tenant_alone(peer: Peer) -> None:
    refused = await peer.agent(tenant="acme").refused("get", key="k")
    assert "no tenancy_strategy" in str(refused)


async def test_a_tenants_own_backend_takes_no_secret_but_its_own(peer: Peer) -> None:
    environment = {"PEER_KEY": "shared-token", f"{TENANT_KEY_VARIABLE}acme": "acme-token"}
    agent = peer.agent(tenant="acme", environment=environment)
    agent.definitions.sources[NAME] = TENANT_SOURCE
    assert "PEER_KEY is not set, or the tenant acme may not use it" in str(await agent.refused("get", key="k"))
    strategy = {"kind": "key_per_tenant", "env_pattern": TENANT_KEY_VARIABLE + "{tenant_id}"}
    agent = peer.agent(tenant="acme", environment=environment, tenancy_strategy=strategy)
    agent.definitions.sources[NAME] = TENANT_SOURCE
    await agent.call("set", key="k", value=1)
    assert peer.keys("acme", "user/ada") == ["k"]


# --- which backend ---------------------------------------------------------------------------------------------------


async def test_an_unknown_name_is_refused_and_a_backend_here_is_the_memory_here(peer: Peer) -> None:
    agent = peer.agent()
    agent.definitions.contents.clear()
    refused = await agent.refused("set", key="k", value=1)
    assert (refused.code, f"no memory backend '{NAME}'" in str(refused)) == ("capability_unsupported", True)
    agent.definitions.contents[NAME] = {"kind": "inprocess"}
    await agent.call("set", key="k", value=1)
    assert len(agent.local.asked) == 1


async def test_a_definition_is_resolved_at_each_call(peer: Peer) -> None:
    agent = peer.agent()
    await agent.call("set", key="k", value=1)
    content = agent.definitions.contents[NAME]
    agent.definitions.contents[NAME] = {**content, "config": {**content["config"], "api_key_env": "MISSING"}}
    assert "MISSING is not set" in str(await agent.refused("get", key="k"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"kind": "remote"}, "config.base_url"),
        ({"kind": "remote", "config": {"base_url": "http://u:p@peer.example"}}, "base_url"),
        ({"kind": "mem9"}, "kind"),
        ({"kind": "remote", "config": {"base_url": "http://a.b", "api_key_env": "LOOMLOG_AUTH_TOKEN"}}, "secret"),
    ],
)
async def test_a_definition_that_cannot_be_used_is_refused(peer: Peer, content: Any, expected: str) -> None:
    agent = peer.agent()
    agent.definitions = Definitions(**{NAME: content})
    agent.backends._definitions = agent.definitions
    with pytest.raises(Exception, match=expected) as caught:
        await agent.call("get", key="k")
    assert "u:p" not in str(caught.value)


# --- search ----------------------------------------------------------------------------------------------------------

HIT = {"key": "k", "kind": "note", "value": "tea", "score": 0.5, "rank_score": 0.7, "foreign": "x"}


@pytest.mark.parametrize(
    ("sources", "kinds", "told", "applied"),
    [
        (None, ["note", "fact"], None, None),
        (["notes"], ["note"], None, True),
        (["notes"], [], None, True),
        (["facts"], ["note"], None, False),
        (["facts"], ["fact"], False, False),
        (["notes", "facts"], ["note", "fact"], True, True),
        (["documents"], ["chapter"], None, True),
        (["documents"], [None], None, False),
    ],
)
async def test_a_search_says_whether_its_sources_were_searched_alone(
    sources: list[str] | None, kinds: list[str], told: bool | None, applied: bool | None
) -> None:
    async with odd() as (server, agent):
        entries = [{**HIT, "kind": kind} for kind in kinds]
        body = {"entries": entries, "truncated": False} | ({} if told is None else {"sources_applied": told})
        server.answers["/v1/_memory/search"] = page(json.dumps(body))
        answer = await agent.call("search", query="tea", top_k=3, sources=sources)
        assert answer.get("sources_applied") is applied
        assert ("note" in answer) == (applied is False)
        assert [hit["value"] for hit in answer["entries"]] == ["tea"] * len(kinds)
        assert all("foreign" not in hit for hit in answer["entries"])
        sent = json.loads(server.requests[0].partition("\r\n\r\n")[2])
        asked = {"query": "tea", "top_k": 3, "scope": "user", "scope_id": "ada"}
        assert sent == asked | ({"sources": sources} if sources else {})


async def test_a_search_in_a_shared_scope_finds_only_keys_of_the_tenant() -> None:
    more = {"tenancy_strategy": {"kind": "shared_key_with_prefix", "prefix_pattern": "{tenant_id}/"}}
    async with odd(tenant="acme", **more) as (server, agent):
        server.answers["/v1/_memory/search"] = page(json.dumps({"entries": [{**HIT, "key": "acme%2Fk"}]}))
        answer = await agent.call("search", scope="tenant", query="tea", prefix="k")
        assert answer["entries"][0]["key"] == "k"
        assert json.loads(server.requests[0].partition("\r\n\r\n")[2])["prefix"] == "acme%2Fk"
        server.answers["/v1/_memory/search"] = page(json.dumps({"entries": [{**HIT, "key": "globex%2Fk"}]}))
        with pytest.raises(Unavailable, match="not asked for"):
            await agent.call("search", scope="tenant", query="tea")


async def test_a_peer_without_an_index_says_so(peer: Peer) -> None:
    assert (await peer.agent().refused("search", query="tea")).code == "search_unavailable"


# --- peers that misbehave --------------------------------------------------------------------------------------------


def entry(**more: Any) -> bytes:
    return page(json.dumps({"entry": {"key": "k", "value": 1, "revision": 1, **more}}))


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize(
    "answer",
    [
        page("<html>ok</html>"),
        page("{}"),
        page('{"entry": 1}'),
        page('{"entry": {"key": "k"}}'),
        page('{"entry": {"key": "k", "value": NaN}}'),
        page('{"entry": {"key": "k", "value": 1e400}}'),
        page('{"entry": {"key": "k", "value": "\\ud800"}}'),
        page('{"entry": {"key": "k", "value": ' + "[" * 200 + "]" * 200 + "}}"),
        entry(value=[10**30]),
        entry(key="other"),
        entry(value="x" * 300_000),
        entry(revision="1"),
        entry(revision=-5),
        entry(revision=True),
        page("", status="500 Oops"),
        page("", status="429 Slow down"),
        page("", status="302 Found"),
        page("", status="401 Unauthorized"),
        _hang,
        b"garbage",
    ],
)
async def test_an_answer_that_is_none_is_a_clear_error_that_names_nothing(answer: Answer) -> None:
    async with odd(timeout_s=0.3 if answer is _hang else 30.0) as (server, agent):
        server.answers[ENTRY] = answer
        with pytest.raises(Unavailable) as caught:
            await agent.call("get", key="k")
        text = str(caught.value)
        assert text.startswith(f"the memory backend {NAME}: ")
        assert not any(word in text for word in ("peer.example", "shared-token", "127.0.0.1", "xxx"))
        assert not caught.value.is_unknown


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (page("", status="404 Not Found"), "capability_unsupported"),
        (page('{"code": "route_not_found"}', status="404 Not Found"), "capability_unsupported"),
        (page('{"code": "dimension_mismatch", "error": "SECRET"}', status="400 Bad"), "dimension_mismatch"),
        (page('{"code": "sesame", "error": "SECRET"}', status="400 Bad"), "bad_request"),
        (page("", status="413 Too Large"), "memory_value_too_large"),
    ],
)
async def test_a_refusal_has_a_code_and_none_of_the_peers_words(answer: bytes, expected: str) -> None:
    async with odd(**LOCAL) as (server, agent):
        server.answers[ENTRY] = answer
        refused = await agent.refused("get", key="k")
        assert refused.code == expected
        assert "SECRET" not in str(refused)


@pytest.mark.parametrize(
    ("answer", "is_unknown"),
    [
        (_hang, True),
        (page("", status="500 Oops"), True),
        (page('{"code": "command_pending"}', status="503 Busy"), True),
        (page('{"code": "memory_unavailable"}', status="503 Busy"), False),
        (page("", status="429 Slow down"), False),
        (page("ok"), True),
    ],
)
async def test_a_write_without_an_answer_may_have_been_made(answer: Answer, is_unknown: bool) -> None:
    async with odd(timeout_s=0.3 if answer is _hang else 30.0) as (server, agent):
        server.answers[ENTRY] = answer
        with pytest.raises(Unavailable) as caught:
            await agent.call("set", key="k", value=1)
        assert caught.value.is_unknown is is_unknown


async def test_a_list_with_keys_that_were_not_asked_for_is_an_error() -> None:
    async with odd() as (server, agent):
        path = "/v1/_memory/scopes/user/ada/keys?limit=100&prefix=a"
        for entries in ([{"key": "b", "value": 1}], [{"key": "a\n", "value": 1}], [7], 5):
            server.answers[path] = page(json.dumps({"entries": entries}))
            with pytest.raises(Unavailable, match="it answered with"):
                await agent.call("list", prefix="a")


async def test_a_peer_without_revisions_gets_writes_without_and_no_repetition_of_what_counts() -> None:
    async with odd() as (server, agent):
        server.answers[ENTRY] = page(json.dumps({"entry": {"key": "k", "value": 1}, "embedded": False}))
        assert await agent.call("incr", key="k") == {"value": 2}
        put = server.requests[-1]
        assert json.loads(put.partition("\r\n\r\n")[2]) == {"value": 2}
        assert "revision" not in await agent.call("get", key="k")
        assert await agent.call("set", key="k", value=1) == {"ok": True}
        for op, more in (("incr", {}), ("bounded_list", {"value": 1, "limit": 2})):
            value = 1 if op == "incr" else [1]
            server.answers[ENTRY] = page(json.dumps({"entry": {"key": "k", "value": value}}))
            refused = await agent.refused(op, key="k", attempt=2, **more)
            assert "may have had its effect" in str(refused)
        assert (await agent.refused("set", key="k", value=1, if_revision=3)).code == "capability_unsupported"


# --- fallback --------------------------------------------------------------------------------------------------------


async def test_without_an_answer_the_memory_here_is_used_and_the_reply_says_so() -> None:
    async with odd(**LOCAL) as (server, agent):
        server.answers[ENTRY] = page("", status="503 Busy")
        answer = await agent.call("set", key="k", value=1)
        assert (answer["ok"], answer["backend_fallback"]) == (True, True)
        answer = await agent.call("incr", key="k")
        assert (answer["value"], answer["backend_fallback"]) == (2, True)
        refused = await agent.refused("set", key="k", value=1, if_revision=7)
        assert (refused.code, refused.details) == ("revision_conflict", {"backend_fallback": True})
        assert "answered by the memory here" in str(refused)
        server.answers[ENTRY] = entry(value=100)
        assert "backend_fallback" not in await agent.call("get", key="k")


async def test_a_reducer_that_loses_its_peer_in_the_middle_is_done_here_as_a_whole() -> None:
    async with odd(**LOCAL) as (server, agent):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(entry(value=100) if server.requests[-1].startswith("GET") else page("", status="502 Bad"))
            await writer.drain()

        server.answers[ENTRY] = serve
        answer = await agent.call("incr", key="k")
        assert (answer["value"], answer["backend_fallback"]) == (1, True)


async def test_without_a_fallback_nothing_is_done_here() -> None:
    async with odd() as (server, agent):
        server.answers[ENTRY] = page("", status="503 Busy")
        with pytest.raises(Unavailable):
            await agent.call("set", key="k", value=1)
        assert agent.local.asked == []


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("fallback", [LOCAL, {}])
async def test_a_dead_peer_is_left_alone_and_asked_in_the_background(fallback: dict[str, str]) -> None:
    async with odd(timeout_s=0.3, health_check_interval_seconds=10, **fallback) as (server, agent):

        async def is_answered_here() -> bool:
            try:
                return "backend_fallback" in await agent.call("get", key="k")
            except Unavailable:
                return True

        server.answers[ENTRY] = _hang
        assert await is_answered_here()
        for _ in range(3):
            assert await is_answered_here()
        assert len(server.requests) == 1

        server.answers[ENTRY] = entry()
        server.answers["/v1/_memory/scopes"] = page("", status="500 Oops")
        agent.now_s += 11
        assert await is_answered_here()
        await until(lambda: len(server.requests) == 2)
        await asyncio.sleep(0.05)
        assert await is_answered_here()
        assert len(server.requests) == 2

        server.answers["/v1/_memory/scopes"] = page("{}")
        agent.now_s += 11
        assert await is_answered_here()
        await until(lambda: len(server.requests) == 3)
        await asyncio.sleep(0.05)
        assert not await is_answered_here()


async def test_a_refused_key_is_no_dead_peer() -> None:
    async with odd(health_check_interval_seconds=10, **LOCAL) as (server, agent):
        server.answers[ENTRY] = page("", status="401 Unauthorized")
        for _ in range(2):
            assert (await agent.call("get", key="k"))["backend_fallback"] is True
        assert len(server.requests) == 2


async def test_a_prompt_reads_the_fallback_once_the_peer_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomlog.services.families.memory.backends.READ_WAIT_S", 0.1)
    async with odd(**LOCAL) as (server, agent):
        server.answers[ENTRY] = _hang
        author, scope = agent.author(1, 1), Scope("default", "user", "ada")
        await agent.store.set(scope, "k", Change(text='"here"'), author)
        reader = await agent.backends.backend_of(author)
        for _ in range(3):
            found = await reader.get(scope, "k", author)
            assert found is not None
            assert found.text == '"here"'
        assert len(server.requests) == 1
        assert (await reader.list(scope, author, limit=5))[0][0].key == "k"

    async with odd() as (server, agent):
        server.answers[ENTRY] = _hang
        reader = await agent.backends.backend_of(agent.author(1, 1))
        with pytest.raises(Unavailable, match="no answer within"):
            await reader.get(scope, "k", author)


async def test_a_read_waits_for_the_last_write_of_its_process(peer: Peer) -> None:
    agent = peer.agent()
    await agent.call("set", key="k", value=1)
    peer.entities.waited.clear()
    await agent.call("get", key="k")
    assert any(waited for waited in peer.entities.waited)


async def test_refusals_are_of_this_family(peer: Peer) -> None:
    agent = peer.agent(scopes=("user",))
    with pytest.raises(Refused, match="this agent may use user"):
        await agent.call("get", scope="tenant", key="k")
