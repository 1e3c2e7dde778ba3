import json
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.definitions import KINDS, DefinitionProblem, canonical_json
from tests.connectors.configuration.conftest import Folder, folder  # noqa: F401  # a fixture
from tests.connectors.definitions import examples

AGENT, SKILL = KINDS["agent"], KINDS["skill"]
CASES = [(kind, overlay) for kind, overlays in examples.OVERLAYS.items() for overlay in overlays]


def refused(kind: str, overlay: Any, parent: Mapping[str, Any] | None = None, name: str = "x") -> tuple[str, str]:
    with pytest.raises(DefinitionProblem) as caught:
        KINDS[kind].compose(name, overlay, parent)
    return caught.value.reason, caught.value.message


def test_the_examples_set_every_field_that_a_request_may_set():
    for name, kind in KINDS.items():
        known = {entry.name for entry in fields(kind.block)} - kind.server_set - kind.file_only.keys()
        assert {key for overlay in examples.OVERLAYS[name] for key in overlay} == known, name


@pytest.mark.parametrize(("kind", "overlay"), CASES)
def test_every_field_is_found_in_the_content_the_block_and_again_in_the_content(kind: str, overlay: dict[str, Any]):
    content = KINDS[kind].compose("x", overlay)
    derived = {"system_prompt_base"} if overlay is examples.TIERED else set()
    left_out = {"delivery"} if overlay is examples.WEBHOOK else set()
    assert content.keys() - derived == overlay.keys() - left_out
    assert json.loads(canonical_json(content)) == content
    block = KINDS[kind].block_of(content)
    assert KINDS[kind].content_of(block) == content
    for key, value in content.items():
        assert KINDS[kind].content_of(block)[key] == value


@pytest.mark.parametrize(("kind", "overlay"), CASES)
def test_composing_a_content_gives_the_content(kind: str, overlay: dict[str, Any]):
    content = KINDS[kind].compose("x", overlay)
    assert KINDS[kind].compose("x", content) == content
    assert KINDS[kind].compose("x", {}, content) == content
    assert KINDS[kind].compose("x", content, content) == content
    assert KINDS[kind].same("x", content, KINDS[kind].compose("x", dict(reversed(content.items()))))


@pytest.mark.parametrize(("kind", "overlay"), CASES)
def test_every_field_makes_another_definition(kind: str, overlay: dict[str, Any]):
    content = KINDS[kind].compose("x", overlay)
    for key in content:
        without = {name: value for name, value in content.items() if name != key}
        if key not in ("entry", "states"):
            assert not KINDS[kind].same("x", content, without), key
    assert not KINDS[kind].has_verify or KINDS[kind].hash("x", content) != KINDS[kind].hash("y", content)


def test_a_file_and_an_overlay_with_the_same_keys_are_the_same_definition(folder: Folder):  # noqa: F811
    overlays: dict[str, tuple[str, dict[str, Any]]] = {
        "team/full": ("agent", {key: value for key, value in examples.AGENT.items() if key != "code_body"}),
        "script": ("agent", {"provider": "code-js", "model": "m", "code_body": examples.AGENT["code_body"]}),
        "tiered": ("agent", examples.TIERED),
        "tax": ("skill", examples.SKILL),
    }
    agents = {name: overlay for name, (kind, overlay) in overlays.items() if kind == "agent"}
    around = {
        "tiers": {"middle": [{"provider": "mock", "model": "m"}]},
        "provider_priority": ["mock"],
        "volumes": {"work": {"path": "/w"}},
        "memory_backends": {"m": {"kind": "inprocess"}},
    }
    text = json.dumps({"agents": agents, "skills": {"tax": examples.SKILL}, **around})
    configuration = folder.load(text).configuration
    blocks: dict[str, Any] = {**configuration.agents, **configuration.skills}
    for name, (kind_name, overlay) in overlays.items():
        kind, block = KINDS[kind_name], blocks[name]
        content = kind.compose(name, overlay)
        assert kind.content_of(block) == content
        assert kind.hash(name, kind.content_of(block)) == kind.hash(name, content)
        assert kind.block_of(kind.content_of(block)) == kind.block_of(content)
        for entry in fields(kind.block):
            if entry.name not in ("system_prompt_base", *kind.file_only):
                assert getattr(block, entry.name) == getattr(kind.block_of(content), entry.name), entry.name


def test_the_content_of_a_file_leaves_out_what_only_files_have():
    block = AgentBlock(system_prompt_file="p.md", system_prompt="s", code="c", code_body="x", skill_def_scopes=("any",))
    assert AGENT.content_of(block) == {"system_prompt": "s", "system_prompt_base": "s", "code_body": "x"}
    assert AGENT.content_of(AgentBlock()) == {}
    assert SKILL.content_of(SkillBlock(body="b")) == {"body": "b"}


def test_values_that_are_the_defaults_are_left_out():
    overlay = {
        "unbounded_iterations": False,
        "max_tokens": 0,
        "tools": [],
        "model": "",
        "sampling": {},
        "channels": {"publish": []},
        "effort": None,
        "interruption": {"kinds": []},
    }
    assert AGENT.compose("x", overlay) == {}
    assert AGENT.compose("x", {"interruption": {"enabled": False}, "retry_attempts": 0}) == {
        "interruption": {"enabled": False},
        "retry_attempts": 0,
    }


def test_an_overlay_changes_its_parent():
    parent = AGENT.compose("x", examples.AGENT)
    overlay = {
        "unbounded_iterations": False,
        "tools": [],
        "max_tokens": 0,
        "description": None,
        "sampling": {"temperature": 1, "stop": [], "seed": None},
        "compaction": {"keep_first": False},
        "models": {"low": [{"model": "z"}]},
        "channels": {"publish": ["c"]},
        "interruption": {"max_pending": 2},
    }
    content = AGENT.compose("x", overlay, parent)
    assert not {"unbounded_iterations", "tools", "max_tokens"} & content.keys()
    assert content["description"] == parent["description"]
    assert content["sampling"] == {
        **{key: value for key, value in parent["sampling"].items() if key != "stop"},
        "temperature": 1.0,
    }
    assert content["compaction"] == {**parent["compaction"], "keep_first": False}
    assert content["models"] == {"low": [{"model": "z"}]}
    assert content["channels"] == {"publish": ["c"]}
    assert content["interruption"] == {"max_pending": 2}
    assert parent == AGENT.compose("x", examples.AGENT)


def test_empty_channels_keep_those_of_the_parent_and_an_empty_list_takes_them_away():
    parent = AGENT.compose("x", {"channels": {"publish": ["a"]}})
    assert AGENT.compose("x", {"channels": {}}, parent) == parent
    assert AGENT.compose("x", {"channels": {"publish": []}}, parent) == {}


def test_a_new_prompt_is_its_own_base_unless_the_author_gives_one():
    parent = AGENT.compose("x", {"system_prompt": "one", "system_prompt_base": "base"})
    assert parent["system_prompt_base"] == "base"
    assert AGENT.compose("x", {"system_prompt": "two"}, parent)["system_prompt_base"] == "two"
    assert AGENT.compose("x", {"max_tokens": 1}, parent)["system_prompt_base"] == "base"
    assert AGENT.compose("x", {"system_prompt_base": "b"}, parent)["system_prompt"] == "one"


def test_one_way_to_choose_a_model_replaces_the_other():
    pinned, tiered = {"provider": "mock", "model": "m"}, {"tier": "low"}
    assert AGENT.compose("x", tiered, pinned) == tiered
    assert AGENT.compose("x", {"model": "n"}, tiered) == {"model": "n"}
    assert AGENT.compose("x", {"model": "n"}, pinned) == {"provider": "mock", "model": "n"}
    assert refused("agent", {**tiered, **pinned})[0] == "invalid_definition"
    times = {"agent": "a", "schedule": "@daily"}
    assert KINDS["schedule"].compose("x", {"user_tier_schedules": {"a": "@hourly"}}, times) == {
        "agent": "a",
        "user_tier_schedules": {"a": "@hourly"},
    }


@pytest.mark.parametrize(
    ("kind", "overlay", "reason", "message"),
    [
        ("agent", {"sytem_prompt": "x"}, "unknown_field", 'unknown field "sytem_prompt" in overlay; did you mean sys'),
        ("agent", {"sampling": {"temprature": 1}}, "unknown_field", "in overlay.sampling; did you mean temperature?"),
        ("agent", {"core_blocks": [{"label": "a", "zzz": 1}]}, "unknown_field", "in overlay.core_blocks[0]; known are"),
        ("agent", {"core_blocks": [{"label": "a b"}]}, "invalid_definition", "core_blocks[0].label: expected 1 to 64"),
        (
            "agent",
            {"core_blocks": [{"label": "a"}, {"label": "b"}, {"label": "a", "scope": "user"}]},
            "invalid_definition",
            "core_blocks[2].label: an earlier block has this label already",
        ),
        ("agent", {"memory_scopes": ["run"]}, "invalid_definition", "memory_scopes[0]: expected 'agent', 'user' or"),
        ("agent", {"sql_scopes": ["galaxy"]}, "invalid_definition", "sql_scopes[0]: expected 'agent', 'user', 'run'"),
        ("agent", {"sql_quota_bytes": 2**50}, "invalid_definition", "sql_quota_bytes: expected less than or equal to"),
        ("agent", {"memory_protocol": "please"}, "invalid_definition", "memory_protocol: expected true or false"),
        ("agent", {"models": {"low": [{"modl": "m"}]}}, "unknown_field", "in overlay.models.low[0]; did you mean mod"),
        ("agent", {"expires_at": "x"}, "unknown_field", "overlay.expires_at belongs beside overlay"),
        ("agent", {"name": "x"}, "unknown_field", "overlay.name belongs beside overlay"),
        ("agent", {"system_prompt_file": "x"}, "unknown_field", "give the text as system_prompt"),
        ("agent", {"code": "x"}, "unknown_field", "give the script as code_body"),
        ("agent", {"skill_def_scopes": []}, "unknown_field", "the patterns in skills decide"),
        ("agent", {"max_tokens": "5"}, "invalid_definition", "max_tokens: expected a whole number"),
        ("agent", {"max_tokens": True}, "invalid_definition", "max_tokens: expected a whole number"),
        ("agent", {"max_tokens": -1}, "invalid_definition", "max_tokens: expected greater than or equal to 0"),
        ("agent", {"tools": [1]}, "invalid_definition", "tools[0]: expected text"),
        ("agent", {"tools": ["a*b"]}, "invalid_definition", "tools[0]: expected the name of a tool"),
        ("agent", {"tools": [" "]}, "invalid_definition", "tools[0]: expected the name of a tool"),
        ("agent", {"sampling": {"temperature": 3}}, "invalid_definition", "sampling.temperature: expected less than"),
        ("agent", {"sampling": 3}, "invalid_definition", "sampling: expected a mapping"),
        ("agent", {"sampling": {"stop": ["x"] * 9}}, "too_many", "sampling.stop: expected at most 8 items"),
        ("agent", {"core_blocks": [{}]}, "missing_field", "missing required field: core_blocks[0].label"),
        ("agent", {"effort": "hi"}, "invalid_definition", "effort: expected 'low', 'medium' or 'high'"),
        ("agent", {"description": "ä" * 4097}, "too_large", "description has 8194 bytes; at most 8192 are taken"),
        ("agent", {"code_body": "x" * 262_145}, "too_large", "code_body has 262145 bytes"),
        ("agent", {"system_prompt": "x" * 131_073}, "too_large", "the definition has 131093 bytes"),
        ("agent", {"skills": ["x" * 131_072]}, "too_large", "the definition has 131087 bytes; at most 131072"),
        ("agent", {"system_prompt": "\ud800"}, "invalid_definition", "system_prompt: expected text without U+0000"),
        ("agent", {"system_prompt": "a\0"}, "invalid_definition", "system_prompt: expected text without U+0000"),
        ("agent", {"\udfff": 1}, "invalid_definition", "expected text without U+0000"),
        ("agent", {"sampling": {"temperature": float("nan")}}, "invalid_definition", "expected a finite number"),
        (
            "agent",
            {"max_tokens": 2**63},
            "invalid_definition",
            "max_tokens: expected a whole number of at most 64 bits",
        ),
        ("agent", [], "invalid_definition", "overlay: expected an object"),
        ("agent", None, "invalid_definition", "overlay: expected an object"),
    ],
)
def test_a_mistake_is_refused_with_its_place(kind: str, overlay: Any, reason: str, message: str):
    found_reason, found_message = refused(kind, overlay)
    assert (found_reason, message in found_message) == (reason, True), found_message


def test_several_mistakes_are_told_at_once_and_values_are_not_repeated():
    reason, message = refused("agent", {f"secret{number}": "hunter2" for number in range(7)})
    assert reason == "unknown_field"
    assert message.count("unknown field") == 5
    assert message.endswith("; and more")
    _, message = refused("agent", {"max_tokens": "hunter2", "effort": "hunter2"})
    assert message.count(";") == 1
    assert "hunter2" not in message


@pytest.mark.parametrize(
    "name", ["", "../x", "a/../b", "/a", "a/", "a//b", "a b", "a*", "ä", "x" * 129, "a\n", ".", "a\ud800"]
)
def test_a_name_that_could_be_mistaken_is_refused(name: str):
    assert refused("skill", {"body": "b"}, name=name)[0] == "bad_name"


@pytest.mark.parametrize(
    ("kind", "overlay"),
    [
        ("agent", {f"key{number}": 1 for number in range(50_000)}),
        ("agent", {f"k{number}": 1 for number in range(11_000)}),
        ("agent", {"tools": [1] * 65_000}),
        ("agent", {"x" * 1_000_000: 1}),
        ("agent", {"tools": [1] * 100_000}),
        ("team", {"entry": "a", "states": [{"state": "a", "handler": {"kind": "terminal"}}] * 20_000}),
        ("team", {"entry": "0", "states": [{"state": str(n), "handler": {"kind": "terminal"}} for n in range(2_500)]}),
    ],
)
def test_a_huge_overlay_is_refused_soon_and_in_few_words(kind: str, overlay: dict[str, Any]):
    begun = time.process_time()
    assert len(refused(kind, overlay)[1]) < 10_000
    assert time.process_time() - begun < 30


def test_a_prompt_of_the_largest_size_is_taken_though_its_base_repeats_it():
    content = AGENT.compose("x", {"system_prompt": "x" * 131_000, "code_body": "y" * 262_144})
    assert len(content["system_prompt_base"]) == 131_000


def nest(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_deep_json_is_refused():
    deep = {"agent": "a", "schedule": "@daily", "metadata": {"x": nest(29)}}
    assert KINDS["schedule"].compose("x", deep)["metadata"] == {"x": nest(29)}
    for levels in (31, 100, 5_000):
        reason, message = refused("schedule", {**deep, "metadata": {"x": nest(levels)}})
        assert (reason, "at most 32 levels" in message, len(message) < 400) == ("invalid_definition", True, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    data=st.data(),
)
def test_any_json_is_a_definition_or_a_refusal(kind: str, data: st.DataObject):
    base = dict(data.draw(st.sampled_from(examples.OVERLAYS[kind])))
    known = [entry.name for entry in fields(KINDS[kind].block)]
    changes = data.draw(st.dictionaries(st.sampled_from(known) | st.text(max_size=8), JSON, max_size=3))
    try:
        content = KINDS[kind].compose("x", {**base, **changes})
    except DefinitionProblem as problem:
        problem.message.encode()
    else:
        assert KINDS[kind].compose("x", content) == content
        assert KINDS[kind].content_of(KINDS[kind].block_of(content)) == content
        assert KINDS[kind].hash("x", json.loads(canonical_json(content))) == KINDS[kind].hash("x", content)
