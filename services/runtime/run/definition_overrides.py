"""Overrides of an agent's definition by a caller: fewer tools, never more, and other sampling and compaction, field by
field.

Before: command_handler.py has resolved the agent. After: the run is pinned to the result.
"""

from collections.abc import Mapping
from typing import Any

from loomlog.connectors.json_schema import SchemaRefused
from loomlog.connectors.output_schema import (
    INTERACTIVE_WITH_SCHEMA,
    parse_output_schema,
    schema_sha256,
    schema_text,
)
from loomlog.schemas.client_names import visible_name
from loomlog.schemas.generated.run_commands import StartRun
from loomlog.schemas.generated.values import AgentDefinition
from loomlog.schemas.records import replace
from loomlog.services.core.run.conversation import compaction
from loomlog.services.core.run.lifecycle.fork import merge_sampling
from loomlog.services.core.run.limits import OUTPUT_RETRIES_DEFAULT, OUTPUT_RETRIES_MAX


def apply_overrides(definition: AgentDefinition, command: StartRun) -> AgentDefinition:
    """Return the definition with the caller's overrides: tools only removed, sampling and compaction field by field,
    the output schema as a whole. Raises SchemaRefused.
    """
    if command.output_schema or command.output_retries is not None:
        definition = _with_output(definition, command)
    if command.tools is None and command.sampling is None and command.compaction is None:
        return definition
    tools = definition.tools if command.tools is None else intersect_grants(definition.tools, command.tools)
    return replace(
        definition,
        tools=tools,
        sampling=merge_sampling(definition.sampling, command.sampling),
        compaction=compaction.merge_compaction(definition.compaction, command.compaction),
    )


def _with_output(definition: AgentDefinition, command: StartRun) -> AgentDefinition:
    """Return the definition with the output schema of the run. Raises SchemaRefused."""
    retries = command.output_retries
    if retries is not None and not 0 <= retries <= OUTPUT_RETRIES_MAX:
        raise SchemaRefused(f"output_retries is {retries}; expected 0 to {OUTPUT_RETRIES_MAX}")
    if not command.output_schema:
        return replace(definition, output_retries=retries or 0) if definition.output_schema_sha256 else definition
    if command.options.interactive:
        raise SchemaRefused(INTERACTIVE_WITH_SCHEMA)
    own = definition.output_retries if definition.output_schema_sha256 else OUTPUT_RETRIES_DEFAULT
    schema = parse_output_schema(command.output_schema)
    return replace(definition, **output_fields(schema, own if retries is None else retries))


def output_fields(schema: Mapping[str, Any], retries: int) -> dict[str, Any]:
    """Return the fields of a definition for an output schema."""
    return {
        "output_schema": schema_text(schema),
        "output_schema_blob": None,
        "output_schema_sha256": schema_sha256(schema),
        "output_retries": retries,
    }


def intersect_grants(granted: tuple[str, ...], requested: tuple[str, ...]) -> tuple[str, ...]:
    """Return what both lists of names and trailing-star patterns grant; of two patterns the narrower."""
    granted, requested = tuple(map(visible_name, granted)), tuple(map(visible_name, requested))
    both = [entry for entry in granted if any(_covers(pattern, entry) for pattern in requested)]
    both += [pattern for pattern in requested if any(_covers(entry, pattern) for entry in granted)]
    return tuple(dict.fromkeys(both))


def _covers(pattern: str, name: str) -> bool:
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))
