"""Edit: replaces exact text in a file.

Works on bytes, so the rest of the file is unchanged, including line ends and invalid UTF-8. A model cannot see which
line ends Read gave it, and writes line feeds: in a file with CR LF they match either line end, the lines that stay keep
theirs, and new lines get that of the place (line_ends.py). An old text with a CR is taken as it is. The old text must
occur exactly once unless all occurrences are to be replaced; overlapping occurrences count as two, because the target
is ambiguous.

Effect class unsafe: after a crash it is unknown whether the rename happened. Run again, an edit whose new text contains
its old text ("a" to "ab") would be applied twice, and any other would report "not found" although it succeeded. To make
it idempotent the hash of the file before the edit would have to be in the intent, and the intent is written before the
tool reads the file.

Before: file_tool.py. After: volumes.py.
"""

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.line_ends import CRLF, LF, replace_lines
from loomlog.connectors.tools.results import ToolCallRefused, encode_text, escape_name
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import Volume
from loomlog.connectors.tools.write import WRITE_BYTES

EDIT_BYTES = WRITE_BYTES
"""Maximum bytes of the file, before and after the edit."""


def build_edit_tool(threads: ThreadPool) -> FileTool:
    return FileTool(
        name="Edit",
        description=(
            "Replaces exact text in a file of a volume (at most 1 MiB). old_string must match the file character by "
            "character, including spaces, and must occur exactly once: give enough of the lines around it, or set "
            "replace_all to change every occurrence. A file keeps its line ends, whether they are LF or CR LF."
        ),
        usage_hint="Copy old_string from what Read returned, with enough lines around it to be unique.",
        properties={
            "path": {
                "type": "string",
                "description": "Path of the file, relative to the root of the volume.",
                "minLength": 1,
            },
            "old_string": {"type": "string", "description": "The text to replace, exactly.", "minLength": 1},
            "new_string": {"type": "string", "description": "The text to put there; empty deletes."},
            "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default: false."},
        },
        required=("path", "old_string", "new_string"),
        effect=EffectClass.UNSAFE,
        operation=edit_file,
        threads=threads,
    )


def edit_file(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    volume.require_writable()
    old, new = encode_text(arguments["old_string"], "old_string"), encode_text(arguments["new_string"], "new_string")
    if old == new:
        raise ToolCallRefused("old_string and new_string are the same: nothing would change.")
    parts = volume.locate(arguments["path"])
    shown = escape_name("/".join(parts))
    cancellation.raise_if_cancelled()
    with volume.lock_file(parts) as change:
        content = change.read(EDIT_BYTES + 1)
        if len(content) > EDIT_BYTES:
            raise ToolCallRefused(f"{shown} is larger than {EDIT_BYTES} bytes, the most that can be edited.")
        takes_line_ends = CRLF in content and b"\r" not in old
        searched = content.replace(CRLF, LF) if takes_line_ends else content
        count = _count_occurrences(searched, old, shown, replace_all=arguments.get("replace_all", False))
        # Computed before replacing: a short old text with a long new one could otherwise need terabytes.
        _check_size(shown, len(content) + count * (len(new) - len(old)))
        edited = replace_lines(content, old, new) if takes_line_ends else content.replace(old, new)
        _check_size(shown, len(edited))
        change.replace(edited, cancellation)
    return f"Replaced {count} occurrence{'' if count == 1 else 's'} in {shown}."


def _check_size(display_name: str, size: int) -> None:
    if size > EDIT_BYTES:
        raise ToolCallRefused(
            f"{display_name} would have {size} bytes after the edit; at most {EDIT_BYTES} are possible."
        )


def _count_occurrences(content: bytes, old: bytes, display_name: str, *, replace_all: bool) -> int:
    first = content.find(old)
    if first < 0:
        raise ToolCallRefused(
            f"old_string does not occur in {display_name}. It must match exactly; Read the file to see its text."
        )
    if replace_all:
        return content.count(old)
    if content.find(old, first + 1) >= 0:
        raise ToolCallRefused(
            f"old_string occurs more than once in {display_name}: nothing was changed. Give more of the text "
            "around the place "
            "that is meant, or set replace_all."
        )
    return 1
