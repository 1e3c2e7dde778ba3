"""Write: a file's whole content.

Effect class idempotent: the same call again leaves the same bytes at the same path. (A re-run after a crash overwrites
changes made by others in between; writing whole files implies that, also without a crash.)

Before: file_tool.py. After: volumes.py.
"""

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.results import ToolCallRefused, encode_text, escape_name
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume

WRITE_BYTES = 1024 * 1024
"""Maximum bytes of a file's content; the largest argument worth carrying through the log. Edit has the same limit."""


def build_write_tool(threads: ThreadPool) -> FileTool:
    return FileTool(
        name="Write",
        description=(
            "Creates a file in a volume, or replaces all of its content, in one step: readers see the old or the new "
            "content, never a mixture. At most 1 MiB. The folder must exist. To change a part of a file use Edit."
        ),
        usage_hint="For new files; change a part of a file with Edit.",
        properties={
            "path": {
                "type": "string",
                "description": "Path of the file, relative to the root of the volume.",
                "minLength": 1,
            },
            "content": {"type": "string", "description": "The whole new content of the file; may be empty."},
        },
        required=("path", "content"),
        effect=EffectClass.IDEMPOTENT,
        operation=write_file,
        threads=threads,
    )


def write_file(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    volume.require_writable()
    content = encode_text(arguments["content"], "The content")
    if len(content) > WRITE_BYTES:
        raise ToolCallRefused(
            f"The content has {len(content)} bytes; at most {WRITE_BYTES} can be written. Split the file."
        )
    parts = volume.locate(arguments["path"])
    cancellation.raise_if_cancelled()
    with volume.lock_file(parts) as change:
        change.replace(content, cancellation)
    return f"Wrote {len(content)} bytes to {escape_name('/'.join(parts))}."
