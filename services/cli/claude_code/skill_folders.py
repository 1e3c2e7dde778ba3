"""Skills of Claude Code: skills/NAME/SKILL.md, copied with the text files beside it.

Only what LOOMLOG_SKILLS_ROOT accepts is copied: a skill that would be a mistake there is skipped, and a file that the
Skill tool could not read is a note and stays behind.

Before: command.py. After: entries.py, connectors/configuration/skill_files.py.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from loomlog.connectors.configuration.field_types import AGENT_NAME_LENGTH
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.markdown_files import read_text
from loomlog.connectors.configuration.skill_files import (
    MAX_FILE_BYTES,
    MAX_SKILL_FILES,
    MAX_SKILL_FILES_BYTES,
    SKILL_FILE,
    is_file_path,
    parse_skill_file,
)
from loomlog.services.cli.claude_code.agent_files import read_frontmatter
from loomlog.services.cli.claude_code.entries import (
    Note,
    SkillFolder,
    Skipped,
    Unusable,
    require_no_secret_reference,
)
from loomlog.services.cli.stack.home import write_atomically

SKILL_KEYS = frozenset({"name", "description", "tools", "allowed-tools"})
NO_RESTRICTION = "there are no restrictions in parentheses, so no grant of an agent covers it; name the tool alone"
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{AGENT_NAME_LENGTH}}}")


def read_skills(folder: Path) -> tuple[list[SkillFolder], list[Skipped]]:
    """Return the skills of folder/skills, and the files that are none."""
    skills: list[SkillFolder] = []
    skipped: list[Skipped] = []
    for path in sorted((folder / "skills").glob(f"*/{SKILL_FILE}")):
        source = f"skills/{path.parent.name}/{SKILL_FILE}"
        try:
            skills.append(_read_skill(path, source))
        except Unusable as problem:
            skipped.append(Skipped(source=source, reason=str(problem)))
        except ConfigurationError as problem:
            skipped.append(Skipped(source=source, reason=problem.findings[0].message))
    return skills, skipped


def choose_action(skill: SkillFolder, destination: Path, *, force: bool) -> str:
    """Return copy, replace, keep (another one is there) or same."""
    target = destination / skill.name
    if not (target / SKILL_FILE).exists():
        return "copy"
    if all(_same(target / name, text) for name, text in skill.files.items()):
        return "same"
    return "replace" if force else "keep"


def copy_skill(skill: SkillFolder, destination: Path) -> None:
    """Write the files of a skill below destination/NAME. Raises OSError."""
    for name, text in skill.files.items():
        path = destination / skill.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def _read_skill(path: Path, source: str) -> SkillFolder:
    folder, name = path.parent, path.parent.name
    if not _NAME.fullmatch(name):
        raise Unusable(f"{name!r} is no name of a skill: expected letters, digits, _ and -; rename the folder")
    head, body, _ = read_frontmatter(path, source, MAX_FILE_BYTES)
    text = read_text(path, MAX_FILE_BYTES)
    tools = parse_skill_file(text, name).get("tools")
    if not body:
        raise Unusable("it has no instructions: the text below the frontmatter is empty")
    references = require_no_secret_reference(text)
    files = {SKILL_FILE: text}
    notes = [Note(field=key, hint="has no effect") for key in head if key not in SKILL_KEYS]
    notes += [Note(field=tool, hint=NO_RESTRICTION) for tool in _restricted(tools)]
    size = 0
    for file in _iter_further_files(folder):
        relative = file.relative_to(folder).as_posix()
        try:
            if len(files) > MAX_SKILL_FILES:
                raise ValueError(f"a skill has at most {MAX_SKILL_FILES} further files")
            if file.is_symlink() or file.name == SKILL_FILE or not is_file_path(relative):
                raise ValueError("it is a link, or has a name that a skill's file cannot have")
            content = read_text(file, MAX_SKILL_FILES_BYTES - size)
            size += len(content.encode())
            files[relative] = content
        except ValueError as error:
            notes.append(Note(field=relative, hint=f"not copied: {error}"))
    return SkillFolder(name=name, source=source, files=files, notes=(*notes, *references))


def _restricted(tools: object) -> list[str]:
    return [str(tool) for tool in tools if "(" in str(tool)] if isinstance(tools, list | tuple) else []


def _iter_further_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_dir() and parts != (SKILL_FILE,) and not any(part.startswith(".") for part in parts):
            yield path


def _same(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False
