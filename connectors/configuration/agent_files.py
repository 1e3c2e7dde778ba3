"""Agents from the files of LOOMLOG_AGENTS_ROOT: `<name>.md`, in subfolders `<group>/<name>.md`.

The frontmatter has the keys of agents.<name>, the body is the system prompt. Nothing is dropped: the keys are checked
like those of a configuration file. `tools` may be a list, or text with commas; `name` may repeat the file's name.

Before: markdown_files.py. After: load.py adds them to `agents`; `loomlog hash` and imports parse single files.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.layers import display_path
from loomlog.connectors.configuration.markdown_files import (
    MAX_DEFINITIONS,
    DefinitionFiles,
    iter_files,
    read_markdown,
    read_text,
    split_words,
    take_name,
    to_printable,
)
from loomlog.connectors.configuration.renamed_keys import rename_keys
from loomlog.connectors.configuration.shape import extract_values
from loomlog.connectors.configuration.tree import MappingEntry, MappingNode, ParsedFile

AGENTS_SETTING = "LOOMLOG_AGENTS_ROOT"
SUFFIX = ".md"
MAX_AGENT_FILE_BYTES = 128 * 1024
"""Bytes of a file; the reference's limit for a whole definition."""
NO_ENVIRONMENT: Mapping[str, str] = {}


def load_agent_files(root: Path, *, environ: Mapping[str, str], working_directory: Path) -> DefinitionFiles:
    """Return the agents below `root`. Raises ConfigurationError when the folder cannot be read."""
    agents = DefinitionFiles()
    for folder, names in iter_files(root, AGENTS_SETTING, agents.warnings):
        for path in (folder / name for name in names if name.endswith(SUFFIX)):
            file = to_printable(display_path(path, working_directory))
            name = to_printable(path.relative_to(root).with_suffix("").as_posix())
            try:
                text = read_text(path, MAX_AGENT_FILE_BYTES)
            except ValueError as error:
                agents.errors.append(ConfigurationFinding(message=str(error), file=file))
                continue
            agents.add(name, _read_agent(text, name, file, environ), folder)
            if len(agents.entries) > MAX_DEFINITIONS:
                message = f"{AGENTS_SETTING}: more than {MAX_DEFINITIONS} agents in {root}"
                raise ConfigurationError([ConfigurationFinding(message=message)])
    return agents


def parse_agent_file(text: str, name: str, *, environ: Mapping[str, str] = NO_ENVIRONMENT) -> dict[str, object]:
    """Return the keys of agents.<name> that a file sets, as a JSON object; values are not checked.

    Raises ConfigurationError with every mistake of form and every unknown key.
    """
    reading = _read_agent(text, name, name + SUFFIX, environ)
    values, unknown = extract_values(reading.root, AgentBlock)
    if problems := [*reading.errors, *unknown]:
        raise ConfigurationError(problems)
    return {key: _to_json(value) for key, value in values.items()}


def _read_agent(text: str, name: str, file: str, environ: Mapping[str, str]) -> ParsedFile:
    reading, body = read_markdown(text, file=file, environ=environ)
    take_name(reading, name)
    reading.root, errors = rename_keys(reading.root)
    reading.errors += errors
    entries = dict(reading.root.entries)
    if "tools" in entries:
        entries["tools"] = MappingEntry(key_mark=entries["tools"].key_mark, node=split_words(entries["tools"].node))
    if body.value:
        prompt = entries.setdefault("system_prompt", MappingEntry(key_mark=body.mark, node=body))
        if prompt.node is not body:
            message = "system_prompt: the text below the frontmatter is the system prompt too; give one of them"
            reading.errors.append(ConfigurationFinding(message=message, file=file, line=prompt.key_mark.line))
    reading.root = MappingNode(entries=entries, mark=reading.root.mark)
    return reading


def _to_json(value: object) -> object:
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {key: _to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [_to_json(item) for item in value]
    return value
