"""What one run of A3x2 costs and what one process carries, from the files of docs/figures. Nothing is assumed here.

Before: cluster.py. After: peers.json, scaling-*.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EVENTS_OF_A_RUN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one run of A3x2, unless said otherwise. Times are CPU milliseconds."""

    runtime_ms: float | None = None
    standby_ms: float | None = None
    """What a second runtime, which folds along, adds."""
    projector_ms: float | None = None
    api_ms: float | None = None
    """Over HTTP and SSE, without what reading the log takes."""
    api_reading_ms: float | None = None
    """What each api process pays for each run of the whole cluster, because it reads every event; of an api nobody
    listens at, so a little too low."""
    kafka_ms: float | None = None
    postgres_ms: float | None = None
    log_bytes: float | None = None
    wal_bytes: float | None = None
    rows: float | None = None
    """Written to Postgres."""
    table_bytes: float | None = None
    """Kept by Postgres, with indexes."""
    flushes: float | None = None
    """Group commits of a runtime, divided by its runs, where it did most."""
    partition_runs_per_s: float | None = None
    """Of one partition alone."""
    streams: float | None = None
    """Open streams that one api process was seen to hold."""
    live_run_bytes: float | None = None
    """Memory of a runtime for a run that waits."""


Figures = Mapping[str, Mapping[str, Any] | None]
"""The contents of docs/figures by the file's name; None for what is not there."""


def measured(figures: Figures) -> Measured:
    """The figures of a run, from peers.json and the curves."""
    http, topic = _busiest(figures.get("peers"), "http"), _busiest(figures.get("peers"), "topic")
    cpu: Mapping[str, float] = {} if http is None else http["cpu_ms_per_run"]
    reading = None if topic is None else topic["cpu_ms_per_run"].get("api")
    api = cpu.get("api")
    partitions, replay = _rows(figures, "scaling-partitions"), _rows(figures, "scaling-replay")
    alone = [row for row in partitions if row["runtimes"] == 1]
    runs_replayed = replay[-1]["events"] / EVENTS_OF_A_RUN if replay else None
    return Measured(
        runtime_ms=cpu.get("runtime"),
        standby_ms=_standby(partitions),
        projector_ms=cpu.get("projector"),
        api_ms=None if api is None or reading is None else max(0.0, api - reading),
        api_reading_ms=reading,
        kafka_ms=cpu.get("kafka"),
        postgres_ms=cpu.get("postgres"),
        log_bytes=None if http is None else http.get("log_bytes_per_run"),
        wal_bytes=None if http is None else http.get("wal_bytes_per_run"),
        rows=sum(replay[-1]["rows_written"].values()) / runs_replayed if runs_replayed else None,
        table_bytes=sum(replay[-1]["table_bytes"].values()) / runs_replayed if runs_replayed else None,
        flushes=max(alone, key=lambda row: row["runs_per_s"])["flushes_per_run"] if alone else None,
        partition_runs_per_s=next((row["runs_per_s"] for row in alone if row["partitions"] == 1), None),
        streams=_most_streams(_rows(figures, "scaling-streams")),
        live_run_bytes=_bytes_a_run(_rows(figures, "scaling-parked")),
    )


def _rows(figures: Figures, name: str) -> Sequence[Mapping[str, Any]]:
    result = figures.get(name)
    return [] if result is None else result["rows"]


def _busiest(peers: Mapping[str, Any] | None, system: str) -> Mapping[str, Any] | None:
    """The row of most runs a second, where a run is cheapest."""
    rows = [] if peers is None else [row for row in peers["rows"] if row["system"] == system and row["runs_per_s"]]
    return max(rows, key=lambda row: row["runs_per_s"]) if rows else None


def _standby(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """What two runtimes use beyond one, at the same partitions, most of them; at least nothing."""
    cpu = {(row["runtimes"], row["partitions"]): _of_runtimes(row["cpu_ms_per_run"]) for row in rows}
    both = [partitions for runtimes, partitions in cpu if runtimes == 2 and (1, partitions) in cpu]
    return max(0.0, cpu[2, max(both)] - cpu[1, max(both)]) if both else None


def _of_runtimes(cpu: Mapping[str, float]) -> float:
    return sum(value for name, value in cpu.items() if name.startswith("runtime"))


def _most_streams(rows: Sequence[Mapping[str, Any]]) -> float | None:
    return max((row["streams"] for row in rows if not row["ended_early"] and not row["errors"]), default=None)


def _bytes_a_run(rows: Sequence[Mapping[str, Any]]) -> float | None:
    if len(rows) < 2:
        return None
    first, last = rows[0], rows[-1]
    more: float = last["uss_bytes"]["runtime"] - first["uss_bytes"]["runtime"]
    return max(0.0, more / float(last["runs"] - first["runs"]))
