"""Path patterns: `*` and `?` within a name, `[..]` classes, `**` for any folders.

Translated to RE2, because a pattern comes from a model and RE2 takes time in proportion to the name for any pattern;
the standard library's translation takes exponential time for `*a*a*a*b`. The segments are also matched one by one, so
that a walk does not enter folders below which nothing can match.

`*` also matches names that begin with a dot. `**` is special only as a whole name. A `[` that is never closed is a
plain character. Braces are plain characters.

Before: glob.py, grep.py. After: re2.
"""

from typing import Any

import re2

from loomlog.connectors.tools.results import ToolCallRefused, escape_name, to_valid_text
from loomlog.connectors.tools.volumes import PathParts

ANY_FOLDERS = "**"
MAX_SEGMENTS = 32
"""Maximum segments of a pattern: a name costs a match for each of them, and no real tree is deeper."""


class PathPattern:
    """A pattern of whole paths, relative to the folder it is applied to."""

    def __init__(self, pattern: str) -> None:
        pieces = [piece for piece in pattern.split("/") if piece not in ("", ".")]
        if not pieces or ".." in pieces:
            raise ToolCallRefused(
                f'The pattern "{escape_name(pattern)}" must name something below the folder, without "..".'
            )
        # A ** after another matches nothing more, and each would be a further state for every name.
        pieces = [piece for at, piece in enumerate(pieces) if not (piece == ANY_FOLDERS == pieces[at - 1] and at)]
        if len(pieces) > MAX_SEGMENTS:
            raise ToolCallRefused(
                f'The pattern "{escape_name(pattern[:80])}..." has {len(pieces)} segments; at most {MAX_SEGMENTS} are '
                "allowed. Give a shorter path, or use ** for any folders."
            )
        self._segments = [None if piece == ANY_FOLDERS else NamePattern(piece) for piece in pieces]
        self._states_by_folder: dict[PathParts, frozenset[int]] = {}

    def matches(self, parts: PathParts) -> bool:
        return len(self._segments) in self._advance(self._folder_states(parts[:-1]), parts[-1])

    def may_match_below(self, folder: PathParts) -> bool:
        """Return whether anything below this folder can match."""
        return any(state < len(self._segments) for state in self._folder_states(folder))

    def _folder_states(self, folder: PathParts) -> frozenset[int]:
        """Return the automaton's states after the folder's names; a state is the number of pattern segments consumed.

        Cached, because all entries of a folder share this prefix.
        """
        known = self._states_by_folder.get(folder)
        if known is None:
            known = (
                self._advance(self._folder_states(folder[:-1]), folder[-1]) if folder else self._skip_any_folders({0})
            )
            self._states_by_folder[folder] = known
        return known

    def _advance(self, states: frozenset[int], name: str) -> frozenset[int]:
        after: set[int] = set()
        for state in states:
            if state == len(self._segments):
                continue
            pattern = self._segments[state]
            if pattern is None:
                after.add(state)
                if state == len(self._segments) - 1:
                    # A final ** matches everything below.
                    after.add(state + 1)
            elif pattern.matches(name):
                after.add(state + 1)
        return self._skip_any_folders(after)

    def _skip_any_folders(self, states: set[int]) -> frozenset[int]:
        """Add the states reached by matching a ** that is not the last segment with no folder at all."""
        reachable = set(states)
        for state in states:
            if state < len(self._segments) - 1 and self._segments[state] is None:
                reachable.add(state + 1)
        return frozenset(reachable)


class NamePattern:
    """A pattern of one name."""

    def __init__(self, pattern: str) -> None:
        self._literal = pattern if not any(c in pattern for c in "*?[") else None
        self._regexp = compile_regex(_translate_glob(pattern), f'The pattern "{escape_name(pattern)}"')

    def matches(self, name: str) -> bool:
        if self._literal is not None:
            return name == self._literal
        return self._regexp.fullmatch(to_valid_text(name).encode()) is not None


MAX_PROGRAM_BYTES = 4 * 1024 * 1024
"""Maximum memory of one compiled pattern in RE2, in bytes; larger ones are refused."""


def compile_regex(expression: str, label: str, *, within_lines: bool = False, ignore_case: bool = False) -> Any:
    """Compile an RE2 pattern over bytes.

    `within_lines`: no match includes a line end. Raises ToolCallRefused with RE2's reason.
    """
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    options.never_nl = within_lines
    options.dot_nl = not within_lines
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(expression.encode("utf-8", "replace"), options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
        raise ToolCallRefused(f"{label} is not usable: {reason}.") from error
    finally:
        # The module would keep the last 128 patterns, each up to the limit above.
        re2.purge()


def _translate_glob(pattern: str) -> str:
    out = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[" and (end := _find_class_end(pattern, at)) > 0:
            inside = pattern[at:end]
            negated = inside[:1] in ("!", "^")
            ranges = "".join(c if c.isalnum() or c == "-" else re2.escape(c) for c in inside[negated:])
            out.append(f"[{'^' if negated else ''}{ranges}]")
            at = end + 1
        else:
            out.append(re2.escape(char))
    return "".join(out)


def _find_class_end(pattern: str, at: int) -> int:
    """Return the index that closes the class opened at `at`, -1 without one. A `]` in first place is a member."""
    first = at + (pattern[at : at + 1] in ("!", "^"))
    return pattern.find("]", first + 1)
