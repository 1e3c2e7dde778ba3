"""Walk of a volume: everything below a folder, ordered by full path, within limits.

Order: a folder sorts as its name with a slash, so the walk's order is the order of the full path strings, and a search
can stop early and still have returned the first files. No entry is skipped because of its name: a search that silently
skips `.git` or `node_modules` reports "no matches" although files match. Big trees are limited instead, by entries and
by time, and the walk reports that it was cut.

Symlinks are yielded as such and never followed: a link to a place inside the volume leads to what the walk visits
anyway, and cycles cannot occur. Folders are opened by volumes.Volume from the root each time, so a folder swapped for a
link is not entered and no descriptor stays open while the caller works.

Before: glob.py, grep.py. After: volumes.py.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from loomlog.connectors.tools.results import ToolCallRefused
from loomlog.connectors.tools.thread_pool import CancellationToken, Deadline
from loomlog.connectors.tools.volumes import PathParts, Volume

MAX_ENTRIES = 200_000
"""Maximum entries visited by one walk: about a second of work, and more files than most repositories have."""
WALK_TIMEOUT_S = 20.0
"""Seconds for one walk, including the work on its files; below the tools' timeout, so that a partial answer is
returned.
"""
CLOCK_CHECK_INTERVAL = 1024
"""Entries between two checks of cancellation."""

EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    parts: PathParts
    kind: EntryKind


class FileWalk:
    """A walk that can be iterated once; afterwards `footers` reports what was left out."""

    def __init__(
        self,
        volume: Volume,
        cancellation: CancellationToken,
        *,
        max_entries: int = MAX_ENTRIES,
        deadline: Deadline | None = None,
    ) -> None:
        self._volume = volume
        self._cancellation = cancellation
        self._max_entries = max_entries
        self._deadline = deadline or Deadline(WALK_TIMEOUT_S)
        self._visited = 0
        self._unreadable = 0
        self._limit_notice = ""

    def iterate(self, start: PathParts, should_enter: Callable[[PathParts], bool]) -> Iterator[FileEntry]:
        """Yield everything below `start`, sorted by path; folders that `should_enter` rejects are not opened.

        Raises ToolCallRefused when `start` itself cannot be opened, WorkCancelled when the call was cancelled.
        """
        pending = [iter(self._list_folder(start))]
        while pending:
            entry = next(pending[-1], None)
            if entry is None:
                pending.pop()
                continue
            self._cancellation.raise_if_cancelled()
            if not self._limit_notice and self._deadline.is_expired:
                self._limit_notice = (
                    f"[stopped after {WALK_TIMEOUT_S:.0f} s: later files were not seen; narrow the path or pattern]"
                )
            if self._limit_notice.startswith("[stopped"):
                return
            yield entry
            if entry.kind == "folder" and not self._limit_notice and should_enter(entry.parts):
                try:
                    pending.append(iter(self._list_folder(entry.parts)))
                except ToolCallRefused:
                    # Deleted, not permitted, or swapped for a link since its parent was listed.
                    self._unreadable += 1

    @property
    def footers(self) -> list[str]:
        notices = [self._limit_notice] if self._limit_notice else []
        if self._unreadable:
            notices.append(f"[{self._unreadable} folders could not be opened and were left out]")
        return notices

    def _list_folder(self, parts: PathParts) -> list[FileEntry]:
        """Return a folder's entries, sorted; at most as many as the entry limit still allows."""
        keyed: list[tuple[str, FileEntry]] = []
        with self._volume.open_folder(parts) as folder, os.scandir(folder) as listing:
            for dir_entry in listing:
                if self._visited >= self._max_entries:
                    self._limit_notice = (
                        f"[cut: the search looked at {self._max_entries} entries and then stopped; "
                        "narrow the path or pattern]"
                    )
                    break
                self._visited += 1
                if self._visited % CLOCK_CHECK_INTERVAL == 0:
                    self._cancellation.raise_if_cancelled()
                kind = _entry_kind(dir_entry)
                key = dir_entry.name + "/" if kind == "folder" else dir_entry.name
                keyed.append((key, FileEntry(parts=(*parts, dir_entry.name), kind=kind)))
        keyed.sort(key=lambda pair: pair[0])
        return [entry for _, entry in keyed]


def _entry_kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
