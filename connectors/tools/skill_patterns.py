"""Patterns of the skills that an agent may use: a list of entries such as `pdf`, `+team/*` and `-team/secret`.

    * and ?     stay within one /-segment           **    a whole segment: any number of segments
    - first     the entry takes names away          * or ** as the whole entry: every name

An entry that takes away always wins. With an entry that adds, only added names are allowed; otherwise all the others. A
list without entries allows every name. All entries become two RE2 expressions, so a match takes time in proportion to
the length of the name, whatever the entries are.

Before: check.py with the files, the Skill tool with a run's grants. After: nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

MAX_ENTRIES = 256
MAX_ENTRY_LENGTH = 256
"""Characters of an entry; twice the length of a name."""
CACHE_MAX = 1_000
"""Compiled lists that are kept; a list belongs to an agent's definition."""
EVERY_NAME = frozenset({"*", "**"})
_ENTRY = re.compile(r"[A-Za-z0-9_*?-]+(?:/[A-Za-z0-9_*?-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPatterns:
    """Compiled entries; None where there are none of that sign."""

    added: Any = None
    removed: Any = None

    def allows(self, name: str) -> bool:
        """Return whether the entries allow the skill; the name is valid Unicode."""
        path = "/" + name
        if self.removed is not None and self.removed.fullmatch(path):
            return False
        return self.added is None or bool(self.added.fullmatch(path))


def parse_patterns(entries: Iterable[str]) -> SkillPatterns:
    """Return the compiled entries. Raises ValueError that names the entry."""
    return _compile_entries(tuple(entries))


def deny_everything(entries: Iterable[str]) -> bool:
    """Return whether an entry takes every name away."""
    return any(entry[:1] == "-" and entry[1:] in EVERY_NAME for entry in entries)


@lru_cache(maxsize=CACHE_MAX)
def _compile_entries(entries: tuple[str, ...]) -> SkillPatterns:
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"{len(entries)} patterns of skills; at most {MAX_ENTRIES} are taken")
    added: list[str] = []
    removed: list[str] = []
    for entry in entries:
        (removed if entry.startswith("-") else added).append(_translate_entry(entry))
    return SkillPatterns(added=_compile_alternatives(added), removed=_compile_alternatives(removed))


def _compile_alternatives(expressions: list[str]) -> Any:
    try:
        return re2.compile("(?s)" + "|".join(expressions)) if expressions else None
    except re2.error as error:
        raise ValueError("the patterns of skills are too long together; give fewer") from error


def _translate_entry(entry: str) -> str:
    """Return an entry without its sign as an RE2 expression over `/` and the name."""
    pattern = entry[1:] if entry[:1] in ("+", "-") else entry
    if pattern in EVERY_NAME:
        return ".*"
    if len(entry) > MAX_ENTRY_LENGTH or not _ENTRY.fullmatch(pattern):
        raise ValueError(
            f"{entry[:60]!r} is no pattern of skills: expected + or - or neither, then at most {MAX_ENTRY_LENGTH} "
            "letters, digits, _, -, * and ?, with / between parts"
        )
    segments = pattern.split("/")
    if any("**" in segment and segment != "**" for segment in segments):
        raise ValueError(f"{entry[:60]!r} is no pattern of skills: ** must be a whole part between / and /")
    return "".join("(?:/[^/]+)*" if segment == "**" else "/" + _translate_segment(segment) for segment in segments)


def _translate_segment(segment: str) -> str:
    return segment.replace("*", "[^/]*").replace("?", "[^/]")
