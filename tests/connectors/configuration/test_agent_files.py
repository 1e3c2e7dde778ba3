from pathlib import Path

import pytest

from loomlog.connectors.configuration.agent_files import MAX_AGENT_FILE_BYTES, parse_agent_file
from loomlog.connectors.configuration.findings import ConfigurationError
from tests.connectors.configuration.conftest import Folder

ON = {"LOOMLOG_AGENTS_ROOT": "agents"}
BASE = "defaults: {provider: anthropic, model: claude-haiku-4-5}\n"


def write(folder: Folder, name: str, text: str) -> Path:
    return folder.write(text, f"agents/{name}.md")


def test_a_file_is_an_agent_with_its_text_as_prompt(folder: Folder):
    write(
        folder,
        "reviewer",
        """\
        ---
        description: Reviews code
        tools: Read, Grep
        max_iterations: 7
        sampling: {temperature: 0.5}
        ---

        You review code.

        Be short.
        """,
    )
    agent = folder.load(BASE, ON).configuration.agents["reviewer"]
    assert agent.description == "Reviews code"
    assert agent.tools == ("Read", "Grep")
    assert agent.max_iterations == 7
    assert agent.sampling is not None
    assert agent.sampling.temperature == 0.5
    assert agent.system_prompt == "You review code.\n\nBe short."


def test_agents_of_files_join_those_of_the_configuration(folder: Folder):
    write(folder, "b", "B")
    write(folder, "team/lead", "---\nname: team/lead\ntools: [Read]\n---\nLead.")
    write(folder, ".hidden", "no")
    folder.write("no", "agents/notes.txt")
    environ = {"LOOMCYCLE_AGENTS_ROOT": "agents"}
    for text in (BASE + "agents: {a: {system_prompt: A}}", BASE + "agents: {a: {system_prompt: A}, }"):
        agents = folder.load(text, environ).configuration.agents
        assert {name: agent.system_prompt for name, agent in agents.items()} == {
            "a": "A",
            "b": "B",
            "team/lead": "Lead.",
        }
    assert list(folder.load(BASE + "agents:", environ).configuration.agents) == ["b", "team/lead"]
    assert list(folder.load(BASE, environ).configuration.agents) == ["b", "team/lead"]


def test_mistakes_have_the_line_of_the_file(folder: Folder):
    write(folder, "a", "---\ndescription: d\ntols: Read\nmax_tokens: many\ntools: Reed\n---\nbody")
    write(folder, "b", "---\ndescription: [\n---\nbody")
    write(folder, "c", "---\ndescription: d\nbody")
    write(folder, "d", "---\njust text\n---\nbody")
    write(folder, "e", "---\nname: f\nsystem_prompt: one\n---\nanother")
    problems = folder.problems(BASE, ON)
    assert any(p.startswith("agents/a.md:3: agents.a.tols is not a known key; did you mean tools?") for p in problems)
    assert any(p.startswith("agents/a.md:4: agents.a.max_tokens: 'many' is not usable") for p in problems)
    assert any(p.startswith("agents/b.md:") and "not YAML" in p for p in problems)
    assert "agents/c.md:1: the frontmatter has no closing line ---" in problems
    assert "agents/d.md:2: expected a mapping of keys in the frontmatter" in problems
    assert "agents/e.md:2: name: 'f' is not the name by the path of the file, which is 'e'; leave name out" in problems
    assert any(p.startswith("agents/e.md:3: system_prompt: the text below") for p in problems)
    write(folder, "a", "---\ntools: Reed\n---\nbody")
    for name in "bcde":
        (folder.path / f"agents/{name}.md").unlink()
    (problem,) = folder.problems(BASE, ON)
    assert problem.startswith("agents/a.md:2: agents.a.tools[0]: Reed is not a tool")


def test_a_configuration_file_overrides_a_file_of_the_folder_key_by_key_and_that_is_said(folder: Folder):
    write(folder, "a", "---\ndescription: d\nallowed_tools: Read\n---\nA")
    loaded = folder.load(BASE + "agents: {b: {system_prompt: B}, a: {system_prompt: B}}", ON)
    assert list(loaded.configuration.agents) == ["b", "a"]
    agent = loaded.configuration.agents["a"]
    assert (agent.description, agent.tools, agent.system_prompt) == ("d", ("Read",), "B")
    (warning,) = loaded.warnings
    assert str(warning) == "loomlog.yaml:2: agents.a.system_prompt overrides the value in agents/a.md:5"
    assert folder.problems(None, {**ON, "LOOMLOG_CONFIG_STRICT": "1"}) == [str(warning)]


def test_a_prompt_of_another_file_takes_the_place_of_the_text_below_the_frontmatter(folder: Folder):
    write(folder, "a", "A")
    folder.write("Other.", "other.md")
    loaded = folder.load(BASE + "agents: {a: {system_prompt_file: other.md}}", ON)
    assert loaded.configuration.agents["a"].system_prompt == "Other."


def test_a_wrong_block_is_reported_as_without_files(folder: Folder):
    write(folder, "a", "A")
    assert folder.problems(BASE + "agents: [a]", ON) == folder.problems(BASE + "agents: [a]")


def test_a_name_that_no_agent_may_have_is_an_error(folder: Folder):
    write(folder, "my agent", "A")
    (problem,) = folder.problems(BASE, ON)
    assert problem.startswith("agents/my agent.md:1: agents.my agent is not a usable name")


def test_what_is_no_text_is_an_error(folder: Folder):
    write(folder, "ok", "A")
    for name, data, message in (
        ("a", b"\xff", "it is not UTF-8: invalid start byte at byte 0"),
        ("b", b"a\0b", "it is no text: it has the character U+0000, which no text may have"),
        ("c", b"x" * (MAX_AGENT_FILE_BYTES + 1), "it has more than 131072 bytes"),
    ):
        path = folder.path / f"agents/{name}.md"
        path.write_bytes(data)
        assert folder.problems(BASE, ON) == [f"agents/{name}.md: {message}"]
        path.unlink()


def test_a_mark_of_the_byte_order_and_windows_lines_are_read(folder: Folder):
    write(folder, "a", "")
    (folder.path / "agents/a.md").write_bytes(b"\xef\xbb\xbf---\r\ndescription: d\r\n---\r\n\r\nOne\r\nTwo\r\n")
    agent = folder.load(BASE, ON).configuration.agents["a"]
    assert (agent.description, agent.system_prompt) == ("d", "One\nTwo")


def test_a_folder_that_is_missing_is_an_error(folder: Folder):
    (problem,) = folder.problems(BASE, ON)
    assert problem == f"LOOMLOG_AGENTS_ROOT: there is no folder {folder.path / 'agents'}"


def test_a_prompt_may_lie_beside_the_file_and_values_are_expanded(folder: Folder):
    write(folder, "team/a", "---\nsystem_prompt_file: prompt.txt\ndescription: ${LOOMLOG_TEAM_NAME}\n---\n")
    folder.write("From a file. ${LOOMLOG_TEAM_NAME}", "agents/team/prompt.txt")
    write(folder, "b", "Keep ${LOOMLOG_TEAM_NAME}")
    agents = folder.load(BASE, {**ON, "LOOMLOG_TEAM_NAME": "Blue"}).configuration.agents
    assert (agents["team/a"].description, agents["team/a"].system_prompt) == (
        "Blue",
        "From a file. ${LOOMLOG_TEAM_NAME}",
    )
    assert agents["b"].system_prompt == "Keep ${LOOMLOG_TEAM_NAME}"


def test_links_within_the_folder_are_followed_and_others_are_not(folder: Folder):
    write(folder, "..data/a", "A")
    (folder.path / "agents/a.md").symlink_to("..data/a.md")
    (folder.path / "agents/loop").symlink_to(".")
    folder.write("secret", "outside.md")
    (folder.path / "agents/b.md").symlink_to("../outside.md")
    (folder.path / "agents/c.md").symlink_to("nowhere.md")
    loaded = folder.load(BASE, ON)
    assert list(loaded.configuration.agents) == ["a"]
    (warning,) = [str(one) for one in loaded.warnings if "links" in str(one)]
    assert warning.endswith("b.md, c.md and loop")


def test_one_file_is_parsed_to_the_keys_it_sets():
    text = "---\nname: a\ntools: [Read]\nsampling: {temperature: 0.30, stop: [x]}\ninternal: false\nmodel:\n---\nBody\n"
    assert parse_agent_file(text, "a") == {
        "tools": ["Read"],
        "sampling": {"temperature": 0.3, "stop": ["x"]},
        "internal": False,
        "system_prompt": "Body",
    }
    assert parse_agent_file("", "a") == {}
    with pytest.raises(ConfigurationError, match=r"a\.md:2: color is not a known key"):
        parse_agent_file("---\ncolor: red\n---\n", "a")
