from pathlib import Path

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.resolve import ResolvedAgent, resolve_agent
from loomlog.connectors.configuration.skill_files import (
    MAX_FILE_BYTES,
    MAX_SKILL_BODY_BYTES,
    MAX_SKILL_FILES,
    load_skill_files,
    parse_skill_file,
    read_skill_folder,
)
from loomlog.connectors.configuration.tree import to_plain
from tests.connectors.configuration.conftest import Folder

ON = {"LOOMLOG_SKILLS_ROOT": "skills"}


def write(folder: Folder, name: str, text: str = "Do it.", file: str = "SKILL.md") -> Path:
    return folder.write(text, f"skills/{name}/{file}")


def test_a_folder_with_a_skill_file_is_a_skill(folder: Folder):
    write(folder, "pdf", "---\nname: pdf\ndescription: Reads PDF\ntools: [Read, Grep]\n---\n\nRead it.\n")
    write(folder, "team/deep/docx", "---\nallowed-tools: Read, Write Edit\n---\nWrite it.")
    write(folder, "plain", "No frontmatter.\n---\n")
    folder.write("nothing here", "skills/empty/notes.txt")
    for environ in (ON, {"LOOMCYCLE_SKILLS_ROOT": "skills"}):
        skills = folder.load("skills: {inline: {body: Inline.}}", environ).configuration.skills
        assert {name: (one.description, one.tools, one.body) for name, one in skills.items()} == {
            "inline": ("", (), "Inline."),
            "pdf": ("Reads PDF", ("Read", "Grep"), "Read it."),
            "plain": ("", (), "No frontmatter.\n---"),
            "team/deep/docx": ("", ("Read", "Write", "Edit"), "Write it."),
        }
        assert {len(skill.files) for skill in skills.values()} == {0}


def test_further_texts_of_the_folder_are_files_of_the_skill(folder: Folder):
    write(folder, "pdf")
    write(folder, "pdf", "Fill it.", "forms/tax.md")
    write(folder, "pdf", "also a skill file by name", "forms/SKILL.txt")
    write(folder, "pdf", "no", ".git/config")
    write(folder, "pdf/inner", "Another skill.")
    write(folder, "pdf/inner", "of the inner one", "notes.md")
    skills = folder.load("", ON).configuration.skills
    assert skills["pdf"].files == {"forms/tax.md": "Fill it.", "forms/SKILL.txt": "also a skill file by name"}
    assert skills["pdf/inner"].files == {"notes.md": "of the inner one"}


def test_files_that_do_not_fit_are_left_out_with_a_warning(folder: Folder):
    write(folder, "pdf")
    write(folder, "pdf", "", "logo.png").write_bytes(b"\x89PNG\r\n")
    write(folder, "pdf", "x" * 700_000, "a")
    write(folder, "pdf", "x" * 700_000, "b")
    write(folder, "many")
    for number in range(MAX_SKILL_FILES + 2):
        write(folder, "many", "t", f"f{number:02}")
    loaded = folder.load("", ON)
    assert list(loaded.configuration.skills["pdf"].files) == ["a"]
    assert len(loaded.configuration.skills["many"].files) == MAX_SKILL_FILES
    warnings = [str(one) for one in loaded.warnings if "SKILL.md" in str(one)]
    assert warnings == [
        "skills/many/SKILL.md: left out of the skill: f64 and f65: a skill has at most 64 files",
        "skills/pdf/SKILL.md: left out of the skill: b: the files of a skill have at most 1048576 bytes together",
        "skills/pdf/SKILL.md: left out of the skill: logo.png: it is not UTF-8: invalid start byte at byte 0",
    ]


def test_a_skill_file_in_the_folder_itself_is_ignored_with_a_warning(folder: Folder):
    folder.write("nobody's", "skills/SKILL.md")
    folder.write("nobody's", "skills/notes.md")
    loaded = folder.load("", ON)
    assert loaded.configuration.skills == {}
    assert any("belongs to no skill" in str(warning) for warning in loaded.warnings)


def test_mistakes_have_the_line_of_the_file(folder: Folder):
    write(folder, "a", "---\nname: b\n---\nbody")
    write(folder, "b", "---\ntools: [Read]\nallowed-tools: [Read]\n---\nbody")
    write(folder, "c", "---\ndescription: d\nbody")
    write(folder, "d", "---\ndescription: [1]\n---\nbody")
    write(folder, "e e")
    problems = folder.problems("", ON)
    assert problems[0].startswith("skills/a/SKILL.md:2: name: 'b' is not the name by the path of the file")
    assert problems[1].startswith("skills/b/SKILL.md:3: allowed-tools: tools says the same")
    assert problems[2] == "skills/c/SKILL.md:1: the frontmatter has no closing line ---"
    assert problems[3].startswith("skills/d/SKILL.md:2: skills.d.description: a list is not usable: expected text")
    assert problems[4].startswith("skills/e e/SKILL.md:1: skills.e e is not a usable name")
    assert len(problems) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\ndescription: d\n---\n \n", "skills.s.body: is empty"),
        ("x" * (MAX_SKILL_BODY_BYTES + 1), "skills.s.body: has 131073 bytes"),
        (f"---\ndescription: {'d' * 8_193}\n---\nb", "skills.s.description: has 8193 bytes"),
        ("x" * (MAX_FILE_BYTES + 1), "it has more than 163840 bytes"),
    ],
)
def test_a_skill_has_limits(folder: Folder, text: str, expected: str):
    folder.path.joinpath("skills/s").mkdir(parents=True)
    folder.path.joinpath("skills/s/SKILL.md").write_text(text)
    (problem,) = folder.problems("", ON)
    assert problem.startswith("skills/s/SKILL.md")
    assert expected in problem


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", "a/../b", "./a", "a//b", "", "a\\x01", "a" * 256, "a\\\\b"])
def test_inline_files_have_relative_paths(folder: Folder, path: str):
    (problem,) = folder.problems(f'skills: {{s: {{body: b, files: {{"{path}": text}}}}}}')
    assert "is no relative path without .." in problem


def test_inline_files_have_limits(folder: Folder):
    many = ", ".join(f"f{number}: t" for number in range(MAX_SKILL_FILES + 1))
    (problem,) = folder.problems(f"skills: {{s: {{body: b, files: {{{many}}}}}}}")
    assert "has 65 files; at most 64" in problem
    folder.write("")
    for number in range(3):
        folder.write(f"skills: {{s: {{body: b, files: {{f{number}: {'x' * 524_000}}}}}}}", f"conf/{number}.yaml")
    (problem,) = folder.problems(None, {"LOOMLOG_CONFIG_DIR": "conf"})
    assert "bytes together; at most 1048576" in problem


def test_a_configuration_file_overrides_a_skill_of_the_folder_and_that_is_said(folder: Folder):
    write(folder, "pdf")
    loaded = folder.load("skills:\n  pdf: {body: Inline.}", ON)
    assert loaded.configuration.skills["pdf"].body == "Inline."
    assert any(
        "loomlog.yaml:2: skills.pdf.body overrides the value in skills/pdf/" in str(one) for one in loaded.warnings
    )


def test_further_keys_of_a_skill_are_warned_about(folder: Folder):
    write(folder, "pdf", "---\ndescription: d\nlicense: MIT\n---\nbody")
    assert (
        "skills/pdf/SKILL.md:3: license has no effect: a skill has name, description and tools (or allowed-tools)"
        in (folder.warnings("", ON))
    )


def test_a_folder_that_is_missing_is_an_error(folder: Folder):
    (problem,) = folder.problems("", ON)
    assert problem == f"LOOMLOG_SKILLS_ROOT: there is no folder {folder.path / 'skills'}"


def test_linked_folders_are_read_and_links_that_lead_out_are_not(folder: Folder):
    folder.write("Linked.", "skills/..data/pdf/SKILL.md")
    (folder.path / "skills/pdf").symlink_to("..data/pdf")
    write(folder, "own")
    folder.write("secret", "secret.txt")
    (folder.path / "skills/own/secret.txt").symlink_to("../../secret.txt")
    loaded = folder.load("", ON)
    assert {name: skill.body for name, skill in loaded.configuration.skills.items()} == {
        "own": "Do it.",
        "pdf": "Linked.",
    }
    assert loaded.configuration.skills["own"].files == {}
    assert any("secret.txt" in str(warning) for warning in loaded.warnings)


def test_one_file_is_parsed_to_the_keys_it_sets():
    text = "---\nname: a/b\ndescription: d\ntools: Read\nversion: 2\n---\n\nBody\n"
    assert parse_skill_file(text, "a/b") == {"description": "d", "tools": ["Read"], "body": "Body"}
    assert parse_skill_file("Body", "a") == {"body": "Body"}
    with pytest.raises(ConfigurationError, match="no closing line"):
        parse_skill_file("---\nBody", "a")


BASE = "defaults: {provider: anthropic, model: claude-haiku-4-5}\n"


def granted(folder: Folder, text: str, *, has_skills: bool = False) -> tuple[str, ...]:
    configuration = folder.load(BASE + text).configuration
    resolved = resolve_agent(configuration, "a", usable=["anthropic"], has_skills=has_skills)
    assert isinstance(resolved, ResolvedAgent)
    return resolved.tools


@pytest.mark.parametrize(
    ("agent", "skills", "expected"),
    [
        ("tools: [Write, Read]", "{}", ("Write", "Read", "Context")),
        ("tools: ['*'], disable_context: true", "{}", ("*",)),
        ("tools: [Read]", "{s: {body: b}}", ("Read", "Context", "Skill")),
        ("tools: [Skill, Read]", "{s: {body: b}}", ("Skill", "Read", "Context")),
        ("tools: [Read], disable_context: true", "{s: {body: b}}", ("Read", "Skill")),
        ("tools: [Read], skills: [pdf]", "{}", ("Read", "Context", "Skill")),
        ("tools: [Read], skills: ['-*']", "{s: {body: b}}", ("Read", "Context")),
        ("tools: [Skill]", "{}", ("Skill", "Context")),
    ],
)
def test_the_tool_for_skills_is_granted_where_there_are_skills(
    folder: Folder, agent: str, skills: str, expected: tuple[str, ...]
):
    text = f"agents: {{a: {{{agent}}}}}\nskills: {skills}"
    assert granted(folder, text) == expected


def test_skills_that_were_made_at_run_time_count_too(folder: Folder):
    assert granted(folder, "agents: {a: {}}", has_skills=True) == ("Context", "Skill")
    assert granted(folder, "agents: {a: {skills: ['-**']}}", has_skills=True) == ("Context",)


def test_patterns_of_an_agent_are_checked(folder: Folder):
    (problem,) = folder.problems(BASE + "agents:\n  a:\n    skills: [ok, 'a b']")
    assert problem.startswith("loomlog.yaml:4: agents.a.skills: 'a b' is no pattern of skills")


def test_other_patterns_are_another_definition(folder: Folder):
    hashes = set()
    for skills in ("[]", "[a]", "[b]"):
        configuration = folder.load(BASE + f"agents: {{a: {{tools: [Skill], skills: {skills}}}}}").configuration
        resolved = resolve_agent(configuration, "a", usable=["anthropic"])
        assert isinstance(resolved, ResolvedAgent)
        hashes.add(resolved.definition_sha256)
    assert len(hashes) == 3


def test_one_folder_is_read_as_in_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "pdf"
    (folder / "ref").mkdir(parents=True)
    (folder / "inner" / "deep").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nlicense: MIT\ntools: Read\n---\nRead it.")
    (folder / "ref" / "a.md").write_text("more")
    (folder / "logo.png").write_bytes(b"\xff")
    (folder / "inner" / "SKILL.md").write_text("another skill")
    (folder / "inner" / "deep" / "b.md").write_text("its file")
    values, warnings = read_skill_folder(folder, "pdf")
    assert values == {"tools": ["Read"], "body": "Read it.", "files": {"ref/a.md": "more"}}
    loaded = load_skill_files(tmp_path, environ={}, working_directory=tmp_path)
    assert [one.message for one in warnings] == [one.message for one in loaded.warnings if "pdf/SKILL" in one.file]
    assert to_plain(loaded.entries["pdf"].node) == {**values, "tools": ("Read",)}


def test_one_folder_with_a_mistake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it cannot be read"):
        read_skill_folder(tmp_path, "pdf")
    (tmp_path / "SKILL.md").write_text("---\nname: other\n---\nRead it.")
    with pytest.raises(ConfigurationError, match="'other' is not the name"):
        read_skill_folder(tmp_path, "pdf")
