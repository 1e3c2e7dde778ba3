"""Report of the synthetic reviewer: findings by kind, with place, line and reason, and the searched files.

It reports the gaps as completely as the findings: truncated lists, failed tools, excluded folders. A report without
findings lists the searches, because "no findings" from a search that failed looks the same.

Before: mock_reviewer. After: the Write call.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loomlog.connectors.models.mock.findings import (
    CHECKS,
    ReviewFinding,
    longest_function,
    mask_quotes,
    quoted_lines,
    reraising_lines,
)

MAX_LISTED = 50
"""Findings listed per kind; the rest is counted. Ten kinds of these stay far below the largest file Write accepts."""
MAX_LINE_CHARACTERS = 160
MAX_NOTES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Result of a review. `source_count` is the number of source files, `files_read` the texts of
    those that were read.
    """

    findings: Sequence[ReviewFinding]
    source_count: int
    files_read: Mapping[str, str]
    search_count: int
    notes: Sequence[str]
    """Gaps of the review, one sentence each."""


def confirm_findings(findings: Sequence[ReviewFinding], files_read: Mapping[str, str]) -> list[ReviewFinding]:
    """Return the findings without those that the file's text refutes: a line in a docstring is not code, and a handler
    that raises again hides nothing.
    """
    sources = {path: text for path, text in files_read.items() if path.endswith(".py")}
    quoted = {path: quoted_lines(text) for path, text in sources.items()}
    raising = {path: reraising_lines(text) for path, text in sources.items()}
    return [finding for finding in findings if not _is_excused(finding, quoted, raising)]


def render_report(review: Review) -> str:
    """Return the report as Markdown."""
    counts = Counter(finding.kind for finding in review.findings)
    lines = ["# Code review", "", summary(review), ""]
    for check in CHECKS:
        here = [finding for finding in review.findings if finding.kind == check.kind]
        if not here:
            continue
        lines += [f"## {check.title} ({len(here)})", "", check.why, ""]
        lines += [f"- `{finding.path}:{finding.line}` `{_finding_text(finding)}`" for finding in here[:MAX_LISTED]]
        if len(here) > MAX_LISTED:
            lines.append(f"- and {len(here) - MAX_LISTED} more")
        lines.append("")
    lines += _file_table(review)
    lines += ["## What was searched", ""]
    lines += [f"- {check.title}: {counts[check.kind]} found" for check in CHECKS]
    lines += [
        "",
        f"{review.search_count} searches over {_pluralise(review.source_count, 'source file')} found by name.",
        "",
    ]
    if review.notes:
        lines += ["## What was not seen", "", *[f"- {note}" for note in review.notes[:MAX_NOTES]]]
        if len(review.notes) > MAX_NOTES:
            lines.append(f"- and {len(review.notes) - MAX_NOTES} more")
        lines.append("")
    return "\n".join(lines)


def summary(review: Review) -> str:
    """Return one or two sentences with the numbers."""
    if not review.findings:
        return (
            f"No findings in {_pluralise(review.source_count, 'source file')}"
            f" after {_pluralise(review.search_count, 'search', 'searches')}."
            + (" Not everything could be seen." if review.notes else "")
        )
    files = Counter(finding.path for finding in review.findings)
    kinds = Counter(finding.kind for finding in review.findings)
    titles = {check.kind: check.title.lower() for check in CHECKS}
    named = ", ".join(f"{kinds[check.kind]} {titles[check.kind]}" for check in CHECKS if kinds[check.kind])
    path, most = min(files.items(), key=lambda entry: (-entry[1], entry[0]))
    return (
        f"{_pluralise(len(review.findings), 'finding')} in {_pluralise(len(files), 'file')}: {named}."
        f" Most are in {path} ({most})."
    )


def _is_excused(finding: ReviewFinding, quoted: Mapping[str, set[int]], raising: Mapping[str, set[int]]) -> bool:
    if finding.kind in ("todo", "secret"):
        return False
    if finding.line in quoted.get(finding.path, ()):
        return True
    return finding.kind == "except" and finding.line in raising.get(finding.path, ())


def _file_table(review: Review) -> list[str]:
    if not review.files_read:
        return []
    hits = Counter(finding.path for finding in review.findings)
    lines = ["## Files looked at", "", "| file | lines | findings | longest function |", "|---|---|---|---|"]
    for path, text in review.files_read.items():
        name, size = longest_function(text) if path.endswith(".py") else ("", 0)
        function = f"{name} ({size} lines)" if name else "-"
        lines.append(f"| {path} | {len(text.splitlines())} | {hits[path]} | {function} |")
    return [*lines, ""]


def _finding_text(finding: ReviewFinding) -> str:
    text = (mask_quotes(finding.text) if finding.kind == "secret" else finding.text).strip().replace("`", "'")
    return text if len(text) <= MAX_LINE_CHARACTERS else text[: MAX_LINE_CHARACTERS - 3] + "..."


def _pluralise(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
