"""Hashes that Go's encoding/json and SHA-256 gave for the same values, in structs with the fields of the reference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.definitions import KINDS, go_json
from tests.connectors.definitions import examples

NAME = "team/one"
END = {"entry": "end", "states": [{"state": "end", "handler": {"kind": "terminal"}}]}
VECTORS: list[tuple[str, dict[str, Any], str]] = [
    ("agent", examples.AGENT, "8b85c62192e8bae7fee4853ece425956c73dca855ad3bb6b1a46c02ee9658656"),
    ("mcpserver", examples.MCP_SERVER, "ca2a9e2cf8e12ef8ec9d2b0ee9736df2963ab462033dee15b949237442f6ffe6"),
    ("team", examples.TEAM, "0598790daafa59a6ae02dffb4276dc27e9d0747abcdb8f41856e51ab54a46905"),
    ("team", END, "2c94bd45c8acb8ef9c6277c30c50318cf6703d034a1fa28a642b2d019497e1ab"),
    (
        "skill",
        {key: value for key, value in examples.SKILL.items() if key != "files"},
        "610e17915c6caa6d8c3d601f83e1f06e147c60758b008fd303160900d9f44c75",
    ),
]


@pytest.mark.parametrize(("kind", "overlay", "expected"), VECTORS)
def test_hashes_are_those_of_the_reference(kind: str, overlay: dict[str, Any], expected: str):
    content = KINDS[kind].compose(NAME, overlay)
    assert KINDS[kind].hash(NAME, content) == f"sha256:{expected}"
    assert KINDS[kind].hash("other", content) != f"sha256:{expected}"


NOT_HASHED = {
    "a2a_agent_def_scopes",
    "a2a_server_card_def_scopes",
    "agent_def_scopes",
    "disable_context",
    "retry_attempts",
    "run_timeout_seconds",
    "schedule_def_scopes",
    "skills",
    "system_prompt_base",
    "unknown_outcome",
    "volume_def_scopes",
    "volumes",
}


def test_every_field_of_an_agent_changes_its_hash_or_is_known_not_to():
    agent = KINDS["agent"]
    for overlay in (examples.AGENT, examples.TIERED, examples.TYPED):
        content = agent.compose(NAME, overlay)
        for key in content:
            without = {name: value for name, value in content.items() if name != key}
            assert (agent.hash(NAME, content) == agent.hash(NAME, without)) == (key in NOT_HASHED), key


@pytest.mark.parametrize(("kind", "field"), [("agent", "system_prompt"), ("skill", "body")])
def test_line_ends_and_white_space_at_the_end_do_not_matter_in_texts_that_people_edit(kind: str, field: str):
    def hashed(text: str) -> str:
        return KINDS[kind].hash(NAME, {field: text})

    assert hashed("a\r\nb \t\r\n") == hashed("a\nb")
    assert len({hashed(text) for text in ("a\nb", "a\rb", "a\n\nb", " a\nb", "a\nb\u00a0")}) == 5


def test_white_space_matters_everywhere_else():
    for kind, field in (("agent", "code_body"), ("agent", "description"), ("mcpserver", "description")):
        content = {"transport": "http", "url": "https://x.example"} if kind == "mcpserver" else {}
        hashes = {KINDS[kind].hash(NAME, {**content, field: text}) for text in ("a", "a ", "a\n", "a\r\n")}
        assert len(hashes) == 4


def test_the_order_of_lists_matters_and_that_of_keys_does_not():
    agent = KINDS["agent"]
    assert agent.hash(NAME, {"tools": ["A", "B"]}) != agent.hash(NAME, {"tools": ["B", "A"]})
    assert agent.hash(NAME, {"sampling": {"seed": 1, "top_k": 2}}) == agent.hash(
        NAME, {"sampling": {"top_k": 2, "seed": 1}}
    )
    for kind in KINDS.values():
        content = kind.compose(NAME, examples.OVERLAYS[kind.name][0])
        assert kind.hash(NAME, turn(content)) == kind.hash(NAME, content)


def turn(value: Any) -> Any:
    """Return the value with the keys of all objects in reverse."""
    if isinstance(value, dict):
        return {key: turn(item) for key, item in reversed(value.items())}
    return [turn(item) for item in value] if isinstance(value, list) else value


def test_empty_objects_are_absent_and_a_zero_temperature_is_not():
    agent = KINDS["agent"]
    empty = agent.hash(NAME, {})
    assert agent.hash(NAME, agent.compose(NAME, {"sampling": {}, "compaction": {}, "interruption": {}})) == empty
    assert agent.hash(NAME, agent.compose(NAME, {"interruption": {"enabled": False}})) == empty
    assert agent.hash(NAME, agent.compose(NAME, {"sampling": {"temperature": 0}})) != empty
    assert agent.hash(NAME, agent.compose(NAME, {"compaction": {"enabled": False}})) != empty


def test_equal_hashes_are_not_enough_to_be_the_same():
    agent = KINDS["agent"]
    one, other = {"tools": ["Read"], "volumes": ["a"]}, {"tools": ["Read"], "volumes": ["b"]}
    assert agent.hash(NAME, one) == agent.hash(NAME, other)
    assert not agent.same(NAME, one, other)
    assert not agent.same(NAME, {}, {"interruption": {"enabled": False}})
    assert agent.same(NAME, {"system_prompt": "a"}, {"system_prompt": "a\n"})
    assert not agent.same(NAME, {"system_prompt": "a", "system_prompt_base": "a"}, {"system_prompt": "a"})
    team = KINDS["team"]
    colored = {**END, "colors": {"states": {"end": "pink"}}}
    assert team.hash(NAME, END) == team.hash(NAME, colored)
    assert not team.same(NAME, END, colored)


def test_files_of_a_skill_are_hashed():
    skill = KINDS["skill"]
    hashes = {skill.hash(NAME, {"body": "b", **more}) for more in ({}, {"files": {"a": "1"}}, {"files": {"a": "2"}})}
    assert len(hashes) == 3
    assert skill.hash(NAME, {"body": "b", "files": {"a": "1", "b": "2"}}) == skill.hash(
        NAME, {"body": "b", "files": {"b": "2", "a": "1"}}
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.7, "0.7"),
        (1e-6, "0.000001"),
        (9.99e-7, "9.99e-7"),
        (1e-7, "1e-7"),
        (2.5e-10, "2.5e-10"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (123456789.125, "123456789.125"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-0.25, "-0.25"),
        (-1e-7, "-1e-7"),
        (100.0, "100"),
        (1e100, "1e+100"),
        ("a\b\f\n\r\t\x01\x1f\x7f<>&\u2028\u2029\"\\/é😀", '"a\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u003c\\u003e\\u0026'
         '\\u2028\\u2029\\"\\\\/é😀"'),
        ({"b": [None, True, False], "a<": {}}, '{"b":[null,true,false],"a\\u003c":{}}'),
        ([], "[]"),
    ],
)  # fmt: skip
def test_values_are_written_as_go_writes_them(value: Any, text: str):
    assert go_json.encode(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_exactly(value: float):
    assert float(go_json.encode(value)) == value
