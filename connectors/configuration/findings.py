"""Findings about a configuration (errors and warnings), and the exception that carries all of them at once.

An operator who starts a server wants every mistake of a file in one report, each with its position and the key that was
probably meant. So nothing here stops at the first mistake: parsers and checks collect findings, and the one place that
has all of them raises. A warning is the same object; the list that contains it tells which it is.

Before: environment.py, tree.py, merge.py, check.py make findings. After: load.py raises or returns them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

NEAREST_CUTOFF = 0.6
"""Cutoff of similarity, difflib's own default: `sytem_prompt` finds `system_prompt`, `colour` does not find `tools`."""
SHOWN_LENGTH = 60
"""Characters of a wrong value that a message repeats; enough to recognise it, too little to bury the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFinding:
    """One error or warning. Without `file` it is about the environment. `line` counts from 1, 0 = the whole file."""

    message: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.file:
            return self.message
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class ConfigurationError(Exception):
    """The configuration cannot be used. `findings` has every mistake; the text is one line each, for people."""

    def __init__(self, findings: Iterable[ConfigurationFinding]) -> None:
        self.findings = tuple(dict.fromkeys(findings))
        assert self.findings, "a ConfigurationError without a problem"
        super().__init__("\n".join(str(problem) for problem in self.findings))


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Return `; did you mean system_prompt?`, or an empty text when no valid word is near."""
    near = get_close_matches(word, sorted(valid), n=1, cutoff=NEAREST_CUTOFF)
    return f"; did you mean {near[0]}?" if near else ""


def format_value(value: object) -> str:
    """Return the value as a message may repeat it: short, and collections only by kind."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 1] + "…"


def join_words(words: Sequence[str]) -> str:
    """Return the words as `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))
