"""Read: a file as text, or a part of it; and parts of an earlier result that was cut.

Raw text, without line numbers, so that it can be passed to Edit unchanged. What is longer than the limit is cut, and a
last line of its own reports it, with the offset at which the next part begins: a model that does not know of the cut
draws conclusions from missing text. The limit is the tool's, or what is left for a result in the model's window.

A result that was cut to the window is read by the id of its call, with a path "result:<id>" that needs no volume. Only
results of the run's own conversation can be read so.

Before: file_tool.py. After: volumes.py.
"""

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.protocols import EffectClass, ToolContext, ToolResult
from loomlog.connectors.tools.arguments import check_arguments
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.results import ToolCallRefused, decode_text, error_result
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume

NAME = "Read"
RESULT_PREFIX = "result:"
"""Beginning of a path that names an earlier result."""
READ_BYTES = 256 * 1024
"""Maximum bytes returned: about 65,000 tokens; more would fill most models' context with one file."""
NOTE_BYTES = 100
"""Bytes that the note about a cut takes, at most."""
OFFSET_MAX = 1 << 40
"""Largest offset in bytes; no file is longer."""


class ReadTool(FileTool):
    """Tool that reads files, and earlier results."""

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        bounded = arguments
        if context.result_bytes_max and isinstance(arguments.get("limit", READ_BYTES), int):
            most = min(READ_BYTES, context.result_bytes_max - NOTE_BYTES)
            bounded = {**arguments, "limit": min(arguments.get("limit", READ_BYTES), most)}
        path = arguments.get("path")
        if not isinstance(path, str) or not path.startswith(RESULT_PREFIX):
            return await super().call(bounded, context)
        try:
            good = check_arguments(self.name, bounded, self.input_schema)
            call_id = path.removeprefix(RESULT_PREFIX)
            text = await context.earlier_result(call_id) if context.earlier_result is not None else None
            if text is None:
                raise ToolCallRefused(
                    f"there is no result of a call {call_id[:80]!r} in this conversation: it was summarised since, or"
                    " the id is wrong."
                )
            data = text.encode()
            offset = good.get("offset", 0)
            return ToolResult(text=_part(data[offset : offset + _limit(good) + 1], len(data), good))
        except ToolCallRefused as refusal:
            return error_result(refusal)
        except ConnectorError as error:
            return error_result(ToolCallRefused(f"the result cannot be read now: {error}"))


def build_read_tool(threads: ThreadPool) -> FileTool:
    return ReadTool(
        name=NAME,
        description=(
            "Returns the text of a file in a volume, unchanged and without line numbers. At most 256 KiB are "
            "returned; a longer file ends with a line that says so and at which offset the next part begins. Use Grep "
            "to find places in long files."
        ),
        usage_hint="Read a file before you edit it; find the place in a long one with Grep.",
        properties={
            "path": {
                "type": "string",
                "description": "Path of the file, relative to the root of the volume.",
                "minLength": 1,
            },
            "offset": {
                "type": "integer",
                "description": "Byte at which to begin. Default: 0.",
                "minimum": 0,
                "maximum": OFFSET_MAX,
            },
            "limit": {
                "type": "integer",
                "description": "Most bytes to return. Default: as many as possible.",
                "minimum": 1,
                "maximum": READ_BYTES,
            },
        },
        required=("path",),
        effect=EffectClass.READ,
        operation=read_file,
        threads=threads,
    )


def read_file(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    cancellation.raise_if_cancelled()
    parts = volume.locate(arguments["path"])
    data, size = volume.read(parts, _limit(arguments) + 1, offset=arguments.get("offset", 0))
    return _part(data, size, arguments)


def _limit(arguments: Arguments) -> int:
    return int(arguments.get("limit", READ_BYTES))


def _part(data: bytes, size: int, arguments: Arguments) -> str:
    """Return what was read from the offset on, at most one byte more than the limit, as text."""
    offset, limit = arguments.get("offset", 0), _limit(arguments)
    if offset and not data:
        raise ToolCallRefused(f"offset {offset} is at or after the end: there are {size} bytes.")
    # A character that begins before the offset belongs to the part before.
    skipped = next((number for number in range(min(len(data), 3)) if data[number] & 0xC0 != 0x80), 0) if offset else 0
    if len(data) <= limit:
        return decode_text(data[skipped:])
    # The next part begins with a whole character, which a text has within four bytes.
    cut = next((place for place in range(limit, max(skipped, limit - 4), -1) if data[place] & 0xC0 != 0x80), limit)
    total = max(size, offset + len(data))
    begun = "the first " if not offset else f"from byte {offset} on, "
    return f"{decode_text(data[skipped:cut])}\n[cut: {begun}{cut} of {total} bytes; offset {offset + cut} reads on]"
