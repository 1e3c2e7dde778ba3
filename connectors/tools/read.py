"""Read: the beginning of a file as text.

Raw text, without line numbers, so that it can be passed to Edit unchanged. A file longer than the limit is cut, and a
last line of its own reports it: a model that does not know of the cut draws conclusions from missing text.

Before: file_tool.py. After: volumes.py.
"""

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.results import decode_text
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume

READ_BYTES = 256 * 1024
"""Maximum bytes returned: about 65,000 tokens; more would fill most models' context with one file."""


def build_read_tool(threads: ThreadPool) -> FileTool:
    return FileTool(
        name="Read",
        description=(
            "Returns the text of a file in a volume, unchanged and without line numbers. Only the first 256 KiB are "
            "returned; a longer file ends with a line that says so. Use Grep to find places in long files."
        ),
        usage_hint="Read a file before you edit it; find the place in a long one with Grep.",
        properties={
            "path": {
                "type": "string",
                "description": "Path of the file, relative to the root of the volume.",
                "minLength": 1,
            }
        },
        required=("path",),
        effect=EffectClass.READ,
        operation=read_file,
        threads=threads,
    )


def read_file(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    cancellation.raise_if_cancelled()
    data, size = volume.read(volume.locate(arguments["path"]), READ_BYTES + 1)
    if len(data) <= READ_BYTES:
        return decode_text(data)
    text = decode_text(data[:READ_BYTES], complete=False)
    return f"{text}\n[cut: the first {READ_BYTES} of {max(size, len(data))} bytes]"
