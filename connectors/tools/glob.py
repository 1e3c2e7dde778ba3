"""Glob: files by pattern, the newest first.

Newest first because in a tree under development the files that matter are those that just changed; then by name, so
that the order is total. Folders are listed only for a pattern that ends with a slash: mixed in, they would use up the
hundred results.

A symlink is listed when it leads to a file inside the volume, with that file's time; others are left out.

Before: file_tool.py. After: file_walk.py, path_patterns.py.
"""

import os
import stat

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.file_walk import FileEntry, FileWalk
from loomlog.connectors.tools.path_patterns import PathPattern
from loomlog.connectors.tools.results import ToolCallRefused, encode_text, escape_name
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import PathParts, Volume

GLOB_RESULTS = 100
"""Maximum paths returned; with more matches than this a model should narrow the pattern."""
PATTERN_CHARACTERS = 1000
"""Maximum length of a pattern; longer than any real path pattern."""


def build_glob_tool(threads: ThreadPool) -> FileTool:
    return FileTool(
        name="Glob",
        description=(
            "Finds files in a volume by a path pattern: * and ? within a name, [abc] classes, ** for any folders, for "
            "example src/**/*.py. Returns up to 100 paths relative to the root of the volume, the most recently "
            "changed first. A pattern that ends with / finds folders instead of files."
        ),
        usage_hint="Find files by name; find them by content with Grep.",
        properties={
            "pattern": {
                "type": "string",
                "description": "The pattern, relative to path.",
                "minLength": 1,
                "maxLength": PATTERN_CHARACTERS,
            },
            "path": {
                "type": "string",
                "description": "Folder to search below, relative to the root of the volume. Default: the root.",
                "minLength": 1,
            },
        },
        required=("pattern",),
        effect=EffectClass.READ,
        operation=find_files,
        threads=threads,
    )


def find_files(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    text = arguments["pattern"]
    encode_text(text, "The pattern")
    start = volume.locate(arguments.get("path", "."))
    if text.startswith("/"):
        start, text = (), _relative_to_root(text, volume)
    pattern, kind = PathPattern(text), "folder" if text.endswith("/") else "file"
    walk = FileWalk(volume, cancellation)
    matches: list[tuple[int, str]] = []
    for entry in walk.iterate(start, lambda folder: pattern.may_match_below(folder[len(start) :])):
        if pattern.matches(entry.parts[len(start) :]):
            changed = _modified_ns(volume, entry, kind)
            if changed is not None:
                matches.append((-changed, escape_name("/".join(entry.parts))))
    matches.sort()
    lines = [path for _, path in matches[:GLOB_RESULTS]]
    if not matches:
        lines.append(f'no matches for "{escape_name(arguments["pattern"])}" in volume "{volume.name}"')
    if len(matches) > GLOB_RESULTS:
        lines.append(f"[the {GLOB_RESULTS} newest of {len(matches)} matches; narrow the pattern or path to see others]")
    return "\n".join(lines + walk.footers)


def _relative_to_root(text: str, volume: Volume) -> str:
    root = volume.path.rstrip("/") + "/"
    if not text.startswith(root):
        raise ToolCallRefused(
            f'The pattern "{escape_name(text)}" is absolute and leads outside volume "{volume.name}". Give it relative '
            "to the root of the volume."
        )
    return text[len(root) :]


def _modified_ns(volume: Volume, entry: FileEntry, kind: str) -> int | None:
    """Return the modification time; None when the entry is of another kind, leaves the volume or no longer exists."""
    try:
        parts: PathParts = volume.locate("/".join(entry.parts)) if entry.kind == "link" else entry.parts
        status: os.stat_result = volume.status(parts)
    except ToolCallRefused:
        return None
    is_expected_type = stat.S_ISDIR if kind == "folder" else stat.S_ISREG
    return status.st_mtime_ns if is_expected_type(status.st_mode) else None
