"""mock-reviewer: a real job without a model.

It reviews the code in the run's default volume and writes report.md into the volume `out`:

    1  Glob    the folders and the source files, several patterns at once
    2  Grep    every kind of finding: one search each, or one per folder when some folders are excluded
    3  Read    the files with the most findings
    4  Write   the report
    5  the numbers as text

The script is a pure function of the conversation: it reads the results of its earlier calls and decides the next step,
so any process can continue it. It uses only tools that were offered, and a failure becomes a note in the report.

Before: mock. After: mock_findings, mock_report.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import orjson

from loomlog.connectors.models.mock import report as mock_report
from loomlog.connectors.models.mock.findings import (
    CHECKS,
    CODE_SUFFIXES,
    combine_patterns,
    is_skipped,
    is_source,
    parse_findings,
)
from loomlog.connectors.models.mock.script import ScriptedCall, ScriptTurn, results_since_user, strip_fence
from loomlog.connectors.protocols import ModelRequest
from loomlog.schemas.conversation import ToolResultBlock

GLOBS = ("*/", "*", *(f"[!.]*/**/*{suffix}" for suffix in CODE_SUFFIXES))
"""Glob patterns: the folders at the top, the files at the top, and source files anywhere but in hidden folders."""
MAX_SCOPES = 16
"""Folders and files at the top that are searched one by one; two searches each."""
MAX_READS = 6
LINES_PER_SEARCH = 400
REPORT_VOLUME = "out"
REPORT_PATH = "report.md"
MAX_ERROR_CHARACTERS = 200
_MATCH_TOTAL = re.compile(r"\n\[.{0,40} of (\d{1,9}) matches")


def turn(request: ModelRequest) -> ScriptTurn:
    """Return the reviewer's next turn."""
    return _ReviewScript(request).next_turn()


class _ReviewScript:
    """The stages in order. Each takes its results from the conversation, or requests them and ends the turn."""

    def __init__(self, request: ModelRequest) -> None:
        self._offered = {tool.name for tool in request.tools}
        self._results = iter(results_since_user(request.messages))
        self._notes: list[str] = []
        self._search_count = 0

    def next_turn(self) -> ScriptTurn:
        globs = self._calls("Glob", [{"pattern": pattern} for pattern in GLOBS])
        listings = self._take_results(globs)
        if listings is None:
            return ScriptTurn(text="I look for the source files first.", calls=globs)
        sources = _source_count(listings)

        greps = self._calls("Grep", self._search_arguments(listings))
        lines = self._take_results(greps)
        if lines is None:
            return ScriptTurn(text=f"{sources} source files found. I search them.", calls=greps)
        self._search_count = len(greps)
        findings = parse_findings(lines)

        worst = self._rank_paths([finding.path for finding in findings])
        reads = self._calls("Read", [{"path": path} for path in worst])
        texts = self._take_results(reads)
        if texts is None:
            return ScriptTurn(text=f"{len(findings)} places to look at. I read the files with the most.", calls=reads)
        read = {path: text for path, text in zip(worst, texts, strict=False) if text}

        review = mock_report.Review(
            findings=mock_report.confirm_findings(findings, read),
            source_count=sources,
            files_read=read,
            search_count=self._search_count,
            notes=self._notes,
        )
        report = mock_report.render_report(review)
        writes = self._calls("Write", [{"path": REPORT_PATH, "content": report, "volume": REPORT_VOLUME}])
        seen = len(self._notes)
        written = self._take_results(writes)
        if written is None:
            return ScriptTurn(text="I write the report.", calls=writes)
        return ScriptTurn(text=self._conclusion(review, report, complaints=self._notes[seen:], written=bool(writes)))

    def _calls(self, tool: str, arguments: Sequence[dict[str, object]]) -> tuple[ScriptedCall, ...]:
        """Return the calls, or none, with a note, when the tool is not offered."""
        if arguments and tool not in self._offered:
            self._notes.append(f"The tool {tool} is not offered to this run, so its part was left out.")
            return ()
        return tuple(ScriptedCall(name=tool, input=orjson.dumps(each).decode()) for each in arguments)

    def _take_results(self, calls: Sequence[ScriptedCall]) -> list[str] | None:
        """Return the texts of the results, "" for a failed one, which becomes a note; None when they are pending."""
        results: list[ToolResultBlock] = list(islice(self._results, len(calls)))
        if calls and not results:
            return None
        texts = []
        for call, result in zip(calls, results, strict=False):
            text = strip_fence(result.text)
            if result.is_error:
                reason = " ".join(text.split())[:MAX_ERROR_CHARACTERS] or "no reason given"
                note = f"{call.name} failed: {reason}"
                if note not in self._notes:
                    self._notes.append(note)
            else:
                self._note_truncation(call, text)
            texts.append("" if result.is_error else text)
        return texts

    def _note_truncation(self, call: ScriptedCall, text: str) -> None:
        """Add a note when the text's last line is in square brackets: the tool's marker of further results."""
        last = text.rstrip("\n").rpartition("\n")[2]
        if call.name in ("Glob", "Grep", "Read") and last.startswith("[") and last.endswith("]"):
            self._notes.append(f"{call.name} {_subject(call)}: {last[1:-1][:MAX_ERROR_CHARACTERS]}.")

    def _search_arguments(self, listings: Sequence[str]) -> list[dict[str, object]]:
        """Return one search per check over everything; when some folders are excluded, two for each other folder and
        source file at the top.
        """
        folders = (
            [line.rstrip("/") for line in listings[0].split("\n") if _is_name(line.rstrip("/"))] if listings else []
        )
        skipped = [folder for folder in folders if is_skipped(folder)]
        common: dict[str, object] = {"output_mode": "content", "head_limit": LINES_PER_SEARCH}
        if not skipped:
            return [
                {"pattern": check.pattern, **common, **({"glob": "*.py"} if check.python_only else {})}
                for check in CHECKS
            ]
        self._notes.append(f"Not searched, as others' or generated code: {', '.join(sorted(skipped)[:MAX_SCOPES])}.")
        top_files = [line for line in listings[1].split("\n") if _is_name(line) and is_source(line)]
        scopes = sorted(set(folders) - set(skipped)) + sorted(top_files)
        if len(scopes) > MAX_SCOPES:
            self._notes.append(f"Not searched, only {MAX_SCOPES} places are: {', '.join(scopes[MAX_SCOPES:])[:500]}.")
        arguments: list[dict[str, object]] = []
        for scope in scopes[:MAX_SCOPES]:
            for python_only in (True, False):
                pattern = combine_patterns([check for check in CHECKS if check.python_only == python_only])
                limits = {"glob": "*.py"} if python_only else {}
                arguments.append({"pattern": pattern, "path": scope, **common, **limits})
        return arguments

    def _rank_paths(self, paths: Sequence[str]) -> list[str]:
        ranked = sorted(Counter(paths).items(), key=lambda entry: (-entry[1], entry[0]))
        return [path for path, _ in ranked[:MAX_READS]]

    def _conclusion(self, review: mock_report.Review, report: str, *, complaints: Sequence[str], written: bool) -> str:
        summary = mock_report.summary(review)
        if complaints or not written:
            why = complaints[0] if complaints else "the tool Write is not offered"
            return f"{summary} The report could not be written to {REPORT_VOLUME}: {why}. It follows.\n\n{report}"
        unseen = f" {len(review.notes)} notes on what was not checked are in it." if review.notes else ""
        read = f"{len(review.files_read)} files were read."
        return f"{summary} {read} The report is {REPORT_PATH} in {REPORT_VOLUME}.{unseen}"


def _source_count(listings: Sequence[str]) -> int:
    """Return the number of source files behind the listings; a truncated listing contains its total."""
    total = 0
    for listing in listings:
        cut = _MATCH_TOTAL.search(listing)
        named = len({line for line in listing.split("\n") if is_source(line)})
        total += int(cut[1]) if cut and named else named
    return total


def _is_name(line: str) -> bool:
    """Return whether a line of Glob is a name at the top, not a footer or a sentence."""
    return bool(line) and "/" not in line and not line.startswith(("[", "no matches"))


def _subject(call: ScriptedCall) -> str:
    arguments = orjson.loads(call.input)
    return str(arguments.get("path") or arguments.get("pattern"))[:80]
