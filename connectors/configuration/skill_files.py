"""Skills from the files of LOOMLOG_SKILLS_ROOT: `<root>/<name>/SKILL.md`, with / in the names of deeper ones.

The frontmatter has description and tools (or allowed-tools), `name` may repeat the path, other keys are warned about;
the body is the instructions. Further texts of the folder are the skill's files, within bounds: what does not fit is
left out with a warning. A folder in it with a SKILL.md of its own is another skill.

Before: markdown_files.py. After: load.py adds them to `skills`; `loomlog hash` and imports read single ones.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from loomlog.connectors.configuration.agent_files import NO_ENVIRONMENT
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.layers import display_path
from loomlog.connectors.configuration.markdown_files import (
    MAX_DEFINITIONS,
    DefinitionFiles,
    iter_files,
    join_paths,
    read_markdown,
    read_text,
    split_words,
    take_name,
    to_printable,
)
from loomlog.connectors.configuration.model import SkillBlock
from loomlog.connectors.configuration.renamed_keys import rename_keys
from loomlog.connectors.configuration.shape import extract_values
from loomlog.connectors.configuration.tree import MappingEntry, MappingNode, Mark, ParsedFile, ScalarNode

SKILLS_SETTING = "LOOMLOG_SKILLS_ROOT"
SKILL_FILE = "SKILL.md"
MAX_SKILL_BODY_BYTES = 131_072
MAX_SKILL_DESCRIPTION_BYTES = 8_192
MAX_SKILL_FILES = 64
MAX_SKILL_FILES_BYTES = 1024 * 1024
"""Bytes of all further files of a skill together."""
MAX_SKILL_FILE_PATH = 255
"""Characters of the path of a further file."""
MAX_FILE_BYTES = MAX_SKILL_BODY_BYTES + 4 * MAX_SKILL_DESCRIPTION_BYTES
"""Bytes of a SKILL.md: the body and a frontmatter."""
_KEYS = ("description", "tools")


def load_skill_files(root: Path, *, environ: Mapping[str, str], working_directory: Path) -> DefinitionFiles:
    """Return the skills below `root`. Raises ConfigurationError when the folder cannot be read."""
    skills = DefinitionFiles()
    below: dict[Path, list[Path]] = {}
    """Further files by the folder of their skill."""
    for folder, names in iter_files(root, SKILLS_SETTING, skills.warnings):
        if SKILL_FILE in names and folder == root:
            message = f"a {SKILL_FILE} here belongs to no skill and is ignored: skills have a folder each"
            skills.warnings.append(ConfigurationFinding(message=message, file=display_path(root, working_directory)))
        elif SKILL_FILE in names:
            below[folder] = []
        owner = next((parent for parent in (folder, *folder.parents) if parent in below), None)
        if owner is not None:
            below[owner] += [folder / name for name in names if folder != owner or name != SKILL_FILE]
    if len(below) > MAX_DEFINITIONS:
        message = f"{SKILLS_SETTING}: {len(below)} skills in {root}; at most {MAX_DEFINITIONS} are read"
        raise ConfigurationError([ConfigurationFinding(message=message)])
    for folder, files in below.items():
        file = to_printable(display_path(folder / SKILL_FILE, working_directory))
        name = to_printable(folder.relative_to(root).as_posix())
        try:
            text = read_text(folder / SKILL_FILE, MAX_FILE_BYTES)
        except ValueError as error:
            skills.errors.append(ConfigurationFinding(message=str(error), file=file))
            continue
        reading = _read_skill(text, name, file, environ)
        _add_files(reading, folder, files)
        skills.add(name, reading, folder)
    return skills


def parse_skill_file(text: str, name: str, *, environ: Mapping[str, str] = NO_ENVIRONMENT) -> dict[str, object]:
    """Return description, tools and body of a SKILL.md, as far as it sets them; values are not checked.

    Raises ConfigurationError with every mistake of form; keys that a skill does not have are left out.
    """
    reading = _read_skill(text, name, SKILL_FILE, environ)
    if reading.errors:
        raise ConfigurationError(reading.errors)
    values, _ = extract_values(reading.root, SkillBlock)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def read_skill_folder(
    folder: Path, name: str, *, environ: Mapping[str, str] = NO_ENVIRONMENT, keys: Collection[str] = ()
) -> tuple[dict[str, object], list[ConfigurationFinding]]:
    """Return description, tools, body and files of one skill as LOOMLOG_SKILLS_ROOT reads it, and warnings. `keys`:
    those of a frontmatter that is no YAML, see read_markdown.

    Raises ConfigurationError with every mistake of form.
    """
    warnings: list[ConfigurationFinding] = []
    further: list[Path] = []
    others: set[Path] = set()
    for below, names in iter_files(folder, SKILL_FILE, warnings):
        if below != folder and SKILL_FILE in names:
            others.add(below)
        if others.isdisjoint((below, *below.parents)):
            further += [below / file for file in names if below != folder or file != SKILL_FILE]
    try:
        text = read_text(folder / SKILL_FILE, MAX_FILE_BYTES)
    except ValueError as error:
        raise ConfigurationError([ConfigurationFinding(message=str(error), file=SKILL_FILE)]) from error
    reading = _read_skill(text, name, SKILL_FILE, environ, keys)
    _add_files(reading, folder, further)
    if reading.errors:
        raise ConfigurationError(reading.errors)
    values, _ = extract_values(reading.root, SkillBlock)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}, [
        *warnings,
        *reading.warnings,
    ]


def describe_skill_problem(skill: SkillBlock) -> tuple[str, str] | None:
    """Return the key of a skill that breaks a limit and what is wrong with it; None for a usable skill."""
    if not skill.body.strip():
        return "body", "is empty: a skill is its instructions"
    for key, text, limit in (
        ("body", skill.body, MAX_SKILL_BODY_BYTES),
        ("description", skill.description, MAX_SKILL_DESCRIPTION_BYTES),
    ):
        if (size := len(text.encode())) > limit:
            return key, f"has {size} bytes; at most {limit} are taken"
    if len(skill.files) > MAX_SKILL_FILES:
        return "files", f"has {len(skill.files)} files; at most {MAX_SKILL_FILES} are taken"
    if (size := sum(len(text.encode()) for text in skill.files.values())) > MAX_SKILL_FILES_BYTES:
        return "files", f"has {size} bytes together; at most {MAX_SKILL_FILES_BYTES} are taken"
    wrong = next((path for path in skill.files if not is_file_path(path)), None)
    return None if wrong is None else ("files", f"{wrong[:80]!r} is no relative path without ..")


def is_file_path(path: str) -> bool:
    """Return whether a path may name a file of a skill: relative, printable, without backslashes and parts like .."""
    is_text = path.isprintable() and "\\" not in path
    return is_text and len(path) <= MAX_SKILL_FILE_PATH and not {"", ".", ".."} & set(path.split("/"))


def _read_skill(text: str, name: str, file: str, environ: Mapping[str, str], keys: Collection[str] = ()) -> ParsedFile:
    reading, body = read_markdown(text, file=file, environ=environ, keys=keys)
    take_name(reading, name)
    reading.root, errors = rename_keys(reading.root)
    reading.errors += errors
    entries = dict(reading.root.entries)
    if "tools" in entries:
        entries["tools"] = MappingEntry(key_mark=entries["tools"].key_mark, node=split_words(entries["tools"].node))
    for key in entries.keys() - _KEYS:
        entry = entries.pop(key)
        message = f"{key} has no effect: a skill has name, description and tools (or allowed-tools)"
        reading.warnings.append(ConfigurationFinding(message=message, file=file, line=entry.key_mark.line))
    entries["body"] = MappingEntry(key_mark=body.mark, node=body)
    reading.root = MappingNode(entries=entries, mark=reading.root.mark)
    return reading


def _add_files(reading: ParsedFile, folder: Path, files: Sequence[Path]) -> None:
    """Add the further files of a skill; one warning for each reason why some are left out."""
    file = reading.root.mark.file
    texts: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    size = 0
    for path in sorted(files):
        name = path.relative_to(folder).as_posix()
        try:
            if len(texts) == MAX_SKILL_FILES:
                raise ValueError(f"a skill has at most {MAX_SKILL_FILES} files")
            if not is_file_path(name):
                raise ValueError(f"a path is printable, with at most {MAX_SKILL_FILE_PATH} characters")
            text = read_text(path, MAX_SKILL_FILES_BYTES)
            if (size_after := size + len(text.encode())) > MAX_SKILL_FILES_BYTES:
                raise ValueError(f"the files of a skill have at most {MAX_SKILL_FILES_BYTES} bytes together")
            texts[name], size = text, size_after
        except ValueError as error:
            left_out.setdefault(str(error), []).append(name)
    for reason, names in left_out.items():
        message = f"left out of the skill: {join_paths(names)}: {reason}"
        reading.warnings.append(ConfigurationFinding(message=message, file=file))
    if texts:
        mark = Mark(file=file, line=1)
        node = MappingNode(
            entries={
                name: MappingEntry(key_mark=mark, node=ScalarNode(value=text, mark=mark))
                for name, text in texts.items()
            },
            mark=mark,
        )
        entries = {**reading.root.entries, "files": MappingEntry(key_mark=mark, node=node)}
        reading.root = MappingNode(entries=entries, mark=reading.root.mark)
