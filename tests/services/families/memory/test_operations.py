"""Operations on entries as an agent makes them: op x scope x error, repetitions, and what others do meanwhile."""

import asyncio
from typing import Any

import pytest

from loomlog.schemas.records import replace
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.author import Author, Grants, Scope, scopes_of_run
from loomlog.services.families.memory.entry_operations import EntryLimits, EntryOperations
from loomlog.services.families.memory.store import MemoryStore
from tests.services.entities import NOW_MS, TOPIC, UNANSWERED, MemoryEntities
from tests.services.families.memory.calls import carry_out, memory_handlers

GRANTS = Grants(memory_scopes=("agent", "user", "tenant"))


class Agent:
    """An agent's calls of the tool, in one run."""

    def __init__(
        self, entities: MemoryEntities | None = None, *, grants: Grants = GRANTS, user_id: str = "ada"
    ) -> None:
        self.entities = entities or MemoryEntities(FAMILY)
        self.now_ms = NOW_MS
        self.store = MemoryStore(self.entities, self.entities, clock_ms=lambda: self.now_ms)
        self.handlers = memory_handlers(EntryOperations(self.store, EntryLimits()))
        self.grants, self.user_id = grants, user_id
        self.calls = 0

    async def call(self, op: str, *, scope: str | None = "user", call: int = 0, attempt: int = 1, **fields: Any) -> Any:
        self.calls += 1
        author = Author(
            tenant="acme",
            subject="service",
            command_id=f"r_1:1.{call or self.calls}",
            issued_at_ms=NOW_MS if attempt == 1 else 0,
            user_id=self.user_id,
            agent="helper",
            run_id="r_1",
            root_run_id="r_1",
            session_id="s_1",
            turn=1,
            call=call or self.calls,
            grants=self.grants,
        )
        named = {"scope": scope} if scope else {}
        return (await carry_out(self.handlers, op, {**named, **fields}, author)).value

    async def refused(self, op: str, **fields: Any) -> str:
        with pytest.raises(Refused) as caught:
            await self.call(op, **fields)
        assert str(caught.value)
        return caught.value.code


@pytest.fixture
def agent() -> Agent:
    return Agent()


async def test_set_get_delete(agent: Agent) -> None:
    answer = await agent.call("set", key="k", value={"a": [1, None]})
    assert answer["ok"] is True
    assert answer["usage"]["keys"] == 1
    assert (await agent.call("get", key="k"))["value"] == {"a": [1, None]}
    assert (await agent.call("delete", key="k")) == {"deleted": True}
    assert (await agent.call("delete", key="k")) == {"deleted": False}
    assert (await agent.call("get", key="k")) == {"value": None, "expires_at": None}


async def test_a_value_has_a_source(agent: Agent) -> None:
    await agent.call("set", key="k", value=1, provenance={"class": "preference"})
    answer = await agent.call("get", key="k", include_provenance=True)
    assert answer["provenance"]["class"] == "preference"
    assert answer["provenance"]["origin"] == "agent_explicit"
    assert answer["provenance"]["source_run_id"] == "r_1"
    assert answer["provenance"]["origin_available"] is True
    assert answer["source"] | {"turn": 1, "call": 1, "agent": "helper", "user_id": "ada"} == answer["source"]


async def test_scopes_do_not_mix(agent: Agent) -> None:
    for scope in ("agent", "user", "tenant"):
        await agent.call("set", scope=scope, key="k", value=scope)
    other = Agent(agent.entities, user_id="bob")
    assert (await other.call("get", key="k"))["value"] is None
    for scope in ("agent", "tenant"):
        assert (await other.call("get", scope=scope, key="k"))["value"] == scope


@pytest.mark.parametrize(
    ("op", "fields", "code"),
    [
        ("juggle", {}, "bad_request"),
        ("set", {"key": "k"}, "missing_value"),
        ("set", {"value": 1}, "bad_request"),
        ("set", {"key": "k", "value": 1, "colour": "red"}, "bad_request"),
        ("set", {"key": "a\0b", "value": 1}, "bad_request"),
        ("set", {"key": "\ud800", "value": 1}, "bad_request"),
        ("set", {"key": "k", "value": "\ud800"}, "invalid_value"),
        ("set", {"key": "k", "value": float("nan")}, "invalid_value"),
        ("set", {"key": "k", "value": float("inf")}, "invalid_value"),
        ("set", {"key": "k", "value": "a\0b"}, "invalid_value"),
        ("set", {"key": "k", "value": "x" * 3_000_000}, "memory_value_too_large"),
        ("set", {"key": "k", "value": 1, "ttl": -1}, "bad_request"),
        ("set", {"key": "k", "value": 1, "ttl": 2**50}, "bad_request"),
        ("set", {"key": "k", "value": 1, "ttl": "soon"}, "bad_request"),
        ("set", {"key": "k", "value": 1, "embed": "yes"}, "bad_request"),
        ("set", {"key": "k", "value": 1, "if_revision": 4}, "revision_conflict"),
        ("set", {"key": "k", "value": 1, "provenance": "me"}, "bad_request"),
        ("get", {"key": "k", "scope": "galaxy"}, "invalid_scope"),
        ("get", {"key": "k", "scope": "run"}, "invalid_scope"),
        ("list", {"limit": 0}, "bad_request"),
        ("list", {"limit": 1_001}, "bad_request"),
        ("incr", {"key": "text"}, "invalid_value"),
        ("incr", {"key": "n", "delta": 1e400}, "invalid_value"),
        ("incr", {"key": "n", "delta": True}, "invalid_value"),
        ("incr", {"key": "n", "delta": 2**70}, "invalid_value"),
        ("merge", {"key": "text", "value": {"a": 1}}, "invalid_value"),
        ("merge", {"key": "new", "value": [1]}, "invalid_value"),
        ("append_dedupe", {"key": "text", "value": 1}, "invalid_value"),
        ("bounded_list", {"key": "l", "value": 1}, "bad_request"),
        ("bounded_list", {"key": "l", "value": 1, "limit": 10_001}, "bad_request"),
        ("search", {"query": "tea"}, "search_unavailable"),
        ("supersede", {"key": "text"}, "capability_unsupported"),
        ("sql_query", {"statement": "SELECT 1"}, "sqlmem_unavailable"),
        ("cursor_get", {}, "capability_unsupported"),
        ("add", {"content": "x"}, "capability_unsupported"),
    ],
)
async def test_bad_calls_are_refused(agent: Agent, op: str, fields: dict[str, Any], code: str) -> None:
    await agent.call("set", key="text", value="a text")
    assert await agent.refused(op, **fields) == code
    assert (await agent.call("get", key="text"))["value"] == "a text"


async def test_a_value_nested_ten_thousand_levels_deep_is_refused(agent: Agent) -> None:
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    assert await agent.refused("set", key="k", value=value) == "invalid_value"


async def test_scopes_that_are_not_granted_are_refused() -> None:
    agent = Agent(grants=Grants(memory_scopes=("user",)))
    assert await agent.refused("get", scope="tenant", key="k") == "invalid_scope"
    assert (await agent.call("get", scope=None, key="k"))["value"] is None, "the only scope that is granted"
    assert await Agent(user_id="").refused("get", key="k") == "invalid_scope"
    assert await Agent(grants=Grants()).refused("get", scope=None, key="k") == "invalid_scope"


async def test_reducers(agent: Agent) -> None:
    assert [(await agent.call("incr", key="n"))["value"] for _ in range(3)] == [1, 2, 3]
    assert (await agent.call("incr", key="n", delta=-0.5))["value"] == 2.5
    await agent.call("set", key="m", value={"a": {"x": 1}, "b": 1})
    assert (await agent.call("merge", key="m", value={"a": {"y": 2}, "b": None}))["value"] == {
        "a": {"x": 1, "y": 2},
        "b": None,
    }
    for item in ({"k": 1}, {"k": 1}, {"k": True}):
        answer = await agent.call("append_dedupe", key="l", value=item)
    assert answer["value"] == [{"k": 1}, {"k": True}]
    answers = [await agent.call("bounded_list", key="b", value=number, limit=2) for number in (1, 2, 3)]
    assert answers[-1]["value"] == [2, 3]
    assert [one["dropped"] for one in answers] == [0, 0, 1]


async def test_a_repeated_incr_counts_once(agent: Agent) -> None:
    await agent.call("incr", key="n", call=7)
    again = Agent(agent.entities)  # another process: nothing is cached
    assert (await again.call("incr", key="n", call=7, attempt=2))["value"] == 1
    assert (await again.call("get", key="n"))["value"] == 1


async def test_a_repeated_incr_answers_as_before_when_others_changed_the_value_since(agent: Agent) -> None:
    await agent.call("incr", key="n", call=7)
    await agent.call("set", key="n", value="a text")
    again = Agent(agent.entities)
    assert (await again.call("incr", key="n", call=7, attempt=2))["value"] == 1
    assert await again.refused("incr", key="n", call=8, attempt=2) == "invalid_value"
    assert (await again.call("get", key="n"))["value"] == "a text"


async def test_increments_of_two_processes_at_once_all_count(agent: Agent) -> None:
    others = [Agent(agent.entities) for _ in range(3)]
    for number, other in enumerate(others):
        other.calls = 100 * (number + 1)
    await asyncio.gather(*(other.call("incr", key="n") for other in others for _ in range(10)))
    assert (await agent.call("get", key="n"))["value"] == 30


async def test_a_reducer_that_loses_a_race_reads_again(agent: Agent) -> None:
    await agent.call("incr", key="n")
    rival, ask = Agent(agent.entities), agent.entities.ask
    rival.calls = 50
    raced = False

    async def ask_after_rival(command: Any, *, wait_s: float) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            await rival.call("incr", key="n", delta=10)
        return await ask(command, wait_s=wait_s)

    agent.entities.ask = ask_after_rival  # type: ignore[method-assign]
    assert (await agent.call("incr", key="n", call=9))["value"] == 12
    agent.entities.ask = ask  # type: ignore[method-assign]
    assert (await Agent(agent.entities).call("incr", key="n", call=9, attempt=2))["value"] == 12


async def test_lists_are_by_key_within_the_prefix(agent: Agent) -> None:
    for key in ("b/2", "a/1", "b/1", "c"):
        await agent.call("set", key=key, value=key)
    answer = await agent.call("list", prefix="b/")
    assert [entry["key"] for entry in answer["entries"]] == ["b/1", "b/2"]
    assert answer["truncated"] is False
    answer = await agent.call("list", limit=2, after="a/1")
    assert [entry["key"] for entry in answer["entries"]] == ["b/1", "b/2"]
    assert answer["truncated"] is True


async def test_users_whose_ids_have_slashes_do_not_share_keys(agent: Agent) -> None:
    await Agent(agent.entities, user_id="ada/b").call("set", key="c", value=1)
    await Agent(agent.entities, user_id="ada").call("set", key="b/c", value=2, call=50)
    assert [one["key"] for one in (await Agent(agent.entities, user_id="ada/b").call("list"))["entries"]] == ["c"]
    assert (await Agent(agent.entities, user_id="ada").call("get", key="b/c"))["value"] == 2


async def test_expired_keys_are_hidden_at_once(agent: Agent) -> None:
    await agent.call("set", key="k", value=1, ttl=10)
    assert (await agent.call("get", key="k"))["expires_at"] is not None
    agent.now_ms += 10_000
    assert (await agent.call("get", key="k"))["value"] is None
    assert (await agent.call("list"))["entries"] == []
    agent.entities.is_owner = False
    assert (await agent.call("get", key="k"))["value"] is None


async def test_core_blocks_are_kept_to_their_terms() -> None:
    blocks = (
        {"label": "persona", "scope": "agent", "limit_bytes": 0, "read_only": True},
        {"label": "human", "scope": "user", "limit_bytes": 12, "read_only": False},
    )
    agent = Agent(grants=replace(GRANTS, core_blocks=blocks))
    assert await agent.refused("set", scope="agent", key="core/persona", value="x") == "bad_request"
    assert await agent.refused("delete", scope="agent", key="core/persona") == "bad_request"
    assert await agent.refused("set", key="core/human", value="a text that is too long") == "memory_value_too_large"
    assert (await agent.call("set", key="core/human", value="short"))["ok"] is True
    assert await agent.refused("append_dedupe", key="core/human", value=1) == "invalid_value"
    assert (await agent.call("set", key="core/other", value="free"))["ok"] is True


async def test_a_scope_that_is_nearly_full_is_told() -> None:
    agent = Agent(grants=replace(GRANTS, memory_quota_bytes=100))
    assert "usage_warning" not in await agent.call("set", key="a", value="x" * 50)
    answer = await agent.call("set", key="b", value="x" * 30)
    assert answer["usage"] == {"bytes": 84, "quota_bytes": 100, "keys": 2}
    assert "84 of 100" in answer["usage_warning"]
    assert await agent.refused("set", key="c", value="x" * 30) == "memory_quota_exceeded"


async def test_a_quota_of_a_version_is_no_larger_than_that_of_the_operator() -> None:
    value, more = "x" * 60_000, replace(GRANTS, memory_quota_bytes=10**12)
    made_at_run_time, of_a_file = Agent(grants=more), Agent(grants=replace(more, is_of_file=True))
    for number in range(17):
        await made_at_run_time.call("set", key=str(number), value=value)
        await of_a_file.call("set", key=str(number), value=value)
    assert await made_at_run_time.refused("set", key="17", value=value) == "memory_quota_exceeded"
    await of_a_file.call("set", key="17", value=value)


async def test_an_owner_that_does_not_answer_leaves_the_outcome_open(agent: Agent) -> None:
    await agent.call("set", key="k", value=1)
    agent.entities.error = UNANSWERED
    with pytest.raises(Unavailable) as caught:
        await agent.call("set", key="k", value=2)
    assert caught.value.is_unknown


async def test_a_value_at_a_moment(agent: Agent) -> None:
    await agent.call("set", key="k", value="first")
    scope = Scope("acme", "user", "ada")
    await agent.call("set", key="k", value="second")
    await agent.call("delete", key="k")
    versions, following = await agent.store.history(scope, "k", limit=10)
    assert [version["op"] for version in versions] == ["delete", "set", "set"]
    assert following == ""
    assert [version.get("value") for version in versions] == [None, '"second"', '"first"']
    offset = int(versions[2]["position"].rpartition(":")[2])
    assert (await agent.store.at(scope, "k", offset_max=offset) or {})["value"] == '"first"'
    assert await agent.store.at(scope, "k", at_ms=NOW_MS - 1) is None


async def test_the_store_knows_what_it_wrote_for_the_prompt_of_a_run(agent: Agent) -> None:
    scopes = scopes_of_run("acme", "helper", "ada")
    assert agent.store.written_positions(scopes) == ()
    for scope in ("user", "tenant", "user"):
        await agent.call("set", scope=scope, key="k", value=1)
    assert agent.store.written_positions(scopes) == (f"{TOPIC}/1:3", f"{TOPIC}/1:2")
    assert agent.store.written_positions(scopes_of_run("acme", "helper", "")) == (f"{TOPIC}/1:2",)
    assert agent.store.written_positions(scopes_of_run("other", "helper", "ada")) == ()
