"""Common part of all file tools: check the arguments, choose the volume, run in a thread, return the result.

A file tool is its description and one plain function `operation(arguments, volume, cancellation) -> text` that may
raise ToolCallRefused. Everything that must be the same for all of them is implemented here.

Before: registry.py builds them. After: read.py, write.py, edit.py, glob.py, grep.py do the work on a volumes.Volume.
"""

from collections.abc import Callable, Mapping
from typing import Any

from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.results import ToolCallRefused, error_result
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume, choose_volume

FILE_TIMEOUT_S = 30.0
"""Seconds for one call; longer than the longest search (file_walk.py stops after 20 s and reports it), so only a file
system that hangs reaches it.
"""

Arguments = Mapping[str, Any]
FileOperation = Callable[[Arguments, Volume, CancellationToken], str]

VOLUME_PROPERTY: Mapping[str, Any] = {
    "type": "string",
    "description": "Name of the volume to work in. Leave it out for the run's default volume.",
    "minLength": 1,
}


class FileTool:
    """A tool whose work is one blocking function on a volume."""

    side_effect_class = "filesystem"

    def __init__(
        self,
        *,
        name: str,
        description: str,
        usage_hint: str,
        properties: Mapping[str, Mapping[str, Any]],
        required: tuple[str, ...],
        effect: EffectClass,
        operation: FileOperation,
        threads: ThreadPool,
    ) -> None:
        self.name = name
        self.description = description
        self.usage_hint = usage_hint
        self.input_schema: Mapping[str, Any] = {
            "type": "object",
            "properties": {**properties, "volume": VOLUME_PROPERTY},
            "required": list(required),
            "additionalProperties": False,
        }
        self.timeout_s = FILE_TIMEOUT_S
        self.works_in_threads = True
        self._effect = effect
        self._operation = operation
        self._threads = threads

    def effect_class(self, arguments: Arguments) -> EffectClass:
        return self._effect

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        try:
            good = check_arguments(self.name, arguments, self.input_schema)
            binding = choose_volume(good.get("volume"), context.volumes)
            return ToolResult(
                text=await self._threads.run(lambda stop: self._operation(good, Volume.from_binding(binding), stop))
            )
        except ToolCallRefused as reason:
            return error_result(reason)
        except OSError as error:
            # Errors that volumes.py does not handle, such as a disk that fails while a folder is listed. No path in the
            # message: it may be one outside the volume.
            return error_result(
                ToolCallRefused(f"{self.name} failed: {error.strerror or 'the operating system refused'}.")
            )
