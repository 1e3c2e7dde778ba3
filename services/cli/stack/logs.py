"""`loomlog logs`: the log lines of the local stack's processes, merged by time.

Before: services/cli/main.py. After: the files that services/cli/stack/logfile.py describes.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.text import Text

from loomlog.services.cli.errors import NotFound, UsageError
from loomlog.services.cli.runs.runs import resolve_run_id
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, WARNING, console
from loomlog.services.cli.terminal.times import parse_since

POLL_S = 0.2
LEVELS = {"debug": 0, "info": 1, "warning": 2, "error": 3, "critical": 4}
LEVEL_STYLE = {"warning": WARNING, "error": ERROR, "critical": ERROR}
FOREIGN = frozenset({"kafka", "postgres"})
"""Services whose lines are not ours: they have no level and no fields; shown when they are named."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log. `at_ms` is 0 when the line does not say when it was written."""

    service: str
    at_ms: int
    level: str
    text: str
    run_id: str
    raw: str


def logs(
    service: Annotated[
        str, typer.Argument(metavar="[SERVICE]", help="One service, such as runtime; all of ours if not given.")
    ] = "",
    run_id: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Only lines about this run.", callback=resolve_run_id)
    ] = "",
    level: Annotated[str, typer.Option(help="Least level: debug, info, warning or error.")] = "info",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="From a time on: 10m, 24h or 2026-01-31T12:00:00Z.")
    ] = "",
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Most lines to show; 0 = all.")] = 200,
    should_follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for further lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The lines as they are in the files.")] = False,
) -> None:
    """Show the logs of the local stack."""
    if level not in LEVELS:
        raise UsageError(f"--level is {level!r}; expected one of {', '.join(LEVELS)}.")
    since_ms = parse_since(since, time.time_ns() // 1_000_000) if since else 0
    folder = current_settings().home.root / "logs"
    files = find_logs(folder, service)

    def is_shown(line: LogLine) -> bool:
        return (
            LEVELS.get(line.level, 1) >= LEVELS[level]
            and (not run_id or line.run_id == run_id or run_id in line.raw)
            and (not since_ms or line.at_ms >= since_ms)
        )

    opened = {name: open(path, encoding="utf-8", errors="replace") for name, path in files.items()}  # noqa: SIM115
    try:
        recent = [line for name, file in opened.items() for line in read_lines(name, file) if is_shown(line)]
        recent.sort(key=lambda line: line.at_ms)
        for line in recent[-lines:] if lines else recent:
            _print_line(line, as_json=as_json)
        while should_follow:
            time.sleep(POLL_S)
            for name, file in opened.items():
                if os.fstat(file.fileno()).st_size < file.tell():
                    file.seek(0)  # the file was copied away and truncated
                for line in filter(is_shown, read_lines(name, file)):
                    _print_line(line, as_json=as_json)
    finally:
        for file in opened.values():
            file.close()


def find_logs(folder: Path, service: str) -> dict[str, Path]:
    """Return the log files by service. Raises NotFound when there is none."""
    files = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not files:
        raise NotFound(f"There are no logs in {folder}. `loomlog up` starts the stack.")
    if not service:
        return {name: path for name, path in files.items() if name not in FOREIGN}
    if service not in files:
        raise NotFound(f"There is no log of {service!r}; there are: {', '.join(files)}.")
    return {service: files[service]}


def read_lines(service: str, file: IO[str]) -> Iterator[LogLine]:
    """Yield the complete lines from the file's position on; a line that is being written is left for the next call."""
    while True:
        start = file.tell()
        raw = file.readline()
        if not raw.endswith("\n"):
            file.seek(start)
            return
        yield parse_line(service, raw.rstrip("\n"))


def parse_line(service: str, raw: str) -> LogLine:
    """Parse a line; one that is no JSON of ours is shown as it is."""
    try:
        fields = json.loads(raw)
        at_ms = int(datetime.fromisoformat(fields["at"]).timestamp() * 1000)
        text = str(fields["message"]) + (f"\n{fields['error']}" if fields.get("error") else "")
        return LogLine(service, at_ms, str(fields["level"]), text, str(fields.get("run_id", "")), raw)
    except (ValueError, KeyError, TypeError):
        return LogLine(service, 0, "info", raw, "", raw)


def _print_line(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        print(line.raw, flush=True)
        return
    at = datetime.fromtimestamp(line.at_ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3] if line.at_ms else ""
    text = Text.assemble((f"{at:<12}  ", DIM), (f"{line.service:<10}", NAME), line.text)
    text.stylize(LEVEL_STYLE.get(line.level, ""), len(text.plain) - len(line.text))
    console().print(text)
