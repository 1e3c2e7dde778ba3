"""Definitions as files."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.tree import read_document
from loomlog.connectors.definitions import KINDS
from loomlog.services.cli.claude_code.configuration_file import references_as_written
from loomlog.services.cli.definitions import sources
from loomlog.services.cli.definitions.sources import (
    BLOCKS,
    Definition,
    overlay_of,
    read_definitions,
    read_overlay,
    to_yaml,
    write_definitions,
)
from loomlog.services.cli.errors import CliError, NotFound, UsageError


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_every_kind_has_its_block() -> None:
    assert set(BLOCKS.values()) == set(KINDS)


def test_an_agent_is_read_from_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_TEST_MODEL", "mock-generic")
    file = written(tmp_path, "a.md", "---\nmodel: ${LOOMLOG_TEST_MODEL}\ntools: Read, Write\n---\nYou search.\n")
    overlay = {"model": "mock-generic", "tools": ["Read", "Write"], "system_prompt": "You search."}
    assert read_overlay("agent", "a", file, ()) == overlay


def test_a_skill_is_read_from_its_folder_with_its_files(tmp_path: Path) -> None:
    text = "---\ndescription: pages\ncolor: red\n---\nRead them.\n"
    skill = written(tmp_path, "pdf/SKILL.md", text)
    written(tmp_path, "pdf/notes/a.txt", "a note")
    expected = {"description": "pages", "body": "Read them.", "files": {"notes/a.txt": "a note"}}
    assert read_overlay("skill", "pdf", skill, ()) == read_overlay("skill", "pdf", skill.parent, ()) == expected
    other = written(tmp_path, "pdf.md", text)
    assert read_overlay("skill", "pdf", other, ()) == {"description": "pages", "body": "Read them."}


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_an_overlay_is_read_from_yaml_and_json(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name, '{"model": "m", "sampling": {"top_p": 0.5}, "tools": ["\\ud83d\\ude00"]}')
    if name.endswith("json"):
        assert read_overlay("agent", "a", file, ("sampling.top_k=3", "on=on", "description=")) == {
            "model": "m",
            "sampling": {"top_p": 0.5, "top_k": 3},
            "tools": ["\N{GRINNING FACE}"],
            "on": "on",
            "description": "",
        }
    else:
        assert read_overlay("agent", "a", file, ())["sampling"] == {"top_p": 0.5}


def test_a_value_of_set_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_TEST_MODEL", "secret")
    assert read_overlay("agent", "a", None, ("model=${LOOMLOG_TEST_MODEL}",)) == {"model": "${LOOMLOG_TEST_MODEL}"}


def test_the_prompt_of_a_file_is_put_into_the_overlay(tmp_path: Path) -> None:
    written(tmp_path, "prompt.txt", "You search.\n")
    file = written(tmp_path, "a.yaml", "system_prompt_file: prompt.txt\n")
    assert read_overlay("agent", "a", file, ()) == {"system_prompt": "You search.\n"}
    block = written(tmp_path, "b.yaml", "agents:\n  a: {system_prompt_file: prompt.txt}\n")
    assert read_definitions(block)[0].overlay == {"system_prompt": "You search.\n"}
    for text, message in (
        ("{system_prompt_file: prompt.txt, system_prompt: x}", "there is a system_prompt too"),
        ("{system_prompt_file: nowhere.txt}", "system_prompt_file: nowhere.txt: it cannot be read"),
    ):
        with pytest.raises(CliError, match=message):
            read_overlay("agent", "a", written(tmp_path, "a.yaml", text), ())


@pytest.mark.parametrize(
    ("name", "text", "kind", "error", "message"),
    [
        ("a.md", "x", "team", UsageError, "Markdown files are agents or skills; give the team as .yaml or .json"),
        ("pdf/SKILL.md", "x", "agent", UsageError, "is a skill: give --kind skill"),
        ("a.toml", "x", "agent", UsageError, "expected a file that ends with .md, .yaml, .yml or .json"),
        ("a.md", "---\nmodell: x\n---\n", "agent", CliError, "did you mean model?"),
        ("a.md", "---\nname: b\n---\n", "agent", CliError, "name"),
        ("a.md", "---\nmodel: x\n", "agent", CliError, "no closing line"),
        ("a.yaml", "- a", "agent", CliError, "expected a mapping of the keys of one agent"),
        ("a.yaml", "a: [", "agent", CliError, "a.yaml:1: not YAML"),
        ("a.yaml", "a: 1\na: 2\n", "agent", CliError, "a.yaml:2: the key a is here for the second time"),
        ("a.json", "{", "agent", CliError, "a.json: not JSON"),
        ("a.json", "[1]", "agent", CliError, "expected a mapping"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(
    tmp_path: Path, name: str, text: str, kind: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as raised:
        read_overlay(kind, "a", written(tmp_path, name, text), ())
    assert message in str(raised.value)


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    for read in (lambda file: read_overlay("agent", "a", file, ()), read_definitions):
        with pytest.raises(NotFound, match="There is no file"):
            read(tmp_path / "nowhere.yaml")
    with pytest.raises(NotFound, match=r"SKILL\.md"):
        read_overlay("skill", "a", tmp_path, ())
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xff")
    with pytest.raises(CliError, match="not UTF-8"):
        read_definitions(file)
    with pytest.raises(CliError, match="not UTF-8"):
        read_overlay("agent", "a", file, ())


LIST = "- {kind: agent, name: a, overlay: {model: m}}\n- {kind: skills, name: s, parent_def_id: sdf_1}\n"
BLOCK = "agents:\n  a: {model: m}\nskill:\n  s:\n"
BOTH = [
    Definition(kind="agent", name="a", overlay={"model": "m"}),
    Definition(kind="skill", name="s", overlay={}),
]


def test_lists_and_blocks_are_definitions(tmp_path: Path) -> None:
    assert read_definitions(written(tmp_path, "a.yaml", BLOCK)) == BOTH
    first, second = read_definitions(written(tmp_path, "b.yaml", LIST))
    assert (first, second.kind, second.parent_def_id) == (BOTH[0], "skill", "sdf_1")
    assert read_definitions(written(tmp_path, "a.yaml", BLOCK), kind="skill") == BOTH[1:]


def test_the_agents_of_a_whole_configuration_are_chosen_by_kind() -> None:
    file = Path(__file__).parents[4] / "loomlog.yaml"
    assert {one.name for one in read_definitions(file, kind="agent")} == {"reviewer", "assistant"}
    with pytest.raises(CliError, match=r"providers is no kind of definition.*--kind takes those of one kind"):
        read_definitions(file)


def test_references_are_expanded_for_a_configuration_and_kept_for_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOMLOG_TEST_MODEL", "m")
    file = written(tmp_path, "a.yaml", "agents: {a: {model: '${LOOMLOG_TEST_MODEL}'}}")
    assert read_definitions(file)[0].overlay == {"model": "m"}
    assert read_definitions(file, expands=False)[0].overlay == {"model": "${LOOMLOG_TEST_MODEL}"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "expected a list of {kind, name, overlay}, or blocks"),
        ("", "expected a list"),
        ("[]", "there is no definition in it"),
        ("agents: {}", "there is no definition in it"),
        ("[x]", "item 1: expected a mapping with kind, name and overlay"),
        ("[{kind: agent, nam: a}]", "item 1: unknown key nam; did you mean name?"),
        ("[{kind: agent}]", "item 1: name is missing"),
        ("[{kind: agnt, name: a}]", "item 1: agnt is no kind of definition; did you mean agent?"),
        ("[{kind: agent, name: a, overlay: [1]}]", "item 1: overlay: expected a mapping"),
        ("[{kind: agent, name: a, parent_def_id: 3}]", "item 1: parent_def_id must be a text"),
        ("agents: [a]", "agents: expected a mapping"),
        ("agents: {a: 1}", "agents.a: expected a mapping"),
        ("{agents: {a: {}}, agent: {a: {}}}", "agent a is there twice"),
    ],
)
def test_a_list_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CliError) as raised:
        read_definitions(written(tmp_path, "a.yaml", text))
    assert message in str(raised.value)


def test_an_overlay_leaves_out_what_the_server_sets() -> None:
    agent = {"model": "m", "system_prompt": "a", "system_prompt_base": "a"}
    assert overlay_of("agent", agent) == {"model": "m", "system_prompt": "a"}
    assert overlay_of("agent", {**agent, "system_prompt_base": "b"})["system_prompt_base"] == "b"
    server = {"url": "https://x", **{key: ["t"] for key in KINDS["mcpserver"].server_set}}
    assert overlay_of("mcpserver", server) == {"url": "https://x"}
    assert KINDS["mcpserver"].server_set


ODD = (
    "on",
    "null",
    "1e3",
    "0o17",
    "12:30",
    "~",
    "<<",
    " a",
    "a \n",
    "\n",
    "a\n\n",
    "\n a",
    "- a\n",
    "# a",
    "\x85\n",
    "a\r\nb",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40) | st.sampled_from(ODD)
SCALARS = TEXT | st.booleans() | st.integers(-(10**16), 10**16) | st.floats(-1e9, 1e9)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=10
)


@given(overlay=st.dictionaries(TEXT.filter(bool), VALUES, max_size=4))
def test_what_is_written_reads_back_as_the_same(overlay: dict[str, Any]) -> None:
    text = to_yaml({"agent": {"a": overlay}})
    reading, node = read_document(text, file="a", environ=references_as_written(text))
    assert not reading.errors, text
    assert sources._to_json(node) == {"agent": {"a": overlay}}


def test_long_texts_are_written_as_blocks() -> None:
    one = Definition(kind="agent", name="a", overlay={"system_prompt": "You search.\nYou answer.\n", "model": "on"})
    expected = 'agent:\n  a:\n    system_prompt: |\n      You search.\n      You answer.\n    model: "on"\n'
    assert write_definitions([one]).replace("'", '"') == expected
