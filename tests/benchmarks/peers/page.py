"""docs/BENCHMARKS.md from the figures in docs/figures; no figure in it is written by hand.

    python -m tests.benchmarks.peers.page

    peers.json     make bench-peers
    smoke.json     python -m tests.benchmarks.smoke --write FILE...

A file that is not there is a section that says so. Everything that judges (ratios, goals, where we lose) is computed
from the medians of the same run.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.goals import Goal, goals, losses, ratio
from tests.benchmarks.peers.systems import IDLE
from tests.benchmarks.smoke_verdict import FALLEN

DOCS = Path(__file__).parents[3] / "docs"
FIGURES = DOCS / "figures"
OURS = ("topic", "http")
FULL_REPETITIONS, FULL_SECONDS = 3, 5.0
SHORT = "**A short run: it shows that every system works, its figures are not for quoting.**\n\n"

HEAD = """\
# Benchmarks

Written by `python -m tests.benchmarks.peers.page` from docs/figures/peers.json and smoke.json, which `make bench-peers`
and tests/benchmarks/smoke.py measure. No figure here was typed by a person.

"""
WORKLOAD = """\
## What is measured

A3x2: a run of three model turns and two tool calls. Model and tool are mocks that answer at once with 1,000 random
characters, so that what is left is the system itself. A step's result is durable before the next step begins, and the
caller waits for the final text. A closed loop keeps so many runs in flight; a run counts where it ends. Client,
servers, broker and database share the cores of one machine. Systems take turns within each repetition, so that a slow
minute hits all of them; a row is the median of the repetitions, with the lowest and the highest in brackets.

"""
NOT_COMPARED = """\
## How far to trust this

* One machine, one broker, one Postgres, one Restate node: no network, no replication. Durable means fsynced there.
* The machine is shared by all parts of a system and its speed drifts; compare within one run only, and differences
  under a fifth mean nothing.
* The mocks cost nothing. With a real model a run takes seconds, and the systems differ in what a waiting run costs.
* DBOS and LangGraph are libraries and run in the client's process: no hop between caller and worker. With more than one
  run in flight there are as many of those processes as cores.
* Our stack stays up while others are measured, because its broker and its Postgres serve the floors and the peers; what
  it costs meanwhile is the group "ours, idle" and is not in their totals.
* The API and our client of the commands topic give runs that begin together keys of one partition, as decision 27
  says, with what it brings. A program that draws its keys at random is slower than the rows of the topic.
* Ours does more than the workload asks: typed records, redaction, a hash chain, a projection in Postgres, live figures.
"""


def page(figures: Mapping[str, Any] | None, smoke: Mapping[str, Any] | None) -> str:
    """The whole page."""
    return HEAD + WORKLOAD + (peers(figures) if figures else "Not measured.\n\n") + gate(smoke) + "\n" + NOT_COMPARED


def peers(figures: Mapping[str, Any]) -> str:
    """Everything from one `make bench-peers`."""
    return "".join(
        f"{part}\n"
        for part in (
            measured(figures),
            throughput(figures),
            latency(figures),
            ratios(figures),
            verdicts(figures),
            lost(figures),
            cpu(figures),
            stored(figures),
            durable(figures),
            versions(figures),
            left_out(figures),
        )
    )


def measured(figures: Mapping[str, Any]) -> str:
    """When, on what, how."""
    machine = figures["machine"]
    short = figures["repetitions"] < FULL_REPETITIONS or figures["seconds"] < FULL_SECONDS
    return (SHORT if short else "") + (
        f"Measured {figures['at']} at commit {figures['commit']}, on {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}, Python {machine['python']}, fdatasync p50 "
        f"{machine['fdatasync_ms']['p50']} ms, p99 {machine['fdatasync_ms']['p99']} ms. {figures['repetitions']} "
        f"repetitions of {figures['seconds']:g} s after {figures['warm_up_s']:g} s of warm-up.\n"
    )


def throughput(figures: Mapping[str, Any]) -> str:
    """Runs a second of each system and number in flight."""
    return "## Runs a second\n\n" + by_level(figures, lambda row: f"**{row['runs_per_s']:,.0f}** {spread(row)}")


def spread(row: Mapping[str, Any]) -> str:
    low, high = row["runs_per_s_range"]
    failed = f", {row['errors']:.0f} errors" if row["errors"] else ""
    return f"({low:,.0f}-{high:,.0f}{failed})"


def latency(figures: Mapping[str, Any]) -> str:
    """From the run's beginning to its final text."""
    return "## Latency of a run, p50 / p99 in milliseconds\n\n" + by_level(
        figures, lambda row: f"{row['p50_ms']:,.1f} / {row['p99_ms']:,.1f}"
    )


def by_level(figures: Mapping[str, Any], cell: Callable[[Mapping[str, Any]], str]) -> str:
    """A table with a line a system and a column a number in flight."""
    levels = in_flight(figures)
    lines = [
        [system["title"], *(told(row, cell) if (row := found(figures, system["name"], n)) else "" for n in levels)]
        for system in figures["systems"]
    ]
    return table(["", *(f"{n} in flight" for n in levels)], lines)


def told(row: Mapping[str, Any], cell: Callable[[Mapping[str, Any]], str]) -> str:
    return cell(row) if row["runs_per_s"] else "no run ended"


def ratios(figures: Mapping[str, Any]) -> str:
    """How many times the throughput of each other system ours is."""
    levels = in_flight(figures)
    lines = []
    for system in figures["systems"]:
        if system["kind"] == "ours":
            continue
        for ours in OURS:
            each = [times(ratio(figures, ours, system["name"], n)) for n in levels]
            lines.append([f"{title(figures, ours)} / {system['title']}", *each])
    return "## Ours divided by theirs, runs a second\n\n" + table(["", *(f"{n} in flight" for n in levels)], lines)


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def verdicts(figures: Mapping[str, Any]) -> str:
    """The goals this project set itself, and what was measured."""
    lines = [[one.text, one.goal, one.measured, verdict(one)] for one in goals(figures)]
    return "## Goals\n\n" + table(["", "goal", "measured", ""], lines)


def verdict(goal: Goal) -> str:
    return {True: "met", False: "**missed**", None: "not measured"}[goal.met]


def lost(figures: Mapping[str, Any]) -> str:
    """Every figure of theirs that is better than ours."""
    found_losses = losses(figures)
    text = "".join(f"* {line}\n" for line in found_losses) or "* in no figure of this run\n"
    return f"## Where we lose\n\n{text}"


def cpu(figures: Mapping[str, Any]) -> str:
    """CPU milliseconds a run of every group of processes."""
    lines = []
    for row in figures["rows"]:
        groups = {name: ms for name, ms in row["cpu_ms_per_run"].items() if name != IDLE}
        parts = ", ".join(f"{name} {ms:.2f}" for name, ms in groups.items() if ms >= 0.005)
        idle = row["cpu_ms_per_run"].get(IDLE)
        cells = [f"**{sum(groups.values()):.2f}**", parts, "" if idle is None else f"{idle:.2f}"]
        lines.append([title(figures, row["system"]), str(row["in_flight"]), *cells])
    return "## CPU milliseconds a run\n\n" + table(["", "in flight", "total", "of which", IDLE], lines)


def stored(figures: Mapping[str, Any]) -> str:
    """Bytes a run of what is written to the log or to Postgres's write-ahead log."""
    lines = []
    for row in figures["rows"]:
        log, wal = row.get("log_bytes_per_run"), row.get("wal_bytes_per_run")
        if log is not None or wal is not None:
            cells = ["" if value is None else f"{value:,.0f}" for value in (log, wal)]
            lines.append([title(figures, row["system"]), str(row["in_flight"]), *cells])
    return (
        f"## Bytes a run\n\nThe steps of a run return {figures['payload_bytes']:,} bytes. Ours writes them to the log "
        "(commands and events); what it writes to Postgres is its projection.\n\n"
        + table(["", "in flight", "commands and events", "Postgres's write-ahead log"], lines)
    )


def durable(figures: Mapping[str, Any]) -> str:
    """What each system promises when the caller has its answer."""
    lines = [[s["title"], s["runs_on"], s["durable"], s["not_durable"]] for s in figures["systems"]]
    return "## What is durable, and what is not\n\n" + table(["", "runs on", "durable", "not"], lines)


def versions(figures: Mapping[str, Any]) -> str:
    """Of everything that was measured, with the settings that matter."""
    lines = [["loomlog's environment", named(figures["loomlog"])], ["Kafka", named(figures["kafka"])]]
    lines.append(["Postgres", named(figures["postgres"])])
    seen: set[str] = set()
    for row in figures["rows"]:
        if row["versions"] and row["system"] not in seen:
            seen.add(row["system"])
            lines.append([title(figures, row["system"]), named(row["versions"])])
    return "## Versions and settings\n\n" + table(["", ""], lines)


def named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def left_out(figures: Mapping[str, Any]) -> str:
    """What could not be measured, with the evidence."""
    lines = "".join(f"* {one['title']}: {' '.join(one['reason'].split())}\n" for one in figures["left_out"])
    return f"## Left out\n\n{lines or 'Nothing.'}" + ("" if lines else "\n")


def gate(smoke: Mapping[str, Any] | None) -> str:
    """The baseline of `make bench-smoke`."""
    text = (
        "## The gate\n\n`make bench-smoke` measures ours and the raw Kafka floor in turns of a moment and fails when "
        f"ours divided by the floor is under {FALLEN:.2f} of the baseline; with many in flight that is taken as so "
        "much lower as Python is slower than it was then.\n\n"
    )
    if smoke is None:
        return text + "No baseline was measured.\n"
    lines = [
        [name, f"{row['ratio']:.3f}", f"{row['low']:.3f}-{row['high']:.3f}", f"{FALLEN * row['ratio']:.3f}"]
        for name, row in smoke["rows"].items()
    ]
    return (
        f"{text}Baseline of {smoke['at']}, {smoke['sessions']} stacks, on {smoke['machine']['cores']} cores:\n\n"
        + table(["path and in flight", "ours / floor", "over the stacks", "fails below"], lines)
    )


def in_flight(figures: Mapping[str, Any]) -> list[int]:
    return sorted({row["in_flight"] for row in figures["rows"]})


def found(figures: Mapping[str, Any], system: str, n: int) -> Mapping[str, Any] | None:
    rows: Sequence[Mapping[str, Any]] = figures["rows"]
    return next((row for row in rows if row["system"] == system and row["in_flight"] == n), None)


def title(figures: Mapping[str, Any], name: str) -> str:
    return next((str(system["title"]) for system in figures["systems"] if system["name"] == name), name)


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = ["---"] * len(heads)
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in (heads, rule, *lines))


def main() -> int:
    """Writes the page."""
    read = [
        json.loads(path.read_text()) if path.exists() else None
        for path in (FIGURES / "peers.json", FIGURES / "smoke.json")
    ]
    (DOCS / "BENCHMARKS.md").write_text(page(*read))
    return 0


if __name__ == "__main__":
    sys.exit(main())
