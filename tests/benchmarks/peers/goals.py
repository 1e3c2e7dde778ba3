"""What the measured medians are held against: the goals of this project, and every figure of others that is better.

Pure. All of it is within one run on one machine; there is no comparison with figures from elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PYTHON_PEERS = ("dbos", "langgraph")
OURS = ("topic", "http")
LOG_BYTES = 8 * 1024
TIMES_PYTHON, TIMES_RESTATE = 10.0, 4.0
LEAST_RUNS_PER_S: Mapping[tuple[str, int], float] = {
    ("topic", 16): 800,
    ("topic", 64): 2_000,
    ("http", 16): 500,
    ("http", 64): 1_000,
    ("http", 256): 1_200,
}
MOST_MS: Mapping[tuple[str, int, str], float] = {
    ("topic", 1, "p50_ms"): 8,
    ("topic", 16, "p99_ms"): 50,
    ("http", 1, "p50_ms"): 9,
}
WORSE = 1.02
"""A figure that differs by less than this counts as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One goal with what was measured; `met` is None when it was not."""

    text: str
    goal: str
    measured: str
    met: bool | None


def goals(figures: Mapping[str, Any]) -> list[Goal]:
    """Every goal."""
    made = []
    for (name, n), least in LEAST_RUNS_PER_S.items():
        row = row_of(figures, name, n)
        made.append(
            Goal(
                text=f"{name}, {n} in flight",
                goal=f"at least {least:,.0f} runs/s",
                measured="" if row is None else f"{row['runs_per_s']:,.0f}",
                met=None if row is None else row["runs_per_s"] >= least,
            )
        )
    for (name, n, which), most in MOST_MS.items():
        row = row_of(figures, name, n)
        made.append(
            Goal(
                text=f"{name}, {n} in flight",
                goal=f"{which.removesuffix('_ms')} under {most:g} ms",
                measured="" if row is None else f"{row[which]:.1f} ms",
                met=None if row is None else row[which] < most,
            )
        )
    for ours in OURS:
        made.append(least_ratio(figures, ours, PYTHON_PEERS, TIMES_PYTHON, "the best Python peer"))
        made.append(least_ratio(figures, ours, ("restate",), TIMES_RESTATE, "Restate"))
    sizes = [row["log_bytes_per_run"] for row in figures["rows"] if "log_bytes_per_run" in row]
    made.append(
        Goal(
            text=f"log of a run with {figures['payload_bytes']:,} bytes of payload",
            goal=f"at most {LOG_BYTES:,} bytes",
            measured=f"{max(sizes):,.0f}" if sizes else "",
            met=max(sizes) <= LOG_BYTES if sizes else None,
        )
    )
    return made


def least_ratio(figures: Mapping[str, Any], ours: str, others: Sequence[str], goal: float, whom: str) -> Goal:
    """Ours against the best of the others, where that is least."""
    least: float | None = None
    where = 0
    for n in sorted({row["in_flight"] for row in figures["rows"]}):
        result = [value for other in others if (value := ratio(figures, ours, other, n)) is not None]
        if result and (least is None or min(result) < least):
            least, where = min(result), n
    return Goal(
        text=f"{ours}, against {whom}, where that is least",
        goal=f"at least {goal:g} times the runs/s",
        measured="" if least is None else f"{least:.1f} ({where} in flight)",
        met=None if least is None else least >= goal,
    )


def ratio(figures: Mapping[str, Any], ours: str, theirs: str, n: int) -> float | None:
    """Ours divided by theirs in runs a second; None when one of them was not measured or ended nothing."""
    mine, other = row_of(figures, ours, n), row_of(figures, theirs, n)
    if mine is None or other is None or not other["runs_per_s"]:
        return None
    return float(mine["runs_per_s"] / other["runs_per_s"])


def losses(figures: Mapping[str, Any]) -> list[str]:
    """A sentence for each number in flight and other system that beats the better of our two paths in something."""
    values = []
    for n in sorted({row["in_flight"] for row in figures["rows"]}):
        mine = [row for name in OURS if (row := row_of(figures, name, n))]
        for system in figures["systems"]:
            other = row_of(figures, system["name"], n)
            if system["kind"] == "ours" or other is None or not mine or not other["runs_per_s"]:
                continue
            worse = [
                text
                for text in (
                    less(max(row["runs_per_s"] for row in mine), other["runs_per_s"], "runs/s"),
                    more(min(row["p50_ms"] for row in mine), other["p50_ms"], "ms at p50"),
                    more(min(row["p99_ms"] for row in mine), other["p99_ms"], "ms at p99"),
                    more(min(map(cpu_ms, mine)), cpu_ms(other), "ms of CPU a run"),
                )
                if text
            ]
            if worse:
                values.append(f"{n} in flight, {system['title']}: {'; '.join(worse)}")
    return values


def less(ours: float, theirs: float, what: str) -> str:
    return f"{theirs:,.0f} {what} against our {ours:,.0f}" if theirs > ours * WORSE else ""


def more(ours: float, theirs: float, what: str) -> str:
    return f"{theirs:,.1f} {what} against our {ours:,.1f}" if ours > theirs * WORSE else ""


def cpu_ms(row: Mapping[str, Any]) -> float:
    """CPU milliseconds a run of everything that took part; what only idled beside is not in it."""
    return float(sum(ms for name, ms in row["cpu_ms_per_run"].items() if not name.endswith("idle")))


def row_of(figures: Mapping[str, Any], system: str, n: int) -> Mapping[str, Any] | None:
    rows: Sequence[Mapping[str, Any]] = figures["rows"]
    return next((row for row in rows if row["system"] == system and row["in_flight"] == n), None)
