"""Grep: files, lines or counts that match a regular expression, ordered by path.

RE2 takes time in proportion to the text for any pattern, so a pattern from a model cannot hang a thread. Binary files
(a NUL in the first 8 KiB) and symlinks that leave the volume are skipped. Very large files are skipped too, and listed
in the answer, because they might contain a match.

    content    path:line:text for matching lines, path-line-text for their neighbours, -- between separate groups
    count      path:count of matching lines (in multiline mode of matches)
    otherwise  the paths

Before: file_tool.py. After: file_walk.py, line_matcher.py.
"""

import stat
from collections.abc import Iterator

from loomlog.connectors.protocols import EffectClass
from loomlog.connectors.tools.file_tool import Arguments, FileTool
from loomlog.connectors.tools.file_walk import FileWalk
from loomlog.connectors.tools.line_matcher import Line, LineMatcher, add_context
from loomlog.connectors.tools.path_patterns import NamePattern
from loomlog.connectors.tools.results import ToolCallRefused, decode_text, encode_text, escape_name
from loomlog.connectors.tools.thread_pool import CancellationToken, ThreadPool
from loomlog.connectors.tools.volumes import PathParts, Volume

GREP_OUTPUT_BYTES = 256 * 1024
"""Maximum bytes of the answer; the same limit as Read's, for the same reason."""
HEAD_LIMIT = 100
"""Default number of files or lines returned."""
BINARY_PROBE_BYTES = 8 * 1024
"""Bytes at the start of a file that are checked for a NUL, which marks the file as binary."""
SEARCHED_FILE_BYTES = 16 * 1024 * 1024
"""Largest file that is searched, in bytes; it is held in memory, one for each thread of the pool."""
SHOWN_LINE_BYTES = 8 * 1024
"""Maximum bytes shown of one line, so that a line of a minified file does not use up the whole answer."""
CONTEXT_LINES = 1000
"""Maximum context lines around a match; for more, use Read."""
PATTERN_CHARACTERS = 10_000
"""Maximum length of a pattern. RE2 refuses patterns that compile to too much; this only limits the message."""


def build_grep_tool(threads: ThreadPool) -> FileTool:
    text = {"type": "string", "minLength": 1}
    count = {"type": "integer", "minimum": 0, "maximum": CONTEXT_LINES}
    return FileTool(
        name="Grep",
        description=(
            "Searches the files of a volume for a regular expression (RE2 syntax: no look-around, no back-references). "
            "Returns the paths of matching files, or with output_mode content their lines as path:line:text, or with "
            "output_mode count path:count. Sorted by path. Binary files are left out."
        ),
        usage_hint="Search content first, then Read the files that matter.",
        properties={
            "pattern": {
                **text,
                "description": "The regular expression. It is matched against each line.",
                "maxLength": PATTERN_CHARACTERS,
            },
            "path": {
                **text,
                "description": "File or folder to search, relative to the root of the volume. Default: the root.",
            },
            "glob": {**text, "description": "Only files whose name matches, for example *.py. No folders in it."},
            "output_mode": {
                "type": "string",
                "enum": ["files_with_matches", "content", "count"],
                "description": "What to return. Default: files_with_matches.",
            },
            "case_insensitive": {"type": "boolean", "description": "Ignore case. Default: false."},
            "multiline": {
                "type": "boolean",
                "description": "Let matches span lines; . then matches line ends. Default: false.",
            },
            "head_limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"At most so many paths or lines. Default: {HEAD_LIMIT}.",
            },
            "-A": {**count, "description": "With content: lines to show after each match."},
            "-B": {**count, "description": "With content: lines to show before each match."},
            "-C": {**count, "description": "With content: lines to show before and after; -A and -B go first."},
        },
        required=("pattern",),
        effect=EffectClass.READ,
        operation=search_files,
        threads=threads,
    )


def search_files(arguments: Arguments, volume: Volume, cancellation: CancellationToken) -> str:
    encode_text(arguments["pattern"], "The pattern")
    matcher = LineMatcher(
        arguments["pattern"],
        ignore_case=arguments.get("case_insensitive", False),
        multiline=arguments.get("multiline", False),
    )
    search = _FileSearch(volume, cancellation, names=_compile_name_pattern(arguments.get("glob")))
    limit = arguments.get("head_limit", HEAD_LIMIT)
    lines: list[str] = []
    size = 0
    cut = ""
    for line in _format_matches(search, volume.locate(arguments.get("path", ".")), matcher, arguments):
        if len(lines) == limit:
            cut = f"[the first {limit}; there are more: raise head_limit or narrow the search]"
            break
        size += len(line.encode()) + 1
        if size > GREP_OUTPUT_BYTES:
            cut = f"[cut at {GREP_OUTPUT_BYTES} bytes; there are more: narrow the search]"
            break
        lines.append(line)
    if not lines and not cut:
        lines.append("no matches")
    return "\n".join([*lines, *([cut] if cut else []), *search.footers])


def _compile_name_pattern(glob: str | None) -> NamePattern | None:
    if glob is None:
        return None
    encode_text(glob, "The glob")
    if "/" in glob:
        raise ToolCallRefused(
            f'The glob "{escape_name(glob)}" holds a "/"; it is matched against file names only. Use path too.'
        )
    return NamePattern(glob)


def _format_matches(
    search: "_FileSearch", start: PathParts, matcher: LineMatcher, arguments: Arguments
) -> Iterator[str]:
    """Yield the lines of the answer lazily."""
    mode = arguments.get("output_mode", "files_with_matches")
    both = arguments.get("-C", 0)
    before, after = arguments.get("-B", both), arguments.get("-A", both)
    grouped = before > 0 or after > 0
    first = True
    for path, data in search.files(start):
        if not matcher.has_match(data):
            continue
        if mode == "files_with_matches":
            yield path
        elif mode == "count":
            yield f"{path}:{sum(1 for _ in matcher.spans(data))}"
        else:
            if grouped and not first:
                yield "--"
            first = False
            for line in add_context(data, matcher.lines(data), before=before, after=after):
                if line is not None:
                    yield _format_line(path, line, data)
                elif grouped:
                    yield "--"


def _format_line(path: str, line: Line, data: bytes) -> str:
    mark = ":" if line.matches else "-"
    more = line.end - line.start - SHOWN_LINE_BYTES
    text = decode_text(data[line.start : line.end - max(more, 0)], complete=more <= 0)
    return f"{path}{mark}{line.number}{mark}{text}" + (f" [{more} more bytes]" if more > 0 else "")


class _FileSearch:
    """Readable text files below a folder, with their content."""

    def __init__(self, volume: Volume, cancellation: CancellationToken, *, names: NamePattern | None) -> None:
        self._volume = volume
        self._cancellation = cancellation
        self._names = names
        self._walk = FileWalk(volume, cancellation)
        self._oversized: list[str] = []
        self._unreadable = 0

    def files(self, start: PathParts) -> Iterator[tuple[str, bytes]]:
        if start and not _is_folder(self._volume, start):
            data = self._read_searchable(start, is_explicit=True)
            if data is not None:
                yield escape_name("/".join(start)), data
            return
        for entry in self._walk.iterate(start, lambda folder: True):
            if entry.kind not in ("file", "link") or (self._names and not self._names.matches(entry.parts[-1])):
                continue
            data = self._read_searchable(entry.parts, is_link=entry.kind == "link")
            if data is not None:
                yield escape_name("/".join(entry.parts)), data

    def _read_searchable(self, parts: PathParts, *, is_link: bool = False, is_explicit: bool = False) -> bytes | None:
        """Return the file's bytes; None when it is binary, too large, or unreadable and not named explicitly."""
        try:
            if is_link:
                parts = self._volume.locate("/".join(parts))
                if _is_folder(self._volume, parts):
                    return None
        except ToolCallRefused:
            # Leaves the volume, or is a broken or circular link: not part of the search.
            return None
        try:
            head, size = self._volume.read(parts, BINARY_PROBE_BYTES)
            if b"\0" in head:
                return None
            if size > SEARCHED_FILE_BYTES:
                self._oversized.append(escape_name("/".join(parts)))
                return None
            return head if len(head) < BINARY_PROBE_BYTES else self._volume.read(parts, SEARCHED_FILE_BYTES)[0]
        except ToolCallRefused:
            if is_explicit:
                raise
            self._unreadable += 1
            return None

    @property
    def footers(self) -> list[str]:
        notices = self._walk.footers
        if self._oversized:
            notices.append(
                f"[not searched, over {SEARCHED_FILE_BYTES} bytes: {self._oversized[0]}"
                + (f" and {len(self._oversized) - 1} more]" if len(self._oversized) > 1 else "]")
            )
        if self._unreadable:
            notices.append(f"[{self._unreadable} files could not be read and were left out]")
        return notices


def _is_folder(volume: Volume, parts: PathParts) -> bool:
    return stat.S_ISDIR(volume.status(parts).st_mode)
