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

from loomlog.connectors.tools.answers import Refusal
from loomlog.connectors.tools.threads import Deadline, Stop
from loomlog.connectors.tools.volumes import Parts, Volume

MAX_ENTRIES = 200_000
"""Entries looked at by one walk: about a second of work, and more files than most repositories have."""
WALK_S = 20.0
"""Time for one walk and what is done to its files; under the tools' time-out, so that a partial answer comes."""
CHECK_EVERY = 1024
"""Entries between two looks at the clock."""

Kind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    parts: Parts
    kind: Kind


class Walk:
    """Iterate it once; afterwards `footers` says what it did not see."""

    def __init__(
        self, volume: Volume, stop: Stop, *, max_entries: int = MAX_ENTRIES, deadline: Deadline | None = None
    ) -> None:
        self._volume = volume
        self._stop = stop
        self._max_entries = max_entries
        self._deadline = deadline or Deadline(WALK_S)
        self._visited = 0
        self._unreadable = 0
        self._cut = ""

    def below(self, start: Parts, enters: Callable[[Parts], bool]) -> Iterator[Entry]:
        """Everything below `start` but not itself, sorted by path; folders that `enters` refuses are not opened.

        Raises Refusal when `start` itself cannot be opened, Stopped when the call was cancelled.
        """
        pending = [iter(self._entries(start))]
        while pending:
            entry = next(pending[-1], None)
            if entry is None:
                pending.pop()
                continue
            self._stop.check()
            if not self._cut and self._deadline.is_over:
                self._cut = f"[stopped after {WALK_S:.0f} s: later files were not seen; narrow the path or pattern]"
            if self._cut.startswith("[stopped"):
                return
            yield entry
            if entry.kind == "folder" and not self._cut and enters(entry.parts):
                try:
                    pending.append(iter(self._entries(entry.parts)))
                except Refusal:
                    # Vanished, not permitted, or swapped for a link since its parent was listed.
                    self._unreadable += 1

    @property
    def footers(self) -> list[str]:
        found = [self._cut] if self._cut else []
        if self._unreadable:
            found.append(f"[{self._unreadable} folders could not be opened and were left out]")
        return found

    def _entries(self, parts: Parts) -> list[Entry]:
        """One folder's entries, sorted; as many as the bound leaves."""
        keyed: list[tuple[str, Entry]] = []
        with self._volume.folder(parts) as folder, os.scandir(folder) as listing:
            for found in listing:
                if self._visited >= self._max_entries:
                    self._cut = (
                        f"[cut: the search looked at {self._max_entries} entries and then stopped; "
                        "narrow the path or pattern]"
                    )
                    break
                self._visited += 1
                if self._visited % CHECK_EVERY == 0:
                    self._stop.check()
                kind = _kind(found)
                key = found.name + "/" if kind == "folder" else found.name
                keyed.append((key, Entry(parts=(*parts, found.name), kind=kind)))
        keyed.sort(key=lambda pair: pair[0])
        return [entry for _, entry in keyed]


def _kind(found: "os.DirEntry[str]") -> Kind:
    if found.is_symlink():
        return "link"
    if found.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if found.is_file(follow_symlinks=False) else "other"
