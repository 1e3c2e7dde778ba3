"""What a cluster for so many runs a second looks like, on paper, from what was measured on one machine. All pure.

Every figure is Measured or an assumption, both are told on the page (scale_page.py). A figure that was not measured is
None, and so is everything that needs it. CPU of a run is that of the processes of the measured stack; a cluster is
assumed to pay the same for each run, which is too much where batches grow with the load and too little where network
and replication come in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.benchmarks.run_costs import Measured

DAY_S = 86_400
READERS = 3
"""Of the whole log besides the api processes: standbys, projectors, the auditor. An owner has its own events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What was not measured and is assumed."""

    use: float = 0.6
    """Share of its core (or cores) that a process is planned to use, so that it can take over from another."""
    replication: int = 3
    run_s: float = 30.0
    """How long a run takes with a real model; the mocks take nothing."""
    partitions_of_a_runtime: int = 8
    """So that what is left of a dead one can be spread over the others."""
    broker_bytes_per_s: float = 150e6
    """Written by one broker, replicas included."""
    broker_cores: int = 8
    postgres_wal_per_s: float = 100e6
    """Of one primary with a replica that follows."""
    postgres_cores: int = 16


ABOUT: Mapping[str, str] = {
    "use": "share of its cores a process is planned to use",
    "replication": "replicas of each record",
    "run_s": "seconds a run takes with a real model, its stream open all the time",
    "partitions_of_a_runtime": "partitions of a runtime",
    "broker_bytes_per_s": "bytes a second one broker writes, replicas included",
    "broker_cores": "cores of a broker",
    "postgres_wal_per_s": "bytes a second of write-ahead log of one Postgres",
    "postgres_cores": "cores of a Postgres",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What `runs_per_s` runs a second take. Counts are whole; None is what cannot be told without a figure."""

    runs_per_s: float
    runtimes: int | None
    partitions: int | None
    live_runs: int
    runtime_bytes: float | None
    """Of live runs, in each runtime."""
    log_bytes_per_s: float | None
    written_bytes_per_s: float | None
    """Replicas included."""
    read_bytes_per_s: float | None
    """By standbys, projectors and the auditor once each, and by every api process (of its own partitions, where the
    whole log is too much)."""
    flushes_per_s: float | None
    brokers: int | None
    log_bytes_per_day: float | None
    """Replicas included."""
    projectors: int | None
    wal_bytes_per_s: float | None
    rows_per_s: float | None
    databases: int | None
    table_bytes_per_day: float | None
    streams: int
    apis_by_streams: int | None
    apis_by_cpu: int | None
    """Each reading all of the log; None where reading alone is more than a process may use, or not measured."""
    apis_reading_their_own: int | None
    """If each read the partitions of its streams only."""
    reads_too_much: bool
    """Reading the log alone is more than an api process may use."""
    cores: float | None
    """Of all processes, at their planned use, with apis that read their own partitions only."""


def cluster(found: Measured, runs_per_s: float, given: Assumptions) -> Cluster:
    """The arithmetic."""
    n = runs_per_s
    live = math.ceil(n * given.run_s)
    owners = _cores(n, _sum(found.runtime_ms, found.standby_ms), given)
    runtimes = _whole(owners)
    by_rate = _whole(None if found.partition_runs_per_s is None else n / (found.partition_runs_per_s * given.use))
    by_owners = None if runtimes is None else runtimes * given.partitions_of_a_runtime
    log = _times(n, found.log_bytes)
    written = _times(log, given.replication)
    broker_cores = _times(_cores(n, found.kafka_ms, given), given.replication)
    wal = _times(n, found.wal_bytes)
    postgres_cores = _cores(n, found.postgres_ms, given)
    projectors = _cores(n, found.projector_ms, given)
    reading = None if found.api_reading_ms is None else n * found.api_reading_ms / 1000
    left = None if reading is None else given.use - reading
    own = None if found.api_ms is None else n * found.api_ms / 1000
    streams = _whole(None if found.streams is None else live / found.streams)
    by_own = _cores(n, _sum(found.api_ms, found.api_reading_ms), given)
    reads_too_much = left is not None and left <= 0
    by_cpu = None if own is None or left is None or left <= 0 else _whole(own / left)
    whole_logs = 1 if reads_too_much else _most(streams, by_cpu)
    return Cluster(
        runs_per_s=n,
        runtimes=runtimes,
        partitions=_most(by_rate, by_owners),
        live_runs=live,
        runtime_bytes=None if runtimes is None else _times(live / runtimes, found.live_run_bytes),
        log_bytes_per_s=log,
        written_bytes_per_s=written,
        read_bytes_per_s=None if whole_logs is None else _times(log, READERS + whole_logs),
        flushes_per_s=_times(n, found.flushes),
        brokers=_most(
            given.replication,
            _whole(None if written is None else written / given.broker_bytes_per_s),
            _whole(None if broker_cores is None else broker_cores / given.broker_cores),
        ),
        log_bytes_per_day=_times(written, DAY_S),
        projectors=_whole(projectors),
        wal_bytes_per_s=wal,
        rows_per_s=_times(n, found.rows),
        databases=_most(
            _whole(None if wal is None else wal / given.postgres_wal_per_s),
            _whole(None if postgres_cores is None else postgres_cores / given.postgres_cores),
        ),
        table_bytes_per_day=_times(_times(n, found.table_bytes), DAY_S),
        streams=live,
        apis_by_streams=streams,
        apis_by_cpu=by_cpu,
        apis_reading_their_own=_whole(by_own),
        reads_too_much=reads_too_much,
        cores=_sum(owners, broker_cores, projectors, postgres_cores, _most(by_own, streams)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something that another process of the same kind does not widen, and the runs a second it is full at."""

    name: str
    runs_per_s: float
    why: str


def limits(found: Measured, given: Assumptions) -> list[Limit]:
    """What breaks, in the order in which it does."""
    candidates = (
        (
            "an api process that reads the whole log",
            _full(found.api_reading_ms, 1000 * given.use),
            "every api process reads every event, so another one helps with streams and requests, not with this",
        ),
        (
            "one Postgres, by the write-ahead log of its projections",
            _full(found.wal_bytes, given.postgres_wal_per_s),
            "all rows go to one primary; more projectors write to the same one",
        ),
        (
            "one Postgres, by its cores",
            _full(found.postgres_ms, 1000 * given.use * given.postgres_cores),
            "as above",
        ),
    )
    return sorted(
        (Limit(name=name, runs_per_s=at, why=why) for name, at, why in candidates if at is not None),
        key=lambda one: one.runs_per_s,
    )


COUNTS: Mapping[str, str] = {
    "cores": "cores",
    "runtimes": "runtimes",
    "partitions": "partitions",
    "brokers": "brokers",
    "projectors": "projectors",
    "databases": "Postgres primaries",
    "apis_by_streams": "api processes by streams",
    "apis_reading_their_own": "api processes by CPU",
}
LEAST = 0.99
"""A count that stays above this share of what it was has not changed."""
MORE_IS_BETTER = frozenset({"streams", "partition_runs_per_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What a figure that is better by half changes: half of a cost, twice what one process carries."""

    figure: str
    changes: Mapping[str, tuple[float, float]]
    """Of COUNTS, before and after."""

    @property
    def saved(self) -> float:
        """The largest share of a count that it saves."""
        return max(1 - after / before for before, after in self.changes.values())


def sensitivities(found: Measured, runs_per_s: float, given: Assumptions) -> list[Sensitivity]:
    """The figures that change a count, those that save the largest share of one first."""
    whole = cluster(found, runs_per_s, given)
    values = []
    for one in fields(Measured):
        value = getattr(found, one.name)
        if value is None:
            continue
        better: Any = {one.name: value * 2 if one.name in MORE_IS_BETTER else value / 2}
        other = cluster(replace(found, **better), runs_per_s, given)
        pairs = {name: (getattr(whole, name), getattr(other, name)) for name in COUNTS}
        changes = {name: (was, is_) for name, (was, is_) in pairs.items() if was is not None and is_ < LEAST * was}
        if changes:
            values.append(Sensitivity(figure=one.name, changes=changes))
    return sorted(values, key=lambda one: -one.saved)


def _cores(n: float, ms: float | None, given: Assumptions) -> float | None:
    return None if ms is None else n * ms / 1000 / given.use


def _sum(*parts: float | None) -> float | None:
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _whole(value: float | None) -> int | None:
    return None if value is None else max(1, math.ceil(round(value, 6)))


def _most(*parts: int | float | None) -> Any:
    """The largest; None when one of them is not known."""
    known = [part for part in parts if part is not None]
    return max(known) if len(known) == len(parts) else None


def _full(cost: float | None, room: float) -> float | None:
    return None if not cost else room / cost
