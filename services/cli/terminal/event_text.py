"""A log record as text: on one line, and in full.

    04:26:10.123  loom.run.events/0:84  r_7m17...  seq 1  RunStarted  definition=reviewer segments=1 item

The schema defines the fields of a record, so this module knows none by name: empty fields are left out, lists are
counted, nested records are shown by name.

Before: services/cli/log/events.py, services/cli/log/replay.py. After: the terminal.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from loomlog.projections.frames.frame_json import to_datetime
from loomlog.services.application.log.records import CLAIM, STALE, UNREADABLE, RecordView, to_json_value
from loomlog.services.cli.terminal.formatting import one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, WARNING

VALUE_CHARACTERS = 40
"""Characters of one field on a record's line."""
OMITTED_FIELDS = ("run_id", "session_id", "agent_id", "request_sha256")
"""Fields that repeat the run's id, and one that only a program compares."""


def record_line(view: RecordView) -> Text:
    """Format a record on one line."""
    time_of_day = to_datetime(view.at_ms).strftime("%H:%M:%S.%f")[:-3] if view.at_ms else " " * 12
    line = Text.assemble((time_of_day, DIM), "  ", (view.position, NAME))
    if view.kind == CLAIM:
        line.append(f"  Claim  term is {view.offset} now", style=WARNING)
    elif view.kind == UNREADABLE:
        line.append(f"  unreadable: {one_line(view.error, 120)}", style=ERROR)
        return line
    else:
        line.append(f"  {view.run_id or view.key}" if view.run_id or view.key else "", style=DIM)
        line.append(f"  seq {view.seq}" if view.seq >= 0 else "", style=DIM)
        line.append(f"  {view.type}", style=ERROR if view.kind == STALE else "bold")
    if view.kind == STALE:
        line.append(f"  stale: term {view.term}, in force is {view.term_in_force}", style=ERROR)
    text = format_fields(view.payload, skip=OMITTED_FIELDS)
    line.append(f"  {text}" if text else "", style=DIM)
    return line


def fit_to_width(line: Text, out: Console) -> Text:
    """Cut the line to the terminal's width; in a file it stays whole."""
    if out.is_terminal:
        line.truncate(out.width - 1, overflow="ellipsis")
    return line


def format_fields(payload: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> str:
    """Format the fields that are not empty, in short form: plain values, lists by length, records by name."""
    parts = []
    for name, value in to_json_value(payload).items():
        if name in skip or value in (None, "", 0, False, [], {}):
            continue
        if isinstance(value, dict):
            shown = str(value.get("name") or value.get("sha256", "")[:12] or "")
            if not shown:
                continue
        elif isinstance(value, list):
            shown = pluralize(len(value), "item")
        else:
            shown = one_line(str(value), VALUE_CHARACTERS)
        parts.append(f"{name}={shown}")
    return " ".join(parts)


def print_record(out: Console, record: Mapping[str, Any]) -> None:
    if record.get("stale"):
        out.print(Text("stale: its writer had been replaced; this record is ignored", style=ERROR))
    for name, value in record.items():
        if name == "payload" or _is_blank(value):
            continue
        if isinstance(value, Mapping):
            for part, text in value.items():
                out.print(Text.assemble((f"{name[:-1]:<14}", DIM), f"{part}: {text}"))
        else:
            out.print(Text.assemble((f"{name:<14}", DIM), str(value)))
    for name, value in (record.get("payload") or {}).items():
        _print_value(out, name, value, "")


def _is_blank(value: Any) -> bool:
    """Return whether a value is empty; 0 is not, since it is a partition or an offset."""
    return value is None or value is False or value in ("", [], {})


def _print_value(out: Console, name: str, value: Any, indent: str) -> None:
    if _is_blank(value):
        return
    if isinstance(value, Mapping) and value:
        out.print(Text.assemble(indent, (name, DIM)))
        for part, inner in value.items():
            _print_value(out, str(part), inner, indent + "  ")
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for number, inner in enumerate(value):
            _print_value(out, f"{name}[{number}]", inner, indent)
    elif isinstance(value, str) and "\n" in value:
        out.print(Text.assemble(indent, (name, DIM)))
        for text in value.splitlines():
            out.print(Text(f"{indent}  | {text}"))
    else:
        out.print(Text.assemble(indent, (f"{name:<14}", DIM), " ", str(value)))
