"""Output for people on a console; for programs, JSON alone on stdout.

Colour only when stdout is a terminal (rich checks, and honours NO_COLOR). Lines are never wrapped: a path or an id that
is broken in two cannot be copied.

Before: every command. After: the terminal, or the program behind the pipe.
"""

import sys
from collections.abc import Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.terminal.formatting import replace_control_characters

DIM, SUCCESS, ERROR, WARNING, NAME = "dim", "green", "red", "yellow", "cyan"
"""The only styles: secondary text, success, error, warning, names."""

FACT_COLUMNS = 12
"""Columns of the names of facts; the longest has ten characters."""


class Terminal(Console):
    """Console that printed text cannot control: most of the output is text of models and files."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(_sanitize(one) for one in objects), **options)


COLUMN_GAP = 2


def console() -> Console:
    """Create the console for people. Created for each command, because stdout may be another one in the next."""
    return Terminal()


def error_console() -> Console:
    return Terminal(stderr=True)


def fact_line(name: str, value: str) -> Text:
    """Format a fact as its name, then its value."""
    return Text.assemble((f"{name:<{FACT_COLUMNS}}", DIM), value)


def print_json(value: Any) -> None:
    """Print one JSON document, indented for a terminal and on one line for a program."""
    options = orjson.OPT_INDENT_2 if sys.stdout.isatty() else 0
    print(orjson.dumps(value, option=options | orjson.OPT_NON_STR_KEYS, default=str).decode())


def print_json_line(value: Any) -> None:
    """Print one of several JSON documents on a line and flush it, because a reader may be waiting for it."""
    print(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode(), flush=True)


def print_table(
    out: Console, head: Sequence[str], rows: Sequence[Sequence[str | Text]], *, right_aligned: Sequence[int] = ()
) -> None:
    """Print a table: upper-case names, `right_aligned` columns aligned right; plain, so it greps and copies well.

    On a terminal the widest columns are shortened with an ellipsis; in a pipe nothing is.
    """
    texts = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max([len(name), *(row[column].cell_len for row in texts)]) for column, name in enumerate(head)]
    if out.is_terminal:
        _shrink(widths, head, out.width)
        for row in texts:
            for cell, width in zip(row, widths, strict=True):
                cell.truncate(width, overflow="ellipsis")
    for row in ([Text(name.upper(), style=DIM) for name in head], *texts):
        line = Text()
        for column, cell in enumerate(row):
            space = " " * (widths[column] - cell.cell_len)
            is_last = column == len(row) - 1
            line.append(space if column in right_aligned else "")
            line.append_text(cell)
            line.append("" if is_last else ("" if column in right_aligned else space) + "  ")
        line.rstrip()
        out.print(line)


def _shrink(widths: list[int], head: Sequence[str], columns: int) -> None:
    """Narrow the widest columns, never below their names, until a row fits the terminal or none can be narrower."""
    while sum(widths) + COLUMN_GAP * (len(widths) - 1) > columns:
        widest = max(range(len(widths)), key=lambda column: widths[column] - len(head[column]))
        if widths[widest] <= len(head[widest]):
            return
        widths[widest] -= 1


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return replace_control_characters(value)
    if isinstance(value, Text):
        value.plain = replace_control_characters(value.plain)  # of the same length, so the style ranges stay valid
    return value
