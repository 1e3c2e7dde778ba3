"""Words that a reader from the field would not write, kept out of names and prose: `python -m tests.lint.words`.

Prose (docstrings, comments, messages, pages) has no pronouns for parts of the system, no fragments that answer a
question the reader has not heard, and none of the metaphors this project once had. A variable is named after what it
holds.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PROSE = re.compile(
    r"\b(whoever|whomever|nobody|somebody|anew|hearsay|lifelines?|tenures?|desks?|wishes|clerk)\b", re.IGNORECASE
)
OPENING = re.compile(r'^\s*"""(Of|By whom|Whoever|Who|Whose|Told|Said)\b')
"""Docstrings that open with a fragment."""
NAMES = frozenset({"found", "said", "told", "wanted", "given"})
UNREAD = ("tests/", "docs/LIMITS.md")
"""Folders whose prose is not checked."""
ALLOWED = frozenset(
    {
        ("services/cli/stack/account.py", "nobody"),
        ("docs/reference/RECORDS.md", "lifeline"),
    }
)
"""Words that are names of something else: an account of Unix systems, a field of
Claim that is on every log."""


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and strings of a module, or the lines of a page."""
    if path.suffix != ".py":
        yield from enumerate(path.read_text().splitlines(), 1)
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield from enumerate(token.string.splitlines(), token.start[0])


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Variables, parameters and functions that a module names."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from ((node.lineno, part) for part in name.split("_") if PROSE.fullmatch(part))


def problems(path: Path) -> Iterator[str]:
    for line, text in prose(path):
        yield from (f"{path}:{line}: {word}" for word in PROSE.findall(text) if (str(path), word) not in ALLOWED)
        if path.suffix == ".py" and OPENING.match(text):
            yield f"{path}:{line}: opens with a fragment: {text.strip()[:60]}"
    if path.suffix == ".py":
        yield from (f"{path}:{line}: {name}" for line, name in names(path) if name in NAMES or PROSE.fullmatch(name))


def main() -> int:
    tree = subprocess.run(["git", "ls-files", "*.py", "*.md"], capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in tree.split() if not name.startswith((*UNREAD, "schemas/generated/"))]
    wrong = [problem for path in paths if path.exists() for problem in problems(path)]
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
