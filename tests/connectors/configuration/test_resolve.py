from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from loomlog.connectors.configuration.agent_block import InterruptionAccess
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.resolve import (
    GRANTED_FIELDS,
    ResolvedAgent,
    UnresolvedAgent,
    build_hashed_definition,
    canonical_json,
    resolve_agent,
)
from loomlog.connectors.protocols import VolumeBinding
from loomlog.schemas.generated.values import AgentGrants, Compaction, Sampling
from tests.connectors.configuration.conftest import Folder

ALL = frozenset({"anthropic", "openai", "mock", "mock-stable", "deepseek"})

TEXT = """\
models:
  quick: {provider: mock, model: mock-generic, effort: low}
  newest: {provider: anthropic, model_pattern: "claude-*"}
providers: {later: {driver: anthropic_oauth_dev}}
provider_priority: [anthropic, openai, mock]
tiers:
  low: [{provider: mock, model: library}]
  middle:
    - {provider: mock, model: fallback}
    - {provider: openai, model: o-1, effort: high}
    - {provider: openai, model: o-2}
    - {provider: anthropic, model: a-1}
user_tiers:
  default: {retry_attempts: 1}
  gold:
    provider_priority: [openai, anthropic]
    tiers: {low: [{provider: anthropic, model: gold-a}, {provider: openai, model: gold-o}]}
    fallback_on_error: true
    max_fallback_attempts: 2
    retry_attempts: 9
    rate_limit_cooldown_ms: 5
volumes:
  source: {path: /src, default: true}
  out: {path: /out, mode: rw}
agents:
  pinned: {provider: openai, model: o-9}
  without-driver: {provider: later, model: g}
  aliased: {model: quick, effort: high}
  pattern: {model: newest}
  tiered: {tier: middle, effort: low}
  low: {tier: low}
  narrow: {tier: middle, providers: [mock, openai]}
  outside: {tier: low, providers: [mock]}
  own: {tier: low, models: {low: [{provider: mock, model: own-1}, {model: quick}]}}
  full:
    provider: mock
    model: m
    description: all of it
    system_prompt: Do.
    tools: [Read, Write, Read]
    volumes: [out, source]
    max_tokens: 5
    max_iterations: 6
    unbounded_iterations: true
    run_timeout_seconds: 7
    retry_attempts: 9
    sampling: {temperature: 0.25, seed: 4, stop: [x]}
    interruption: {enabled: true, max_pending: 2}
    max_concurrent_children: 3
  quiet: {provider: mock, model: m, disable_context: true, volumes: [out], retry_attempts: 0, tools: [Interruption]}
pricing: {models: {openai/o-1: {input: 1, output: 2}}}
"""


@pytest.fixture
def configuration(folder: Folder) -> Configuration:
    return folder.load(TEXT).configuration


def resolved(
    configuration: Configuration,
    name: str,
    user_tier: str = "",
    usable: Collection[str] = ALL,
    listings: Mapping[str, Sequence[str]] | None = None,
) -> ResolvedAgent:
    agent = resolve_agent(configuration, name, user_tier=user_tier, usable=usable, listings=listings)
    assert isinstance(agent, ResolvedAgent), agent
    return agent


def unresolved(
    configuration: Configuration,
    name: str,
    user_tier: str = "",
    usable: Collection[str] = ALL,
    listings: Mapping[str, Sequence[str]] | None = None,
) -> UnresolvedAgent:
    agent = resolve_agent(configuration, name, user_tier=user_tier, usable=usable, listings=listings)
    assert isinstance(agent, UnresolvedAgent), agent
    return agent


def model(agent: ResolvedAgent) -> str:
    return f"{agent.provider}/{agent.model}"


def test_a_pin_is_taken_as_it_is(configuration: Configuration):
    agent = resolved(configuration, "pinned")
    assert (model(agent), agent.fallbacks) == ("openai/o-9", ())


def test_an_alias_brings_its_model_and_its_effort(configuration: Configuration):
    agent = resolved(configuration, "aliased")
    assert (model(agent), agent.effort) == ("mock/mock-generic", "low")


def test_a_pattern_needs_the_list_of_the_provider(configuration: Configuration):
    agent = resolved(configuration, "pattern", listings={"anthropic": ["claude-3-5", "claude-4-1", "other-9"]})
    assert model(agent) == "anthropic/claude-4-1"
    unknown = unresolved(configuration, "pattern")
    assert unknown.reason_code == "pin_unavailable"
    assert "anthropic/claude-* cannot be looked up: it is not known which models anthropic lists" in unknown.message
    missing = unresolved(configuration, "pattern", listings={"anthropic": ["other-9"]})
    assert missing.reason_code == "pin_unavailable"
    assert "anthropic/claude-* matches no single model that anthropic lists" in missing.message


def test_a_tier_goes_provider_by_provider_and_candidate_by_candidate(configuration: Configuration):
    agent = resolved(configuration, "tiered")
    assert (model(agent), agent.effort) == ("anthropic/a-1", "low")
    assert [(f.provider, f.model, f.effort) for f in agent.fallbacks] == [
        ("openai", "o-1", "high"),
        ("openai", "o-2", "low"),
        ("mock", "fallback", "low"),
    ]
    assert (agent.price, agent.currency) == (None, "USD")
    assert agent.fallbacks[0].price is not None
    assert agent.fallbacks[0].price.input == 1_000_000


def test_a_provider_that_is_not_usable_is_passed_over(configuration: Configuration):
    assert model(resolved(configuration, "tiered", usable={"mock", "openai"})) == "openai/o-1"
    assert model(resolved(configuration, "tiered", usable={"mock"})) == "mock/fallback"
    nothing = unresolved(configuration, "tiered", usable=())
    assert nothing.reason_code == "tier_unavailable"
    assert "anthropic/a-1 is not usable (needs ANTHROPIC_API_KEY)" in nothing.message


def test_a_pin_on_an_unusable_provider_says_what_it_needs(configuration: Configuration):
    agent = unresolved(configuration, "pinned", usable={"mock"})
    assert agent.reason_code == "pin_unavailable"
    assert "needs OPENAI_API_KEY" in agent.message
    agent = unresolved(configuration, "without-driver")
    assert "later/g is not usable (its driver anthropic_oauth_dev is not in this version)" in agent.message


def test_a_user_tier_brings_its_models_its_order_and_its_patience(configuration: Configuration):
    agent = resolved(configuration, "low", "gold")
    assert model(agent) == "openai/gold-o"
    assert (agent.user_tier, agent.fallback_on_error, agent.max_fallback_attempts) == ("gold", True, 2)
    assert (agent.retry_attempts, agent.rate_limit_cooldown_ms) == (5, 1000)


def test_an_unknown_user_tier_is_refused_with_the_known_ones(configuration: Configuration):
    refusal = unresolved(configuration, "low", "platinum")
    assert refusal.reason_code == "invalid_argument"
    assert refusal.message == "unknown user_tier platinum; user tiers: default, gold"


def test_no_user_tier_is_the_default_one(configuration: Configuration):
    agent = resolved(configuration, "low", "")
    assert (model(agent), agent.user_tier, agent.retry_attempts) == ("mock/library", "default", 1)
    assert (agent.fallback_on_error, agent.max_fallback_attempts, agent.rate_limit_cooldown_ms) == (False, 3, 30_000)


def test_the_providers_of_an_agent_keep_its_order_within_the_user_tier(configuration: Configuration):
    assert model(resolved(configuration, "narrow")) == "mock/fallback"
    assert model(resolved(configuration, "narrow", "gold")) == "openai/o-1"
    assert unresolved(configuration, "outside", "gold").reason_code == "tier_agent_not_available"


def test_the_models_of_an_agent_come_before_those_of_the_plan(configuration: Configuration):
    agent = resolved(configuration, "own")
    assert model(agent) == "mock/own-1"
    assert [(f.model, f.effort) for f in agent.fallbacks] == [("mock-generic", "low")]


def test_an_unknown_agent_is_named_with_the_nearest(configuration: Configuration):
    agent = unresolved(configuration, "pined")
    assert isinstance(agent, UnresolvedAgent)
    assert agent.reason_code == "unknown_agent"
    assert agent.message.startswith("unknown agent pined; did you mean pinned?; agents: ")
    assert "own" in agent.message


def test_everything_the_agent_says_arrives(configuration: Configuration):
    agent = resolved(configuration, "full")
    assert agent.tools == ("Read", "Write", "Context")
    assert agent.volumes == (
        VolumeBinding(name="out", path="/out", mode="rw", is_default=False),
        VolumeBinding(name="source", path="/src", mode="ro", is_default=True),
    )
    assert agent.sampling == Sampling(temperature=0.25, seed=4, stop=("x",))
    assert (agent.max_tokens, agent.max_iterations, agent.unbounded_iterations) == (5, 6, True)
    assert (agent.run_timeout_s, agent.retry_attempts, agent.max_concurrent_children) == (7, 5, 3)
    assert (agent.interruption.enabled, agent.interruption.max_pending) == (True, 2)
    assert (agent.description, agent.system_prompt) == ("all of it", "Do.")


def test_what_an_agent_does_not_say_is_little(configuration: Configuration):
    agent = resolved(configuration, "quiet")
    assert agent.tools == ("Interruption",)
    assert agent.interruption.enabled
    assert agent.volumes == (VolumeBinding(name="out", path="/out", mode="rw", is_default=True),)
    assert (agent.retry_attempts, agent.sampling, agent.max_iterations) == (0, None, 0)
    assert not resolved(configuration, "pinned").interruption.enabled


MEMORY_GRANTS: dict[str, Any] = {
    "memory_scopes": ("agent", "tenant"),
    "sql_scopes": ("run",),
    "memory_quota_bytes": 7,
    "sql_quota_bytes": 8,
    "memory_backend": "team",
    "memory_consolidation": True,
    "core_blocks": [
        {"label": "persona", "scope": "user", "limit_bytes": 9, "read_only": True},
        {"label": "notes", "scope": "agent", "limit_bytes": 0, "read_only": False},
    ],
    "inherit_core_blocks": True,
    "memory_inject_max_tokens": 10,
    "memory_protocol": True,
    "memory_index_max_bytes": 11,
    "memory_roots": "force",
}
OTHER_VALUES: dict[type, Any] = {bool: False, int: 12, str: "other", list: [], tuple: ("other",)}


def test_every_grant_of_an_agent_arrives_and_is_part_of_its_hash(folder: Folder):
    others = [name for name in GRANTED_FIELDS if name not in MEMORY_GRANTS]
    values = dict.fromkeys(others, ("any",)) | MEMORY_GRANTS
    assert values.keys() | {"channels_publish", "channels_subscribe"} == set(AgentGrants.__struct_fields__)
    lines = "".join(f"    {name}: {orjson.dumps(value).decode()}\n" for name, value in values.items())
    configuration = folder.load(
        "memory_backends: {team: {kind: inprocess}}\n"
        "agents:\n  plain: {provider: mock, model: m}\n  granted:\n    provider: mock\n    model: m\n"
        f"{lines}    channels: {{publish: [out], subscribe: [in]}}\n"
    ).configuration
    granted = resolved(configuration, "granted")
    assert granted.grants is not None
    plain = granted.grants.to_avro()
    assert {name: plain[name] for name in values} == values
    assert (granted.grants.channels_publish, granted.grants.channels_subscribe) == (("out",), ("in",))
    assert resolved(configuration, "plain").grants is None
    for name, value in plain.items():
        changed = structs.replace(granted.grants, **{name: OTHER_VALUES[type(value)]})
        assert build_hashed_definition(replace(granted, grants=changed)) != build_hashed_definition(granted), name


def test_grants_that_say_the_default_are_no_grants(folder: Folder):
    unset = "memory_scopes: [], memory_quota_bytes: 0, memory_inject_max_tokens: 0, memory_index_max_bytes: 0"
    configuration = folder.load(
        f"""
agents:
  plain: {{provider: mock, model: m}}
  unset: {{provider: mock, model: m, {unset}, memory_consolidation: false, core_blocks: []}}
  default: {{provider: mock, model: m, memory_inject_max_tokens: 1024, memory_index_max_bytes: 24576}}
  skilled: {{provider: mock, model: m, skills: [pdf]}}
"""
    ).configuration
    plain = resolved(configuration, "plain")
    for name in ("unset", "default"):
        agent = resolved(configuration, name)
        assert agent.grants is None
        assert build_hashed_definition(agent) == {**build_hashed_definition(plain), "name": name}
    skilled = resolved(configuration, "skilled")
    assert build_hashed_definition(skilled)["skills"] == ("pdf",)
    assert not set(MEMORY_GRANTS) & set(build_hashed_definition(skilled))


@pytest.mark.parametrize(
    ("value", "may"), [("true", True), ("off", False), ("{}", True), ("{enabled: no}", False), ("{enabled: yes}", True)]
)
def test_who_may_consolidate(folder: Folder, value: str, may: bool):
    text = f"agents: {{a: {{provider: mock, model: m, memory_consolidation: {value}, skills: [x]}}}}"
    grants = resolved(folder.load(text).configuration, "a").grants
    assert grants is not None
    assert grants.memory_consolidation is may


def test_fields_that_an_author_left_out_have_the_values_of_the_reference(folder: Folder):
    agents = """\
agents:
  plain: {provider: mock, model: m}
  partly:
    provider: mock
    model: m
    tools: [Interruption]
    max_concurrent_children: 0
    compaction: {keep_first: false}
    interruption: {max_pending: 3}
  silent: {provider: mock, model: m, tools: [Interruption], interruption: {enabled: false}}
"""
    configuration = folder.load(agents).configuration
    partly = resolved(configuration, "partly")
    assert (resolved(configuration, "plain").max_concurrent_children, partly.max_concurrent_children) == (4, 4)
    assert resolved(configuration, "plain").compaction is None
    assert partly.compaction == Compaction(
        enabled=False,
        target_percentage=10,
        keep_last_n=4,
        keep_first=False,
        autocompact_at_pct=80,
        memory_flush=False,
    )
    assert partly.interruption == InterruptionAccess(enabled=True, kinds=("question",), max_pending=3)
    assert not resolved(configuration, "silent").interruption.enabled


def test_the_hash_is_the_same_for_the_same_promise_and_another_for_each_change(configuration: Configuration):
    agent = resolved(configuration, "full")
    assert len(agent.definition_sha256) == 64
    assert resolved(configuration, "full").definition_sha256 == agent.definition_sha256
    for name in build_hashed_definition(agent):
        changed = {"tools": (), "volumes": (), "sampling": None, "interruption": InterruptionAccess()}.get(name, "x")
        other = replace(agent, **{name: changed})  # type: ignore[arg-type]  # any other value will do
        assert canonical_json(build_hashed_definition(other)) != canonical_json(build_hashed_definition(agent)), name


def test_the_hash_leaves_out_where_this_process_keeps_things(folder: Folder, configuration: Configuration):
    moved = folder.load(TEXT.replace("/out", "/elsewhere")).configuration
    assert resolved(moved, "full").definition_sha256 == resolved(configuration, "full").definition_sha256


def test_two_agents_have_two_hashes(configuration: Configuration):
    names = [name for name in configuration.agents if name not in ("pattern", "without-driver")]
    assert len({resolved(configuration, name).definition_sha256 for name in names}) == len(names)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=4))
def test_the_canonical_form_does_not_depend_on_the_order_of_keys(value: dict[str, object]):
    backwards = dict(reversed(value.items()))
    assert canonical_json(value) == canonical_json(backwards)


def test_the_canonical_form_refuses_what_has_no_form():
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"x": float("nan")})
    assert canonical_json({"b": "ä", "a": [1.0, None]}) == '{"a":[1.0,null],"b":"ä"}'.encode()


# --- models that cannot be called just now ---------------------------------------------------------------------------


def down(*names: str):
    return lambda provider, model: "it is stalled" if f"{provider}/{model}" in names else ""


def test_a_tier_passes_over_what_cannot_be_called_and_keeps_it_for_later(configuration: Configuration):
    agent = resolve_agent(configuration, "tiered", usable=ALL, unavailable_reason=down("anthropic/a-1", "openai/o-1"))
    assert isinstance(agent, ResolvedAgent)
    assert model(agent) == "openai/o-2"
    assert [f"{other.provider}/{other.model}" for other in agent.fallbacks] == [
        "anthropic/a-1",
        "openai/o-1",
        "mock/fallback",
    ]


def test_a_model_that_is_pinned_by_name_is_not_asked_about(configuration: Configuration):
    agent = resolve_agent(configuration, "pinned", usable=ALL, unavailable_reason=down("openai/o-9"))
    assert isinstance(agent, ResolvedAgent)
    assert model(agent) == "openai/o-9"


def test_a_pattern_that_is_pinned_is_unavailable_while_its_pick_is(configuration: Configuration):
    agent = resolve_agent(
        configuration,
        "pattern",
        usable=ALL,
        listings={"anthropic": ["claude-1"]},
        unavailable_reason=down("anthropic/claude-1"),
    )
    assert isinstance(agent, UnresolvedAgent)
    assert (agent.reason_code, "it is stalled" in agent.message) == ("pin_unavailable", True)


def test_a_tier_of_which_nothing_can_be_called_says_what_is_wrong_with_each(configuration: Configuration):
    agent = resolve_agent(configuration, "low", usable=ALL, unavailable_reason=down("mock/library"))
    assert isinstance(agent, UnresolvedAgent)
    assert agent.reason_code == "tier_unavailable"
    assert "mock/library: it is stalled" in agent.message
