"""Keys of agents and skills under the names that they had in earlier versions of the reference and have in Claude Code.

They get the name of today while a file is read, so that layers merge whichever name each of them uses.

Before: tree.py. After: load.py for configuration files, agent_files.py and skill_files.py for Markdown.
"""

from collections.abc import Mapping

from loomlog.connectors.configuration.findings import ConfigurationFinding
from loomlog.connectors.configuration.shape import format_path
from loomlog.connectors.configuration.tree import KeyPath, MappingEntry, MappingNode

RENAMED_KEYS: Mapping[str, str] = {"allowed_tools": "tools", "allowed-tools": "tools"}
"""Old name -> name of today."""
RENAMED_BLOCKS = ("agents", "skills")


def rename_keys(block: MappingNode, path: KeyPath = ()) -> tuple[MappingNode, list[ConfigurationFinding]]:
    """Return the block of an agent or a skill with the names of today, and an error for a key that has both."""
    entries = dict(block.entries)
    errors: list[ConfigurationFinding] = []
    for old, new in RENAMED_KEYS.items():
        entry = entries.pop(old, None)
        if entry is not None and entries.setdefault(new, entry) is not entry:
            message = f"{format_path((*path, old))}: {new} says the same; give one of them"
            errors.append(ConfigurationFinding(message=message, file=entry.key_mark.file, line=entry.key_mark.line))
    return MappingNode(entries=entries, mark=block.mark), errors


def rename_keys_of_file(root: MappingNode) -> tuple[MappingNode, list[ConfigurationFinding]]:
    """Return the tree of a configuration file with the names of today in its agents and skills, and the errors."""
    blocks = dict(root.entries)
    errors: list[ConfigurationFinding] = []
    for name in RENAMED_BLOCKS:
        if name not in blocks or not isinstance(node := blocks[name].node, MappingNode):
            continue
        entries = dict(node.entries)
        for key, entry in node.entries.items():
            if isinstance(entry.node, MappingNode) and RENAMED_KEYS.keys() & entry.node.entries.keys():
                renamed, problems = rename_keys(entry.node, (name, key))
                entries[key] = MappingEntry(key_mark=entry.key_mark, node=renamed)
                errors += problems
        blocks[name] = MappingEntry(key_mark=blocks[name].key_mark, node=MappingNode(entries=entries, mark=node.mark))
    return MappingNode(entries=blocks, mark=root.mark), errors
