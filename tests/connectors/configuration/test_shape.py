"""Every unknown key of a file is found, wherever it is, with its line."""

from typing import Any, cast

import yaml
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.model import Configuration, validate
from loomlog.connectors.configuration.shape import Shape, extract_values, format_path, infer_shape
from loomlog.connectors.configuration.tree import KeyPath, read_tree

VALID = """
defaults: {provider: mock, model: mock-generic}
models:
  quick: {provider: mock, model: mock-generic}
agents:
  one:
    tools: [Read]
    sampling: {temperature: 0.5}
    models:
      low: [{provider: mock, model: mock-generic}]
    core_blocks: [{label: a}]
  two: {}
providers:
  mine: {driver: openai, capabilities: {streaming: true}, options: {header_timeout_ms: 5}}
tiers:
  low: [{provider: mock, model: mock-generic}]
user_tiers:
  default: {tiers: {high: [{provider: mock, model: mock-generic}]}}
pricing:
  models: {mock/mock-generic: {input: 1, output: 2}}
volumes: {work: {path: /tmp}}
skills: {greet: {body: hello}}
principals: {ann: {tenant: a, subject: b, scopes: ["runs:read"], token_env: LOOMLOG_T}}
"""


def blocks_of(value: object, hint: Any, path: KeyPath = ()) -> list[KeyPath]:
    """Every place of the file that has a fixed set of keys."""
    shape = infer_shape(hint)
    paths: list[KeyPath] = []
    if isinstance(value, dict):
        paths += [path] if shape.keys is not None else []
        for key, below in value.items():
            paths += blocks_of(below, shape.keys[key] if shape.keys is not None else shape.values, (*path, key))
    elif isinstance(value, list) and shape.items is not None:
        for position, below in enumerate(value):
            paths += blocks_of(below, shape.items, (*path, position))
    return paths


PLACES = blocks_of(yaml.safe_load(VALID), Configuration)


def with_key(place: KeyPath, key: str) -> str:
    """The valid file, written anew with one key more at `place`, one key or item a line."""
    values = yaml.safe_load(VALID)
    block: Any = values
    for step in place:
        block = block[step]
    block[key] = "x"
    return cast(str, yaml.safe_dump(values, sort_keys=False))


def test_the_valid_file_is_valid_and_has_all_kinds_of_places():
    root = read_tree(VALID, file="f", environ={}).root
    values, unknown = extract_values(root, Configuration)
    assert unknown == []
    assert validate(values)[1] == []
    assert len(PLACES) >= 18


@given(st.sampled_from(PLACES), st.from_regex(r"[a-z]{3,8}_zz", fullmatch=True))
def test_every_unknown_key_is_reported_with_its_line(place: KeyPath, key: str):
    text = with_key(place, key)
    root = read_tree(text, file="f.yaml", environ={}).root
    values, unknown = extract_values(root, Configuration)
    (finding,) = unknown
    line = next(number for number, words in enumerate(text.splitlines(), 1) if words.strip(" -").startswith(f"{key}:"))
    assert finding.line == line
    assert finding.message.startswith(f"{format_path((*place, key))} is not a known key")
    assert validate(values)[1] == []


@given(st.sampled_from(PLACES))
def test_the_model_itself_refuses_unknown_keys_in_the_same_places(place: KeyPath):
    values = yaml.safe_load(with_key(place, "surely_unknown"))
    _, mistakes = validate(values)
    assert [mistake.path for mistake in mistakes] == [(*place, "surely_unknown")]


def test_several_unknown_keys_are_all_reported_and_the_nearest_is_named():
    text = "agents:\n  a:\n    sytem_prompt: x\n    tols: [Read]\nvolums: {}\n"
    _, unknown = extract_values(read_tree(text, file="f", environ={}).root, Configuration)
    assert [str(finding) for finding in unknown] == [
        "f:3: agents.a.sytem_prompt is not a known key; did you mean system_prompt?",
        "f:4: agents.a.tols is not a known key; did you mean tools?",
        "f:5: volums is not a known key; did you mean volumes?",
    ]


def test_an_unknown_key_without_a_value_is_reported_and_a_known_one_is_left_out():
    root = read_tree("agents:\n  a:\n    tols:\n    tools:\n  b:\nvolumes:\n", file="f", environ={}).root
    values, unknown = extract_values(root, Configuration)
    assert len(unknown) == 1
    assert values == {"agents": {"a": {}, "b": {}}}


def test_free_names_have_no_fixed_keys():
    assert infer_shape(dict[str, Any] | None) == infer_shape(dict[str, Any])
    assert infer_shape(int) == Shape()


def test_a_path_is_written_as_people_write_it():
    assert format_path(("agents", "a", "tools", 2)) == "agents.a.tools[2]"
