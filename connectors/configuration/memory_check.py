"""Cross-checks of the blocks of memory, and of the keys of agents that use it.

Before: memory_block.py. After: check.py adds the problems of the files alone, load.py those that depend on settings.
"""

from collections.abc import Iterator, Mapping

from loomlog.connectors.configuration.agent_block import AgentBlock, find_duplicate_label
from loomlog.connectors.configuration.findings import ConfigurationFinding, did_you_mean
from loomlog.connectors.configuration.memory_block import (
    MAX_SCOPE_ID_CHARACTERS,
    STUB_EMBEDDER,
    MemoryEntryBlock,
    iter_backend_problems,
    memory_placeholders,
)
from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.shape import format_path
from loomlog.connectors.configuration.tree import KeyPath, MappingNode, find_mark

Problem = tuple[KeyPath, str]
MEMORY_TOOL = "Memory"
PLACEHOLDER_SCOPES: Mapping[str, str] = {"user_info": "user", "tenant_info": "tenant"}
"""Scopes of memory that placeholders show."""
WITHOUT_DEFAULT_MODEL = frozenset({"ollama", "ollama-local"})
"""Embedders whose models are those that their server has."""


def iter_memory_errors(configuration: Configuration) -> Iterator[Problem]:
    """Yield the place of every mistake in the blocks of memory, with a message."""
    memory = configuration.memory
    if memory.embedder and memory.embedder.provider in WITHOUT_DEFAULT_MODEL and not memory.embedder.model:
        yield ("memory", "embedder"), f"{memory.embedder.provider} has no default model; give one as model"
    bands = memory.consolidation
    if bands.related_threshold >= bands.merge_threshold:
        message = f"is {bands.related_threshold:g}: expected less than merge_threshold ({bands.merge_threshold:g})"
        yield ("memory", "consolidation", "related_threshold"), message
    yield from _iter_entry_errors(memory.entries)
    for name, backend in configuration.memory_backends.items():
        for problem in iter_backend_problems(backend):
            yield ("memory_backends", name, *problem.path), problem.message


def _iter_entry_errors(entries: tuple[MemoryEntryBlock, ...]) -> Iterator[Problem]:
    first: dict[tuple[str, str, str], int] = {}
    for position, entry in enumerate(entries):
        path: KeyPath = ("memory", "entries", position)
        if entry.scope == "tenant" and entry.scope_id:
            yield (*path, "scope_id"), "the scope tenant has no id; leave it out"
        elif entry.scope != "tenant" and not (
            0 < len(entry.scope_id) <= MAX_SCOPE_ID_CHARACTERS and entry.scope_id.isprintable()
        ):
            owner = "the name of the agent" if entry.scope == "agent" else "the id of the user"
            yield (*path, "scope_id"), f"expected {owner}, 1 to {MAX_SCOPE_ID_CHARACTERS} characters"
        same = first.setdefault((entry.scope, entry.scope_id, entry.key), position)
        if same != position:
            yield (*path, "key"), f"memory.entries[{same}] sets this key of the same scope already"


def iter_agent_errors(configuration: Configuration, name: str, agent: AgentBlock) -> Iterator[Problem]:
    """Yield what is wrong with the memory keys of an agent."""
    path: KeyPath = ("agents", name)
    if agent.memory_backend and agent.memory_backend not in configuration.memory_backends:
        hint = did_you_mean(agent.memory_backend, configuration.memory_backends)
        message = (
            f"there is no backend {agent.memory_backend} in memory_backends; leave it out for the memory here{hint}"
        )
        yield (*path, "memory_backend"), message
    position = find_duplicate_label(agent.core_blocks)
    if position is not None:
        message = f"an earlier block is called {agent.core_blocks[position].label} already"
        yield (*path, "core_blocks", position, "label"), message


def iter_agent_warnings(name: str, agent: AgentBlock) -> Iterator[Problem]:
    """Yield the memory keys of an agent that have no effect."""
    path: KeyPath = ("agents", name)
    if MEMORY_TOOL in agent.tools and not (agent.memory_scopes or agent.sql_scopes):
        message = "Memory refuses every call, because memory_scopes and sql_scopes are empty"
        yield (*path, "tools", agent.tools.index(MEMORY_TOOL)), message
    for placeholder in sorted(PLACEHOLDER_SCOPES.keys() & set(memory_placeholders(agent.system_prompt))):
        if (scope := PLACEHOLDER_SCOPES[placeholder]) not in agent.memory_scopes:
            message = f"{{{{memory:{placeholder}}}}} stays empty, because memory_scopes has no {scope}"
            yield (*path, "system_prompt"), message
    if isinstance(agent.memory_consolidation, Mapping) and agent.memory_consolidation.keys() - {"enabled"}:
        message = "only `enabled` is read here; thresholds are those of memory.consolidation, for all agents"
        yield (*path, "memory_consolidation"), message


def check_memory_settings(
    configuration: Configuration, root: MappingNode, settings: Settings
) -> tuple[list[ConfigurationFinding], list[ConfigurationFinding]]:
    """Return (errors, warnings) about what the files ask of memory and the settings do not allow."""
    memory = configuration.memory
    errors: list[Problem] = [
        (
            ("memory", "entries", position, "value"),
            f"has {size} bytes as JSON; at most {settings.memory_max_value_bytes} are taken "
            "(LOOMLOG_MEMORY_MAX_VALUE_BYTES)",
        )
        for position, entry in enumerate(memory.entries)
        if (size := len(entry.json_text.encode())) > settings.memory_max_value_bytes
    ]
    warnings: list[Problem] = []
    embedder = memory.embedder
    if settings.embedder_stub and embedder and embedder.provider != STUB_EMBEDDER:
        message = f"LOOMLOG_EMBEDDER_STUB is set, so the embedder is stub and not {embedder.provider}"
        warnings.append((("memory", "embedder", "provider"), message))
    embedded = [position for position, entry in enumerate(memory.entries) if entry.embed]
    if embedded and not embedder and not settings.embedder_stub:
        message = "there is no memory.embedder, so the entry is not found by meaning"
        warnings.append((("memory", "entries", embedded[0], "embed"), message))
    active = [name for name, one in configuration.change_subscriptions.items() if not one.disabled]
    if active and not settings.memory_changes_enabled:
        message = "sends nothing, because LOOMLOG_MEMORY_CHANGES_ENABLED is 0"
        warnings.append((("change_subscriptions", active[0]), message))
    users = [name for name, agent in configuration.agents.items() if agent.sql_scopes]
    if users and not settings.sqlmem_enabled:
        message = "has no effect, because LOOMLOG_SQLMEM_ENABLED is 0"
        warnings.append((("agents", users[0], "sql_scopes"), message))
    return _build_findings(root, errors), _build_findings(root, warnings)


def _build_findings(root: MappingNode, problems: list[Problem]) -> list[ConfigurationFinding]:
    marks = [(find_mark(root, path), f"{format_path(path)}: {message}") for path, message in problems]
    return [ConfigurationFinding(message=message, file=mark.file, line=mark.line) for mark, message in marks]
