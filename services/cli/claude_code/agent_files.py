"""Agents of Claude Code: agents/*.md becomes entries of `agents`.

The name of the file is the name of the agent. Frontmatter: description, model and tools are carried over, the body is
the system prompt, each other key is a note. A grant is never widened: tools with a restriction in parentheses and
disallowed tools are left out. A frontmatter that is not YAML is read line by line, because Claude Code accepts
descriptions with colons in them, also over several lines.

Before: command.py. After: entries.py.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from loomlog.connectors.configuration.agent_block import AgentBlock
from loomlog.connectors.configuration.agent_files import MAX_AGENT_FILE_BYTES
from loomlog.connectors.configuration.check import ALL_TOOLS
from loomlog.connectors.configuration.field_types import AGENT_NAME_LENGTH
from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.markdown_files import (
    read_markdown,
    read_text,
    split_words,
    to_printable,
)
from loomlog.connectors.configuration.memory_block import unknown_memory_placeholders
from loomlog.connectors.configuration.presets import load_presets
from loomlog.connectors.configuration.tree import to_plain
from loomlog.connectors.tools.tool_guide import unknown_placeholders
from loomlog.services.cli.claude_code.configuration_file import mapping_of, references_as_written
from loomlog.services.cli.claude_code.entries import (
    Entry,
    Note,
    Skipped,
    frontmatter_notes,
    require_no_secret_reference,
)

DEFAULT_MODEL = "sonnet"
"""Model of agents that inherit theirs, when the configuration has no `defaults`."""
RENAMED_TOOLS: Mapping[str, str] = {
    "LS": "Glob",
    "MultiEdit": "Edit",
    "NotebookRead": "Read",
    "Task": "Agent",
}
TOOL_HINTS: Mapping[str, str] = {
    "AskUserQuestion": "grant Interruption and set agents.{name}.interruption.enabled",
    "BashOutput": "not needed: Bash returns the output",
    "KillBash": "not needed: a command ends with its call",
    "KillShell": "not needed: a command ends with its call",
    "SlashCommand": "there are no slash commands here",
    "TodoRead": "no equivalent; the prompt may ask for a list in a file of a volume",
    "TodoWrite": "no equivalent; the prompt may ask for a list in a file of a volume",
}
NO_TOOLS = "Claude Code gives all its tools to such an agent; here it has none until agents.{name}.tools lists them"
FIELD_HINTS: Mapping[str, str] = {
    "background": "every run is in the background; `loomlog run` follows it",
    "color": "only shown in Claude Code; nothing to do",
    "disallowedTools": "taken out of agents.{name}.tools; a tool that is not listed there is not granted",
    "hooks": "register hooks over POST /v1/hooks",
    "isolation": "give the agent a volume of its own in agents.{name}.volumes",
    "maxTurns": "set agents.{name}.max_iterations",
    "mcpServers": "servers belong to the block mcp_servers; grant their tools as mcp__SERVER__TOOL",
    "memory": "set agents.{name}.memory_scopes",
    "output_style": "write the style into the system prompt",
    "outputStyle": "write the style into the system prompt",
    "permissionMode": "agents.{name}.tools lists what is allowed; a hook can check or deny each call",
    "skills": "agents.{name}.skills takes patterns of the names of skills",
    "subagents": "grant the tool Agent; the prompt says which agents to start",
    "temperature": "set agents.{name}.sampling.temperature",
    "top_p": "set agents.{name}.sampling.top_p",
}
LISTS = frozenset({"tools", "allowed-tools", "disallowedTools"})
"""Fields that may be written as text with commas."""
MAPPED_FIELDS = frozenset({"name", "description", "model", "tools"})
AGENT_KEYS = frozenset(field.name for field in fields(AgentBlock))
FRONTMATTER_KEYS = frozenset({*MAPPED_FIELDS, *LISTS, *FIELD_HINTS, *AGENT_KEYS})
"""Keys that a line of a frontmatter may begin with that is not YAML."""
SCHEDULING_NAMES = ("-scheduler", "-orchestrator")
AUTHORING_NAMES = ("-evolver", "-author")
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{AGENT_NAME_LENGTH}}}")
_MCP_TOOL = re.compile(r"mcp__[A-Za-z0-9_-]+\*?")
_WHOLE_SERVER = re.compile(r"mcp__(?:(?!__).)+")


def read_agents(
    folder: Path, configuration: Mapping[str, Any], family_tools: Collection[str]
) -> tuple[list[Entry], list[Skipped]]:
    """Return the agents of folder/agents, with the aliases of models they need, and the files that are no agents.

    `configuration`: blocks of the file that the entries go to; `family_tools`: names of tools of families.
    """
    entries: list[Entry] = []
    skipped: list[Skipped] = []
    tools = {*ALL_TOOLS, *family_tools, *mapping_of(configuration, "remote_tools")}
    for path in sorted((folder / "agents").glob("*.md")):
        source = f"agents/{to_printable(path.name)}"
        try:
            entries.append(_read_agent(path, source, configuration, tools))
        except ValueError as problem:
            skipped.append(Skipped(source=source, reason=str(problem)))
    return [*_aliases(entries, mapping_of(configuration, "models")), *entries], skipped


def read_frontmatter(path: Path, source: str, max_bytes: int) -> tuple[dict[str, Any], str, tuple[Note, ...]]:
    """Return the frontmatter, the body, and a note when the frontmatter is not YAML. Raises ValueError."""
    try:
        text = read_text(path, max_bytes).replace("\r\n", "\n")
    except ValueError as error:
        raise ValueError(str(error)) from error
    reading, body = read_markdown(text, file=source, environ=references_as_written(text), keys=FRONTMATTER_KEYS)
    if reading.errors:
        raise ValueError(f"line {reading.errors[0].line}: {reading.errors[0].message}")
    nodes = {key: entry.node for key, entry in reading.root.entries.items()}
    head = {key: to_plain(split_words(node) if key in LISTS else node) for key, node in nodes.items()}
    return head, str(body.value), frontmatter_notes(reading.warnings)


def _read_agent(path: Path, source: str, configuration: Mapping[str, Any], tools: Collection[str]) -> Entry:
    name = path.stem
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{to_printable(name)!r} is no name of an agent: expected letters, digits, _ and -; rename the file"
        )
    head, prompt, notes = read_frontmatter(path, source, MAX_AGENT_FILE_BYTES)
    if not prompt.strip():
        raise ValueError("it has no prompt: the text below the frontmatter is empty")
    description = _text(head, "description")
    model, model_notes = _model(_text(head, "model"), configuration, name)
    granted, tool_notes = _tools(head, tools, name)
    references = require_no_secret_reference(f"{description}\n{prompt}")
    for placeholder in unknown_placeholders(prompt):
        raise ValueError(f"{{{{tool:{placeholder}}}}} is no placeholder; a backslash before it keeps it as text")
    for placeholder in unknown_memory_placeholders(prompt):
        raise ValueError(f"{{{{memory:{placeholder}}}}} is no placeholder; a backslash before it keeps it as text")
    scopes = _scopes(name)
    servers = sorted({tool.split("__")[1] for tool in granted if tool.startswith("mcp__")})
    return Entry(
        block="agents",
        name=name,
        source=source,
        value={
            **({"description": description} if description else {}),
            **model,
            **({"tools": granted} if granted else {}),
            **scopes,
            "system_prompt": prompt,
        },
        comments=tuple(f"needs the MCP server {server} and its credentials" for server in servers),
        notes=(
            *notes,
            *_field_notes(head, name),
            *model_notes,
            *tool_notes,
            *(
                Note(field=key, hint=f"{scope[0]} is granted because of the name; check it")
                for key, scope in scopes.items()
            ),
            *references,
        ),
    )


def _text(head: Mapping[str, Any], key: str) -> str:
    value = head.get(key)
    if isinstance(value, dict | tuple):
        raise ValueError(f"{key}: expected a text")
    return "" if value is None else str(value).strip()


def _field_notes(head: Mapping[str, Any], name: str) -> Iterator[Note]:
    for key in head:
        if key == "name":
            if (text := _text(head, key)) != name:
                yield Note(field=key, hint=f"{text} is not used: the name of the file counts, {name}")
        elif key not in MAPPED_FIELDS:
            unknown = f"no equivalent; docs/SETTINGS.md has the keys of agents{did_you_mean(key, AGENT_KEYS)}"
            hint = FIELD_HINTS.get(key, "set agents.{name}." + key if key in AGENT_KEYS else unknown)
            yield Note(field=key, hint=hint.format(name=name))


def _model(model: str, configuration: Mapping[str, Any], name: str) -> tuple[dict[str, str], list[Note]]:
    """Return the keys of the agent's model, and notes."""
    if model in mapping_of(configuration, "models") or model in _preset_aliases():
        return {"model": model}, []
    if model.startswith("claude-"):
        return {"provider": "anthropic", "model": model}, []
    has_default = bool(mapping_of(configuration, "defaults"))
    used = "the model of `defaults`" if has_default else DEFAULT_MODEL
    keys = {} if has_default else {"model": DEFAULT_MODEL}
    if model in ("", "inherit"):
        return keys, [Note(field="model", hint=f"it has none of its own; {used} is used")]
    hint = f"{model} is not known; {used} is used until agents.{name} has a provider and a model"
    return keys, [Note(field="model", hint=hint)]


def _aliases(entries: list[Entry], existing: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the aliases that agents name and the file does not have, as the preset base defines them."""
    aliases = _preset_aliases()
    names = {str(entry.value.get("model")) for entry in entries if "provider" not in entry.value}
    for name in sorted(names & aliases.keys() - existing.keys()):
        yield Entry(block="models", name=name, source="preset base", value=aliases[name])


def _preset_aliases() -> Mapping[str, Mapping[str, str]]:
    aliases: Mapping[str, Mapping[str, str]] = yaml.safe_load(load_presets()["base"].content)["models"]
    return aliases


def _tools(head: Mapping[str, Any], known: Collection[str], name: str) -> tuple[tuple[str, ...], list[Note]]:
    """Return the granted tools in their order, and notes."""
    names = _tool_names(head, "tools")
    if not names:
        return (), [Note(field="tools", hint=NO_TOOLS.format(name=name))]
    denied = {_renamed(tool.split("(")[0]) for tool in _tool_names(head, "disallowedTools")}
    granted: list[str] = []
    notes: list[Note] = []
    for tool in names:
        renamed = _renamed(tool)
        if blocked := sorted(one for one in denied if fnmatchcase(one, renamed) or fnmatchcase(renamed, one)):
            notes.append(Note(field=tool, hint=f"left out: disallowedTools has {', '.join(blocked)}"))
        elif "(" in tool:
            hint = f"left out: there are no restrictions in parentheses; list {tool.split('(')[0]} to grant all of it"
            notes.append(Note(field=tool, hint=hint))
        elif renamed not in known and not _MCP_TOOL.fullmatch(renamed) and renamed != "*":
            hint = TOOL_HINTS.get(tool, f"there is no such tool{did_you_mean(tool, known)}")
            notes.append(Note(field=tool, hint=f"left out: {hint.format(name=name)}"))
        else:
            if renamed != tool:
                notes.append(Note(field=tool, hint=f"is {renamed} here"))
            granted.append(renamed)
    return tuple(dict.fromkeys(granted)), notes


def _renamed(tool: str) -> str:
    return f"{tool}__*" if _WHOLE_SERVER.fullmatch(tool) else RENAMED_TOOLS.get(tool, tool)


def _tool_names(head: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = head.get(key) or ()
    if not isinstance(value, tuple) or not all(isinstance(tool, str) for tool in value):
        raise ValueError(f"{key}: expected a list of names")
    return value


def _scopes(name: str) -> dict[str, tuple[str, ...]]:
    if name.endswith(SCHEDULING_NAMES):
        return {"schedule_def_scopes": ("any",)}
    if name.endswith(AUTHORING_NAMES) or "-meta-" in name:
        return {"agent_def_scopes": ("self",)}
    return {}
