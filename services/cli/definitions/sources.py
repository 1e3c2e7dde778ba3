"""Definitions as files: overlays of one version, lists of several, and the YAML that is written of them.

    read_overlay        --file agent.md, a skill's folder, overlay.yaml, overlay.json, and --set key=value
    read_definitions    a list of {kind, name, overlay}, or kind -> name -> overlay, as the blocks of loomlog.yaml are
    write_definitions   the second form; read_definitions returns the same definitions

YAML is read as configuration files are: bounded, with lines in the messages, `on` and `12:30` as text, references to
the environment expanded.

Before: changes.py, transfer.py. After: loomlog.connectors.configuration.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import yaml

from loomlog.connectors.configuration.agent_files import MAX_AGENT_FILE_BYTES, parse_agent_file
from loomlog.connectors.configuration.findings import ConfigurationError, did_you_mean
from loomlog.connectors.configuration.markdown_files import read_text
from loomlog.connectors.configuration.skill_files import SKILL_FILE, parse_skill_file, read_skill_folder
from loomlog.connectors.configuration.tree import MappingNode, Node, SequenceNode, parse_scalar, read_document, to_plain
from loomlog.connectors.definitions import KINDS
from loomlog.schemas.records import Value
from loomlog.services.cli.claude_code.configuration_file import references_as_written
from loomlog.services.cli.errors import CliError, NotFound, UsageError
from loomlog.services.cli.terminal.output import WARNING, error_console

BLOCKS: Mapping[str, str] = {
    "agents": "agent",
    "skills": "skill",
    "teams": "team",
    "mcp_servers": "mcpserver",
    "scheduled_runs": "schedule",
    "webhooks": "webhook",
    "memory_backends": "memorybackend",
    "document_sources": "documentsource",
    "a2a_agents": "a2aagent",
    "a2a_server_cards": "a2aservercard",
}
"""Blocks of a configuration file with the kind of their entries."""
ITEM_KEYS = frozenset({"kind", "name", "overlay", "parent_def_id"})
PROMPT, PROMPT_FILE, PROMPT_BASE = "system_prompt", "system_prompt_file", "system_prompt_base"
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Bytes of a file with definitions, an export of a whole tenant."""
LINE_WIDTH = 120
_LINE_BREAKS = frozenset("\r\x85\u2028\u2029\ufeff")
"""Characters that a block of YAML would change."""


class Definition(Value, frozen=True, kw_only=True):
    """A definition of a file. The parent is empty for the active version."""

    kind: str
    name: str
    overlay: Mapping[str, Any]
    parent_def_id: str = ""


# --- one definition --------------------------------------------------------------------------------------------------


def read_overlay(kind: str, name: str, file: Path | None, assignments: Sequence[str]) -> dict[str, Any]:
    """Return the overlay of a file, with the assignments over it. Raises CliError with what is wrong."""
    overlay = _read_file(kind, name, file) if file is not None else {}
    for assignment in assignments:
        _assign(overlay, assignment)
    return overlay


def _read_file(kind: str, name: str, file: Path) -> dict[str, Any]:
    folder = file if file.is_dir() else file.parent if file.name == SKILL_FILE else None
    if folder is not None and not (folder / SKILL_FILE).is_file():
        raise NotFound(f"There is no file {folder / SKILL_FILE}; --file takes a file, or the folder of a skill.")
    if not file.exists():
        raise NotFound(f"There is no file {file}.")
    is_markdown = folder is not None or file.suffix == ".md"
    if is_markdown and kind not in ("agent", "skill"):
        raise UsageError(f"{file}: Markdown files are agents or skills; give the {kind} as .yaml or .json.")
    if is_markdown and kind == "agent" and folder is not None:
        raise UsageError(f"{file} is a skill: give --kind skill.")
    if not is_markdown and file.suffix not in (".yaml", ".yml", ".json"):
        raise UsageError(f"{file}: expected a file that ends with .md, .yaml, .yml or .json.")
    try:
        if folder is not None:
            values, findings = read_skill_folder(folder, name, environ=os.environ)
            _warn(findings)
            return values
        text = read_text(file, MAX_AGENT_FILE_BYTES if is_markdown else MAX_FILE_BYTES)
        if is_markdown:
            parse = parse_agent_file if kind == "agent" else parse_skill_file
            return parse(text, name, environ=os.environ)
    except (ConfigurationError, ValueError) as problem:
        raise CliError(f"{file}: {problem}") from problem
    overlay = _parse(text, str(file), os.environ)
    if not isinstance(overlay, dict):
        raise CliError(f"{file}: expected a mapping of the keys of one {kind}.")
    _inline_prompt(overlay, file)
    return overlay


def _assign(overlay: dict[str, Any], assignment: str) -> None:
    """Set a value at a dotted key."""
    key, sign, text = assignment.partition("=")
    steps = key.split(".")
    if not sign or not all(steps):
        raise UsageError(f"--set {assignment!r}: expected KEY=VALUE, such as model=mock-generic or sampling.top_p=0.5.")
    place = overlay
    for step in steps[:-1]:
        place = place.setdefault(step, {})
        if not isinstance(place, dict):
            raise UsageError(f"--set {key}: {step} has a value already, so nothing can be set below it.")
    value = _parse(text, f"--set {key}", references_as_written(text)) if text else ""
    place[steps[-1]] = value


# --- several definitions ---------------------------------------------------------------------------------------------


def read_definitions(file: Path, *, kind: str = "", expands: bool = True) -> list[Definition]:
    """Return the definitions of a file, of one kind or of all. Raises CliError with what is wrong.

    `expands`: whether references to the environment are replaced.
    """
    if not file.is_file():
        raise NotFound(f"There is no file {file}.")
    try:
        text = read_text(file, MAX_FILE_BYTES)
    except ValueError as error:
        raise CliError(f"{file}: {error}.") from error
    document = _parse(text, str(file), os.environ if expands else references_as_written(text))
    if isinstance(document, list):
        definitions = [_item(item, f"{file}: item {place}") for place, item in enumerate(document, 1)]
    elif isinstance(document, dict):
        definitions = [*_entries(document, file, kind)]
    else:
        raise CliError(f"{file}: expected a list of {{kind, name, overlay}}, or blocks such as `agents:`.")
    chosen = [one for one in definitions if kind in ("", one.kind)]
    if not chosen:
        raise CliError(f"{file}: there is no {kind or 'definition'} in it.")
    lines = [(one.kind, one.name) for one in chosen]
    if twice := next((line for line in lines if lines.count(line) > 1), None):
        raise CliError(f"{file}: {' '.join(twice)} is there twice.")
    for one in chosen:
        _inline_prompt(one.overlay, file)
    return chosen


def _item(item: Any, where: str) -> Definition:
    if not isinstance(item, dict):
        raise CliError(f"{where}: expected a mapping with kind, name and overlay.")
    if unknown := next((key for key in item if key not in ITEM_KEYS), None):
        expected = ", ".join(sorted(ITEM_KEYS))
        raise CliError(f"{where}: unknown key {unknown}{did_you_mean(unknown, ITEM_KEYS)}: expected {expected}.")
    for key in ("kind", "name"):
        if not isinstance(item.get(key), str):
            raise CliError(f"{where}: {key} is missing.")
    parent = item.get("parent_def_id") or ""
    if not isinstance(parent, str):
        raise CliError(f"{where}: parent_def_id must be a text.")
    overlay = _require_mapping(item.get("overlay"), f"{where}: overlay")
    return Definition(kind=_kind(item["kind"], where), name=item["name"], overlay=overlay, parent_def_id=parent)


def _entries(document: Mapping[str, Any], file: Path, kind: str) -> Iterable[Definition]:
    for block, entries in document.items():
        if kind and kind not in (block, BLOCKS.get(block)):
            continue
        of_kind = _kind(block, str(file))
        for name, overlay in _require_mapping(entries, f"{file}: {block}").items():
            yield Definition(kind=of_kind, name=name, overlay=_require_mapping(overlay, f"{file}: {block}.{name}"))


def _kind(text: str, where: str) -> str:
    kind = BLOCKS.get(text, text)
    if kind not in KINDS:
        known = (*BLOCKS, *KINDS)
        raise CliError(
            f"{where}: {text} is no kind of definition{did_you_mean(text, known)}: expected {', '.join(known)}. "
            "Of a file with further blocks, --kind takes those of one kind."
        )
    return kind


def _require_mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CliError(f"{where}: expected a mapping.")
    return value


def write_definitions(definitions: Iterable[Definition]) -> str:
    """Return the YAML of definitions by kind and name."""
    blocks: dict[str, dict[str, Any]] = {}
    for one in definitions:
        blocks.setdefault(one.kind, {})[one.name] = one.overlay
    return to_yaml(blocks)


def overlay_of(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlay that gives a content: without what the server sets."""
    left_out = set(KINDS[kind].server_set)
    if content.get(PROMPT_BASE) == content.get(PROMPT):
        left_out.add(PROMPT_BASE)
    return {key: value for key, value in content.items() if key not in left_out}


# --- YAML ------------------------------------------------------------------------------------------------------------


def to_yaml(value: Any) -> str:
    """Return YAML that reads back as the same value by the rules of configuration files; long texts as blocks."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=LINE_WIDTH)
    return text


class _Dumper(yaml.SafeDumper):
    """Writer of texts as blocks, and of texts that would read back as something else in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    is_odd = not isinstance(parse_scalar(text), str) or bool(_LINE_BREAKS & set(text))
    style = '"' if is_odd else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _parse(text: str, file: str, environ: Mapping[str, str]) -> Any:
    """Return the value of a YAML document, or of a JSON file, which has no references. Raises CliError with every
    mistake.
    """
    if file.endswith(".json"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise CliError(f"{file}: not JSON: {error}.") from error
    reading, node = read_document(text, file=file, environ=environ)
    if reading.errors:
        raise CliError("\n".join(map(str, reading.errors)))
    _warn(reading.warnings)
    return _to_json(node)


def _to_json(node: Node) -> Any:
    match node:
        case MappingNode():
            return {key: _to_json(entry.node) for key, entry in node.entries.items()}
        case SequenceNode():
            return [_to_json(item) for item in node.nodes]
    value = to_plain(node)
    return float(value) if isinstance(value, Decimal) else value


def _inline_prompt(overlay: Mapping[str, Any], file: Path) -> None:
    """Replace system_prompt_file by its text; the path counts from the folder of the file."""
    if not isinstance(overlay, dict) or not isinstance(path := overlay.get(PROMPT_FILE), str) or not path:
        return
    if overlay.get(PROMPT):
        raise CliError(f"{file}: {PROMPT_FILE}: there is a {PROMPT} too; give one of them.")
    try:
        overlay[PROMPT] = read_text(file.parent / path, MAX_AGENT_FILE_BYTES)
    except ValueError as error:
        raise CliError(f"{file}: {PROMPT_FILE}: {path}: {error}.") from error
    del overlay[PROMPT_FILE]


def _warn(findings: Iterable[Any]) -> None:
    for finding in findings:
        error_console().print(str(finding), style=WARNING)
