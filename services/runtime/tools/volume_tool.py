"""The tool VolumeDef: a run makes and removes volumes, with the bodies of the HTTP route.

A write carries the call's idempotency key as its command id, and folders are made and removed any number of times with
the same result, so a call that is made again does nothing twice.

Before: services/runtime/definition_setup.py. After: services/families/definition/volumes.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, Tool, ToolContext, ToolResult
from loomlog.services.families.definition.volumes import INPUT_SCHEMA, READS, TOOL, VolumeOperations
from loomlog.services.runtime.tools.definition_tools import OPERATION, IsIsolated, author_of, definition_result
from loomlog.services.runtime.tools.operation_calls import TIMEOUT_S


class VolumeTool:
    """Protocol Tool over the volumes of the run's tenant and of its tree of runs."""

    name = TOOL
    description = (
        "Makes folders that file tools use as volumes. op create makes one: with ephemeral true for this run and the "
        "runs it starts, at once usable by its name and removed when the top-level run ends; without, it lasts, and "
        "is for agents that list its name under volumes. delete keeps the files of one that lasts; purge removes them."
    )
    usage_hint = "create with ephemeral true gives this run and its sub-agents a folder to share"
    side_effect_class = "state"
    timeout_s: float = TIMEOUT_S
    input_schema: Mapping[str, Any] = {**INPUT_SCHEMA, "additionalProperties": False}

    def __init__(self, volumes: VolumeOperations, *, clock_ms: Callable[[], int], is_isolated: IsIsolated) -> None:
        self._volumes = volumes
        self._clock_ms = clock_ms
        self._is_isolated = is_isolated

    def effect_class(self, arguments: Mapping[str, Any]) -> EffectClass:
        return EffectClass.READ if arguments.get(OPERATION) in READS else EffectClass.IDEMPOTENT

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        author = author_of(context, issued_at_ms=self._clock_ms(), is_isolated=self._is_isolated)
        return await definition_result(
            TOOL, context, lambda: self._volumes.run(arguments, author), is_read=arguments.get(OPERATION) in READS
        )


def build_volume_tool(
    volumes: VolumeOperations, *, clock_ms: Callable[[], int], is_isolated: IsIsolated
) -> dict[str, Tool]:
    """Return the tool by its name."""
    return {TOOL: VolumeTool(volumes, clock_ms=clock_ms, is_isolated=is_isolated)}
