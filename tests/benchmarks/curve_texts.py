"""What each curve shows, as sentences and a table made of its rows. No figure is in the words themselves.

Before: scale_page.py.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks.peers.page import table
from tests.benchmarks.plots import middle
from tests.benchmarks.run_costs import EVENTS_OF_A_RUN

Rows = Sequence[Mapping[str, Any]]


def partitions(rows: Rows) -> str:
    cells = [
        [
            str(row["runtimes"]),
            str(row["partitions"]),
            f"**{row['runs_per_s']:,.0f}**",
            f"{row['p50_ms']:.1f} / {row['p99_ms']:.1f}",
            f"{sum(ms for name, ms in row['cpu_ms_per_run'].items() if name.startswith('runtime')):.2f}",
            f"{sum(row['cpu_ms_per_run'].values()):.2f}",
            f"{row['flushes_per_run']:.2f}" if "flushes_per_run" in row else "",
        ]
        for row in rows
    ]
    best = {
        n: max((row for row in rows if row["runtimes"] == n), key=_rate) for n in sorted({r["runtimes"] for r in rows})
    }
    text = "; ".join(
        f"with {_counted(n, 'runtime')} {_rate(row):,.0f} runs/s at most, at {_counted(row['partitions'], 'partition')}"
        for n, row in best.items()
    )
    return (
        f"{text.capitalize()}. One flusher commits for all partitions of a process, so partitions are for spreading "
        "runs over processes, not for speed within one. A second runtime stands by for the partitions of the first and "
        "folds along; where all processes share the same cores it can only cost.\n\n"
        + table(
            ["runtimes", "partitions", "runs/s", "p50 / p99 ms", "CPU ms a run, runtimes", "all", "flushes a run"],
            cells,
        )
    ).rstrip()


def in_flight(rows: Rows) -> str:
    cells = [
        [
            f"{row['in_flight']:,}",
            f"{row['runs_per_s']:,.0f}",
            f"{row['first_text_ms']['p50']:,.1f} / {row['first_text_ms']['p99']:,.1f}",
            f"{row['end_ms']['p50']:,.1f} / {row['end_ms']['p99']:,.1f}",
            str(row["errors"]),
        ]
        for row in rows
    ]
    best, last = max(rows, key=_rate), rows[-1]
    # The fewest runs in flight that give nearly what most give: from there on more only wait.
    knee = next(row for row in rows if _rate(row) >= 0.9 * _rate(best))
    return (
        f"Most runs a second, {_rate(best):,.0f}, at {best['in_flight']:,} in flight; nine tenths of it are there at "
        f"{knee['in_flight']:,}. Beyond, runs wait for each other and latency grows with their number: at "
        f"{last['in_flight']:,} in flight a run takes {last['end_ms']['p50']:,.0f} ms at p50 and "
        f"{last['end_ms']['p99']:,.0f} ms at p99, with {_counted(last['errors'], 'error')}.\n\n"
        + table(["in flight", "runs/s", "first text p50 / p99 ms", "end p50 / p99 ms", "errors"], cells)
    ).rstrip()


def streams(rows: Rows) -> str:
    cells = [
        [
            f"{row['streams']:,}",
            f"{row['event_to_client_ms']['p50']:.1f} / {row['event_to_client_ms']['p99']:.1f}",
            f"{row['frames']:,}",
            str(row["errors"]),
            str(row["ended_early"]),
            f"{row['api_uss_bytes'] / 1e6:,.0f}",
        ]
        for row in rows
    ]
    first, last = rows[0], rows[-1]
    more = last["streams"] - first["streams"]
    each = f"{(last['api_uss_bytes'] - first['api_uss_bytes']) / more / 1e3:,.0f} KB" if more else "not known"
    return (
        f"{last['streams']:,} streams open at one api process, {last['inputs_per_s']:.0f} turns a second among them: "
        f"from the event to the client p50 {last['event_to_client_ms']['p50']:.1f} ms, p99 "
        f"{last['event_to_client_ms']['p99']:.1f} ms; with {first['streams']:,} it was "
        f"{first['event_to_client_ms']['p99']:.1f} ms at p99. {_counted(last['ended_early'], 'stream')} ended early. "
        f"Each further stream, with its parked run, took {each} of the api's memory.\n\n"
        + table(["streams", "event to client p50 / p99 ms", "frames", "errors", "ended early", "api MB"], cells)
    ).rstrip()


def parked(rows: Rows) -> str:
    names = ("runtime", "api", "projector")
    cells = [
        [
            f"{row['runs']:,}",
            *(f"{row['uss_bytes'][name] / 1e6:,.0f}" for name in names),
            *(f"{row['idle_cpu_percent'][name]:.1f}" for name in names),
        ]
        for row in rows
    ]
    first, last = rows[0], rows[-1]
    more = last["runs"] - first["runs"]
    each = ", ".join(
        f"{name} {(last['uss_bytes'][name] - first['uss_bytes'][name]) / more / 1e3:,.1f} KB" for name in names
    )
    total = sum(last["uss_bytes"][name] for name in names)
    return (
        f"With {last['runs']:,} parked runs the three hold {total / 1e6:,.0f} MB together. Each further run takes: "
        f"{each}. The idle CPU is what a stack takes anyway; parked runs have no timers of their own.\n\n"
        + table(
            ["parked runs", *(f"{name} MB" for name in names), *(f"{name} idle CPU %" for name in names)],
            cells,
        )
    ).rstrip()


def live(rows: Rows) -> str:
    first, last = rows[0], rows[-1]
    return (
        f"{_claimed(rows)} From the claim until the calls of all live runs were asked for again it takes "
        f"{_ms(first, 'recovered_s')} ms with {first['live']:,} live runs and {_ms(last, 'recovered_s')} ms with "
        f"{last['live']:,}: a take-over costs its live runs.\n\n" + _kills(rows, "live", "live runs")
    ).rstrip()


def history(rows: Rows) -> str:
    first, last = rows[0], rows[-1]
    return (
        f"{_claimed(rows)} From the claim to the first event it takes {_ms(first, 'serving_s')} ms with "
        f"{first['events']:,} events behind it and {_ms(last, 'serving_s')} ms with {last['events']:,}: what is older "
        "than the checkpoint is not read.\n\n" + _kills(rows, "events", "events")
    ).rstrip()


def replay(rows: Rows) -> str:
    ways = ("rebuild", "lost", "fold", "proof")
    cells = [[f"{row['events']:,}", *(f"{row[f'{way}_events_per_s']:,.0f}" for way in ways)] for row in rows]
    last = rows[-1]
    runs = last["events"] / EVENTS_OF_A_RUN
    largest = sorted(last["table_bytes"].items(), key=lambda one: -one[1])[:4]
    total = sum(last["table_bytes"].values()) or 1
    tables = ", ".join(f"{name} {100 * size / total:.0f} %" for name, size in largest)
    return (
        f"At {last['events']:,} events read models are rebuilt beside the live ones at "
        f"{last['rebuild_events_per_s']:,.0f} events/s and rebuilt after a lost database at "
        f"{last['lost_events_per_s']:,.0f}, equal to the byte both times. One process folds all runs at "
        f"{last['fold_events_per_s']:,.0f} events/s, and proves them (each state written and read back) at "
        f"{last['proof_events_per_s']:,.0f}. Short logs are dominated by what a rebuild costs once. A run keeps "
        f"{total / runs / 1e3:,.1f} KB in Postgres; of it: {tables}.\n\n"
        + table(["events", "rebuild", "lost database", "replay, fold only", "replay, proven"], cells)
    ).rstrip()


SHOWN: Mapping[str, tuple[str, Callable[[Rows], str]]] = {
    "partitions": ("Partitions and runtimes", partitions),
    "in_flight": ("Runs in flight", in_flight),
    "streams": ("Open streams", streams),
    "parked": ("Parked runs", parked),
    "live": ("Take-over against live runs", live),
    "history": ("Take-over against history", history),
    "replay": ("Reading the log again", replay),
}


def _rate(row: Mapping[str, Any]) -> float:
    return float(row["runs_per_s"])


def _claimed(rows: Rows) -> str:
    kills = [one for row in rows for one in row["kills"]]
    claimed = statistics.median(one["claimed_s"] for one in kills)
    return (
        f"The lone runtime is killed; after {claimed:.1f} s (median of {len(kills)}) its partition is claimed again, "
        "which is the group's session or the supervisor's restart and not our work (with a standby it is tens of "
        "milliseconds, RELIABILITY.md)."
    )


def _ms(row: Mapping[str, Any], field: str) -> str:
    return f"{1000 * middle(row['kills'], field):.0f}"


def _kills(rows: Rows, key: str, name: str) -> str:
    fields = ("claimed_s", "serving_s", "recovered_s")
    cells = [[f"{row[key]:,}", str(len(row["kills"])), *(_ms(row, field) for field in fields)] for row in rows]
    heads = [name, "kills", "kill to claim ms", "claim to first event ms", "claim to all live runs ms"]
    return table(heads, cells)


def _counted(count: float, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
