"""Checks of the synthetic reviewer, and the findings it derives from the lines of a search.

A search returns lines; a finding is a line that still matches after irrelevant parts are removed: comments and string
literals for the kinds about code, files that are not source, places where the construct is usual (print in a command
line tool, sleep in a test). The patterns are valid in both RE2 and Python, so the search and the second check agree.

Before: mock_reviewer. After: mock_report.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

CODE_SUFFIXES = (".py", ".js", ".ts", ".tsx", ".go", ".rs", ".java", ".sh", ".sql")
SKIPPED_FOLDERS = frozenset(
    {"node_modules", "venv", "env", "dist", "build", "target", "vendor", "third_party", "site-packages"}
    | {"__pycache__", "coverage", "htmlcov"}
)
"""Folders with third-party or generated files; hidden folders are left out as well."""
_MATCH_LINE = re.compile(r"(.+?):([0-9]{1,9}):(.*)\Z")
_STRING = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\])*(?P=quote)""")
_TRIPLE = re.compile(r'"""|' + "'''")
_FUNCTION = re.compile(r"(\s*)(?:async\s+)?def\s+(\w+)")
_HANDLER = re.compile(r"(\s*)except\b")
_QUOTED = re.compile(r"""(["'])([^"']{2})[^"']*(["'])""")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewCheck:
    """One kind of finding. `part` is the relevant part of a Python line: code, remark (a comment, or a line of a
    docstring that begins with the match), or all of it.
    """

    kind: str
    title: str
    why: str
    pattern: str
    python_only: bool = True
    part: str = "code"
    ignored_in: tuple[str, ...] = ()
    """Path parts under which the construct is usual and is not reported."""


CHECKS = (
    ReviewCheck(
        kind="secret",
        title="Possible secrets in the source",
        why="Every reader of the repository has the secret, and it stays in the history after it is removed.",
        pattern=r"(?i:(password|passwd|secret|api_?key|auth_?token)[a-z0-9_]*['\"]?\s*[:=]+\s*['\"][^'\"\s]{8,}['\"])"
        r"|AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KEY-----",
        python_only=False,
        part="all",
        ignored_in=("test", "tests"),
    ),
    ReviewCheck(
        kind="shell",
        title="Commands run through a shell",
        why="Any part of the command that comes from outside can run other commands.",
        pattern=r"shell\s*=\s*True|\bos\.(system|popen)\s*\(",
    ),
    ReviewCheck(
        kind="eval",
        title="Text run as code",
        why="Control of the text is control of the process.",
        pattern=r"(^|[^.\w])(eval|exec)\s*\(",
    ),
    ReviewCheck(
        kind="deserialise",
        title="Unsafe deserialisation",
        why="Loading such data from outside can run code.",
        pattern=r"\b(pickle|marshal|shelve)\.(loads?|open)\s*\(|\byaml\.(unsafe_)?load\s*\(",
    ),
    ReviewCheck(
        kind="tls",
        title="Certificates not checked",
        why="The connection is encrypted, but the identity of the other side is unknown.",
        pattern=r"\bverify\s*=\s*False\b|\bCERT_NONE\b|_create_unverified_context",
    ),
    ReviewCheck(
        kind="except",
        title="Broad exception handlers",
        why="They also catch unexpected bugs, which then show up later and somewhere else.",
        pattern=r"^\s*except(\s+(Base)?Exception(\s+as\s+\w+)?)?\s*:",
    ),
    ReviewCheck(
        kind="default",
        title="Mutable default arguments",
        why="The default is created once, so changes by one call are visible to the next.",
        pattern=r"\bdef\s+\w+\s*\(.*=\s*(\[\]|\{\}|set\(\))\s*[,)]",
    ),
    ReviewCheck(
        kind="sleep",
        title="Blocking sleeps",
        why="On an event loop everything else is blocked meanwhile; elsewhere it hides a missing signal.",
        pattern=r"\btime\.sleep\s*\(",
        ignored_in=("test", "tests", "scripts", "examples"),
    ),
    ReviewCheck(
        kind="print",
        title="Output by print",
        why="A service's output belongs in its log, with a level and a time.",
        pattern=r"^\s*print\s*\(",
        ignored_in=("test", "tests", "cli", "scripts", "tools", "examples", "docs", "bench", "benchmarks"),
    ),
    ReviewCheck(
        kind="todo",
        title="Unfinished work",
        why="Each marker is a known gap that is not tracked elsewhere.",
        pattern=r"\b(TODO|FIXME|XXX|HACK)\b",
        python_only=False,
        part="remark",
    ),
)
_COMPILED = {check.kind: re.compile(check.pattern) for check in CHECKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewFinding:
    kind: str
    path: str
    line: int
    text: str


def parse_findings(grep_answers: Iterable[str]) -> list[ReviewFinding]:
    """Return the findings in the results of Grep in content mode, each once, by path and line. Other lines are skipped:
    footers, context, files that are not source.
    """
    findings: dict[tuple[str, str, int], ReviewFinding] = {}
    for answer in grep_answers:
        for row in answer.split("\n"):
            match = _MATCH_LINE.match(row)
            if match and is_source(match[1]):
                path, number, text = match[1], int(match[2]), match[3]
                for kind in kinds_of(path, text):
                    findings[kind, path, number] = ReviewFinding(kind=kind, path=path, line=number, text=text)
    return sorted(findings.values(), key=lambda finding: (finding.path, finding.line, finding.kind))


def kinds_of(path: str, text: str) -> list[str]:
    """Return the kinds of a file's line, after irrelevant parts are removed."""
    is_python = path.endswith(".py")
    folders = {part.lower() for part in path.split("/")}
    kinds = []
    for check in CHECKS:
        if (check.python_only and not is_python) or not folders.isdisjoint(check.ignored_in):
            continue
        if _matches(check, text, is_python=is_python):
            kinds.append(check.kind)
    return kinds


def _matches(check: ReviewCheck, text: str, *, is_python: bool) -> bool:
    pattern = _COMPILED[check.kind]
    if check.part == "all" or not is_python:
        return pattern.search(text) is not None
    code, _, comment = _STRING.sub('""', text).partition("#")
    if check.part == "code":
        return pattern.search(code) is not None
    return pattern.search(comment) is not None or pattern.match(text.strip()) is not None


def is_source(path: str) -> bool:
    """Return whether a path is source code of this project."""
    folders = path.split("/")[:-1]
    return path.endswith(CODE_SUFFIXES) and not any(is_skipped(folder) for folder in folders)


def is_skipped(folder: str) -> bool:
    return folder.startswith(".") or folder in SKIPPED_FOLDERS or folder.endswith(".egg-info")


def quoted_lines(source: str) -> set[int]:
    """Return the numbers of the lines that begin inside a triple-quoted string and therefore are not code."""
    inside = ""
    lines = set()
    for number, line in enumerate(source.split("\n"), start=1):
        if inside:
            lines.add(number)
        for mark in _TRIPLE.findall(line):
            if not inside:
                inside = mark
            elif inside == mark:
                inside = ""
    return lines


def reraising_lines(source: str) -> set[int]:
    """Return the numbers of the lines with an exception handler that finally raises and thus hides nothing."""
    lines = source.split("\n")
    numbers = set()
    for number, line in enumerate(lines):
        handler = _HANDLER.match(line)
        if not handler:
            continue
        for after in lines[number + 1 :]:
            if after.strip() and not after.startswith(handler[1] + " "):
                break
            if after.strip().startswith("raise"):
                numbers.add(number + 1)
                break
    return numbers


def longest_function(source: str) -> tuple[str, int]:
    """Return name and number of lines of the longest Python function, by indentation; ("", 0) without one."""
    lines = source.split("\n")
    starts = [(number, match) for number, line in enumerate(lines) if (match := _FUNCTION.match(line))]
    longest = ("", 0)
    for (number, match), (after, _) in pairwise([*starts, (len(lines), None)]):
        assert match is not None
        body = number + 1
        while body < after and (not lines[body].strip() or lines[body].startswith(match[1] + " ")):
            body += 1
        size = len("\n".join(lines[number:body]).rstrip().split("\n"))
        longest = max(longest, (match[2], size), key=lambda named: named[1])
    return longest


def mask_quotes(text: str) -> str:
    """Return the line without the secret in it: quoted values keep two characters."""
    return _QUOTED.sub(lambda match: f"{match[1]}{match[2]}...{match[3]}", text)


def combine_patterns(checks: Sequence[ReviewCheck]) -> str:
    """Return one pattern that matches when any of the checks does."""
    return "|".join(f"(?:{check.pattern})" for check in checks)
