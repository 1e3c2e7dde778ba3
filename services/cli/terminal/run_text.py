"""A run as text: its ids, its row in a table, its facts, its result.

Before: services/cli/runs/runs.py, live_view.py, with the JSON of the API. After: the terminal.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from loomlog.connectors.client.run_stream import RunIds
from loomlog.services.cli.terminal.formatting import duration, format_age, money, number, one_line, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, fact_line, print_table

ID_CHARACTERS = 12
"""Characters shown of each part of an id: ten of its time in milliseconds, and two random ones."""
COLUMNS = ("RUN", "AGENT", "STATUS", "TURNS", "CALLS", "TOKENS", "COST", "TOOK", "STARTED")
STATUS_STYLE = {"completed": SUCCESS, "failed": ERROR, "cancelled": WARNING, "quarantined": ERROR}


def run_line(ids: RunIds) -> Text:
    """Format the ids of a run, and the log position of its first event."""
    line = Text.assemble(("run ", DIM), (ids.run_id, NAME), ("  session ", DIM), ids.session_id)
    if ids.position:
        line.append_text(Text.assemble(("  event ", DIM), ids.position))
    return line


def elapsed_seconds(row: Mapping[str, Any]) -> float:
    """Return the seconds a run took, or has taken up to its last event."""
    began, ended = (datetime.fromisoformat(row[name]) for name in ("started_at", "last_event_at"))
    return max(0.0, (ended - began).total_seconds())


def result_line(row: Mapping[str, Any]) -> Text:
    """Format how a run ended and its totals."""
    usage = row["usage"]
    read = sum(usage[name] for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))
    status = "quarantined" if row["quarantined"] else row["status"]
    why = row["stop_reason"] or row["error_code"] or ""
    spent = (
        f"{pluralize(row['iterations'], 'turn')}, {pluralize(row['tool_calls'], 'tool call')}, "
        f"{number(read)} tokens in, {number(usage['output_tokens'])} out, "
        f"{money(row['cost_micros'], row['currency'] or '')}, {duration(elapsed_seconds(row))}"
    )
    named = f" ({why})" if why and why != status else ""
    return Text.assemble((f"{status}{named}", STATUS_STYLE.get(status, "")), ("  " + spent, DIM))


def short_id(run_id: str) -> str:
    """Shorten each part of an id to ID_CHARACTERS; `resolve_run_id` finds the run again."""
    kind, _, rest = run_id.partition("_")
    return f"{kind}_" + "-".join(part[:ID_CHARACTERS] for part in rest.split("-"))


def print_runs(out: Console, rows: Iterable[Mapping[str, Any]], *, wide: bool = True) -> None:
    """Print a table of runs; `wide`: with whole ids."""
    now = datetime.now(UTC)
    print_table(out, COLUMNS, [table_row(row, now, wide=wide) for row in rows], right_aligned=(3, 4, 5, 6, 7))


def table_row(row: Mapping[str, Any], now: datetime, *, wide: bool = True) -> tuple[str | Text, ...]:
    """Return the cells of a run in the table of COLUMNS."""
    usage = row["usage"]
    status = display_status(row)
    began = datetime.fromisoformat(row["started_at"])
    took_s = elapsed_seconds(row) if row["completed_at"] else (now - began).total_seconds()
    return (
        Text(row["run_id"] if wide else short_id(row["run_id"]), style=NAME),
        one_line(row["agent"], 32),
        Text(status, style=STATUS_STYLE.get(status, WARNING)),
        str(row["iterations"]),
        str(row["tool_calls"]),
        number(usage["input_tokens"] + usage["output_tokens"]),
        money(row["cost_micros"], row["currency"] or ""),
        duration(took_s),
        format_age((now - began).total_seconds()),
    )


def display_status(row: Mapping[str, Any]) -> str:
    """Return the status for a list: the stored one, or what a live run waits for."""
    if row["quarantined"]:
        return "quarantined"
    if row.get("paused"):
        return "paused"
    if row.get("pause_requested"):
        return "pausing"
    if row.get("awaited_state") == "interrupted":
        return "asking"
    return "parked" if row["parked"] else str(row["status"])


def _context_text(row: Mapping[str, Any]) -> str:
    """Format the used share of the context window, and the number of compactions."""
    gauge, times = row.get("context"), row.get("compactions") or 0
    if gauge is None:
        return ""
    often = f", compacted {pluralize(times, 'time')}" if times else ""
    return f"{number(gauge['used_tokens'])} of {number(gauge['max_tokens'])} tokens ({gauge['used_pct']:g} %){often}"


def print_facts(out: Console, row: Mapping[str, Any]) -> None:
    """Print the known facts of the run, one a line."""
    forked = row.get("forked_from")
    facts = {
        "run": row["run_id"],
        "agent": f"{row['agent']} ({row['provider']}/{row['model']})",
        "session": row["session_id"],
        "handle": row["agent_id"],
        "user": f"{row['user_id']} of tenant {row['tenant_id']}",
        "status": row["status"],
        "paused": (row.get("pause_reason") or "yes") if row.get("pause_requested") else "",
        "quarantine": row["quarantine_error"] or "",
        "context": _context_text(row),
        "started": row["started_at"],
        "ended": row["completed_at"] or "",
        "continues": row["continues_run_id"] or "",
        "forked": "" if forked is None else f"from {forked['run_id']} at {forked['seq']}",
        "imported": f"from {row['imported_from']}" if row.get("imported_from") else "",
        "position": row["position"],
    }
    for name, value in facts.items():
        if value:
            out.print(fact_line(name, value))
