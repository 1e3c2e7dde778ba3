"""Skills of Claude Code: folders with a SKILL.md, copied with the text files beside it.

Only what LOOMLOG_SKILLS_ROOT reads is copied: a skill that would be a mistake there is skipped, and a file that would
be left out there stays behind, with a note.

Before: command.py. After: entries.py, connectors/configuration/skill_files.py.
"""

import re
from pathlib import Path

from loomlog.connectors.configuration.field_types import AGENT_NAME_LENGTH
from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.markdown_files import FENCE, FRONTMATTER, read_text, to_printable
from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.configuration.skill_files import (
    MAX_FILE_BYTES,
    SKILL_FILE,
    describe_skill_problem,
    read_skill_folder,
)
from loomlog.connectors.definitions import KINDS, DefinitionProblem
from loomlog.services.cli.claude_code.configuration_file import dump_yaml
from loomlog.services.cli.claude_code.entries import (
    Note,
    SkillFolder,
    Skipped,
    frontmatter_notes,
    require_no_secret_reference,
)
from loomlog.services.cli.stack.home import write_atomically

NO_RESTRICTION = "there are no restrictions in parentheses, so no grant of an agent covers it; name the tool alone"
FRONTMATTER_KEYS = frozenset(
    (
        *("name", "description", "tools", "allowed-tools", "allowed_tools", "license", "version", "metadata", "model"),
        *("compatibility", "author", "argument-hint", "disable-model-invocation", "user-invocable", "context", "agent"),
        *("color", "category", "tags"),
    )
)
"""Keys that a line of a frontmatter may begin with that is not YAML."""
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{AGENT_NAME_LENGTH}}}")


def read_skills(folder: Path) -> tuple[list[SkillFolder], list[Skipped]]:
    """Return the skills of folder/skills, and the files that are none."""
    skills: list[SkillFolder] = []
    skipped: list[Skipped] = []
    for path in sorted((folder / "skills").glob(f"*/{SKILL_FILE}")):
        source = f"skills/{to_printable(path.parent.name)}/{SKILL_FILE}"
        try:
            skills.append(_read_skill(path, source))
        except (ValueError, DefinitionProblem) as problem:
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
    name = path.parent.name
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{to_printable(name)!r} is no name of a skill: expected letters, digits, _ and -; rename the folder"
        )
    values, warnings = read_skill_folder(path.parent, name, keys=FRONTMATTER_KEYS)
    text = read_text(path, MAX_FILE_BYTES)
    by_line = frontmatter_notes(warnings)
    if by_line:
        # LOOMLOG_SKILLS_ROOT reads YAML only, so the copy says the same in YAML.
        head = {key: values[key] for key in ("description", "tools") if values.get(key)}
        text = f"{FENCE}\n{dump_yaml(head)}{FENCE}\n\n{values['body']}\n"
    references = require_no_secret_reference(text)
    block: SkillBlock = KINDS["skill"].block_of(values)
    if problem := describe_skill_problem(block):
        raise ValueError(" ".join(problem))
    return SkillFolder(
        name=name,
        source=source,
        files={SKILL_FILE: text, **block.files},
        notes=(
            *by_line,
            *(
                Note(field=SKILL_FILE, hint=warning.message)
                for warning in warnings
                if not warning.message.startswith(FRONTMATTER)
            ),
            *(Note(field=tool, hint=NO_RESTRICTION) for tool in block.tools if "(" in tool),
            *references,
        ),
    )


def _same(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False
