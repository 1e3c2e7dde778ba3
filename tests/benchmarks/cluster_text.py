"""The clusters of docs/SCALE.md as text: what was measured and assumed, what it takes, what breaks first.

Before: scale_page.py. After: cluster.py, which has the arithmetic.
"""

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.cluster import (
    ABOUT,
    COUNTS,
    Assumptions,
    Cluster,
    Limit,
    Sensitivity,
    cluster,
    limits,
    sensitivities,
)
from tests.benchmarks.peers.page import table
from tests.benchmarks.run_costs import Figures, Measured

TARGETS = (1_000.0, 100_000.0)
UNKNOWN = "not measured"
WHY: Mapping[str, str] = {
    "runtime_ms": "CPU ms of the runtime a run",
    "standby_ms": "CPU ms of a second runtime that folds along, a run",
    "projector_ms": "CPU ms of the projector a run",
    "api_ms": "CPU ms of the api a run, reading the log left out",
    "api_reading_ms": "CPU ms of each api process for reading a run's events without subscribers, so slightly low",
    "kafka_ms": "CPU ms of the broker a run",
    "postgres_ms": "CPU ms of Postgres a run",
    "log_bytes": "bytes of log a run (commands and events)",
    "wal_bytes": "bytes of Postgres's write-ahead log a run",
    "rows": "rows written to Postgres a run",
    "table_bytes": "bytes a run keeps in Postgres, with indexes",
    "flushes": "group commits of a runtime a run, where it did most",
    "partition_runs_per_s": "runs/s of one partition alone",
    "streams": "open streams one api process was seen to hold",
    "live_run_bytes": "bytes of memory of the runtime for a run that waits",
}
HOW = """\
How it is computed, N being runs a second and *use* the planned share of a core:

* runtimes: N x (runtime + standby) / 1,000 / use; projectors and apis alike
* partitions: as many as N needs at *use* of what one alone does, or those of the runtimes, whichever is more
* brokers: by replicas, by N x bytes x replicas, or by N x broker's CPU x replicas, whichever is most
* api processes that read the whole log: N x api / 1,000 / (use - N x reading / 1,000); by streams: live runs / streams
* Postgres primaries: by write-ahead log or by cores, whichever is more
* live runs and streams: N x seconds of a run

"""


def on_paper(found: Measured, given: Assumptions, figures: Figures) -> str:
    """The clusters."""
    clusters = [cluster(found, target, given) for target in TARGETS]
    return (
        "## Clusters, on paper\n\nRuns as A3x2: three model turns, two tool calls, 12 events. With a real model a run "
        "takes seconds instead of milliseconds; its texts are longer and its previews are streamed, "
        "which is not in these costs.\n\n"
        + inputs(found, figures)
        + assumptions(given)
        + "### What it takes\n\n"
        + HOW
        + table(["", *(f"{target:,.0f} runs/s" for target in TARGETS)], lines(clusters))
        + "\nAn api process counts as one core, so do runtimes and projectors: each is one Python process. The last "
        "line takes the apis that read their own partitions only.\n\n" + breaks(found, given) + changes(found, given)
    )


def inputs(found: Measured, figures: Figures) -> str:
    """What was measured."""
    peers = figures.get("peers")
    short = (
        f"Costs of a run are those of peers.json ({peers['at']}), from the row of HTTP with most runs a second"
        " (api's reading: of the topic); the others are of the curves above.\n\n"
        if peers is not None
        else "Costs of a run: `make bench-peers` was not run.\n\n"
    )
    rows = [[text, number(getattr(found, name))] for name, text in WHY.items()]
    return "### Measured\n\n" + short + table(["", ""], rows) + "\n"


def assumptions(given: Assumptions) -> str:
    rows = [[text, number(getattr(given, name))] for name, text in ABOUT.items()]
    return (
        "### Assumed\n\n"
        + table(["", ""], rows)
        + "\nThe CPU of the broker is taken for each replica, which is too much for followers; durability is that of "
        "replicas, without an fsync for each flush.\n\n"
    )


def lines(clusters: list[Cluster]) -> list[list[str]]:
    """The rows of the table."""
    texts: list[tuple[str, Any]] = [
        ("live runs and open streams", lambda one: number(one.live_runs)),
        ("runtimes (owners and standbys)", lambda one: number(one.runtimes)),
        ("partitions, never changed afterwards", lambda one: number(one.partitions)),
        ("memory of live runs in each runtime", lambda one: size(one.runtime_bytes)),
        ("bytes into the log a second", lambda one: size(one.log_bytes_per_s)),
        ("written by brokers a second, replicas included", lambda one: size(one.written_bytes_per_s)),
        ("read from brokers a second, besides replicas", lambda one: size(one.read_bytes_per_s)),
        ("group commits a second of all runtimes", lambda one: number(one.flushes_per_s)),
        ("brokers", lambda one: number(one.brokers)),
        ("disk of the log a day, replicas included", lambda one: size(one.log_bytes_per_day)),
        ("projectors", lambda one: number(one.projectors)),
        ("write-ahead log of Postgres a second", lambda one: size(one.wal_bytes_per_s)),
        ("rows written to Postgres a second", lambda one: number(one.rows_per_s)),
        ("Postgres primaries", lambda one: number(one.databases)),
        ("disk of Postgres a day, nothing deleted", lambda one: size(one.table_bytes_per_day)),
        ("api processes, by open streams", lambda one: number(one.apis_by_streams)),
        ("api processes, by CPU, each reading the whole log", apis),
        ("api processes, by CPU, if each read its own partitions only", lambda one: number(one.apis_reading_their_own)),
        ("cores", lambda one: number(one.cores)),
    ]
    return [[text, *(cell(one) for one in clusters)] for text, cell in texts]


def apis(one: Cluster) -> str:
    return "**no number is enough**" if one.reads_too_much else number(one.apis_by_cpu)


def breaks(found: Measured, given: Assumptions) -> str:
    """What no second process helps with."""
    reached = limits(found, given)
    if not reached:
        return f"### What breaks first\n\n{UNKNOWN.capitalize()}.\n\n"
    text = "".join(
        f"{n}. **{one.name}**, at {number(one.runs_per_s)} runs/s: {one.why}.\n" for n, one in enumerate(reached, 1)
    )
    return (
        "### What breaks first\n\nRuntimes, projectors and brokers are added until it is enough. These are not, in the "
        f"order in which they are full:\n\n{text}\n{at_targets(reached)}"
        "Not measured, and to be looked at before 100,000 runs/s: the topics with one partition (budgets, pauses, "
        "providers, hooks), which give everybody one order; the group's rebalance with thousands of partitions; the "
        "auditor and the insights, one process each; how many partitions a runtime reads and folds along with.\n\n"
    )


def at_targets(reached: list[Limit]) -> str:
    """Which limits lie below each target, and what that means."""
    text = ""
    for target in TARGETS:
        below = [one for one in reached if one.runs_per_s < target]
        if not below:
            share = 100 * target / reached[0].runs_per_s
            text += f"* {target:,.0f} runs/s: none of them is reached; the nearest is the first, {share:.0f} % full.\n"
            continue
        names = "; ".join(f"{one.name}, {target / one.runs_per_s:.1f} times over" for one in below)
        text += f"* {target:,.0f} runs/s: {names}.\n"
    return (
        text
        + "\nPast the first kind an api has to read only the partitions of the runs it streams (a run's id says its "
        "partition), and clients have to be led to the right one. Past the second, Postgres has to be cut by tenant or "
        "by partition, each projector writing to the database of its partitions, or the rows that the log can give as "
        "well (transcript, steps) have to be left out of it.\n\n"
    )


def changes(found: Measured, given: Assumptions) -> str:
    """Which figures matter, those first that matter most for the largest target."""
    by_target = [{one.figure: one for one in sensitivities(found, target, given)} for target in TARGETS]
    figures = dict.fromkeys(figure for values in reversed(by_target) for figure in values)
    rows = [[WHY[name], *(change(values[name]) if name in values else "" for values in by_target)] for name in figures]
    values = (
        table(["", *(f"{target:,.0f} runs/s" for target in TARGETS)], rows) if rows else f"{UNKNOWN.capitalize()}.\n"
    )
    return (
        "### Which figure would change the answer\n\nEach of them better by half (half of a cost, twice what one "
        f"process carries), the others as they are:\n\n{values}\n"
        "Besides: how long runs take decides streams and live memory, and with them the api processes; it is assumed. "
        "The bytes of a run decide brokers and disk, and real conversations are longer than A3x2's. A faster reader in "
        "the api moves the first limit above.\n\n"
    )


def change(one: Sensitivity) -> str:
    """What becomes of the counts."""
    return ", ".join(f"{COUNTS[name]} {number(was)} to {number(now)}" for name, (was, now) in one.changes.items())


def number(value: float | None) -> str:
    """Three figures, or whole."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 99.5 or value == int(value) else f"{value:.3g}"


def size(value: float | None) -> str:
    """Bytes in the unit that fits, decimal."""
    if value is None:
        return UNKNOWN
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} bytes"
