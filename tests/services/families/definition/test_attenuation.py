"""What a version may have that a run writes: nothing beyond its author and its origin, in any field of any kind."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loomlog.connectors.configuration.agent_block import DEFAULT_ITERATIONS, AgentBlock
from loomlog.connectors.configuration.channel_block import ChannelBlock
from loomlog.connectors.configuration.field_classes import (
    NEUTRAL,
    Bound,
    Grant,
    Order,
    list_classed_fields,
)
from loomlog.connectors.configuration.resolve import interruption_access, may_consolidate
from loomlog.connectors.definitions import KINDS, DefinitionProblem, covers
from loomlog.connectors.tools.skill_patterns import parse_patterns
from loomlog.services.core.run.limits import MAX_ITERATIONS_DEFAULT
from loomlog.services.families.channel.access import is_granted
from loomlog.services.families.definition.attenuation import Abilities, exceeding
from loomlog.services.families.definition.orders import Side, beyond
from loomlog.services.families.definition.volume_content import VolumeContent

AGENT = KINDS["agent"]
BLOCKS = {**{kind.name: kind.block for kind in KINDS.values()}, "channel": ChannelBlock, "volume": VolumeContent}
Content = Mapping[str, Any]
WEAK: Content = {
    "model": "m",
    "tools": ["AgentDef", "Memory"],
    "memory_scopes": ["user"],
    "channels": {"publish": ["team/*"], "subscribe": ["team/*"]},
    "agent_def_scopes": ["self"],
    "max_iterations": 4,
}


def block(overlay: Mapping[str, Any], base: Mapping[str, Any] = WEAK) -> Any:
    return AGENT.block_of(AGENT.compose("weak", overlay, base))


def abilities(content: Mapping[str, Any] = WEAK, **run: Any) -> Abilities:
    agent = block({}, content)
    return Abilities(agent="weak", block=replace(agent, tools=(*agent.tools, "Context")), **run)


def fields_beyond(overlay: Mapping[str, Any], *, name: str = "weak", author: Abilities | None = None) -> set[str]:
    """Return the fields that exceed the author, for a version made from nothing."""
    return {one.field for one in exceeding(AgentBlock, name, block(overlay, {"model": "m"}), author or abilities())}


# --- every field has a class -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BLOCKS)
def test_every_field_of_a_definition_has_one_class(kind: str) -> None:
    fields = list_classed_fields(BLOCKS[kind])
    assert fields
    assert [one.name for one in fields if one.field_class is None] == []
    assert {one.path[0] for one in fields} == set(BLOCKS[kind].__annotations__) - {"__pydantic_config__"}


def test_a_field_without_a_class_and_one_with_two_are_found() -> None:
    @dataclass(frozen=True)
    class Inner:
        new: int = 0

    @dataclass(frozen=True)
    class Block:
        old: Annotated[str, NEUTRAL] = ""
        twice: Annotated[str, NEUTRAL, Bound()] = ""
        inner: Inner | None = None
        many: tuple[Inner, ...] = ()

    Block.__annotations__["inner"] = Inner
    found = [one.name for one in list_classed_fields(Block) if one.field_class is None]
    assert found == ["twice", "inner.new", "many"]


def test_every_order_is_one_that_can_be_compared() -> None:
    used = {
        one.field_class.order
        for kind in BLOCKS.values()
        for one in list_classed_fields(kind)
        if isinstance(one.field_class, Grant)
    }
    assert used == set(Order)


def test_an_agent_without_a_number_of_turns_has_that_of_the_core() -> None:
    assert DEFAULT_ITERATIONS == MAX_ITERATIONS_DEFAULT


# --- one field after the other ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ({"tools": ["Bash"]}, "tools"),
        ({"tools": ["*"]}, "tools"),
        ({"memory_scopes": ["user", "tenant"]}, "memory_scopes"),
        ({"sql_scopes": ["agent"]}, "sql_scopes"),
        ({"history_scope": ["user"]}, "history_scope"),
        ({"evaluation_scopes": ["submit_self"]}, "evaluation_scopes"),
        ({"channels": {"subscribe": ["ten"]}}, "channels.subscribe"),
        ({"channels": {"publish": ["team"]}}, "channels.publish"),
        ({"channels": {"publish": ["team/../ten"]}}, "channels.publish"),
        ({"agent_def_scopes": ["any"]}, "agent_def_scopes"),
        ({"agent_def_scopes": ["descendants"]}, "agent_def_scopes"),
        ({"agent_def_scopes": ["named:other"]}, "agent_def_scopes"),
        ({"agent_def_scopes": ["promote"]}, "agent_def_scopes"),
        ({"volume_def_scopes": ["self"]}, "volume_def_scopes"),
        ({"schedule_def_scopes": ["any"]}, "schedule_def_scopes"),
        ({"a2a_agent_def_scopes": ["any"]}, "a2a_agent_def_scopes"),
        ({"a2a_server_card_def_scopes": ["any"]}, "a2a_server_card_def_scopes"),
        ({"volumes": ["secretvol"]}, "volumes"),
        ({"max_iterations": 5}, "max_iterations"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"internal": True}, "internal"),
        ({"memory_backend": "elsewhere"}, "memory_backend"),
        ({"memory_consolidation": True}, "memory_consolidation"),
        ({"memory_consolidation": {"enabled": "yes"}}, "memory_consolidation"),
        ({"inherit_core_blocks": True}, "inherit_core_blocks"),
        ({"core_blocks": [{"label": "human", "scope": "tenant"}]}, "core_blocks"),
        ({"interruption": {"enabled": True}}, "interruption"),
        ({"memory_inject_max_tokens": 1025}, "memory_inject_max_tokens"),
        ({"memory_index_max_bytes": 24577}, "memory_index_max_bytes"),
        ({"max_concurrent_children": 5}, "max_concurrent_children"),
        ({"search_providers": ["exa"]}, "search_providers"),
        ({"compaction": {"model": "dear"}}, "compaction.model"),
        ({"model": "dear"}, "provider"),
        ({"provider": "p", "model": "m"}, "provider"),
        ({"tier": "low"}, "provider"),
        ({"code_body": "x", "provider": "code-js"}, "provider"),
    ],
)
def test_what_the_author_lacks_is_named_by_its_field(overlay: Mapping[str, Any], field: str) -> None:
    bounded = {"max_iterations": 4}
    assert fields_beyond(bounded | overlay) == {field}
    origin = exceeding(AgentBlock, "weak", block(bounded | overlay, {"model": "m"}), None, block({}))
    assert {one.field for one in origin} == {field}


@pytest.mark.parametrize(
    "overlay",
    [
        {"system_prompt": "OWNED", "description": "other", "memory_protocol": True, "sampling": {"temperature": 1}},
        {"tools": ["Memory"], "channels": {"publish": ["team/a", "team/a/*"]}},
        {"memory_scopes": ["user"], "core_blocks": [{"label": "human", "scope": "user", "limit_bytes": 9}]},
        {"agent_def_scopes": ["self", "named:weak"], "volumes": ["default"], "disable_context": True},
        {"max_iterations": 3, "max_tokens": 100, "run_timeout_seconds": 60, "memory_quota_bytes": 10**6},
        {"effort": "high", "retry_attempts": 5, "unknown_outcome": "ask", "interruption": {"enabled": False}},
    ],
)
def test_what_lies_within_the_author_is_taken(overlay: Mapping[str, Any]) -> None:
    assert fields_beyond({"max_iterations": 4} | overlay) == set()


@pytest.mark.parametrize(
    ("held", "requested", "fields"),
    [
        ({"memory_quota_bytes": 100}, {"memory_quota_bytes": 101}, {"memory_quota_bytes"}),
        ({"memory_quota_bytes": 100}, {"memory_quota_bytes": 0}, {"memory_quota_bytes"}),
        ({"sql_quota_bytes": 100}, {}, {"sql_quota_bytes"}),
        ({"max_tokens": 9}, {"max_tokens": 10}, {"max_tokens"}),
        ({"run_timeout_seconds": 9}, {}, {"run_timeout_seconds"}),
        ({"retry_attempts": 0}, {"retry_attempts": 1}, {"retry_attempts"}),
        ({"effort": "low"}, {"effort": "medium"}, {"effort"}),
        ({"effort": "low"}, {}, {"effort"}),
        ({"unknown_outcome": "ask"}, {}, {"unknown_outcome"}),
        ({"unknown_outcome": "ask"}, {"unknown_outcome": "fail"}, set()),
        ({"unbounded_iterations": True}, {"max_iterations": 10_000}, set()),
        ({}, {"unbounded_iterations": True}, {"unbounded_iterations", "max_iterations"}),
        ({"skills": ["pdf", "team/*"]}, {}, {"skills"}),
        ({"skills": ["pdf", "team/*"]}, {"skills": ["pdf", "team/a"]}, set()),
        ({"skills": ["pdf", "team/*"]}, {"skills": ["team/**"]}, {"skills"}),
        ({"skills": ["-secret"]}, {"skills": ["secret"]}, {"skills"}),
        ({"skills": ["-secret"]}, {"skills": ["s*"]}, {"skills"}),
        ({"skills": ["-secret"]}, {"skills": ["s*", "-secret"]}, set()),
        ({"skills": ["-*"]}, {"skills": ["pdf"]}, {"skills"}),
        ({"disable_context": True}, {}, {"tools"}),
        ({"search_providers": ["exa"]}, {}, {"search_providers"}),
        ({"interruption": {"enabled": True}}, {"interruption": {"enabled": True, "kinds": ["x"]}}, {"interruption"}),
        ({"interruption": {"enabled": True}}, {"interruption": {"enabled": True, "max_pending": 11}}, {"interruption"}),
        ({"evaluation_scopes": ["submit_any"]}, {"evaluation_scopes": ["submit_self"]}, set()),
        ({"evaluation_scopes": ["submit_any"]}, {"evaluation_scopes": ["read_any"]}, {"evaluation_scopes"}),
        ({"tier": "middle"}, {"tier": "low"}, set()),
        ({"tier": "middle"}, {"tier": "high"}, {"provider"}),
        ({"tier": "middle", "providers": ["a"]}, {"tier": "middle"}, {"provider"}),
        ({"tier": "middle", "providers": ["a", "b"]}, {"tier": "low", "providers": ["b"]}, set()),
        ({"tier": "low", "models": {"low": [{"model": "a"}]}}, {"tier": "low"}, {"provider"}),
        ({"tier": "low", "models": {"low": [{"model": "a"}]}}, {"model": "a"}, set()),
    ],
)
def test_a_limit_and_a_choice_are_kept(held: Mapping[str, Any], requested: Mapping[str, Any], fields: set[str]) -> None:
    own = {} if "tier" in held else {"model": "m"}
    asked = {} if {"tier", "model"} & requested.keys() else {"model": "m"}
    version, origin = block(asked | dict(requested), {}), block(own | dict(held), {})
    assert {one.field for one in exceeding(AgentBlock, "weak", version, None, origin)} == fields


def test_a_block_that_protects_an_entry_stays_while_its_scope_can_be_written() -> None:
    protected = {"memory_scopes": ["agent"], "core_blocks": [{"label": "persona", "read_only": True}], "model": "m"}
    origin = block({}, protected)
    for overlay in ({"core_blocks": []}, {"core_blocks": [{"label": "persona"}]}):
        assert {one.field for one in exceeding(AgentBlock, "weak", block(overlay, protected), None, origin)} == {
            "core_blocks"
        }
    assert not exceeding(AgentBlock, "weak", block({"core_blocks": [], "memory_scopes": []}, protected), None, origin)


@pytest.mark.parametrize(
    ("held", "holder", "requested", "name", "missing"),
    [
        (("self",), "weak", ("self",), "weak", ()),
        (("self",), "weak", ("self",), "other", ("self",)),
        (("named:other",), "weak", ("self",), "other", ()),
        (("descendants",), "weak", ("self", "descendants"), "other", ()),
        (("descendants",), "weak", ("any",), "other", ("any",)),
        (("any",), "weak", ("any", "descendants", "self", "named:x"), "other", ()),
        (("any",), "weak", ("promote",), "other", ("promote",)),
        (("any", "promote"), "weak", ("promote",), "other", ()),
        (("self",), "weak", ("named:weak",), "other", ()),
    ],
)
def test_scopes_of_authorship_are_ordered(
    held: tuple[str, ...], holder: str, requested: tuple[str, ...], name: str, missing: tuple[str, ...]
) -> None:
    assert beyond(Order.AUTHORSHIP, Side(value=requested, name=name), Side(value=held, name=holder)) == missing


def test_a_refusal_says_what_exceeds_whom_and_what_they_have() -> None:
    (excess,) = exceeding(AgentBlock, "weak", block({"memory_scopes": ["user", "tenant"]}), abilities(), None)
    assert str(excess) == "memory_scopes: tenant exceeds the agent weak, which has user"
    (excess,) = exceeding(AgentBlock, "weak", block({"max_iterations": 9}), None, block({}))
    assert str(excess) == "max_iterations: 9 exceeds the version it is made from, which has at most 4"


# --- schedules, skills and others ------------------------------------------------------------------------------------

EXPOSED = {"agent_name": "boss", "skill_id": "s"}
HOLDER: Mapping[str, Any] = {
    "model": "m",
    "tools": ["ScheduleDef", "HTTP"],
    "memory_scopes": ["user", "agent"],
    "channels": {"publish": ["team/*"]},
}


def beyond_author(kind: str, overlay: Mapping[str, Any], name: str = "other", **run: Any) -> set[str]:
    content = KINDS[kind].compose(name, overlay)
    author = abilities(HOLDER, **{"user": "ada", "hosts": ("example.org",)} | run)
    return {one.field for one in exceeding(KINDS[kind].block, name, KINDS[kind].block_of(content), author)}


@pytest.mark.parametrize(
    ("overlay", "fields"),
    [
        ({}, set()),
        ({"user_id": "ada"}, set()),
        ({"user_id": "bob"}, {"user_id"}),
        ({"agent": "boss"}, {"agent"}),
        ({"user_tier": "gold"}, {"user_tier"}),
        ({"user_credentials": {"key": "$cred:key"}}, {"user_credentials"}),
        ({"user_credentials_from_env": {"key": "LOOMLOG_KEY"}}, {"user_credentials_from_env"}),
        ({"on_complete": [{"kind": "channel.publish", "channel": "team/a"}]}, set()),
        ({"on_complete": [{"kind": "channel.publish", "channel": "ten"}]}, {"on_complete"}),
        ({"on_complete": [{"kind": "memory.set", "scope": "user", "key": "k"}]}, set()),
        ({"on_complete": [{"kind": "memory.set", "scope": "global", "key": "k"}]}, {"on_complete"}),
        ({"on_complete": [{"kind": "memory.set", "scope": "agent", "key": "k"}]}, {"on_complete"}),
        ({"on_complete": [{"kind": "http", "url": "https://api.example.org/x"}]}, set()),
        ({"on_complete": [{"kind": "http", "url": "https://evil.test/x"}]}, {"on_complete"}),
        (
            {"on_complete": [{"kind": "http", "url": "https://example.org", "secret_env": "CALLBACK_SECRET_A"}]},
            {"on_complete"},
        ),
    ],
)
def test_a_schedule_does_what_its_author_can_do(overlay: Mapping[str, Any], fields: set[str]) -> None:
    assert beyond_author("schedule", {"agent": "weak", "schedule": "0 * * * *"} | dict(overlay)) == fields


def test_a_schedule_is_no_way_around_what_the_caller_of_a_run_has_taken_away() -> None:
    own = {"agent": "weak", "schedule": "0 * * * *"}
    assert beyond_author("schedule", own, is_narrowed=True) == {"agent"}
    assert beyond_author("schedule", own, has_narrowed_hosts=True) == {"agent"}
    spawner = abilities({**HOLDER, "tools": ["Agent"]}, has_narrowed_hosts=False)
    schedule = KINDS["schedule"].block_of({**own, "agent": "boss"})
    assert exceeding(KINDS["schedule"].block, "s", schedule, spawner) == ()


@pytest.mark.parametrize(
    ("kind", "overlay", "fields"),
    [
        ("skill", {"body": "b", "tools": ["HTTP"]}, set()),
        ("skill", {"body": "b", "tools": ["Bash"]}, {"tools"}),
        ("mcpserver", {"transport": "http", "url": "https://example.org"}, set()),
        ("mcpserver", {"transport": "http", "url": "https://evil.test"}, {"url"}),
        ("mcpserver", {"transport": "http", "url": "https://example.org", "headers": {"a": "$cred:k"}}, {"headers"}),
        (
            "mcpserver",
            {
                "transport": "http",
                "url": "https://example.org",
                "oauth": {"client_id": "c", "client_secret": "$cred:k"},
            },
            {"oauth.client_secret"},
        ),
        ("a2aagent", {"agent_card_url": "https://evil.test/card"}, {"agent_card_url"}),
        ("a2aagent", {"endpoint": "evil.test:443", "binding": "grpc"}, {"endpoint"}),
        (
            "a2aservercard",
            {"name": "n", "exposed_agents": [EXPOSED]},
            {"exposed_agents"},
        ),
        (
            "team",
            {
                "entry": "a",
                "states": [
                    {"state": "a", "handler": {"kind": "agent", "agent": "boss"}},
                    {"state": "b", "handler": {"kind": "terminal"}},
                ],
                "transitions": [{"from": "a", "to": "b", "on": "success"}],
            },
            {"states"},
        ),
    ],
)
def test_definitions_of_other_kinds_give_nothing_that_their_author_lacks(
    kind: str, overlay: Mapping[str, Any], fields: set[str]
) -> None:
    assert beyond_author(kind, overlay) == fields


def test_a_volume_is_not_opened_for_writing() -> None:
    read, write = (VolumeContent(name="v", path="/v", mode=mode) for mode in ("ro", "rw"))
    assert [one.field for one in exceeding(VolumeContent, "v", write, None, read)] == ["mode"]
    assert exceeding(VolumeContent, "v", read, None, write) == ()


# --- any overlay -----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["self", "descendants", "any", "promote", "named:weak", "named:puppet"])
TOOLS = st.sampled_from(["Read", "Write", "Bash", "mcp__*", "mcp__a__b", "*", "Interruption"])
CHANNELS = st.lists(st.sampled_from(["team/a", "team/*", "ten", "team/a/*", "*", "team/../ten"]), max_size=3)
LIMITS = st.sampled_from([0, 1, 9, 10, 16, 17, 1_000, 30_000])
SWITCHES = st.booleans()
FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "tools": st.lists(TOOLS, max_size=3),
    "disable_context": SWITCHES,
    "memory_scopes": st.lists(st.sampled_from(["agent", "user", "tenant"]), max_size=3),
    "sql_scopes": st.lists(st.sampled_from(["agent", "user", "run", "tenant"]), max_size=3),
    "history_scope": st.lists(st.sampled_from(["user", "any"]), max_size=2),
    "evaluation_scopes": st.lists(st.sampled_from(["submit_self", "submit_any", "read_any"]), max_size=2),
    "agent_def_scopes": st.lists(NAMES, max_size=3),
    "volume_def_scopes": st.lists(NAMES, max_size=3),
    "schedule_def_scopes": st.lists(NAMES, max_size=3),
    "a2a_agent_def_scopes": st.lists(NAMES, max_size=2),
    "a2a_server_card_def_scopes": st.lists(NAMES, max_size=2),
    "channels": st.fixed_dictionaries({"publish": CHANNELS, "subscribe": CHANNELS}),
    "volumes": st.lists(st.sampled_from(["default", "vol", "secretvol"]), max_size=2),
    "skills": st.lists(st.sampled_from(["pdf", "team/*", "team/a", "**", "-team/a", "-**"]), max_size=3),
    "max_tokens": LIMITS,
    "max_iterations": LIMITS,
    "unbounded_iterations": SWITCHES,
    "run_timeout_seconds": LIMITS,
    "retry_attempts": LIMITS,
    "max_concurrent_children": LIMITS,
    "memory_quota_bytes": LIMITS,
    "sql_quota_bytes": LIMITS,
    "memory_inject_max_tokens": LIMITS,
    "memory_index_max_bytes": LIMITS,
    "effort": st.sampled_from(["low", "medium", "high"]),
    "unknown_outcome": st.sampled_from(["tell", "ask", "fail"]),
    "internal": SWITCHES,
    "inherit_core_blocks": SWITCHES,
    "memory_consolidation": st.sampled_from([True, False, {"enabled": False}, {"every": 1}]),
    "memory_backend": st.sampled_from(["", "elsewhere"]),
    "search_providers": st.lists(st.sampled_from(["exa", "brave"]), max_size=2),
    "compaction": st.fixed_dictionaries({"model": st.sampled_from(["", "m", "dear"])}),
    "core_blocks": st.lists(
        st.fixed_dictionaries(
            {
                "label": st.just("human"),
                "scope": st.sampled_from(["agent", "tenant"]),
                "limit_bytes": LIMITS,
                "read_only": SWITCHES,
            }
        ),
        max_size=1,
    ),
    "interruption": st.fixed_dictionaries({"enabled": SWITCHES, "max_pending": LIMITS}),
    "model": st.sampled_from(["m", "dear"]),
    "system_prompt": st.just("OWNED"),
}


def effective(agent: AgentBlock, name: str) -> Iterator[tuple[str, frozenset[Any]]]:
    """Yield what an agent can do, written down as sets that are compared without the code that is tested."""
    context = [] if agent.disable_context else ["Context"]
    asked = ["Read", "Write", "Bash", "mcp__a__b", "mcp__other", "Context", "Anything"]
    yield "tools", frozenset(one for one in asked if not covers((*agent.tools, *context), (one,)))
    for field in ("memory_scopes", "sql_scopes", "history_scope"):
        yield field, frozenset(getattr(agent, field))
    judges = set(agent.evaluation_scopes)
    yield "evaluation_scopes", frozenset(judges | ({"submit_self"} if "submit_any" in judges else set()))
    for field in ("publish", "subscribe"):
        granted = getattr(agent.channels, field)
        names = ["team/a", "team/b", "team/a/x", "ten", "team", "*"]
        yield f"channels.{field}", frozenset(one for one in names if is_granted(granted, one))
    scope_fields = ("agent_def_scopes", "volume_def_scopes", "schedule_def_scopes")
    for field in (*scope_fields, "a2a_agent_def_scopes", "a2a_server_card_def_scopes"):
        words = set(getattr(agent, field))
        lines = {f"named:{name}"} if "self" in words else set()
        lines |= words - {"self"}
        if "any" in words:
            lines |= {"named:weak", "named:puppet", "descendants", f"named:{name}"}
        yield field, frozenset(lines)
    yield "volumes", frozenset(agent.volumes or ("default",))
    for field in ("unbounded_iterations", "internal", "inherit_core_blocks"):
        yield field, frozenset({True} if getattr(agent, field) else ())
    yield "memory_backend", frozenset({agent.memory_backend})
    yield "search_providers", frozenset(agent.search_providers or ("the operator's",))
    yield "memory_consolidation", frozenset({True} if may_consolidate(agent.memory_consolidation) else ())
    asking = interruption_access(agent)
    yield "interruption", frozenset(range(asking.max_pending // 10 + 1) if asking.enabled else ())
    allows = parse_patterns(agent.skills).allows
    yield "skills", frozenset(name for name in ("pdf", "team/a", "team/b", "team/a/b", "other") if allows(name))
    yield "model", frozenset({agent.model})
    yield "compaction.model", frozenset({agent.compaction.model} - {"", None} if agent.compaction else ())
    yield (
        "core_blocks",
        frozenset(
            (scope, "core") for scope in {*agent.memory_scopes, *(one.scope or "agent" for one in agent.core_blocks)}
        ),
    )


def limits(agent: AgentBlock) -> Mapping[str, float]:
    """Return the limits of an agent as numbers, the larger the wider."""
    endless = float("inf")
    absent = {
        "max_tokens": endless,
        "run_timeout_seconds": endless,
        "max_concurrent_children": 4,
        "memory_quota_bytes": endless,
        "sql_quota_bytes": endless,
        "memory_inject_max_tokens": 1024,
        "memory_index_max_bytes": 24_576,
    }
    turns = endless if agent.unbounded_iterations else agent.max_iterations or MAX_ITERATIONS_DEFAULT
    return {
        **{field: getattr(agent, field) or number for field, number in absent.items()},
        "max_iterations": turns,
        "retry_attempts": endless if agent.retry_attempts is None else agent.retry_attempts,
        "effort": ["low", "medium", "high"].index(agent.effort or "high"),
        "unknown_outcome": ["fail", "ask", "tell"].index(agent.unknown_outcome),
    }


EVERYTHING: Content = {
    "tools": ["*"],
    "memory_scopes": ["agent", "user", "tenant"],
    "sql_scopes": ["agent", "user", "run", "tenant"],
    "history_scope": ["user", "any"],
    "evaluation_scopes": ["submit_any", "read_any"],
    **{field: ["any", "promote"] for field in FIELDS if field.endswith("_def_scopes")},
    "channels": {field: ["team/*", "ten", "*", "team/../ten"] for field in ("publish", "subscribe")},
    "volumes": ["default", "vol", "secretvol"],
    "unbounded_iterations": True,
    **dict.fromkeys(("max_concurrent_children", "memory_inject_max_tokens", "memory_index_max_bytes"), 30000),
    "internal": True,
    "inherit_core_blocks": True,
    "memory_consolidation": True,
    "compaction": {"model": "dear"},
    "interruption": {"enabled": True, "max_pending": 30_000},
}
OVERLAYS = st.fixed_dictionaries({}, optional=dict(FIELDS))
ONE_FIELD = st.one_of(
    [
        st.tuples(st.fixed_dictionaries({}, optional={field: values}), st.fixed_dictionaries({field: values}))
        for field, values in FIELDS.items()
    ]
)
"""What is held of a field, and what is asked of it: few pairs of whole definitions are taken."""
BOTH, AUTHOR_ONLY, ORIGIN_ONLY = "both", "author", "origin"
BOUND_BY = st.sampled_from([BOTH, AUTHOR_ONLY, ORIGIN_ONLY])
SEED: Content = {
    "memory_scopes": ["user", "agent", "tenant"],
    "sql_scopes": ["agent", "tenant"],
    "channels": {"publish": [], "subscribe": ["ten"]},
    "agent_def_scopes": ["any"],
    "unbounded_iterations": True,
    "volumes": ["vol", "secretvol"],
}


def examples_of_attacks(test: Any) -> Any:
    """Add each field of a version with which an agent gave itself more."""
    for field, value in SEED.items():
        for bound_by in (BOTH, AUTHOR_ONLY, ORIGIN_ONLY):
            test = example(pair=(dict(WEAK), {field: value}), bound_by=bound_by)(test)
    return test


@settings(max_examples=1200, deadline=None)
@given(pair=st.one_of(ONE_FIELD, st.tuples(OVERLAYS, OVERLAYS)), bound_by=BOUND_BY)
@examples_of_attacks
def test_whatever_is_taken_can_do_no_more_than_author_and_origin(
    pair: tuple[dict[str, Any], dict[str, Any]], bound_by: str
) -> None:
    held, overlay = pair
    try:
        narrow = block(held, {"model": "m"})
        version = block(overlay, AGENT.compose("weak", {"model": "m"} | held))
    except DefinitionProblem:
        return  # refused before anything is compared
    wide = block({**EVERYTHING, "memory_backend": narrow.memory_backend}, {"model": "m"})
    author = wide if bound_by == ORIGIN_ONLY else narrow
    origin = wide if bound_by == AUTHOR_ONLY else narrow
    if exceeding(AgentBlock, "weak", version, Abilities(agent="weak", block=author), origin):
        return
    for whose in (author, origin):
        for (field, made), (_, had) in zip(effective(version, "weak"), effective(whose, "weak"), strict=True):
            assert made <= had, field
        had_limits = limits(whose)
        for field, limit in limits(version).items():
            assert limit <= had_limits[field], field


@settings(max_examples=150, deadline=None)
@given(overlay=OVERLAYS)
def test_an_agent_has_no_more_than_itself(overlay: dict[str, Any]) -> None:
    try:
        same = block(overlay, {"model": "m"})
    except DefinitionProblem:
        return
    assert exceeding(AgentBlock, "weak", same, Abilities(agent="weak", block=same), same) == ()
