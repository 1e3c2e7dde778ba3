"""Values of an import: entries of the configuration, skills to copy, and what has no place in them.

Before: agent_files.py, mcp_files.py, skill_folders.py make them. After: configuration_file.py, command.py.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from loomlog.connectors.configuration.expansion import expand
from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.markdown_files import FRONTMATTER
from loomlog.schemas.records import Value


class Note(Value, frozen=True, kw_only=True):
    """What could not be carried over as it is, and what to do about it."""

    field: str
    hint: str


class Entry(Value, frozen=True, kw_only=True):
    """Entry `name` of a block such as agents. `value` has texts, tuples of texts and mappings of texts by key."""

    block: str
    name: str
    source: str
    """File it comes from, relative to the imported folder."""
    value: Mapping[str, Any]
    comments: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


class SkillFolder(Value, frozen=True, kw_only=True):
    """Skill to copy. `files`: text by path relative to the folder, SKILL.md included."""

    name: str
    source: str
    files: Mapping[str, str]
    notes: tuple[Note, ...] = ()


class Skipped(Value, frozen=True, kw_only=True):
    """File, or part of a file, that is not imported."""

    source: str
    reason: str


def frontmatter_notes(warnings: Iterable[ConfigurationFinding]) -> tuple[Note, ...]:
    """Return a note for a frontmatter that was read line by line."""
    messages = (one.message.removeprefix(f"{FRONTMATTER} ") for one in warnings if one.message.startswith(FRONTMATTER))
    return tuple(Note(field="frontmatter", hint=message) for message in messages)


def require_no_secret_reference(text: str) -> tuple[Note, ...]:
    """Return notes about references in `text` that the configuration expands. Raises ValueError for a secret."""
    expanded = expand(text, {})
    if expanded.errors:
        raise ValueError(expanded.errors[0])
    return tuple(
        Note(field=f"${{{name}}}", hint="is replaced by the environment variable when the file is read")
        for name in dict.fromkeys(expanded.names)
    )
