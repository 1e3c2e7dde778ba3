"""The lag of the read models as text.

Before: services/cli/log/projections.py, services/cli/doctor/status.py. After: the terminal.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from loomlog.services.cli.terminal.formatting import duration, format_age, number, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, print_table
from loomlog.services.core.check import SILENT_AFTER_S as SILENT_AFTER_S

RUN_EVENTS = "loom.run.events"


def print_lag(out: Console, report: Mapping[str, Any]) -> None:
    """Print the lag as a table."""
    if not report["partitions"]:
        out.print(Text(f"There is no topic {report['topic']} yet.", style=WARNING))
        return
    print_table(
        out,
        ("PARTITION", "PROJECTED", "END", "LAG", "TERM", "EPOCH", "OWNER"),
        [
            (
                str(one["partition"]),
                str(one["next_offset"]),
                str(one["end_offset"]),
                Text(str(one["lag"]), style=SUCCESS if not one["lag"] else WARNING),
                _optional_text(one["term"]),
                _optional_text(one["epoch"]),
                one["owner"] or "none",
            )
            for one in report["partitions"]
        ],
        right_aligned=(0, 1, 2, 3, 4, 5),
    )
    for one in report["projectors"]:
        out.print(projector_line(one))
    if not report["projectors"]:
        out.print(Text("No projector has ever worked here.", style=ERROR))
    if report["problems"]:
        out.print(problems_line(report["problems"]))


def projector_line(status: Mapping[str, Any]) -> Text:
    """Format the status a projector last reported, or that it is silent."""
    silent = status["said_s_ago"] > SILENT_AFTER_S
    words = "silent" if silent else status["state"]
    line = Text.assemble(("projector ", DIM), (status["owner"], NAME), "  ")
    if (topic := status.get("topic", RUN_EVENTS)) != RUN_EVENTS:
        line.append(f"{topic.removesuffix('.events')}  ", style=DIM)
    line.append(f"{words}, {format_age(status['said_s_ago'])}", style=ERROR if silent else "")
    figures = f"  {number(status['applied_events'])} events, lag {duration(status['lag_ms'] / 1_000)}"
    line.append(figures, style=DIM)
    return line


def problems_line(count: int) -> Text:
    """Format the number of records that could not be projected, and the command that lists them."""
    text = f"{pluralize(count, 'record')} could not be projected: `loomlog projections problems` lists them"
    return Text(text, style=ERROR)


def _optional_text(value: int | None) -> str:
    return "" if value is None else str(value)
