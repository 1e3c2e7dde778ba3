"""Skills of files, from the configuration to a call of the tool."""

from pathlib import Path

from loomlog.connectors.configuration.load import load
from loomlog.connectors.definitions import KINDS
from loomlog.services.runtime.effects import build_process_tools
from loomlog.services.runtime.tools.toolset import ProcessToolset
from tests.connectors.tools.given import context


async def test_a_skill_of_a_file_is_loaded_and_pinned(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "team" / "greet"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Greets\n---\nSay hello twice.\n")
    (folder / "names.txt").write_text("Ann")
    (tmp_path / "loomlog.yaml").write_text("agents: {}\n")
    loaded = load({"LOOMLOG_SKILLS_ROOT": "skills"}, working_directory=tmp_path)
    tool = build_process_tools(loaded)["Skill"]
    result = await tool.call({"name": "team/greet"}, context())
    assert (result.text, result.is_error) == ("Say hello twice.", False)
    assert result.skill_pin is not None
    content = {"body": "Say hello twice.", "description": "Greets", "files": {"names.txt": "Ann"}}
    assert result.skill_pin.content_sha256 == KINDS["skill"].hash("team/greet", content)

    (folder / "names.txt").write_text("Bob")
    changed = build_process_tools(load({"LOOMLOG_SKILLS_ROOT": "skills"}, working_directory=tmp_path))["Skill"]
    pinned = await changed.call(
        {"op": "read", "name": "team/greet", "path": "names.txt"}, context(skill_pins=(result.skill_pin,))
    )
    assert pinned.is_error
    assert "not here any more" in pinned.text


def test_agents_without_skills_are_offered_the_tools_they_had(tmp_path: Path) -> None:
    (tmp_path / "loomlog.yaml").write_text("agents: {}\n")
    tools = build_process_tools(load({}, working_directory=tmp_path))
    toolset = ProcessToolset(tools)
    before = [name for name in tools if name != "Skill"]
    assert [spec.name for spec in toolset.specs(("*", "Context"))] == before
    assert not toolset.grants(("*", "Context"), "Skill")
    assert [spec.name for spec in toolset.specs(("*", "Context", "Skill"))] == [*before, "Skill"]
    assert toolset.grants(("*", "Skill"), "Skill")
