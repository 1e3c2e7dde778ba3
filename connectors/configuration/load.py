"""Loader of the configuration: turns environment and files into a configuration, or a list of all errors.

    environment -> settings -> layers -> trees -> one merged tree -> values -> model -> cross checks

Mistakes of form (YAML, duplicate and unknown keys, values) of all files are reported together; the cross checks are
added whenever the values themselves are valid. Reads files and blocks: main() calls it before its event loop, or in a
thread.

Before: every other file of this package. After: each main() gets a ProcessConfiguration.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from loomlog.connectors.configuration.agent_files import load_agent_files
from loomlog.connectors.configuration.check import check_configuration
from loomlog.connectors.configuration.code_bodies import find_disallowed_code_agents, load_code_bodies
from loomlog.connectors.configuration.disabled_tools import find_disabled_tools
from loomlog.connectors.configuration.environment import PREFIXES, check_names, read_settings, secret_names
from loomlog.connectors.configuration.findings import (
    ConfigurationError,
    ConfigurationFinding,
    did_you_mean,
    format_value,
)
from loomlog.connectors.configuration.layers import find_layers, read_layer
from loomlog.connectors.configuration.memory_block import TENANT_PLACEHOLDER
from loomlog.connectors.configuration.memory_check import check_memory_settings
from loomlog.connectors.configuration.merge import merge
from loomlog.connectors.configuration.model import Configuration, ValidationProblem, validate
from loomlog.connectors.configuration.renamed_keys import rename_keys_of_file
from loomlog.connectors.configuration.secret_registry import (
    MIN_SECRET_LENGTH,
    SecretRegistry,
    build_secret_registry,
    iter_secret_problems,
    secret_uses,
)
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.shape import extract_values, format_path, iter_paths
from loomlog.connectors.configuration.skill_files import load_skill_files
from loomlog.connectors.configuration.storable_text import describe_text_problem
from loomlog.connectors.configuration.tree import (
    MappingEntry,
    MappingNode,
    Mark,
    ScalarNode,
    find_mark,
    iter_scalars,
    read_tree,
    to_plain,
)
from loomlog.connectors.configuration.unsupported_keys import UNSUPPORTED_BLOCKS
from loomlog.connectors.tools.help import load_help_topics

MAX_PROMPT_BYTES = 128 * 1024
"""Bytes of a prompt file; the reference's limit for a whole definition."""
_QUOTED = re.compile(r"'([^']*)'")
_ENV_KEY = re.compile(r"(?:^|_)env$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfiguration:
    """Configuration read from the files."""

    configuration: Configuration
    files: tuple[Path, ...]
    """Files that were read, lowest layer first, without the built-in layer."""
    referenced_names: frozenset[str]
    """Environment names the files expand or name."""
    secret_env_names: frozenset[str]
    """Names among those that keys like token_env and api_key_env refer to."""
    warnings: tuple[ConfigurationFinding, ...]
    tree: MappingNode = field(repr=False)
    """The merged files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfiguration:
    """Settings and configuration that a process gets at its start."""

    settings: Settings
    configuration: Configuration
    files: tuple[Path, ...]
    secrets: Mapping[str, str] = field(repr=False)
    """Values of every secret that is set and long enough to be masked, by name."""
    secret_registry: SecretRegistry = field(repr=False)
    warnings: tuple[ConfigurationFinding, ...]
    tree: MappingNode = field(repr=False)
    """The merged files, for the places of what is found later."""


def load(
    environ: Mapping[str, str],
    *,
    working_directory: Path,
    paths: Sequence[Path] = (),
    family_tools: Collection[str] = (),
) -> ProcessConfiguration:
    """Return the settings and configuration of this process; `family_tools` are names of tools that agents may list
    beside the built-in ones. Raises ConfigurationError with every mistake.
    """
    settings, setting_warnings = read_settings(environ, working_directory=working_directory)
    configuration = load_configuration(
        settings, environ, working_directory=working_directory, paths=paths, family_tools=family_tools
    )
    errors, name_warnings = check_names(environ, configuration.referenced_names)
    if errors:
        raise ConfigurationError(errors)
    registry = build_secret_registry(configuration.configuration, settings, environ)
    secret_env_names = {*configuration.secret_env_names, *registry.variables} - {*settings.bash_allowed_env}
    return ProcessConfiguration(
        settings=settings,
        configuration=configuration.configuration,
        files=configuration.files,
        secrets=_collect_secrets(environ, secret_env_names),
        secret_registry=registry,
        warnings=(*setting_warnings, *name_warnings, *configuration.warnings),
        tree=configuration.tree,
    )


def load_configuration(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    working_directory: Path,
    paths: Sequence[Path] = (),
    family_tools: Collection[str] = (),
) -> LoadedConfiguration:
    """Return the configuration of the files alone. Raises ConfigurationError with every mistake in them."""
    layers, errors, warnings = find_layers(settings, environ, working_directory, paths)
    root = MappingNode(entries={}, mark=Mark(file="", line=0))
    names: set[str] = set()
    for layer in layers:
        try:
            reading = read_tree(read_layer(layer), file=layer.display_name, environ=environ)
        except ValueError as error:
            errors.append(ConfigurationFinding(message=str(error), file=layer.display_name))
            continue
        upper, renaming_errors = rename_keys_of_file(reading.root)
        errors += [*reading.errors, *renaming_errors]
        warnings += reading.warnings
        names |= reading.names
        root, overrides = merge(root, upper)
        (errors if settings.config_strict else warnings).extend(overrides)
    names |= _collect_referenced_names(root, environ)
    errors += _check_help_topics(settings.help_root)
    folders = {layer.display_name: layer.path.parent for layer in layers}
    secret_env_names = _collect_secret_env_names(root, environ)
    root, definition_names = _add_definition_files(
        root, folders, environ, settings, working_directory, errors, warnings
    )
    configuration = _build_configuration(root, folders, environ, settings, errors, warnings, family_tools)
    if errors or configuration is None:
        raise ConfigurationError(_sort_findings(errors))
    return LoadedConfiguration(
        configuration=configuration,
        files=tuple(layer.path for layer in layers if not layer.is_built_in),
        referenced_names=frozenset(names | definition_names),
        secret_env_names=secret_env_names,
        warnings=tuple(dict.fromkeys(_sort_findings(warnings))),
        tree=root,
    )


def _check_help_topics(folder: Path | None) -> list[ConfigurationFinding]:
    try:
        if folder is not None:
            load_help_topics(folder)
    except ValueError as error:
        return [ConfigurationFinding(message=str(error))]
    return []


def _sort_findings(findings: Sequence[ConfigurationFinding]) -> list[ConfigurationFinding]:
    """Sort the findings in the order of the file, from its top."""
    return sorted(findings, key=lambda finding: (finding.file, finding.line))


def _build_configuration(
    root: MappingNode,
    folders: Mapping[str, Path],
    environ: Mapping[str, str],
    settings: Settings,
    errors: list[ConfigurationFinding],
    warnings: list[ConfigurationFinding],
    family_tools: Collection[str],
) -> Configuration | None:
    """Build the model of the merged tree; errors and warnings are added to the two lists."""
    kept = _drop_unsupported_blocks(root, warnings)
    values, unknown = extract_values(kept, Configuration)
    errors += unknown
    _resolve_paths(values, kept, folders, environ)
    errors += _read_prompts(values, kept, folders)
    if settings.code_agents_enabled:
        errors += load_code_bodies(values, kept, settings.code_agents_root)
    else:
        warnings += find_disallowed_code_agents(values, kept)
    configuration, mistakes = validate(values)
    errors += [_to_finding(mistake, kept) for mistake in mistakes]
    if configuration is not None:
        found_errors, found_warnings = check_configuration(configuration, root, family_tools=family_tools)
        errors += found_errors
        warnings += found_warnings
        warnings += find_disabled_tools(configuration, root, settings)
        memory_errors, memory_warnings = check_memory_settings(configuration, root, settings)
        errors += memory_errors
        warnings += memory_warnings
        errors += iter_secret_problems(secret_uses(configuration, settings, environ), root)
    return configuration


def _add_definition_files(
    root: MappingNode,
    folders: dict[str, Path],
    environ: Mapping[str, str],
    settings: Settings,
    working_directory: Path,
    errors: list[ConfigurationFinding],
    warnings: list[ConfigurationFinding],
) -> tuple[MappingNode, set[str]]:
    """Return the tree with the agents and skills of the folders, and the environment names that these expand.

    Findings and the folders of the files are added to the collections.
    """
    names: set[str] = set()
    for block, folder, load_files in (
        ("agents", settings.agents_root, load_agent_files),
        ("skills", settings.skills_root, load_skill_files),
    ):
        if folder is None:
            continue
        try:
            files = load_files(folder, environ=environ, working_directory=working_directory)
        except ConfigurationError as error:
            errors += error.findings
            continue
        errors += files.errors
        warnings += files.warnings
        folders |= files.folders
        names |= files.names
        root, overrides = _put_below(root, block, files.entries)
        (errors if settings.config_strict else warnings).extend(overrides)
    return root, names


def _put_below(
    root: MappingNode, block: str, entries: Mapping[str, MappingEntry]
) -> tuple[MappingNode, list[ConfigurationFinding]]:
    """Return the tree with entries of a block as the layer below it, key by key, and what the tree overrides."""
    above = root.entries.get(block)
    if above is not None and not isinstance(above.node, MappingNode) and to_plain(above.node) is not None:
        return root, []  # the model reports what is wrong with it
    upper = above.node.entries if above is not None and isinstance(above.node, MappingNode) else {}
    lower = {name: _without_prompt(entry, upper.get(name)) for name, entry in entries.items()}
    both, overrides = merge(_build_block(block, lower, root.mark), _build_block(block, upper, root.mark))
    merged = both.entries[block].node
    assert isinstance(merged, MappingNode)
    # First those of the tree, in its order: that is the order in which agents are listed.
    ordered = {name: merged.entries[name] for name in (*upper, *(name for name in lower if name not in upper))}
    mark = root.mark if above is None else above.node.mark
    joined = MappingEntry(
        key_mark=mark if above is None else above.key_mark, node=MappingNode(entries=ordered, mark=mark)
    )
    return MappingNode(entries={**root.entries, block: joined}, mark=root.mark), overrides


def _build_block(name: str, entries: Mapping[str, MappingEntry], mark: Mark) -> MappingNode:
    node = MappingNode(entries=entries, mark=mark)
    return MappingNode(entries={name: MappingEntry(key_mark=mark, node=node)}, mark=mark)


def _without_prompt(entry: MappingEntry, above: MappingEntry | None) -> MappingEntry:
    """Return a Markdown file's entry; without its prompt when the configuration takes it from another file."""
    if above is None or not isinstance(above.node, MappingNode) or "system_prompt_file" not in above.node.entries:
        return entry
    assert isinstance(entry.node, MappingNode)
    kept = {key: value for key, value in entry.node.entries.items() if key != "system_prompt"}
    return MappingEntry(key_mark=entry.key_mark, node=MappingNode(entries=kept, mark=entry.node.mark))


def _drop_unsupported_blocks(root: MappingNode, warnings: list[ConfigurationFinding]) -> MappingNode:
    """Return the tree without the blocks of later versions, each of which gets one warning."""
    entries = dict(root.entries)
    for name, feature in UNSUPPORTED_BLOCKS.items():
        entry = entries.pop(name, None)
        if entry and not (isinstance(entry.node, ScalarNode) and entry.node.value is None):
            message = f"{name} is ignored: {feature} is not in this version"
            warnings.append(ConfigurationFinding(message=message, file=entry.key_mark.file, line=entry.key_mark.line))
    return MappingNode(entries=entries, mark=root.mark)


def _to_finding(mistake: ValidationProblem, root: MappingNode) -> ConfigurationFinding:
    path = mistake.path[:-1] if mistake.path and mistake.path[-1] == "[key]" else mistake.path
    of_key = path != mistake.path
    existing = set(iter_paths(root))
    while path and not mistake.is_missing and isinstance(path[-1], str) and path not in existing:
        path = path[:-1]
    mark = find_mark(root, path, of_key=of_key)
    if mistake.is_missing:
        message = f"{format_path(path)} is missing"
    elif of_key:
        message = f"{format_path(path)} is not a usable name: {mistake.expected}{_suggest_word(mistake)}"
    else:
        is_hidden = _may_be_secret(mistake.value) or any(
            isinstance(step, str) and _ENV_KEY.search(step) for step in path
        )
        text = "this value" if is_hidden else format_value(mistake.value)
        message = f"{format_path(path)}: {text} is not usable: {mistake.expected}{_suggest_word(mistake)}"
    return ConfigurationFinding(message=message, file=mark.file, line=mark.line)


def _may_be_secret(value: object) -> bool:
    """Return whether the value is an address with a password in it."""
    return isinstance(value, str) and "://" in value and "@" in value


def _suggest_word(mistake: ValidationProblem) -> str:
    """Return the nearest of the expected words, when the value is one word of a closed list."""
    return did_you_mean(mistake.value, _QUOTED.findall(mistake.expected)) if isinstance(mistake.value, str) else ""


def _resolve_paths(
    values: Mapping[str, object], root: MappingNode, folders: Mapping[str, Path], environ: Mapping[str, str]
) -> None:
    """Make the paths of volumes and of the OpenAPI file absolute: relative to the folder of the file that has them, `~`
    from HOME.
    """
    blocks: list[tuple[tuple[str, ...], dict[str, object], str]] = [
        (("volumes", name), volume, "path") for name, volume in _list_mappings(values, "volumes")
    ]
    local_api = values.get("local_api")
    if isinstance(local_api, dict):
        blocks.append((("local_api",), local_api, "spec"))
    for place, block, key in blocks:
        path = block.get(key)
        if isinstance(path, str) and path:
            folder = folders.get(find_mark(root, (*place, key)).file, Path())
            home = environ.get("HOME", "")
            expanded = home + path[1:] if home and (path == "~" or path.startswith("~/")) else path
            block[key] = os.path.normpath(folder / expanded)


def _read_prompts(
    values: Mapping[str, object], root: MappingNode, folders: Mapping[str, Path]
) -> list[ConfigurationFinding]:
    """Set `system_prompt` to the text of `system_prompt_file`."""
    findings: list[ConfigurationFinding] = []
    for name, agent in _list_mappings(values, "agents"):
        file = agent.get("system_prompt_file")
        if not isinstance(file, str) or not file:
            continue
        mark = find_mark(root, ("agents", name, "system_prompt_file"))
        where = f"agents.{name}.system_prompt_file"
        if agent.get("system_prompt"):
            message = f"{where}: there is a system_prompt too; give one of them"
            findings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))
            continue
        try:
            text = (folders.get(mark.file, Path()) / file).read_bytes()
            if len(text) > MAX_PROMPT_BYTES:
                raise ValueError(f"it has {len(text)} bytes; at most {MAX_PROMPT_BYTES} are taken")
            agent["system_prompt"] = prompt = text.decode()
            if problem := describe_text_problem(prompt):
                raise ValueError(problem)
        except UnicodeDecodeError:
            findings.append(
                ConfigurationFinding(message=f"{where}: {file} is not UTF-8", file=mark.file, line=mark.line)
            )
        except ValueError as error:
            findings.append(ConfigurationFinding(message=f"{where}: {file}: {error}", file=mark.file, line=mark.line))
        except OSError as error:
            message = f"{where}: {file} cannot be read: {error.strerror}"
            findings.append(ConfigurationFinding(message=message, file=mark.file, line=mark.line))
    return findings


def _list_mappings(values: Mapping[str, object], name: str) -> list[tuple[str, dict[str, object]]]:
    """Return the mappings below a block that have the right form."""
    block = values.get(name)
    return [(key, value) for key, value in block.items() if isinstance(value, dict)] if isinstance(block, dict) else []


def _collect_referenced_names(root: MappingNode, environ: Mapping[str, str]) -> set[str]:
    """Return environment names used as values in the files; one with {tenant_id} covers all with the same beginning."""
    names: set[str] = set()
    for _, leaf in iter_scalars(root):
        if isinstance(leaf.value, str) and leaf.value.startswith(PREFIXES):
            beginning, brace, _ = leaf.value.partition("{")
            if brace and beginning not in PREFIXES:
                names |= {name for name in environ if name.startswith(beginning)}
            else:
                names.add(leaf.value)
    block = root.entries.get("secrets")
    if block is not None and isinstance(block.node, MappingNode):
        names |= {name for name in block.node.entries if isinstance(name, str)}
    return names


def _collect_secret_env_names(root: MappingNode, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the names that keys such as token_env, api_key_env and signing_secret_env refer to, in every block, and
    those of the environment that an env_pattern stands for.
    """
    names: set[str] = set()
    for path, leaf in iter_scalars(root):
        if not path or not isinstance(path[-1], str) or not isinstance(leaf.value, str) or not leaf.value:
            continue
        if _ENV_KEY.search(path[-1]):
            names.add(leaf.value)
        elif path[-1] == "env_pattern" and TENANT_PLACEHOLDER in leaf.value:
            names |= {name for name in environ if fnmatchcase(name, leaf.value.replace(TENANT_PLACEHOLDER, "*"))}
    return frozenset(names)


def _collect_secrets(environ: Mapping[str, str], values: Collection[str]) -> dict[str, str]:
    values = {name: environ.get(name, "").strip() for name in sorted(secret_names() | set(values))}
    return {name: value for name, value in values.items() if len(value) >= MIN_SECRET_LENGTH}
