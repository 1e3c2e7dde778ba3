"""Path patterns: `*` and `?` within a name, `[..]` classes, `**` for any folders.

Translated to RE2, because a pattern comes from a model and RE2 takes time in proportion to the name whatever the
pattern is; the standard library's translation takes exponential time for `*a*a*a*b`. The pieces are also matched one
by one, so that a walk does not enter folders below which nothing can match.

`*` also matches names that begin with a dot. `**` is special only as a whole name. A `[` that is never closed is a
plain character. Braces are plain characters.

Before: glob.py, grep.py. After: re2.
"""

from typing import Any

import re2

from loomlog.connectors.tools.answers import Refusal, printable, valid_text
from loomlog.connectors.tools.volumes import Parts

ANY_FOLDERS = "**"


class PathPattern:
    """A pattern of whole paths below the folder it is applied to."""

    def __init__(self, pattern: str) -> None:
        pieces = [piece for piece in pattern.split("/") if piece not in ("", ".")]
        if not pieces or ".." in pieces:
            raise Refusal(f'The pattern "{printable(pattern)}" must name something below the folder, without "..".')
        self._names = [None if piece == ANY_FOLDERS else NamePattern(piece) for piece in pieces]
        self._known: dict[Parts, frozenset[int]] = {}

    def matches(self, parts: Parts) -> bool:
        return len(self._names) in self._after(self._in_folder(parts[:-1]), parts[-1])

    def may_match_below(self, folder: Parts) -> bool:
        """Whether anything below this folder can match."""
        return any(state < len(self._names) for state in self._in_folder(folder))

    def _in_folder(self, folder: Parts) -> frozenset[int]:
        """How many pieces the folder's names may have used up: the states of a small automaton after reading them.

        Remembered, because all entries of a folder begin with it.
        """
        known = self._known.get(folder)
        if known is None:
            known = self._after(self._in_folder(folder[:-1]), folder[-1]) if folder else self._skipped({0})
            self._known[folder] = known
        return known

    def _after(self, states: frozenset[int], name: str) -> frozenset[int]:
        after: set[int] = set()
        for state in states:
            if state == len(self._names):
                continue
            pattern = self._names[state]
            if pattern is None:
                after.add(state)
                if state == len(self._names) - 1:
                    # A final ** matches everything below.
                    after.add(state + 1)
            elif pattern.matches(name):
                after.add(state + 1)
        return self._skipped(after)

    def _skipped(self, states: set[int]) -> frozenset[int]:
        """Adds what is reached by letting a ** that is not the last piece stand for no folder at all."""
        found = set(states)
        for state in states:
            after = state
            while after < len(self._names) - 1 and self._names[after] is None:
                after += 1
                found.add(after)
        return frozenset(found)


class NamePattern:
    """A pattern of one name."""

    def __init__(self, pattern: str) -> None:
        self._literal = pattern if not any(c in pattern for c in "*?[") else None
        self._regexp = compiled(_translated(pattern), f'The pattern "{printable(pattern)}"')

    def matches(self, name: str) -> bool:
        if self._literal is not None:
            return name == self._literal
        return self._regexp.fullmatch(valid_text(name).encode()) is not None


MAX_PROGRAM_BYTES = 4 * 1024 * 1024
"""Memory RE2 may take for one compiled pattern; larger ones are refused."""


def compiled(expression: str, what: str, *, within_lines: bool = False, ignore_case: bool = False) -> Any:
    """An RE2 pattern over bytes. `within_lines` lets nothing match a line end. Raises Refusal with RE2's reason."""
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
        raise Refusal(f"{what} is not usable: {reason}.") from error
    finally:
        # The module would keep the last 128 patterns, each up to the bound above.
        re2.purge()


def _translated(pattern: str) -> str:
    out = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[" and (end := _class_end(pattern, at)) > 0:
            inside = pattern[at:end]
            negated = inside[:1] in ("!", "^")
            ranges = "".join(c if c.isalnum() or c == "-" else re2.escape(c) for c in inside[negated:])
            out.append(f"[{'^' if negated else ''}{ranges}]")
            at = end + 1
        else:
            out.append(re2.escape(char))
    return "".join(out)


def _class_end(pattern: str, at: int) -> int:
    """Where the class that begins here is closed, -1 when it is not. A `]` in first place is a member."""
    first = at + (pattern[at : at + 1] in ("!", "^"))
    return pattern.find("]", first + 1)
