"""Walking a volume: everything below a folder, in the order of the full paths, within bounds.

Order: a folder sorts as its name with a slash, which makes the walk's order the order of the full path strings; so a
search can stop early and still have shown the first files. Nothing is left out because of its name: a search that
silently skips `.git` or `node_modules` says "no matches" about files that match. Big trees are bounded instead, by
entries and by time, and the walk says that it was cut.

Symlinks are yielded as such and never descended into: a link that stays inside leads to what the walk sees anyway, and
circles cannot happen. Folders are opened by volumes.Volume from the root each time, so none swapped for a link is
entered and no descriptor stays open while the caller works.

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
"""Entries looked at by one walk: about a second of work, and more files than most repositories have."""
WALK_TIMEOUT_S = 20.0
"""Time for one walk and what is done to its files; under the tools' time-out, so that a partial answer comes."""
CLOCK_CHECK_INTERVAL = 1024
"""Entries between two looks at the clock."""

EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    parts: PathParts
    kind: EntryKind


class FileWalk:
    """Iterate it once; afterwards `footers` says what it did not see."""

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
        """Everything below `start` but not itself, sorted by path; folders that `enters` refuses are not opened.

        Raises Refusal when `start` itself cannot be opened, Stopped when the call was cancelled.
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
                    # Vanished, not permitted, or swapped for a link since its parent was listed.
                    self._unreadable += 1

    @property
    def footers(self) -> list[str]:
        found = [self._limit_notice] if self._limit_notice else []
        if self._unreadable:
            found.append(f"[{self._unreadable} folders could not be opened and were left out]")
        return found

    def _list_folder(self, parts: PathParts) -> list[FileEntry]:
        """One folder's entries, sorted; as many as the bound leaves."""
        keyed: list[tuple[str, FileEntry]] = []
        with self._volume.open_folder(parts) as folder, os.scandir(folder) as listing:
            for found in listing:
                if self._visited >= self._max_entries:
                    self._limit_notice = (
                        f"[cut: the search looked at {self._max_entries} entries and then stopped; "
                        "narrow the path or pattern]"
                    )
                    break
                self._visited += 1
                if self._visited % CLOCK_CHECK_INTERVAL == 0:
                    self._cancellation.raise_if_cancelled()
                kind = _entry_kind(found)
                key = found.name + "/" if kind == "folder" else found.name
                keyed.append((key, FileEntry(parts=(*parts, found.name), kind=kind)))
        keyed.sort(key=lambda pair: pair[0])
        return [entry for _, entry in keyed]


def _entry_kind(entry: "os.DirEntry[str]") -> EntryKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"
