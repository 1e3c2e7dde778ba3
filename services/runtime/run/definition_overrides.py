"""Overrides of an agent's definition by a caller: fewer tools, never more, and other sampling and compaction, field by
field.

Before: command_handler.py has resolved the agent. After: the run is pinned to the result.
"""

from loomlog.schemas.client_names import visible_name
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.lifecycle.fork import merge_sampling


def apply_overrides(definition: AgentDefinition, command: StartRun) -> AgentDefinition:
    """Return the definition with the caller's overrides: tools only removed, sampling and compaction field by field."""
    if command.tools is None and command.sampling is None and command.compaction is None:
        return definition
    tools = definition.tools if command.tools is None else intersect_grants(definition.tools, command.tools)
    return replace(
        definition,
        tools=tools,
        sampling=merge_sampling(definition.sampling, command.sampling),
        compaction=compaction.merge_compaction(definition.compaction, command.compaction),
    )


def intersect_grants(granted: tuple[str, ...], requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return what both lists of names and trailing-star patterns grant; of two patterns the narrower."""
    granted, requested = tuple(map(visible_name, granted)), tuple(map(visible_name, requested))
    both = [entry for entry in granted if any(_covers(pattern, entry) for pattern in requested)]
    both += [pattern for pattern in requested if any(_covers(entry, pattern) for entry in granted)]
    return tuple(dict.fromkeys(both))


def _covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
